"""The outbox of webhooks: what was told of each clarification, and what is still to be sent, in one transaction."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from bot.delivery.store import Store
from bot.webhooks.model import Endpoint, Known, Look, News, Queued
from bot.webhooks.news import body_of, events_of, is_over, known_of

KEPT = timedelta(days=30)  # what was told of a clarification, after it is over


class Outbox:
    """Every method raises StorageUnavailable if nothing could be stored or read."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def begin(self, now: datetime, endpoints: Collection[Endpoint]) -> tuple[datetime, int]:
        """Since when events are told, `now` if it begins now; and how many were dropped, of endpoints that are no more.

        What was told of those that have been over for long is forgotten.
        """

        def work(db: sqlite3.Connection) -> tuple[datetime, int]:
            db.execute("insert into webhook_since values (1, ?) on conflict do nothing", (now.timestamp(),))
            _forget_old(db, now)
            marks = ", ".join("?" * len(endpoints))
            ids = [each.id for each in endpoints]
            dropped = db.execute(f"delete from webhook_outbox where endpoint not in ({marks})", ids)  # noqa: S608
            return _since(db), dropped.rowcount

        return await self._store.write(work)

    async def note(self, looks: Sequence[Look], endpoints: Collection[Endpoint], ids: Sequence[str]) -> int:
        """Queue what these looks, in their order, have to tell; how many messages. Looking again tells nothing.

        As `begin`, it forgets what was told of those that have been over for long.

        Args:
            looks: at clarifications.
            endpoints: who is told.
            ids: one for each event, six for each look.
        """
        fresh = iter(ids)

        def work(db: sqlite3.Connection) -> int:
            if looks:
                _forget_old(db, looks[-1].at)
            since = _since(db)
            return sum(
                _queue(db, News(next(fresh), event), look, endpoints)
                for look in looks
                for event in _noted(db, look, since)
            )

        return await self._store.write(work)

    async def next(self, endpoint: Endpoint) -> Queued | None:
        """What is to be tried next, however long until then: the first of its clarification, the earliest due."""
        row = await self._store.read_one(
            """select * from webhook_outbox o where endpoint = ? and not exists (
                 select 1 from webhook_outbox e
                 where e.endpoint = o.endpoint and e.clarification = o.clarification and e.seq < o.seq)
               order by due, seq limit 1""",
            endpoint.id,
        )
        return None if row is None else _queued(row)

    async def sent(self, queued: Queued) -> None:
        """It was taken."""
        await self._store.execute("delete from webhook_outbox where seq = ?", queued.seq)

    async def failed(self, queued: Queued, due: float) -> None:
        """It was not, and is tried again at `due`."""
        await self._store.execute(
            "update webhook_outbox set failures = failures + 1, due = ? where seq = ?", due, queued.seq
        )

    async def drop(self, endpoint: Endpoint, queued_before: float, *, untried: bool) -> int:
        """Give up what was queued before a time, `untried` or not; how many."""
        return await self._store.execute(
            "delete from webhook_outbox where endpoint = ? and queued_at < ? and (? or failures > 0)",
            endpoint.id,
            queued_before,
            untried,
        )

    async def waiting(self, endpoint: Endpoint) -> int:
        """How many are queued."""
        row = await self._store.read_one(
            "select count(*) as n from webhook_outbox where endpoint = ?", endpoint.id
        )
        return 0 if row is None else int(row["n"])


def _forget_old(db: sqlite3.Connection, now: datetime) -> None:
    """What is over for long is history from then on, or it would be told as if it were new."""
    horizon = (now - KEPT).timestamp()
    db.execute("update webhook_since set since = ? where since < ?", (horizon, horizon))
    db.execute("delete from webhook_known where over = 1 and noted_at < ?", (horizon,))


def _since(db: sqlite3.Connection) -> datetime:
    row = db.execute("select since from webhook_since").fetchone()
    return _moment(row[0])


def _noted(db: sqlite3.Connection, look: Look, since: datetime) -> Sequence[Any]:
    """The events of a look; what they tell is known from now on."""
    summary = look.summary
    row = db.execute("select * from webhook_known where clarification = ?", (summary.id,)).fetchone()
    known = None if row is None else _known(row)
    events = events_of(known, look, since)
    now = known_of(summary)
    if now != known and (events or known or not is_over(summary)):
        db.execute(
            "insert or replace into webhook_known values (?, ?, ?, ?, ?, ?, ?)",
            (
                summary.id,
                now.status,
                now.round,
                now.asked_last.timestamp(),
                now.nudges,
                is_over(summary),
                look.at.timestamp(),
            ),
        )
    return events


def _queue(db: sqlite3.Connection, news: News, look: Look, endpoints: Collection[Endpoint]) -> int:
    wanting = [each for each in endpoints if news.event.name in each.events]
    body, at = body_of(news), look.at.timestamp()
    db.executemany(
        """insert into webhook_outbox (endpoint, id, clarification, type, body, queued_at, due)
           values (?, ?, ?, ?, ?, ?, ?)""",
        [(each.id, news.id, news.event.clarification_id, news.event.name, body, at, at) for each in wanting],
    )
    return len(wanting)


def _known(row: sqlite3.Row) -> Known:
    return Known(row["status"], row["round"], _moment(row["asked_last"]), row["nudges"])


def _moment(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


def _queued(row: sqlite3.Row) -> Queued:
    return Queued(
        seq=row["seq"],
        id=row["id"],
        clarification=row["clarification"],
        type=row["type"],
        body=row["body"],
        queued_at=row["queued_at"],
        due=row["due"],
        failures=row["failures"],
    )
