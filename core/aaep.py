"""Reads AAEP 1.0 events leniently, and writes replies strictly.

Sources: AAEP specification chapters 3 (envelope), 4 (events), 6 (replies: §6.3, risk and defaults: §6.4) and their
JSON schemas. What producers in the wild send is read too: `options`, `multi_select`, `free_form_allowed`, odd
`error_category` values, `error_message` in place of a summary, numbers as strings. A broken confirmation that names no
action, or that cannot be replied to, is ignored: nobody is asked to accept an unnamed action.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal, TypeVar

from core.clock import iso

# What a question takes. A clarification accepts the four of KINDS; "confirmation" is a consent's, and its alone; "form" is
# of questions that agents ask directly.
Kind = Literal["freetext", "yes_no", "multiple_choice", "numeric", "confirmation", "form"]
KINDS: tuple[Kind, ...] = ("yes_no", "multiple_choice", "numeric", "freetext")
Response = str | bool | int | float | list[str] | dict[str, Any]
"""An answer. AAEP knows the first four; several choices as a list, and forms as an object, are of questions that agents
ask directly (`core.questions`).
"""
Decision = Literal["accept", "reject"]
DECISIONS: tuple[Decision, ...] = ("accept", "reject")
RATIONALE_LIMIT = 4096
NOT_GIVEN = "(the agent did not say)"

CLARIFICATION = "agent.awaiting.clarification"
CONFIRMATION = "agent.awaiting.confirmation"
HANDOFF = "agent.handoff.requested"
ERRORED = "agent.session.errored"
STARTED = "agent.session.started"
COMPLETED = "agent.session.completed"
CANCELLED = "agent.session.cancelled"
STATE_CHANGED = "agent.state.changed"
TOOL_INVOKED = "agent.tool.invoked"
TOOL_COMPLETED = "agent.tool.completed"
PROGRESS = "agent.progress.updated"
STREAMING = "agent.output.streaming"
CRITICAL_TYPES = frozenset({CLARIFICATION, CONFIRMATION, HANDOFF, ERRORED})
IGNORED_TYPES = frozenset({PROGRESS, STREAMING})
KNOWN_TYPES = frozenset(
    {
        *CRITICAL_TYPES,
        *IGNORED_TYPES,
        STARTED,
        COMPLETED,
        CANCELLED,
        STATE_CHANGED,
        TOOL_INVOKED,
        TOOL_COMPLETED,
    }
)
SESSION_ENDS = frozenset({ERRORED, COMPLETED, CANCELLED})

_CORE_TYPE = re.compile(
    r"^(?:aaep:|https?://(?:www\.)?aaep-protocol\.org/[^ ]*?)(agent\.[a-z_]+(?:\.[a-z_]+)*)$"
)
_T = TypeVar("_T")
_RISKS = frozenset({"low", "medium", "high"})
_IRREVERSIBLE = "irreversible"
_REVERSIBILITY = frozenset({"reversible", "reversible_with_effort", _IRREVERSIBLE})
_WHOLE = 2**53  # as far as all readers of JSON count
_DEEPEST = 6  # levels kept as they are; what lies deeper is kept as JSON text
_LONE = re.compile("[\ud800-\udfff]")
_TIMEOUT_LIMIT = 366 * 86400
_FIRST_YEAR, _LAST_YEAR = 1971, 9000


class NotAnEvent(ValueError):
    """The input is not an AAEP event: not an object, or without a type. The message never holds its content."""


@dataclass(frozen=True, slots=True)
class Choice:
    value: str
    label: str


@dataclass(frozen=True, slots=True)
class Confirmation:
    """An action that waits for consent. `risk_level` and `reversibility` are as sent, in lower case, even if the schema
    does not know the word. `default_decision`: what the agent does without an answer; None: it did not say. `allowed`:
    the decisions that it accepts, out of the two that a reply can carry. `arguments`: what the action is done with, of one
    that was asked directly. `claimed_risk`: what the agent said, where its route raised that. `is_direct`: it was asked directly, so what was not
    said has no meaning of AAEP's.
    """

    action: str
    consequence: str | None = None
    risk_level: str | None = None
    irreversible: bool | None = None
    reversibility: str | None = None
    default_decision: Decision | None = None
    allowed: tuple[Decision, ...] = DECISIONS
    extra_context: Mapping[str, Any] = field(default_factory=dict)
    arguments: Mapping[str, Any] = field(default_factory=dict)
    claimed_risk: str | None = None
    is_direct: bool = False

    @property
    def is_irreversible(self) -> bool:
        """Of two statements that contradict each other the graver one counts."""
        return self.irreversible is True or self.reversibility == _IRREVERSIBLE

    @property
    def asks_twice(self) -> bool:
        """Whether one press of Accept is not enough: high risk, a risk that the schema does not know, or no way back."""
        return self.is_irreversible or self.risk_level not in {None, "low", "medium"}

    @property
    def breaks_default_rule(self) -> bool:
        """Whether the default breaks §6.4.1 by starting an irreversible action of medium or high risk."""
        grave = self.risk_level not in {None, "low"}
        return self.default_decision == "accept" and self.is_irreversible and grave

    @property
    def words(self) -> str:
        """The action and its consequence in words, for readers of the ledger."""
        if self.is_direct and self.consequence is None:
            return f"Confirm: {self.action}"
        return f"Confirm: {self.action}\nConsequence: {self.consequence or NOT_GIVEN}"


@dataclass(frozen=True, slots=True)
class Question:
    """The question of an `agent.awaiting.clarification`, or of an `agent.awaiting.confirmation` with its action in
    `confirmation`.

    `timeout_seconds` is None if the producer sent none that can be read; then the question does not expire.
    """

    text: str
    reply_token: str
    timeout_seconds: int | None
    kinds: tuple[Kind, ...]
    choices: tuple[Choice, ...] = ()
    multi_select: bool = False
    context: str | None = None
    default_response: str | None = None
    confirmation: Confirmation | None = None


@dataclass(frozen=True, slots=True)
class Event:
    """An event. `problems` names what breaks the schema (no contents); `raw` is the whole event."""

    type: str
    event_id: str
    session_id: str
    timestamp: datetime
    agent_id: str
    agent_name: str | None
    critical: bool
    sequence_number: int | None
    correlation_id: str | None
    question: Question | None
    problems: tuple[str, ...]
    raw: Mapping[str, Any] = field(repr=False)

    def text(self, key: str) -> str | None:
        """A non-empty string field of the payload, or None."""
        return text_in(self.raw.get(key))

    def summary(self, verbosity: str = "normal") -> str | None:
        """The summary nearest to `verbosity` (terse, normal, detailed) that is there."""
        order = {
            "terse": ("summary_terse", "summary_normal", "summary_detailed"),
            "detailed": ("summary_detailed", "summary_normal", "summary_terse"),
        }.get(verbosity, ("summary_normal", "summary_terse", "summary_detailed"))
        return next((text for key in order if (text := self.text(key))), None)

    def extension(self, prefix: str) -> Mapping[str, Any]:
        """The extension object of `prefix` (such as "agentx"), empty if there is none."""
        extensions = self.raw.get("extensions")
        value = extensions.get(prefix) if isinstance(extensions, Mapping) else None
        return value if isinstance(value, Mapping) else {}


def core_type(raw: str) -> str:
    """`aaep:agent.x.y` or its full URI → `agent.x.y`; anything else as it is."""
    match = _CORE_TYPE.match(raw)
    return match.group(1) if match else raw


def parse_event(obj: object, received: datetime) -> Event:
    """Read one event leniently.

    Args:
        obj: the decoded JSON.
        received: our time of receipt; stands in for a timestamp that cannot be read.

    Raises:
        NotAnEvent: not an object, or no `type`.
    """
    if not isinstance(obj, Mapping):
        raise NotAnEvent(f"expected a JSON object, got {type(obj).__name__}")
    kind = text_in(obj.get("type"))
    if kind is None:
        raise NotAnEvent("expected a non-empty string in `type`")
    problems: list[str] = []
    event_type = core_type(kind)
    producer = obj.get("producer")
    producer = producer if isinstance(producer, Mapping) else {}
    agent_id = text_in(producer.get("agent_id")) or _note(
        problems, "producer.agent_id missing", "unknown-agent"
    )
    sequence = obj.get("sequence_number")
    return Event(
        type=event_type,
        event_id=text_in(obj.get("event_id")) or _note(problems, "event_id missing", f"evt_{_digest(obj)}"),
        session_id=text_in(obj.get("session_id"))
        or _note(
            problems, "session_id missing", f"sess_{hashlib.sha256(agent_id.encode()).hexdigest()[:32]}"
        ),
        timestamp=moment_in(obj.get("timestamp")) or _note(problems, "timestamp not RFC 3339", received),
        agent_id=agent_id,
        agent_name=text_in(producer.get("agent_name")),
        critical=event_type in CRITICAL_TYPES or obj.get("urgency") == "critical",
        sequence_number=sequence if isinstance(sequence, int) and not isinstance(sequence, bool) else None,
        correlation_id=text_in(obj.get("correlation_id")),
        question=_asked(event_type, obj, problems),
        problems=tuple(problems),
        raw=obj,
    )


def clarification_reply(*, response: Response, **of: Any) -> dict[str, Any]:
    """A `clarification.reply` as its schema wants it (chapter 6 §6.5); `of`: see `_reply`."""
    return _reply("clarification.reply", "response", response, **of)


def confirmation_reply(*, decision: str, **of: Any) -> dict[str, Any]:
    """A `confirmation.reply` as its schema wants it (chapter 6 §6.3); `of`: see `_reply`."""
    if decision not in DECISIONS:
        raise ValueError("expected the decision accept or reject")
    return _reply("confirmation.reply", "decision", decision, **of)


def _reply(
    kind: str,
    says: str,
    response: Response,
    *,
    reply_token: str,
    subscription_id: str,
    answered_at: datetime,
    decided_by: str | None,
    correlation_id: str | None,
    rationale: str | None = None,
) -> dict[str, Any]:
    """Nothing beside the known fields."""
    reply: dict[str, Any] = {
        "type": kind,
        "reply_token": reply_token,
        says: response,
        "subscription_id": subscription_id,
        "timestamp": iso(answered_at),
    }
    if decided_by:
        reply["decided_by"] = decided_by[:256]
    if rationale:
        reply["decision_rationale"] = rationale[:RATIONALE_LIMIT]
    if correlation_id:
        reply["correlation_id"] = correlation_id
    return reply


def _asked(event_type: str, obj: Mapping[str, Any], problems: list[str]) -> Question | None:
    if event_type == CONFIRMATION:
        return _consent(obj, problems)
    return _question(obj, problems) if event_type == CLARIFICATION else None


def _consent(obj: Mapping[str, Any], problems: list[str]) -> Question | None:
    """A confirmation as the question that it is: its two answers and its default go the way of all others."""
    wanted, token = _confirmation(obj, problems), text_in(obj.get("reply_token"))
    if token is None:
        problems.append("reply_token missing")
    if wanted is None or token is None:
        return None
    return Question(
        text=wanted.words,
        reply_token=token,
        timeout_seconds=timeout_in(obj.get("timeout_seconds"), problems),
        kinds=("confirmation",),
        default_response=wanted.default_decision,
        confirmation=wanted,
    )


def _question(obj: Mapping[str, Any], problems: list[str]) -> Question | None:
    text = text_in(obj.get("question")) or text_in(obj.get("summary_normal"))
    token = text_in(obj.get("reply_token"))
    if text is None or token is None:
        problems.append("question missing" if text is None else "reply_token missing")
        return None
    choices = _choices(obj, problems)
    return Question(
        text=text,
        reply_token=token,
        timeout_seconds=timeout_in(obj.get("timeout_seconds"), problems),
        kinds=_kinds(obj, choices, problems),
        choices=choices,
        multi_select=obj.get("multi_select") is True and bool(choices),
        context=text_in(obj.get("context")),
        default_response=_default(obj.get("default_response")),
    )


def _choices(obj: Mapping[str, Any], problems: list[str]) -> tuple[Choice, ...]:
    source = obj.get("choices")
    if not isinstance(source, list) or not source:
        source = obj.get("options")
    if not isinstance(source, list):
        return ()
    found: dict[str, Choice] = {}
    for item in source:
        if isinstance(item, Mapping):
            value, label = _word(item.get("value")), _word(item.get("label"))
        else:
            value = label = _word(item)
        value, label = value or label, label or value
        if value is None or label is None:
            problems.append("a choice has neither value nor label")
        else:
            found.setdefault(value, Choice(value, label))
    return tuple(found.values())


def _kinds(obj: Mapping[str, Any], choices: tuple[Choice, ...], problems: list[str]) -> tuple[Kind, ...]:
    declared = obj.get("accepted_response_kinds")
    if isinstance(declared, str):
        declared = [declared]
    wanted = {item for item in declared if isinstance(item, str)} if isinstance(declared, list) else set()
    if wanted - set(KINDS):
        problems.append("accepted_response_kinds has unknown values")
    if not wanted & set(KINDS):
        wanted = {"multiple_choice"} if choices else {"freetext"}
    if "multiple_choice" in wanted and not choices:
        problems.append("multiple_choice without choices")
        wanted = (wanted - {"multiple_choice"}) | {"freetext"}
    if obj.get("free_form_allowed") is True:
        wanted.add("freetext")
    return tuple(kind for kind in KINDS if kind in wanted)


def _default(value: object) -> str | None:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return _word(value)


def _word(value: object) -> str | None:
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return str(value)
    return text_in(value)


def _digest(obj: Mapping[str, Any]) -> str:
    try:
        text = json.dumps(obj, sort_keys=True, default=str)
    except RecursionError:
        raise NotAnEvent("nested too deeply") from None
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def _note(problems: list[str], problem: str, stand_in: _T) -> _T:
    problems.append(problem)
    return stand_in


def _confirmation(obj: Mapping[str, Any], problems: list[str]) -> Confirmation | None:
    """What the event asks; None, and a problem named (never its contents), where nobody could decide on it."""
    action, allowed = _visible(obj.get("action")), _allowed(obj.get("allowed_replies"))
    if action is None or not allowed:
        problems.append("action missing" if action is None else "neither accept nor reject is allowed")
        return None
    consequence, default = _visible(obj.get("consequence")), _decision(obj.get("default_decision"))
    irreversible, extra = obj.get("irreversible"), obj.get("extra_context")
    if consequence is None:
        problems.append("consequence missing")
    if default is None:
        problems.append("default_decision missing or unknown")
    if not isinstance(irreversible, bool | None):
        problems.append("irreversible is neither true nor false")
    found = Confirmation(
        action=action,
        consequence=consequence,
        risk_level=_known_word(obj, "risk_level", _RISKS, problems),
        irreversible=_truth(irreversible),
        reversibility=_known_word(obj, "reversibility", _REVERSIBILITY, problems),
        default_decision=default,
        allowed=allowed,
        extra_context=_kept(extra, 0) if isinstance(extra, Mapping) else {},
    )
    if found.breaks_default_rule:
        problems.append("default_decision accepts an irreversible action")
    return found


def _allowed(value: object) -> tuple[Decision, ...]:
    """The `allowed_replies` that a reply can carry. What is not a list, or empty, is ignored."""
    if not isinstance(value, list) or not value:
        return DECISIONS
    return tuple(decision for decision in DECISIONS if decision in value)


def _visible(value: object) -> str | None:
    """A string in which there is something to see: not only blanks, controls and what steers the direction."""
    said = text_in(value)
    return said if said and any(char.isprintable() and char != " " for char in said) else None


def _decision(value: object) -> Decision | None:
    """The decision that is meant, in any case: a default must not be missed because of its spelling."""
    said = (text_in(value) or "").strip().casefold()
    return next((decision for decision in DECISIONS if decision == said), None)


def _known_word(obj: Mapping[str, Any], key: str, known: frozenset[str], problems: list[str]) -> str | None:
    if obj.get(key) is None:
        return None
    word = (text_in(obj[key]) or "unreadable").strip().casefold()
    if word not in known:
        problems.append(f"{key} has an unknown value")
    return word


def _truth(value: object) -> bool | None:
    """A boolean, also as a word; what cannot be read counts as the graver one."""
    if value is None or isinstance(value, bool):
        return value
    return str(value).strip().casefold() not in {"false", "no", "0"}


def _kept(value: object, depth: int) -> Any:
    """The value as every reader of the ledger can take it: not too deep, no numbers that JSON does not have."""
    if depth > _DEEPEST and isinstance(value, (Mapping, list)):
        return _as_text(value)
    if isinstance(value, Mapping):
        return {whole_characters(str(key)): _kept(each, depth + 1) for key, each in value.items()}
    if isinstance(value, list):
        return [_kept(each, depth + 1) for each in value]
    if isinstance(value, str):
        return whole_characters(value)
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    is_huge = isinstance(value, int) and not isinstance(value, bool) and abs(value) > _WHOLE
    return str(value) if is_huge else value


def _as_text(value: object) -> str:
    try:
        return json.dumps(value)
    except RecursionError:
        return "(nested too deeply to be kept)"


def whole_characters(text: str) -> str:
    """`text` with lone surrogates, which no UTF-8 can carry, as U+FFFD."""
    return _LONE.sub("\ufffd", text)


def text_in(value: object) -> str | None:
    """A non-empty string; lone surrogates, which UTF-8 cannot carry, become U+FFFD."""
    if not isinstance(value, str) or not value.strip():
        return None
    return whole_characters(value)


def timeout_in(value: object, problems: list[str]) -> int | None:
    """`timeout_seconds` as whole seconds, at least 1; None and a problem if it is invalid."""
    try:
        seconds = float(value) if isinstance(value, str) else value
    except ValueError:
        seconds = None
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)):
        seconds = None
    if seconds is None or not 0 < seconds < _TIMEOUT_LIMIT:
        problems.append("timeout_seconds missing or impossible")
        return None
    return max(1, int(seconds))


def moment_in(value: object) -> datetime | None:
    """A time as RFC 3339 has it, in UTC, also where it leaves out the zone."""
    if not isinstance(value, str):
        return None
    try:
        read = datetime.fromisoformat(value)
        moment = (read if read.tzinfo else read.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError):
        return None
    # At either end of time a deadline or an offset could not be added to it.
    return moment if _FIRST_YEAR <= moment.year <= _LAST_YEAR else None
