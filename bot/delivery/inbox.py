"""What producers told us: deduplicated, durable before the cursor moves, worked off in order."""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from bot.delivery.store import Store
from bot.ports import Arrived, Incoming
from core.aaep import Event, parse_event
from core.ledger import FIRST_RESERVED, HIGHEST

FIRST_RESERVED_ISSUE = FIRST_RESERVED
_ENVELOPE = {"event_id", "timestamp", "sequence_number"}
Timed = tuple[Incoming, datetime, datetime | None]


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


class SqliteInbox:
    """The inbox table. Every method raises StorageUnavailable if the storage cannot be used now."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def put(self, incoming: Incoming, at: datetime, expires_at: datetime | None) -> Arrived:
        """Take an event in, move the cursor, find its ledger."""
        return (await self.put_all([(incoming, at, expires_at)]))[0]

    async def put_all(self, timed: Sequence[Timed]) -> list[Arrived]:
        """`put` for several, in their order: all of them or none."""
        return await self._store.write(lambda db: [_take(db, *each) for each in timed])

    async def reserve_above(self, issue: int) -> None:
        """Never give out numbers up to `issue`: their ledgers exist already (the storage is newer than they are)."""
        await self._store.execute(
            """insert into counters values ('issue', ?) on conflict (name) do update
               set value = case when value > ? then excluded.value else max(value, excluded.value) end""",
            max(issue, FIRST_RESERVED_ISSUE - 1),
            HIGHEST,  # beyond, earlier releases followed what others had put beside the ledgers
        )

    async def last_issue(self) -> int:
        """The reserved number that was given out last; 0: none."""
        row = await self._store.read_one("select value from counters where name = 'issue'")
        return row["value"] if row and row["value"] <= HIGHEST else 0

    async def marks_answers(self) -> bool:
        """Whether this storage was used before by a release that marks the answers that come through it."""
        return await self._store.read_one("select 1 from counters where name = 'marks answers'") is not None

    async def note_marks_answers(self) -> None:
        await self._store.execute(
            "insert into counters values ('marks answers', 1) on conflict (name) do nothing"
        )

    async def cursor(self, producer: str) -> str | None:
        row = await self._store.read_one("select cursor from cursors where producer = ?", producer)
        return row["cursor"] if row else None

    async def subscription(self, producer: str) -> str | None:
        row = await self._store.read_one("select body from subscriptions where producer = ?", producer)
        return row["body"] if row else None

    async def keep_subscription(self, producer: str, text: str | None) -> None:
        if text is None:
            await self._store.execute("delete from subscriptions where producer = ?", producer)
            return
        await self._store.execute(
            "insert into subscriptions values (?, ?) on conflict (producer) do update set body = excluded.body",
            producer,
            text,
        )

    async def waiting(self, after: int, limit: int = 500) -> list[Item]:
        """Events not yet worked off with an id above `after`, oldest first."""
        rows = await self._store.read(
            "select * from inbox where state = 'new' and id > ? order by id limit ?", after, limit
        )
        return [_item(row) for row in rows]

    async def done(self, ids: list[int]) -> None:
        """These are worked off; their content is forgotten, their ids are kept against duplicates."""
        await self._close(ids, "done")

    async def failed(self, ids: list[int]) -> None:
        """These could not be worked off; their content is kept for whoever looks into it."""
        await self._close(ids, "failed")

    async def _close(self, ids: list[int], state: str) -> None:
        keep = "body" if state == "failed" else "null"

        def work(db: sqlite3.Connection) -> None:
            db.executemany(
                f"update inbox set state = ?, body = {keep} where id = ?",  # noqa: S608 - one of two constants
                [(state, number) for number in ids],
            )

        await self._store.write(work)


def _take(db: sqlite3.Connection, incoming: Incoming, at: datetime, expires_at: datetime | None) -> Arrived:
    arrived = _insert(db, incoming, at, expires_at)
    if incoming.cursor is not None:
        db.execute(
            "insert into cursors values (?, ?) on conflict (producer) do update set cursor = excluded.cursor",
            (incoming.producer, incoming.cursor),
        )
    return arrived


def _insert(db: sqlite3.Connection, incoming: Incoming, at: datetime, expires_at: datetime | None) -> Arrived:
    event, contents, words = incoming.event, _contents(incoming.event), _words(incoming.event)
    event_id, arrived = _named(db, incoming, contents)
    token = event.question.reply_token if event.question else None
    if arrived == "new" and token is not None:
        arrived = _asked_with(db, incoming, token, words, contents)
    if arrived != "new":
        return arrived
    issue = _issue(db, incoming)
    db.execute(
        """insert into inbox (producer, event_id, session_id, issue, token, words, contents, received_at, at, expires_at,
             live, body)
           values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)""",
        (
            incoming.producer,
            event_id,
            event.session_id,
            issue,
            token,
            words,
            contents,
            incoming.received_at.timestamp(),
            at.timestamp(),
            expires_at.timestamp() if expires_at else None,
            int(incoming.live),
            _body(event),
        ),
    )
    return "new"


def _named(db: sqlite3.Connection, incoming: Incoming, contents: str) -> tuple[str, Arrived]:
    """The id under which an event is kept, and whether that is known.

    Agents that start again count from 1 again: what says something else under a used id is another event, which a
    producer that we cannot tell so gets shown. It is kept under an id made of both, so that it is known when it comes
    once more.
    """
    named = incoming.event.event_id
    known = _known_as(db, incoming.producer, named)
    if not known:
        return named, "new"
    if known[0]["contents"] in {None, contents}:
        return named, "duplicate"
    if incoming.told:
        return named, "event_id used"
    other = f"{named}#{contents}"
    return other, "duplicate" if _known_as(db, incoming.producer, other) else "new"


def _known_as(db: sqlite3.Connection, producer: str, event_id: str) -> list[Any]:
    return _rows(db, "select contents from inbox where producer = ? and event_id = ?", producer, event_id)


def _asked_with(
    db: sqlite3.Connection, incoming: Incoming, token: str, words: str | None, contents: str
) -> Arrived:
    """Whether the question is one that its token stood for already, under another id.

    One token may stand for several questions on a stream: dropping one would leave it unseen.
    """
    known = _rows(
        db,
        "select session_id, words, contents from inbox where producer = ? and token = ?",
        incoming.producer,
        token,
    )
    session = incoming.event.session_id
    for row in known:
        before = (row["session_id"], row["words"]) if row["contents"] is None else row["contents"]
        if before == ((session, words) if row["contents"] is None else contents):
            return "duplicate"
    used = any(row["words"] is not None for row in known)  # of what was forgotten nothing is known
    return "reply_token used" if used and incoming.told else "new"


def _issue(db: sqlite3.Connection, incoming: Incoming) -> int | None:
    """The ledger of an event: as its extension says, else its session's; a question without one gets a new one."""
    event = incoming.event
    known = _rows(
        db,
        "select issue from sessions where producer = ? and session_id = ?",
        incoming.producer,
        event.session_id,
    )
    issue = declared_issue(event) or (known[0]["issue"] if known else None)
    if issue is None and event.question is not None:
        rows = _rows(
            db,
            """insert into counters values ('issue', ?) on conflict (name) do update set value = value + 1
               returning value""",
            FIRST_RESERVED_ISSUE,
        )
        issue = int(rows[0]["value"])
    db.execute(
        """insert into sessions (producer, session_id, agent_id, agent_name, issue) values (?, ?, ?, ?, ?)
           on conflict (producer, session_id) do update set issue = coalesce(sessions.issue, excluded.issue),
             agent_name = coalesce(sessions.agent_name, excluded.agent_name)""",
        (incoming.producer, event.session_id, event.agent_id, event.agent_name, issue),
    )
    return issue


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
    return hashlib.blake2b(text.encode(), digest_size=12).hexdigest()


def _words(event: Event) -> str | None:
    if event.question is None:
        return None
    return hashlib.blake2b(event.question.text.encode(), digest_size=12).hexdigest()


def _item(row: Any) -> Item:
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


def _rows(db: sqlite3.Connection, sql: str, *parameters: object) -> list[Any]:
    return list(db.execute(sql, parameters))
