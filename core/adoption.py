"""Answers that other implementations wrote into a ledger, made ours or given back. Pure.

They speak for no person, whatever name stands beside them, and accept no confirmation: any program that can write the
folder could have written them.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from core.answers import from_text
from core.clarification import Answer, AnsweredBy, Clarification, Entry
from core.deadlock import HUMAN, agent_key
from core.errors import AnswerRejected
from core.escalation import escalation_words
from core.transitions import NOT_CHASED, US, escalated, new_entry, renewed, stale_after

MISFIT = "The answer does not fit the question; it is open again."
NO_CONSENT = "Only people in Slack accept this; it is open again."
_NAME = 256
_UNANSWERED: dict[str, Any] = dict.fromkeys(
    (
        "response",
        "label",
        "rationale",
        "decided_by",
        "answered_at",
        "answered_by",
        "reply",
        "reply_note",
        "seal",
    )
)


@dataclass(frozen=True, slots=True)
class Claim:
    """An answer that another writer put into a ledger. `record`: without what that writer said of who gave it;
    `answer`: None where it fits no question, or is consent; `consents`: it is; `by`: who is named.
    """

    record: Clarification
    entry: Entry | None
    answer: Answer | None
    consents: bool
    by: str


def author_of(named: str) -> str:
    """Who answered, as another writer names them: an agent by its role; of anybody else the ledger says so."""
    role = named.removeprefix("agent:")
    is_role = role.strip() and ":" not in role and "@" not in role and agent_key(role) != HUMAN
    return (f"agent:{role}" if is_role else f"ledger:{named.removeprefix('ledger:')}")[:_NAME]


def claim_of(record: Clarification, *, vouched: bool) -> Claim | None:
    """What another writer says was answered to a waiting producer; None: nothing, or it is ours. `vouched`: whether
    what it says of who answered is true.
    """
    asked = record.asked
    if asked.response is not None:
        if vouched or asked.reply != "sending" or record.status not in {"answered", "resolved"}:
            return None
        record = record.model_copy(update={"aaep": asked.model_copy(update=_UNANSWERED)})
    elif not is_adoptable(record):
        return None
    entry = decided_elsewhere(record)
    by = author_of(entry.from_ if entry else asked.decided_by or "")
    consents, answer = record.asked.is_confirmation and asked.response == "accept", None
    if entry is not None:
        try:
            answer = from_text(record.asked, entry.body)
        except AnswerRejected:
            answer = None
        if answer is not None and record.asked.is_confirmation and answer.response == "accept":
            consents, answer = True, None
    return Claim(record, entry, answer, consents, by)


def settled_claim(claim: Claim, now: datetime, sla: timedelta) -> Clarification:
    """What becomes of it: adopted where it can be used; else the question is open again, or stays closed."""
    if claim.answer is not None and claim.entry is not None:
        return adopted(claim.record, claim.answer, claim.entry)
    if claim.consents or claim.entry is None or claim.entry.type == "answer":
        return reopened(claim.record, now, sla, NO_CONSENT if claim.consents else MISFIT)
    return not_usable(claim.record)


def is_misnamed(record: Clarification, *, vouched: bool) -> bool:
    """Whether another writer names a person as who answered what no producer waits for any more, or ever did."""
    asked = record.asked
    is_over = asked.response is not None and asked.reply != "sending" and not record.is_open
    return not vouched and is_over and author_of(asked.decided_by or "") != asked.decided_by


def renamed(record: Clarification) -> Clarification:
    """By who another writer says, as far as that can be believed."""
    asked = record.asked
    entry = decided_elsewhere(record)
    by = author_of(asked.decided_by or (entry.from_ if entry else ""))
    news = {"decided_by": by, "answered_by": AnsweredBy(surface="ledger")}
    return renewed(record, aaep=asked.model_copy(update=news))


def is_adoptable(record: Clarification) -> bool:
    """Whether another implementation wrote an answer that the waiting producer has not been sent."""
    asked = record.asked
    waits = asked.reply_token is not None and asked.response is None and asked.reply is None
    return waits and asked.closed is None and decided_elsewhere(record) is not None


def decided_elsewhere(record: Clarification) -> Entry | None:
    """The entry with the answer of one that is answered or resolved: a resolution without an answer is one, too."""
    if record.status not in {"answered", "resolved"}:
        return None
    last = record.thread[-1] if record.thread else None
    resolution = last if last is not None and last.type == "resolution" and last.from_ != US else None
    return record.answer or (resolution if record.status == "resolved" else None)


def not_usable(record: Clarification) -> Clarification:
    """Another implementation resolved it with words that are no answer to the question: so it stays."""
    asked = record.asked.model_copy(update={"closed": "resolved elsewhere"})
    return renewed(record, aaep=asked)


def adopted(record: Clarification, answer: Answer, entry: Entry) -> Clarification:
    """An answer that another implementation wrote, made ready to be sent."""
    news: dict[str, Any] = {
        "response": answer.response,
        "label": answer.label,
        "rationale": answer.rationale,
        "decided_by": author_of(entry.from_),
        "answered_at": entry.timestamp,
        "answered_by": AnsweredBy(surface="ledger"),
        "reply": "sending",
    }
    return renewed(record, aaep=record.asked.model_copy(update=news))


def reopened(record: Clarification, now: datetime, sla: timedelta, words: str = MISFIT) -> Clarification:
    """Another implementation's answer cannot be used, as `words` say: it waits, as a new one, for one that can.

    That takes a round; when rounds are used up, it is escalated.
    """
    exhausted = record.round >= record.max_rounds
    number = record.round + (0 if exhausted else 1)
    thread = (
        *record.thread,
        new_entry(record.round, US, "resolution", words, now),
        new_entry(number, US, "question", record.question, now),
    )
    again = renewed(
        record,
        status="pending",
        round=number,
        resolved_at=None,
        stale_after=stale_after(now, sla, record.expires_at),
        thread=thread,
        aaep=record.asked.model_copy(update=NOT_CHASED),
    )
    if not exhausted:
        return again
    return escalated(again, "rounds exhausted", escalation_words(again, "rounds exhausted"), now)
