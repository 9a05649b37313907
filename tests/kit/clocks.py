"""Clocks that tests move: by hand, by leaps, or faster than time passes."""

from __future__ import annotations

import asyncio
import heapq
import itertools
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta

START = datetime(2026, 11, 21, 9, 0, tzinfo=UTC)
_TURNS = 20
_BEAT, _LATEST_BEAT = 0.01, 0.03  # seconds


class ManualClock:
    """A `core.clock.Clock` that stands still until `advance`; sleepers wake in the order of their times.

    `slept` lists the seconds of every sleep asked for. `auto` advances by itself to what is slept for, for tests
    that only look at how long something waits.
    """

    def __init__(self, start: datetime = START, *, auto: bool = False) -> None:
        self.slept: list[float] = []
        self._now = start
        self._began = start  # of the steady time
        self._auto = auto
        self._sleepers: list[tuple[datetime, int, asyncio.Future[None]]] = []
        self._order = itertools.count()

    def now(self) -> datetime:
        return self._now

    def steady(self) -> float:
        return (self._now - self._began).total_seconds()

    @property
    def sleeping(self) -> int:
        """How many wait for this clock."""
        return sum(not woken.done() for _, _, woken in self._sleepers)

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        due = self._now + timedelta(seconds=max(0.0, seconds))
        if self._auto:
            self._now = max(self._now, due)
        if due <= self._now:
            await asyncio.sleep(0)
            return
        woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (due, next(self._order), woken))
        await woken

    def jump(self, to: datetime) -> None:
        """Set the time without waking anybody, as when the machine's clock is changed."""
        self._began += to - self._now
        self._now = to

    async def advance(self, seconds: float) -> None:
        """Move on by `seconds`: whoever sleeps less wakes at its time, and runs as far as it can without waiting."""
        end = self._now + timedelta(seconds=seconds)
        await _let_run()
        while self._sleepers and self._sleepers[0][0] <= end:
            due, _, woken = heapq.heappop(self._sleepers)
            self._now = max(self._now, due)
            if not woken.done():
                woken.set_result(None)
            await _let_run()
        self._now = end
        await _let_run()


async def _let_run() -> None:
    for _ in range(_TURNS):
        await asyncio.sleep(0)


class LeapClock:
    """The time of day at `speed` times its pace, which leaps: whoever sleeps wakes up when the time has come.

    Also the workspace's and the producer's clock in a world of it, so that all of them agree. `ahead` sets it: nobody
    wakes, and its steady time stays, as when the machine's clock is changed.

    A fast one stands still while the event loop does: a second in which a busy machine does nothing would be minutes.
    """

    def __init__(self, speed: float = 1.0) -> None:
        self.ahead = timedelta(0)
        self._speed = speed
        self._began = self._seen = time.time()
        self._stood = 0.0  # seconds in which the event loop did
        self._reading = threading.Lock()
        self._past = 0.0  # seconds that were leapt over
        self._leapt = asyncio.Event()
        self._is_fast = speed > 1
        if self._is_fast:
            self._beat(asyncio.get_running_loop())

    def now(self) -> datetime:
        return datetime.fromtimestamp(self._began + self.steady(), UTC) + self.ahead

    def seconds(self) -> float:
        """`now` as seconds since 1970."""
        return self.now().timestamp()

    def steady(self) -> float:
        return (self._ran() - self._began) * self._speed + self._past

    def _ran(self) -> float:
        if not self._is_fast:
            return time.time()
        with self._reading:
            now = time.time()
            self._stood += max(0.0, now - self._seen - _LATEST_BEAT)
            self._seen = now
            return now - self._stood

    def _beat(self, loop: asyncio.AbstractEventLoop) -> None:
        self._ran()
        loop.call_later(_BEAT, self._beat, loop)

    def leap(self, by: timedelta) -> None:
        self._past += by.total_seconds()
        leapt, self._leapt = self._leapt, asyncio.Event()
        leapt.set()

    async def pass_by(self, seconds: float, steps: int = 20) -> None:
        """Leap by `seconds` in small leaps, between which others do what is due."""
        for _ in range(steps):
            self.leap(timedelta(seconds=seconds / steps))
            await asyncio.sleep(0.01)

    async def until(self, predicate: Callable[[], object]) -> None:
        """Leap by a second again and again, until the predicate holds; for what is due by the clock, but not when."""
        async with asyncio.timeout(60):
            while not predicate():
                self.leap(timedelta(seconds=1))
                await asyncio.sleep(0.05)

    async def sleep(self, seconds: float) -> None:
        until = self.steady() + seconds
        await asyncio.sleep(0)
        while (left := until - self.steady()) > 0:
            with suppress(TimeoutError):
                async with asyncio.timeout(left / self._speed):
                    await self._leapt.wait()


class StandingClock(LeapClock):
    """A `LeapClock` whose time of day moves by leaps alone, so that what is done between two of them has the same time. Its
    steady time moves on, for those who sleep; a leap takes both to the same point.
    """

    def __init__(self) -> None:
        super().__init__()
        self._today, self._mark = START, self.steady()

    def now(self) -> datetime:
        return self._today + self.ahead

    def leap(self, by: timedelta) -> None:
        self._today += by
        self._mark += by.total_seconds()
        super().leap(timedelta(seconds=max(0.0, self._mark - self.steady())))
