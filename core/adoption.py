"""Answers that other implementations wrote into a ledger, made ours or given back. Pure."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from core.clarification import Answer, AnsweredBy, Clarification, Entry
from core.summary import escalation_words
from core.transitions import NOT_CHASED, US, escalated, new_entry, renewed, stale_after


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
    """An answer that another implementation wrote, made ready to be sent. Its author is an agent's role."""
    who = entry.from_ if ":" in entry.from_ else f"agent:{entry.from_}"
    news: dict[str, Any] = {
        "response": answer.response,
        "label": answer.label,
        "rationale": answer.rationale,
        "decided_by": who[:256],
        "answered_at": entry.timestamp,
        "answered_by": AnsweredBy(surface="ledger"),
        "reply": "sending",
    }
    return renewed(record, aaep=record.asked.model_copy(update=news))


def reopened(record: Clarification, now: datetime, sla: timedelta) -> Clarification:
    """Another implementation's answer does not fit the question: it waits, as a new one, for one that does.

    That takes a round; when rounds are used up, it is escalated.
    """
    exhausted = record.round >= record.max_rounds
    number = record.round + (0 if exhausted else 1)
    words = "The answer does not fit the question; it is open again."
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
