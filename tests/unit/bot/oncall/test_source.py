"""Who is on call by a timetable, until when, and which shifts moved."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from bot.oncall.feeds import Move, Shift, Timetable, moves

SINCE = datetime(2026, 10, 20, tzinfo=UTC)
HOUR = timedelta(hours=1)


def test_of_overlapping_shifts_the_highest_level_counts_in_the_order_of_the_feed() -> None:
    layers = [("Cem", 1, 20, 1), ("Ann", 0, 10, 1), ("Ben", 8, 12, 2), ("Dee", 9, 11, 2), ("Eva", 0, 22, 0)]
    found = Timetable(
        tuple(Shift(SINCE + a * HOUR, SINCE + b * HOUR, level, user=user) for user, a, b, level in layers)
    )
    by_hour = [found.now(SINCE + hour * HOUR) for hour in (1, 8, 9, 11, 12, 20, 22)]
    assert by_hour == [("Cem", "Ann"), ("Ben",), ("Ben", "Dee"), ("Ben",), ("Cem",), ("Eva",), ()]
    changes = [SINCE]
    while (change := found.next(changes[-1])) is not None:
        changes.append(change)
    assert [change.hour for change in changes] == [0, 1, 8, 9, 11, 12, 20, 22]


def shifts_of(*spans: tuple[str | None, float, float]) -> list[Shift]:
    """Shifts of users, in hours from SINCE."""
    return [
        Shift(SINCE + timedelta(hours=begins), SINCE + timedelta(hours=ends), user=user)
        for user, begins, ends in spans
    ]


@pytest.mark.parametrize(
    ("before", "after", "moved"),
    [
        pytest.param([("U1", 5, 9)], [("U1", 6, 9)], [("U1", 5, 9, 6, 9)], id="begins later"),
        pytest.param([("U1", -5, 9)], [("U1", -5, 11)], [("U1", -5, 9, -5, 11)], id="ends later"),
        pytest.param([("U1", 60, 70)], [("U1", 40, 50)], [("U1", 60, 70, 40, 50)], id="from beyond two days"),
        pytest.param([("U1", 40, 50)], [("U1", 60, 70)], [("U1", 40, 50, 60, 70)], id="to beyond two days"),
        pytest.param([("U1", 60, 70)], [("U1", 61, 71)], [], id="beyond two days"),
        pytest.param([("U1", 5, 9)], [("U1", 5.05, 9)], [], id="by three minutes"),
        pytest.param([("U1", -9, -5)], [("U1", -9, -4)], [], id="is over"),
        pytest.param([("U1", -9, -5)], [("U1", 30, 38)], [], id="is over and another one is new"),
        pytest.param([("U1", -9, 5)], [("U1", -8, 5)], [], id="began earlier"),
        pytest.param([("U1", 5, 9)], [("U2", 5, 9)], [], id="another person has it"),
        pytest.param([("U1", 5, 9)], [], [], id="gone"),
        pytest.param([("U1", 5, 9)], [("U1", 5, 9), ("U1", 20, 25)], [], id="one more"),
        pytest.param([("U1", 5, 9)], [("U1", 200, 204)], [], id="another one, days later"),
        pytest.param([("U1", 5, 7), ("U1", 7, 9)], [("U1", 5, 9)], [], id="in one piece"),
        pytest.param([(None, 5, 9)], [(None, 6, 9)], [], id="somebody unknown"),
        pytest.param(
            [("U1", 5, 9), ("U1", 29, 33), ("U2", 9, 29)],
            [("U1", 5, 9), ("U1", 30, 33), ("U2", 9, 30)],
            [("U1", 29, 33, 30, 33), ("U2", 9, 29, 9, 30)],
            id="both sides of a handover",
        ),
    ],
)
def test_shifts_that_moved_within_two_days_are_found(
    before: list[Any], after: list[Any], moved: list[Any]
) -> None:
    def at(hours: float) -> datetime:
        return SINCE + timedelta(hours=hours)

    assert moves(shifts_of(*before), shifts_of(*after), SINCE) == [
        Move(user, (at(a), at(b)), (at(c), at(d))) for user, a, b, c, d in moved
    ]
