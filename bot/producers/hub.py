"""All producers: their subscriptions, their replies, their clocks."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Collection, Iterable
from datetime import datetime
from importlib.metadata import version
from typing import Any

import structlog

from bot.errors import TaskDiedError
from bot.ports import Inbox, Incoming, Reply, ReplyOutcome, TellTrouble, TryAgain
from bot.producers.config import ProducerConfig
from bot.producers.link import Around, Link
from bot.producers.push import Push
from bot.producers.pushing import PushedReplies
from core.clock import Clock

log = structlog.get_logger(__name__)


class Producers:
    """Implements the `Replies` port over any number of producers; one's trouble never touches another's."""

    def __init__(
        self,
        configs: Iterable[ProducerConfig],
        *,
        inbox: Inbox,
        clock: Clock,
        rng: random.Random,
        tell_trouble: TellTrouble,
        on_connected: Callable[[str], None],
        pushed: PushedReplies | None = None,
    ) -> None:
        """`on_connected(producer)` is called whenever a producer's stream opens. Opens nothing yet.

        `pushed`: see `Around`.
        """
        around = Around(inbox, clock, rng, tell_trouble, on_connected, version("clarify-bot"), pushed)
        self._links = {config.name: Link(config, around) for config in configs}
        self._tasks: set[asyncio.Task[None]] = set()
        self._failure: asyncio.Future[None] | None = None
        self._stopping = False

    async def start(self) -> None:
        """Starts connecting; returns at once."""
        self._failure = asyncio.get_running_loop().create_future()
        for link in self._links.values():
            for task in link.start():
                self._tasks.add(task)
                task.add_done_callback(self._ended)

    async def failed(self) -> None:
        """Waits until a background task dies that must not.

        Raises:
            TaskDiedError: it did; all other connections were ended.
        """
        if self._failure is None:
            raise RuntimeError("Producers.failed() before start()")
        await asyncio.shield(self._failure)

    async def first_contact(self, timeout: float) -> None:
        """Returns once every producer failed once or was caught up with, after `timeout` seconds at the latest.

        Caught up with: what it replayed on connecting is in the inbox, so that new answers may be taken.
        """
        waits = [asyncio.ensure_future(link.first_contact()) for link in self._links.values()]
        if not waits:
            return
        _, pending = await asyncio.wait(waits, timeout=timeout)
        for wait in pending:
            wait.cancel()

    async def stop(self, open_on: Collection[str]) -> None:
        """Ends all connections, stores what was read, and closes subscriptions.

        `open_on`: producers that wait for an answer; theirs stay open, since a producer takes a closed
        subscription as a timeout.
        """
        self._stopping = True
        await asyncio.gather(*(link.stop(close=name not in open_on) for name, link in self._links.items()))
        if self._failure is not None and self._failure.done():
            self._failure.exception()  # seen: nobody is left to wait for it

    async def send(self, producer: str, reply: Reply) -> ReplyOutcome:
        """One try to hand a reply to a producer. Never raises for what the network does."""
        link = self._links.get(producer)
        if link is None:
            return TryAgain("it is not in the configuration any more", may_have_arrived=False)
        return await link.send(reply)

    def pushing(self, producer: str) -> Push | None:
        """A producer that pushes; None for any other."""
        link = self._links.get(producer)
        return link.push if link else None

    def sent_at(self, incoming: Incoming) -> datetime:
        """When an event was sent, by our clock; a question's time runs from there."""
        return self._links[incoming.producer].offset.sent_at(
            incoming.event.timestamp, incoming.received_at, live=incoming.live
        )

    def status(self) -> dict[str, dict[str, Any]]:
        """Per producer: connected, dialect, since, last_error, last_heard (that pushes), offset_seconds, backlog, and its counters."""
        return {name: link.status() for name, link in self._links.items()}

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if self._stopping or self._failure is None or self._failure.done():
            return
        error = None if task.cancelled() else task.exception()
        log.error("background task died", task=task.get_name(), exc_info=error)
        died = TaskDiedError(f"The background task {task.get_name()!r} ended, which it must not.")
        died.__cause__ = error
        self._failure.set_exception(died)
        for other in self._tasks:
            other.cancel()
