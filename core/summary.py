"""What lists, timers and routing need of a clarification: few fields, and none whose length others decide."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from pydantic import TypeAdapter

from core.clarification import Attention, Clarification, Held, Holder, Moment, ReplyState, Status

_NOBODY = Attention()


@dataclass(frozen=True, slots=True)
class Summary(Held):
    """Has the attributes of the same names of its `Clarification`, as of `revision`. Its row leaves out what is as usual: a default
    means the same for ever.
    """

    id: str
    issue_number: int
    from_: str
    to: str
    agent: str
    short_topic: str
    status: Status
    created: Moment
    asked_last: Moment
    revision: int
    round: int = 1
    blocking: bool = True
    needs_something: bool = True
    producer: str | None = None
    session_id: str | None = None
    person: str | None = None
    via: str | None = None
    is_direct: bool = False
    is_held_back: bool = False
    is_guarded: bool = False
    is_signed: bool = False
    approvals: int = 0
    lapsed: int = 0
    escalates: bool = True
    nudges: int = 0
    stale_after: Moment | None = None
    expires_at: Moment | None = None
    unclaimed_at: Moment | None = None
    reply: ReplyState | None = None
    attention: Attention = _NOBODY


Seen = Clarification | Summary
"""A clarification, whole or not."""
_FIELDS = tuple(field.name for field in fields(Summary))
_JSON = TypeAdapter(Summary)
# Without other programs' fields, which may be what no JSON takes.
_HELD = {name: set(Holder.model_fields) for name in ("taken_by", "handed_to")}
_KEPT: Any = dict.fromkeys(_FIELDS, True) | {"attention": dict.fromkeys(Attention.model_fields, True) | _HELD}


def summary_of(seen: Seen) -> Summary:
    """Returns a clarification's summary."""
    return seen if isinstance(seen, Summary) else Summary(*[getattr(seen, name) for name in _FIELDS])


def packed_summary(record: Clarification) -> str | None:
    """Returns a record's summary as its row has it, from which a start reads it; None: it needs nothing."""
    if not record.needs_something:
        return None
    return _JSON.dump_json(summary_of(record), include=_KEPT, exclude_defaults=True).decode()


def unpacked_summary(text: str) -> Summary:
    """Returns the summary of a row.

    Raises:
        ValueError: it is none.
    """
    return _JSON.validate_json(text)
