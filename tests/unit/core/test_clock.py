from __future__ import annotations

import asyncio

import pytest

from core.clock import backoff, within
from tests.clocks import ManualClock


async def test_within_tells_whether_it_ended_in_time() -> None:
    clock, event = ManualClock(), asyncio.Event()
    slow = asyncio.create_task(within(clock, 10, event.wait()))
    quick = asyncio.create_task(within(clock, 10, asyncio.sleep(0)))
    await clock.advance(9)
    assert quick.done()
    assert quick.result() is True
    assert not slow.done()
    await clock.advance(2)
    assert slow.result() is False
    assert clock.sleeping == 0


async def test_within_raises_what_the_work_raises_and_ends_it_when_cancelled() -> None:
    async def fails() -> None:
        raise ValueError("no")

    clock = ManualClock()
    with pytest.raises(ValueError, match="no"):
        await within(clock, 10, fails())
    ended = asyncio.Event()

    async def works() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    waiting = asyncio.create_task(within(clock, 10, works()))
    await clock.advance(1)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    assert ended.is_set()


@pytest.mark.parametrize(
    ("failures", "spread", "chance", "seconds"),
    [
        (0, 0.0, 0.0, 2.0),
        (1, 0.0, 0.0, 4.0),
        (4, 0.0, 0.0, 30.0),
        (100_000, 0.0, 0.0, 30.0),
        (1, 1.0, 0.0, 0.0),
        (1, 1.0, 0.25, 1.0),
        (1, 0.5, 0.0, 2.0),
        (1, 0.5, 1.0, 4.0),
        (9, 0.5, 0.5, 22.5),
    ],
)
def test_backoff(failures: int, spread: float, chance: float, seconds: float) -> None:
    assert backoff(failures, first=2.0, longest=30.0, spread=spread, chance=chance) == pytest.approx(seconds)
