"""Sends the five lifecycle events to webhooks: signed, retried, in order for each clarification, at least once.

What was sent about a clarification is compared with its ledger. So a crash between writing the ledger and writing the
outbox loses nothing: the next start finds the difference. Of what happened while no bot ran, only what the ledger shows
is sent: three rounds that others wrote meanwhile are one question and one answer.

`Webhooks` queues (looks at clarifications → events → rows of the outbox), one `_Sender` for each endpoint empties the
queue. The format and the signature are those of Standard Webhooks (github.com/standard-webhooks/standard-webhooks).
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import random
import uuid
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from math import inf
from typing import Literal
from urllib.parse import urlsplit

import structlog

from bot.errors import StorageUnavailable
from bot.http import ANSWER_TIMEOUT, NETWORK, HttpClient, HttpStream, json_body, retry_after, words
from bot.settings.environment import signing_key
from bot.settings.model import Settings
from bot.storage.store import Acting, Store
from bot.storage.tx import Row, Tx, batches
from core.bus import LifecycleEvent, State, lifecycle
from core.clarification import DONE, Clarification
from core.clock import Clock, backoff, event_or_time, iso
from core.errors import LedgersAway, LedgerUnreadable, LockTimeout
from core.ledger import Ledger
from core.records import parse

_log = structlog.get_logger("clarify.webhooks")
_PATIENCE = timedelta(days=3)  # how long an event is tried
_REMEMBERED = timedelta(days=30)  # what was sent of a clarification, after it is over
_FIRST_WAIT, _LONGEST_WAIT = 15.0, 3600.0  # seconds after failures; a third of it by chance
_STORAGE_RETRY, _LEDGERS_RETRY = 1.0, 5.0  # seconds
_BATCH = 64
_GONE = 410  # HTTP: an endpoint wants no more events, ever


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One webhook. `events`: the names of those it wants. Its URL may hold a secret, so logs show `label` instead."""

    url: str = field(repr=False)
    key: bytes = field(repr=False)
    events: frozenset[str] = frozenset()  # empty: all

    @property
    def id(self) -> str:
        """What it is called in the storage."""
        return hashlib.sha256(self.url.encode()).hexdigest()[:16]

    @property
    def label(self) -> str:
        """What people know it by: its host."""
        found = urlsplit(self.url)
        return f"{found.hostname}:{found.port}" if found.port else found.hostname or "?"

    def wants(self, event: LifecycleEvent) -> bool:
        return not self.events or event.name in self.events

    def signature(self, message_id: str, timestamp: int, body: bytes) -> dict[str, str]:
        """The headers of one try: HMAC-SHA256 over id, time (seconds since 1970) and body."""
        signed = b"%s.%d.%s" % (message_id.encode(), timestamp, body)
        digest = base64.b64encode(hmac.digest(self.key, signed, hashlib.sha256)).decode()
        return {
            "webhook-id": message_id,
            "webhook-timestamp": str(timestamp),
            "webhook-signature": f"v1,{digest}",
        }


def endpoints_of(settings: Settings) -> list[Endpoint]:
    """The `[[webhooks]]` tables, each with its key."""
    secrets = settings.secrets.by_variable
    return [
        Endpoint(each.url, signing_key(secrets[each.secret_env].get_secret_value()), frozenset(each.events))
        for each in settings.webhooks
    ]


class Webhooks:
    """Queues events for all webhooks. `restore` once, then `run` until cancelled, then `close`; `record_changed` from
    `restore` on.

    `on_outcome` is called with the endpoint's host and the outcome of each try: sent, later, never (given up).
    """

    def __init__(
        self,
        endpoints: Sequence[Endpoint],
        *,
        ledger: Ledger,
        store: Store,
        clock: Clock,
        rng: random.Random,
        on_outcome: Callable[[str, str], None],
    ) -> None:
        self._ledger = ledger
        self._outbox = _Outbox(store, endpoints)
        self._clock = clock
        self._looks: deque[_Look] = deque()
        # While the ledgers are compared: the clarifications that changed since they were read.
        self._changed: set[str] | None = set()
        self._wake = asyncio.Event()
        self._queueing = False
        self._senders = [
            _Sender(each, self._outbox, clock, rng, partial(on_outcome, each.label), acting=store.acting)
            for each in endpoints
        ]

    @property
    def idle(self) -> bool:
        """Whether nothing can be done now: what is left waits for its time."""
        busy = self._looks or self._queueing or self._changed is not None
        return not busy and all(each.resting for each in self._senders)

    def record_changed(self, record: Clarification) -> None:
        """Takes a clarification as it is now. Cheap; `run` does the rest."""
        if self._changed is not None:
            self._changed.add(record.id)
        self._looks.append(_Look(record, self._clock.now()))
        self._wake.set()

    async def restore(self) -> None:
        """Reads from when on events are sent; at first, from now on.

        Raises:
            StorageUnavailable: it is not known what was sent.
        """
        self._since, dropped = await self._outbox.begin(self._clock.now())
        if dropped:
            _log.warning("dropped events for endpoints no longer configured", events=dropped)

    async def run(self) -> None:
        """Queue what changes, compare the ledgers once with what was sent, send."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._queue(), name="webhooks: queue")
            group.create_task(self._compare(), name="webhooks: what was missed")
            for each in self._senders:
                group.create_task(each.run(), name="webhooks: courier")

    async def close(self) -> None:
        """After `run`: queue the last changes; what cannot be is found on the next start."""
        try:
            while self._looks:
                await self._queue_some()
        except StorageUnavailable as error:
            _log.warning(
                "webhook events will be queued on the next start", events=len(self._looks), reason=str(error)
            )

    async def waiting(self) -> Mapping[str, int]:
        """How many events are queued, by the host of the endpoint."""
        return await self._outbox.waiting()

    async def _queue(self) -> None:
        while True:
            self._wake.clear()
            if not self._looks:
                await self._wake.wait()
            try:
                await self._queue_some()
            except StorageUnavailable as error:
                _log.warning("webhook events delayed", events=len(self._looks), reason=str(error))
                await self._clock.sleep(_STORAGE_RETRY)

    async def _queue_some(self) -> None:
        """Queue the next changes. What the storage refuses is tried again.

        When this is cancelled the storage goes on with what it was given, so that the batch must not be queued once
        more: older looks after newer ones would send the newer events anew.
        """
        batch = [self._looks.popleft() for _ in range(min(_BATCH, len(self._looks)))]
        self._queueing = True
        try:
            queued = await self._outbox.add(batch)
        except StorageUnavailable:
            self._looks.extendleft(reversed(batch))
            raise
        finally:
            self._queueing = False
        for sender in self._senders if queued else ():
            sender.wake()

    async def _compare(self) -> None:
        """Look at what we or others wrote while no bot ran. What changes meanwhile is newer than that."""
        left = await self._all_issues()
        while left:
            left = [issue for issue in left if not await self._compared(issue)]
            if left:
                await self._clock.sleep(_STORAGE_RETRY)
        self._changed = None

    async def _all_issues(self) -> list[int]:
        while True:
            try:
                return await self._ledger.live()
            except LedgersAway as error:
                _log.warning("comparing the ledgers for webhooks later", reason=str(error))
                await self._clock.sleep(_LEDGERS_RETRY)

    async def _compared(self, issue: int) -> bool:
        """Whether the issue is done with, for now it may be locked."""
        try:
            items = await self._ledger.read(issue)
        except LockTimeout:
            return False
        except LedgerUnreadable as error:
            _log.error("cannot compare a ledger for webhooks", issue=issue, reason=str(error))
            return True
        now, newer = self._clock.now(), self._changed or set()
        for record in [record for item in items if (record := parse(item)) is not None]:
            is_news = record.needs_something or record.last_change >= self._since
            if record.id not in newer and is_news and not await self._ledger.is_tampered(record):
                self._looks.append(_Look(record, now, record.last_change))
                self._wake.set()
        return True


# Which events a look at a clarification gives


@dataclass(frozen=True, slots=True)
class _Look:
    """A clarification as it was at `at`, on our clock. `changed`: when it last changed, by its own times; None: now."""

    record: Clarification
    at: datetime
    changed: datetime | None = None


def _events(before: State | None, look: _Look, since: datetime) -> Sequence[LifecycleEvent]:
    """What happened to a clarification, in its order.

    Args:
        before: as its events so far tell it; None: there was none yet.
        look: how it is now.
        since: what was asked before, and over before, is history.
    """
    record, at = look.record, look.at
    if before is not None:
        return lifecycle(before, record, at)
    if record.created >= since:
        asked = State("pending", 1, record.created, 0)
        return (*lifecycle(None, record, at, after=asked), *lifecycle(asked, record, at))
    is_news = record.needs_something and (look.changed or at) >= since
    return lifecycle(None, record, at) if is_news else ()


def _body(message_id: str, event: LifecycleEvent) -> bytes:
    """The message: its type and time twice, as the specification has it, and the event. No question, no answer."""
    return json_body(
        {"id": message_id, "type": event.name, "timestamp": iso(event.timestamp), "data": event.payload()}
    )


# The storage


@dataclass(frozen=True, slots=True)
class _Queued:
    """One event for one endpoint; times in seconds since 1970, our clock."""

    seq: int
    id: str
    clarification: str
    type: str
    body: bytes = field(repr=False)
    queued_at: float
    due: float
    failures: int


class _Outbox:
    """Stores what was sent about each clarification so far, and the events that are still to be sent.

    Every method raises StorageUnavailable if nothing could be stored or read.
    """

    def __init__(self, store: Store, endpoints: Sequence[Endpoint]) -> None:
        self._store = store
        self._endpoints = endpoints

    async def begin(self, now: datetime) -> tuple[datetime, int]:
        """Since when events are sent, `now` if it begins now; how many were dropped, of endpoints that are no more."""

        def work(tx: Tx) -> tuple[datetime, int]:
            tx.run(
                "insert into webhook_since (one, since) values (1, :now) on conflict (one) do nothing",
                now=now.timestamp(),
            )
            _forget_old(tx, now)
            queued = tx.rows("select distinct endpoint from webhook_outbox")
            known = {each.id for each in self._endpoints}
            gone = [dict(row) for row in queued if row["endpoint"] not in known]
            dropped = tx.many("delete from webhook_outbox where endpoint = :endpoint", gone) if gone else 0
            return _since(tx), dropped

        return await self._store.write(work)

    async def add(self, looks: Sequence[_Look]) -> int:
        """Queue the events that these looks, in their order, give; how many messages. Looking again gives none."""

        def work(tx: Tx) -> int:
            if looks:
                _forget_old(tx, looks[-1].at)
            since = _since(tx)
            return sum(self._queue(tx, event, look) for look in looks for event in _taken(tx, look, since))

        return await self._store.write(work)

    def _queue(self, tx: Tx, event: LifecycleEvent, look: _Look) -> int:
        message = f"msg_{uuid.uuid4().hex}"  # receivers know by it what they have already
        row = {
            "id": message,
            "clarification": event.clarification_id,
            "type": event.name,
            "body": _body(message, event),
            "at": look.at.timestamp(),
        }
        rows = [row | {"endpoint": each.id} for each in self._endpoints if each.wants(event)]
        tx.many(
            """insert into webhook_outbox (endpoint, id, clarification, type, body, queued_at, due)
               values (:endpoint, :id, :clarification, :type, :body, :at, :at)""",
            rows,
        )
        return len(rows)

    async def next(self, endpoint: Endpoint) -> _Queued | None:
        """What is to be tried next, however long until then: the first of its clarification, the earliest due."""
        row = await self._store.read_one(
            """select seq, id, clarification, type, body, queued_at, due, failures
               from webhook_outbox o where endpoint = :endpoint and not exists (
                 select 1 from webhook_outbox e
                 where e.endpoint = o.endpoint and e.clarification = o.clarification and e.seq < o.seq)
               order by due, seq limit 1""",
            endpoint=endpoint.id,
        )
        return None if row is None else _Queued(**dict(row))

    async def sent(self, queued: _Queued) -> None:
        await self._store.run("delete from webhook_outbox where seq = :seq", seq=queued.seq)

    async def failed(self, queued: _Queued, due: float) -> None:
        """It is tried again at `due`."""
        await self._store.run(
            "update webhook_outbox set failures = failures + 1, due = :due where seq = :seq",
            due=due,
            seq=queued.seq,
        )

    async def drop(self, endpoint: Endpoint, queued_before: float, *, untried: bool) -> int:
        """Give up what was queued before a time, `untried` or not; how many."""
        return await self._store.run(
            """delete from webhook_outbox where endpoint = :endpoint and queued_at < :before
               and (:untried = 1 or failures > 0)""",
            endpoint=endpoint.id,
            before=queued_before,
            untried=int(untried),
        )

    async def waiting(self) -> Mapping[str, int]:
        """How many events are queued, by the endpoint's label."""
        rows = await self._store.read("select endpoint, count(*) as n from webhook_outbox group by endpoint")
        queued = {row["endpoint"]: int(row["n"]) for row in rows}
        found: dict[str, int] = {}
        for each in self._endpoints:
            found[each.label] = found.get(each.label, 0) + queued.get(each.id, 0)
        return found


def forget(tx: Tx, clarifications: Iterable[str]) -> None:
    """Forget the events about clarifications that are on their way."""
    for some in batches(clarifications):
        tx.run("delete from webhook_outbox where clarification in :ids", ids=some)


def _forget_old(tx: Tx, now: datetime) -> None:
    """Forget what was over long ago, and move the start of sending on, or it would be sent as if it were new."""
    horizon = (now - _REMEMBERED).timestamp()
    tx.run("update webhook_since set since = :horizon where since < :horizon", horizon=horizon)
    tx.run("delete from webhook_known where over = 1 and noted_at < :horizon", horizon=horizon)


def _since(tx: Tx) -> datetime:
    (row,) = tx.rows("select since from webhook_since")
    return _moment(row["since"])


def _taken(tx: Tx, look: _Look, since: datetime) -> Sequence[LifecycleEvent]:
    """The events between the recorded state of a clarification and `look`; records the new state."""
    after = State.of(look.record)
    row = tx.one("select * from webhook_known where clarification = :id", id=look.record.id)
    before = None if row is None else _as_sent(row)
    events = _events(before, look, since)
    is_over = after.status in DONE
    if after != before and (events or before or not is_over):
        tx.run(
            """insert into webhook_known (clarification, status, round, asked_last, nudges, over, noted_at)
               values (:id, :status, :round, :asked_last, :nudges, :over, :noted_at)
               on conflict (clarification) do update set status = excluded.status, round = excluded.round,
                 asked_last = excluded.asked_last, nudges = excluded.nudges, over = excluded.over,
                 noted_at = excluded.noted_at""",
            id=look.record.id,
            status=after.status,
            round=after.round,
            asked_last=after.asked_last.timestamp(),
            nudges=after.nudges,
            over=int(is_over),
            noted_at=look.at.timestamp(),
        )
    return events


def _as_sent(row: Row) -> State:
    """The clarification as the events so far describe it."""
    return State(row["status"], row["round"], _moment(row["asked_last"]), row["nudges"])


def _moment(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


# Sending


@dataclass(frozen=True, slots=True)
class _Outcome:
    """What came of one try. `gone`: the endpoint wants no more. `seconds`: how long it asks to be left alone."""

    kind: Literal["taken", "failed", "gone"]
    why: str = ""
    seconds: float | None = None


def _outcome(response: HttpStream, now: datetime) -> _Outcome:
    """Judge a response by its status alone."""
    status = response.status
    if 200 <= status < 300:
        return _Outcome("taken")
    if status == _GONE:
        return _Outcome("gone", f"HTTP {status}")
    said = "redirects, which is not followed" if 300 <= status < 400 else "did not take it"
    return _Outcome("failed", f"{said} (HTTP {status})", retry_after(response.headers, now))


class _Sender:
    """Brings one endpoint its events: one at a time, each clarification's in order, until they are taken or too old.

    A failure holds up everything for this endpoint, as it is most often down as a whole. The event that failed waits
    longer each time, so that one which is never taken costs the others little.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        outbox: _Outbox,
        clock: Clock,
        rng: random.Random,
        on_outcome: Callable[[str], None],
        *,
        acting: Acting,
    ) -> None:
        self._endpoint = endpoint
        self._outbox = outbox
        self._clock = clock
        self._rng = rng
        self._on_outcome = on_outcome
        self._acting = acting
        self._queued = asyncio.Event()
        self._failures = 0
        self._not_before = -inf
        self._gone = False
        self.resting = False

    def wake(self) -> None:
        """Something was queued."""
        self.resting = False
        self._queued.set()

    async def run(self) -> None:
        """Send what is queued, until cancelled."""
        async with HttpClient(None) as http:
            while True:
                self._queued.clear()
                try:
                    wait = await self._step(http)
                except StorageUnavailable as error:
                    _log.warning("webhooks delayed", endpoint=self._endpoint.label, reason=str(error))
                    wait = _STORAGE_RETRY
                if wait > 0:
                    self.resting = not self._queued.is_set()
                    await event_or_time(self._clock, self._queued, wait)
                    self.resting = False

    async def _step(self, http: HttpClient) -> float:
        """Do what is due; seconds until there is more to do."""
        queued = await self._outbox.next(self._endpoint)
        if queued is None:
            return inf
        now = self._clock.now()
        latest = inf if self._gone else (now - _PATIENCE).timestamp()
        fails = self._gone or self._failures > 0
        if queued.queued_at < latest and (fails or queued.failures):
            await self._give_up(latest, untried=fails)
            return 0
        wait = max(queued.due, self._not_before) - now.timestamp()
        if wait > 0:
            return wait
        await self._settle(queued, await self._try(http, queued))
        return 0

    async def _give_up(self, queued_before: float, *, untried: bool) -> None:
        """`untried`: also what was not tried yet. What grew old while no bot ran is tried first."""
        dropped = await self._outbox.drop(self._endpoint, queued_before, untried=untried)
        for _ in range(dropped):
            self._on_outcome("never")
        if dropped:
            _log.error("gave up webhook events", endpoint=self._endpoint.label, events=dropped)

    async def _try(self, http: HttpClient, queued: _Queued) -> _Outcome:
        """One try. What the answer says is read as far as the connection can be used again, and not looked at."""
        now = self._clock.now()
        signature = self._endpoint.signature(queued.id, int(now.timestamp()), queued.body)
        try:
            async with (
                self._acting(),
                asyncio.timeout(ANSWER_TIMEOUT),
                http.stream("POST", self._endpoint.url, queued.body, headers=signature) as response,
            ):
                outcome = _outcome(response, now)
                await _drain(response)
                return outcome
        except NETWORK as error:
            return _Outcome("failed", words(error))

    async def _settle(self, queued: _Queued, outcome: _Outcome) -> None:
        if outcome.kind == "taken":
            self._failures, self._not_before = 0, -inf
            await self._outbox.sent(queued)
            self._on_outcome("sent")
        elif outcome.kind == "gone":
            self._gone = True
            label = self._endpoint.label
            _log.error("endpoint answered 410 Gone; no events until the next start", endpoint=label)
        else:
            await self._retry_later(queued, outcome)

    async def _retry_later(self, queued: _Queued, outcome: _Outcome) -> None:
        self._failures += 1
        now = self._clock.now().timestamp()
        self._not_before = now + max(self._wait(self._failures), outcome.seconds or 0.0)
        due = max(self._not_before, now + self._wait(queued.failures + 1))
        self._on_outcome("later")
        _log.warning(
            "webhook event delayed",
            endpoint=self._endpoint.label,
            id=queued.clarification,
            type=queued.type,
            reason=outcome.why,
            seconds=round(due - now, 1),
        )
        await self._outbox.failed(queued, due)

    def _wait(self, failures: int) -> float:
        chance = self._rng.random()
        return backoff(failures - 1, first=_FIRST_WAIT, longest=_LONGEST_WAIT, spread=1 / 3, chance=chance)


async def _drain(response: HttpStream) -> None:
    """A body that breaks off, after the status said all that counts, changes nothing."""
    try:
        await response.body()
    except NETWORK as error:
        _log.debug("webhook response ended early", reason=words(error))
