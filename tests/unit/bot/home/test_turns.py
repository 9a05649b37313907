from __future__ import annotations

from math import inf

import pytest

from bot.home.facts import Viewer
from bot.home.turns import Again, Dropped, Seat, Shown, Unfit, first_due, judged, next_seat
from bot.slackapi import Later, Never, Outcome, Sent, Unknown


def seat(user: str = "U0ADE", **more: object) -> Seat:
    made = Seat(Viewer(user, "", "", 0.0), seen=1, not_before=0.0)
    for name, value in more.items():
        setattr(made, name, value)
    return made


@pytest.mark.parametrize(
    ("of", "number", "changed_at", "due"),
    [
        (seat(), 1, 100.0, inf),
        (seat(), 2, 100.0, 100.25),
        (seat(not_before=105.0), 2, 100.0, 105.0),
        (seat(urgent=True), 1, 100.0, 0.0),
        (seat(urgent=True, not_before=101.0), 1, 100.0, 101.0),
        (seat(busy=True, urgent=True), 2, 100.0, inf),
        (seat(again_at=50.0), 1, 100.0, 50.0),
        (seat(again_at=500.0), 2, 100.0, 100.25),
    ],
)
def test_turn_is_due(of: Seat, number: int, changed_at: float, due: float) -> None:
    assert of.due_at(number, changed_at) == due


def test_turn_goes_to_who_waited_longest_and_a_press_counts_for_a_while() -> None:
    waits = [
        seat("U1", last=10.0, seen=0),
        seat("U2", last=5.0, seen=0),
        seat("U3", last=20.0, urgent=True),
        seat("U4", last=-50.0, seen=0),
        seat("U5", last=0.0),
    ]

    def taken(now: float = 30.0) -> str | None:
        first = next_seat(waits, 1, 0.0, now)
        if first is not None:
            waits.remove(first)
        return first.viewer.user if first else None

    assert [taken() for _ in range(5)] == ["U4", "U3", "U2", "U1", None]


def test_turn_comes_first_for_nobody_where_there_is_nobody() -> None:
    assert first_due([], 5, 0.0) == inf
    assert next_seat([], 5, 0.0, 100.0) is None


@pytest.mark.parametrize(
    ("outcome", "failures", "meaning"),
    [
        (Sent("U1", ""), 3, Shown()),
        (Later("ratelimited", 30.0), 0, Again(30.0, everybody=True)),
        (Later("Slack is unreachable"), 0, Again(None, everybody=True)),
        (Unknown("timeout"), 0, Again(2.0)),
        (Unknown("timeout"), 3, Again(16.0)),
        (Unknown("timeout"), 50, Again(60.0)),
        (Never("invalid_auth", "app"), 0, Again(60.0, everybody=True)),
        (Never("user_not_found", "place"), 0, Dropped()),
        (Never("not_enabled", "content"), 0, Dropped()),
        (Never("invalid_arguments", "content"), 0, Unfit()),
        (Never("hash_conflict", "content"), 0, Unfit()),
    ],
)
def test_outcome_of_a_publish_means(outcome: Outcome, failures: int, meaning: object) -> None:
    assert judged(outcome, failures) == meaning
