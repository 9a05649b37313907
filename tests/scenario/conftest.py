from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from bot.producers import subscriber
from tests.kit.clocks import LeapClock
from tests.kit.served import reserved_port
from tests.kit.world import World, scene


@pytest.fixture(autouse=True)
def _on_a_database(_database: None) -> None:
    """Scenarios run on either."""


@pytest.fixture
async def stage(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[World]:
    """Its clock runs as fast as `@pytest.mark.speed` says, for what takes seconds by the bot's clock."""
    speed = request.node.get_closest_marker("speed")
    async with scene(tmp_path, clock=LeapClock(*speed.args) if speed else None) as made:
        yield made


@pytest.fixture(autouse=True)
def _hooks_of_each_test_are_a_users_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """They keep their locks there."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "runtime"))


@pytest.fixture
def port() -> Iterator[int]:
    """See `reserved_port`."""
    with reserved_port() as reserved:
        yield reserved


@pytest.fixture(autouse=True)
def _replays_come_without_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each start waits until a producer is quiet; ours is in the same process, and does not hesitate."""
    monkeypatch.setattr(subscriber, "GAP", 0.03)
