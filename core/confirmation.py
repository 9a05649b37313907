"""What an `agent.awaiting.confirmation` asks, and its reply: lenient in what is read, strict in what is sent.

Source: AAEP specification chapter 6 (§6.3 the reply, §6.4 risk and defaults) and its JSON schemas. A broken event
that names no action, or that no reply could reach, is none: nobody is asked to accept what was not said.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

from core.clock import iso
from core.reading import text_in, whole_characters

Decision = Literal["accept", "reject"]
DECISIONS: tuple[Decision, ...] = ("accept", "reject")
RATIONALE_LIMIT = 4096
UNTOLD = "(the agent did not say)"
_RISKS = frozenset({"low", "medium", "high"})
_IRREVERSIBLE = "irreversible"
_REVERSIBILITY = frozenset({"reversible", "reversible_with_effort", _IRREVERSIBLE})
_WHOLE = 2**53  # as far as all readers of JSON count
_DEEPEST = 6  # levels kept as they are; what lies deeper is kept as JSON text


@dataclass(frozen=True, slots=True)
class Confirmation:
    """An action that waits for consent. `risk_level` and `reversibility` are as sent, in lower case, also where the
    schema knows no such word. `default_decision`: what the agent does without an answer; None: it did not say.
    `allowed`: the decisions that it takes, of the two that a reply can carry.
    """

    action: str
    consequence: str | None = None
    risk_level: str | None = None
    irreversible: bool | None = None
    reversibility: str | None = None
    default_decision: Decision | None = None
    allowed: tuple[Decision, ...] = DECISIONS
    extra_context: Mapping[str, Any] = field(default_factory=dict)

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
        """Whether silence would set off what §6.4.1 says it must not: an irreversible action of medium or high risk."""
        grave = self.risk_level not in {None, "low"}
        return self.default_decision == "accept" and self.is_irreversible and grave

    @property
    def words(self) -> str:
        """It in words, for whoever reads a ledger."""
        return f"Confirm: {self.action}\nConsequence: {self.consequence or UNTOLD}"


def read_confirmation(obj: Mapping[str, Any], problems: list[str]) -> Confirmation | None:
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
        risk_level=_word(obj, "risk_level", _RISKS, problems),
        irreversible=_truth(irreversible),
        reversibility=_word(obj, "reversibility", _REVERSIBILITY, problems),
        default_decision=default,
        allowed=allowed,
        extra_context=_kept_object(extra) if isinstance(extra, Mapping) else {},
    )
    if found.breaks_default_rule:
        problems.append("default_decision accepts an irreversible action")
    return found


def confirmation_reply(
    *,
    reply_token: str,
    decision: str,
    subscription_id: str,
    answered_at: datetime,
    decided_by: str | None,
    rationale: str | None,
    correlation_id: str | None,
) -> dict[str, Any]:
    """A `confirmation.reply` as its schema wants it (chapter 6 §6.3): nothing beside the known fields."""
    if decision not in DECISIONS:
        raise ValueError("expected the decision accept or reject")
    reply: dict[str, Any] = {
        "type": "confirmation.reply",
        "reply_token": reply_token,
        "decision": decision,
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


def _allowed(value: object) -> tuple[Decision, ...]:
    """Of `allowed_replies` those that a reply can carry; what is no list, or an empty one, says nothing."""
    if not isinstance(value, list) or not value:
        return DECISIONS
    return tuple(decision for decision in DECISIONS if decision in value)


def _visible(value: object) -> str | None:
    """A string in which there is something to see: not only blanks, controls and what steers the direction."""
    said = text_in(value)
    return said if said and any(char.isprintable() and char != " " for char in said) else None


def _decision(value: object) -> Decision | None:
    """As meant, in any case: what silence does must not be missed for its spelling."""
    said = (text_in(value) or "").strip().casefold()
    return next((decision for decision in DECISIONS if decision == said), None)


def _word(obj: Mapping[str, Any], key: str, known: frozenset[str], problems: list[str]) -> str | None:
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


def _kept_object(value: Mapping[str, Any]) -> dict[str, Any]:
    return {whole_characters(str(key)): _kept(each, 1) for key, each in value.items()}


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
