"""When what Slack could not deliver is looked for."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from bot.slack.http import APART, LULL, Gaps

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
SECOND = timedelta(seconds=1)


@pytest.fixture
def gaps() -> Gaps:
    gaps = Gaps()
    gaps.opened(NOON)
    return gaps


@pytest.mark.parametrize(
    ("after", "retried", "look"),
    [
        (SECOND, False, False),
        (LULL - SECOND, False, False),
        (LULL, False, True),
        (timedelta(days=3), False, True),
        (SECOND, True, True),
    ],
)
def test_gap_shows_on_what_comes_next(gaps: Gaps, after: timedelta, retried: bool, look: bool) -> None:
    assert gaps.heard(NOON + after, retried=retried) is look


def test_busy_line_has_no_gaps(gaps: Gaps) -> None:
    assert not any(gaps.heard(NOON + n * timedelta(minutes=3)) for n in range(100))


def test_lull_is_shorter_than_slacks_patience() -> None:
    """Whatever is given up while others come through is seen by their retries; else there was silence this long."""
    assert timedelta(minutes=5) > LULL


def test_looks_of_many_retries_are_apart(gaps: Gaps) -> None:
    looks = [gaps.heard(NOON + n * SECOND, retried=True) for n in range(1, 122)]
    assert [n for n, look in enumerate(looks) if look] == [0, 60, 120]


def test_gap_seen_right_after_a_look_is_not_forgotten(gaps: Gaps) -> None:
    assert gaps.heard(NOON, retried=True)
    assert not gaps.heard(NOON + SECOND, retried=True)
    assert gaps.heard(NOON + APART)
    assert not gaps.heard(NOON + 2 * APART)


def test_what_slack_leaves_out_for_a_minute_is_looked_for_after_it(gaps: Gaps) -> None:
    assert not gaps.heard(NOON, dropped=True)
    assert not gaps.heard(NOON + 30 * SECOND, retried=True)
    assert gaps.heard(NOON + APART)


def test_clock_set_back_does_no_harm(gaps: Gaps) -> None:
    assert not gaps.heard(NOON - timedelta(hours=1))
    assert gaps.heard(NOON)  # an hour without a sound, as far as anybody can tell
