"""What producers told us: from a frame that was read to an event that is durable, once, before the cursor moves.

Every frame ends as an event that is stored, as a page, or as a count. What was stored is worked off in its order
(`bot.intake`).
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import math
import random
import traceback
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Literal, NamedTuple, TypeVar, cast

import structlog

from bot.errors import ClarifyBotError, StorageError
from bot.producers.clocks import ClockOffset
from bot.producers.sse import Frame, Oversize, head_field, may_be_critical
from bot.storage.beside import looking
from bot.storage.store import Row, Store, Tx
from bot.storage.sweeping import Sweep
from core.aaep import IGNORED_TYPES, Event, NotAnEvent, parse_event
from core.agents import SessionFact
from core.clock import Clock, backoff
from core.ledger import FIRST_RESERVED, HIGHEST
from core.records import Subject
from core.workflow import Speaker

FIRST_RESERVED_ISSUE = FIRST_RESERVED
_T = TypeVar("_T")
_ENVELOPE = {"event_id", "timestamp", "sequence_number"}
_LONGEST_STORAGE_WAIT = 10.0
_KINDS = 1000
_LATE = timedelta(minutes=2)  # what is posted later than this was kept back, or a clock was set
_AGENTS = 1000
_SESSIONS = 10_000
_LONGEST_NAME = 80
_log = structlog.get_logger("clarify.intake")

Arrived = Literal["new", "duplicate", "event_id used", "reply_token used"]
"""What an event is to the inbox. Used: that stood for something else; only where the producer is told, else it is new."""


@dataclass(frozen=True, slots=True)
class Incoming:
    """One event as it came from a producer.

    `at` and `expires_at`: when it was sent, and when its question runs out, on our clock. `cursor` is the SSE `id` to
    resume after, where the producer sends ids. `live` tells that the event was just emitted (not a replayed backlog):
    only those say something of the producer's clock. `told`: the producer waits for an answer, so it can be refused.
    """

    producer: str
    event: Event
    received_at: datetime
    at: datetime
    expires_at: datetime | None = None
    cursor: str | None = None
    live: bool = False
    told: bool = False


@dataclass(frozen=True, slots=True)
class Trouble:
    """Something critical that could not be taken in: a human is paged with `summary` (no contents).

    `key` groups what is alike; `agent_id` and `session_id` where they could be read.
    """

    producer: str
    key: str
    summary: str
    agent_id: str | None = None
    session_id: str | None = None


TellTrouble = Callable[[Trouble], Awaitable[None]]


class NotItsAgent(ClarifyBotError):
    """An event names an agent for which its producer may not speak."""

    def __init__(self) -> None:
        super().__init__(
            "This producer may not speak for that agent; `agents` of its [[producers]] table says for which."
        )


@dataclass(frozen=True, slots=True)
class Item:
    """One event to be worked off. `at`: when it was sent, on our clock; `expires_at`: of a question, likewise."""

    id: int
    producer: str
    event: Event
    issue: int | None
    received_at: datetime
    at: datetime
    expires_at: datetime | None
    live: bool


@dataclass(frozen=True, slots=True)
class Backlog:
    """How many events wait to be worked off, and for how long the oldest has."""

    count: int
    oldest: timedelta


class Inbox:
    """The table of what came, and where each producer's stream is to be resumed.

    `news` is set when something new is there to be worked off. Every method raises StorageUnavailable if the storage
    cannot be used now.
    """

    def __init__(self, store: Store, on_put: Callable[[Sequence[Incoming]], None] | None = None) -> None:
        """`on_put` is told what came, durable or not: a trigger of the monitor, and news of who is at work."""
        self.news = asyncio.Event()
        self._store = store
        self._on_put = on_put

    async def put(self, *incoming: Incoming) -> list[Arrived]:
        """Take events in, in their order: all of them or none. Moves the cursor, finds their ledgers.

        Those whose id or token is used are not taken in.
        """
        if self._on_put is not None:
            self._on_put(incoming)
        arrived = await self._store.write(lambda tx: [_take(tx, each) for each in incoming])
        if "new" in arrived:
            self.news.set()
        for each, how in zip(incoming, arrived, strict=True):
            if how != "new":
                _log.info(how, producer=each.producer, event_id=each.event.event_id)
        return arrived

    async def reserve_above(self, issue: int) -> None:
        """Never give out numbers up to `issue`: their ledgers exist already (the storage is newer than they are)."""
        # Beyond the highest, earlier releases followed what others had put beside the ledgers.
        await self._store.run(
            """insert into counters (name, value) values ('issue', :issue)
               on conflict (name) do update set value = excluded.value
               where counters.value > :highest or counters.value < excluded.value""",
            issue=max(issue, FIRST_RESERVED_ISSUE - 1),
            highest=HIGHEST,
        )

    async def last_issue(self) -> int:
        """The reserved number that was given out last; 0: none."""
        last = await counter(self._store, "issue") or 0
        return last if last <= HIGHEST else 0

    async def marks(self, what: Literal["answers", "questions"]) -> bool:
        """Whether this storage was used before by a release that seals the answers, or questions, that come through it."""
        return await counter(self._store, f"marks {what}") is not None

    async def note_marks(self, what: Literal["answers", "questions"]) -> None:
        await set_counter(self._store, f"marks {what}", 1)

    async def cursor(self, producer: str) -> str | None:
        """The last stored SSE id of a producer, to resume after."""
        row = await self._store.read_one(
            "select cursor from cursors where producer = :producer", producer=producer
        )
        return row["cursor"] if row else None

    async def subscription(self, producer: str) -> str | None:
        """What `keep_subscription` kept."""
        row = await self._store.read_one(
            "select body from subscriptions where producer = :producer", producer=producer
        )
        return row["body"] if row else None

    async def keep_subscription(self, producer: str, text: str | None) -> None:
        """Keep a producer's subscription over restarts: what it sent on it before our first cursor comes again."""
        if text is None:
            await self._store.run("delete from subscriptions where producer = :producer", producer=producer)
            return
        await self._store.run(
            """insert into subscriptions (producer, body) values (:producer, :body)
               on conflict (producer) do update set body = excluded.body""",
            producer=producer,
            body=text,
        )

    async def waiting(self, after: int, limit: int = 500) -> list[Item]:
        """Events not yet worked off with an id above `after`, oldest first."""
        rows = await self._store.read(
            "select * from inbox where state = 'new' and id > :after order by id limit :limit",
            after=after,
            limit=limit,
        )
        return [_item(row) for row in rows]

    async def backlog(self, now: datetime) -> Backlog:
        """How much waits to be worked off."""
        row = await self._store.read_one(
            """select count(*) as count,
                 (select received_at from inbox where state = 'new' order by id limit 1) as oldest
               from inbox where state = 'new'"""
        )
        if row is None or row["oldest"] is None:
            return Backlog(0, timedelta(0))
        waited = now - datetime.fromtimestamp(row["oldest"], UTC)
        return Backlog(row["count"], max(timedelta(0), waited))

    async def done(self, ids: list[int]) -> None:
        """These are worked off; their content is forgotten, their ids are kept against duplicates."""
        await self._store.write(
            lambda tx: tx.many(
                "update inbox set state = 'done', body = null where id = :id", [{"id": each} for each in ids]
            )
        )

    async def failed(self, ids: list[int]) -> None:
        """These could not be worked off; their content is kept for whoever looks into it."""
        await self._store.write(
            lambda tx: tx.many(
                "update inbox set state = 'failed' where id = :id", [{"id": each} for each in ids]
            )
        )


async def counter(store: Store, name: str) -> int | None:
    """A number that outlives the process."""
    row = await store.read_one("select value from counters where name = :name", name=name)
    return None if row is None else int(row["value"])


async def set_counter(store: Store, name: str, value: int | None) -> None:
    """Keep a number; None: no more."""
    if value is None:
        await store.run("delete from counters where name = :name", name=name)
        return
    await store.run(
        """insert into counters (name, value) values (:name, :value)
           on conflict (name) do update set value = excluded.value""",
        name=name,
        value=value,
    )


async def heard(store: Store, since: datetime, most: int) -> list[SessionFact]:
    """The sessions heard of since then, at most so many, the one heard of last at the end.

    Raises:
        StorageUnavailable: it cannot be known now.
    """
    rows = await store.read(_HEARD, since=since.timestamp(), most=most)
    return [_session_fact(row) for row in reversed(rows)]


def heard_by_others(storage: Path, since: datetime, most: int) -> list[SessionFact]:
    """`heard`, of a storage that need not be there nor be ours. Blocking.

    Raises:
        StorageUnavailable: it cannot be read, or is another version's.
    """
    if not storage.exists():
        return []
    with looking(storage) as tx:
        rows = tx.rows(_HEARD, since=since.timestamp(), most=most)
    return [_session_fact(row) for row in reversed(rows)]


@dataclass(frozen=True, slots=True)
class Arrival:
    """One frame with when it came and how.

    `steady`: when it came, on the clock's steady time; `live`: it was just emitted; `late`: it was kept back, unless
    the producer's clock was set; `filtered`: the producer leaves events out; `resumable`: it sends again
    what we did not store.
    """

    frame: Frame | Oversize
    received_at: datetime
    steady: float
    live: bool
    filtered: bool = False
    resumable: bool = False
    late: bool = False

    @property
    def size(self) -> int:
        return self.frame.size if isinstance(self.frame, Frame) else len(self.frame.head)

    @property
    def cursor(self) -> str | None:
        """The SSE `id` to resume after."""
        return self.frame.id if isinstance(self.frame, Frame) else None


@dataclass(slots=True)
class Counters:
    """What came from one producer since the start."""

    events: int = 0
    skimmed: int = 0
    oversize: int = 0
    unreadable: int = 0
    refused: int = 0
    not_utf8: int = 0
    missing: int = 0
    connections: int = 0


class Receiver:
    """Puts one producer's arrivals into the inbox, in their order; several at once at the price of one.

    `offset` is what its events told of its clock, `counters` what came.
    """

    def __init__(
        self,
        speaker: Speaker,
        *,
        inbox: Inbox,
        clock: Clock,
        rng: random.Random,
        tell_trouble: TellTrouble,
        waits: bool = True,
    ) -> None:
        """`waits` for a storage that refuses, since the producer is told nothing; otherwise its error is raised."""
        self.offset = ClockOffset()
        self.counters = Counters()
        self._speaker, self._producer = speaker, speaker.producer
        self._inbox = inbox
        self._clock = clock
        self._rng = rng
        self._tell_trouble = tell_trouble
        self._waits = waits
        self._gaps = Gaps()
        self._told: set[object] = set()
        self._away_until = clock.steady()
        self._heard: dict[str, float] = {}
        self._log = _log.bind(producer=speaker.producer)

    async def take(self, *arrivals: Arrival) -> None:
        """Returns once each arrival is stored, or a human was told, or it is nothing that anybody needs."""
        read = [await self._read(arrival) for arrival in arrivals]
        events = [self._incoming(event, arrival) for event, arrival in filter(None, read)]
        if events:
            await self._store(events)

    async def take_one(self, frame: Frame, check: Callable[[Event], None]) -> tuple[Event, Arrived]:
        """The same for a producer that waits for an answer: it is told what is wrong, and nobody else.

        Raises:
            ValueError, RecursionError: it is no event.
            ClarifyBotError: of `check`, which refuses events.
            NotItsAgent: it may not speak for the agent that the event names.
            StorageError: nothing was stored.
        """
        arrival = Arrival(frame, self._clock.now(), self._clock.steady(), live=False)
        try:
            event = self._parse(arrival, frame)
        except (ValueError, RecursionError) as error:
            self.counters.unreadable += 1
            reason = _reason(error, torn=frame.torn)
            self._level((reason,))("not an event", size=frame.size, reason=reason)
            raise
        self._check(event, check)
        live = not self._kept_back(event, arrival)
        arrival = replace(arrival, live=live, late=not live)
        if not self._is_kept(event, arrival, frame):
            return event, "new"
        try:
            (arrived,) = await self._store([self._incoming(event, arrival, told=True)])
        except StorageError:
            self._away_until = self._clock.steady()
            raise
        return event, arrived

    def _check(self, event: Event, check: Callable[[Event], None]) -> None:
        try:
            check(event)
            if not self._speaker.may_be(event.agent_id):
                raise NotItsAgent
        except ClarifyBotError as error:
            self.counters.refused += 1
            self._level((event.type, str(error)))(
                "event refused",
                event_id=event.event_id,
                session_id=event.session_id,
                reason=str(error),
            )
            raise

    def _kept_back(self, event: Event, arrival: Arrival) -> bool:
        """Whether an agent kept a posted event back while we were away.

        An agent posts in order: what claims to be older than what it posted before was not kept back, its clock was
        set. Neither was what claims to be of a time when we took everything. And while nothing is known of its clock,
        a question that would arrive dead is taken for one of a slow clock: whoever posts it waits for its answer.
        """
        age = self.offset.age(event.timestamp, arrival.received_at, arrival.steady)
        sent = arrival.steady - age.total_seconds()
        agent = event.agent_id
        ran_out = event.question is not None and age.total_seconds() >= (
            event.question.timeout_seconds or math.inf
        )
        if (
            age > _LATE
            and self._heard.get(agent, -math.inf) <= sent < self._away_until
            and not (ran_out and not self.offset.is_known)
        ):
            return True
        self._heard.pop(agent, None)
        self._heard[agent] = arrival.steady
        if len(self._heard) > _AGENTS:
            del self._heard[next(iter(self._heard))]
        return False

    async def _read(self, arrival: Arrival) -> tuple[Event, Arrival] | None:
        """The event of an arrival that is to be stored, if any; where that cannot be known, a human is told."""
        if isinstance(arrival.frame, Oversize):
            await self._oversize(arrival.frame)
            return None
        try:
            event = self._parse(arrival, arrival.frame)
        except (ValueError, RecursionError) as error:
            await self._unreadable(arrival, arrival.frame, error)
            return None
        if not self._speaker.may_be(event.agent_id):
            await self._not_its_agent(event)
            return None
        return (event, arrival) if self._is_kept(event, arrival, arrival.frame) else None

    def _is_kept(self, event: Event, arrival: Arrival, frame: Frame) -> bool:
        """Whether an event is to be stored; notes what it says of the producer."""
        self._observe(event, arrival, frame.skimmed)
        if event.type in IGNORED_TYPES and not event.critical:
            self.counters.skimmed += 1
            return False
        self.counters.events += 1
        return True

    def _incoming(self, event: Event, arrival: Arrival, *, told: bool = False) -> Incoming:
        """The event with its times on our clock, as far as is known of the producer's by now."""
        at = self.offset.sent_at(event.timestamp, arrival.received_at, live=arrival.live)
        return Incoming(
            producer=self._producer,
            event=event,
            received_at=arrival.received_at,
            at=at,
            expires_at=_expiry(event, at),
            cursor=arrival.cursor,
            live=arrival.live,
            told=told,
        )

    def _parse(self, arrival: Arrival, frame: Frame) -> Event:
        event = parse_event(json.loads(frame.data), arrival.received_at)
        if not frame.replaced:
            return event
        self.counters.not_utf8 += 1
        return replace(event, problems=(*event.problems, "not UTF-8"))

    def _observe(self, event: Event, arrival: Arrival, skimmed: int) -> None:
        if event.problems:
            self._level((event.type, event.problems))(
                "event breaks its schema",
                type=event.type,
                event_id=event.event_id,
                session_id=event.session_id,
                problems=event.problems,
            )
        if event.timestamp is not arrival.received_at:
            self.offset.observe(
                event.timestamp, arrival.received_at, arrival.steady, live=arrival.live, late=arrival.late
            )
        if event.sequence_number is None or arrival.filtered:
            return
        missing = self._gaps.missing(event.session_id, event.sequence_number, skimmed)
        if missing:
            self.counters.missing += missing
            self._log.warning(
                "events are missing",
                session_id=event.session_id,
                before=event.sequence_number,
                missing=missing,
            )

    async def _store(self, events: Sequence[Incoming]) -> Sequence[Arrived]:
        try:
            return await self._until_stored(lambda: self._inbox.put(*events))
        except StorageError:
            raise
        except Exception as error:  # noqa: BLE001  one event that the inbox cannot digest must not stop the rest
            if len(events) == 1:
                await self._not_stored(events[0].event, error)
                return ["new"]
            return [arrived for each in events for arrived in await self._store([each])]

    async def _not_stored(self, event: Event, error: Exception) -> None:
        self._log.error(
            "event could not be taken in",
            error=_place(error),
            type=event.type,
            event_id=event.event_id,
            session_id=event.session_id,
        )
        await self._tell(
            f"failed:{event.session_id}",
            f"An event of type {event.type} could not be taken in; see the log for {event.event_id}.",
            agent_id=event.agent_id,
            session_id=event.session_id,
        )

    async def _oversize(self, frame: Oversize) -> None:
        self.counters.oversize += 1
        kind = head_field(frame.head, "type") or "unknown type"
        session_id = head_field(frame.head, "session_id")
        agent_id = head_field(frame.head, "agent_id")
        self._log.error("event larger than 1 MiB skipped", type=kind, session_id=session_id)
        await self._tell(
            f"oversize:{session_id}",
            f"An event ({kind}) was larger than 1 MiB and was not taken in.",
            agent_id=agent_id,
            session_id=session_id,
        )

    async def _unreadable(self, arrival: Arrival, frame: Frame, error: Exception) -> None:
        self.counters.unreadable += 1
        reason = _reason(error, torn=frame.torn)
        critical = may_be_critical(frame.data)
        self._level((reason, critical))(
            "not an event", size=frame.size, reason=reason, may_be_critical=critical
        )
        if not critical or (frame.torn and arrival.resumable):
            return
        session_id = head_field(frame.data, "session_id")
        await self._tell(
            f"unreadable:{session_id}",
            f"Something that names a critical event could not be read ({reason}, {frame.size} bytes).",
            agent_id=head_field(frame.data, "agent_id"),
            session_id=session_id,
        )

    async def _not_its_agent(self, event: Event) -> None:
        self.counters.refused += 1
        self._level(("agent", event.agent_id))(
            "event of another agent", type=event.type, event_id=event.event_id, agent_id=event.agent_id
        )
        if not event.critical:
            return
        await self._tell(  # where its own route says, not that of the agent whose name it took
            f"agent:{self._producer}:{event.agent_id}",
            f"An event ({event.type}) came as if from {event.agent_id[:_LONGEST_NAME]}, for which this producer may not "
            "speak, and was not taken in. `agents` of its [[producers]] table says for which it may.",
            agent_id=None,
            session_id=event.session_id,
        )

    def _level(self, kind: object) -> Callable[..., object]:
        """Warn of the first of a kind only: a producer that is always wrong must not fill the log."""
        if kind in self._told or len(self._told) >= _KINDS:
            return cast("Callable[..., object]", self._log.debug)
        self._told.add(kind)
        return cast("Callable[..., object]", self._log.warning)

    async def _tell(self, key: str, summary: str, *, agent_id: str | None, session_id: str | None) -> None:
        trouble = Trouble(self._producer, key, summary, agent_id=agent_id, session_id=session_id)
        await self._until_stored(lambda: self._tell_trouble(trouble))

    async def _until_stored(self, store: Callable[[], Awaitable[_T]]) -> _T:
        attempt = 0
        while True:
            try:
                return await store()
            except StorageError as error:
                if not self._waits:
                    raise
                chance = self._rng.random()
                delay = backoff(attempt, first=0.5, longest=_LONGEST_STORAGE_WAIT, spread=1.0, chance=chance)
                attempt += 1
                self._log.error("storage refuses; waiting with it", reason=str(error), attempt=attempt)
                await self._clock.sleep(delay)


class Gaps:
    """The last number of each session, and how many events had been skimmed by then.

    Skimmed events carry numbers as well, which nobody reads: as many holes as events were skimmed in
    between are no loss. So a loss may go unseen, but none is reported that did not happen.
    """

    def __init__(self) -> None:
        self._last: OrderedDict[str, tuple[int, int]] = OrderedDict()

    def missing(self, session_id: str, number: int, skimmed: int) -> int:
        """How many events of the session are certainly missing before `number`. Replays count as none.

        `skimmed`: how many events were skimmed so far, in all.
        """
        known = self._last.get(session_id)
        if known is not None and number <= known[0]:
            return 0
        self._last[session_id] = (number, skimmed)
        self._last.move_to_end(session_id)
        if len(self._last) > _SESSIONS:
            self._last.popitem(last=False)
        return 0 if known is None else max(0, number - known[0] - 1 - (skimmed - known[1]))


def _place(error: BaseException) -> str:
    """What was raised, and where: its text and its traceback's values may hold the event."""
    frames = traceback.extract_tb(error.__traceback__)
    where = f" at {frames[-1].filename}:{frames[-1].lineno}" if frames else ""
    return f"{type(error).__name__}{where}"


def _reason(error: Exception, *, torn: bool) -> str:
    """Without contents: the JSON decoder's own message has none, but its exception holds the document."""
    if torn:
        return "the connection ended in the middle of it"
    if isinstance(error, NotAnEvent):
        return str(error)
    return "nested too deeply" if isinstance(error, RecursionError) else "not JSON"


def _expiry(event: Event, at: datetime) -> datetime | None:
    """When the question of an event that was sent `at` runs out."""
    question = event.question
    if question is None or question.timeout_seconds is None:
        return None
    try:
        return at + timedelta(seconds=question.timeout_seconds)
    except OverflowError:  # a timestamp at the end of time
        return datetime.max.replace(tzinfo=UTC)


def _take(tx: Tx, incoming: Incoming) -> Arrived:
    arrived = _insert(tx, incoming)
    if incoming.cursor is not None:
        tx.run(
            """insert into cursors (producer, cursor) values (:producer, :cursor)
               on conflict (producer) do update set cursor = excluded.cursor""",
            producer=incoming.producer,
            cursor=incoming.cursor,
        )
    return arrived


def _insert(tx: Tx, incoming: Incoming) -> Arrived:
    event, contents, words = incoming.event, _contents(incoming.event), _words(incoming.event)
    event_id, arrived = _named(tx, incoming, contents)
    token = event.question.reply_token if event.question else None
    if arrived == "new" and token is not None:
        arrived = _asked_with(tx, incoming, token, words, contents)
    if arrived != "new":
        return arrived
    tx.run(
        """insert into inbox (producer, event_id, session_id, issue, token, words, contents, received_at, at, expires_at,
             live, body)
           values (:producer, :event_id, :session_id, :issue, :token, :words, :contents, :received_at, :at, :expires_at,
             :live, :body)""",
        producer=incoming.producer,
        event_id=event_id,
        session_id=event.session_id,
        issue=_issue(tx, incoming),
        token=token,
        words=words,
        contents=contents,
        received_at=incoming.received_at.timestamp(),
        at=incoming.at.timestamp(),
        expires_at=incoming.expires_at.timestamp() if incoming.expires_at else None,
        live=int(incoming.live),
        body=_body(event),
    )
    return "new"


def _named(tx: Tx, incoming: Incoming, contents: str) -> tuple[str, Arrived]:
    """The id under which an event is kept, and whether that is known.

    Agents that start again count from 1 again: what says something else under a used id is another event, which a
    producer that we cannot tell so gets shown. It is kept under an id made of both, so that it is known when it comes
    once more.
    """
    named = incoming.event.event_id
    known = _known_as(tx, incoming.producer, named)
    if known is None:
        return named, "new"
    if known["contents"] in {None, contents}:
        return named, "duplicate"
    if incoming.told:
        return named, "event_id used"
    other = f"{named}#{contents}"
    return other, "duplicate" if _known_as(tx, incoming.producer, other) else "new"


def _known_as(tx: Tx, producer: str, event_id: str) -> Row | None:
    return tx.one(
        "select contents from inbox where producer = :producer and event_id = :event_id",
        producer=producer,
        event_id=event_id,
    )


def _asked_with(tx: Tx, incoming: Incoming, token: str, words: str | None, contents: str) -> Arrived:
    """Whether the question is one that its token stood for already, under another id.

    One token may stand for several questions on a stream: dropping one would leave it unseen.
    """
    known = tx.rows(
        "select session_id, words, contents from inbox where producer = :producer and token = :token",
        producer=incoming.producer,
        token=token,
    )
    session = incoming.event.session_id
    for row in known:
        before = (row["session_id"], row["words"]) if row["contents"] is None else row["contents"]
        if before == ((session, words) if row["contents"] is None else contents):
            return "duplicate"
    used = any(row["words"] is not None for row in known)  # of what was forgotten nothing is known
    return "reply_token used" if used and incoming.told else "new"


def _issue(tx: Tx, incoming: Incoming) -> int | None:
    """The ledger of an event: as its extension says, else its session's; a question without one gets a new one."""
    event = incoming.event
    known = tx.one(
        "select issue from sessions where producer = :producer and session_id = :session_id",
        producer=incoming.producer,
        session_id=event.session_id,
    )
    issue = declared_issue(event) or (known["issue"] if known else None)
    if issue is None and event.question is not None:
        (row,) = tx.rows(
            """insert into counters (name, value) values ('issue', :first)
               on conflict (name) do update set value = counters.value + 1 returning value""",
            first=FIRST_RESERVED_ISSUE,
        )
        issue = int(row["value"])
    know_sessions(tx, [Session(incoming.producer, event.session_id, event.agent_id, event.agent_name, issue)])
    return issue


class Session(NamedTuple):
    """A producer's session, and the issue whose ledger has its questions; None: it asked nothing yet."""

    producer: str
    session_id: str
    agent_id: str
    agent_name: str | None
    issue: int | None


def know_sessions(tx: Tx, sessions: Iterable[Session]) -> None:
    """Keep sessions; what is known of one stays."""
    tx.many(
        """insert into sessions (producer, session_id, agent_id, agent_name, issue)
           values (:producer, :session_id, :agent_id, :agent_name, :issue)
           on conflict (producer, session_id) do update set issue = coalesce(sessions.issue, excluded.issue),
             agent_name = coalesce(sessions.agent_name, excluded.agent_name)""",
        [each._asdict() for each in sessions],
    )


def set_thread(
    tx: Tx,
    producer: str | None,
    session_id: str | None,
    channel: str | None,
    ts: str | None,
    *,
    again: bool = True,
) -> None:
    """A session's thread in Slack is there from now on, None: it has none; unless `again`, only if it had none."""
    tx.run(
        """update sessions set channel = :channel, thread_ts = :ts
           where producer = :producer and session_id = :session_id and (thread_ts is null or :again = 1)""",
        producer=producer,
        session_id=session_id,
        channel=channel,
        ts=ts,
        again=int(again),
    )


def move_threads(tx: Tx, old: str, new: str) -> None:
    """A channel in Slack got another id."""
    tx.run("update sessions set channel = :new where channel = :old", old=old, new=new)


def declared_issue(event: Event) -> int | None:
    """`extensions.agentx.issue`, where it is a positive whole number below the reserved range."""
    value = event.extension("agentx").get("issue")
    if isinstance(value, str) and value.isdecimal() and len(value) < 10:
        value = int(value)
    if isinstance(value, int) and not isinstance(value, bool) and 0 < value < FIRST_RESERVED_ISSUE:
        return value
    return None


def _body(event: Event) -> str:
    try:
        return json.dumps(event.raw)
    except RecursionError:  # it could just be read, but not be written: what is said is never that deep
        return json.dumps(
            {key: value for key, value in event.raw.items() if isinstance(value, (str, int, float))}
        )


def _contents(event: Event) -> str:
    """Digest of what an event says, whatever it is called and whenever it was sent."""
    said = {key: value for key, value in event.raw.items() if key not in _ENVELOPE}
    try:
        text = json.dumps(said, sort_keys=True)
    except RecursionError:  # as in `_body`
        text = repr(
            sorted((key, value) for key, value in said.items() if isinstance(value, (str, int, float)))
        )
    return _digest(text)


def _words(event: Event) -> str | None:
    return None if event.question is None else _digest(event.question.text)


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=12).hexdigest()


_HEARD = """
  select s.producer, s.session_id, s.agent_id, s.agent_name, s.issue, s.ended, heard.at from sessions s join (
    select producer, session_id, max(received_at) as at from inbox where received_at >= :since
    group by producer, session_id) heard using (producer, session_id)
  order by heard.at desc limit :most"""


def _session_fact(row: Row) -> SessionFact:
    """What a row of `_HEARD` says."""
    return SessionFact(
        row["producer"],
        row["session_id"],
        row["agent_id"],
        row["agent_name"],
        row["issue"] or 0,
        bool(row["ended"]),
        datetime.fromtimestamp(row["at"], UTC),
    )


def _item(row: Row) -> Item:
    received = datetime.fromtimestamp(row["received_at"], UTC)
    event = parse_event(json.loads(row["body"]), received)
    return Item(
        id=row["id"],
        producer=row["producer"],
        event=replace(event, event_id=row["event_id"]),
        issue=row["issue"],
        received_at=received,
        at=datetime.fromtimestamp(row["at"], UTC),
        expires_at=datetime.fromtimestamp(row["expires_at"], UTC) if row["expires_at"] is not None else None,
        live=bool(row["live"]),
    )


# Worked off long ago; its session is kept as long as something else is of it.
SWEEP_EVENTS = Sweep(
    "inbox",
    """select id as name, producer, session_id from inbox where id > :after and id < (select max(id) from inbox)
       and state <> 'new' and received_at < :horizon and coalesce(expires_at, 0) < :horizon
       order by id limit :most""",
    ("delete from inbox where id in :names and state <> 'new'",),
    first=0,
)
SWEEP_SESSIONS = Sweep(
    "sessions",
    """select idle.producer || ' ' || idle.session_id as name, idle.producer, idle.session_id from (
         select producer, session_id from sessions
         except select producer, session_id from inbox
         except select producer, session_id from messages where session_id is not null) as idle
       where idle.producer || ' ' || idle.session_id > :after order by name limit :most""",
    (
        """delete from sessions where producer || ' ' || session_id in :names
           and (producer, session_id) not in (select producer, session_id from inbox)""",
    ),
)


def producers_of(tx: Tx, session: str, producer: str | None) -> set[str]:
    """Whose sessions have this id; only `producer`'s, if one is named."""
    rows = tx.rows("select producer from sessions where session_id = :session", session=session)
    return {row["producer"] for row in rows if row["producer"] and producer in {None, row["producer"]}}


def waiting_of(tx: Tx, subject: Subject) -> int:
    """How many events of what is to be forgotten are not worked off yet."""
    found: set[int] = set()
    for producer, name in subject.sessions:
        sql = "select id from inbox where state = 'new' and producer = :producer and session_id = :name"
        found |= {row["id"] for row in tx.rows(sql, producer=producer, name=name)}
    for producer, name in subject.events:
        sql = "select id from inbox where state = 'new' and producer = :producer and event_id = :name"
        found |= {row["id"] for row in tx.rows(sql, producer=producer, name=name)}
    return len(found)


def forget(tx: Tx, subject: Subject) -> None:
    """Forget what events said, and what their sessions are called. Their ids stay: told again, they are known."""
    sessions = [{"producer": producer, "name": name} for producer, name in subject.sessions]
    tx.many(
        """update inbox set body = null, words = null, contents = null, state = 'done'
           where producer = :producer and session_id = :name""",
        sessions,
    )
    tx.many(
        """update inbox set body = null, words = null, contents = null, state = 'done'
           where producer = :producer and event_id = :name""",
        [{"producer": producer, "name": name} for producer, name in subject.events],
    )
    tx.many(
        """update sessions set agent_name = null, channel = null, thread_ts = null
           where producer = :producer and session_id = :name""",
        sessions,
    )


@dataclass(frozen=True, slots=True)
class Told:
    """An event as its ledger knows it. `question`: what it asked, if that is known."""

    session: Session
    event_id: str
    token: str | None
    question: str | None
    at: datetime


def note_told(tx: Tx, told: Iterable[Told], highest: int) -> None:
    """Know events that a ledger knows, as worked off, and give out no number up to `highest`. In any version's storage."""
    told = list(told)
    know_sessions(tx, [each.session for each in told])
    for each in told:
        tx.run(
            """insert into inbox (producer, event_id, session_id, issue, token, words, received_at, at, live, state)
               values (:producer, :event, :session, :issue, :token, :words, :at, :at, 0, 'done')
               on conflict do nothing""",
            producer=each.session.producer,
            session=each.session.session_id,
            issue=each.session.issue,
            event=each.event_id,
            token=each.token,
            words=None if each.question is None else _digest(each.question),
            at=each.at.timestamp(),
        )
    if highest >= FIRST_RESERVED_ISSUE:
        tx.run(
            """insert into counters (name, value) values ('issue', :highest)
               on conflict (name) do update set value = excluded.value where counters.value < excluded.value""",
            highest=highest,
        )


def last_issue(tx: Tx) -> int:
    """The reserved number that was given out last; 0: none."""
    row = tx.one("select value from counters where name = 'issue' and value <= :highest", highest=HIGHEST)
    return int(row["value"]) if row else 0


def leave_out_issues(tx: Tx, count: int) -> None:
    """Give out the next reserved number so many later."""
    tx.run("update counters set value = value + :count where name = 'issue'", count=count)
