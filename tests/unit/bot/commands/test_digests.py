"""What is said of a digest that is drawn; the figures themselves are `core.digest`'s."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from bot.commands.digests import Drawing, described
from core.digest import Count, Digest, DigestBuilder
from tests.kit.clocks import ManualClock

NONE = DigestBuilder().result()


def drawn(figures: Digest, unread: int = 0) -> tuple[str, str]:
    return described(Drawing(figures, timedelta(days=7), ManualClock().now(), unread))


def test_comment_says_the_figures_and_no_name() -> None:
    figures = replace(
        NONE, total=4, open=3, resolved=1, escalated=2, answers=1, topics=(Count("<!here>", 4),)
    )
    figures = replace(figures, median=timedelta(minutes=3), p95=timedelta(minutes=5))
    assert drawn(figures, unread=2)[0] == (
        "Last 7 days. Asked: 4 (1 resolved, 0 answered, 3 open, 0 abandoned). Escalated: 2. "
        "Time to answer: median 3 minutes, 95 % within 5 minutes (1 answer). "
        "2 ledgers could not be read and are not counted. Counts only what you may see."
    )


def test_alt_says_all_within_what_slack_takes() -> None:
    names = tuple(Count(f"{'long ' * 40}{n}\n", n) for n in range(5))
    alt = drawn(replace(NONE, askers=names, answerers=names, topics=names))[1]
    assert "Top topics: long long" in alt
    assert "Top askers: " in alt
    assert "\n" not in alt
    assert len(alt) <= 1000
    assert drawn(replace(NONE, topics=(Count(" \n", 1),)))[1].endswith("Top topics: (blank) 1.")
