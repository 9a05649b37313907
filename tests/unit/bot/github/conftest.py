from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from bot.delivery.store import Store
from tests.clocks import ManualClock
from tests.unit.bot.github.fake import Github, serving
from tests.unit.bot.github.world import World


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(auto=True)


@pytest.fixture
async def github(clock: ManualClock) -> AsyncIterator[Github]:
    async with serving(lambda: clock.now().timestamp()) as served:
        yield served


@pytest.fixture
async def world(tmp_path: Path, github: Github, clock: ManualClock) -> AsyncIterator[World]:
    folder = tmp_path / "ledgers"
    folder.mkdir()
    made = World(folder, github, clock, await Store.open(tmp_path / "clarify.db"))
    yield made
    await made.close()
