"""What a strict AAEP producer makes of the messages it gets: decisions only, no network.

Sources: AAEP 1.0, chapters 5 (handshake) and 6 (replies), appendix B.1 (HTTP and SSE).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, NamedTuple

VERSION = "1.0.0"
CLARIFICATION_REPLY, CONFIRMATION_REPLY = "clarification.reply", "confirmation.reply"
_ALWAYS = {"type", "reply_token", "subscription_id", "timestamp"}
_OPTIONAL = {"decided_by", "correlation_id"}
_SAID = {CLARIFICATION_REPLY: "response", CONFIRMATION_REPLY: "decision"}
_BESIDE = {CLARIFICATION_REPLY: {"confidence"}, CONFIRMATION_REPLY: {"decision_rationale"}}
_CRITICAL = frozenset(
    f"aaep:agent.{name}"
    for name in ("awaiting.clarification", "awaiting.confirmation", "handoff.requested", "session.errored")
)


class Refusal(NamedTuple):
    """Why a message is refused: the body of the 400."""

    error: str
    message: str


@dataclass(frozen=True, slots=True)
class Asked:
    """A question or a confirmation that waits for its reply, of type `reply`; `until` by the producer's own clock."""

    token: str
    session_id: str
    kinds: tuple[str, ...]
    values: tuple[str, ...]
    until: datetime
    correlation_id: str | None
    reply: str = CLARIFICATION_REPLY

    @classmethod
    def by(cls, event: Mapping[str, Any]) -> Asked:
        """Read it from an `agent.awaiting.clarification`, or one with plain `options` as found in the wild, or from an
        `agent.awaiting.confirmation`.
        """
        is_consent = str(event.get("type")).endswith("awaiting.confirmation")
        values = tuple(str(choice["value"]) for choice in event.get("choices", ()))
        values = values or tuple(event.get("options", ()))
        kinds = event.get("accepted_response_kinds") or (["multiple_choice"] if values else ["freetext"])
        if event.get("free_form_allowed") or event.get("multi_select"):
            kinds = [*kinds, "freetext"]  # several labels are one string
        if is_consent:
            kinds, values = ["multiple_choice"], tuple(event.get("allowed_replies", ("accept", "reject")))
        asked_at = datetime.fromisoformat(str(event["timestamp"]))
        return cls(
            token=str(event["reply_token"]),
            session_id=str(event["session_id"]),
            kinds=tuple(kinds),
            values=values,
            until=asked_at + timedelta(seconds=float(event.get("timeout_seconds", 86400))),
            correlation_id=event.get("correlation_id"),
            reply=CONFIRMATION_REPLY if is_consent else CLARIFICATION_REPLY,
        )


@dataclass(slots=True)
class Subscription:
    """What was agreed with one subscriber. `start` is the place in the log where it began."""

    id: str
    start: int
    capabilities: Mapping[str, Any] = field(default_factory=dict)

    def wants(self, event_type: str) -> bool:
        """Tell whether an event is sent; a critical one always is, whatever was agreed."""
        if event_type in _CRITICAL:
            return True
        filters = self.capabilities.get("event_filters") or {}
        names = {event_type, event_type.removeprefix("aaep:")}
        included, excluded = filters.get("include"), filters.get("exclude") or ()
        return (not included or bool(names & set(included))) and not names & set(excluded)


def judge_subscription(request: object) -> Refusal | None:
    """Refuse what is no `subscription.request`; the error is a `reason_code` of the protocol."""
    if not isinstance(request, Mapping) or request.get("type") != "subscription.request":
        return Refusal("unknown", "type must be subscription.request")
    if not str(request.get("aaep_version", "")).startswith("1."):
        return Refusal("version_unsupported", "aaep_version must be 1.x")
    if not isinstance(request.get("subscriber_id"), str) or not request["subscriber_id"]:
        return Refusal("unknown", "subscriber_id is required")
    capabilities = request.get("capabilities")
    if not isinstance(capabilities, Mapping):
        return Refusal("unknown", "capabilities must be an object")
    if not capabilities.get("supports_clarification_reply"):
        return Refusal("capabilities_incompatible", "capabilities.supports_clarification_reply must be true")
    return None


def judge_reply(reply: Mapping[str, Any], asked: Asked | None, *, now: datetime) -> Refusal | None:
    """Decide on a reply to the question of its token, None where no such question waits."""
    kind = str(reply.get("type"))
    required = _ALWAYS | {_SAID[kind]}
    unknown = sorted(set(reply) - required - _OPTIONAL - _BESIDE[kind])
    missing = sorted(required - set(reply))
    if unknown or missing:
        return Refusal("invalid_reply", f"unknown fields: {unknown}; missing fields: {missing}")
    if asked is None:
        return Refusal("unknown_token", "no open question has this reply_token")
    if now >= asked.until:
        return Refusal("expired", f"the question expired at {asked.until.isoformat()}")
    if wrong := _wrong_field(reply, asked):
        return Refusal("invalid_reply", wrong)
    if not any(_fits(reply[_SAID[kind]], each, asked.values) for each in asked.kinds):
        return Refusal("invalid_response", f"expected a {_SAID[kind]} of kind {' or '.join(asked.kinds)}")
    return None


def _wrong_field(reply: Mapping[str, Any], asked: Asked) -> str | None:  # noqa: PLR0911 - a field a line
    if reply["type"] != asked.reply:
        return f"type: expected {asked.reply}"
    if not _is_time(reply["timestamp"]):
        return "timestamp must be RFC 3339 with an offset"
    if "decided_by" in reply and not (
        isinstance(reply["decided_by"], str) and 1 <= len(reply["decided_by"]) <= 256
    ):
        return "decided_by must have 1 to 256 characters"
    if reply.get("correlation_id") != asked.correlation_id:
        return "correlation_id must be the question's"
    rationale = reply.get("decision_rationale", "because")
    if not isinstance(rationale, str) or not 1 <= len(rationale) <= 4096:
        return "decision_rationale must have 1 to 4096 characters"
    confidence = reply.get("confidence", 1)
    if isinstance(confidence, bool) or not isinstance(confidence, int | float) or not 0 <= confidence <= 1:
        return "confidence must be from 0 to 1"
    return None


def _fits(response: object, kind: str, values: tuple[str, ...]) -> bool:
    match kind:
        case "yes_no":
            return isinstance(response, bool)
        case "numeric":
            return isinstance(response, int | float) and not isinstance(response, bool)
        case "multiple_choice":
            return response in values
        case _:
            return isinstance(response, str) and 1 <= len(response) <= 16384


def _is_time(value: object) -> bool:
    if not isinstance(value, str) or not re.fullmatch(
        r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)", value
    ):
        return False
    try:
        datetime.fromisoformat(value)
    except ValueError:
        return False
    return True


def frame(event_id: str, data: str) -> bytes:
    """One SSE frame; `data` may hold line breaks."""
    lines = "".join(f"data: {line}\n" for line in data.split("\n"))
    return f"id: {event_id}\n{lines}\n".encode()


def json_text(event: Mapping[str, Any]) -> str:
    return json.dumps(event, ensure_ascii=False, separators=(",", ":"))
