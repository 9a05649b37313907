"""The legal changes of a clarification. Pure: every function returns a new record.

Statuses and transitions: the Clarification Protocol's §6.1, as made exact in the project's design.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from core.attention import escalation_limit
from core.clarification import (
    TRANSITIONS,
    Aaep,
    Answer,
    AnsweredBy,
    Ask,
    Clarification,
    CloseReason,
    Decider,
    Entry,
    EntryType,
    Holder,
    Option,
    ReplyState,
    Status,
    Why,
)
from core.errors import AlreadyAnswered, Closed, IllegalTransition
from core.escalation import escalation_words

US = "clarify-bot"
_NOT_HELD = {"taken_by": None, "handed_to": None}
NOT_CHASED = {"nudges": 0, "nudged_at": None, "escalated_at": None, "escalated_for": None, **_NOT_HELD}


def opened(issue: int, seq: int, ask: Ask, now: datetime, sla: timedelta) -> Clarification:
    """A new clarification, round 1. `sla` is the time to the first nudge, where the question brings none."""
    return Clarification(
        id=f"CLR-{issue}-{seq:03d}",
        issue_number=issue,
        from_=ask.agent_id,
        to=ask.to,
        topic=ask.topic or ask.summary_terse or _headline(ask.question),
        blocking=ask.blocking,
        status="pending",
        max_rounds=ask.max_rounds or (5 if ask.blocking else 6),
        created=now,
        stale_after=stale_after(now, ask.sla or sla, ask.expires_at),
        thread=(new_entry(1, ask.agent_id, "question", ask.question, now),),
        revision=1,
        aaep=_asked(ask, ()),
    )


def followed_up(record: Clarification, ask: Ask, now: datetime, sla: timedelta) -> Clarification:
    """The same matter asked again after an answer: the next round, or escalated when rounds are used up."""
    exhausted = record.round >= record.max_rounds
    number = record.round + (0 if exhausted else 1)
    past = record.asked
    earlier = (
        *past.earlier,
        past.model_dump(mode="json", by_alias=True, exclude_none=True, exclude={"earlier"}),
    )
    asked_again: dict[str, Any] = {
        "round": number,
        "thread": (*record.thread, new_entry(number, ask.agent_id, "question", ask.question, now)),
        "stale_after": stale_after(now, ask.sla or sla, ask.expires_at),
        "aaep": _asked(ask, earlier),
    }
    if not exhausted:
        return _changed(record, "pending", **asked_again)
    again = record.model_copy(update=asked_again)
    return escalated(again, "rounds exhausted", escalation_words(again, "rounds exhausted"), now)


def nudged(record: Clarification, now: datetime, sla: timedelta) -> Clarification:
    """The answerers are nudged at `now`; the time to the next step begins anew.

    Raises:
        AlreadyAnswered, Closed: it takes no answer any more.
        IllegalTransition: it was escalated.
    """
    check_open(record)
    if record.status == "escalated":
        raise IllegalTransition(record.id, record.status, "pending")
    latest, sla = escalation_limit(record), record.sla(sla)
    later = now + sla if latest is None else max(now, min(now + sla, latest))
    at = max(now, record.asked_last)  # so that it counts for this question, whoever's clock went back
    asked = record.asked.model_copy(update={"nudges": record.nudges + 1, "nudged_at": at})
    return renewed(record, status="pending", stale_after=later, aaep=asked)


def escalated(record: Clarification, why: Why, words: str, now: datetime, by: str = US) -> Clarification:
    """Passed on to the person on call. `words` (plain text) go into the thread.

    Raises:
        IllegalTransition: it is already, or closed.
    """
    news: dict[str, Any] = {"escalated_at": now, "escalated_for": why, **_NOT_HELD}
    return _changed(
        record,
        "escalated",
        thread=(*record.thread, new_entry(record.round, by, "escalation", words, now)),
        aaep=record.asked.model_copy(update=news),
    )


def held_back(record: Clarification, reason: str) -> Clarification:
    """Its target may not be asked, for `reason`: people are. The status stays."""
    return renewed(record, aaep=record.asked.model_copy(update={"held_back": reason}))


def taken(record: Clarification, holder: Holder) -> Clarification:
    """Somebody has it in hand. The status stays.

    Raises:
        AlreadyAnswered, Closed: it takes no answer any more.
    """
    check_open(record)
    return renewed(record, aaep=record.asked.model_copy(update={**_NOT_HELD, "taken_by": holder}))


def handed(record: Clarification, holder: Holder) -> Clarification:
    """Offered to somebody, who has not taken it yet. The status stays.

    Raises:
        AlreadyAnswered, Closed: it takes no answer any more.
    """
    check_open(record)
    return renewed(record, aaep=record.asked.model_copy(update={**_NOT_HELD, "handed_to": holder}))


def answered(record: Clarification, answer: Answer, decider: Decider, at: datetime) -> Clarification:
    """Record the first answer, given by a person or agent at `at`.

    Raises:
        AlreadyAnswered: somebody was first.
        Closed: it was resolved, abandoned or has expired at `at`.
    """
    check_open(record)
    asked = record.asked
    at = max(at, record.asked_last)  # by another clock, Slack's, it may come out earlier
    # Other implementations know agents by their bare role.
    who = decider.decided_by.removeprefix("agent:")
    entry = new_entry(record.round, who, "answer", answer.words, at)
    news: dict[str, Any] = {
        "response": answer.response,
        "label": answer.label,
        "rationale": answer.rationale,
        "decided_by": decider.decided_by,
        "answered_at": at,
        "answered_by": AnsweredBy(surface=decider.surface, team=decider.team, user=decider.user),
        "reply": "sending" if asked.reply_token else None,
    }
    was_escalated = record.status == "escalated"
    return _changed(
        record,
        "resolved" if was_escalated else "answered",
        thread=(*record.thread, entry),
        resolved_at=at if was_escalated else None,
        aaep=asked.model_copy(update=news),
    )


def has_expired(record: Clarification, at: datetime) -> bool:
    """Whether an open clarification's time had run out at `at`."""
    expires = record.asked.expires_at
    return record.is_open and expires is not None and at >= expires


def abandoned(
    record: Clarification, reason: CloseReason, now: datetime, by: str = US, words: str = ""
) -> Clarification:
    """Closed without an answer being used. Reason and words go into the thread, for whoever reads the ledger."""
    entry = new_entry(record.round, by, "resolution", f"Abandoned: {reason}. {words}".rstrip(), now)
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


def resolved_by_hand(record: Clarification, text: str, decider: Decider, at: datetime) -> Clarification:
    """Somebody says that an answered one is done with, in words for its thread. The reply still goes out if owed."""
    at = max(at, record.asked_last)
    entry = new_entry(record.round, decider.decided_by, "resolution", text, at)
    done = record if record.status == "resolved" else _changed(record, "resolved", resolved_at=at)
    return done.model_copy(update={"thread": (*record.thread, entry)})


def reply_settled(record: Clarification, state: ReplyState, note: str | None) -> Clarification:
    """Where the reply to the producer stands. Does not change the status."""
    return renewed(record, aaep=record.asked.model_copy(update={"reply": state, "reply_note": note}))


def went_on(record: Clarification, at: datetime) -> Clarification:
    """The session was seen going on after the answer."""
    return renewed(record, aaep=record.asked.model_copy(update={"went_on_at": at}))


def check_open(record: Clarification) -> None:
    """Does nothing for one that takes an answer.

    Raises:
        AlreadyAnswered: it has one.
        Closed: it was closed without.
    """
    if not record.is_open:
        raise (
            AlreadyAnswered(record) if record.asked.response is not None or record.answer else Closed(record)
        )


def _changed(record: Clarification, status: Status, **update: Any) -> Clarification:
    if status not in TRANSITIONS[record.status]:
        raise IllegalTransition(record.id, record.status, status)
    return renewed(record, status=status, **update)


def renewed(record: Clarification, **update: Any) -> Clarification:
    return record.model_copy(update={"revision": record.revision + 1, **update})


def new_entry(number: int, by: str, kind: EntryType, body: str, at: datetime) -> Entry:
    return Entry(round=number, from_=by, type=kind, body=body, timestamp=at)


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
        via=ask.via,
        sla_minutes=ask.sla / timedelta(minutes=1) if ask.sla else None,
        held_back=ask.held_back,
        rtl=ask.rtl,
        earlier=earlier,
        **_consent(ask),
    )


def _consent(ask: Ask) -> dict[str, Any]:
    """A confirmation's facts, as the record has them."""
    wanted = ask.confirmation
    if wanted is None:
        return {}
    return {
        "action": wanted.action,
        "consequence": wanted.consequence,
        "risk_level": wanted.risk_level,
        "irreversible": wanted.irreversible,
        "reversibility": wanted.reversibility,
        "default_decision": wanted.default_decision,
        "allowed_replies": wanted.allowed,
        "extra_context": dict(wanted.extra_context) or None,
    }


def stale_after(now: datetime, sla: timedelta, expires_at: datetime | None) -> datetime:
    """The first nudge: after the SLA, and at most half of what is left of the question's timeout."""
    return now + (sla if expires_at is None else max(timedelta(0), min(sla, (expires_at - now) / 2)))


def _headline(text: str) -> str:
    words = " ".join(text.split())
    return words if len(words) <= 200 else words[:199] + "…"
