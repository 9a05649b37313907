from __future__ import annotations

from datetime import datetime, timedelta, timezone

import pytest

from core import transitions
from core.clarification import Answer, Clarification
from core.ledger import FORGOTTEN, change, lifecycle, payload, told_in
from core.matching import followed_up
from core.transitions import amended
from tests.kit.builders import ADE, LATER, SLA, ask, changed, record


def answer(of: Clarification) -> Clarification:
    return transitions.answered(of, Answer("yes", "Yes"), ADE, LATER)


def escalate(of: Clarification) -> Clarification:
    return transitions.escalated(of, "stale", "words", LATER)


def again(of: Clarification, at: datetime = LATER + SLA) -> Clarification:
    return followed_up(of, ask(), at, SLA)


OPEN = record()
NUDGED = transitions.nudged(OPEN, LATER, SLA)
ANSWERED = answer(OPEN)
SECOND = again(ANSWERED)
RESOLVED = transitions.resolved(ANSWERED, LATER)
ABANDONED = transitions.abandoned(OPEN, "by hand", LATER)
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
        (NUDGED, transitions.nudged(SECOND, LATER + 2 * SLA, SLA), ["requested", "stale"]),
        (ANSWERED, answer(SECOND), ["requested", "answered"]),
        (ANSWERED, transitions.resolved(answer(SECOND), LATER), ["requested", "answered", "resolved"]),
    ],
)
def test_lifecycle_table(before: Clarification | None, after: Clarification, kinds: list[str]) -> None:
    assert lifecycle(before, after) == [f"clarification-{kind}" for kind in kinds]


UNSIGNED = changed(ANSWERED, revision=2)
SIGNED = amended(UNSIGNED, receipt="signed")
SIGNED_LATE = again(SIGNED)


@pytest.mark.parametrize(
    ("before", "after", "what"),
    [
        (None, OPEN, "requested/1"),
        (None, ESCALATED, "requested/1 escalated/1"),
        (None, RESOLVED, "requested/1 answered/1 resolved/1"),
        (None, ABANDONED, "requested/1 abandoned/1"),
        (OPEN, OPEN, ""),
        (OPEN, NUDGED, "stale/1"),
        (OPEN, RESOLVED, "answered/1 resolved/1"),
        (OPEN, ABANDONED, "abandoned/1"),
        (ABANDONED, ABANDONED, ""),
        (ANSWERED, SECOND, "requested/2"),
        (SECOND, answer(SECOND), "answered/2"),
        (ANSWERED.model_copy(update={"max_rounds": 1}), LAST, "requested/2 escalated/2"),
        (OPEN, SIGNED, "answered/1"),
        (UNSIGNED, SIGNED, "receipt/1"),
        (SIGNED, SIGNED, ""),
        (again(UNSIGNED), SIGNED_LATE, "receipt/1"),
        (UNSIGNED, SIGNED_LATE, "requested/2 receipt/1"),
        (SIGNED, SIGNED_LATE, "requested/2"),
        (again(UNSIGNED), answer(SIGNED_LATE), "answered/2 receipt/1"),
    ],
)
def test_what_a_write_means(before: Clarification | None, after: Clarification, what: str) -> None:
    assert change(before, after) == what
    words = [f"{name.removeprefix('clarification-')}/{number}" for name, number in told_in(what)]
    assert words == [word for word in what.split() if word != "abandoned/1"], "that is no event"


@pytest.mark.parametrize("what", ["", FORGOTTEN, "open/webhooks"])
def test_what_is_no_event_says_none(what: str) -> None:
    assert told_in(what) == []


def test_payload_says_whose_question_it_is() -> None:
    record = changed(OPEN, from_="engineer", to="architect", topic="which", blocking=False)
    at = datetime(2026, 1, 1, 1, 0, 0, 5000, tzinfo=timezone(timedelta(hours=1)))
    assert payload(record, at) == {
        "clarificationId": "CLR-42-001",
        "issueNumber": 42,
        "fromAgent": "engineer",
        "toAgent": "architect",
        "topic": "which",
        "blocking": False,
        "timestamp": "2026-01-01T00:00:00.005Z",
    }
