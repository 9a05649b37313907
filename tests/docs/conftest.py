from __future__ import annotations

from tests.unit.bot.cli.conftest import _own_logs  # noqa: F401 - commands that run here, too, send logs elsewhere
