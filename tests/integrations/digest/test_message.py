"""The digest as a message: what its tables hold, and that Slack takes it."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import date, timedelta
from typing import Any

import pytest

from bot.integrations.digest.figures import Approvals, Count, Digest, DigestBuilder, Share, Stretch
from bot.integrations.digest.message import by_day, by_route
from bot.integrations.digest.message import message as digest
from bot.views.render import RenderedMessage
from tests.unit.bot.judges import RENDERER, judge_message, shown

MINUTE = timedelta(minutes=1)
FIRST = date(2026, 11, 20)


def figures(**more: Any) -> Digest:
    return replace(DigestBuilder().result(), **more)


def shares(number: int, name: str = "agent-{}-*") -> tuple[Share, ...]:
    return tuple(Share(name.format(n), 100 - n, 1, n * MINUTE + MINUTE) for n in range(number))


def message(found: Digest, *names: str, locale: str = "") -> RenderedMessage:
    """The message, which Slack takes."""
    counted = [(title, [Count(name, 3) for name in names]) for title in ("Top topics", "Top askers") if names]
    draft = digest(
        found,
        "Last 7 days",
        "UTC",
        counted=counted,
        shown=lambda name: name,
        notes=["A note."],
        locale=locale,
    )
    made = RENDERER.message(draft)
    judge_message(made)
    return made


def test_of_30_routes_20_are_listed_and_the_rest_is_told() -> None:
    found = by_route(figures(routes=shares(30)))
    assert found is not None
    rows = [line.split() for line in found.table.splitlines()[1:]]
    assert [(row[0], row[-1]) for row in rows] == [(f"{n + 1}.0", f"agent-{n}-*") for n in range(20)]
    rest = "And agent-20-*, agent-21-*, agent-22-* and 7 more: 755 asked."
    assert found.note == rest
    assert rest in message(figures(routes=shares(30))).text


@pytest.mark.parametrize("number", [0, 1])
def test_one_route_is_not_compared(number: int) -> None:
    assert by_route(figures(routes=shares(number))) is None


def test_routes_without_an_answer_have_no_time() -> None:
    asked = Share("slow-*", 5, 0, None, Approvals(expired=2))
    found = by_route(figures(routes=(*shares(1), asked)))
    assert found is not None
    assert found.table.splitlines()[1:] == [
        "    1.0        1    100  agent-0-*",
        "      -        0      5  slow-* (2 expired)",
    ]
    unanswered = by_route(figures(routes=(asked, replace(asked, name="*"))))
    assert unanswered is not None
    assert "all others" in unanswered.table
    message(figures(routes=(asked, replace(asked, name="*"))))


def test_nothing_asked_has_no_table() -> None:
    assert by_day(figures(), "UTC") is None
    assert [block["type"] for block in message(figures()).blocks] == ["header", "section", "section"]


def test_days_and_longer_stretches_are_named() -> None:
    days = by_day(
        figures(stretches=(Stretch(FIRST, 1, 2, 1), Stretch(FIRST + timedelta(1), 1))), "Asia/Tokyo"
    )
    assert days is not None
    assert days.table.splitlines() == [
        "Day         Answered  Open  Closed",
        "Fri 20 Nov         2     1       0",
        "Sat 21 Nov         0     0       0",
    ]
    assert days.lines == ("Fri 20 Nov: 2 answered, 1 open", "Sat 21 Nov: none")
    weeks = by_day(figures(stretches=(Stretch(FIRST, 7, closed=1), Stretch(FIRST + timedelta(7), 7))), "UTC")
    assert weeks is not None
    assert weeks.title == "Questions every 7 days by outcome"
    assert [line[:6] for line in weeks.table.splitlines()[1:]] == ["20 Nov", "27 Nov"]


@pytest.mark.parametrize(
    "name", ["<!channel> *b* & <https://x.example|y>", "日本語" * 60, "\x1b[2J\u202e\x00", "&" * 300]
)
def test_p8_names_are_inert_and_all_fits(name: str) -> None:
    many = {
        "routes": tuple(
            replace(each, name=f"{n}{name}", approvals=Approvals(9999, 9999, 9999, 9999))
            for n, each in enumerate(shares(30))
        ),
        "people": tuple(
            replace(each, name="x" * 80, approvals=Approvals(9999, 9999, 9999, 9999)) for each in shares(10)
        ),
        "stretches": tuple(Stretch(FIRST + timedelta(n), 1, 1000, 1000, 1000) for n in range(20)),
    }
    made = message(figures(**many), *[name] * 5)
    assert sum(block["type"] == "rich_text" for block in made.blocks) == 2
    live = json.dumps([block for block in made.blocks if block["type"] == "section"])
    assert "<!channel>" not in live + made.text


def test_text_reads_all_of_it_aloud() -> None:
    text = message(figures(routes=shares(2), stretches=(Stretch(FIRST, 1, 1),)), "Deploy").text
    assert text.splitlines()[-8:] == [
        "Fri 20 Nov: 1 answered",
        "Days in the time zone UTC.",
        "Median time to answer by route",
        "agent-0-*: 1.0 minutes, 100 asked, 1 answer",
        "agent-1-*: 2.0 minutes, 99 asked, 1 answer",
        "Top topics: Deploy (3)",
        "Top askers: Deploy (3)",
        "A note.",
    ]


@pytest.mark.parametrize(
    ("locale", "asked", "average", "share", "day"),
    [
        ("", "1204 (", "1.3 on average", "1.5     1204   1204", "1204     0       0"),
        ("de-DE", "1.204 (", "1,3 on average", "1,5    1.204  1.204", "1.204     0       0"),
    ],
)
def test_figures_are_written_for_one_reader_and_plainly_for_several(
    locale: str, asked: str, average: str, share: str, day: str
) -> None:
    found = figures(
        total=1204,
        rounds_mean=1.3,
        rounds_max=4,
        routes=(Share("v1.5000-*", 1204, 1204, 1.5 * MINUTE), *shares(1)),
        stretches=(Stretch(FIRST, 1, 1204),),
    )
    made = message(found, "2000 mails", locale=locale)
    seen = shown(made.blocks)
    for part in (asked, average, share, day, "v1.5000-*", "2000 mails (3)"):
        assert part in seen
    for part in (
        asked,
        average,
        f"{asked[:-2]} asked",
        f"{asked[:-2]} answered",
        "v1.5000-*",
        "2000 mails (3)",
    ):
        assert part in made.text
