"""Reads AAEP 1.0 events leniently, and writes replies strictly.

Sources: AAEP specification chapters 3 (envelope), 4 (events), 6 (replies: §6.3, risk and defaults: §6.4) and their
JSON schemas. Also reads what producers in the wild send: `options`, `multi_select`, `free_form_allowed`, odd
`error_category` values, `error_message` in place of a summary, numbers as strings. Ignores a broken confirmation that
names no action or has no reply token: people are never asked to accept an unnamed action.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, TypeVar

from core.clarification import (
    DECISIONS,
    HUMAN,
    IRREVERSIBLE,
    KINDS,
    Ask,
    Choice,
    Confirmation,
    Decision,
    Kind,
    Question,
    Response,
)
from core.clock import iso
from core.names import whole_characters

RATIONALE_LIMIT = 4096

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
Asked = tuple[str, int | None, Question]
"""A question's words, its timeout in seconds, and what else it says."""
_RISKS = frozenset({"low", "medium", "high"})
_REVERSIBILITY = frozenset({"reversible", "reversible_with_effort", IRREVERSIBLE})
_LARGEST_NUMBER = 2**53  # the largest whole number that every JSON reader takes exactly
_DEEPEST = 6  # levels of nesting that are kept; deeper ones become JSON text
_TIMEOUT_LIMIT = 366 * 86400
_FIRST_YEAR, _LAST_YEAR = 1971, 9000


class NotAnEvent(ValueError):
    """The input is not an AAEP event: not an object, or without a type. The message never holds its content."""


@dataclass(frozen=True, slots=True)
class Event:
    """An event. `question`: of an `agent.awaiting.clarification`, or of an `agent.awaiting.confirmation` with its action in
    `wanted`; `timeout_seconds`: the question's; None: it does not expire, as they are missing or invalid. `problems`: how the
    event breaks the schema (no contents); `raw`: the whole event.
    """

    type: str
    event_id: str
    session_id: str
    timestamp: datetime
    agent_id: str
    agent_name: str | None
    critical: bool
    sequence_number: int | None
    correlation_id: str | None
    question: Ask | None
    timeout_seconds: int | None
    problems: tuple[str, ...]
    raw: Mapping[str, Any] = field(repr=False)

    def text(self, key: str) -> str | None:
        """Returns a non-empty string field of the payload, or None."""
        return text_in(self.raw.get(key))

    def summary(self) -> str | None:
        """Returns the normal summary, else the terse one, else the detailed one."""
        return self.text("summary_normal") or self.text("summary_terse") or self.text("summary_detailed")

    def extension(self, prefix: str) -> Mapping[str, Any]:
        """Returns the extension object of `prefix` (such as "agentx"), empty if there is none."""
        return _extension(self.raw, prefix)


def core_type(raw: str) -> str:
    """Returns `agent.x.y` for `aaep:agent.x.y` or its full URI, and any other type unchanged."""
    match = _CORE_TYPE.match(raw)
    return match.group(1) if match else raw


def parse_event(obj: object, received: datetime) -> Event:
    """Reads one event leniently.

    Args:
        obj: the decoded JSON.
        received: our time of receipt, used if the event's timestamp is invalid.

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
    event_id = text_in(obj.get("event_id")) or _note(problems, "event_id missing", f"evt_{_digest(obj)}")
    session_id = text_in(obj.get("session_id")) or _note(
        problems, "session_id missing", f"sess_{hashlib.sha256(agent_id.encode()).hexdigest()[:32]}"
    )
    timestamp = moment_in(obj.get("timestamp")) or _note(problems, "timestamp not RFC 3339", received)
    agent_name, correlation_id = text_in(producer.get("agent_name")), text_in(obj.get("correlation_id"))
    question, seconds, sequence = None, None, obj.get("sequence_number")
    if (found := _asked(event_type, obj, problems)) is not None:
        words, seconds, asked = found
        asked = asked.copied(
            agent_name=agent_name,
            session_id=session_id,
            event_id=event_id,
            correlation_id=correlation_id,
            asked_at=timestamp,
            summary_terse=text_in(obj.get("summary_terse")),
            summary_detailed=text_in(obj.get("summary_detailed")),
        )
        question = _ask(agent_id, words, asked, _extension(obj, "agentx"))
    return Event(
        type=event_type,
        event_id=event_id,
        session_id=session_id,
        timestamp=timestamp,
        agent_id=agent_id,
        agent_name=agent_name,
        critical=event_type in CRITICAL_TYPES or obj.get("urgency") == "critical",
        sequence_number=sequence if isinstance(sequence, int) and not isinstance(sequence, bool) else None,
        correlation_id=correlation_id,
        question=question,
        timeout_seconds=seconds,
        problems=tuple(problems),
        raw=obj,
    )


def _extension(obj: Mapping[str, Any], prefix: str) -> Mapping[str, Any]:
    extensions = obj.get("extensions")
    value = extensions.get(prefix) if isinstance(extensions, Mapping) else None
    return value if isinstance(value, Mapping) else {}


def _ask(agent_id: str, words: str, asked: Question, agentx: Mapping[str, Any]) -> Ask:
    """Returns a question with whom it is for: a confirmation is always for people, never for an agent."""
    topic, to = agentx.get("topic"), agentx.get("to")
    return Ask(
        agent_id=agent_id,
        question=words,
        to=to if isinstance(to, str) and to.strip() and not asked.is_confirmation else HUMAN,
        topic=topic if isinstance(topic, str) and topic else None,
        blocking=agentx.get("blocking") is not False,
        asked=asked,
    )


def reply_to(
    reply_token: str,
    response: Response,
    *,
    confirms: bool,
    subscription_id: str,
    answered_at: datetime,
    decided_by: str | None,
    correlation_id: str | None,
    rationale: str | None = None,
) -> dict[str, Any]:
    """Returns a `confirmation.reply` (chapter 6 §6.3) if it `confirms`, else a `clarification.reply` (§6.5), with only the
    fields of its schema.
    """
    if confirms and response not in DECISIONS:
        raise ValueError("expected the decision accept or reject")
    reply: dict[str, Any] = {
        "type": "confirmation.reply" if confirms else "clarification.reply",
        "reply_token": reply_token,
        "decision" if confirms else "response": response,
        "subscription_id": subscription_id,
        "timestamp": iso(answered_at),
    }
    if decided_by:
        reply["decided_by"] = decided_by[:256]
    if confirms and rationale:
        reply["decision_rationale"] = rationale[:RATIONALE_LIMIT]
    if correlation_id:
        reply["correlation_id"] = correlation_id
    return reply


def _asked(event_type: str, obj: Mapping[str, Any], problems: list[str]) -> Asked | None:
    """Returns what an event asks, or None."""
    if event_type == CONFIRMATION:
        return _asked_to_approve(obj, problems)
    return _asked_to_clarify(obj, problems) if event_type == CLARIFICATION else None


def _asked_to_approve(obj: Mapping[str, Any], problems: list[str]) -> Asked | None:
    wanted, token = _confirmation(obj, problems), text_in(obj.get("reply_token"))
    if token is None:
        problems.append("reply_token missing")
    if wanted is None or token is None:
        return None
    seconds = timeout_in(obj.get("timeout_seconds"), problems)
    asked = Question(
        reply_token=token, kinds=("confirmation",), default_response=wanted.default_decision, wanted=wanted
    )
    return wanted.words, seconds, asked


def _asked_to_clarify(obj: Mapping[str, Any], problems: list[str]) -> Asked | None:
    words = text_in(obj.get("question")) or text_in(obj.get("summary_normal"))
    token = text_in(obj.get("reply_token"))
    if words is None or token is None:
        problems.append("question missing" if words is None else "reply_token missing")
        return None
    choices = _choices(obj, problems)
    seconds = timeout_in(obj.get("timeout_seconds"), problems)
    asked = Question(
        reply_token=token,
        kinds=_kinds(obj, choices, problems),
        choices=choices,
        multi_select=obj.get("multi_select") is True and bool(choices),
        context=text_in(obj.get("context")),
        default_response=_default(obj.get("default_response")),
    )
    return words, seconds, asked


def _choices(obj: Mapping[str, Any], problems: list[str]) -> tuple[Choice, ...]:
    source = obj.get("choices")
    if not isinstance(source, list) or not source:
        source = obj.get("options")
    if not isinstance(source, list):
        return ()
    found: dict[str, Choice] = {}
    for item in source:
        if isinstance(item, Mapping):
            value, label = _text_or_number(item.get("value")), _text_or_number(item.get("label"))
        else:
            value = label = _text_or_number(item)
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
    return _text_or_number(value)


def _text_or_number(value: object) -> str | None:
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
    """Returns the action to approve; or None, with the problem noted, if no one could decide on it."""
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
        irreversible=_boolean(irreversible),
        reversibility=_known_word(obj, "reversibility", _REVERSIBILITY, problems),
        default_decision=default,
        allowed_replies=allowed,
        extra_context=_portable(extra, 0) or None if isinstance(extra, Mapping) else None,
    )
    if found.breaks_default_rule:
        problems.append("default_decision accepts an irreversible action")
    return found


def _allowed(value: object) -> tuple[Decision, ...]:
    """Returns the decisions in `allowed_replies`; both, if it is empty or not a list."""
    if not isinstance(value, list) or not value:
        return DECISIONS
    return tuple(decision for decision in DECISIONS if decision in value)


def _visible(value: object) -> str | None:
    """Returns a string with at least one visible character: not only blanks, controls and direction marks."""
    text = text_in(value)
    return text if text and any(char.isprintable() and char != " " for char in text) else None


def _decision(value: object) -> Decision | None:
    """Reads a decision in any spelling, so that no default is missed."""
    text = (text_in(value) or "").strip().casefold()
    return next((decision for decision in DECISIONS if decision == text), None)


def _known_word(obj: Mapping[str, Any], key: str, known: frozenset[str], problems: list[str]) -> str | None:
    if obj.get(key) is None:
        return None
    word = (text_in(obj[key]) or "unreadable").strip().casefold()
    if word not in known:
        problems.append(f"{key} has an unknown value")
    return word


def _boolean(value: object) -> bool | None:
    """Reads a boolean, also as a word; anything unclear is True, the graver value."""
    if value is None or isinstance(value, bool):
        return value
    return str(value).strip().casefold() not in {"false", "no", "0"}


def _portable(value: object, depth: int) -> Any:
    """Returns the value in a form that every JSON reader accepts: not too deep, and without odd numbers or half characters."""
    if depth > _DEEPEST and isinstance(value, (Mapping, list)):
        return _as_text(value)
    if isinstance(value, Mapping):
        return {whole_characters(str(key)): _portable(each, depth + 1) for key, each in value.items()}
    if isinstance(value, list):
        return [_portable(each, depth + 1) for each in value]
    if isinstance(value, str):
        return whole_characters(value)
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    is_huge = isinstance(value, int) and not isinstance(value, bool) and abs(value) > _LARGEST_NUMBER
    return str(value) if is_huge else value


def _as_text(value: object) -> str:
    try:
        return json.dumps(value)
    except RecursionError:
        return "(nested too deeply to be kept)"


def text_in(value: object) -> str | None:
    """Returns a string that is not blank, through `whole_characters`; None for anything else."""
    if not isinstance(value, str) or not value.strip():
        return None
    return whole_characters(value)


def timeout_in(value: object, problems: list[str]) -> int | None:
    """Returns `timeout_seconds` as whole seconds, at least 1; notes a problem and returns None if it is invalid."""
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
    """Reads an RFC 3339 time, in UTC if it has no zone; None if it is invalid."""
    if not isinstance(value, str):
        return None
    try:
        read = datetime.fromisoformat(value)
        moment = (read if read.tzinfo else read.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError):
        return None
    # Close to the limits of datetime, adding a deadline or an offset would overflow.
    return moment if _FIRST_YEAR <= moment.year <= _LAST_YEAR else None
