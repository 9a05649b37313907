"""Sends messages channel by channel, in order of priority, at the pace that Slack allows a channel.

Each channel has a lane with two queues: posts, which are paced, and updates, which are not, so that they never wait
behind posts. A key waits at most once in a queue; what is sent is decided when its turn comes.

Of what is equally important, the producer comes first that had the fewest posts in a channel of late: however much one
asks, the others' questions have their turns.

At a pace of several posts a second, as many cards and updates are on their way side by side. Pages and notices are
posted alone: what one of them says may follow from the one before.
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
_MOST_AT_ONCE = 16  # in each queue
_LATELY = 60.0  # seconds in which turns count


def card_priority(expires_at: float | None) -> Priority:
    """Cards by time left; those that never expire last."""
    return (CARD, expires_at if expires_at is not None else float("inf"))


@dataclass(frozen=True, slots=True)
class Done:
    """Nothing more to do for this key now. `posted`: a post was tried, and a slot used."""

    posted: bool = False


@dataclass(frozen=True, slots=True)
class Again:
    """Try this key again: after `seconds`, or when the lane goes on.

    `pause`: Slack refused, the whole lane waits; `seconds` None then means "as the backoff says".
    """

    seconds: float | None = None
    pause: bool = False
    posted: bool = False


@dataclass(frozen=True, slots=True)
class NotYet:
    """Posting is paused: try this key again after `Lanes.go_on`."""


Deliver = Callable[[str], Awaitable[Done | Again | NotYet]]


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a key waits. `producer`: whose message it is, or empty; `number`: places are given in this order."""

    key: str
    priority: Priority
    producer: str
    number: int


@dataclass(slots=True)
class _Queue:
    heaps: dict[tuple[int, str], list[tuple[Priority, int, str]]] = field(
        default_factory=dict
    )  # by class of priority and producer
    waiting: dict[str, _Place] = field(default_factory=dict)
    turns: deque[tuple[float, str]] = field(default_factory=deque)  # of the producers that posted lately
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    worker: asyncio.Task[None] | None = None
    running: set[asyncio.Task[None]] = field(default_factory=set)

    def put(self, place: _Place) -> None:
        """Have a key wait at this place, and no other."""
        self.waiting[place.key] = place
        heap = self.heaps.setdefault((place.priority[0], place.producer), [])
        heapq.heappush(heap, (place.priority, place.number, place.key))
        self.changed.set()

    def pop(self, now: float) -> _Place | None:
        """Who is next."""
        while self.turns and self.turns[0][0] <= now - _LATELY:
            self.turns.popleft()
        had = Counter(producer for _, producer in self.turns)
        heads = []
        for name in list(self.heaps):
            heap = self.heaps[name]
            while heap and not self._is_place(heap[0]):
                heapq.heappop(heap)  # it waits elsewhere now
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
        self._not_yet: list[tuple[str, _Place]] = []
        self._went_on = 0
        self._later: set[asyncio.Task[None]] = set()
        self._count = 0
        self._closed = False
        # Where this is not set, what has to be sent is for another bot, or for later: it is found in the storage.
        self.active = True
        self.failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def put(
        self, channel: str, key: str, *, post: bool, priority: Priority | None = None, producer: str = ""
    ) -> None:
        """Have `key` delivered in its turn, which a `priority` moves if it waits already. Without one it is a page, or a
        notice. `producer`: whose message it is.
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
        queue.put(_Place(key, priority, producer or (waits.producer if waits else ""), self._count))
        if queue.worker is None:
            queue.worker = asyncio.create_task(self._work(channel, post, queue), name=f"lane {channel}")
            queue.worker.add_done_callback(self._ended)

    def _put_back(self, channel: str, place: _Place, *, post: bool) -> None:
        """Have a key wait again, unless it got another place meanwhile."""
        queue = self._queues.get((channel, post))
        if queue is None or place.key not in queue.waiting:
            self.put(channel, place.key, post=post, priority=place.priority, producer=place.producer)

    def go_on(self) -> None:
        """What could not be posted yet may be posted now."""
        self._went_on += 1
        held, self._not_yet = self._not_yet, []
        for channel, place in held:
            self._put_back(channel, place, post=True)

    def slack_is_back(self) -> None:
        """Slack answers again: nobody waits for it any longer than Slack said."""
        for pace in self._paces.values():
            pace.resume()
        for queue in self._queues.values():
            queue.changed.set()

    @property
    def length(self) -> int:
        """How many keys wait in all lanes."""
        return len(self._not_yet) + sum(len(queue.waiting) for queue in self._queues.values())

    async def close(self) -> None:
        """Let running sends finish; drop the rest, which is found again on the next start."""
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
                pace.posted(began)  # the time that Slack takes to answer is part of the interval
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
        self, pace: Pace, queue: _Queue, began: float, channel: str, place: _Place, *, post: bool
    ) -> None:
        times = self._went_on
        result = await self._deliver(place.key)
        if post and not (isinstance(result, Done | Again) and result.posted):
            pace.not_posted(began)
            with suppress(ValueError):  # so long ago that it counts no more
                queue.turns.remove((began, place.producer))
        if isinstance(result, NotYet):
            if times == self._went_on:
                self._not_yet.append((channel, place))
            else:  # while it was under way
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
        """Wait for the slot."""
        while queue.waiting and (seconds := pace.wait(self._clock.steady(), post=post)) > 0:
            if self._closed:
                return
            queue.changed.clear()
            await event_or_time(self._clock, queue.changed, seconds)

    def _put_later(self, seconds: float, channel: str, place: _Place, *, post: bool) -> None:
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
    """Returns when something else waits in a queue, or what was on its way has ended."""
    queue.changed.clear()
    await queue.changed.wait()
