from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from bot.workspace import Workspace
from tests.acceptance.world import StandardAgent, Tap, World


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    """A workspace and an agent of the standard dialect; the process is each test's to start."""
    tap = Tap()
    async with Workspace() as workspace, StandardAgent(tap) as agent:
        yield World(tmp_path, workspace, agent, tap)
