from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.kit.world import World, scene
from tests.unit.bot.cli.conftest import _own_logs, prompt

__all__ = ["_own_logs", "prompt"]


@pytest.fixture(autouse=True)
def _on_a_database(_database: None) -> None:
    """The weekly digest runs on either."""


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncIterator[World]:
    async with scene(tmp_path) as made:
        yield made
