"""What is said of a digest that is drawn."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from bot.commands.pictures import Drawing, alt_of, comment_of
from core.digest import Count, DigestBuilder
from tests.kit.clocks import ManualClock

DAY = timedelta(days=1)
NONE = DigestBuilder().result()


def drawing(**changes: object) -> Drawing:
    return replace(Drawing(NONE, 7 * DAY, ManualClock().now()), **changes)  # type: ignore[arg-type]  # as tables have it


@pytest.mark.parametrize(
    ("span", "title"),
    [
        (7 * DAY, "Last 7 days"),
        (30 * DAY, "Last 30 days"),
        (DAY, "Last 24 hours"),
        (DAY / 2, "Last 12 hours"),
        (DAY / 24, "Last hour"),
        (1.5 * DAY, "Last 1 day 12 hours"),
    ],
)
def test_title_says_the_span(span: timedelta, title: str) -> None:
    assert drawing(span=span).title == title


def test_comment_says_the_figures_and_no_name() -> None:
    figures = replace(
        NONE, total=4, open=3, resolved=1, escalated=2, answers=1, topics=(Count("<!here>", 4),)
    )
    figures = replace(figures, median=timedelta(minutes=3), p95=timedelta(minutes=5))
    assert comment_of(drawing(figures=figures, unread=2)) == (
        "Last 7 days: 4 asked, of which 1 resolved, 0 answered, 3 open and 0 abandoned; "
        "2 escalated at some time. Time to answer: median 3 minutes, 95 % within 5 minutes, of 1 answer. "
        "2 ledgers could not be read and are not counted. Only what you may see is counted."
    )


def test_alt_says_all_within_what_slack_takes() -> None:
    names = tuple(Count(f"{'long ' * 40}{n}\n", n) for n in range(5))
    alt = alt_of(drawing(figures=replace(NONE, askers=names, answerers=names, topics=names)))
    assert "Asks most: long long" in alt
    assert "Top topics: " in alt
    assert "\n" not in alt
    assert len(alt) <= 1000
    blank = replace(NONE, topics=(Count(" \n", 1),))
    assert alt_of(drawing(figures=blank)).endswith("Top topics: (blank) 1.")
