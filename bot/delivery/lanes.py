"""Sends messages channel by channel, in order of priority, at the pace that Slack allows a channel.

Each channel has a lane with two queues: posts, which are paced, and updates, which are not, so that they never wait
behind posts. A key waits at most once in a queue; what is sent is decided when its turn comes.

At a pace of several posts a second, as many cards and updates are on their way side by side. Pages and notices are
posted alone: what one of them says may follow from the one before.
"""

from __future__ import annotations

import asyncio
import heapq
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial

import structlog

from core.clock import Clock, Pace, event_or_time

_log = structlog.get_logger("clarify.delivery")
Priority = tuple[int, float]
# Order of sending (design): pages, removal of dead controls, cards by time left, notices.
PAGE, DEAD_CONTROLS, CARD, NOTICE = range(4)
_MOST_AT_ONCE = 16  # in each queue


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


@dataclass(slots=True)
class _Queue:
    heap: list[tuple[Priority, int, str]] = field(default_factory=list)
    waiting: dict[str, Priority] = field(default_factory=dict)
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    worker: asyncio.Task[None] | None = None
    running: set[asyncio.Task[None]] = field(default_factory=set)


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
        self._not_yet: list[tuple[str, str, Priority]] = []
        self._went_on = 0
        self._later: set[asyncio.Task[None]] = set()
        self._count = 0
        self._closed = False
        # Where this is not set, what has to be sent is for another bot, or for later: it is found in the storage.
        self.active = True
        self.failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def put(self, channel: str, key: str, *, post: bool, priority: Priority | None = None) -> None:
        """Have `key` delivered in its turn. Without a `priority` it is a page, or a notice."""
        if self._closed or not self.active:
            return
        if priority is None:
            priority = (PAGE if key.startswith("page:") else NOTICE), 0.0
        queue = self._queues.setdefault((channel, post), _Queue())
        if queue.waiting.get(key, (99, 0.0)) <= priority:
            return
        queue.waiting[key] = priority
        self._count += 1
        heapq.heappush(queue.heap, (priority, self._count, key))
        queue.changed.set()
        if queue.worker is None:
            queue.worker = asyncio.create_task(self._work(channel, post, queue), name=f"lane {channel}")
            queue.worker.add_done_callback(self._ended)

    def go_on(self) -> None:
        """What could not be posted yet may be posted now."""
        self._went_on += 1
        held, self._not_yet = self._not_yet, []
        for channel, key, priority in held:
            self.put(channel, key, post=True, priority=priority)

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
            queue.heap.clear()
            queue.waiting.clear()
            queue.changed.set()
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
            key, priority = self._pop(queue)
            if key is None:
                continue
            alone = post and priority[0] != CARD
            while alone and queue.running:
                await _news(queue)
            began = self._clock.steady()
            if post:
                pace.posted(began)  # the time that Slack takes to answer is part of the interval
            sending = asyncio.create_task(
                self._send(pace, began, channel, key, priority, post=post), name=f"lane {channel}"
            )
            queue.running.add(sending)
            sending.add_done_callback(partial(self._sent, queue))
            if alone:
                await asyncio.wait({sending})
        queue.worker = None

    async def _send(
        self, pace: Pace, began: float, channel: str, key: str, priority: Priority, *, post: bool
    ) -> None:
        times = self._went_on
        result = await self._deliver(key)
        if post and not (isinstance(result, Done | Again) and result.posted):
            pace.not_posted(began)
        if isinstance(result, NotYet):
            if times == self._went_on:
                self._not_yet.append((channel, key, priority))
            else:  # while it was under way
                self.put(channel, key, post=True, priority=priority)
        elif isinstance(result, Done):
            pace.went_well()
        elif result.pause:
            pace.refused(self._clock.steady(), result.seconds)
            self.put(channel, key, post=post, priority=priority)
        else:
            self._put_later(result.seconds or 0.0, channel, key, priority, post=post)

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

    def _pop(self, queue: _Queue) -> tuple[str | None, Priority]:
        while queue.heap:
            priority, _, key = heapq.heappop(queue.heap)
            if queue.waiting.get(key) == priority:
                del queue.waiting[key]
                return key, priority
        return None, (0, 0.0)

    def _put_later(self, seconds: float, channel: str, key: str, priority: Priority, *, post: bool) -> None:
        if self._closed:
            return

        async def wait() -> None:
            await self._clock.sleep(seconds * self._rng.uniform(1.0, 1.2))
            self.put(channel, key, post=post, priority=priority)

        task = asyncio.create_task(wait(), name=f"later {key}")
        self._later.add(task)
        task.add_done_callback(self._later.discard)

    def _ended(self, task: asyncio.Task[None]) -> None:
        if task.cancelled() or task.exception() is None:
            return
        _log.error("a lane died", lane=task.get_name(), error=repr(task.exception()))
        if not self.failed.done():
            self.failed.set_exception(task.exception() or RuntimeError(task.get_name()))


async def _news(queue: _Queue) -> None:
    """Returns when something else waits in a queue, or what was on its way has ended."""
    queue.changed.clear()
    await queue.changed.wait()
