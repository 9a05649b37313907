"""Sends messages channel by channel, in order of priority, at the pace that Slack allows.

Each channel has a lane with two queues: paced posts, and updates, which are not paced and so never wait behind posts.
A key waits at most once in a queue. Its content is decided when its turn comes.

Within a priority, the producer with the fewest recent posts in the channel comes first, so that one busy producer
does not delay the others' questions.

At several posts a second, as many cards and updates are sent concurrently. Pages and notices are posted one at a
time: their content may depend on the previous one.
"""

from __future__ import annotations

import asyncio
import heapq
import random
from collections import Counter, deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial

import structlog

from core.clock import Clock, Pace, event_or_time

_log = structlog.get_logger("clarify.delivery")
Priority = tuple[int, float]
# Order of sending (design): pages, removal of dead controls, cards by time left, notices.
PAGE, DEAD_CONTROLS, CARD, NOTICE = range(4)
_MOST_AT_ONCE = 16  # per queue
_LATELY = 60.0  # seconds for which a post counts as recent


def card_priority(expires_at: float | None) -> Priority:
    """Orders cards by the time left; those that never expire come last."""
    return (CARD, expires_at if expires_at is not None else float("inf"))


@dataclass(frozen=True, slots=True)
class Done:
    """Nothing more to do for this key now. `posted`: a post was tried, which used a slot."""

    posted: bool = False


@dataclass(frozen=True, slots=True)
class Again:
    """Try this key again after `seconds`, or when the lane continues.

    `pause`: Slack refused, so the whole lane waits; then `seconds` None means "use the backoff".
    """

    seconds: float | None = None
    pause: bool = False
    posted: bool = False


@dataclass(frozen=True, slots=True)
class NotYet:
    """Posting is paused: try this key again after `Lanes.go_on`."""


Deliver = Callable[[str], Awaitable[Done | Again | NotYet]]


@dataclass(frozen=True, slots=True)
class _Queued:
    """A key's place in a queue. `producer`: whose message it is, or empty; `number`: the order of arrival."""

    key: str
    priority: Priority
    producer: str
    number: int


@dataclass(slots=True)
class _Queue:
    heaps: dict[tuple[int, str], list[tuple[Priority, int, str]]] = field(
        default_factory=dict
    )  # by priority class and producer
    waiting: dict[str, _Queued] = field(default_factory=dict)
    turns: deque[tuple[float, str]] = field(default_factory=deque)  # recent posts: when, and whose
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    worker: asyncio.Task[None] | None = None
    running: set[asyncio.Task[None]] = field(default_factory=set)

    def put(self, place: _Queued) -> None:
        """Queues a key here, replacing its earlier place."""
        self.waiting[place.key] = place
        heap = self.heaps.setdefault((place.priority[0], place.producer), [])
        heapq.heappush(heap, (place.priority, place.number, place.key))
        self.changed.set()

    def pop(self, now: float) -> _Queued | None:
        """Returns the next place, or None."""
        while self.turns and self.turns[0][0] <= now - _LATELY:
            self.turns.popleft()
        had = Counter(producer for _, producer in self.turns)
        heads = []
        for name in list(self.heaps):
            heap = self.heaps[name]
            while heap and not self._is_place(heap[0]):
                heapq.heappop(heap)  # it was replaced
            if heap:
                heads.append((name[0], had[name[1]], heap[0], name))
            else:
                del self.heaps[name]
        if not heads:
            return None
        _, _, _, name = min(heads)
        return self.waiting.pop(heapq.heappop(self.heaps[name])[2])

    def _is_place(self, entry: tuple[Priority, int, str]) -> bool:
        place = self.waiting.get(entry[2])
        return place is not None and place.number == entry[1]

    def clear(self) -> None:
        self.heaps.clear()
        self.waiting.clear()
        self.changed.set()


class Lanes:
    """All lanes. `deliver(key)` reconciles one message with its desired state."""

    def __init__(self, deliver: Deliver, clock: Clock, posts_per_second: float, rng: random.Random) -> None:
        self._deliver = deliver
        self._clock = clock
        self._rng = rng
        self._posts_per_second = posts_per_second
        self._at_once = max(1, int(min(posts_per_second, _MOST_AT_ONCE)))
        self._paces: dict[str, Pace] = {}
        self._queues: dict[tuple[str, bool], _Queue] = {}
        self._not_yet: list[tuple[str, _Queued]] = []
        self._went_on = 0
        self._later: set[asyncio.Task[None]] = set()
        self._count = 0
        self._closed = False
        # If False, another bot sends, or this one later: the storage knows what.
        self.active = True
        self.failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def put(
        self, channel: str, key: str, *, post: bool, priority: Priority | None = None, producer: str = ""
    ) -> None:
        """Queues `key`; a `priority` also moves it if it is already queued. Without one it is a page or a notice, by
        its key. `producer`: whose message it is.
        """
        if self._closed or not self.active:
            return
        queue = self._queues.setdefault((channel, post), _Queue())
        waits = queue.waiting.get(key)
        if priority is None:
            priority = (PAGE if key.startswith("page:") else NOTICE), 0.0
            if waits is not None and waits.priority <= priority:
                return
        if waits is not None and waits.priority == priority:
            return
        self._count += 1
        queue.put(_Queued(key, priority, producer or (waits.producer if waits else ""), self._count))
        if queue.worker is None:
            queue.worker = asyncio.create_task(self._work(channel, post, queue), name=f"lane {channel}")
            queue.worker.add_done_callback(self._ended)

    def _put_back(self, channel: str, place: _Queued, *, post: bool) -> None:
        """Queues a key again, unless it got another place meanwhile."""
        queue = self._queues.get((channel, post))
        if queue is None or place.key not in queue.waiting:
            self.put(channel, place.key, post=post, priority=place.priority, producer=place.producer)

    def go_on(self) -> None:
        """Queues again what could not be posted while posting was paused."""
        self._went_on += 1
        held, self._not_yet = self._not_yet, []
        for channel, place in held:
            self._put_back(channel, place, post=True)

    def slack_is_back(self) -> None:
        """Ends the backoff of all lanes, but not the waits that Slack asked for."""
        for pace in self._paces.values():
            pace.resume()
        for queue in self._queues.values():
            queue.changed.set()

    @property
    def length(self) -> int:
        """The number of queued keys in all lanes."""
        return len(self._not_yet) + sum(len(queue.waiting) for queue in self._queues.values())

    async def close(self) -> None:
        """Waits for running sends. Drops the rest: the next start finds it in the storage."""
        self._closed = True
        workers = [queue.worker for queue in self._queues.values() if queue.worker]
        for queue in self._queues.values():
            queue.clear()
        for task in self._later:
            task.cancel()
        await asyncio.gather(*workers, *self._later, return_exceptions=True)

    async def _work(self, channel: str, post: bool, queue: _Queue) -> None:  # noqa: FBT001
        pace = self._paces.setdefault(channel, Pace(self._posts_per_second))
        while queue.waiting or queue.running:
            if not queue.waiting or len(queue.running) >= self._at_once:
                await _news(queue)
                continue
            await self._turn(pace, queue, post=post)
            place = queue.pop(self._clock.steady())
            if place is None:
                continue
            alone = post and place.priority[0] != CARD
            while alone and queue.running:
                await _news(queue)
            began = self._clock.steady()
            if post:
                pace.posted(began)  # Slack's response time counts towards the interval
                queue.turns.append((began, place.producer))
            sending = asyncio.create_task(
                self._send(pace, queue, began, channel, place, post=post), name=f"lane {channel}"
            )
            queue.running.add(sending)
            sending.add_done_callback(partial(self._sent, queue))
            if alone:
                await asyncio.wait({sending})
        queue.worker = None

    async def _send(
        self, pace: Pace, queue: _Queue, began: float, channel: str, place: _Queued, *, post: bool
    ) -> None:
        times = self._went_on
        result = await self._deliver(place.key)
        if post and not (isinstance(result, Done | Again) and result.posted):
            pace.not_posted(began)
            with suppress(ValueError):  # it is no longer recent
                queue.turns.remove((began, place.producer))
        if isinstance(result, NotYet):
            if times == self._went_on:
                self._not_yet.append((channel, place))
            else:  # posting continued in the meantime
                self._put_back(channel, place, post=True)
        elif isinstance(result, Done):
            pace.went_well()
        elif result.pause:
            pace.refused(self._clock.steady(), result.seconds)
            self._put_back(channel, place, post=post)
        else:
            self._put_later(result.seconds or 0.0, channel, place, post=post)

    def _sent(self, queue: _Queue, sending: asyncio.Task[None]) -> None:
        queue.running.discard(sending)
        queue.changed.set()
        self._ended(sending)

    async def _turn(self, pace: Pace, queue: _Queue, *, post: bool) -> None:
        """Waits until the pace allows the next send."""
        while queue.waiting and (seconds := pace.wait(self._clock.steady(), post=post)) > 0:
            if self._closed:
                return
            queue.changed.clear()
            await event_or_time(self._clock, queue.changed, seconds)

    def _put_later(self, seconds: float, channel: str, place: _Queued, *, post: bool) -> None:
        if self._closed:
            return

        async def wait() -> None:
            await self._clock.sleep(seconds * self._rng.uniform(1.0, 1.2))
            self._put_back(channel, place, post=post)

        task = asyncio.create_task(wait(), name=f"later {place.key}")
        self._later.add(task)
        task.add_done_callback(self._later.discard)

    def _ended(self, task: asyncio.Task[None]) -> None:
        if task.cancelled() or task.exception() is None:
            return
        _log.error("delivery lane failed", lane=task.get_name(), error=repr(task.exception()))
        if not self.failed.done():
            self.failed.set_exception(task.exception() or RuntimeError(task.get_name()))


async def _news(queue: _Queue) -> None:
    """Returns when something was queued or a send has ended."""
    queue.changed.clear()
    await queue.changed.wait()
