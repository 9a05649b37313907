"""The clarification record, and the values that questions and answers arrive as. Its changes: `core.transitions`.

Field names are those of the ledger file (camelCase there, snake_case here); unknown fields are kept.
Statuses and transitions: the Clarification Protocol's §6.1, as made exact in the project's design.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Annotated, Any, Literal

from pydantic import Field

from core.aaep import DECISIONS, UNTOLD, Choice, Confirmation, Decision, Kind, Response
from core.errors import BadInput
from core.fields import Count, Moment, Record

Status = Literal["pending", "answered", "resolved", "stale", "escalated", "abandoned"]
EntryType = Literal["question", "answer", "resolution", "escalation"]
ReplyState = Literal["sending", "delivered", "confirmed", "unconfirmed", "refused", "too_late"]
CloseReason = Literal["expired", "cancelled", "session ended", "requester moved on", "by hand"]
Why = Literal["stale", "stuck", "deadlocked", "rounds exhausted", "agent failed", "by hand"]
Via = Literal["shell", "python", "http"]

OPEN: frozenset[Status] = frozenset({"pending", "stale", "escalated"})
DONE: frozenset[Status] = frozenset({"resolved", "abandoned"})
TRANSITIONS: dict[Status, frozenset[Status]] = {
    "pending": frozenset({"answered", "stale", "escalated", "abandoned"}),
    "stale": frozenset({"pending", "answered", "escalated", "abandoned"}),
    "answered": frozenset({"pending", "resolved", "escalated"}),
    "escalated": frozenset({"resolved", "abandoned"}),
    "resolved": frozenset(),
    "abandoned": frozenset(),
}
HIGHEST_ROUND = 999_999_999  # as far as a control can name it
LONGEST_SLA = 366 * 24 * 60  # minutes
UNDELIVERED: frozenset[ReplyState] = frozenset({"sending"})
ID = re.compile(r"CLR-([0-9]{1,15})-([0-9]{3,15})")


class Entry(Record):
    round: Count = 1
    from_: str = Field(alias="from")
    type: EntryType
    body: str
    timestamp: Moment


class Option(Record):
    value: str
    label: str


class AnsweredBy(Record):
    """Through which surface an answer came; Slack's stable ids are always kept."""

    surface: str
    team: str | None = None
    user: str | None = None


class Holder(Record):
    """Who has an escalated clarification in hand, since `at`: a Slack user id and its team."""

    user: str
    team: str | None = None
    at: Moment


class Aaep(Record):
    """What only this project needs of a clarification: the round that is asked, and its answer.

    Times are ours (the producer's clock offset is already taken out), but for `asked_at`, which is the
    producer's. `handed_to` was offered it and has not taken it yet. `earlier` holds the same of the rounds before.

    `via`: the surface through which an agent asked another; None for a producer's event. `sla_minutes`: of the
    workflow that let it ask. `held_back`: why its target is not asked, for the people who are asked instead.

    `action` and what follows it: of a confirmation (see there); `rationale`: why it was decided so. `seal`: see
    `core.seal`.
    """

    producer: str | None = None
    agent_id: str | None = None
    agent_name: str | None = None
    session_id: str | None = None
    event_id: str | None = None
    reply_token: str | None = None
    correlation_id: str | None = None
    asked_at: Moment | None = None
    received_at: Moment | None = None
    expires_at: Moment | None = None
    kinds: tuple[Kind, ...] = ("freetext",)
    choices: tuple[Option, ...] = ()
    multi_select: bool = False
    context: str | None = None
    default_response: str | None = None
    summary_terse: str | None = None
    summary_detailed: str | None = None
    action: str | None = None
    consequence: str | None = None
    risk_level: str | None = None
    irreversible: bool | None = None
    reversibility: str | None = None
    default_decision: Decision | None = None
    allowed_replies: tuple[Decision, ...] | None = None
    extra_context: dict[str, Any] | None = None
    response: Response | None = None
    label: str | None = None
    rationale: str | None = None
    decided_by: str | None = None
    answered_at: Moment | None = None
    answered_by: AnsweredBy | None = None
    reply: ReplyState | None = None
    reply_note: str | None = None
    went_on_at: Moment | None = None
    closed: str | None = None
    nudges: Count = 0
    nudged_at: Moment | None = None
    escalated_at: Moment | None = None
    escalated_for: Why | None = None
    taken_by: Holder | None = None
    handed_to: Holder | None = None
    via: str | None = None
    sla_minutes: float | None = None
    held_back: str | None = None
    rtl: bool | None = None
    seal: str | None = None
    earlier: tuple[dict[str, Any], ...] = ()

    @property
    def is_confirmation(self) -> bool:
        return "confirmation" in self.kinds

    @property
    def is_consent(self) -> bool:
        """Whether an action was accepted."""
        return self.is_confirmation and self.response == "accept"

    @property
    def confirmation(self) -> Confirmation | None:
        """The action that waits for consent, if that is what is asked. One that others lost can only be rejected."""
        if not self.is_confirmation:
            return None
        extra = self.extra_context or {}
        said = (self.consequence, self.risk_level, self.irreversible, self.reversibility)
        allowed = ("reject",) if self.action is None else self.allowed_replies or DECISIONS
        return Confirmation(self.action or UNTOLD, *said, self.default_decision, allowed, extra)


class Clarification(Record):
    id: str = Field(pattern=r"^CLR-[0-9]{1,15}-[0-9]{3,15}$")
    issue_number: Count
    from_: str = Field(alias="from")
    to: str
    topic: str = ""
    blocking: bool = True
    status: Status
    round: Annotated[int, Field(ge=0, le=HIGHEST_ROUND)] = 1
    max_rounds: Count = 5
    created: Moment
    stale_after: Moment | None = None
    resolved_at: Moment | None = None
    thread: tuple[Entry, ...] = ()
    revision: int = 0
    aaep: Aaep | None = None

    @property
    def is_open(self) -> bool:
        """Whether it takes an answer."""
        return self.status in OPEN

    @property
    def asked(self) -> Aaep:
        """What the current round asks; a foreign record without `aaep` takes free text."""
        return self.aaep or Aaep()

    @property
    def question(self) -> str:
        """The words of the latest question."""
        return next((entry.body for entry in reversed(self.thread) if entry.type == "question"), self.topic)

    @property
    def asked_last(self) -> datetime:
        """When the latest question was asked, on our clock."""
        return next(
            (entry.timestamp for entry in reversed(self.thread) if entry.type == "question"), self.created
        )

    @property
    def last_change(self) -> datetime:
        """When anything happened to it last, by its own times."""
        times = [self.created, *(entry.timestamp for entry in self.thread)]
        return max(times if self.resolved_at is None else [*times, self.resolved_at])

    @property
    def expires_at(self) -> datetime | None:
        """When the latest question's time runs out, on our clock; None: never."""
        return self.asked.expires_at

    def sla(self, default: timedelta) -> timedelta:
        """The time to the next step: its workflow's, or `default` where that is none that could be."""
        minutes = self.asked.sla_minutes
        if minutes is None or not 0 < minutes <= LONGEST_SLA:
            return default
        return timedelta(minutes=minutes)

    @property
    def nudges(self) -> int:
        """How often the answerers were nudged about the latest question.

        Another implementation may ask again and leave our fields as they were: those nudges were about the
        question before.
        """
        asked = self.asked
        return 0 if asked.nudged_at is not None and asked.nudged_at < self.asked_last else asked.nudges

    @property
    def answer(self) -> Entry | None:
        """The answer to the latest question, if there is one."""
        for entry in reversed(self.thread):
            if entry.type == "question":
                return None
            if entry.type == "answer" and entry.round == self.round:
                return entry
        return None


@dataclass(frozen=True, slots=True)
class Ask:
    """A question on its way into a ledger. `expires_at` is on our clock; None: it never expires.

    A producer's event has producer, session, event, token and time; a request between agents has `via` instead.
    `sla`, `max_rounds`: of the workflow; None: as configured, and the protocol's. `held_back`: see `Aaep`.
    """

    agent_id: str
    question: str
    to: str
    topic: str | None
    blocking: bool
    received_at: datetime
    producer: str | None = None
    agent_name: str | None = None
    session_id: str | None = None
    event_id: str | None = None
    reply_token: str | None = None
    correlation_id: str | None = None
    asked_at: datetime | None = None
    expires_at: datetime | None = None
    kinds: tuple[Kind, ...] = ("freetext",)
    choices: tuple[Choice, ...] = ()
    multi_select: bool = False
    context: str | None = None
    default_response: str | None = None
    summary_terse: str | None = None
    summary_detailed: str | None = None
    via: Via | None = None
    sla: timedelta | None = None
    max_rounds: int | None = None
    held_back: str | None = None
    rtl: bool | None = None
    confirmation: Confirmation | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer that fits its question: `response` is what the producer gets, `label` what people read; `rationale`:
    the reason given for a decision.
    """

    response: Response
    label: str
    rationale: str | None = None

    @property
    def words(self) -> str:
        """All of it, for a clarification's thread."""
        return f"{self.label}: {self.rationale}" if self.rationale else self.label


@dataclass(frozen=True, slots=True)
class Decider:
    """Who decided (`decided_by` ≤ 256 characters, stable), and through which surface. `consent`: whether who decides
    outside Slack may accept a confirmation, as configured.
    """

    decided_by: str
    surface: str
    team: str | None = None
    user: str | None = None
    consent: bool = False

    @property
    def may_accept(self) -> bool:
        """People in Slack may; no agent ever may."""
        return (self.surface == "slack" or self.consent) and not self.decided_by.startswith("agent:")


def parse_id(text: str) -> tuple[int, int]:
    """`CLR-42-001` → (42, 1).

    Raises:
        BadInput: not of that form.
    """
    match = ID.fullmatch(text)
    if not match:
        raise BadInput(f"{text[:40]!r} is not a clarification id; expected the form CLR-42-001.")
    return int(match.group(1)), int(match.group(2))
