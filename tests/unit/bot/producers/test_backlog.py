from __future__ import annotations

import asyncio

import pytest

from bot.producers.inbox import Arrival
from bot.producers.sse import Frame
from bot.producers.subscriber import Backlog
from tests.unit.bot.producers.parties import NOW


def arrival(size: int = 10) -> Arrival:
    return Arrival(Frame("x", None, size, 0), NOW, 0.0, live=False)


@pytest.mark.parametrize(("items", "bytes_", "size"), [(3, 10_000, 1), (100, 30, 10)])
async def test_backlog_is_bounded_by_number_and_by_bytes(items: int, bytes_: int, size: int) -> None:
    backlog = Backlog(items, bytes_)
    for _ in range(2):
        backlog.add(arrival(size))
    await backlog.room()
    backlog.add(arrival(size))
    waiting = asyncio.ensure_future(backlog.room())
    await asyncio.sleep(0)
    assert not waiting.done()
    backlog.done()
    await waiting


async def test_backlog_gives_the_oldest_until_it_is_done() -> None:
    backlog = Backlog()
    await backlog.drained()
    first = asyncio.ensure_future(backlog.first())
    one, two = arrival(1), arrival(2)
    backlog.add(one)
    backlog.add(two)
    assert await first == [one]
    assert await backlog.first(9) == [one, two]
    backlog.done()
    assert await backlog.first() == [two]
    drained = asyncio.ensure_future(backlog.drained())
    await asyncio.sleep(0)
    assert not drained.done()
    backlog.done()
    await drained
    assert len(backlog) == 0
