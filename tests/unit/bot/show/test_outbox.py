"""The outbox alone: when what is tried again, what holds up what, and what happens to what cannot be stored."""

from __future__ import annotations

import asyncio
import random
from math import inf

import pytest

from bot.errors import StorageUnavailable
from bot.show.outbox import Backoff, Delivered, Outbox, Outcome, RetryLater
from tests.kit.clocks import START, ManualClock
from tests.kit.until import until

POLICY = Backoff(first=1.0, longest=30.0, spread=0.0)


class Party:
    """Gives the scripted outcomes in turn, then takes everything. `at`: seconds since the start, and the key, of each try."""

    def __init__(self, clock: ManualClock, *script: Outcome | Exception | None, at_once: int = 1) -> None:
        self.script = list(script)
        self.at: list[tuple[float, str]] = []
        self.outcomes: list[str] = []
        self.clock = clock
        self.hang: asyncio.Event | None = None
        self.outbox: Outbox[str] = Outbox(
            "party",
            self.attempt,
            POLICY,
            clock=clock,
            rng=random.Random(1),  # noqa: S311 - no secret
            at_once=at_once,
            on_outcome=self.outcomes.append,
        )
        self.outbox.start()

    async def attempt(self, key: str) -> Outcome | None:
        self.at.append(((self.clock.now() - START).total_seconds(), key))
        if self.hang is not None:
            await self.hang.wait()
        outcome = self.script.pop(0) if self.script else Delivered()
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    async def all_tried(self) -> list[tuple[float, str]]:
        await until(lambda: not self.outbox)
        return self.at


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(auto=True)


@pytest.mark.parametrize(
    ("outcome", "seconds"),
    [
        (RetryLater("x"), 1.0),
        (RetryLater("x", after=7.0), 7.0),
        (RetryLater("x", within=0.5), 0.5),
        (RetryLater("x", within=3.0, after=60.0), 3.0),
        (RetryLater("x", within=0.001), 0.05),
        (StorageUnavailable(), 0.5),
        (RuntimeError("a defect"), 60.0),
    ],
)
async def test_outbox_waits(clock: ManualClock, outcome: Outcome | Exception, seconds: float) -> None:
    party = Party(clock, outcome)
    party.outbox.put("a")
    assert await party.all_tried() == [(0.0, "a"), (pytest.approx(seconds, abs=0.01), "a")]


async def test_outbox_waits_longer_each_time_and_begins_anew_once_it_went_well(clock: ManualClock) -> None:
    party = Party(clock, *[RetryLater("x")] * 6, Delivered(more=True), RetryLater("x"))
    party.outbox.put("a")
    at = [round(seconds) for seconds, _ in await party.all_tried()]
    assert at == [0, 1, 3, 7, 15, 31, 61, 61, 62]
    assert party.outcomes == ["later"] * 6 + ["sent", "later", "sent"]


# mail


async def test_signal_that_comes_as_the_retry_begins_makes_no_second_attempt() -> None:
    def timer_fires(_: object) -> None:
        party.outbox._schedule("a", -inf)
        party.outbox._pump()

    back = asyncio.get_running_loop().create_future()
    back.add_done_callback(timer_fires)
    party = Party(ManualClock(), RetryLater("x", after=7.0, sooner=lambda: back), at_once=2)
    party.outbox.put("a")
    await until(lambda: len(party.at) == 1 and "a" in party.outbox)
    party.hang = asyncio.Event()
    back.set_result(None)
    await until(lambda: len(party.at) == 2)
    for _ in range(10):
        await asyncio.sleep(0)
    assert len(party.at) == 2
    party.hang.set()
    await party.all_tried()
    await party.outbox.close()
