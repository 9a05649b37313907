from __future__ import annotations

import asyncio
from contextlib import ExitStack
from datetime import timedelta
from math import inf

import pytest

from core.clock import ConcurrencyLimit, FairLimit, Pace, SharedPlaces, backoff, event_or_time, within
from tests.kit.clocks import LeapClock, ManualClock


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


async def test_event_or_time_returns_with_whichever_comes_first() -> None:
    clock, event = ManualClock(), asyncio.Event()
    timed = asyncio.create_task(event_or_time(clock, event, 10))
    untimed = asyncio.create_task(event_or_time(clock, event, inf))
    await clock.advance(11)
    assert timed.done()
    assert not untimed.done()
    event.set()
    await asyncio.wait_for(untimed, 10)
    assert clock.sleeping == 0


def test_pace_backs_off_to_a_minute_and_recovers() -> None:
    pace = Pace(1.0)
    waits = []
    now = 0.0
    for _ in range(2000):
        pace.refused(now, None)
        waits.append(pace.wait(now, post=False))
        now += waits[-1]
    assert waits[:4] == [1, 2, 4, 8]
    assert max(waits) == waits[-1] == 60
    pace.went_well()
    pace.refused(now, None)
    assert pace.wait(now, post=False) == 1


def test_pace_is_not_shortened_by_a_second_refusal() -> None:
    pace = Pace(1.0)
    pace.refused(10.0, 30.0)
    pace.refused(11.0, 1.0)
    assert pace.wait(11.0, post=True) == 29


async def test_time_beside_an_event_counts_from_the_call() -> None:
    clock = LeapClock()
    waiting = asyncio.ensure_future(event_or_time(clock, asyncio.Event(), 60))
    await asyncio.sleep(0)  # it was called; its sleep has not had a turn
    clock.leap(timedelta(seconds=61))
    async with asyncio.timeout(30):
        await waiting


class Crowd:
    """People who take a turn each, and end it when told."""

    def __init__(self, turns: ConcurrencyLimit, count: int) -> None:
        self.began: list[int] = []
        self.ends = [asyncio.Event() for _ in range(count)]
        self.tasks = [asyncio.create_task(self._act(turns, number)) for number in range(count)]

    async def _act(self, turns: ConcurrencyLimit, number: int) -> None:
        async with turns.slot():
            self.began.append(number)
            await self.ends[number].wait()

    async def end(self, number: int) -> None:
        self.ends[number].set()
        await self.tasks[number]
        await settled()


async def settled() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def test_turns_come_in_order_and_calm_comes_when_a_crowd_has_gone() -> None:
    turns = ConcurrencyLimit(ManualClock(), 2, 3.0)
    crowd = Crowd(turns, 4)
    await settled()
    assert crowd.began == [0, 1]
    calm = asyncio.create_task(turns.uncrowded())
    for number, began in enumerate([[0, 1, 2], [0, 1, 2, 3], [0, 1, 2, 3]]):
        await crowd.end(number)
        assert crowd.began == began
        assert not calm.done()
    await crowd.end(3)
    async with asyncio.timeout(30):
        await calm


async def test_as_many_as_have_turns_are_no_crowd() -> None:
    turns = ConcurrencyLimit(ManualClock(), 2, 3.0)
    crowd = Crowd(turns, 2)
    await settled()
    async with asyncio.timeout(30):
        await turns.uncrowded()
    for number in range(2):
        await crowd.end(number)


async def test_crowd_that_lasts_is_not_waited_for() -> None:
    clock = ManualClock()
    turns = ConcurrencyLimit(clock, 1, 3.0)
    crowd = Crowd(turns, 2)
    await settled()
    calm = asyncio.create_task(turns.uncrowded())
    await settled()
    await clock.advance(2.9)
    assert not calm.done()
    await clock.advance(0.1)
    async with asyncio.timeout(30):
        await calm
        await turns.uncrowded()
    for number in range(2):
        await crowd.end(number)


async def _steps(limit: FairLimit, party: str, count: int, seen: list[str]) -> None:
    for _ in range(count):
        async with limit.slot(party):
            await asyncio.sleep(0)
            seen.append(party)


async def test_parties_take_turns_however_much_each_has_to_do() -> None:
    limit, seen = FairLimit(1), list[str]()
    heavy = [asyncio.create_task(_steps(limit, "heavy", 5, seen)) for _ in range(20)]
    await asyncio.sleep(0)
    await asyncio.gather(_steps(limit, "light", 3, seen), _steps(limit, "other", 3, seen))
    assert "".join(party[0] for party in seen).strip("h") == "lohlohlo"
    await asyncio.gather(*heavy)
    assert len(seen) == 106


async def test_party_holds_one_slot_also_if_others_are_free() -> None:
    limit, now, most = FairLimit(inf), 0, 0

    async def work() -> None:
        nonlocal now, most
        async with limit.slot("one"):
            now += 1
            most = max(now, most)
            await asyncio.sleep(0)
            now -= 1

    await asyncio.gather(*(work() for _ in range(5)))
    assert most == 1


async def test_task_that_is_cancelled_leaves_its_slot_and_its_place() -> None:
    limit, seen = FairLimit(1), list[str]()
    held = asyncio.Event()

    async def hold() -> None:
        async with limit.slot("one"):
            held.set()
            await asyncio.Event().wait()

    holder = asyncio.create_task(hold())
    await held.wait()
    waiting = [asyncio.create_task(_steps(limit, party, 1, seen)) for party in ("one", "two", "three")]
    await asyncio.sleep(0)
    assert [limit.waiting(party) for party in ("one", "two", "four")] == [1, 1, 0]
    waiting[1].cancel()
    holder.cancel()
    waiting[0].cancel()
    await asyncio.wait([holder, *waiting])
    assert seen == ["three"]
    async with asyncio.timeout(5), limit.slot("two"):
        assert [limit.waiting(party) for party in ("one", "two", "three")] == [0, 0, 0]


def test_party_with_most_places_loses_its_first_to_one_with_fewer() -> None:
    places = SharedPlaces(3)
    with ExitStack() as held:
        heavy = [held.enter_context(places.place("heavy")) for _ in range(4)]
        assert [each is not None and not each.is_set() for each in heavy] == [True, True, True, False]
        light = held.enter_context(places.place("light"))
        assert light is not None
        assert [each is not None and each.is_set() for each in heavy] == [True, False, False, False]
        # They have nearly as many now.
        assert held.enter_context(places.place("light")) is None
        assert held.enter_context(places.place("heavy")) is None
        assert not light.is_set()
    with places.place("one") as again:
        assert again is not None
