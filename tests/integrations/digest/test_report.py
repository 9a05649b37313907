from __future__ import annotations

import io
import re
import sys
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta

import pytest

from bot.cli.output import Output
from bot.integrations.digest.figures import Digest, DigestBuilder, Share, Stretch
from bot.integrations.digest.report import Period, parts_of
from core.clock import moment_of
from tests.unit.bot.cli.kit import FOLAKE, Prompt, long_ago

SUNDAY = datetime(2026, 11, 22, tzinfo=UTC)


ROUTES = '[slack]\nfallback_channel = "C0FALLBACK"\n[[routes]]\nagent = "eng*"\nchannel = "C0ENG"\n'


def test_digest_counts_the_span_by_day_route_and_person(prompt: Prompt) -> None:
    topic = "x" * 100
    prompt.write(5, long_ago(5, 1))
    asked = prompt.ask(42, "engineer", "architect", topic)
    prompt.later(minutes=10)
    prompt.answer(asked, "PKCE", FOLAKE)
    for issue in (43, 44, 45):
        prompt.ask(issue, "qa", "architect", "Data")
    person = "By person: user:slack/T1/U1\t1 answer, median 10 minutes"
    assert [line for line in prompt("digest").out.splitlines() if line.startswith("By ")] == [person]
    prompt.configure(ROUTES)
    week = prompt.json("digest", "3d")
    assert (week["total"], week["open"], week["answered"], week["answers"]) == (4, 3, 1, 1)
    assert (week["medianSeconds"], week["roundsMax"]) == (600.0, 1)
    assert week["answerers"] == [{"name": "user:slack/T1/U1", "times": 1}]
    assert week["routes"] == [
        {"name": "*", "asked": 3, "answers": 0, "medianSeconds": None},
        {"name": "eng*", "asked": 1, "answers": 1, "medianSeconds": 600.0},
    ]
    assert week["people"] == [{"name": "user:slack/T1/U1", "answers": 1, "medianSeconds": 600.0}]
    days = week["days"]
    assert len(days) == 4
    (today,) = [each for each in days if each["answered"]]
    assert today == {"first": f"{asked.created:%Y-%m-%d}", "days": 1, "answered": 1, "open": 3, "closed": 0}
    assert prompt.json("digest", "--since", "5000d")["total"] == 5
    assert prompt.json("digest", "--since", "999999w")["since"].startswith("0001-01-01T")

    lines = prompt("digest", "--since", "3d").out.splitlines()
    assert lines[0].startswith("Period\t20")
    assert [line for line in lines if line.startswith("By ")] == [
        "By route: all others\t3 asked, no answer",
        "By route: eng*\t1 asked, 1 answer, median 10 minutes",
        person,
    ]
    for line in (
        "Asked\t4 (1 answered, 3 open, 0 closed without an answer)",
        f"Top topics: {topic}\t1",
        f"Questions of {today['first']}\t1 answered, 3 open",
        f"Questions of {days[0]['first']}\tnone",
    ):
        assert line in lines
    assert not set("█▒░") & set("".join(lines)), "bars are for a terminal"


def on_a_terminal(patch: pytest.MonkeyPatch, digest: Digest) -> list[str]:
    stream = io.StringIO()
    patch.setattr(stream, "isatty", lambda: True)
    patch.setattr(sys, "stdout", stream)
    patch.setenv("COLUMNS", "100")
    parts = parts_of(digest, Period(moment_of("7d", SUNDAY), SUNDAY))
    Output(json=False).show(None, *parts)
    plain = re.sub(r"\x1b\[[\d;]*m", "", stream.getvalue())
    return [" ".join(line.split()) for line in plain.splitlines()]


def test_digest_on_a_terminal_has_bars_in_proportion(monkeypatch: pytest.MonkeyPatch) -> None:
    first = date(2026, 11, 20)
    stretches = (
        Stretch(first, 1, 1, 1, 1),
        Stretch(first + timedelta(1), 1),
        Stretch(first + timedelta(2), 1, 60),
    )
    times = tuple(
        Share(name, 3, 1, median)
        for name, median in (("*", timedelta(hours=2)), ("eng*", timedelta(hours=1)), ("idle", None))
    )
    digest = replace(DigestBuilder().result(), stretches=stretches, routes=times)
    lines = on_a_terminal(monkeypatch, digest)
    assert "2026-11-20 █▒░ 1 answered, 1 open, 1 closed without an answer" in lines
    assert "2026-11-21 none" in lines
    assert f"2026-11-22 {'█' * 30} 60 answered" in lines
    assert f"all others {'█' * 30} 3 asked, 1 answer, median 2 hours" in lines
    assert f"eng* {'█' * 15} 3 asked, 1 answer, median 1 hour" in lines
    assert "idle 3 asked, no answer" in lines
    long = on_a_terminal(monkeypatch, replace(digest, stretches=(Stretch(first, 7, 1), Stretch(first, 7))))
    assert "7 days from (UTC) Questions: █ answered, ▒ open, ░ closed" in long


def test_digest_counts_approvals(prompt: Prompt) -> None:
    consent = {
        "kinds": ["confirmation"],
        "action": "Send it",
        "riskLevel": "high",
        "approvals": [{"decidedBy": "user:bea", "at": "2020-01-02T03:30:00Z", "digest": ""}],
        "decidedBy": "user:ade",
        "receivedAt": "2020-01-02T03:04:05Z",
        "answeredAt": "2020-01-02T04:04:05Z",
        "response": "accept",
    }
    prompt.write(
        5,
        long_ago(5, 1, aaep=consent),
        long_ago(5, 2, aaep={"kinds": ["confirmation"]} | {"closed": "expired"}),
    )
    counts = {"approved": 1, "rejected": 0, "expired": 1, "edited": 0}
    found = prompt.json("digest", "9999d")
    assert found["approvals"] == counts
    assert found["decided"] == [{"risk": "high", "times": 1, "medianSeconds": 3600.0}]
    assert {each["name"]: each["approvals"]["approved"] for each in found["people"]} == {
        "user:ade": 1,
        "user:bea": 1,
    }
    lines = prompt("digest", "9999d").out.splitlines()
    assert "Approvals\t1 approved, 1 expired" in lines
    assert "Time to decide\thigh risk median 1 hour (1)" in lines
    assert "By person: user:bea\t1 approved" in lines


@pytest.mark.parametrize("words", [["soon"], ["--since=-1d"], ["7d", "--since=2d"]])
def test_digest_of_what_is_no_span(prompt: Prompt, words: list[str]) -> None:
    done = prompt("digest", *words)
    assert (done.code, done.out) == (2, "")
    assert "BAD_INPUT" in done.err
