"""Clarifications as programs see them: the JSON of `--json` and of `/clarifications`."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from core.approvals import approved_by
from core.clarification import Clarification, answer_of
from core.clock import iso
from core.matching import author_of

_FIELDS = (
    "id",
    "issueNumber",
    "from",
    "to",
    "topic",
    "blocking",
    "status",
    "round",
    "maxRounds",
    "created",
    "staleAfter",
    "resolvedAt",
    "revision",
)


def record_json(record: Clarification) -> dict[str, Any]:
    """Returns the ledger's own fields and the latest answer: text, what the agent got, who, when, how. For a form
    also `schema`. Omits the reply token and what only producers and we need.
    """
    raw = record.model_dump(mode="json", by_alias=True)
    asked, answer = record.asked, answer_of(record)
    return {field: raw[field] for field in _FIELDS} | {
        "thread": [entry.as_json() for entry in record.thread],
        "question": record.question,
        "context": asked.context,
        "acceptedResponseKinds": list(asked.kinds),
        "choices": [{"value": each.value, "label": each.label} for each in asked.choices],
        "confirmation": _consent_json(record),
        "expiresAt": _moment(asked.expires_at),
        "via": asked.via,
        "heldBack": asked.held_back,
        "escalatedFor": record.attention.escalated_for if record.status == "escalated" else None,
        "answer": answer.body if answer else None,
        "response": record.given.response,
        "rationale": record.given.rationale,
        "decidedBy": record.given.decided_by or (author_of(answer.from_) if answer else None),
        "answeredAt": _moment(record.given.answered_at or (answer.timestamp if answer else None)),
        "answeredThrough": record.given.answered_by.surface if record.given.answered_by else None,
        "receipt": record.current.receipt,
        **({"schema": asked.direct.form} if asked.direct and asked.direct.form else {}),
    }


def _consent_json(record: Clarification) -> dict[str, Any] | None:
    """Returns the action to approve, or None for a question."""
    wanted = record.current.confirmation
    if wanted is None:
        return None
    return {
        "action": wanted.action,
        "consequence": wanted.consequence,
        "riskLevel": wanted.risk_level,
        "irreversible": wanted.irreversible,
        "reversibility": wanted.reversibility,
        "defaultDecision": wanted.default_decision,
        "allowedReplies": list(wanted.allowed),
        "extraContext": wanted.extra_context or {},
        "arguments": record.current.arguments,
        "approvedBy": approved_by(record.current),
        "approvalsNeeded": record.asked.needed,
    }


def _moment(moment: datetime | None) -> str | None:
    return None if moment is None else iso(moment)
