"""Incidents and what happened to them as rows of the storage."""

from __future__ import annotations

import sqlite3

from bot.paging.log import moment, to_row
from bot.paging.model import Incident
from core.escalation import Happening

Db = sqlite3.Connection


def incident_of(row: sqlite3.Row) -> Incident:
    return Incident(
        id=row["id"],
        key=row["key"],
        kind=row["kind"],
        policy=row["policy"],
        agent_id=row["agent_id"],
        clarification=row["clarification"],
        title=row["title"],
        reason=row["reason"],
        body=row["body"],
        link=row["link"],
        expires_at=moment(row["expires_at"]) if row["expires_at"] is not None else None,
        began_at=moment(row["began_at"]),
        closed_at=moment(row["closed_at"]) if row["closed_at"] is not None else None,
    )


def append(db: Db, incident: int, happening: Happening, page: int | None = None) -> None:
    """Keep what happened to an incident, within somebody else's transaction."""
    db.execute(
        """insert into incident_log (incident, at, what, step, user, done_by, until, page)
           values (?, ?, ?, ?, ?, ?, ?, ?)""",
        (incident, *to_row(happening), page),
    )
