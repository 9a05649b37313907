"""Stores producers' events, deduplicated and in order, their sessions, and where to resume each stream.

`bot.intake` processes the events.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Literal, NamedTuple

import structlog

from bot.errors import StorageUnavailable
from bot.storage.ledger import LockedError
from bot.storage.store import Store, Sweep
from bot.storage.tx import Row, Tx
from core.aaep import Event, parse_event
from core.index import SessionFact
from core.ledgerfiles import FIRST_RESERVED
from core.records import Subject

FIRST_RESERVED_ISSUE = FIRST_RESERVED
_INBOX = "inbox"  # the lock of whoever stores an event
_SESSION = "session "  # before its producer and id, in the name of its lock
MOST_QUESTIONS = 500  # of an issue that we gave out; then its session goes on in another one
AT_ONCE = 500  # events in one read
_FEW = 4  # events to read on the event loop
_LARGE = 128 * 1024  # characters from which events are parsed in a thread
_ENVELOPE = {"event_id", "timestamp", "sequence_number"}
_log = structlog.get_logger("clarify.intake")

Arrived = Literal["new", "duplicate", "event_id used", "reply_token used"]
"""The result of `put`. "… used": the id or token belongs to a different event; only for producers that wait for our
response. Other producers' events are stored as new.
"""


@dataclass(frozen=True, slots=True)
class Incoming:
    """One event from a producer, also once it is stored: then it has its `id` and, if it belongs to one, an `issue`.

    `at` and `expires_at`: when it was sent, and when its question expires, on our clock. `cursor`: the SSE `id` to
    resume after, if the producer sends ids. `live`: it was just emitted, not replayed. `refusable`: the producer waits
    for our response, so we can refuse the event.
    """

    producer: str
    event: Event
    received_at: datetime
    at: datetime
    expires_at: datetime | None = None
    cursor: str | None = None
    live: bool = False
    refusable: bool = False
    id: int = 0  # 0: not stored yet
    issue: int | None = None


@dataclass(frozen=True, slots=True)
class Backlog:
    """How many events are unprocessed, and the age of the oldest."""

    count: int
    oldest: timedelta


@dataclass(eq=False)
class Inbox:
    """Stores incoming events, and where to resume each producer's stream.

    `on_put` is called when events arrive, before they are stored; `news` is set when there are events to process. Every
    method raises StorageUnavailable if the storage cannot be used.
    """

    store: Store
    on_put: Callable[[], object] | None = None
    news: asyncio.Event = field(default_factory=asyncio.Event)
    _own: list[Incoming] = field(default_factory=list, init=False)  # stored here, not given to intake yet
    _has_others: bool = field(
        default=True, init=False
    )  # whether other bots, or an earlier process, may have stored more

    async def put(self, *incoming: Incoming) -> list[Arrived]:
        """Stores events in order, all or none; moves the cursor and assigns each event its issue.

        Leaves out events whose id or token is used.
        """
        if self.on_put is not None:
            self.on_put()
        stored = await self.store.write(lambda tx: [take(tx, each) for each in incoming])
        arrived = [how for how, _ in stored]
        if "new" in arrived:
            if not self._has_others:  # else they are read; a bot that does not lead never reads them
                self._own += [each for how, each in stored if how == "new"]
            self.news.set()
        for each, how in zip(incoming, arrived, strict=True):
            if how != "new":
                _log.info(how, producer=each.producer, event_id=each.event.event_id)
        return arrived

    def heard(self) -> None:
        """Has what other bots stored processed."""
        self._has_others = True
        self.news.set()

    async def cursor(self, producer: str) -> str | None:
        """Returns a producer's last stored SSE id, to resume after."""
        row = await self.store.read_one(
            "select cursor from cursors where producer = :producer", producer=producer
        )
        return row["cursor"] if row else None

    async def subscription(self, producer: str) -> str | None:
        """Returns what `keep_subscription` stored."""
        row = await self.store.read_one(
            "select body from subscriptions where producer = :producer", producer=producer
        )
        return row["body"] if row else None

    async def keep_subscription(self, producer: str, text: str | None) -> None:
        """Stores a producer's subscription; None deletes it.

        After a restart, the producer replays on it what it sent before our first cursor.
        """
        if text is None:
            await self.store.run("delete from subscriptions where producer = :producer", producer=producer)
            return
        await self.store.run(
            """insert into subscriptions (producer, body) values (:producer, :body)
               on conflict (producer) do update set body = excluded.body""",
            producer=producer,
            body=text,
        )

    async def following(self, after: int) -> list[Incoming]:
        """As `waiting`, but reads nothing if all that follows `after` was just stored here."""
        own = sorted((each for each in self._own if each.id > after), key=lambda each: each.id)
        self._own.clear()
        if own and not self._has_others and own[0].id == after + 1 and own[-1].id == after + len(own):
            return own
        self._has_others = False
        try:
            return await self.waiting(after)
        except StorageUnavailable:
            self._has_others = True
            raise

    async def waiting(self, after: int, limit: int = AT_ONCE) -> list[Incoming]:
        """Returns unprocessed events with an id above `after`, oldest first."""
        sql = "select * from inbox where state = 'new' and id > :after order by id limit :limit"
        rows = await self.store.find(sql, after=after, limit=_FEW)
        if len(rows) == _FEW:
            rows += await self.store.read(sql, after=rows[-1]["id"], limit=limit - _FEW)
        if sum(len(row["body"] or "") for row in rows) < _LARGE:
            return [_item(row) for row in rows]
        return await asyncio.to_thread(lambda: [_item(row) for row in rows])

    async def backlog(self, now: datetime) -> Backlog:
        row = await self.store.read_one(
            """select count(*) as count,
                 (select received_at from inbox where state = 'new' order by id limit 1) as oldest
               from inbox where state = 'new'"""
        )
        if row is None or row["oldest"] is None:
            return Backlog(0, timedelta(0))
        waited = now - datetime.fromtimestamp(row["oldest"], UTC)
        return Backlog(row["count"], max(timedelta(0), waited))

    async def done(self, ids: list[int]) -> None:
        """Marks events as processed: drops their contents, keeps their ids to recognize duplicates."""
        await self.store.write_soon(
            lambda tx: tx.many(
                "update inbox set state = 'done', body = null where id = :id", [{"id": each} for each in ids]
            )
        )

    async def failed(self, ids: list[int]) -> None:
        """Marks events that could not be processed; keeps their contents for inspection."""
        await self.store.write(
            lambda tx: tx.many(
                "update inbox set state = 'failed' where id = :id", [{"id": each} for each in ids]
            )
        )


async def counter(store: Store, name: str) -> int | None:
    """Returns a stored number; None if it was never set."""
    row = await store.read_one("select value from counters where name = :name", name=name)
    return None if row is None else int(row["value"])


async def set_counter(store: Store, name: str, value: int | None) -> None:
    """Stores a number; None deletes it."""
    if value is None:
        await store.run("delete from counters where name = :name", name=name)
        return
    await store.run(
        """insert into counters (name, value) values (:name, :value)
           on conflict (name) do update set value = excluded.value""",
        name=name,
        value=value,
    )


async def seen_sessions(store: Store, since: datetime, most: int) -> list[SessionFact]:
    """Returns at most `most` sessions that sent events since then, the latest last.

    Raises:
        StorageUnavailable: the storage cannot be read now.
    """
    rows = await store.read(_SEEN, since=since.timestamp(), most=most)
    return [_session_fact(row) for row in reversed(rows)]


def take(tx: Tx, incoming: Incoming) -> tuple[Arrived, Incoming]:
    """Stores one event in this transaction, unless it is known, and returns it with its id and issue; see `Inbox.put`."""
    tx.lock(_INBOX, wait=True)  # readers go by id, so ids must be committed in order
    arrived, stored = _insert(tx, incoming)
    if arrived == "new":
        tx.tell("inbox")
    if incoming.cursor is not None:
        tx.run(
            """insert into cursors (producer, cursor) values (:producer, :cursor)
               on conflict (producer) do update set cursor = excluded.cursor""",
            producer=incoming.producer,
            cursor=incoming.cursor,
        )
    return arrived, stored


def _insert(tx: Tx, incoming: Incoming) -> tuple[Arrived, Incoming]:
    event = incoming.event
    payload_hash = _payload_hash(event)
    event_id, arrived = _stored_id(tx, incoming, payload_hash)
    token = event.question.asked.reply_token if event.question else None
    if arrived == "new" and token is not None:
        arrived = _check_token(tx, incoming, token, payload_hash)
    if arrived != "new":
        return arrived, incoming
    event, body = _readable(event, incoming.received_at)
    issue = _issue(tx, incoming)
    (row,) = tx.rows(
        """insert into inbox (producer, event_id, session_id, issue, token, contents, received_at, at,
             expires_at, live, body)
           values (:producer, :event_id, :session_id, :issue, :token, :payload_hash, :received_at, :at,
             :expires_at, :live, :body) returning id""",
        producer=incoming.producer,
        event_id=event_id,
        session_id=event.session_id,
        issue=issue,
        token=token,
        payload_hash=payload_hash,
        received_at=incoming.received_at.timestamp(),
        at=incoming.at.timestamp(),
        expires_at=incoming.expires_at.timestamp() if incoming.expires_at else None,
        live=int(incoming.live),
        body=body,
    )
    return "new", replace(incoming, event=replace(event, event_id=event_id), id=row["id"], issue=issue)


def _stored_id(tx: Tx, incoming: Incoming, payload_hash: str) -> tuple[str, Arrived]:
    """Returns the id under which to store an event, and whether it is known.

    Agents that restart count from 1 again, so different content under a used id is another event. It is refused if the
    producer waits for our response, else stored under its id plus hash, which recognizes its repetition.
    """
    event_id = incoming.event.event_id
    known = _find_event(tx, incoming.producer, event_id)
    if known is None:
        return event_id, "new"
    if known["payload_hash"] in {None, payload_hash}:
        return event_id, "duplicate"
    if incoming.refusable:
        return event_id, "event_id used"
    other = f"{event_id}#{payload_hash}"
    return other, "duplicate" if _find_event(tx, incoming.producer, other) else "new"


def _find_event(tx: Tx, producer: str, event_id: str) -> Row | None:
    return tx.one(
        "select contents as payload_hash from inbox where producer = :producer and event_id = :event_id",
        producer=producer,
        event_id=event_id,
    )


def _check_token(tx: Tx, incoming: Incoming, token: str, payload_hash: str) -> Arrived:
    """Returns whether the same question came before with the same token, under another id.

    On a stream, one token may belong to several questions; all of them are shown.
    """
    known = tx.rows(
        "select contents as payload_hash from inbox where producer = :producer and token = :token",
        producer=incoming.producer,
        token=token,
    )
    if any(row["payload_hash"] == payload_hash for row in known):
        return "duplicate"
    used = any(row["payload_hash"] is not None for row in known)  # forgotten events have no hash
    return "reply_token used" if used and incoming.refusable else "new"


def _issue(tx: Tx, incoming: Incoming) -> int | None:
    """Returns a question's issue, or the one that another event names; stores the session."""
    event = incoming.event
    named = declared_issue(event)
    session = Session(incoming.producer, event.session_id, event.agent_id, event.agent_name, named)
    if event.question is not None:
        return issue_for(tx, session)
    know_sessions(tx, [session])
    return named


def lock_of(producer: str, session: str) -> str:
    """Returns the name of a session's lock. Who holds it may count on the session's row."""
    return f"{_SESSION}{producer} {session}"


def issue_for(tx: Tx, asking: Session) -> int:
    """Returns the issue of a question: the one that it names (`asking.issue`), else its session's, else a new one. Stores the
    session, unless all of it is known: nothing then waits for its row. Hold a lock: else a new session can get two issues.

    Raises:
        LockedError: another bot is storing an event. To wait for that would be a deadlock, where it waits for our row.
    """
    known = tx.one(
        "select issue, agent_name from sessions where producer = :producer and session_id = :session",
        producer=asking.producer,
        session=asking.session_id,
    )
    issue = asking.issue or (known["issue"] if known else None)
    needs_another = issue is None or _is_full(tx, issue)
    lacks_something = (
        known is None or known["issue"] is None or (asking.agent_name and known["agent_name"] is None)
    )
    if (needs_another or lacks_something) and not tx.lock(_INBOX):
        raise LockedError
    if issue is None or needs_another:
        issue = _further(tx, asking.producer, asking.session_id)
    if lacks_something:
        know_sessions(tx, [asking._replace(issue=issue)])
    return issue


def _is_full(tx: Tx, issue: int) -> bool:
    """Whether an issue that we gave out has so many questions that its ledger file gets too large."""
    row = tx.one("select highest from issues where issue = :issue", issue=issue)
    return issue >= FIRST_RESERVED_ISSUE and row is not None and row["highest"] >= MOST_QUESTIONS


def _further(tx: Tx, producer: str, session: str) -> int:
    """Returns a new issue, which the session's next questions are about."""
    issue = next_number(tx, "issue", FIRST_RESERVED_ISSUE)
    tx.run(
        "update sessions set issue = :issue where producer = :producer and session_id = :session",
        issue=issue,
        producer=producer,
        session=session,
    )
    return issue


def next_number(tx: Tx, name: str, first: int = 1) -> int:
    """Gives out the next number of a kind, at first `first`; none is given out twice."""
    (row,) = tx.rows(
        """insert into counters (name, value) values (:name, :first)
           on conflict (name) do update set value = counters.value + 1 returning value""",
        name=name,
        first=first,
    )
    return int(row["value"])


def reserve_above(tx: Tx, issue: int) -> None:
    """Reserves the numbers up to `issue`: records of a lost database have them."""
    tx.run(
        """insert into counters (name, value) values ('issue', :issue)
           on conflict (name) do update set value = excluded.value where counters.value < excluded.value""",
        issue=issue,
    )


class Session(NamedTuple):
    """A producer's session. `issue`: its latest questions' issue; None: it has asked nothing yet."""

    producer: str
    session_id: str
    agent_id: str
    agent_name: str | None
    issue: int | None


def know_sessions(tx: Tx, sessions: Iterable[Session]) -> None:
    """Stores sessions; of known ones, only sets what is missing."""
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
    """Stores where a session's thread in Slack is; None: it has none. Unless `again`, keeps a stored one."""
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
    """Updates the id of a Slack channel."""
    tx.run("update sessions set channel = :new where channel = :old", old=old, new=new)


def declared_issue(event: Event) -> int | None:
    """Returns `extensions.agentx.issue` if it is a positive integer below the reserved range, else None."""
    value = event.extension("agentx").get("issue")
    if isinstance(value, str) and value.isdecimal() and len(value) < 10:
        value = int(value)
    if isinstance(value, int) and not isinstance(value, bool) and 0 < value < FIRST_RESERVED_ISSUE:
        return value
    return None


def _readable(event: Event, received: datetime) -> tuple[Event, str]:
    """An event that can be written, and as it is written."""
    try:
        return event, json.dumps(event.raw)
    except RecursionError:  # parsed, but nested too deeply to write: the fields that matter are flat
        raw = {key: value for key, value in event.raw.items() if isinstance(value, (str, int, float))}
        return parse_event(raw, received), json.dumps(raw)


def _payload_hash(event: Event) -> str:
    """Returns the digest of an event without its id and time (column `contents`)."""
    payload = {key: value for key, value in event.raw.items() if key not in _ENVELOPE}
    try:
        text = json.dumps(payload, sort_keys=True)
    except RecursionError:  # as in `_readable`
        text = repr(
            sorted((key, value) for key, value in payload.items() if isinstance(value, (str, int, float)))
        )
    return hashlib.blake2b(text.encode(), digest_size=12).hexdigest()


_SEEN = """
  select s.producer, s.session_id, s.agent_id, s.agent_name, s.issue, s.ended, heard.at, heard.direct from sessions s join (
    select producer, session_id, max(at) as at, min(direct) as direct from (
      select producer, session_id, received_at as at, 0 as direct from inbox where received_at >= :since
      union all select producer, session_id, created_at, 1 from questions where created_at >= :since) as told
    group by producer, session_id) heard using (producer, session_id)
  order by heard.at desc limit :most"""


def _session_fact(row: Row) -> SessionFact:
    return SessionFact(
        row["producer"],
        row["session_id"],
        row["agent_id"],
        row["agent_name"],
        row["issue"] or 0,
        bool(row["ended"]),
        datetime.fromtimestamp(row["at"], UTC),
        bool(row["direct"]),
    )


def _item(row: Row) -> Incoming:
    received = datetime.fromtimestamp(row["received_at"], UTC)
    return Incoming(
        id=row["id"],
        producer=row["producer"],
        event=replace(parse_event(json.loads(row["body"]), received), event_id=row["event_id"]),
        issue=row["issue"],
        received_at=received,
        at=datetime.fromtimestamp(row["at"], UTC),
        expires_at=datetime.fromtimestamp(row["expires_at"], UTC) if row["expires_at"] is not None else None,
        live=bool(row["live"]),
    )


# Events processed long ago. A session stays as long as it has events, clarifications or messages.
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
         except select producer, session from clarifications
         except select producer, session_id from messages where session_id is not null) as idle
       where idle.producer || ' ' || idle.session_id > :after order by name limit :most""",
    (
        """delete from sessions where producer || ' ' || session_id in :names
           and not exists (select 1 from inbox
             where inbox.producer = sessions.producer and inbox.session_id = sessions.session_id)
           and not exists (select 1 from clarifications
             where clarifications.producer = sessions.producer and clarifications.session = sessions.session_id)""",
    ),
    locked=_SESSION,
)


def producers_of(tx: Tx, session: str, producer: str | None) -> set[str]:
    """Returns the producers, or only `producer`, that have a session with this id."""
    rows = tx.rows("select producer from sessions where session_id = :session", session=session)
    return {row["producer"] for row in rows if row["producer"] and producer in {None, row["producer"]}}


def waiting_of(tx: Tx, subject: Subject) -> int:
    """Returns how many events of `subject` are unprocessed."""
    found: set[int] = set()
    for producer, name in subject.sessions:
        sql = "select id from inbox where state = 'new' and producer = :producer and session_id = :name"
        found |= {row["id"] for row in tx.rows(sql, producer=producer, name=name)}
    for producer, name in subject.events:
        sql = "select id from inbox where state = 'new' and producer = :producer and event_id = :name"
        found |= {row["id"] for row in tx.rows(sql, producer=producer, name=name)}
    return len(found)


def events_of(tx: Tx, subject: Subject) -> list[int]:
    """Returns the ids of the events of sessions that are not forgotten yet."""
    return [
        row["id"]
        for producer, name in subject.sessions
        for row in tx.rows(
            """select id from inbox where producer = :producer and session_id = :name
               and (body is not null or contents is not null or state <> 'done') order by id""",
            producer=producer,
            name=name,
        )
    ]


def waiting_among(tx: Tx, events: Sequence[int]) -> int:
    """Returns how many of a few events are unprocessed."""
    return len(tx.rows("select id from inbox where state = 'new' and id in :ids", ids=events))


def forget_events(tx: Tx, events: Sequence[int]) -> None:
    """Forgets the contents of a few events, like `forget`."""
    tx.run("update inbox set body = null, contents = null, state = 'done' where id in :ids", ids=events)


def forget(tx: Tx, subject: Subject) -> None:
    """Forgets the contents of events, and the names of sessions. Keeps the ids to recognize duplicates."""
    tx.many(
        """update inbox set body = null, contents = null, state = 'done'
           where producer = :producer and event_id = :name""",
        [{"producer": producer, "name": name} for producer, name in subject.events],
    )
    tx.many(
        """update sessions set agent_name = null, channel = null, thread_ts = null
           where producer = :producer and session_id = :name""",
        [{"producer": producer, "name": name} for producer, name in subject.sessions],
    )


def skip_numbers(tx: Tx, name: str, count: int, first: int = 1) -> None:
    """Skips the next `count` numbers of a kind, also if none was given out yet."""
    tx.run(
        """insert into counters (name, value) values (:name, :value)
           on conflict (name) do update set value = counters.value + :count""",
        name=name,
        value=first - 1 + count,
        count=count,
    )
