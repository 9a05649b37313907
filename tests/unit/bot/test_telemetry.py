"""What is counted, and that it is counted once."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from bot.telemetry import Telemetry
from core.clarification import Clarification, Status
from tests.kit.builders import changed, counted
from tests.kit.clocks import START, ManualClock
from tests.unit.bot.strategies import record_of


@pytest.fixture
def telemetry() -> Telemetry:
    return Telemetry(ManualClock(START + timedelta(seconds=90)))


def asked(status: Status = "pending", **fields: Any) -> Clarification:
    return changed(record_of(), **({"asked_last": START, "status": status} | fields))


def seconds(telemetry: Telemetry) -> float | None:
    return telemetry.registry.get_sample_value("clarify_time_to_answer_seconds_sum")


@pytest.mark.parametrize(
    ("before", "after", "answers"),
    [
        ("pending", "answered", 1),
        ("stale", "answered", 1),
        ("escalated", "resolved", 1),
        ("answered", "resolved", 0),  # counted when it was answered
        ("pending", "stale", 0),
        ("pending", "abandoned", 0),
        (None, "answered", 0),
        (None, "pending", 0),
    ],
)
def test_answer_is_timed_once(
    telemetry: Telemetry, before: Status | None, after: Status, answers: int
) -> None:
    telemetry.record_changed(asked(before) if before else None, asked(after, kinds=("yes_no",)), "r-*")
    assert counted(telemetry.answered) == ({("r-*", "yes_no"): answers} if answers else {})
    assert seconds(telemetry) == 90.0 * answers


def test_answer_to_a_further_question_is_timed_from_that_question(telemetry: Telemetry) -> None:
    again = START + timedelta(seconds=60)
    telemetry.record_changed(
        asked(round=2, asked_last=again), asked("answered", round=2, asked_last=again), "*"
    )
    assert seconds(telemetry) == 30.0
