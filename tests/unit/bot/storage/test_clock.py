"""The server's clock as several bots follow it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from bot.storage.opening import open_storage
from bot.storage.server import Sample, ServerClock
from core.clock import SystemClock
from tests.kit.clocks import ManualClock
from tests.kit.databases import Server

NOON = datetime(2026, 11, 23, 12, tzinfo=UTC)


class Parties:
    """A bot whose own clock is wrong, and the server's."""

    def __init__(self) -> None:
        self.own = ManualClock()
        self.clock = ServerClock(self.own)
        self._began = self.own.steady()
        self._ahead = 0.0

    @property
    def server(self) -> datetime:
        return NOON + timedelta(seconds=self.own.steady() - self._began + self._ahead)

    @property
    def wrong(self) -> float:
        return (self.clock.now() - self.server).total_seconds()

    def set(self, seconds: float) -> None:
        """The server's clock is set."""
        self._ahead += seconds

    async def ask(self, there: float, back: float) -> None:
        sent = self.own.steady()
        await self.own.advance(there)
        at = self.server.timestamp()
        await self.own.advance(back)
        self.clock.add(Sample(sent, self.own.steady(), at))


async def test_it_is_the_servers_whatever_ones_own_says() -> None:
    parties = Parties()
    assert abs(parties.wrong) > 1
    await parties.ask(0.002, 0.002)
    assert abs(parties.wrong) < 0.0001
    await parties.own.advance(3600)
    assert abs(parties.wrong) < 0.0001
    parties.own.jump(parties.own.now() + timedelta(days=1))
    assert abs(parties.wrong) < 0.0001


async def test_the_quickest_of_the_last_answers_counts() -> None:
    parties = Parties()
    await parties.ask(0.001, 0.001)
    for _ in range(5):
        await parties.own.advance(2)
        await parties.ask(0.2, 1.5)
    assert abs(parties.wrong) < 0.0001
    for _ in range(8):
        await parties.own.advance(2)
        await parties.ask(0.05, 0.01)
    assert 0.01 < abs(parties.wrong) < 0.03, "those before are forgotten"


@pytest.mark.parametrize("seconds", [-300, -1, 1, 300])
async def test_when_the_servers_is_set_this_one_is_too(seconds: float) -> None:
    parties = Parties()
    await parties.ask(0.001, 0.001)
    parties.set(seconds)
    await parties.own.advance(2)
    await parties.ask(0.02, 0.03)
    assert abs(parties.wrong) < 0.01


async def test_machines_that_differ_by_minutes_have_one_time_on_one_database(
    postgres_server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = postgres_server.new()
    right = await open_storage(url)
    monkeypatch.setattr(SystemClock, "now", lambda _: datetime.now(UTC) + timedelta(minutes=10))
    wrong = await open_storage(url)
    assert abs(wrong.clock.now() - right.clock.now()) < timedelta(minutes=1)
    assert abs(right.clock.now() - datetime.now(UTC)) < timedelta(minutes=1)
    await right.lead()
    await right.close()
    await wrong.close()
