"""A limit that parties share: whoever has much to do delays nobody by more than a step."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack
from math import inf

from core.clock import FairLimit, SharedPlaces


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
