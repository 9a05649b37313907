from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.escalation import Override, in_force, turn, turn_until

USERS = ("U1", "U2", "U3")
DAY = timedelta(days=1)
BERLIN = "Europe/Berlin"
NINE = datetime(2026, 10, 19, 9, 0)  # noqa: DTZ001 - local time of the rotation
HALF_PAST_TWO = datetime(2026, 10, 24, 2, 30)  # noqa: DTZ001 - in the hour that comes twice on the 25th
IN_SPRING = datetime(2026, 3, 28, 2, 30)  # noqa: DTZ001 - in the hour that is left out on the 29th


def utc(month: int, day: int, hour: int, minute: int = 0) -> datetime:
    return datetime(2026, month, day, hour, minute, tzinfo=UTC)


@pytest.mark.parametrize(
    ("start", "now", "user", "until"),
    [
        pytest.param(NINE, utc(10, 18, 0), "U1", utc(10, 20, 7), id="before the start"),
        pytest.param(NINE, utc(10, 19, 7), "U1", utc(10, 20, 7), id="at the start"),
        pytest.param(NINE, utc(10, 20, 6, 59), "U1", utc(10, 20, 7), id="until the last minute"),
        pytest.param(NINE, utc(10, 20, 7), "U2", utc(10, 21, 7), id="handed over"),
        pytest.param(NINE, utc(10, 22, 7), "U1", utc(10, 23, 7), id="round"),
        pytest.param(NINE, utc(10, 24, 7), "U3", utc(10, 25, 8), id="a day of 25 hours"),
        pytest.param(NINE, utc(10, 25, 7, 30), "U3", utc(10, 25, 8), id="9:00 stays 9:00"),
        pytest.param(NINE, utc(10, 25, 8), "U1", utc(10, 26, 8), id="in winter time"),
        pytest.param(HALF_PAST_TWO, utc(10, 25, 0, 29), "U1", utc(10, 25, 0, 30), id="before the first 2:30"),
        pytest.param(HALF_PAST_TWO, utc(10, 25, 0, 30), "U2", utc(10, 26, 1, 30), id="the first 2:30"),
        pytest.param(
            HALF_PAST_TWO, utc(10, 25, 1, 10), "U2", utc(10, 26, 1, 30), id="2:10 for the second time"
        ),
        pytest.param(
            IN_SPRING, utc(3, 29, 1, 29), "U1", utc(3, 29, 1, 30), id="before a time that is left out"
        ),
        pytest.param(IN_SPRING, utc(3, 29, 1, 30), "U2", utc(3, 30, 0, 30), id="after it"),
        pytest.param(utc(10, 19, 7), utc(10, 25, 8), "U1", utc(10, 26, 8), id="start with a zone"),
    ],
)
def test_turn_and_its_end_table(start: datetime, now: datetime, user: str, until: datetime) -> None:
    assert turn(USERS, start, DAY, BERLIN, now) == user
    assert turn_until(start, DAY, BERLIN, now) == until


@given(
    now=st.integers(0, 60 * 24 * 400).map(lambda minutes: utc(1, 1, 0) + timedelta(minutes=minutes)),
    shift=st.sampled_from((timedelta(hours=1), timedelta(hours=8), timedelta(hours=12), DAY, 7 * DAY)),
    hour=st.integers(0, 23),
)
def test_turn_lasts_until_its_end_and_the_next_one_follows(
    now: datetime, shift: timedelta, hour: int
) -> None:
    start = datetime(2026, 1, 1, hour, 30)  # noqa: DTZ001 - local time of the rotation
    end = turn_until(start, shift, BERLIN, now)
    mine = turn(USERS, start, shift, BERLIN, now)

    assert end > now
    assert turn(USERS, start, shift, BERLIN, end - timedelta(minutes=1)) == mine
    assert turn_until(start, shift, BERLIN, end - timedelta(minutes=1)) == end
    if now >= start.replace(tzinfo=UTC):
        assert turn(USERS, start, shift, BERLIN, end) == USERS[(USERS.index(mine) + 1) % 3]


@pytest.mark.parametrize(
    ("hour", "user"),
    [(8, None), (9, "U1"), (10, "U2"), (11, "U1"), (12, "U1"), (17, None)],
)
def test_in_force_the_latest_made_wins_and_the_earlier_one_goes_on(hour: int, user: str | None) -> None:
    made = [
        Override("U1", utc(10, 1, 9), utc(10, 1, 17), "U1"),
        Override("U2", utc(10, 1, 10), utc(10, 1, 11), "U9"),
    ]

    found = in_force(made, utc(10, 1, hour))

    assert (found.user if found else None) == user
