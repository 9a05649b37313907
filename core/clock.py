"""Clocks, and ways to wait and to take turns: every part that asks for the time or waits takes a Clock.

Also formats times as in ledgers, and durations as people type and read them (`90m`, `2h`, `1h30m`, `7d`, `2w`).
"""

from __future__ import annotations

import asyncio
import re
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from math import inf
from typing import Any, Protocol, TypeVar

from core.errors import BadInput

_T = TypeVar("_T")
_SHORTEST_SLEEP = 0.001  # a shorter sleep could return at the same clock reading, again and again
_SPAN_UNITS = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_SPAN = r"(\d{1,6})(m(?:in(?:ute)?s?)?|h(?:(?:ou)?rs?)?|d(?:ays?)?|w(?:eeks?)?)"
_WHOLE_SPAN = re.compile(rf"(?:{_SPAN})+", re.IGNORECASE)
_EACH_SPAN = re.compile(_SPAN, re.IGNORECASE)
_LIKE_A_SPAN = re.compile(
    r"[-−]\d+|[-−+]?(?:\d+(?:[.,]\d+)?(?:s(?:ec(?:ond)?s?)?|m(?:in(?:ute)?s?|onths?)?|h(?:(?:ou)?rs?)?|d(?:ays?)?"
    r"|w(?:eeks?)?|y(?:ears?)?))+",
    re.IGNORECASE,
)
_DAY = timedelta(days=1)
_FIRST = datetime.min.replace(tzinfo=UTC)
_UNIT_NAMES = (("week", 7 * 86_400), ("day", 86_400), ("hour", 3600), ("minute", 60), ("second", 1))


class Clock(Protocol):
    def now(self) -> datetime:
        """The time of day, aware, UTC."""
        ...

    def steady(self) -> float:
        """Seconds by a monotonic clock."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Returns after `seconds` of this clock's time."""
        ...


class SystemClock:
    def now(self) -> datetime:
        return datetime.now(UTC)

    def steady(self) -> float:
        # Unlike Linux's monotonic clock, CLOCK_BOOTTIME includes the time that the machine sleeps.
        if hasattr(time, "CLOCK_BOOTTIME"):
            return time.clock_gettime(time.CLOCK_BOOTTIME)
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(max(0.0, seconds))


def iso(moment: datetime) -> str:
    """RFC 3339 in UTC with milliseconds and `Z`, as ledgers and AAEP write it."""
    in_utc = moment if moment.tzinfo is UTC else moment.astimezone(UTC)
    return in_utc.isoformat(timespec="milliseconds")[: -len("+00:00")] + "Z"


def backoff(
    failures: int, *, first: float, longest: float, spread: float = 0.0, chance: float = 1.0
) -> float:
    """Seconds before the next try: doubles with every failure, from `first` for 0 of them, up to `longest`.

    `spread` is the share of it that depends on `chance` (from 0 to 1), so that not all callers retry at once.
    Source: "Exponential Backoff And Jitter", AWS Architecture Blog; a `spread` of 1 is its full jitter.
    """
    seconds = min(longest, first * 2.0 ** min(failures, 30))
    return seconds * (1.0 - spread * (1.0 - chance))


@dataclass(slots=True)
class Pace:
    """Limits how often we post to one place: at most `posts_per_second`, and not while it asked us to wait.

    Times are seconds of a monotonic clock.
    """

    posts_per_second: float
    next_slot: float = 0.0
    paused_until: float = 0.0
    guessed: bool = False  # whether the length of the pause is our guess
    failures: int = 0

    def wait(self, now: float, *, post: bool) -> float:
        """Seconds until a post (or something else) may go."""
        until = max(self.paused_until, self.next_slot) if post else self.paused_until
        return max(0.0, until - now)

    def posted(self, now: float) -> None:
        """A post begins."""
        self.next_slot = now + 1.0 / self.posts_per_second

    def not_posted(self, began: float) -> None:
        """Free the slot of a post that was begun at `began` and posted nothing, unless another one has begun since."""
        if self.next_slot == began + 1.0 / self.posts_per_second:
            self.next_slot = began

    def refused(self, now: float, retry_after: float | None) -> None:
        """Pause for `retry_after`, or for longer each time, up to a minute. Refusals of concurrent posts count once."""
        if now >= self.paused_until:
            self.failures += 1
        wait = retry_after if retry_after is not None else backoff(self.failures, first=0.5, longest=60.0)
        if now + wait >= self.paused_until:
            self.paused_until, self.guessed = now + wait, retry_after is None

    def resume(self) -> None:
        """End a guessed pause."""
        if self.guessed:
            self.paused_until, self.guessed = 0.0, False

    def went_well(self) -> None:
        self.failures = 0


@asynccontextmanager
async def beside(*work: Awaitable[_T]) -> AsyncIterator[Sequence[asyncio.Future[_T]]]:
    """Runs work concurrently with the block. Cancels what has not ended when the block ends."""
    tasks = [asyncio.ensure_future(each) for each in work]
    try:
        yield tasks
    finally:
        for each in tasks:
            each.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def first_of(*work: Awaitable[Any]) -> asyncio.Future[Any]:
    """Returns the one of these that ended first, the earliest named of several, after cancelling the others."""
    async with beside(*work) as tasks:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        return next(each for each in tasks if each in done)


async def within(clock: Clock, seconds: float, work: Awaitable[Any]) -> bool:
    """Whether `work` ends within `seconds` of the clock's time; it is cancelled if not. Raises what it raises."""
    working = asyncio.ensure_future(work)
    ended = await first_of(working, clock.sleep(seconds))
    if ended is working:
        ended.result()
    return ended is working


async def event_or_time(clock: Clock, event: asyncio.Event, seconds: float) -> None:
    """Returns when `event` is set, or `seconds` of the clock's time after the call (`inf`: only when it is set)."""
    began = clock.steady()

    async def sleep() -> None:
        await clock.sleep(max(seconds - (clock.steady() - began), _SHORTEST_SLEEP))

    # Not `first_of`: what is cancelled here has nothing to clean up, and waiting for it takes turns of the event loop.
    waits: set[asyncio.Future[object]] = {asyncio.ensure_future(event.wait())}
    if seconds < inf:
        waits.add(asyncio.ensure_future(sleep()))
    try:
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for each in waits:
            each.cancel()


class ConcurrencyLimit:
    """Limits concurrent work to `at_once` slots, first come, first served.

    It is crowded from when a task has to wait for a slot until no task is left. Less urgent work lets the crowd pass first
    (`uncrowded`), for `longest` seconds at most.
    """

    def __init__(self, clock: Clock, at_once: int, longest: float) -> None:
        self._clock = clock
        self._longest = longest
        self._slots = asyncio.Semaphore(at_once)
        self._there = 0
        self._crowded_since = 0.0
        self._calm = asyncio.Event()
        self._calm.set()

    @asynccontextmanager
    async def slot(self) -> AsyncIterator[None]:
        """Wait for a slot and hold it."""
        if self._slots.locked() and self._calm.is_set():
            self._crowded_since = self._clock.steady()
            self._calm.clear()
        self._there += 1
        try:
            async with self._slots:
                yield
        finally:
            self._there -= 1
            if not self._there:
                self._calm.set()

    async def uncrowded(self) -> None:
        """Returns when it is not crowded, or has been for `longest` seconds."""
        left = self._crowded_since + self._longest - self._clock.steady()
        if not self._calm.is_set() and left > 0:
            await event_or_time(self._clock, self._calm, left)


def span_of(text: str) -> timedelta | None:
    """A positive duration, or None if `text` is not one."""
    if not _WHOLE_SPAN.fullmatch(text):
        return None
    total = timedelta()
    for amount, unit in _EACH_SPAN.findall(text):
        total += timedelta(**{_SPAN_UNITS[unit[0].lower()]: int(amount)})
    return total or None


def moment_of(text: str, now: datetime, option: str = "") -> datetime:
    """Returns the moment that a date (`2026-11-01`, midnight UTC), a time, or a span before now (`30d`) means. A span that is
    too long begins with the first possible time. `option`: what a message names.

    Raises:
        BadInput: it is none of these.
    """
    try:
        if (span := span_of(text)) is not None:
            return now - span if span < now - _FIRST else _FIRST
        at = datetime.fromisoformat(text)
    except (OverflowError, ValueError):
        where = f"{option}: " if option else ""
        raise BadInput(
            f"{where}{text[:40]!r}: expected a date such as 2026-11-01, or a time span such as 30d."
        ) from None
    return at if at.tzinfo is not None else at.replace(tzinfo=UTC)


def is_like_span(text: str) -> bool:
    """Whether a text looks like a duration, even an invalid one: `-2h`, `3s`, `1.5h`."""
    return _LIKE_A_SPAN.fullmatch(text) is not None


def recent(span: timedelta) -> str:
    """The title for a span up to now: `Last 7 days`, `Last 24 hours`, `Last hour`."""
    days = span / _DAY
    if days.is_integer():
        return f"Last {days:.0f} days" if days > 1 else "Last 24 hours"
    said = spoken(span)
    return f"Last {said.removeprefix('1 ') if said in {'1 hour', '1 minute'} else said}"


def spoken(span: timedelta) -> str:
    """A span in words, in its two largest units: `2 hours 30 minutes`. Less than a second: `0 seconds`."""
    left, parts = max(0, round(span.total_seconds())), []
    for name, seconds in _UNIT_NAMES:
        amount, left = divmod(left, seconds)
        if amount:
            parts.append(f"{amount} {name}{'s' if amount > 1 else ''}")
        elif parts:
            break
    return " ".join(parts[:2]) or "0 seconds"


class FairLimit:
    """Limits concurrent work to `at_once` slots. A party holds one at most, and parties that wait take turns.

    If the work is done in short steps, each step waits for one step of every other party at most, however much they have
    to do.
    """

    def __init__(self, at_once: float) -> None:
        self._at_once = at_once
        self._holding: set[str] = set()
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}  # whose turn is next comes first

    def waiting(self, party: str) -> int:
        """Returns how many tasks of a party wait for a slot."""
        return sum(not each.done() for each in self._waiting.get(party, ()))

    @asynccontextmanager
    async def slot(self, party: str) -> AsyncIterator[None]:
        """Waits for a slot and holds it. A party's own tasks come in the order of their calls."""
        given: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(party, deque()).append(given)
        self._hand_out()
        try:
            await given
            yield
        finally:
            if not given.cancelled():
                self._holding.remove(party)
                if (waiting := self._waiting.pop(party, None)) is not None:
                    self._waiting[party] = waiting  # behind the others
                self._hand_out()

    def _hand_out(self) -> None:
        for party in [each for each in self._waiting if each not in self._holding]:
            if len(self._holding) >= self._at_once:
                return
            waiting = self._waiting[party]
            while waiting and waiting[0].done():  # its task was cancelled
                waiting.popleft()
            if waiting:
                waiting.popleft().set_result(None)
                self._holding.add(party)
            if not waiting:
                del self._waiting[party]


class SharedPlaces:
    """Up to `most` places, for as long as tasks wait for something. Once all are taken, a party takes one over from the party
    that has the most, unless it has as many itself.
    """

    def __init__(self, most: int) -> None:
        self._left = most
        self._taken: dict[str, dict[asyncio.Event, None]] = {}  # the first one first

    @contextmanager
    def place(self, party: str) -> Iterator[asyncio.Event | None]:
        """Yields an event that is set once the place is taken over, or None if there is no place."""
        if self._left <= 0 and not self._take_over(party):
            yield None
            return
        lost = asyncio.Event()
        self._left -= 1
        self._taken.setdefault(party, {})[lost] = None
        try:
            yield lost
        finally:
            if not lost.is_set():
                self._leave(party, lost)

    def _take_over(self, party: str) -> bool:
        most = max(self._taken, key=lambda each: len(self._taken[each]), default=None)
        if most is None or len(self._taken[most]) <= len(self._taken.get(party, ())) + 1:
            return False
        lost = next(iter(self._taken[most]))
        self._leave(most, lost)
        lost.set()
        return True

    def _leave(self, party: str, lost: asyncio.Event) -> None:
        self._left += 1
        del self._taken[party][lost]
        if not self._taken[party]:
            del self._taken[party]
