"""Sends the five lifecycle events to webhooks: signed, retried, in order for each clarification, at least once.

`Webhooks` is a consumer of the feed: it stores the events of each change in the outbox, in the transaction that moves its
cursor; a `_Sender` per endpoint sends them. So each event is sent, also of what others wrote while the bot was away.

The events of a decision carry its receipt. Events never wait for the signing key: if the receipt follows later, the events of
the decision come again, with it.

The format and the signature are those of Standard Webhooks (github.com/standard-webhooks/standard-webhooks).
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from typing import Literal
from urllib.parse import urlsplit

import structlog

from bot.http import HttpClient, json_body
from bot.outbox import (
    Backoff,
    Delivered,
    GivenUp,
    Mail,
    Outbox,
    Outcome,
    Owed,
    RetryLater,
    forget,
    retain,
    waiting,
)
from bot.posting import Posted, post, signature
from bot.settings.environment import signing_key
from bot.settings.model import Settings
from bot.storage.changes import RecordChange
from bot.storage.ledger import as_stored
from bot.storage.store import Store
from bot.storage.tx import Tx
from core.bus import FORGOTTEN, RECEIPT, LifecycleEvent, Name, lifecycle, told_in
from core.clarification import Clarification
from core.clock import Clock, iso
from core.receipts import at_round, is_decided
from core.records import agrees

_log = structlog.get_logger("clarify.webhooks")
_PATIENCE = timedelta(days=3)  # how long an event is retried
_REMEMBERED = timedelta(days=30)  # how long the receipt of a decision may follow
_BACKOFF = Backoff(first=15.0, longest=3600.0, spread=1 / 3)
_GONE = 410  # HTTP: the endpoint never wants events again
# The events that carry the receipt, in order.
_OF_DECISIONS: tuple[Name, ...] = ("clarification-answered", "clarification-resolved")


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One webhook and the names of the `events` it wants. Its URL may hold a secret, so logs show `label` instead."""

    url: str = field(repr=False)
    key: bytes = field(repr=False)
    events: frozenset[str] = frozenset()  # empty: all

    @property
    def id(self) -> str:
        """The endpoint's name in the storage."""
        return hashlib.sha256(self.url.encode()).hexdigest()[:16]

    @property
    def label(self) -> str:
        """The host and, if given, the port."""
        found = urlsplit(self.url)
        return f"{found.hostname}:{found.port}" if found.port else found.hostname or "?"

    def wants(self, event: str) -> bool:
        return not self.events or event in self.events


def endpoints_of(settings: Settings) -> list[Endpoint]:
    """Returns the `[[webhooks]]` tables, each with its key."""
    secrets = settings.secrets.by_variable
    return [
        Endpoint(each.url, signing_key(secrets[each.secret_env].get_secret_value()), frozenset(each.events))
        for each in settings.webhooks
    ]


@dataclass(kw_only=True, eq=False)
class Webhooks:
    """The consumer of the feed that tells all webhooks (`bot.feed`). Run `run` until cancelled.

    `on_outcome` gets the endpoint's host and the outcome of each attempt: sent, later, never (given up).
    """

    endpoints: Sequence[Endpoint]
    store: Store
    clock: Clock
    rng: random.Random
    on_outcome: Callable[[str, str], None]
    name: str = "webhooks"
    gather: float = 0.0

    def __post_init__(self) -> None:
        self._senders = [
            _Sender(
                endpoint=each,
                store=self.store,
                clock=self.clock,
                rng=self.rng,
                on_outcome=partial(self.on_outcome, each.label),
            )
            for each in self.endpoints
        ]

    @property
    def idle(self) -> bool:
        """Whether nothing is running or due now."""
        return all(each.outbox.idle for each in self._senders)

    def wants(self, change: RecordChange) -> bool:
        told = [name for name, _ in told_in(change.what)]
        return change.what == FORGOTTEN or any(map(self._is_wanted, told))

    def _is_wanted(self, name: Name | Literal["receipt"]) -> bool:
        names = _OF_DECISIONS if name == RECEIPT else (name,)
        return any(sender.endpoint.wants(each) for sender in self._senders for each in names)

    def owes(self, change: RecordChange, record: Clarification, tx: Tx) -> Callable[[], None] | None:
        if change.what == FORGOTTEN:
            tx.run("delete from webhook_unsigned where clarification = :id", id=record.id)
            forget(tx, [record.id])  # what was stored while it was being forgotten in another transaction
            return None
        stored, acts = as_stored(tx, record), list[Callable[[], None]]()
        for name, receipt in _events(tx, change, record):
            data = _data(LifecycleEvent.of(name, stored, change.at), _kept(receipt, stored))
            acts.append(self._add(tx, record.id, _message(name, change.at, data), change.revision))

        def send() -> None:
            for act in acts:
                act()

        return send

    def add(self, tx: Tx, event: str, data: Mapping[str, object], now: datetime) -> Callable[[], None]:
        """Queues an event that is not about a clarification, within a transaction. Call the result once that is stored."""
        return self._add(tx, event, _message(event, now, data))

    def _add(self, tx: Tx, about: str, message: dict[str, object], revision: int = 0) -> Callable[[], None]:
        # The same for the same event, so that receivers deduplicate also what a restored backup tells again.
        told = json_body(message | {"revision": revision})
        message_id = f"msg_{hmac.digest(self.store.secret, told, 'sha256').hex()[:32]}"
        event, body = str(message["type"]), json_body({"id": message_id} | message)
        wanted, now = [each for each in self._senders if each.endpoint.wants(event)], self.clock.now()
        for each in wanted:
            each.mail.add(tx, [Owed(message_id, about, event, body)], now)

        def send() -> None:
            for each in wanted:
                each.outbox.put(about)

        return send

    async def load(self) -> None:
        """Loads the stored messages; drops those for endpoints that are no longer configured."""

        def work(tx: Tx) -> int:
            return retain(tx, {each.endpoint.id for each in self._senders})

        if dropped := await self.store.write(work):
            _log.warning("dropped events for endpoints no longer configured", events=dropped)
        for sender in self._senders:
            for clarification in await sender.mail.owed():
                sender.outbox.put(clarification)

    async def run(self) -> None:
        """Sends what is owed."""
        try:
            async with asyncio.TaskGroup() as group:
                for each in self._senders:
                    group.create_task(each.outbox.run(), name="webhooks: outbox")
        finally:
            for each in self._senders:
                await each.http.close()

    async def waiting(self) -> Mapping[str, int]:
        """Returns how many events are queued, by the endpoint's host."""
        queued = await waiting(self.store)
        found: Counter[str] = Counter()
        for each in self._senders:
            found[each.endpoint.label] += queued.get(each.endpoint.id, 0)
        return found


# Which events a change means


def _events(tx: Tx, change: RecordChange, record: Clarification) -> Iterator[tuple[Name, str | None]]:
    """Yields the events of a change, in order, those of a decision with its receipt. Notes those that lack one: they come
    again with it.
    """
    told = told_in(change.what)
    if not told:  # it begins again with what is open
        yield from ((event.name, None) for event in lifecycle(None, record, change.at))
    for name, number in told:
        if name == RECEIPT:
            receipt = _receipt(record, at_round(record, number))
            if receipt is not None:
                for each in _unsigned(tx, record.id, number):
                    yield each, receipt
        elif name in _OF_DECISIONS:
            ended = at_round(record, number)
            if ended is not None and is_decided(ended) and ended.current.receipt is None:
                _note_unsigned(tx, record.id, number, name, change.at)
            yield name, _receipt(record, ended)
        else:
            yield name, None


def _receipt(record: Clarification, ended: Clarification | None) -> str | None:
    """Returns the receipt of a round that `ended` so, if the record agrees with all of its receipts."""
    if ended is None or not is_decided(ended) or not agrees(record, None):
        return None
    return ended.current.receipt


def _kept(receipt: str | None, stored: Clarification) -> str | None:
    """Returns a receipt if its record still has it: it may have been forgotten since it was read."""
    return receipt if receipt in [each.receipt for each in stored.rounds] else None


def _message(event: str, at: datetime, data: Mapping[str, object]) -> dict[str, object]:
    return {"type": event, "timestamp": iso(at), "data": data}


def _data(event: LifecycleEvent, receipt: str | None) -> Mapping[str, object]:
    """Returns what a message says. Only a decision's receipt holds question and answer."""
    return event.payload() if receipt is None else event.payload() | {"receipt": receipt}


# Decisions that were told without a receipt


def _note_unsigned(tx: Tx, clarification: str, number: int, name: Name, at: datetime) -> None:
    tx.run("delete from webhook_unsigned where at < :before", before=(at - _REMEMBERED).timestamp())
    tx.run(
        """insert into webhook_unsigned (clarification, round, type, at) values (:id, :number, :name, :at)
           on conflict (clarification, round, type) do nothing""",
        id=clarification,
        number=number,
        name=name,
        at=at.timestamp(),
    )


def _unsigned(tx: Tx, clarification: str, number: int) -> list[Name]:
    """Returns the events of a round that were told without its receipt, in order, and forgets them."""
    found = tx.rows(
        "delete from webhook_unsigned where clarification = :id and round = :number returning type",
        id=clarification,
        number=number,
    )
    types = {row["type"] for row in found}
    return [each for each in _OF_DECISIONS if each in types]


# Sending


@dataclass(kw_only=True, eq=False)
class _Sender:
    """Sends one endpoint its events: one at a time, each clarification's in order, until accepted or too old.

    A failure holds up everything for this endpoint, as it is most often down as a whole. The failed event waits longer
    each time, so one that is never accepted costs the others little.
    """

    endpoint: Endpoint
    store: Store
    clock: Clock
    rng: random.Random
    on_outcome: Callable[[str], None]

    def __post_init__(self) -> None:
        self.http = HttpClient(None)
        self.mail = Mail(self.endpoint.id, self._send, store=self.store, clock=self.clock, patience=_PATIENCE)
        self.outbox = Outbox(
            f"webhook {self.endpoint.label}",
            self.mail.attempt,
            _BACKOFF,
            clock=self.clock,
            rng=self.rng,
            on_outcome=self.on_outcome,
        )

    async def _send(self, owed: Owed) -> Outcome:
        """Makes one attempt; only the status counts."""
        headers = signature(self.endpoint.key, owed.id, int(self.clock.now().timestamp()), owed.body)
        posted = await post(
            self.http, self.endpoint.url, owed.body, headers, store=self.store, clock=self.clock
        )
        return _outcome(posted) if isinstance(posted, Posted) else RetryLater(posted, party_wide=True)


def _outcome(posted: Posted) -> Outcome:
    if posted.is_taken:
        return Delivered()
    if posted.status == _GONE:
        return GivenUp(f"HTTP {posted.status}", party_wide=True)
    return RetryLater(posted.words, after=posted.after, party_wide=True)
