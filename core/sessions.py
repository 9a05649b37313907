"""What the events of a session mean for its clarifications: confirmed, void, or nothing. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from core import aaep
from core.clarification import Clarification, CloseReason, ReplyState
from core.index import Summary
from core.transitions import abandoned, reply_settled, resolved, went_on

_UNPROVEN = frozenset({"sending", "delivered", "unconfirmed"})


@dataclass(frozen=True, slots=True)
class SessionNews:
    """What an event says about its session's clarifications.

    `sent` is its time on the producer's clock, `at` on ours.
    """

    producer: str
    session_id: str
    type: str
    sent: datetime
    at: datetime
    left_awaiting: bool = False


def concerns(news: SessionNews, known: Summary) -> bool:
    """Whether news of its session may change a clarification: `after_event` says how, under the lock (pure)."""
    voids = news.left_awaiting or news.type in aaep.SESSION_ENDS
    return known.reply in _UNPROVEN or (known.is_open and voids)


def after_event(records: list[Clarification], news: SessionNews, now: datetime) -> list[Clarification]:
    """The records of one session that an event changes (pure).

    An answered one is confirmed by anything that follows its answer. An open one is void when the session ended, or
    when it left `awaiting_input` and exactly one was open at that time: with several nobody can tell which. An event
    that an answer explains voids nothing: the agent went on with that answer, and may still wait for another.
    """
    changed = [
        _went_on(record, news, now)
        for record in records
        if record.asked.reply in _UNPROVEN and record.asked.went_on_at is None and _follows(record, news)
    ]
    waiting = [record for record in records if record.is_open and _asked_before(record, news)]
    if news.type in aaep.SESSION_ENDS:
        reason: CloseReason = "cancelled" if news.type == aaep.CANCELLED else "session ended"
        changed += [abandoned(record, reason, now) for record in waiting]
    elif (
        news.left_awaiting
        and len(waiting) == 1
        and not changed
        and not any(_answered_since(r, news) for r in records)
    ):
        changed.append(abandoned(waiting[0], "requester moved on", now))
    return changed


def _went_on(record: Clarification, news: SessionNews, now: datetime) -> Clarification:
    """The session went on. While the outcome of sending is open, that is only noted: it may have timed out."""
    noted = went_on(record, news.at)
    return noted if noted.asked.reply == "sending" else settled(noted, "delivered", None, now, resolve=True)


def settled(
    record: Clarification, state: ReplyState, note: str | None, now: datetime, *, resolve: bool
) -> Clarification:
    """`delivered` or `unconfirmed`, with the session seen going on since, is `confirmed`."""
    proven = record.asked.went_on_at is not None and state in {"delivered", "unconfirmed"}
    settled = reply_settled(record, "confirmed" if proven else state, None if proven else note)
    return resolved(settled, now) if (resolve or proven) and settled.status == "answered" else settled


def _follows(record: Clarification, news: SessionNews) -> bool:
    answered_at = record.asked.answered_at
    return answered_at is not None and news.at >= answered_at


def _answered_since(record: Clarification, news: SessionNews) -> bool:
    answered_at = record.asked.answered_at
    return answered_at is not None and answered_at > news.at and _asked_before(record, news)


def _asked_before(record: Clarification, news: SessionNews) -> bool:
    """By the producer's own clock, which both times are of."""
    asked_at = record.asked.asked_at
    return asked_at is None or asked_at <= news.sent


def of_session(record: Clarification, news: SessionNews) -> bool:
    return record.asked.producer == news.producer and record.asked.session_id == news.session_id
