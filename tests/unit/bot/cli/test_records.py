from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from bot.cli.records import exact, relative
from bot.cli.waiting import seconds_of
from core.errors import BadInput

NOW = datetime(2026, 5, 24, 14, 22, tzinfo=UTC)


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0, "just now"),
        (59, "just now"),
        (60, "1 min ago"),
        (3599, "59 min ago"),
        (3600, "1 h ago"),
        (86_399, "23 h ago"),
        (86_400, "1 d ago"),
        (14 * 86_400, "14 d ago"),
        (15 * 86_400, "2026-05-09"),
        (-1, "in less than a minute"),
        (-60, "in 1 min"),
        (-7200, "in 2 h"),
        (-20 * 86_400, "2026-06-13"),
    ],
)
def test_times_are_told_from_now(seconds: int, words: str) -> None:
    assert relative(NOW - timedelta(seconds=seconds), NOW) == words


def test_times_are_exact_in_utc() -> None:
    there = datetime.fromisoformat("2026-05-24T16:22:00+02:00")
    assert exact(there) == "2026-05-24 14:22 UTC"


def test_times_of_a_timeout() -> None:
    assert (seconds_of(None), seconds_of("1h30m"), seconds_of("250ms")) == (None, 5400.0, 0.25)
    with pytest.raises(BadInput, match="90s, 30m or 1h30m"):
        seconds_of("-5m")
