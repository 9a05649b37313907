"""Sends messages about clarifications to parties outside: what most integrations do (`Mailer`), and what they get (`Host`)."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Protocol, runtime_checkable

import structlog

from bot.http import HttpClient
from bot.intake.entries import Entries
from bot.intake.telling import Teller
from bot.outbox import (
    Backoff,
    Delivered,
    GivenUp,
    Mail,
    Message,
    Outbox,
    Outcome,
    RetryLater,
    forget,
    retain,
    waiting,
)
from bot.posting import Posted, post
from bot.storage.changes import RecordChange
from bot.storage.store import Store
from bot.storage.tx import Tx
from core.bus import FORGOTTEN
from core.clarification import Clarification
from core.clock import Clock
from core.ledger import Ledger

_log = structlog.get_logger("clarify.integrations")
_PATIENCE = timedelta(days=3)  # how long a message is retried
_BACKOFF = Backoff(first=15.0, longest=3600.0, spread=1 / 3)
_GONE = 410  # HTTP: the party never wants messages again


@dataclass(frozen=True, kw_only=True, eq=False)
class Host:
    """The running bot, for one integration.

    `secret` returns the secret in an environment variable that its settings name. `on_outcome` counts an attempt to tell a
    party, by its label: "sent", "later", "never". `entries` takes in what other programs say; `teller` tells people.
    """

    name: str
    store: Store
    ledger: Ledger
    clock: Clock
    rng: random.Random
    secret: Callable[[str], str]
    on_outcome: Callable[[str, str], None]
    entries: Entries
    teller: Teller


Post = Callable[[str, bytes, Mapping[str, str]], Awaitable[Posted | str]]
"""Posts a body of JSON to a URL, with headers. Returns the answer, or why there is none, without the URL."""


def outcome_of(posted: Posted | str) -> Outcome:
    """Returns what an answer to a post means where the whole party takes or refuses messages: 410 that it wants none any more,
    else any but 2xx that it is in trouble.
    """
    if not isinstance(posted, Posted):
        return RetryLater(posted, party_wide=True)
    if posted.is_taken:
        return Delivered()
    if posted.status == _GONE:
        return GivenUp(f"HTTP {posted.status}", party_wide=True)
    return RetryLater(posted.words, after=posted.after, party_wide=True)


@runtime_checkable
class Follower(Protocol):
    """Follows the changes of clarifications, and tells parties outside of them.

    `parties`: their labels, for logs and metrics, by their names in the storage. A label must hold no secret.
    """

    parties: Mapping[str, str]

    def wants(self, change: RecordChange) -> bool:
        """Whether a change matters, by what it means (`core.bus.told_in`). If it does not, its record is not read."""

    def owes(self, change: RecordChange, record: Clarification, tx: Tx) -> Iterable[Message]:
        """Returns what parties are to be told of a change. It runs inside the transaction that stores these messages, for which
        everything else waits: it must neither wait nor compute for long. `record` is as of the change, or newer.
        """

    async def send(self, message: Message, post: Post) -> Outcome:
        """Makes one attempt to send a message. Retries are not its business."""


@runtime_checkable
class EventFollower(Protocol):
    """A follower that also tells of what is about no clarification, such as `decisions-checkpoint`."""

    def announcement(self, event: str, data: Mapping[str, object], now: datetime) -> Iterable[Message]:
        """Returns what parties are to be told of an event."""


@dataclass(eq=False)
class Mailer:
    """The consumer of the feed that sends a follower's messages: at least once, for each party in the order of changes of a
    clarification, for three days. A party that fails holds up no other.
    """

    host: Host
    follower: Follower
    gather: float = 0.0

    def __post_init__(self) -> None:
        self.name = self.host.name
        self._boxes = {
            party: _Box(self.host, label, party, self.follower.send)
            for party, label in self.follower.parties.items()
        }

    @property
    def idle(self) -> bool:
        """Whether nothing is running or due now."""
        return all(each.outbox.idle for each in self._boxes.values())

    def wants(self, change: RecordChange) -> bool:
        return change.what == FORGOTTEN or self.follower.wants(change)

    def owes(self, change: RecordChange, record: Clarification, tx: Tx) -> Callable[[], None] | None:
        if change.what == FORGOTTEN:
            forget(tx, [record.id])  # what was stored while it was being forgotten in another transaction
            return None
        return self._add(tx, self.follower.owes(change, record, tx))

    def announce(self, tx: Tx, event: str, data: Mapping[str, object], now: datetime) -> Callable[[], None]:
        """Stores an event about no clarification, within a transaction. Call the result once that is stored."""
        told = (
            self.follower.announcement(event, data, now) if isinstance(self.follower, EventFollower) else ()
        )
        return self._add(tx, told)

    def _add(self, tx: Tx, messages: Iterable[Message]) -> Callable[[], None]:
        found, now = list(messages), self.host.clock.now()
        for each in found:
            self._boxes[each.party].mail.add(tx, [each], now)

        def put() -> None:
            for each in found:
                self._boxes[each.party].outbox.put(each.about)

        return put

    async def load(self) -> None:
        """Loads the stored messages; drops those for parties that are no longer configured."""

        def work(tx: Tx) -> int:
            return retain(tx, f"{self.name}:", {each.mail.endpoint for each in self._boxes.values()})

        if dropped := await self.host.store.write(work):
            _log.warning(
                "dropped messages to parties no longer configured", integration=self.name, messages=dropped
            )
        for box in self._boxes.values():
            for about in await box.mail.owed():
                box.outbox.put(about)

    async def run(self) -> None:
        """Sends what is owed."""
        try:
            async with asyncio.TaskGroup() as group:
                for each in self._boxes.values():
                    group.create_task(each.outbox.run(), name=f"{self.name}: outbox")
        finally:
            for each in self._boxes.values():
                await each.http.close()

    async def waiting(self) -> Mapping[str, int]:
        """Returns how many messages are queued, by the label of the party."""
        queued = await waiting(self.host.store)
        found: Counter[str] = Counter()
        for box in self._boxes.values():
            found[box.label] += queued.get(box.mail.endpoint, 0)
        return found


class _Box:
    """What one party is owed: one message at a time, until it is taken or too old."""

    def __init__(
        self, host: Host, label: str, party: str, send: Callable[[Message, Post], Awaitable[Outcome]]
    ) -> None:
        self.label, self._host, self._send = label, host, send
        self.http = HttpClient(None)
        self.mail = Mail(
            host.name, party, self._attempt, store=host.store, clock=host.clock, patience=_PATIENCE
        )
        self.outbox = Outbox(
            f"{host.name} {label}",
            self.mail.attempt,
            _BACKOFF,
            clock=host.clock,
            rng=host.rng,
            on_outcome=partial(host.on_outcome, label),
        )

    async def _attempt(self, message: Message) -> Outcome:
        return await self._send(message, self._post)

    async def _post(self, url: str, body: bytes, headers: Mapping[str, str]) -> Posted | str:
        return await post(self.http, url, body, headers, store=self._host.store, clock=self._host.clock)
