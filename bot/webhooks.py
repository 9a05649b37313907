"""Sends the five lifecycle events to webhooks: signed, retried, in order for each clarification, at least once.

The bot compares each ledger with what it sent, so a crash between writing the ledger and the outbox loses nothing: the
next start finds the difference. After downtime it sends only what the ledger shows: three rounds that others wrote
meanwhile become one question and one answer.

The events of a decision carry its receipt. Events never wait for the signing key: if the receipt follows later, the events of
the decision come again, with it.

`Webhooks` turns snapshots of clarifications into events and stores them in the outbox; a `_Sender` per endpoint sends
them. The format and the signature are those of Standard Webhooks (github.com/standard-webhooks/standard-webhooks).
"""

from __future__ import annotations

import asyncio
import hashlib
import random
import uuid
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from urllib.parse import urlsplit

import structlog

from bot.errors import StorageUnavailable
from bot.http import HttpClient, json_body
from bot.outbox import Backoff, Delivered, GivenUp, Mail, Outbox, Outcome, Owed, RetryLater, retain, waiting
from bot.posting import Posted, post, signature
from bot.settings.environment import signing_key
from bot.settings.model import Settings
from bot.storage.store import Store, until_stored
from bot.storage.tx import Tx
from core.bus import LifecycleEvent, State, lifecycle
from core.clarification import DONE, Clarification
from core.clock import Clock, iso
from core.errors import LedgersAway
from core.ledger import Ledger
from core.receipts import is_decided

_log = structlog.get_logger("clarify.webhooks")
_PATIENCE = timedelta(days=3)  # how long an event is retried
_REMEMBERED = timedelta(days=30)  # how long after its end we remember what we sent about a clarification
_BACKOFF = Backoff(first=15.0, longest=3600.0, spread=1 / 3)
_COMPARING, _LEDGERS_RETRY = Backoff(first=1.0, longest=5.0, spread=0.0), 5.0
_ALL = 0  # stands for all issues
_BATCH = 64
_GONE = 410  # HTTP: the endpoint never wants events again
_OF_DECISIONS = {"clarification-answered", "clarification-resolved"}  # events that carry the receipt
_WITHOUT = " without receipt"  # after a status in `webhook_known`: the event of the decision carried none


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
    """Queues events for all webhooks. Call `restore` once, then `run` until cancelled, then `close`.

    `record_changed` may be called from `restore` on. `on_outcome` gets the endpoint's host and the outcome of each
    attempt: sent, later, never (given up).
    """

    endpoints: Sequence[Endpoint]
    ledger: Ledger
    store: Store
    clock: Clock
    rng: random.Random
    on_outcome: Callable[[str, str], None]

    def __post_init__(self) -> None:
        self._snapshots: deque[_Snapshot] = deque()
        self._comparing = Outbox("webhooks", self._compare, _COMPARING, clock=self.clock, rng=self.rng)
        self._changed: set[str] = set()  # clarifications that changed while the ledgers are compared
        self._wake = asyncio.Event()
        self._queueing = False
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
        busy = self._snapshots or self._queueing or self._comparing
        return not busy and all(each.outbox.idle for each in self._senders)

    def record_changed(self, record: Clarification) -> None:
        """Notes the clarification's current state; `run` does the rest."""
        if self._comparing:
            self._changed.add(record.id)
        self._snapshots.append(_Snapshot(record, self.clock.now()))
        self._wake.set()

    def add(self, tx: Tx, event: str, data: Mapping[str, object], now: datetime) -> Callable[[], None]:
        """Queues an event that is not about a clarification, within a transaction. Call the result once that is stored."""
        message = f"msg_{uuid.uuid4().hex}"
        body = json_body({"id": message, "type": event, "timestamp": iso(now), "data": data})
        wanted = [each for each in self._senders if each.endpoint.wants(event)]
        for each in wanted:
            each.mail.add(tx, [Owed(message, event, event, body)], now)

        def send() -> None:
            for each in wanted:
                each.outbox.put(event)

        return send

    async def restore(self) -> None:
        """Queues stored messages and the comparison of all ledgers. On the first start, older events are not sent.

        Raises:
            StorageUnavailable: the storage cannot be used now.
        """
        now = self.clock.now()

        def work(tx: Tx) -> tuple[datetime, int]:
            tx.run(
                "insert into webhook_since (one, since) values (1, :now) on conflict (one) do nothing",
                now=now.timestamp(),
            )
            _forget_old(tx, now)
            return _since(tx), retain(tx, "", {each.endpoint.id for each in self._senders})

        self._since, dropped = await self.store.write(work)
        self._comparing.put(_ALL)
        if dropped:
            _log.warning("dropped events for endpoints no longer configured", events=dropped)
        for sender in self._senders:
            for clarification in await sender.mail.owed():
                sender.outbox.put(clarification)

    async def run(self) -> None:
        """Queues changes, compares the ledgers once with what was sent, and sends."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._queue(), name="webhooks: queue")
                group.create_task(self._comparing.run(), name="webhooks: what was missed")
                for each in self._senders:
                    group.create_task(each.outbox.run(), name="webhooks: outbox")
        finally:
            for each in self._senders:
                await each.http.close()

    async def close(self) -> None:
        """Queues the last changes after `run`. If that fails, the next start finds them."""
        try:
            while self._snapshots:
                await self._add(self._batch())
        except StorageUnavailable as error:
            _log.warning("webhook events will be queued on the next start", reason=str(error))

    async def waiting(self) -> Mapping[str, int]:
        """Returns how many events are queued, by the endpoint's host."""
        queued = await waiting(self.store)
        found: Counter[str] = Counter()
        for each in self._senders:
            found[each.endpoint.label] += queued.get(each.endpoint.id, 0)
        return found

    async def _queue(self) -> None:
        while True:
            self._wake.clear()
            if not self._snapshots:
                await self._wake.wait()
            self._queueing = True
            work = partial(self._add, self._batch())
            await until_stored(work, self.clock, _log, "webhook events delayed")
            self._queueing = False

    def _batch(self) -> list[_Snapshot]:
        return [self._snapshots.popleft() for _ in range(min(_BATCH, len(self._snapshots)))]

    async def _add(self, snapshots: Sequence[_Snapshot]) -> None:
        """Queues the events that these snapshots show, in order. Idempotent."""
        receipts = [await self._receipt(each.record) for each in snapshots]

        def work(tx: Tx) -> list[tuple[_Sender, str]]:
            _forget_old(tx, snapshots[-1].at)
            since, queued = _since(tx), []
            for snapshot, receipt in zip(snapshots, receipts, strict=True):
                for event in _record_events(tx, snapshot, since, receipt):
                    message = f"msg_{uuid.uuid4().hex}"  # lets receivers deduplicate
                    owed = Owed(message, event.clarification_id, event.name, _body(message, event, receipt))
                    for each in self._senders:
                        if each.endpoint.wants(event.name):
                            each.mail.add(tx, [owed], snapshot.at)
                            queued.append((each, owed.clarification))
            return queued

        for sender, clarification in await self.store.write(work):
            sender.outbox.put(clarification)

    async def _receipt(self, record: Clarification) -> str | None:
        """Returns the receipt of a decided record's round, if the record agrees with it."""
        if record.aaep is None or not is_decided(record) or await self.ledger.is_tampered(record):
            return None
        return record.asked.receipt

    async def _compare(self, issue: int) -> Outcome | None:
        """Queues what a ledger shows that was not sent, except records that changed since the comparison began."""
        try:
            if issue == _ALL:
                for each in await self.ledger.issues(self._since):
                    self._comparing.put(each)
                return None
            records = await self.ledger.read(issue)
        except LedgersAway as error:
            return RetryLater(str(error), after=_LEDGERS_RETRY)
        now = self.clock.now()
        for record in records:
            is_news = record.needs_something or record.last_change >= self._since
            if not is_news or await self.ledger.is_tampered(record):
                continue
            if record.id not in self._changed:  # asked last: it may have changed while it was checked
                self._snapshots.append(_Snapshot(record, now, record.last_change))
                self._wake.set()
        return None


# Which events follow from a snapshot


@dataclass(frozen=True, slots=True)
class _Snapshot:
    """A clarification's state at `at`, on our clock. `changed`: its last change by its own times; None: just now."""

    record: Clarification
    at: datetime
    changed: datetime | None = None


def _events(before: State | None, snapshot: _Snapshot, since: datetime) -> Sequence[LifecycleEvent]:
    """Returns the events since `before`, in order.

    Args:
        before: the state that the events so far describe; None: none were sent.
        snapshot: the state now.
        since: what was asked and closed before this is not sent.
    """
    record, at = snapshot.record, snapshot.at
    if before is not None:
        return lifecycle(before, record, at)
    if record.created >= since:
        asked = State("pending", 1, record.created, 0)
        return (*lifecycle(None, record, at, after=asked), *lifecycle(asked, record, at))
    is_news = record.needs_something and (snapshot.changed or at) >= since
    return lifecycle(None, record, at) if is_news else ()


def _body(message_id: str, event: LifecycleEvent, receipt: str | None) -> bytes:
    """Returns the message in the format of Standard Webhooks. Only a decision's receipt holds question and answer."""
    data = event.payload()
    if receipt is not None and event.name in _OF_DECISIONS:
        data["receipt"] = receipt
    return json_body({"id": message_id, "type": event.name, "timestamp": iso(event.timestamp), "data": data})


# What was sent about each clarification


def _forget_old(tx: Tx, now: datetime) -> None:
    """Deletes the states of long closed clarifications; moves `since` on, or they would be sent again as new."""
    horizon = (now - _REMEMBERED).timestamp()
    tx.run("update webhook_since set since = :horizon where since < :horizon", horizon=horizon)
    tx.run("delete from webhook_known where over = 1 and noted_at < :horizon", horizon=horizon)


def _since(tx: Tx) -> datetime:
    (row,) = tx.rows("select since from webhook_since")
    return _moment(row["since"])


def _record_events(
    tx: Tx, snapshot: _Snapshot, since: datetime, receipt: str | None
) -> Sequence[LifecycleEvent]:
    """Returns the events between a clarification's recorded state and `snapshot`; records the new state. Those of a decision
    come again if they had no `receipt`.
    """
    after = State.of(snapshot.record)
    row = tx.one("select * from webhook_known where clarification = :id", id=snapshot.record.id)
    lacks = receipt is None and snapshot.record.aaep is not None and is_decided(snapshot.record)
    known = f"{after.status}{_WITHOUT}" if lacks else after.status
    before = None
    if row is not None:
        status, lacked, _ = row["status"].partition(_WITHOUT)
        if lacked and receipt is not None:
            status = "pending"  # as if the decision were new
        before = State(status, row["round"], _moment(row["asked_last"]), row["nudges"])
    events = _events(before, snapshot, since)
    is_over = after.status in DONE
    if after != before and (events or before or not is_over):
        tx.run(
            """insert into webhook_known (clarification, status, round, asked_last, nudges, over, noted_at)
               values (:id, :status, :round, :asked_last, :nudges, :over, :noted_at)
               on conflict (clarification) do update set status = excluded.status, round = excluded.round,
                 asked_last = excluded.asked_last, nudges = excluded.nudges, over = excluded.over,
                 noted_at = excluded.noted_at""",
            id=snapshot.record.id,
            status=known,
            round=after.round,
            asked_last=after.asked_last.timestamp(),
            nudges=after.nudges,
            over=int(is_over),
            noted_at=snapshot.at.timestamp(),
        )
    return events


def _moment(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


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
