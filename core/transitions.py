"""The legal changes of a clarification. Pure: every function returns a new record.

Statuses and transitions: the Clarification Protocol's §6.1, as made exact in the project's design.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from core.clarification import (
    TRANSITIONS,
    UNDELIVERED,
    Aaep,
    Answer,
    AnsweredBy,
    Ask,
    Clarification,
    CloseReason,
    Decider,
    Entry,
    Option,
    ReplyState,
    Status,
)
from core.errors import AlreadyAnswered, Closed, IllegalTransition


def opened(issue: int, seq: int, ask: Ask, now: datetime, sla: timedelta) -> Clarification:
    """A new clarification, round 1. `sla` is the time to the first nudge."""
    return Clarification(
        id=f"CLR-{issue}-{seq:03d}",
        issue_number=issue,
        from_=ask.agent_id,
        to=ask.to,
        topic=ask.topic or ask.summary_terse or _headline(ask.question),
        blocking=ask.blocking,
        status="pending",
        max_rounds=5 if ask.blocking else 6,
        created=now,
        stale_after=_stale_after(now, sla, ask.expires_at),
        thread=(Entry(round=1, from_=ask.agent_id, type="question", body=ask.question, timestamp=now),),
        revision=1,
        aaep=_asked(ask, ()),
    )


def followed_up(record: Clarification, ask: Ask, now: datetime, sla: timedelta) -> Clarification:
    """The same matter asked again after an answer: the next round, or escalated when rounds are used up."""
    exhausted = record.round >= record.max_rounds
    number = record.round + (0 if exhausted else 1)
    thread = (
        *record.thread,
        Entry(round=number, from_=ask.agent_id, type="question", body=ask.question, timestamp=now),
    )
    if exhausted:
        words = f"Rounds exhausted: asked again after {record.max_rounds} rounds."
        thread = (
            *thread,
            Entry(round=number, from_="clarify-bot", type="escalation", body=words, timestamp=now),
        )
    past = record.asked
    earlier = (
        *past.earlier,
        past.model_dump(mode="json", by_alias=True, exclude_none=True, exclude={"earlier"}),
    )
    return _changed(
        record,
        "escalated" if exhausted else "pending",
        round=number,
        thread=thread,
        stale_after=_stale_after(now, sla, ask.expires_at),
        aaep=_asked(ask, earlier),
    )


def answered(record: Clarification, answer: Answer, decider: Decider, at: datetime) -> Clarification:
    """Record the first answer, given by a person or agent at `at`.

    Raises:
        AlreadyAnswered: somebody was first.
        Closed: it was resolved, abandoned or has expired at `at`.
    """
    if not record.is_open:
        raise (
            AlreadyAnswered(record) if record.asked.response is not None or record.answer else Closed(record)
        )
    asked = record.asked
    at = max(at, record.asked_last)  # by another clock, Slack's, it may come out earlier
    entry = Entry(
        round=record.round, from_=decider.decided_by, type="answer", body=answer.label, timestamp=at
    )
    news: dict[str, Any] = {
        "response": answer.response,
        "label": answer.label,
        "decided_by": decider.decided_by,
        "answered_at": at,
        "answered_by": AnsweredBy(surface=decider.surface, team=decider.team, user=decider.user),
        "reply": "sending" if asked.reply_token else None,
    }
    escalated = record.status == "escalated"
    return _changed(
        record,
        "resolved" if escalated else "answered",
        thread=(*record.thread, entry),
        resolved_at=at if escalated else None,
        aaep=asked.model_copy(update=news),
    )


def is_adoptable(record: Clarification) -> bool:
    """Whether another implementation wrote an answer that the waiting producer has not been sent."""
    asked = record.asked
    waits = asked.reply_token is not None and asked.response is None and asked.reply is None
    return waits and record.status in {"answered", "resolved"} and record.answer is not None


def adopted(record: Clarification, answer: Answer, entry: Entry) -> Clarification:
    """An answer that another implementation wrote, made ready to be sent. Its author is an agent's role."""
    who = entry.from_ if ":" in entry.from_ else f"agent:{entry.from_}"
    news: dict[str, Any] = {
        "response": answer.response,
        "label": answer.label,
        "decided_by": who[:256],
        "answered_at": entry.timestamp,
        "answered_by": AnsweredBy(surface="ledger"),
        "reply": "sending",
    }
    asked = record.asked.model_copy(update=news)
    return record.model_copy(update={"aaep": asked, "revision": record.revision + 1})


def reopened(record: Clarification, now: datetime) -> Clarification:
    """Another implementation's answer does not fit the question: it waits for one that does."""
    words = "The answer does not fit the question; it is open again."
    entry = Entry(
        round=record.round + 1, from_="clarify-bot", type="question", body=record.question, timestamp=now
    )
    note = Entry(round=record.round, from_="clarify-bot", type="resolution", body=words, timestamp=now)
    return record.model_copy(
        update={
            "status": "pending",
            "round": record.round + 1,
            "resolved_at": None,
            "thread": (*record.thread, note, entry),
            "revision": record.revision + 1,
        }
    )


def has_expired(record: Clarification, at: datetime) -> bool:
    """Whether an open clarification's time had run out at `at`."""
    expires = record.asked.expires_at
    return record.is_open and expires is not None and at >= expires


def abandoned(record: Clarification, reason: CloseReason, now: datetime) -> Clarification:
    """Closed without an answer being used. The words go into the thread, for whoever reads the ledger."""
    entry = Entry(
        round=record.round,
        from_="clarify-bot",
        type="resolution",
        body=f"Abandoned: {reason}.",
        timestamp=now,
    )
    return _changed(
        record,
        "abandoned",
        thread=(*record.thread, entry),
        resolved_at=now,
        aaep=record.asked.model_copy(update={"closed": reason}),
    )


def resolved(record: Clarification, now: datetime) -> Clarification:
    """The requester took the answer."""
    return _changed(record, "resolved", resolved_at=now)


def reply_settled(record: Clarification, state: ReplyState, note: str | None) -> Clarification:
    """Where the reply to the producer stands. Does not change the status."""
    asked = record.asked.model_copy(update={"reply": state, "reply_note": note})
    return record.model_copy(update={"aaep": asked, "revision": record.revision + 1})


def went_on(record: Clarification, at: datetime) -> Clarification:
    """The session was seen going on after the answer."""
    asked = record.asked.model_copy(update={"went_on_at": at})
    return record.model_copy(update={"aaep": asked, "revision": record.revision + 1})


def is_known(record: Clarification, ask: Ask) -> bool:
    """Whether this record holds the very question of `ask`, in any round: same session, token and words.

    Some producers use a token again for another question: dropping that would leave it unseen.
    """
    asked = record.asked
    if (asked.producer, asked.session_id) != (ask.producer, ask.session_id):
        return False
    tokens = {asked.reply_token, *(past.get("replyToken") for past in asked.earlier)}
    return ask.reply_token in tokens and any(
        entry.type == "question" and entry.body == ask.question for entry in record.thread
    )


def is_same_matter(record: Clarification, ask: Ask) -> bool:
    """Whether `ask` repeats what an answered, not yet resolved record of the same session asked."""
    if record.status != "answered" or record.asked.session_id != ask.session_id:
        return False
    if record.asked.reply in UNDELIVERED:  # it cannot follow up on what it was not told yet
        return False
    if record.asked.producer != ask.producer:
        return False
    return (ask.topic is not None and ask.topic == record.topic) or _words(ask.question) == _words(
        record.question
    )


def _changed(record: Clarification, status: Status, **update: Any) -> Clarification:
    if status not in TRANSITIONS[record.status]:
        raise IllegalTransition(record.id, record.status, status)
    return record.model_copy(update={"status": status, "revision": record.revision + 1, **update})


def _asked(ask: Ask, earlier: tuple[dict[str, Any], ...]) -> Aaep:
    return Aaep(
        producer=ask.producer,
        agent_id=ask.agent_id,
        agent_name=ask.agent_name,
        session_id=ask.session_id,
        event_id=ask.event_id,
        reply_token=ask.reply_token,
        correlation_id=ask.correlation_id,
        asked_at=ask.asked_at,
        received_at=ask.received_at,
        expires_at=ask.expires_at,
        kinds=ask.kinds,
        choices=tuple(Option(value=choice.value, label=choice.label) for choice in ask.choices),
        multi_select=ask.multi_select,
        context=ask.context,
        default_response=ask.default_response,
        summary_terse=ask.summary_terse,
        summary_detailed=ask.summary_detailed,
        earlier=earlier,
    )


def _stale_after(now: datetime, sla: timedelta, expires_at: datetime | None) -> datetime:
    """The first nudge: after the SLA, and at most half of what is left of the question's timeout."""
    return now + (sla if expires_at is None else max(timedelta(0), min(sla, (expires_at - now) / 2)))


def _headline(text: str) -> str:
    words = " ".join(text.split())
    return words if len(words) <= 200 else words[:199] + "…"


def _words(text: str) -> str:
    return " ".join(text.casefold().split())
