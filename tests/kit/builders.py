"""Questions and records, with what a test does not care about filled in."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from prometheus_client import Counter

from core import aaep
from core.clarification import PART_OF, Answer, Ask, Clarification, Decider, Entry, Holder, Question, Round
from core.matching import SessionNews
from core.transitions import amended, answered, opened, reply_settled, resolved

NOW = datetime(2026, 5, 24, 14, 22, tzinfo=UTC)
SLA = timedelta(minutes=30)
MINUTE = timedelta(minutes=1)
MONTH = timedelta(days=30)
LATER = NOW + timedelta(minutes=5)
YES = Answer("yes", "Yes")
ADE = Decider("user:slack/T1/U1", "slack", "T1", "U1")
BEA = Decider("user:slack/T1/U2", "slack", "T1", "U2")

# As another implementation writes it.
FOREIGN: dict[str, Any] = {
    "id": "CLR-7-001",
    "issueNumber": 7,
    "from": "engineer",
    "to": "architect",
    "topic": "database",
    "blocking": False,
    "status": "pending",
    "round": 2,
    "maxRounds": 6,
    "created": "2026-05-24T14:22:00.000Z",
    "staleAfter": "2026-05-24T14:52:00.000Z",
    "resolvedAt": None,
    "thread": [
        {
            "round": 1,
            "from": "engineer",
            "type": "question",
            "body": "Postgres or not?",
            "timestamp": "2026-05-24T14:22:00.000Z",
            "mood": "curious",
        }
    ],
    "revision": 3,
    "priority": {"level": [1, None, 2.5]},
    "löschen": "später",
}


def foreign(issue: int = 7, seq: int = 1, question: str = "Postgres or not?", **more: Any) -> dict[str, Any]:
    """A record as another implementation writes it, in its first round; `more` replaces its fields."""
    own = {"id": f"CLR-{issue}-{seq:03d}", "issueNumber": issue, "round": 1, "staleAfter": None}
    record = FOREIGN | own | more
    asked = FOREIGN["thread"][0] | {"from": record["from"], "body": question, "timestamp": record["created"]}
    return record | {"thread": [asked]}


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
    return asking(**(fields | more))


def asking(**fields: Any) -> Ask:
    """A question to be recorded, from its own fields and those of what it asks. `sla`: as it is given."""
    if (sla := fields.pop("sla", None)) is not None:
        fields["sla_minutes"] = sla / timedelta(minutes=1)
    own = {
        name: fields.pop(name)
        for name in list(fields)
        if name not in Question.model_fields or name == "agent_id"
    }
    return Ask(asked=Question(**fields), **own)


def record(issue: int = 42, seq: int = 1, **more: Any) -> Clarification:
    """A pending clarification; `more` replaces fields of its question."""
    return opened(issue, seq, ask(**more), NOW, SLA)


def changed(record: Clarification, **more: Any) -> Clarification:
    """The record with other fields, its own or those of what it asks. `asked_last`: when the latest question was asked;
    `taken_by`, `handed_to`: a user id.
    """
    if (at := more.pop("asked_last", None)) is not None:
        question = Entry(
            round=more.get("round", record.round),
            from_="x",
            type="question",
            body=record.question,
            timestamp=at,
        )
        more["thread"] = (*record.thread[:-1], question)
    for name in {"taken_by", "handed_to"} & more.keys():
        more[name] = more[name] and Holder(user=more[name], at=NOW)
    own = {name: each for name, each in more.items() if name in Clarification.model_fields}
    asked = {name: each for name, each in more.items() if name not in own}
    if unknown := asked.keys() - PART_OF.keys() - Round.model_fields.keys():
        raise TypeError(f"no field of a record: {sorted(unknown)}")
    return amended(record.model_copy(update=own), **asked)


def closed(seq: int = 1, **more: Any) -> Clarification:
    """An answered one, whose producer confirmed the answer."""
    after = answered(record(seq=seq, **more), YES, ADE, NOW)
    return resolved(reply_settled(after, "confirmed", None), NOW)


def news(
    type: str = aaep.TOOL_COMPLETED,  # noqa: A002 - as SessionNews has it
    at: datetime = NOW + MINUTE,
    sent: datetime | None = None,
    left: bool = False,
) -> SessionNews:
    return SessionNews("planner", "sess_1", type, sent or at, at, left)


def counted(counter: Counter) -> dict[str | tuple[str, ...], float]:
    """What a counter of `Telemetry` counted, by its labels."""
    found: dict[str | tuple[str, ...], float] = {}
    for sample in next(iter(counter.collect())).samples:
        first, *more = sample.labels.values()
        if sample.value:
            found[(first, *more) if more else first] = sample.value
    return found
