"""Any clarification that AAEP's schema allows, up to its limits, in hostile words as well as in fair ones.

Limits: agent.awaiting.clarification.schema.json of AAEP 1.0 (question 16384, context, default_response and
summary_terse 4096, 2 to 32 choices with labels of 1024 and values of 256).
"""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, get_args

from hypothesis import strategies as st

from core.aaep import Event, parse_event
from core.clarification import KINDS, Answer, Ask, Clarification, CloseReason, Decider
from core.questions import NewQuestion
from core.questions import ask_of as direct_ask
from core.transitions import abandoned, amended, answered, opened, reply_settled

NOW = datetime(2026, 5, 24, 14, 22, tzinfo=UTC)
SLA = timedelta(minutes=30)
QUESTION, CONTEXT, LABEL, VALUE, CHOICES = 16_384, 4096, 1024, 256, 32
HOSTILE = (
    "<!channel>", "<!here>", "<@U0EVIL>", "<!subteam^S0EVIL>", "<https://evil.example|click me>", "<#C0EVIL>",
    "<!date^0^{date}|never>", "&lt;!channel&gt;", "&amp;", "&", "<", ">", "*bold*", "_it_", "~gone~", "`code`",
    "```", "> quote", ":tada:", "@here", "https://evil.example/?a=b|c", "https://github.com/acme/x",
    "https://github.com/acme-evil/x", "https://github.com/acme/../x", " https://github.com/acme/x ", "\u202etxt.exe", "\u2066", "\u2069", "\u2068x\u2069",
    "\x00", "\x1b[31m", "\x7f", "\u0085", "\u2028", "\r\n", "\n", "\t", "\ufeff", "\u200b", "\u200d", "👩‍👩‍👧‍👦", "🇳🇬🇩🇪",
    "👍🏽", "e\u0301\u0323", "한글", "שלום", "𝔘𝔫𝔦", '"', "\\", "{{ 7*7 }}", "{% raw %}", "</script>", "|", "…",
    " ", "\u00a0", "word", "Yes", "No", "View full", "1", "CLR-1-001",
)  # fmt: skip


@st.composite
def words(draw: st.DrawFn, limit: int) -> str:
    """1 to `limit` characters, often hostile, now and then as long as may be."""
    parts = draw(st.lists(st.sampled_from(HOSTILE) | st.text(max_size=20), min_size=1, max_size=6))
    text = "".join(parts) or "x"
    if draw(st.booleans()):
        length = draw(st.sampled_from([30, 75, 76, 300, 1500, 3000, 3001, limit]))
        text *= 1 + min(length, limit) // len(text)
    return text[:limit]


@st.composite
def events(draw: st.DrawFn) -> dict[str, Any]:
    """A schema-valid `agent.awaiting.clarification`."""
    kinds = draw(st.lists(st.sampled_from(KINDS), min_size=1, max_size=4, unique=True))
    event: dict[str, Any] = {
        "type": "aaep:agent.awaiting.clarification",
        "event_id": "evt_1",
        "session_id": "sess_1",
        "timestamp": "2026-05-24T14:22:00Z",
        "producer": {"agent_id": "planner", "agent_name": draw(words(300))},
        "urgency": "critical",
        "question": draw(words(QUESTION).filter(lambda text: bool(text.strip()))),  # blank: not read as one
        "reply_token": "rpl_1",
        "timeout_seconds": draw(st.integers(1, 86_400)),
        "accepted_response_kinds": kinds,
    }
    for key, limit in (("context", CONTEXT), ("default_response", CONTEXT), ("summary_terse", CONTEXT)):
        if draw(st.booleans()):
            event[key] = draw(words(limit))
    if draw(st.booleans()):
        event["summary_detailed"] = draw(words(QUESTION))
    if "multiple_choice" in kinds or draw(st.booleans()):
        event["choices"] = draw(choices())
        event["multi_select"] = draw(st.booleans())
    return event


@st.composite
def choices(draw: st.DrawFn) -> list[dict[str, str]]:
    label = words(LABEL) if draw(st.booleans()) else words(30)
    count = draw(st.sampled_from([2, 3, 5, 6, 10, 11, CHOICES]))
    pool = draw(st.lists(label, min_size=1, max_size=5))
    return [{"value": f"v{n}", "label": pool[n % len(pool)]} for n in range(count)]


def event_of(raw: dict[str, Any]) -> Event:
    return parse_event(raw, NOW)


def ask_of(raw: dict[str, Any], topic: str | None = None) -> Ask:
    """As the router makes it of an event."""
    event = event_of(raw)
    assert event.question is not None
    expires = None if event.timeout_seconds is None else NOW + timedelta(seconds=event.timeout_seconds)
    return replace(event.question.under(producer="p", received_at=NOW, expires_at=expires), topic=topic)


def direct(**fields: Any) -> Clarification:
    """What an agent asked directly."""
    question = NewQuestion.model_validate(fields)
    ask = direct_ask(question, producer="p", token="q_1", at=NOW, expires_at=NOW + SLA)
    return opened(42, 1, ask, NOW, SLA)


def record_of(topic: str | None = None, issue: int = 42, **fields: Any) -> Clarification:
    """An open record of a question with these fields of the event."""
    raw: dict[str, Any] = {
        "type": "aaep:agent.awaiting.clarification",
        "event_id": "evt_1",
        "session_id": "sess_1",
        "timestamp": "2026-05-24T14:22:00Z",
        "producer": {"agent_id": "retirement-planner"},
        "question": "Which retirement age should I plan for?",
        "reply_token": "rpl_1",
        "timeout_seconds": 300,
        **fields,
    }
    return opened(issue, 1, ask_of(raw, topic), NOW, SLA)


@st.composite
def open_records(draw: st.DrawFn) -> Clarification:
    record = opened(
        42, draw(st.integers(1, 5000)), ask_of(draw(events()), draw(st.none() | words(200))), NOW, SLA
    )
    update: dict[str, Any] = {"status": draw(st.sampled_from(["pending", "stale", "escalated"]))}
    if draw(st.booleans()):
        update["to"] = draw(words(300))
        record = amended(record, held_back=draw(st.none() | words(1000)))
    return record.model_copy(update=update)


@st.composite
def settled_records(draw: st.DrawFn) -> Clarification:
    """Answered in any words and through any surface, or abandoned for any reason."""
    record = draw(open_records())
    if draw(st.booleans()):
        reason: CloseReason = draw(st.sampled_from(get_args(CloseReason)))
        return abandoned(record, reason, NOW)
    surface = draw(st.sampled_from(["slack", "shell"]))
    decider = Decider(draw(words(256)), surface, "T1", draw(st.sampled_from(["U0GOOD", "<@U0EVIL>", None])))
    said = draw(words(QUESTION))
    done = answered(record, Answer(said, said), decider, NOW)
    states = ["sending", "delivered", "confirmed", "unconfirmed", "refused", "too_late"]
    return reply_settled(done, draw(st.sampled_from(states)), draw(st.none() | words(4000)))
