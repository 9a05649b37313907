from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.acceptance.world import World, a_world


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    """A workspace and an agent of the standard dialect; the process is each test's to start."""
    async with a_world(tmp_path) as made:
        yield made
