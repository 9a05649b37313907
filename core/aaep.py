"""AAEP 1.0 events and replies: lenient in what is read, strict in what is sent.

Sources: AAEP specification chapters 3 (envelope), 4 (events), 6 (replies) and their JSON schemas.
What producers in the wild send is read too: `options`, `multi_select`, `free_form_allowed`,
odd `error_category` values, `error_message` in place of a summary, numbers as strings.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal, TypeVar

from core import reading
from core.clock import iso
from core.confirmation import Confirmation, read_confirmation
from core.reading import moment_in, text_in, timeout_in

# What a question takes. A clarification accepts the four of KINDS; "confirmation" is a consent's, and its alone.
Kind = Literal["freetext", "yes_no", "multiple_choice", "numeric", "confirmation"]
KINDS: tuple[Kind, ...] = ("yes_no", "multiple_choice", "numeric", "freetext")
Response = str | bool | int | float

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
whole_characters = reading.whole_characters
_T = TypeVar("_T")


class NotAnEvent(ValueError):
    """What came is no AAEP event at all: not an object, or without a type. Never carries the content."""


@dataclass(frozen=True, slots=True)
class Choice:
    value: str
    label: str


@dataclass(frozen=True, slots=True)
class Question:
    """What an `agent.awaiting.clarification` asks, or an `agent.awaiting.confirmation`, whose action is then in
    `confirmation`.

    `timeout_seconds` is None where the producer gave none that can be read: then nothing expires.
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
    """One event as read. `problems` names what broke the schema (no contents); `raw` is all of it."""

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
        """The extension object of `prefix` (say "agentx"), empty where there is none."""
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


def clarification_reply(
    *,
    reply_token: str,
    response: Response,
    subscription_id: str,
    answered_at: datetime,
    decided_by: str | None,
    correlation_id: str | None,
) -> dict[str, Any]:
    """A `clarification.reply` as its schema wants it (chapter 6 §6.5): nothing beside the known fields."""
    reply: dict[str, Any] = {
        "type": "clarification.reply",
        "reply_token": reply_token,
        "response": response,
        "subscription_id": subscription_id,
        "timestamp": iso(answered_at),
    }
    if decided_by:
        reply["decided_by"] = decided_by[:256]
    if correlation_id:
        reply["correlation_id"] = correlation_id
    return reply


def _asked(event_type: str, obj: Mapping[str, Any], problems: list[str]) -> Question | None:
    if event_type == CONFIRMATION:
        return _consent(obj, problems)
    return _question(obj, problems) if event_type == CLARIFICATION else None


def _consent(obj: Mapping[str, Any], problems: list[str]) -> Question | None:
    """A confirmation as the question that it is: its two answers and its default go the way of all others."""
    wanted, token = read_confirmation(obj, problems), text_in(obj.get("reply_token"))
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
    if isinstance(value, (int, float)):
        return str(value)
    return text_in(value)


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
