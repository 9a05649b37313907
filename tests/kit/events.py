"""Events as they come in, with what a test does not care about filled in."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from bot.ask.inbox import Incoming
from core.aaep import parse_event
from tests.kit.clocks import START

QUESTION: dict[str, Any] = {
    "type": "aaep:agent.awaiting.clarification",
    "event_id": "evt_1",
    "session_id": "sess_1",
    "timestamp": "2026-11-21T09:00:00Z",
    "producer": {"agent_id": "planner", "agent_name": "Planner"},
    "urgency": "critical",
    "question": "Deploy to production?",
    "reply_token": "rpl_1",
    "timeout_seconds": 300,
    "accepted_response_kinds": ["yes_no"],
}


def raw(**changes: Any) -> dict[str, Any]:
    return QUESTION | changes


def other(kind: str, **changes: Any) -> dict[str, Any]:
    """An event that asks nothing."""
    event = {k: v for k, v in QUESTION.items() if k in {"session_id", "timestamp", "producer"}}
    return event | {"type": f"aaep:agent.{kind}", "event_id": f"evt_{kind}"} | changes


def incoming(
    event: dict[str, Any] | None = None,
    *,
    producer: str = "planner",
    cursor: str | None = None,
    at: datetime = START,
    live: bool = True,
    refusable: bool = False,
    sent: datetime | None = None,
    expires_at: datetime | None = START + timedelta(minutes=5),
) -> Incoming:
    """`at`: when it came; `sent`: when it was sent, if that is another time on our clock."""
    parsed = parse_event(event or QUESTION, at)
    return Incoming(producer, parsed, at, sent or at, expires_at, cursor, live, refusable)
