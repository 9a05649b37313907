"""Incidents, their log and their pages in the storage. Each method is durable when it returns."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

import structlog

from bot.delivery.messages import Fresh, put
from bot.delivery.store import Store
from bot.paging.gate import Group
from bot.paging.log import from_row, moment
from bot.paging.model import Destination, FreshIncident, Incident, Kind, Sending, message_key
from bot.paging.rows import Db, append, incident_of
from core.aaep import whole_characters
from core.escalation import Began, Closed, Failed, Happening, Sent, Taken

_log = structlog.get_logger("clarify.paging")


@dataclass(frozen=True, slots=True)
class Batch:
    """Alike incidents that go out together, and where to; no destinations: nobody could be found."""

    kind: Kind
    policy: str | None
    step: int
    incidents: tuple[int, ...]
    destinations: tuple[Destination, ...]


@dataclass(frozen=True, slots=True)
class Told:
    """What the storage knows of one page."""

    page: int
    at: datetime
    incidents: tuple[Incident, ...]


class IncidentStore:
    """Every method raises StorageUnavailable if nothing could be stored or read."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def begin(self, fresh: FreshIncident, at: datetime, *, anew: bool = False) -> Incident | None:
        """Keep a new incident; None: one of that key was there before, open or (unless `anew`) closed."""

        def work(db: Db) -> Incident | None:
            if anew:  # the one before keeps its log and its pages, under another name
                db.execute(
                    "update incidents set key = key || '#' || id where key = ? and closed_at is not null",
                    (fresh.key,),
                )
            row = db.execute(
                """insert into incidents (key, kind, policy, agent_id, clarification, title, reason, body, link,
                     expires_at, began_at) values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
                   on conflict (key) do nothing returning *""",
                (
                    fresh.key,
                    fresh.kind,
                    fresh.policy,
                    whole_characters(fresh.agent_id) if fresh.agent_id is not None else None,
                    fresh.clarification,
                    whole_characters(fresh.title),
                    whole_characters(fresh.reason),
                    whole_characters(fresh.body),
                    fresh.link,
                    fresh.expires_at.timestamp() if fresh.expires_at else None,
                    at.timestamp(),
                ),
            ).fetchone()
            if row is None:
                return None
            incident = incident_of(row)
            append(db, incident.id, Began(incident.began_at))
            return incident

        return await self._store.write(work)

    async def log(self, entries: Sequence[tuple[int, Happening]]) -> None:
        """Keep what happened to incidents; Closed closes them."""

        def work(db: Db) -> None:
            for incident, happening in entries:
                append(db, incident, happening)
                if isinstance(happening, Closed):
                    db.execute(
                        "update incidents set closed_at = ? where id = ? and closed_at is null",
                        (happening.at.timestamp(), incident),
                    )

        await self._store.write(work)

    async def close_taken(self, incidents: Iterable[int], user: str, at: datetime) -> set[int]:
        """Somebody took these, and with that they are closed: those that were open until now, which are returned.

        Of two who press at the same moment only one has it.
        """

        def work(db: Db) -> set[int]:
            mine: set[int] = set()
            for incident in incidents:
                closed = db.execute(
                    "update incidents set closed_at = ? where id = ? and closed_at is null",
                    (at.timestamp(), incident),
                )
                if closed.rowcount:
                    append(db, incident, Taken(at, user))
                    append(db, incident, Closed(at))
                    mine.add(incident)
            return mine

        return await self._store.write(work)

    async def send(self, batch: Batch, at: datetime) -> tuple[Sending, ...]:
        """Keep a page with all its messages, and that it was sent. Without destinations only that it failed."""

        def work(db: Db) -> tuple[Sending, ...]:
            if not batch.destinations:
                for incident in batch.incidents:
                    append(db, incident, Failed(at, batch.step))
                return ()
            page = db.execute(
                "insert into pages (kind, policy, step, at) values (?, ?, ?, ?) returning id",
                (batch.kind, batch.policy, batch.step, at.timestamp()),
            ).fetchone()["id"]
            db.executemany("insert into page_items values (?, ?)", [(page, each) for each in batch.incidents])
            sendings = tuple(_sending(page, batch, each) for each in batch.destinations)
            db.executemany(
                "insert into page_sendings (page, via, target, mentions, message) values (?, ?, ?, ?, ?)",
                [_sending_row(each) for each in sendings],
            )
            put(db, [_fresh(each) for each in sendings if each.message is not None])
            for incident in batch.incidents:
                append(db, incident, Sent(at, batch.step), page)
            return sendings

        return await self._store.write(work)

    async def settle(
        self, sending: Sending, state: str, note: str | None, at: datetime
    ) -> tuple[int, tuple[int, ...]] | None:
        """Keep how a sending ended: sent, late (not there in time, and still on its way), failed, or dropped
        (not needed any more).

        Returns the step and the incidents that now have one more failure; None where nothing failed, or the page
        had failed before: its next step is on its way.
        """
        page, to = sending.page, sending.destination

        def work(db: Db) -> tuple[int, tuple[int, ...]] | None:
            before = db.execute(
                "select 1 from page_sendings where page = ? and state in ('late', 'failed')", (page,)
            ).fetchone()
            changed = db.execute(
                """update page_sendings set state = ?, note = ? where page = ? and via = ? and target = ?
                   and state in (select value from json_each(?))""",
                (state, note, page, to.via, to.target, json.dumps(_BEFORE[state])),
            ).rowcount
            if not changed or before is not None or state in {"sent", "dropped"}:
                return None
            step = db.execute("select step from pages where id = ?", (page,)).fetchone()["step"]
            rows = db.execute(
                """select incident from page_items join incidents on id = incident
                   where page = ? and closed_at is null""",
                (page,),
            ).fetchall()
            for row in rows:
                append(db, row["incident"], Failed(at, step), page)
            return step, tuple(row["incident"] for row in rows)

        return await self._store.write(work)

    async def open(self) -> list[Incident]:
        rows = await self._store.read("select * from incidents where closed_at is null order by id")
        return [incident_of(row) for row in rows]

    async def get(self, incident: int) -> Incident | None:
        row = await self._store.read_one("select * from incidents where id = ?", incident)
        return incident_of(row) if row else None

    async def named(self, key: str) -> Incident | None:
        """The incident of a key, open or closed."""
        row = await self._store.read_one("select * from incidents where key = ?", key)
        return incident_of(row) if row else None

    async def histories(self, incidents: Iterable[int]) -> dict[int, list[Happening]]:
        """What happened to incidents, in its order."""
        rows = await self._store.read(
            """select l.* from json_each(?) wanted join incident_log l on l.incident = wanted.value
               order by l.id""",
            json.dumps(list(incidents)),
        )
        found: dict[int, list[Happening]] = {}
        for row in rows:
            kept = found.setdefault(row["incident"], [])
            try:
                kept.append(from_row(row))
            except (ValueError, TypeError) as error:  # one entry must not keep the bot from starting
                _log.error("an entry in the log of pages cannot be read", id=row["id"], reason=str(error))
        return found

    async def owed(self) -> list[Sending]:
        """The sendings whose outcome is not known, the earliest first."""
        rows = await self._store.read(
            """select s.*, p.step, json_group_array(i.incident) as incidents from page_sendings s
               join pages p on p.id = s.page join page_items i on i.page = s.page
               where s.state in ('wanted', 'late') group by s.page, s.via, s.target order by s.page"""
        )
        return [
            Sending(
                row["page"],
                row["step"],
                Destination(row["via"], row["target"], None, tuple(json.loads(row["mentions"]))),
                row["message"],
                tuple(json.loads(row["incidents"])),
            )
            for row in rows
        ]

    async def pages_since(self, since: datetime) -> list[tuple[Group, set[int], datetime]]:
        """Which alike incidents were paged together lately, in order."""
        rows = await self._store.read(
            """select p.id, p.kind, p.policy, p.at, json_group_array(i.incident) as incidents
               from pages p join page_items i on i.page = p.id where p.at >= ? group by p.id order by p.id""",
            since.timestamp(),
        )
        return [
            ((row["kind"], row["policy"]), set(json.loads(row["incidents"])), moment(row["at"]))
            for row in rows
        ]

    async def paged(self) -> dict[int, set[str]]:
        """Whom the open incidents were sent to, in Slack."""
        rows = await self._store.read(
            """select i.incident, s.target, s.mentions from incidents x join page_items i on i.incident = x.id
               join page_sendings s on s.page = i.page where x.closed_at is null and s.via = 'slack'"""
        )
        found: dict[int, set[str]] = {}
        for row in rows:
            found.setdefault(row["incident"], set()).update(users(row["target"], json.loads(row["mentions"])))
        return found

    async def page(self, page: int) -> Told | None:
        """A page and its incidents, the open ones first."""
        rows = await self._store.read(
            """select x.*, p.at as page_at from pages p join page_items i on i.page = p.id
               join incidents x on x.id = i.incident where p.id = ?
               order by x.closed_at is not null, x.id""",
            page,
        )
        if not rows:
            return None
        return Told(page, moment(rows[0]["page_at"]), tuple(incident_of(row) for row in rows))


# What a sending can have been before.
_BEFORE = {
    "sent": ("wanted", "late"),
    "late": ("wanted",),
    "failed": ("wanted", "late", "sent"),
    "dropped": ("wanted", "late"),
}


def users(target: str, mentions: Iterable[str]) -> set[str]:
    """Whom a message reaches by name."""
    return {*mentions, *([target] if target.startswith(("U", "W")) else [])}


def _sending(page: int, batch: Batch, to: Destination) -> Sending:
    message = message_key(page, to.target) if to.via == "slack" else None
    return Sending(page, batch.step, to, message, batch.incidents)


def _sending_row(sending: Sending) -> tuple[object, ...]:
    to = sending.destination
    return sending.page, to.via, to.target, json.dumps(to.mentions), sending.message


def _fresh(sending: Sending) -> Fresh:
    producer, session = sending.destination.thread or (None, None)
    return Fresh(
        key=sending.message or "",
        kind="page",
        target=sending.destination.target,
        producer=producer,
        session_id=session,
    )
