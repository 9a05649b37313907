"""What lists, timers and routing need of a clarification (`Summary`), and the lists that every front end shows of them.

A summary has few fields, and none whose length others decide. Pure. Agents' statuses and the queue of ready sessions are in
`core.index`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, fields, replace
from datetime import datetime
from math import inf
from typing import Any, Generic, Literal, TypeVar

from pydantic import TypeAdapter

from core.clarification import Attention, Clarification, Held, Holder, Moment, ReplyState, Round, Status

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


_T = TypeVar("_T")
Outcome = Literal["approved", "rejected", "answered"]


@dataclass(frozen=True, slots=True)
class DecidedBy:
    """Someone who decided a question: their name, and their Slack user id if they did it in Slack."""

    name: str
    user: str | None = None


@dataclass(frozen=True, slots=True)
class Decided:
    """How a question was decided, and by whom: all who approved it, or the one who rejected or answered it. `answer`: as
    people read it; `times`: the moments in it that a form asked for, each after its words.
    """

    outcome: Outcome
    by: tuple[DecidedBy, ...]
    answer: str = ""
    times: tuple[tuple[str, datetime], ...] = ()


@dataclass(frozen=True, slots=True)
class PastDecision:
    """How a question's round ended, as search finds it.

    `outcome`: answered, expired, withdrawn or closed; `decision`: accept or reject, of an approval that was answered.
    `channel`, `ts`: where its card is, if known.
    """

    clarification: str
    at: datetime
    agent: str
    outcome: str
    question: str
    answer: str = ""
    decision: str | None = None
    by: tuple[DecidedBy, ...] = ()
    channel: str | None = None
    ts: str | None = None

    @property
    def decided(self) -> Decided | None:
        """How people decided it; None: nobody did."""
        if self.outcome != "answered" or not self.by:
            return None
        outcomes: dict[str | None, Outcome] = {"accept": "approved", "reject": "rejected"}
        return Decided(outcomes.get(self.decision, "answered"), self.by, self.answer)


@dataclass(frozen=True, slots=True)
class ListPage(Generic[_T]):
    """The items of page `number` (from 1) of `pages`; `total` counts those of all pages."""

    items: tuple[_T, ...]
    number: int
    pages: int
    total: int

    def of(self, items: Iterable[Any]) -> ListPage[Any]:
        """The same page with other items."""
        return replace(self, items=tuple(items))


def page_of(items: Sequence[_T], number: int, size: int) -> ListPage[_T]:
    """The page `number` (from 1), or the nearest one."""
    pages = max(1, -(-len(items) // size))
    number = min(max(1, number), pages)
    return ListPage(tuple(items[(number - 1) * size : number * size]), number, pages, len(items))


def several(names: Sequence[str], most: int) -> str:
    """The first names, and how many more there are."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def is_late(record: Seen, now: datetime) -> bool:
    """Whether an open clarification is overdue, was nudged or is escalated."""
    overdue = record.stale_after is not None and record.stale_after <= now
    return overdue or record.nudges > 0 or record.status in {"stale", "escalated"}


def urgency(record: Seen) -> tuple[float, float]:
    """The sort key of open clarifications: least time left first, those that never expire last; then older ones first.

    Numbers, which sort many times faster than datetimes.
    """
    ends = record.expires_at
    return inf if ends is None else ends.timestamp(), record.created.timestamp()


def order(record: Seen) -> tuple[bool, float, float, str]:
    """The sort key of a list: open ones first, by `urgency`; then the closed ones, the latest first."""
    if record.is_open:
        return False, *urgency(record), record.id
    return True, -record.asked_last.timestamp(), 0.0, record.id


def decided_of(current: Round, last: DecidedBy, answer: str) -> Decided:
    """How an answered question was decided. `last`: who gave the answer; earlier approvals count only for an approval."""
    if not current.question.is_confirmation or current.given.response not in {"accept", "reject"}:
        return Decided("answered", (last,), answer)
    if not current.is_consent:
        return Decided("rejected", (last,), answer)
    return Decided(
        "approved",
        (*(DecidedBy(each.decided_by, each.user) for each in current.consent.approvals or ()), last),
        answer,
    )


def is_held_by(user: str, record: Seen, paged: Collection[str]) -> bool:
    """Whether `user` claimed it, was handed it, or was paged about it and it is escalated."""
    if user in {record.claimed_by, record.offered_to}:
        return True
    return record.status == "escalated" and user in paged
