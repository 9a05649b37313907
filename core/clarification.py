"""The clarification record, and the types of incoming questions and answers. Pure.

Field names are those of the ledger file (camelCase there, snake_case here); unknown fields are kept. What may become of a
record is in `core.transitions`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    PlainSerializer,
    SerializerFunctionWrapHandler,
    model_serializer,
    model_validator,
)
from pydantic.alias_generators import to_camel

from core.clock import iso
from core.errors import BadInput
from core.forms import Form, read_form

# The kinds of answer that a question takes. AAEP's clarifications have the four of KINDS, its confirmations only
# "confirmation"; only questions that agents ask directly can be a "form".
Kind = Literal["freetext", "yes_no", "multiple_choice", "numeric", "confirmation", "form"]
KINDS: tuple[Kind, ...] = ("yes_no", "multiple_choice", "numeric", "freetext")
Response = str | bool | int | float | list[Any] | dict[str, Any]
"""An answer. AAEP has the first four; only questions that agents ask directly (`core.questions`) are answered with a list
(several choices) or an object (a form).
"""
Decision = Literal["accept", "reject"]
DECISIONS: tuple[Decision, ...] = ("accept", "reject")
NOT_GIVEN = "(the agent did not say)"
IRREVERSIBLE = "irreversible"
Status = Literal["pending", "answered", "resolved", "stale", "escalated", "abandoned"]
EntryType = Literal["question", "answer", "resolution", "escalation"]
ReplyState = Literal[
    "sending", "delivered", "confirmed", "unconfirmed", "refused", "too_late", "waiting", "unclaimed"
]
"""Where the reply to the requester stands. `waiting`: the agent asked directly, and has to fetch the answer; `unclaimed`:
it has not, long after the question's end.
"""
CloseReason = Literal[
    "expired",
    "cancelled",
    "session ended",
    "requester moved on",
    "by hand",
    "withdrawn",
]
Why = Literal["stale", "stuck", "deadlocked", "rounds exhausted", "agent failed", "too few people", "by hand"]
Via = Literal["shell", "http"]
FourEyes = Literal["pinned", "claimed"]
# What someone who accepted an action is to a person who accepts it now: another person who may still answer, the same one, one
# who may no longer answer, or nothing that Slack tells now.
Standing = Literal["other", "same", "lapsed", "unknown"]
DirectKind = Literal["yes_no", "choice", "number", "text", "approval", "form"]
OPEN: frozenset[Status] = frozenset({"pending", "stale", "escalated"})
DONE: frozenset[Status] = frozenset({"resolved", "abandoned"})
UNCLAIMED_AFTER = timedelta(hours=1)
HIGHEST_ROUND = 999_999_999  # as far as a control can name it
TOPIC_LIMIT = 200  # characters of a topic that are shown in lists and told to programs
LONGEST_SLA = 366 * 24 * 60  # minutes
UNDELIVERED: frozenset[ReplyState] = frozenset({"sending", "waiting"})
_ON_ITS_WAY = UNDELIVERED | {"delivered", "unconfirmed"}
ID = re.compile(r"CLR-([0-9]{1,15})-([0-9]{3,15})")
US = "clarify-bot"
HUMAN = "human"  # who is asked where no agent is

_MOST = 2**53  # as far as all readers of JSON count; storage holds no more than a little beyond


def _utc(moment: datetime) -> datetime:
    """Reads a time. Other implementations leave out the zone: then it is UTC, as the format says."""
    try:
        return moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)
    except OverflowError:
        raise ValueError("a time that UTC cannot tell") from None


Count = Annotated[int, Field(ge=-_MOST, le=_MOST)]
Moment = Annotated[datetime, AfterValidator(_utc), PlainSerializer(iso, return_type=str)]


class Record(BaseModel):
    """A frozen model: camelCase in the file, unknown fields kept."""

    model_config = ConfigDict(
        alias_generator=to_camel,
        populate_by_name=True,
        extra="allow",
        frozen=True,
        ser_json_timedelta="iso8601",
    )

    def copied(self, **news: Any) -> Self:
        """Returns a copy with other fields.

        Raises:
            TypeError: it has no such field.
        """
        if unknown := news.keys() - type(self).model_fields.keys():
            raise TypeError(f"{type(self).__name__} has no {sorted(unknown)}")
        return self.model_copy(update=news)


class Entry(Record):
    round: Count = 1
    from_: str = Field(alias="from")
    type: EntryType
    body: str
    timestamp: Moment

    def as_json(self) -> dict[str, Any]:
        """Returns it as callers and responders get it."""
        return {
            "round": self.round,
            "from": self.from_,
            "type": self.type,
            "body": self.body,
            "timestamp": iso(self.timestamp),
        }


class AnsweredBy(Record):
    """Through which surface an answer came; Slack's stable ids are always kept."""

    surface: str
    team: str | None = None
    user: str | None = None


class Holder(Record):
    """Who took a clarification, or was handed it, at `at`: a Slack user id and its team."""

    user: str
    team: str | None = None
    at: Moment


class Approval(Record):
    """One person's accept before the deciding one. `digest`: of the version of the action's arguments that they saw;
    `global_id`: theirs in all workspaces of an Enterprise Grid; `rationale`: why they accepted, if they said; `lapsed_at`:
    when it was found that they may no longer answer.
    """

    team: str | None = None
    user: str | None = None
    decided_by: str
    at: Moment
    digest: str
    global_id: str | None = None
    rationale: str | None = None
    lapsed_at: Moment | None = None

    @model_serializer(mode="wrap")
    def _without_nothing(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        rare = {"global_id", "globalId", "rationale", "lapsed_at", "lapsedAt"}
        return {name: each for name, each in write(self).items() if each is not None or name not in rare}


class Edit(Record):
    """A person's change of an action's arguments. `changed`: the new value of each field that they changed; `lapsed`: who
    had accepted the version before.
    """

    changed: dict[str, Any]
    team: str | None = None
    user: str | None = None
    decided_by: str
    at: Moment
    lapsed: tuple[Approval, ...] = ()


class Refusal(Record):
    """An attempt to decide by someone who may not, or several with the same reason. `why`: a code, such as "not listed"
    (`bot.people.access.Reason`) or "own request"; `response`: "accept" or "reject", if known; `first`, `last`: when;
    `times`: how often.
    """

    team: str | None = None
    user: str | None = None
    by: str
    surface: str
    why: str
    response: str | None = None
    first: Moment
    last: Moment
    times: Count = 1

    @property
    def subject(self) -> tuple[str | None, ...]:
        """Returns the key that repeated attempts share, which count as one."""
        return self.user or self.by, self.surface, self.why, self.response


class Requester(Record):
    """The person whom an agent works for: a Slack user id or an e-mail address. `pinned`: the configuration says so;
    otherwise the agent claims it.
    """

    by: str
    pinned: bool = False


@dataclass(frozen=True, slots=True)
class Choice:
    value: str
    label: str


class Confirmation(Record):
    """An action to approve.

    `risk_level` and `reversibility` are as sent, in lower case, even if the schema does not know the word. `claimed_risk`:
    the agent's own risk, if its route raised it. `default_decision`: what the agent does without an answer; None: it did
    not say. `allowed_replies`: the decisions that the agent takes.

    `sent`: the action's arguments as the agent sent them (`Round.arguments` has people's edits, too); `editable`: whether
    people may change them; `arguments_schema`: what they must fit. All three are None if an event asked.
    """

    action: str
    consequence: str | None = None
    risk_level: str | None = None
    claimed_risk: str | None = None
    irreversible: bool | None = None
    reversibility: str | None = None
    default_decision: Decision | None = None
    allowed_replies: tuple[Decision, ...] | None = None
    extra_context: dict[str, Any] | None = None
    sent: dict[str, Any] | None = Field(default=None, alias="arguments")
    editable: bool | None = None
    arguments_schema: dict[str, Any] | None = None

    @model_validator(mode="before")
    @classmethod
    def _only_to_reject(cls, given: Any) -> Any:
        """If another program lost the action, it can only be rejected."""
        if not isinstance(given, dict) or given.get("action") is not None:
            return given
        rest = {
            name: each for name, each in given.items() if name not in {"allowedReplies", "allowed_replies"}
        }
        return rest | {"action": NOT_GIVEN, "allowed_replies": ("reject",)}

    @property
    def allowed(self) -> tuple[Decision, ...]:
        """The decisions that the agent takes."""
        return self.allowed_replies or DECISIONS

    @property
    def is_direct(self) -> bool:
        """Whether an agent asked it directly, so that missing fields do not mean what AAEP says."""
        return self.editable is not None

    @property
    def is_irreversible(self) -> bool:
        """Whether the action cannot be undone. If the two fields contradict each other, the graver one counts."""
        return self.irreversible is True or self.reversibility == IRREVERSIBLE

    @property
    def is_high_risk(self) -> bool:
        """Whether its risk is high, or one that the schema does not know."""
        return self.risk_level not in {None, "low", "medium"}

    @property
    def asks_twice(self) -> bool:
        """Whether Accept needs a second click."""
        return self.is_irreversible or self.is_high_risk

    @property
    def breaks_default_rule(self) -> bool:
        """Whether the default breaks §6.4.1 by starting an irreversible action of medium or high risk."""
        grave = self.risk_level not in {None, "low"}
        return self.default_decision == "accept" and self.is_irreversible and grave

    @property
    def words(self) -> str:
        """The action and its consequence as text, for readers of the ledger."""
        if self.is_direct and self.consequence is None:
            return f"Approve: {self.action}"
        return f"Approve: {self.action}\nConsequence: {self.consequence or NOT_GIVEN}"


_LOST = Confirmation.model_validate({})


class Direct(Record):
    """What only a question has that an agent asked directly, not by an AAEP event (`core.questions`).

    `default`: what the agent assumes if no one answers, as it sent it. `person`: the only one who may answer, an e-mail
    address or a Slack user id. `escalate`: whether anybody is paged. `form`: the JSON Schema of the object that is wanted, as
    it was sent. `about`: what an integration that asks says of it, by the integration's name.
    """

    kind: DirectKind
    key: str | None = None
    default: Any = None
    descriptions: tuple[str | None, ...] = ()
    person: str | None = None
    escalate: bool = True
    form: dict[str, Any] | None = None
    about: dict[str, dict[str, Any]] | None = None


class Question(Record):
    """The question of a round, and the rules for its answer.

    Times are ours (the producer's clock offset is already taken out), but for `asked_at`, which is the producer's.

    `via`: the surface through which an agent asked another; None for a producer's event. `sla_minutes`: of the
    workflow that let it ask. `held_back`: why its target is not asked, for the people who are asked instead. `from_file`:
    the question was read from a ledger file, by a bot whose database did not know it.

    `wanted`: the action to approve, of a confirmation. `approvals_needed`: how many different people have to accept (None:
    one). `reason_wanted`: an accept needs a reason.
    `requested_by`: whom the agent works for, if known; `four_eyes`: that person does not count as an approver, and whether
    it must be pinned or may be claimed.
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
    choices: tuple[Choice, ...] = ()
    multi_select: bool = False
    context: str | None = None
    default_response: str | None = None
    summary_terse: str | None = None
    summary_detailed: str | None = None
    via: str | None = None
    sla_minutes: float | None = None
    held_back: str | None = None
    from_file: bool | None = None
    rtl: bool | None = None
    direct: Direct | None = None
    wanted: Confirmation | None = None
    approvals_needed: Count | None = None
    reason_wanted: bool | None = None
    requested_by: Requester | None = None
    four_eyes: FourEyes | None = None

    @property
    def is_confirmation(self) -> bool:
        return "confirmation" in self.kinds

    @property
    def confirmation(self) -> Confirmation | None:
        """The action to approve, or None. If another program lost it, it says nothing and can only be rejected."""
        return (self.wanted or _LOST) if self.is_confirmation else None

    @property
    def allowed(self) -> tuple[Decision, ...]:
        """The decisions that the agent takes."""
        return self.confirmation.allowed if self.confirmation else ()

    @property
    def sent_arguments(self) -> dict[str, Any]:
        """The arguments of the action to approve, as the agent sent them."""
        return dict((self.wanted.sent if self.wanted else None) or {})

    def sla(self, default: timedelta) -> timedelta:
        """The time to the next step: its workflow's, or `default` if that is missing or invalid."""
        minutes = self.sla_minutes
        if minutes is None or not 0 < minutes <= LONGEST_SLA:
            return default
        return timedelta(minutes=minutes)

    @property
    def escalates(self) -> bool:
        """Whether on-call is paged if no one answers."""
        return self.direct is None or self.direct.escalate

    @property
    def barred(self) -> Requester | None:
        """Whoever may not accept, because the agent works for them. None: no one, or it is not known (`lacks_requester`)."""
        requester = self.requested_by
        counts = requester is not None and (requester.pinned or self.four_eyes == "claimed")
        return requester if self.four_eyes is not None and counts else None

    @property
    def lacks_requester(self) -> bool:
        """Whether four eyes are demanded, and it is not known whom the agent works for: then no one may accept."""
        return self.four_eyes is not None and self.barred is None

    @property
    def needed(self) -> int:
        """How many different people must accept."""
        return max(1, self.approvals_needed or 1)

    @property
    def form(self) -> Form | None:
        """The form to fill in, or None: the question is no form, or its schema is that of a Yes or No or of choices."""
        schema = self.direct.form if self.direct else None
        return None if schema is None or "form" not in self.kinds else read_form(schema)


class Given(Record):
    """The answer that counts; every field is None if there is none. `rationale`: the reason for the decision."""

    response: Response | None = None
    label: str | None = None
    rationale: str | None = None
    decided_by: str | None = None
    answered_at: Moment | None = None
    answered_by: AnsweredBy | None = None


class Attention(Record):
    """Reminders, and who claimed the question. `handed_to`: the person it was handed to, who has not claimed it yet."""

    nudges: Count = 0
    nudged_at: Moment | None = None
    escalated_at: Moment | None = None
    escalated_for: Why | None = None
    taken_by: Holder | None = None
    taken_from: str | None = None
    handed_to: Holder | None = None


class DeliveryState(Record):
    """How far the delivery of the answer to the agent has come."""

    reply: ReplyState | None = None
    reply_note: str | None = None
    went_on_at: Moment | None = None


class Consent(Record):
    """What happened on the way to an approval (`core.approvals`).

    `approvals`: those who accepted before the last of them; `lapsed`: those who accepted and could no longer answer when
    another person did, so that they do not count; `too_few`: how many could answer when that was looked at, where it is
    fewer. `edits`: people's changes of the arguments. `refusals`: attempts to approve by those who may not.
    """

    approvals: tuple[Approval, ...] | None = None
    lapsed: tuple[Approval, ...] | None = None
    too_few: Count | None = None
    edits: tuple[Edit, ...] | None = None
    refusals: tuple[Refusal, ...] | None = None


class Round(Record):
    """A question, and what became of it. `closed`: why, if it was without an answer; `receipt`: once the round has ended
    (`core.receipts`); `forgotten`: its contents were removed. The names of all fields in it are unique, but for those of
    `Direct`.
    """

    question: Question = Question()
    given: Given = Given()
    attention: Attention = Attention()
    delivery: DeliveryState = DeliveryState()
    consent: Consent = Consent()
    closed: str | None = None
    receipt: str | None = None
    forgotten: bool | None = None

    @property
    def is_consent(self) -> bool:
        """Whether the answer accepts an action."""
        return self.question.is_confirmation and self.given.response == "accept"

    @property
    def missing(self) -> int:
        """How many more people must accept."""
        return max(1, self.question.needed - len(self.consent.approvals or ()))

    @property
    def arguments(self) -> dict[str, Any]:
        """The arguments of the action to approve, with people's edits."""
        found = self.question.sent_arguments
        for edit in self.consent.edits or ():
            found |= edit.changed
        return found

    @property
    def confirmation(self) -> Confirmation | None:
        """The action to approve, or None."""
        return self.question.confirmation


FREE_TEXT = Round()
"""A round that another implementation asked."""
UNKNOWN = Round(question=Question(kinds=()))
"""A round of which nothing is known."""
PARTS: dict[str, type[Record]] = {
    "question": Question,
    "given": Given,
    "attention": Attention,
    "delivery": DeliveryState,
    "consent": Consent,
}
PART_OF = {name: part for part, model in PARTS.items() for name in model.model_fields}


class OfRound:
    """Gives access to the parts of a round."""

    if TYPE_CHECKING:  # a subclass has it

        @property
        def current(self) -> Round: ...

    @property
    def asked(self) -> Question:
        """What the round asks."""
        return self.current.question

    @property
    def given(self) -> Given:
        """The answer."""
        return self.current.given

    @property
    def attention(self) -> Attention:
        """Who was reminded of it, and who has it."""
        return self.current.attention

    @property
    def delivery(self) -> DeliveryState:
        """Where the answer is on its way."""
        return self.current.delivery

    @property
    def consent(self) -> Consent:
        """What happened on the way to its approval."""
        return self.current.consent


class Held:
    """Says whether a clarification, or a summary of it, is open, and who has it: a Slack user."""

    __slots__ = ()

    if TYPE_CHECKING:  # a subclass has them

        @property
        def status(self) -> Status: ...

        @property
        def attention(self) -> Attention: ...

    @property
    def is_open(self) -> bool:
        """Whether it can be answered."""
        return self.status in OPEN

    @property
    def is_with_target(self) -> bool:
        """Whether its target may still answer: it is open and not escalated."""
        return self.status in {"pending", "stale"}

    @property
    def claimed_by(self) -> str | None:
        """Who has claimed it."""
        return self.attention.taken_by.user if self.attention.taken_by else None

    @property
    def offered_to(self) -> str | None:
        """The person it was handed to, who has not claimed it yet."""
        return self.attention.handed_to.user if self.attention.handed_to else None


class Clarification(OfRound, Held, Record):
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
    rounds: tuple[Round, ...] = ()  # that were asked through the bot; empty: another implementation's

    # What this very object is known to be; copies are not: see `core.records`.
    __slots__ = ("_agrees",)

    @property
    def needs_something(self) -> bool:
        """Whether it is open, or its reply is on its way or unconfirmed."""
        reply = self.delivery.reply
        if reply == "unclaimed":
            return self.is_open
        return self.status not in DONE or reply in _ON_ITS_WAY

    @property
    def short_topic(self) -> str:
        return self.topic[:TOPIC_LIMIT]

    @property
    def producer(self) -> str | None:
        return self.asked.producer

    @property
    def session_id(self) -> str | None:
        return self.asked.session_id

    @property
    def agent(self) -> str:
        """The agent that asks, by the id that its producer gave."""
        return self.asked.agent_id or self.from_

    @property
    def kind(self) -> Kind:
        """The first kind of answer that it takes."""
        return next(iter(self.asked.kinds), "freetext")

    @property
    def is_direct(self) -> bool:
        """Whether an agent asked it directly, not by an AAEP event."""
        return self.asked.direct is not None

    @property
    def is_held_back(self) -> bool:
        """Whether people are asked instead of its target."""
        return self.asked.held_back is not None

    @property
    def person(self) -> str | None:
        """The only person who may answer (email address or Slack user id), or None if its route decides."""
        return self.asked.direct.person if self.asked.direct else None

    @property
    def via(self) -> str | None:
        return self.asked.via

    @property
    def is_guarded(self) -> bool:
        """Whether it needs several people, or someone in particular may not accept."""
        return self.asked.needed > 1 or self.asked.four_eyes is not None

    @property
    def approvals(self) -> int:
        """How many accepts count so far, without the deciding one."""
        return len(self.consent.approvals or ())

    @property
    def lapsed(self) -> int:
        """How many people accepted but may no longer answer."""
        return len(self.consent.lapsed or ())

    @property
    def is_signed(self) -> bool:
        """Whether the current round has its receipt."""
        return self.current.receipt is not None

    @property
    def reply(self) -> ReplyState | None:
        return self.delivery.reply

    @property
    def current(self) -> Round:
        """The current round; one that another implementation asked takes free text."""
        return self.rounds[-1] if self.rounds else FREE_TEXT

    @property
    def earlier(self) -> tuple[Round, ...]:
        """The rounds before the current one."""
        return self.rounds[:-1]

    @property
    def question(self) -> str:
        """The text of the latest question."""
        return next((entry.body for entry in reversed(self.thread) if entry.type == "question"), self.topic)

    @property
    def asked_last(self) -> datetime:
        """When the latest question was asked, on our clock."""
        return next(
            (entry.timestamp for entry in reversed(self.thread) if entry.type == "question"), self.created
        )

    @property
    def last_change(self) -> datetime:
        """The latest time in the record."""
        times = [self.created, *(entry.timestamp for entry in self.thread)]
        return max(times if self.resolved_at is None else [*times, self.resolved_at])

    @property
    def expires_at(self) -> datetime | None:
        """When the latest question expires, on our clock; None if never."""
        return self.asked.expires_at

    @property
    def escalates(self) -> bool:
        """Whether on-call is paged if no one answers it."""
        return self.asked.escalates

    @property
    def unclaimed_at(self) -> datetime | None:
        """When people are told that the agent never fetched the answer, or None if it need not fetch one. Until the
        question's time is over, its asker may still come for it.
        """
        at = self.given.answered_at
        if self.delivery.reply != "waiting" or at is None:
            return None
        return max(at, self.asked.expires_at or at) + UNCLAIMED_AFTER

    def sla(self, default: timedelta) -> timedelta:
        """The time to the next step: its workflow's, or `default`."""
        return self.asked.sla(default)

    @property
    def nudges(self) -> int:
        """How many reminders the answerers got about the latest question.

        Another implementation may ask again and leave our fields as they were: those nudges were about the
        question before.
        """
        seen = self.attention
        return 0 if seen.nudged_at is not None and seen.nudged_at < self.asked_last else seen.nudges

    @property
    def answer(self) -> Entry | None:
        """The answer to the latest question, if there is one."""
        for entry in reversed(self.thread):
            if entry.type == "question":
                return None
            if entry.type == "answer" and entry.round == self.round:
                return entry
        return None

    @property
    def answering_entry(self) -> Entry | None:
        """The entry that holds the answer, ours or another writer's: a resolution without an answer counts as one."""
        if self.status not in {"answered", "resolved"}:
            return None
        last = self.thread[-1] if self.thread else None
        resolution = last if last is not None and last.type == "resolution" and last.from_ != US else None
        return self.answer or (resolution if self.status == "resolved" else None)


@dataclass(frozen=True, slots=True)
class Ask:
    """A question to be recorded: `question` is its text, `asked` what else it says. `max_rounds`: of the workflow; None: the
    protocol's.
    """

    agent_id: str
    question: str
    to: str
    topic: str | None
    blocking: bool
    asked: Question
    max_rounds: int | None = None

    def under(self, **rules: Any) -> Ask:
        """Returns it with other fields of `asked`."""
        return replace(self, asked=self.asked.copied(**rules))


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer that fits its question: `response` is what the producer gets, `label` what people read; `rationale`:
    the reason given for a decision; `changed`: the arguments that somebody changed before they accepted.
    """

    response: Response
    label: str
    rationale: str | None = None
    changed: Mapping[str, Any] | None = None

    @property
    def words(self) -> str:
        """All of it, for a clarification's thread."""
        return f"{self.label}: {self.rationale}" if self.rationale else self.label


@dataclass(frozen=True, slots=True)
class Decider:
    """Who decided (`decided_by` ≤ 256 characters, stable), and through which surface. `consent`: whether somebody
    outside Slack may accept a confirmation, as configured. `approvers`: what Slack said just now of those who accepted
    before, by user id; None: it was not asked who they are. `global_id`: theirs in all workspaces of an Enterprise Grid, if they have one.
    `is_requester`: whether the agent works for them, looked up where four eyes are demanded; None: not known.
    """

    decided_by: str
    surface: str
    team: str | None = None
    user: str | None = None
    consent: bool = False
    approvers: Mapping[str | None, Standing] | None = None
    global_id: str | None = None
    is_requester: bool | None = None

    @property
    def may_accept(self) -> bool:
        """Whether this answerer may accept an action: people in Slack may, agents never."""
        return (self.surface == "slack" or self.consent) and not self.decided_by.startswith("agent:")


def one_line(text: str, most: int | None = None) -> str:
    """Returns a text on one line of at most `most` characters, so that it cannot pass for a line of ours."""
    words = " ".join(text.split())
    return words if most is None or len(words) <= most else words[: most - 1].rstrip() + "…"


def agent_key(agent: str) -> str:
    """Returns a key that is the same for all spellings of an agent's name."""
    return one_line(agent).casefold()


def parse_id(text: str) -> tuple[int, int]:
    """`CLR-42-001` → (42, 1).

    Raises:
        BadInput: not of that form.
    """
    match = ID.fullmatch(text)
    if not match:
        raise BadInput(f"{text[:40]!r} is not a clarification ID; expected the form CLR-42-001.")
    return int(match.group(1)), int(match.group(2))


def has_expired(record: Clarification, at: datetime) -> bool:
    """Returns whether an open clarification had expired at `at`."""
    expires = record.asked.expires_at
    return record.is_open and expires is not None and at >= expires


def answer_of(record: Clarification, round: int | None = None) -> Entry | None:  # noqa: A002 - the protocol's word
    """Returns the answer in a round (None: the latest), or None."""
    if round is not None and round < record.round:
        answers = [entry for entry in record.thread if entry.type == "answer" and entry.round == round]
        return answers[-1] if answers else None
    if record.is_open or (round is not None and round > record.round):
        return None
    return record.answering_entry or record.answer


def round_with(before: Round, **news: Any) -> Round:
    """Returns a copy of a round with some fields changed: its own, or those of its parts."""
    own, parts = dict[str, Any](), dict[str, dict[str, Any]]()
    for name, each in news.items():
        part = PART_OF.get(name)
        (own if part is None else parts.setdefault(part, {}))[name] = each
    changed = {part: getattr(before, part).copied(**update) for part, update in parts.items()}
    return before.copied(**changed, **own)
