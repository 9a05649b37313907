"""Questions and records, with what a test does not care about filled in."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from core.clarification import Ask, Clarification, Decider, opened

NOW = datetime(2026, 5, 24, 14, 22, tzinfo=UTC)
SLA = timedelta(minutes=30)
ADE = Decider("user:slack/T1/U1", "slack", "T1", "U1")
BEA = Decider("user:slack/T1/U2", "slack", "T1", "U2")


def ask(**more: Any) -> Ask:
    fields: dict[str, Any] = {
        "producer": "planner",
        "agent_id": "retirement-planner",
        "agent_name": None,
        "session_id": "sess_1",
        "event_id": "evt_1",
        "reply_token": "rpl_1",
        "correlation_id": None,
        "asked_at": NOW,
        "received_at": NOW,
        "expires_at": NOW + timedelta(hours=1),
        "question": "Deploy to production?",
        "kinds": ("freetext",),
        "choices": (),
        "multi_select": False,
        "context": None,
        "default_response": None,
        "summary_terse": None,
        "summary_detailed": None,
        "to": "human",
        "topic": None,
        "blocking": True,
    }
    return Ask(**(fields | more))


def record(issue: int = 42, seq: int = 1, **more: Any) -> Clarification:
    """A pending clarification; `more` replaces fields of its question."""
    return opened(issue, seq, ask(**more), NOW, SLA)
