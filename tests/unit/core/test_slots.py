"""Places shared between kinds of work."""

from __future__ import annotations

import asyncio

from core.dispatch import Slots


class Work:
    """Work that holds its place until `end`."""

    def __init__(self, slots: Slots, kind: str, log: list[str], name: str) -> None:
        self._end = asyncio.Event()
        self.task = asyncio.create_task(self._run(slots, kind, log, name))

    async def _run(self, slots: Slots, kind: str, log: list[str], name: str) -> None:
        async with slots.one(kind):
            log.append(name)
            await self._end.wait()

    async def end(self) -> None:
        self._end.set()
        await self.task
        await _turns()


async def _turns() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_slots_the_kind_with_the_fewest_goes_first() -> None:
    slots, log = Slots(2), list[str]()
    works = {name: Work(slots, name[0], log, name) for name in ("a1", "a2", "a3", "a4", "b1", "c1", "b2")}
    await _turns()
    assert log == ["a1", "a2"]
    order = ["a1", "a2", "b1", "a3", "c1", "b2", "a4"]
    for name in order:
        assert name in log, "each gets its turn"
        await works[name].end()
    assert log == order


async def test_slots_cancelled_ones_lose_no_place() -> None:
    slots, log = Slots(1), list[str]()
    async with slots.one("a"):
        second, third = Work(slots, "a", log, "2"), Work(slots, "a", log, "3")
        await _turns()
    second.task.cancel()  # it has been given the place, and has not run yet
    await _turns()
    assert log == ["3"]
    fourth = Work(slots, "a", log, "4")
    await _turns()
    fourth.task.cancel()
    last = Work(slots, "b", log, "5")
    await _turns()
    await third.end()
    assert log == ["3", "5"]
    await last.end()
