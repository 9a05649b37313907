from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

from core import clarification
from core.bus import lifecycle
from core.clarification import Answer, Clarification
from core.matching import followed_up
from tests.kit.builders import ADE, LATER, SLA, ask, changed, record


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
        (None, OPEN, ["requested"]),
        (None, NUDGED, ["requested"]),
        (None, STALE, ["stale"]),
        (None, RESOLVED, ["resolved"]),
        (None, ABANDONED, []),
        (OPEN, NUDGED, ["stale"]),
        (OPEN, STALE, ["stale"]),
        (STALE, OPEN, []),
        (STALE, NUDGED, ["stale"]),
        (NUDGED, escalate(NUDGED), ["escalated"]),
        (ESCALATED, ESCALATED, []),
        (OPEN, ANSWERED, ["answered"]),
        (ANSWERED, RESOLVED, ["resolved"]),
        (OPEN, RESOLVED, ["answered", "resolved"]),
        (ESCALATED, answer(ESCALATED), ["answered", "resolved"]),
        (OPEN, ABANDONED, []),
        (ANSWERED, SECOND, ["requested"]),
        (ANSWERED, LAST, ["requested", "escalated"]),
        (NUDGED, clarification.nudged(SECOND, LATER + 2 * SLA, SLA), ["requested", "stale"]),
        (ANSWERED, answer(SECOND), ["requested", "answered"]),
        (ANSWERED, clarification.resolved(answer(SECOND), LATER), ["requested", "answered", "resolved"]),
    ],
)
def test_lifecycle_table(before: Clarification | None, after: Clarification, kinds: list[str]) -> None:
    told = lifecycle(before, after, LATER)
    assert [each.name for each in told] == [f"clarification-{kind}" for kind in kinds]


def test_lifecycle_says_whose_question_it_is() -> None:
    record = changed(OPEN, from_="engineer", to="architect", topic="which", blocking=False)
    (told,) = lifecycle(
        None, record, datetime(2026, 1, 1, 1, 0, 0, 5000, tzinfo=timezone(timedelta(hours=1)))
    )
    expected: dict[str, Any] = {
        "clarificationId": "CLR-42-001",
        "issueNumber": 42,
        "fromAgent": "engineer",
        "toAgent": "architect",
        "topic": "which",
        "blocking": False,
        "timestamp": "2026-01-01T00:00:00.005Z",
    }
    assert told.payload() == expected
