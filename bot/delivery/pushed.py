"""Replies to producers that push: kept before they are sent, so that a reader can ask for them again."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from datetime import datetime, timedelta

from bot.delivery.store import Store
from bot.ports import Reply
from bot.producers.pushing import KeptReply, Place

_KEEP = timedelta(days=1)  # what is over stays so long, in case that a reader resumes before it
_AT_ONCE = 100


class SqlitePushed:
    """Implements `bot.producers.pushing.PushedReplies`. Every method raises StorageUnavailable if it cannot be done."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def place(self, producer: str, fresh: Place) -> Place:
        """A producer's stream and subscription: `fresh` the first time."""

        def work(db: sqlite3.Connection) -> Place:
            db.execute(
                "insert into pushing values (?, ?, ?) on conflict do nothing",
                (producer, fresh.epoch, fresh.subscription),
            )
            row = db.execute("select * from pushing where producer = ?", (producer,)).fetchone()
            return Place(row["epoch"], row["subscription"])

        return await self._store.write(work)

    async def subscribe(self, producer: str, subscription: str) -> None:
        """The id that its next replies carry; after `place`."""
        await self._store.execute(
            "update pushing set subscription = ? where producer = ?", subscription, producer
        )

    async def keep(
        self, producer: str, reply: Reply, digest: str, body: str, now: datetime
    ) -> tuple[int, str]:
        """Keep a reply, once; its id, and how far it got: "waiting", "begun", "written" or "confirmed"."""

        def work(db: sqlite3.Connection) -> tuple[int, str]:
            _forget_old(db, producer, now)
            db.execute(
                """insert into pushed_replies (producer, token, digest, body, session_id, expires_at)
                   select ?, ?, ?, ?, max(session_id), max(expires_at) from (
                     select session_id, expires_at from inbox where producer = ? and token = ? order by id desc limit 1)
                   where true on conflict do nothing""",
                (producer, reply.reply_token, digest, body, producer, reply.reply_token),
            )
            row = db.execute(
                "select id, state from pushed_replies where producer = ? and token = ? and digest = ?",
                (producer, reply.reply_token, digest),
            ).fetchone()
            return row["id"], row["state"]

        return await self._store.write(work)

    async def after(
        self, producer: str, position: int, now: datetime, *, resumed: bool
    ) -> Sequence[KeptReply]:
        """The next replies with ids above `position` whose questions have not run out, at most 100.

        `resumed`: the reader said where it was, so what is confirmed by another reader is not left out.
        """
        rows = await self._store.read(
            """select id, body, state from pushed_replies where producer = ? and id > ?
               and (expires_at is null or expires_at > ?) and (? or state <> 'confirmed') order by id limit ?""",
            producer,
            position,
            now.timestamp(),
            resumed,
            _AT_ONCE,
        )
        return [KeptReply(row["id"], row["body"], row["state"]) for row in rows]

    async def begin(self, ids: Sequence[int]) -> None:
        """These are about to be written to a reader: killed now, they may have arrived."""
        await self._note(
            "update pushed_replies set state = 'begun' where id = ? and state = 'waiting'",
            [(each,) for each in ids],
        )

    async def wrote(self, ids: Sequence[int], now: datetime) -> None:
        """A reader had these."""
        await self._note(
            """update pushed_replies set state = 'written', written_at = ? where id = ?
               and state in ('waiting', 'begun')""",
            [(now.timestamp(), each) for each in ids],
        )

    async def had(self, producer: str, position: int, now: datetime) -> None:
        """A reader says that it has all up to `position`."""
        await self._note(
            """update pushed_replies set state = 'confirmed', written_at = coalesce(written_at, ?)
               where producer = ? and id <= ? and state in ('begun', 'written')""",
            [(now.timestamp(), producer, position)],
        )

    async def went_on(self, producer: str, event_id: str, session_id: str, sent: datetime) -> None:
        """A session sent an event at `sent`: it goes on with what it was told before.

        Not so one that came before, too: an agent that begins anew says again what it said.
        """
        condition = """producer = ? and session_id = ? and state = 'written' and written_at < min(?,
            (select received_at from inbox where producer = ? and event_id = ?))"""
        values = (producer, session_id, sent.timestamp(), producer, event_id)
        if await self._store.read(f"select 1 from pushed_replies where {condition} limit 1", *values):  # noqa: S608 - a constant
            await self._note(f"update pushed_replies set state = 'confirmed' where {condition}", [values])  # noqa: S608

    async def _note(self, sql: str, rows: Sequence[tuple[object, ...]]) -> None:
        await self._store.write(lambda db: db.executemany(sql, rows).rowcount)


def _forget_old(db: sqlite3.Connection, producer: str, now: datetime) -> None:
    db.execute(
        """delete from pushed_replies where producer = ? and (state = 'confirmed' or expires_at < ?)
           and coalesce(written_at, expires_at) < ?""",
        (producer, now.timestamp(), (now - _KEEP).timestamp()),
    )
