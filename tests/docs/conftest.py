from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.kit.served import reserved_port
from tests.kit.world import World, scene
from tests.unit.bot.cli.conftest import _own_logs  # noqa: F401 - commands that run here, too, send logs elsewhere


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncIterator[World]:
    async with scene(tmp_path) as made:
        yield made


@pytest.fixture
def port() -> Iterator[int]:
    """See `reserved_port`."""
    with reserved_port() as reserved:
        yield reserved
