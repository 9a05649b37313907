"""A look into the storage while a bot holds it, or when none does: nothing is written, nothing is locked."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from bot.errors import StorageUnavailable
from core.agents import SessionFact

_BUSY_SECONDS = 2.0
HEARD = """
  select s.producer, s.session_id, s.agent_id, s.agent_name, s.issue, s.ended, heard.at from sessions s join (
    select producer, session_id, max(received_at) as at from inbox where received_at >= ?
    group by producer, session_id) heard using (producer, session_id)
  order by heard.at desc limit ?"""


def sessions(path: Path, since: datetime, most: int) -> list[SessionFact]:
    """The sessions heard of since then, the one heard of last at the end; none if there is no storage. Blocking.

    Raises:
        StorageUnavailable: there is one, and it cannot be read, or it is another version's.
    """
    if not path.exists():
        return []
    try:
        with closing(_open(path)) as db:
            db.row_factory = sqlite3.Row
            rows = db.execute(HEARD, (since.timestamp(), most)).fetchall()
    except sqlite3.Error as error:
        raise StorageUnavailable(f"The storage could not be read: {error}.") from error
    return [session_fact(row) for row in reversed(rows)]


@dataclass(frozen=True, slots=True)
class Connections:
    """How many connections of the Slack app were not the bot's, when Slack last told."""

    others: int
    at: datetime


def connections(path: Path) -> Connections | None:
    """What Slack last told; None: nothing yet, or the storage cannot be read, or it is another version's. Blocking."""
    if not path.exists():
        return None
    try:
        with closing(_open(path)) as db:
            row = db.execute("select others, told_at from installation where told_at is not null").fetchone()
    except sqlite3.Error:
        return None  # `clarify check` says so on another line
    return None if row is None else Connections(row[0], datetime.fromtimestamp(row[1], UTC))


def _open(path: Path) -> sqlite3.Connection:
    """Without a log beside it nobody writes it now; opened as usual, SQLite would begin one and leave it there."""
    path = path.resolve()
    how = "mode=ro" if path.with_name(f"{path.name}-wal").exists() else "immutable=1"
    return sqlite3.connect(f"{path.as_uri()}?{how}", uri=True, timeout=_BUSY_SECONDS)


def session_fact(row: sqlite3.Row) -> SessionFact:
    """What a row of `HEARD` (since when, in seconds since 1970; at most how many) says."""
    return SessionFact(
        row["producer"],
        row["session_id"],
        row["agent_id"],
        row["agent_name"],
        row["issue"] or 0,
        bool(row["ended"]),
        datetime.fromtimestamp(row["at"], UTC),
    )
