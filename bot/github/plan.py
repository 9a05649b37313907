"""What an issue should show of its clarifications. Pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime

from bot.delivery.inbox import FIRST_RESERVED_ISSUE
from bot.github.words import keys
from core.clarification import Clarification, Entry

ACTIVE, STALE = "clarification:active", "clarification:stale"


@dataclass(frozen=True, slots=True)
class Label:
    """As it is created where the repository has none of that name. GitHub takes 100 characters of description."""

    name: str
    color: str
    description: str


LABELS = {
    label.name: label
    for label in (
        Label(ACTIVE, "1d76db", "An agent's question about this issue is open"),
        Label(STALE, "d93f0b", "An agent's question about this issue has waited too long, or was escalated"),
    )
}


@dataclass(frozen=True, slots=True)
class Due:
    """An entry that should be a comment; `key` is its name in the marker."""

    record: Clarification
    key: str
    entry: Entry


@dataclass(frozen=True, slots=True)
class Plan:
    """`comments` in the order in which they belong; `labels` of ours that the issue should have."""

    comments: tuple[Due, ...]
    labels: frozenset[str]


def is_mirrored(issue: int) -> bool:
    """Whether this is the number of an issue somewhere: those of the reserved range are made up for sessions."""
    return 0 < issue < FIRST_RESERVED_ISSUE


def planned(records: Sequence[Clarification], known: Collection[str], since: datetime) -> Plan:
    """What is to be shown of an issue's records.

    Args:
        records: all of its ledger.
        known: the entries whose comments were posted, or begun.
        since: what was over by then is history, and not mirrored unless it was begun.
    """
    comments = [
        Due(record, key, entry)
        for record in records
        if _counts(record, known, since)
        for key, entry in keys(record)
    ]
    return Plan(tuple(comments), labels_for(records))


def labels_for(records: Sequence[Clarification]) -> frozenset[str]:
    """`active` while a question waits for an answer (an answered one does not: nobody has to act on it);
    `stale` beside it while one of these was nudged, is stale, or was escalated.
    """
    waiting = [record for record in records if record.is_open]
    late = any(record.nudges or record.status != "pending" for record in waiting)
    return frozenset((ACTIVE,) if waiting else ()) | frozenset((STALE,) if late else ())


def _counts(record: Clarification, known: Collection[str], since: datetime) -> bool:
    if record.is_open or _last_change(record) >= since:
        return True
    return any(key in known for key, _ in keys(record))


def _last_change(record: Clarification) -> datetime:
    times = [record.created, *(entry.timestamp for entry in record.thread)]
    return max(times if record.resolved_at is None else [*times, record.resolved_at])
