"""What lists, timers and routing need of a clarification: few fields, and none whose length others decide."""

from __future__ import annotations

from dataclasses import dataclass, fields
from datetime import datetime

from core.clarification import Attention, Clarification, Held, ReplyState, Status


@dataclass(frozen=True, slots=True)
class Summary(Held):
    """Has the attributes of the same names of its `Clarification`, as of `revision`."""

    id: str
    issue_number: int
    from_: str
    to: str
    short_topic: str
    blocking: bool
    status: Status
    round: int
    created: datetime
    stale_after: datetime | None
    revision: int
    needs_something: bool
    producer: str | None
    session_id: str | None
    agent: str
    person: str | None
    via: str | None
    is_direct: bool
    is_held_back: bool
    is_guarded: bool
    approvals: int
    lapsed: int
    is_signed: bool
    escalates: bool
    asked_last: datetime
    expires_at: datetime | None
    nudges: int
    attention: Attention
    reply: ReplyState | None
    unclaimed_at: datetime | None


Seen = Clarification | Summary
"""A clarification, whole or not."""
_FIELDS = tuple(field.name for field in fields(Summary))


def summary_of(seen: Seen) -> Summary:
    """Returns a clarification's summary."""
    return seen if isinstance(seen, Summary) else Summary(*[getattr(seen, name) for name in _FIELDS])
