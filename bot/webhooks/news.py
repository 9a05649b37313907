"""Which events a look at a clarification gives, and how they are written (pure)."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from bot.http import json_body
from bot.webhooks.model import Known, Look, News
from core.bus import LifecycleEvent, lifecycle
from core.clarification import DONE, Clarification
from core.clock import iso
from core.index import Summary


def events_of(known: Known | None, look: Look, since: datetime) -> tuple[LifecycleEvent, ...]:
    """What happened since it was told of, in its order.

    Args:
        known: what was told of it; None: nothing yet.
        look: how it is now.
        since: what was asked before, and over before, is history.
    """
    after, at = look.summary, look.at
    if known is not None:
        return lifecycle(_before(after, known), after, at)
    if after.created >= since:
        begun = replace(after, status="pending", round=1, asked_last=after.created, nudges=0)
        return (*lifecycle(None, begun, at), *lifecycle(begun, after, at))
    is_news = after.needs_something and (look.changed or at) >= since
    return lifecycle(None, after, at) if is_news else ()


def known_of(summary: Summary) -> Known:
    """What is told of it once its events are."""
    return Known(summary.status, summary.round, summary.asked_last, summary.nudges)


def is_over(summary: Summary) -> bool:
    """Whether no event follows."""
    return summary.status in DONE


def last_change(record: Clarification) -> datetime:
    """By the record's own times."""
    times = [record.created, *(entry.timestamp for entry in record.thread)]
    return max(times if record.resolved_at is None else [*times, record.resolved_at])


def body_of(news: News) -> bytes:
    """The message: its type and time twice, as the specification has it, and the event. No question, no answer."""
    event = news.event
    return json_body(
        {"id": news.id, "type": event.name, "timestamp": iso(event.timestamp), "data": event.payload()}
    )


def _before(after: Summary, known: Known) -> Summary:
    return replace(
        after, status=known.status, round=known.round, asked_last=known.asked_last, nudges=known.nudges
    )
