"""Time as an argument: every part that asks for the time or waits takes a Clock."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine
from datetime import UTC, datetime
from math import inf
from typing import Any, Protocol

_SHORTEST_SLEEP = 0.001  # less than a clock can tell apart would return at the same moment for ever


class Clock(Protocol):
    def now(self) -> datetime:
        """The time of day, aware, UTC."""
        ...

    def steady(self) -> float:
        """Seconds since some moment, by a clock that nobody sets."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Returns after `seconds` of this clock's time."""
        ...


class SystemClock:
    def now(self) -> datetime:
        return datetime.now(UTC)

    def steady(self) -> float:
        # Linux's monotonic clock stands still while the machine sleeps, its time since the boot does not.
        if hasattr(time, "CLOCK_BOOTTIME"):
            return time.clock_gettime(time.CLOCK_BOOTTIME)
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(max(0.0, seconds))


def iso(moment: datetime) -> str:
    """RFC 3339 in UTC with milliseconds and `Z`, as ledgers and AAEP write it."""
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def backoff(
    failures: int, *, first: float, longest: float, spread: float = 0.0, chance: float = 1.0
) -> float:
    """Seconds before the next try: doubles with every failure, from `first` for 0 of them, up to `longest`.

    `spread` is the share of it that is left to `chance` (from 0 to 1), so that not all who failed come back at once.
    Source: "Exponential Backoff And Jitter", AWS Architecture Blog; a `spread` of 1 is its full jitter.
    """
    seconds = min(longest, first * 2.0 ** min(failures, 30))
    return seconds * (1.0 - spread * (1.0 - chance))


async def within(clock: Clock, seconds: float, work: Coroutine[Any, Any, object]) -> bool:
    """Whether `work` ends within `seconds` of the clock's time; it is cancelled if not. Raises what it raises."""
    working, limit = asyncio.ensure_future(work), asyncio.ensure_future(clock.sleep(seconds))
    try:
        await asyncio.wait({working, limit}, return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            working.result()
        return working.done()
    finally:
        for task in (working, limit):
            task.cancel()
        await asyncio.gather(working, limit, return_exceptions=True)


async def event_or_time(clock: Clock, event: asyncio.Event, seconds: float) -> None:
    """Returns when `event` is set, or after `seconds` of the clock's time (`inf`: only when it is set)."""
    waits: set[asyncio.Future[object]] = {asyncio.ensure_future(event.wait())}
    if seconds < inf:
        waits.add(asyncio.ensure_future(clock.sleep(max(seconds, _SHORTEST_SLEEP))))
    try:
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for each in waits:
            each.cancel()
