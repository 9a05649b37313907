from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from bot.producers import subscriber
from tests.kit.world import Scene, scene


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncIterator[Scene]:
    async with scene(tmp_path) as made:
        yield made


@pytest.fixture(autouse=True)
def _replays_come_without_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each start waits until a producer is quiet; ours is in the same process, and does not hesitate."""
    monkeypatch.setattr(subscriber, "GAP", 0.03)
