"""All configured producers."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Collection, Iterable
from math import inf
from typing import Any

import structlog
from pydantic import SecretStr

from bot.ask.client import Reply, ReplyOutcome, TryAgain
from bot.ask.inbox import Inbox
from bot.ask.push import Push
from bot.ask.receiver import Receiver, ReportTrouble
from bot.ask.subscriber import Subscriber
from bot.errors import TaskDiedError
from bot.http import HttpClient
from bot.settings.model import ProducerSettings
from bot.storage.store import Store
from bot.telemetry import Telemetry
from core.clock import Clock

log = structlog.get_logger(__name__)


class Producers:
    """Runs any number of producers; trouble with one does not affect the others."""

    def __init__(
        self,
        configured: Iterable[ProducerSettings],
        *,
        token_of: Callable[[ProducerSettings], SecretStr | None],
        inbox: Inbox,
        store: Store,
        clock: Clock,
        rng: random.Random,
        report_trouble: ReportTrouble,
        telemetry: Telemetry,
    ) -> None:
        """Opens no connection yet. `report_trouble` pages a human."""
        self._telemetry = telemetry
        self._store = store
        self._parties: dict[str, Subscriber | Push] = {}
        self._opened: dict[str, asyncio.Event] = {}
        self._connections = Counter[str]()  # how often each producer connected
        self._before: dict[str, int] = {}  # the same when its last failed attempt began
        self._tasks: set[asyncio.Task[None]] = set()
        self._failure: asyncio.Future[None] | None = None
        self._stopping = False
        for each in configured:
            receiver = Receiver(
                speaker=each.speaker,
                inbox=inbox,
                clock=clock,
                rng=rng,
                report_trouble=report_trouble,
                waits=not each.pushes,
            )
            if each.url is None:
                self._parties[each.name] = Push(
                    producer=each.name,
                    receiver=receiver,
                    store=store,
                    clock=clock,
                    rng=rng,
                    on_connected=self.note_connected,
                )
                continue
            secret = token_of(each)
            token = secret.get_secret_value() if secret else None
            self._parties[each.name] = Subscriber(
                configured=each,
                base=each.url,
                http=HttpClient(token),
                replies=HttpClient(token),
                acting=store.acting,
                receiver=receiver,
                inbox=inbox,
                clock=clock,
                rng=rng,
                on_connected=self.note_connected,
            )

    @property
    def _subscribers(self) -> dict[str, Subscriber]:
        return {name: party for name, party in self._parties.items() if isinstance(party, Subscriber)}

    async def start(self) -> None:
        """Starts connecting; returns at once."""
        self._failure = asyncio.get_running_loop().create_future()
        for subscriber in self._subscribers.values():
            for task in subscriber.start():
                self._tasks.add(task)
                task.add_done_callback(self._ended)

    async def failed(self) -> None:
        """Waits until a background task dies.

        Raises:
            TaskDiedError: one died; all others were cancelled.
        """
        if self._failure is None:
            raise RuntimeError("Producers.failed() before start()")
        await asyncio.shield(self._failure)

    async def first_contact(self, timeout: float) -> None:
        """Waits at most `timeout` seconds until every producer has failed once or is caught up with.

        Caught up with: what it replayed on connecting is in the inbox.
        """
        waits = [asyncio.ensure_future(each.caught_up()) for each in self._subscribers.values()]
        if not waits:
            return
        _, pending = await asyncio.wait(waits, timeout=timeout)
        for wait in pending:
            wait.cancel()

    async def stop(self, open_on: Collection[str]) -> None:
        """Ends all connections, stores what was read, and closes the subscriptions.

        Those of the producers in `open_on`, which wait for an answer, stay open: a producer treats a closed
        subscription as a timeout.
        """
        self._stopping = True
        subscribers = self._subscribers.items()
        await asyncio.gather(*(each.stop(close=name not in open_on) for name, each in subscribers))
        if self._failure is not None and self._failure.done():
            self._failure.exception()  # asyncio logs exceptions that are never retrieved

    async def send(self, producer: str, reply: Reply) -> ReplyOutcome:
        """Makes one attempt to send a reply. Never raises for network failures."""
        party, before = self._parties.get(producer), self._connections[producer]
        outcome: ReplyOutcome = (
            await party.send(reply)
            if party is not None
            else TryAgain("it is no longer in clarify.toml", may_have_arrived=False)
        )
        if isinstance(outcome, TryAgain):
            self._before[producer] = before
        self._telemetry.delivered("reply", outcome.word)
        return outcome

    async def connected(self, producer: str) -> None:
        """Waits until a producer connects the next time, or begins to read its replies. Returns at once if it did so since
        the last attempt that failed began: callers store the failure first.
        """
        if self._connections[producer] > self._before.get(producer, inf):
            return
        await self._opened.setdefault(producer, asyncio.Event()).wait()

    def pushing(self, producer: str) -> Push | None:
        """Returns the producer if it pushes, else None."""
        party = self._parties.get(producer)
        return party if isinstance(party, Push) else None

    def refresh(self) -> None:
        """Checks for replies and readers at other bots."""
        for name, party in self._parties.items():
            if isinstance(party, Push):
                party.refresh()
                self.note_connected(name)

    def status(self) -> dict[str, dict[str, Any]]:
        """Returns the status of each producer that pushes, or that this bot is connected with as the leader.

        That is: connected, dialect, since, last_error, last_heard (if it pushes), offset_seconds, backlog, and its
        counters.
        """
        return {
            name: party.status()
            for name, party in self._parties.items()
            if isinstance(party, Push) or party.started
        }

    def note_connected(self, producer: str) -> None:
        """Notes that a producer connected, or reads its replies here or at another bot."""
        self._connections[producer] += 1
        self._opened.pop(producer, asyncio.Event()).set()

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if self._stopping or self._failure is None or self._failure.done():
            return
        error = None if task.cancelled() else task.exception()
        log.error("background task failed", task=task.get_name(), exc_info=error)
        died = TaskDiedError(f"The background task {task.get_name()!r} ended unexpectedly.")
        died.__cause__ = error
        self._failure.set_exception(died)
        for other in self._tasks:
            other.cancel()
