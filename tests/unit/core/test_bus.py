from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from core import clarification
from core.bus import Answered, Escalated, LifecycleEvent, Requested, Resolved, Stale, lifecycle
from core.clarification import Answer, Clarification
from core.index import Summary, summarize
from core.matching import followed_up
from tests.kit.builders import ADE, LATER, NOW, SLA, ask, record

ALL = [Requested, Answered, Stale, Resolved, Escalated]


def event(kind: type[LifecycleEvent] = Requested, at: datetime = NOW) -> LifecycleEvent:
    return kind("CLR-42-001", 42, "engineer", "architect", "which database", blocking=True, timestamp=at)


def test_payload_has_the_protocols_names() -> None:
    at = datetime(2026, 5, 24, 16, 22, 0, 5000, tzinfo=timezone(timedelta(hours=2)))
    assert event(at=at).payload() == {
        "clarificationId": "CLR-42-001",
        "issueNumber": 42,
        "fromAgent": "engineer",
        "toAgent": "architect",
        "topic": "which database",
        "blocking": True,
        "timestamp": "2026-05-24T14:22:00.005Z",
    }
    assert json.loads(json.dumps(event().payload())) == event().payload()


def test_names_are_the_five_of_the_protocol() -> None:
    assert [kind.name for kind in ALL] == [
        f"clarification-{word}" for word in ("requested", "answered", "stale", "resolved", "escalated")
    ]


def answer(of: Clarification) -> Clarification:
    return clarification.answered(of, Answer("yes", "Yes"), ADE, LATER)


def escalate(of: Clarification) -> Clarification:
    return clarification.escalated(of, "stale", "words", LATER)


def again(of: Clarification, at: datetime = LATER + SLA) -> Clarification:
    return followed_up(of, ask(), at, SLA)


OPEN = record()
NUDGED = clarification.nudged(OPEN, LATER, SLA)
ANSWERED = answer(OPEN)
SECOND = again(ANSWERED)
RESOLVED = clarification.resolved(ANSWERED, LATER)
ABANDONED = clarification.abandoned(OPEN, "by hand", LATER)
ESCALATED = escalate(OPEN)
STALE = OPEN.model_copy(update={"status": "stale"})
LAST = again(ANSWERED.model_copy(update={"max_rounds": 1}))


@pytest.mark.parametrize(
    ("before", "after", "kinds"),
    [
        (None, OPEN, [Requested]),
        (None, NUDGED, [Requested]),
        (None, STALE, [Stale]),
        (None, ESCALATED, [Escalated]),
        (None, ANSWERED, [Answered]),
        (None, RESOLVED, [Resolved]),
        (None, ABANDONED, []),
        (OPEN, OPEN, []),
        (OPEN, NUDGED, [Stale]),
        (OPEN, STALE, [Stale]),
        (STALE, STALE, []),
        (STALE, OPEN, []),
        (STALE, NUDGED, [Stale]),
        (OPEN, ESCALATED, [Escalated]),
        (NUDGED, escalate(NUDGED), [Escalated]),
        (ESCALATED, ESCALATED, []),
        (OPEN, ANSWERED, [Answered]),
        (NUDGED, answer(NUDGED), [Answered]),
        (ANSWERED, ANSWERED, []),
        (ANSWERED, RESOLVED, [Resolved]),
        (OPEN, RESOLVED, [Answered, Resolved]),
        (ESCALATED, answer(ESCALATED), [Answered, Resolved]),
        (RESOLVED, RESOLVED, []),
        (OPEN, ABANDONED, []),
        (ESCALATED, clarification.abandoned(ESCALATED, "by hand", LATER), []),
        (ANSWERED, SECOND, [Requested]),
        (ANSWERED, LAST, [Requested, Escalated]),
        (answer(NUDGED), again(answer(NUDGED)), [Requested]),
        (NUDGED, clarification.nudged(SECOND, LATER + 2 * SLA, SLA), [Requested, Stale]),
        (ANSWERED, answer(SECOND), [Requested, Answered]),
        (ANSWERED, clarification.resolved(answer(SECOND), LATER), [Requested, Answered, Resolved]),
    ],
)
def test_lifecycle_table(before: Clarification | None, after: Clarification, kinds: list[type]) -> None:
    told = lifecycle(None if before is None else summarize(before), summarize(after), LATER)
    assert [type(each) for each in told] == kinds


def test_lifecycle_says_what_the_summary_says() -> None:
    summary: Summary = replace(
        summarize(OPEN), from_="engineer", to="architect", topic="which", blocking=False
    )
    (told,) = lifecycle(None, summary, datetime(2026, 1, 1, tzinfo=UTC))
    expected: dict[str, Any] = {
        "clarificationId": "CLR-42-001",
        "issueNumber": 42,
        "fromAgent": "engineer",
        "toAgent": "architect",
        "topic": "which",
        "blocking": False,
        "timestamp": "2026-01-01T00:00:00.000Z",
    }
    assert told.payload() == expected
