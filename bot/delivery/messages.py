"""The messages table: what each Slack message was meant to say, where it is, what it says now."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from bot.delivery.inflight import InFlight
from bot.routing import Thread
from bot.storage.store import Store, Tx, batches
from bot.storage.sweeping import Sweep
from core.clarification import parse_id
from core.index import OWN_THREAD
from core.records import Subject

# What a card shows that an earlier storage may have known, before that one's id: it is yet to be looked up.
TAKEN_UP = "taken up:"


@dataclass(frozen=True, slots=True)
class Row:
    """One message. `key` is its name for ever; `ts` None: not posted, or not known to be (`intent_at`)."""

    key: str
    kind: str
    clarification: str | None
    round: int | None
    producer: str | None
    session_id: str | None
    target: str
    body: dict[str, Any] | None
    wanted: str | None
    channel: str | None
    ts: str | None
    thread_ts: str | None
    intent_at: float | None
    shown: str | None
    final: bool
    failed: str | None


@dataclass(frozen=True, slots=True)
class Fresh:
    """A message to be shown from now on. `body` None: its words come from the ledger.

    `asker`: of a question with a thread of its own, the agent that asks: its session is there with the first message.
    """

    key: str
    kind: str
    target: str
    clarification: str | None = None
    round: int | None = None
    producer: str | None = None
    session_id: str | None = None
    body: dict[str, Any] | None = None
    wanted: str | None = None
    asker: str | None = None


class Messages:
    def __init__(self, store: Store) -> None:
        self._store = store
        self.in_flight = InFlight()

    async def want(self, fresh: Iterable[Fresh]) -> None:
        """Have messages shown; one that is there already gets the new body, if it has one."""
        wanted = list(fresh)
        await self._store.write(lambda db: put(db, wanted))

    async def get(self, key: str) -> Row | None:
        row = await self._store.read_one("select * from messages where key = ?", key)
        return _row(row) if row else None

    async def at(self, channel: str, ts: str) -> Row | None:
        """The message that we know to be at a place."""
        row = await self._store.read_one("select * from messages where channel = ? and ts = ?", channel, ts)
        return _row(row) if row else None

    async def begun_in(self, channel: str) -> list[Row]:
        """The messages that may be in a channel: their post was begun, and its outcome is not known."""
        rows = await self._store.read(
            "select * from messages where channel = ? and ts is null and intent_at is not null and failed is null",
            channel,
        )
        return [_row(row) for row in rows]

    async def unfinished(self) -> list[Row]:
        """All messages that may still have to change."""
        rows = await self._store.read("select * from messages where final = 0 and failed is null")
        return [_row(row) for row in rows]

    async def know_clarifications(self) -> bool:
        """Whether a clarification was ever to be shown, as far as it is still known."""
        row = await self._store.read_one("select 1 from messages where clarification is not null limit 1")
        return row is not None

    async def cards_of(self, clarifications: Iterable[str]) -> list[Row]:
        """The cards of clarifications, the earlier rounds first."""
        rows = await self._store.read(
            """select m.* from json_each(?) wanted join messages m on m.clarification = wanted.value
               where m.kind = 'card' order by m.round""",
            json.dumps(list(clarifications)),
        )
        return [_row(row) for row in rows]

    async def nudges_of(self, clarifications: Iterable[str]) -> list[Row]:
        """The reminders of clarifications that may still have to change."""
        rows = await self._store.read(
            """select m.* from json_each(?) wanted join messages m on m.clarification = wanted.value
               where m.kind = 'nudge' and m.final = 0 and m.failed is null""",
            json.dumps(list(clarifications)),
        )
        return [_row(row) for row in rows]

    async def nudges_for(self, rollup: str) -> list[Row]:
        """The reminders of a roll-up card that may still have to change."""
        rows = await self._store.read(
            """select * from messages where key >= ? and key < ?
               and kind = 'nudge' and final = 0 and failed is null""",
            f"nudge:{rollup}:",
            f"nudge:{rollup};",
        )
        return [_row(row) for row in rows]

    async def intend(self, key: str, channel: str, thread_ts: str | None, at: float) -> bool:
        """A post begins; if its outcome stays unknown, this says where to look for it. False: it is there by now."""
        self.in_flight.begin(key, channel)
        changed = await self._store.execute(
            "update messages set intent_at = ?, channel = ?, thread_ts = ? where key = ? and ts is null",
            at,
            channel,
            thread_ts,
            key,
        )
        if not changed:
            self.in_flight.end(key)
        return changed > 0

    async def not_sent(self, key: str) -> None:
        """The post that was begun did not arrive."""
        await self._store.execute("update messages set intent_at = null where key = ?", key)
        self.in_flight.end(key)

    async def landed(
        self,
        row: Row,
        channel: str,
        ts: str,
        shown: str,
        *,
        final: bool,
        opens_thread: bool,
        thread_ts: str | None = None,
    ) -> None:
        """It is there. `opens_thread`: the session's thread starts with it, or is the one of `thread_ts`, in which it
        was found.
        """

        def work(db: sqlite3.Connection) -> None:
            db.execute(
                "update messages set channel = ?, ts = ?, shown = ?, final = ?, intent_at = null where key = ?",
                (channel, ts, shown, int(final), row.key),
            )
            if thread_ts is not None:
                db.execute("update messages set thread_ts = ? where key = ?", (thread_ts, row.key))
            if opens_thread:
                db.execute(
                    "update sessions set channel = ?, thread_ts = ? where producer = ? and session_id = ?",
                    (channel, thread_ts or ts, row.producer, row.session_id),
                )

        await self._store.write(work)
        self.in_flight.end(row.key)

    async def adopt(self, row: Row, ts: str, shown: str) -> None:
        """A post whose outcome was not known is at `ts`, unless it was found meanwhile."""
        opens_thread = row.kind != "page" and row.session_id is not None and row.thread_ts is None

        def work(db: sqlite3.Connection) -> None:
            taken = db.execute(
                """update messages set ts = ?, shown = ?, final = 0, intent_at = null
                   where key = ? and ts is null and channel = ?""",
                (ts, shown, row.key, row.channel),
            ).rowcount
            if taken and opens_thread:
                db.execute(
                    """update sessions set channel = ?, thread_ts = ?
                       where producer = ? and session_id = ? and thread_ts is null""",
                    (row.channel, ts, row.producer, row.session_id),
                )

        await self._store.write(work)
        self.in_flight.end(row.key)

    async def now_shows(self, key: str, shown: str, *, final: bool) -> None:
        await self._store.execute(
            "update messages set shown = ?, final = ? where key = ?", shown, int(final), key
        )

    async def forget_shown(self, clarification: str) -> None:
        """What the cards of a clarification say is in doubt."""
        await self._store.execute(
            "update messages set shown = null where clarification = ? and kind = 'card' and ts is not null",
            clarification,
        )

    async def move(self, key: str, target: str) -> None:
        """It has to be posted (again), in `target`."""
        await self._store.execute(
            "update messages set target = ?, channel = null, ts = null, intent_at = null, shown = null where key = ?",
            target,
            key,
        )
        self.in_flight.end(key)

    async def give_up(self, key: str, reason: str) -> None:
        await self._store.execute(
            "update messages set failed = ?, intent_at = null where key = ?", reason, key
        )
        self.in_flight.end(key)

    async def leave_thread(self, producer: str, session_id: str) -> None:
        """The session's thread cannot be used any more; its next message opens a new one."""
        await self._store.execute(
            "update sessions set channel = null, thread_ts = null where producer = ? and session_id = ?",
            producer,
            session_id,
        )

    async def thread_of(self, producer: str, session_id: str) -> Thread | None:
        row = await self._store.read_one(
            "select * from sessions where producer = ? and session_id = ? and thread_ts is not null",
            producer,
            session_id,
        )
        return thread(row) if row else None

    async def someone_else_opens(self, row: Row) -> bool:
        """Whether another message of the session may be opening its thread (outcome unknown)."""
        found = await self._store.read_one(
            """select 1 from messages where producer = ? and session_id = ? and key <> ? and ts is null
               and intent_at is not null and failed is null""",
            row.producer,
            row.session_id,
            row.key,
        )
        return found is not None

    async def card_to_come(self, session_id: str) -> bool:
        """Whether the card that begins a question's own thread is yet to be posted."""
        found = await self._store.read_one(
            """select 1 from messages where producer = ? and session_id = ? and kind = 'card' and ts is null
               and failed is null""",
            OWN_THREAD,
            session_id,
        )
        return found is not None

    async def taken_places(self, channel: str, clarification: str | None, besides: str) -> set[str]:
        """The ts of messages of a clarification that are accounted for, `besides` the message of that key."""
        rows = await self._store.read(
            "select ts from messages where channel = ? and clarification is ? and ts is not null and key <> ?",
            channel,
            clarification,
            besides,
        )
        return {str(row["ts"]) for row in rows}


def put(db: Tx, fresh: Iterable[Fresh]) -> None:
    """`Messages.want` within a transaction of somebody else's."""
    fresh = list(fresh)
    db.executemany(
        """insert into sessions (producer, session_id, agent_id, issue) values (?, ?, ?, ?)
           on conflict do nothing""",
        [
            (f.producer, f.session_id, f.asker, parse_id(f.clarification)[0])
            for f in fresh
            if f.asker is not None and f.clarification is not None
        ],
    )
    db.executemany(
        """insert into messages (key, kind, clarification, round, producer, session_id, target, body, wanted)
           values (?, ?, ?, ?, ?, ?, ?, ?, ?)
           on conflict (key) do update set body = excluded.body, wanted = excluded.wanted, final = 0
           where excluded.body is not null and excluded.wanted is not messages.wanted""",
        [
            (
                f.key,
                f.kind,
                f.clarification,
                f.round,
                f.producer,
                f.session_id,
                f.target,
                json.dumps(f.body) if f.body is not None else None,
                f.wanted,
            )
            for f in fresh
        ],
    )


def thread(row: sqlite3.Row) -> Thread:
    return Thread(
        producer=row["producer"],
        session_id=row["session_id"],
        issue=row["issue"] or 0,
        agent_id=row["agent_id"],
        channel=row["channel"],
        ts=row["thread_ts"],
    )


def _row(row: sqlite3.Row) -> Row:
    values = {key: row[key] for key in Row.__slots__}
    values["body"] = json.loads(row["body"]) if row["body"] else None
    values["final"] = bool(row["final"])
    return Row(**values)


# Pages go with their incidents (`bot.oncall.pages`).
SWEEP_SHOWN = Sweep(
    "messages",
    """select key as name, clarification from messages where key > :after and kind <> 'page'
       and ts is not null and cast(ts as double precision) < :horizon and intent_at is null
       and (final = 1 or failed is not null or clarification is not null) order by key limit :most""",
    ("delete from messages where key in :names and intent_at is null",),
)
SWEEP_NEVER_SHOWN = Sweep(
    "messages",
    """select key as name, clarification from messages where key > :after and kind <> 'page'
       and ts is null and intent_at is null and (failed is not null or (kind = 'card' and clarification is not null)
         or (kind <> 'rollup' and session_id is not null and (producer, session_id) not in (
              select producer, session_id from sessions)))
       order by key limit :most""",
    ("delete from messages where key in :names and ts is null and intent_at is null",),
    timeless=True,
)


def find_about(tx: Tx, subject: Subject) -> set[str]:
    """The keys of the messages about what is to be forgotten; not pages and roll-up cards, which are about more."""
    threads = {
        (row["channel"], row["thread_ts"])
        for producer, name in subject.sessions
        for row in tx.rows(
            """select channel, thread_ts from sessions
               where producer = :producer and session_id = :name and thread_ts is not null""",
            producer=producer,
            name=name,
        )
    }
    rows = tx.rows(
        """select key, clarification, producer, session_id, channel, thread_ts,
             case when clarification is null and kind in ('word', 'more') then body end as said
           from messages where kind not in ('page', 'rollup')"""
    )
    return {
        row["key"]
        for row in rows
        if row["clarification"] in subject.clarifications
        or (row["producer"], row["session_id"]) in subject.sessions
        or (row["channel"], row["thread_ts"]) in threads
        or subject.is_in(row["key"])
        or subject.is_in(row["said"])
    }


def in_flight_of(tx: Tx, keys: Iterable[str]) -> int:
    """How many of these messages are being posted just now."""
    found = 0
    for some in batches(keys):
        sql = "select key from messages where key in :keys and ts is null and intent_at is not null"
        found += len(tx.rows(sql, keys=some))
    return found


def forget(tx: Tx, keys: Iterable[str]) -> list[tuple[str, str]]:
    """Forget what messages said and where they are; their keys stay, so that nothing is posted again. Returns where they
    stand, as (channel, ts).
    """
    places: list[tuple[str, str]] = []
    for some in batches(keys):
        rows = tx.rows(
            "select channel, ts from messages where key in :keys and ts is not null and channel is not null",
            keys=some,
        )
        places += [(row["channel"], row["ts"]) for row in rows]
        tx.run(
            """update messages set body = null, wanted = null, shown = null, channel = null, ts = null,
                 thread_ts = null, intent_at = null, final = 1, failed = 'forgotten' where key in :keys""",
            keys=some,
        )
    return places


def draw_again(tx: Tx, keys: Iterable[str]) -> None:
    """Have messages drawn again, from what is left."""
    for some in batches(keys):
        tx.run("update messages set shown = null, final = 0 where key in :keys and failed is null", keys=some)
