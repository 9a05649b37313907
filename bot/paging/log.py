"""Happenings as rows of the log of pages, and back. Pure."""

from __future__ import annotations

import sqlite3
from datetime import UTC, datetime
from typing import NamedTuple

from core.escalation import Began, Closed, Failed, Handed, Happening, NotMine, Sent, Snoozed, Taken


class LogRow(NamedTuple):
    """The columns of `incident_log` that hold a happening, in their order."""

    at: float
    what: str
    step: int | None = None
    user: str | None = None
    done_by: str | None = None
    until: float | None = None


def to_row(happening: Happening) -> LogRow:  # noqa: PLR0911 - a table
    at = happening.at.timestamp()
    match happening:
        case Began():
            return LogRow(at, "began")
        case Sent(step=step):
            return LogRow(at, "sent", step)
        case Failed(step=step):
            return LogRow(at, "failed", step)
        case Taken(user=user):
            return LogRow(at, "taken", user=user)
        case Handed(user=user, by=by):
            return LogRow(at, "handed", user=user, done_by=by)
        case Snoozed(until=until, by=by):
            return LogRow(at, "snoozed", done_by=by, until=until.timestamp())
        case NotMine(by=by):
            return LogRow(at, "not mine", done_by=by)
        case Closed():
            return LogRow(at, "closed")


def from_row(row: sqlite3.Row) -> Happening:  # noqa: PLR0911 - a table
    """The happening that `to_row` wrote.

    Raises:
        ValueError: the row is of another release.
    """
    at = moment(row["at"])
    match row["what"]:
        case "began":
            return Began(at)
        case "sent":
            return Sent(at, row["step"])
        case "failed":
            return Failed(at, row["step"])
        case "taken":
            return Taken(at, row["user"])
        case "handed":
            return Handed(at, row["user"], row["done_by"] or "")
        case "snoozed":
            return Snoozed(at, moment(row["until"]), row["done_by"] or "")
        case "not mine":
            return NotMine(at, row["done_by"] or "")
        case "closed":
            return Closed(at)
        case what:
            raise ValueError(f"the log of pages has an entry of kind {what!r}, of another release")


def moment(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)
