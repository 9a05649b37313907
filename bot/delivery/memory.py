"""What the Slack app must not forget."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Collection

from bot.delivery.inflight import InFlight
from bot.delivery.messages import thread
from bot.routing import Thread
from bot.storage.store import Store, Tx
from bot.storage.sweeping import Sweep
from core.records import Subject


class SqliteSlackMemory:
    """What was heard and said in Slack. Each method is durable when it returns.

    Every method raises StorageUnavailable if nothing could be stored or read.
    """

    def __init__(self, store: Store, in_flight: InFlight) -> None:
        self._store = store
        self._in_flight = in_flight

    async def take_slack_event(self, event_id: str, body: dict[str, object]) -> bool:
        """Keep an event until it is done; False if it was taken before."""
        changed = await self._store.execute(
            "insert into slack_events (event_id, body) values (?, ?) on conflict do nothing",
            event_id,
            json.dumps(body),
        )
        return changed > 0

    async def pending_slack_events(self) -> list[tuple[str, dict[str, object]]]:
        rows = await self._store.read(
            "select event_id, body from slack_events where state = 'new' order by rowid"
        )
        return [(row["event_id"], json.loads(row["body"])) for row in rows]

    async def slack_event_done(self, event_id: str) -> None:
        await self._store.execute(
            "update slack_events set state = 'done', body = null where event_id = ?", event_id
        )

    async def thread_at(self, channel: str, ts: str) -> Thread | None:
        row = await self._landed(channel, "select * from sessions where channel = ? and thread_ts = ?", ts)
        return thread(row) if row else None

    async def open_threads(self) -> list[Thread]:
        """The threads of sessions that may still have open questions."""
        rows = await self._store.read(
            """select * from sessions where thread_ts is not null and (producer, session_id) in (
                 select producer, session_id from messages where kind = 'card' and final = 0)
               order by channel, thread_ts"""
        )
        return [thread(row) for row in rows]

    async def card_at(self, channel: str, ts: str) -> tuple[str, int] | None:
        """The clarification and round whose card is the message at `ts`."""
        row = await self._landed(
            channel,
            "select clarification, round from messages where channel = ? and ts = ? and kind = 'card'",
            ts,
        )
        return (row["clarification"], row["round"]) if row else None

    async def posted(self, channel: str, ts: str) -> bool:
        """Whether the message at `ts` is one that we posted."""
        sql = "select 1 from messages where channel = ? and ts = ?"
        return await self._landed(channel, sql, ts) is not None

    async def shown_at(self, clarification: str, round: int, channel: str) -> str | None:  # noqa: A002 - the protocol's word
        """The `ts` of a round's card, if it is in `channel`."""
        row = await self._store.read_one(
            "select ts from messages where kind = 'card' and clarification = ? and round = ? and channel = ?",
            clarification,
            round,
            channel,
        )
        return row["ts"] if row else None

    async def first_time(self, key: str) -> bool:
        """True the first time that it is asked for `key`, ever."""
        return await self._store.execute("insert into onces values (?) on conflict do nothing", key) > 0

    async def keep_text(self, text_id: str, body: dict[str, object]) -> None:
        def work(db: sqlite3.Connection) -> None:
            db.execute(
                "insert into texts values (?, ?) on conflict (id) do update set body = excluded.body",
                (text_id, json.dumps(body)),
            )

        await self._store.write(work)

    async def kept_text(self, text_id: str) -> dict[str, object] | None:
        row = await self._store.read_one("select body from texts where id = ?", text_id)
        if row is None:
            return None
        body: dict[str, object] = json.loads(row["body"])
        return body

    async def watermark(self, channel: str) -> str | None:
        """The `ts` up to which the replies of a channel were taken in."""
        row = await self._store.read_one("select ts from watermarks where channel = ?", channel)
        return row["ts"] if row else None

    async def set_watermark(self, channel: str, ts: str) -> None:
        await self._store.execute(
            "insert into watermarks values (?, ?) on conflict (channel) do update set ts = excluded.ts",
            channel,
            ts,
        )

    async def channel_renamed(self, old: str, new: str) -> None:
        """A channel got another id: its messages and threads are found under the new one."""

        def work(db: sqlite3.Connection) -> None:
            db.execute("update sessions set channel = ? where channel = ?", (new, old))
            db.execute("update messages set channel = ? where channel = ?", (new, old))
            db.execute("update messages set target = ? where target = ?", (new, old))
            db.execute("update or replace watermarks set channel = ? where channel = ?", (new, old))

        await self._store.write(work)

    async def _landed(self, channel: str, sql: str, ts: str) -> sqlite3.Row | None:
        """What is at a place. News of a post can be here before it is known that the post arrived."""
        while True:
            change = self._in_flight.next_change() if self._in_flight.any_in(channel) else None
            row = await self._store.read_one(sql, channel, ts)
            if row is not None or change is None:
                return row
            await change.wait()


_WHICH = "word:which:"  # asks which question a kept text is for
SWEEPS = (
    Sweep(
        "texts",
        "select id as name, body as said from texts where id > :after order by id limit :most",
        ("delete from texts where id in :names",),
        timeless=True,
    ),
    Sweep(
        "onces",
        "select key as name, key as said from onces where key > :after order by key limit :most",
        ("delete from onces where key in :names",),
        timeless=True,
    ),
    Sweep(
        "slack_events",
        """select event_id as name from slack_events where event_id > :after and state = 'done'
           order by event_id limit :most""",
        ("delete from slack_events where event_id in :names and state = 'done'",),
        timeless=True,
    ),
)


def forget(tx: Tx, subject: Subject, messages: Collection[str]) -> None:
    """Forget kept texts and one-time keys about it. `messages`: the keys of those that are forgotten."""
    asked_which = {key.removeprefix(_WHICH) for key in messages if key.startswith(_WHICH)}
    texts = [
        {"id": row["id"]}
        for row in tx.rows("select id, body from texts")
        if row["id"] in asked_which or subject.is_in(row["body"])
    ]
    tx.many("delete from texts where id = :id", texts)
    onces = [{"key": row["key"]} for row in tx.rows("select key from onces") if subject.is_in(row["key"])]
    tx.many("delete from onces where key = :key", onces)
