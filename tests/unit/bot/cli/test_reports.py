from __future__ import annotations

import asyncio
import json
import stat
import subprocess
import sys
import tracemalloc
from datetime import UTC, datetime, timedelta
from typing import Any
from unittest.mock import patch

import pytest

from bot.cli.reports import export_to, period_of, trail
from core.clock import iso
from core.errors import BadInput
from core.records import parse
from tests.unit.bot.cli.shelves import ARCHITECT, FOLAKE, Place, foreign, ledger_of


def test_export_says_who_asked_who_answered_when_through_what(place: Place) -> None:
    asked = place.ask(42, "engineer", "architect", "OAuth", "Which flow?")
    place.later(minutes=5)
    answered = place.answer(asked, "PKCE", ARCHITECT)
    question, answer = place.lines()
    common = {
        "clarification": "CLR-42-001",
        "issue": 42,
        "round": 1,
        "from": "engineer",
        "to": "architect",
        "topic": "OAuth",
        "blocking": True,
        "status": "answered",
    }
    assert question == common | {
        "type": "question",
        "by": "engineer",
        "body": "Which flow?",
        "timestamp": iso(asked.created),
        "surface": "shell",
        "producer": None,
        "session": None,
    }
    assert answer == common | {
        "type": "answer",
        "by": "architect",
        "body": "PKCE",
        "timestamp": iso(answered.thread[1].timestamp),
        "decidedBy": "agent:architect",
        "surface": "responder",
        "team": None,
        "user": None,
        "response": "PKCE",
        "rationale": None,
        "reply": None,
    }


def test_export_tells_each_round_by_its_own_answer(place: Place) -> None:
    for decider, text in ((ARCHITECT, "one"), (FOLAKE, "two"), (ARCHITECT, "three")):
        place.answer(place.ask(42, "engineer", "architect"), text, decider)
        place.later(minutes=1)
    answers = [line for line in place.lines() if line["type"] == "answer"]
    assert [(a["round"], a["response"], a["decidedBy"], a["user"]) for a in answers] == [
        (1, "one", "agent:architect", None),
        (2, "two", "user:slack/T1/U1", "U1"),
        (3, "three", "agent:architect", None),
    ]


def test_export_of_the_last_round_asked_beyond_keeps_its_answer(place: Place) -> None:
    place.answer(place.ask(42, "engineer", "architect", max_rounds=1), "the only one", FOLAKE)
    place.later(minutes=1)
    place.ask(42, "engineer", "architect")
    lines = place.lines()
    assert [line["type"] for line in lines] == ["question", "answer", "question", "escalation"]
    assert (lines[1]["user"], lines[1]["response"]) == ("U1", "the only one")


def test_export_never_tells_a_reply_token(place: Place) -> None:
    token = "tok_very_secret"
    more: dict[str, Any] = {
        "via": None,
        "producer": "p",
        "session_id": "s",
        "event_id": "e",
        "reply_token": token,
    }
    place.answer(place.ask(42, "engineer", "human", **more), "yes", FOLAKE)
    lines = place.lines()
    assert token not in json.dumps(lines)
    assert (lines[0]["surface"], lines[0]["producer"], lines[1]["reply"]) == ("aaep", "p", "sending")


def test_export_of_others_records_says_what_they_wrote(place: Place) -> None:
    place.ledger.path(5).write_text(ledger_of(5, foreign(5, 1)))
    question, answer = place.lines()
    assert (question["surface"], answer["surface"], answer["decidedBy"]) == ("ledger", "ledger", None)
    assert (answer["by"], answer["response"]) == ("architect", "a")


def test_trail_is_in_the_order_of_time() -> None:
    written = foreign(5, 1)
    written["thread"].reverse()
    record = parse(written)
    assert record is not None
    assert [line["type"] for line in trail(record)] == ["question", "answer"]


def test_trail_survives_earlier_rounds_that_others_broke() -> None:
    record = parse(foreign(5, 1) | {"aaep": {"earlier": [{"nudges": "many"}], "kinds": ["freetext"]}})
    assert record is not None
    assert len(list(trail(record))) == 2


def test_export_takes_the_archive_too_and_nothing_twice(place: Place) -> None:
    place.ask(42, "engineer", "architect", "first")
    place.archive(42)
    place.ledger.path(42).write_text((place.folder / "archive" / "issue-42.json").read_text())
    place.ask(43, "engineer", "architect", "second")
    place.archive(43, "issue-43-20260101.json")
    assert [line["topic"] for line in place.lines()] == ["first", "second"]


def test_export_tells_another_one_of_the_same_number_apart(place: Place) -> None:
    place.ask(42, "engineer", "architect", "ours")
    place.archive(42)
    place.ledger.path(42).write_text(ledger_of(42, foreign(42, 1, topic="theirs")))
    assert {line["topic"] for line in place.lines()} == {"ours", "theirs"}


def test_export_takes_what_is_asked_for(place: Place) -> None:
    place.ledger.path(5).write_text(ledger_of(5, foreign(5, 1)))
    place.ask(42, "engineer", "architect")
    place.ask(43, "engineer", "architect")
    assert {line["issue"] for line in place.lines()} == {5, 42, 43}
    assert {line["issue"] for line in place.lines("--since", "1d")} == {42, 43}
    assert {line["issue"] for line in place.lines("--issue", "43")} == {43}
    assert {line["issue"] for line in place.lines("--since", "999999w")} == {5, 42, 43}


@pytest.mark.parametrize("since", ["soon", "-1d", "0d", "", "9" * 9 + "d"])
def test_export_since_what_is_no_span(place: Place, since: str) -> None:
    done = place.run("export", f"--since={since}")
    assert (done.exit_code, done.stdout) == (2, "")
    assert "BAD_INPUT" in done.stderr


def test_export_names_what_cannot_be_read_and_exports_the_rest(place: Place) -> None:
    place.ask(42, "engineer", "architect")
    place.ledger.path(43).write_text("no ledger")
    (place.folder / "archive").mkdir()
    (place.folder / "archive" / "issue-44.json").write_text("[]")
    place.ledger.path(45).write_text(ledger_of(45, foreign(45, 1), {"id": "CLR-45-002"}, 7))
    done = place.run("export")
    assert done.exit_code == 1
    assert {json.loads(line)["issue"] for line in done.stdout.splitlines()} == {42, 45}
    for named in ("issue-43.json", "archive/issue-44.json", "CLR-45-002", "record 3 in issue-45.json"):
        assert named in done.stderr, named
    assert (place.folder / "archive" / "issue-44.json").read_text() == "[]", "the archive was touched"


def test_export_of_live_words_is_inert_and_whole(place: Place) -> None:
    words = "\x1b[2J\x9b31m\u202e日本 \u2028 \ud83d [red]x[/red]\n"
    place.ledger.path(5).write_text(ledger_of(5, foreign(5, 1, topic=words)))
    done = place.run("export")
    line = done.stdout.splitlines()[0]
    assert json.loads(line)["topic"] == words
    assert not set(line) & set("\x1b\x9b\u202e\u2028")
    assert "日本" in line


def test_export_writes_a_file_whole(place: Place) -> None:
    place.ask(42, "engineer", "architect", "日本")
    file = place.root / "trail.jsonl"
    file.write_text("old")
    file.chmod(0o640)
    done = place.run("export", "-o", str(file))
    assert (done.exit_code, done.stdout) == (0, "")
    assert json.loads(file.read_text(encoding="utf-8"))["topic"] == "日本"
    assert stat.S_IMODE(file.stat().st_mode) == 0o640
    assert sorted(each.name for each in place.root.iterdir()) == [".agentx", "trail.jsonl"]


def test_export_into_a_file_writes_the_rest_too(place: Place) -> None:
    place.ask(42, "engineer", "architect")
    place.ledger.path(43).write_text("no ledger")
    file = place.root / "trail.jsonl"
    assert place.run("export", "-o", str(file)).exit_code == 1
    assert len(file.read_text().splitlines()) == 1


def test_export_into_a_folder_that_is_not_there(place: Place) -> None:
    done = place.run("export", "-o", str(place.root / "no" / "trail.jsonl"))
    assert done.exit_code == 1
    assert "cannot be written" in done.stderr


def test_export_holds_one_ledger_at_a_time(place: Place) -> None:
    """Fifty ledgers of 200 kB: ten megabytes that are never there together."""
    for issue in range(1, 51):
        items = (foreign(issue, number, topic="x" * 20_000) for number in range(1, 11))
        place.ledger.path(issue).write_text(ledger_of(issue, *items))
    written = 0

    def count(line: object) -> None:
        nonlocal written
        written += 1

    tracemalloc.start()
    try:
        asyncio.run(export_to(count, place.ledger, None, None))
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert written == 1_000
    assert most < 4_000_000


def test_export_misses_nothing_that_is_archived_meanwhile(place: Place) -> None:
    place.ask(42, "engineer", "architect")
    read = place.ledger.read

    async def moved_first(issue: int) -> object:
        place.archive(issue)
        return await read(issue)

    lines: list[object] = []
    with patch.object(place.ledger, "read", moved_first):
        assert asyncio.run(export_to(lines.append, place.ledger, None, None)) == []
    assert len(lines) == 1


PNG = b"\x89PNG\r\n\x1a\n"
NOW = datetime(2026, 11, 22, 9, 0, tzinfo=UTC)


def test_digest_counts_live_and_archived_within_the_span(place: Place) -> None:
    place.ledger.path(5).write_text(ledger_of(5, foreign(5, 1)))
    asked = place.ask(42, "engineer", "architect", "OAuth")
    place.later(minutes=10)
    place.answer(asked, "PKCE", FOLAKE)
    place.archive(42)
    place.ask(43, "qa", "architect", "Data")
    week = place.json("digest")
    assert (week["total"], week["open"], week["answered"], week["answers"]) == (2, 1, 1, 1)
    assert (week["medianSeconds"], week["roundsMax"]) == (600.0, 1)
    assert week["answerers"] == [{"name": "user:slack/T1/U1", "times": 1}]
    assert place.json("digest", "--since", "5000d")["total"] == 3
    assert place.json("digest", "--since", "999999w")["since"] is None


def test_digest_in_a_pipe_says_of_when_and_cuts_nothing(place: Place) -> None:
    topic = "x" * 100
    place.ask(42, "engineer", "architect", topic)
    lines = place.run("digest", "--since", "2d").stdout.splitlines()
    assert lines[0].startswith("Period\t20")
    assert "Asked\t1" in lines
    assert f"Top topics: {topic}\t1" in lines


@pytest.mark.parametrize("span", ["", "7", "-1d", "0d", "1y", "1d" * 3 + "x"])
def test_digest_since_what_is_no_span(place: Place, span: str) -> None:
    done = place.run("digest", f"--since={span}")
    assert (done.exit_code, "BAD_INPUT" in done.stderr) == (2, True)


def test_period_of_a_span_beyond_all_time() -> None:
    assert period_of("999999w", NOW).since is None
    assert period_of("7d", NOW).since == NOW - timedelta(days=7)
    with pytest.raises(BadInput):
        period_of("999999w" * 1000, NOW)


def test_digest_names_what_is_not_counted(place: Place) -> None:
    place.ask(42, "engineer", "architect")
    place.ledger.path(43).write_text("{")
    done = place.run("digest")
    assert (done.exit_code, "Asked\t1" in done.stdout, "issue-43.json" in done.stderr) == (1, True, True)


def test_digest_draws_a_picture_and_says_the_figures_too(place: Place) -> None:
    place.ask(42, "engineer", "architect")
    file = place.root / "week.png"
    done = place.run("digest", "--png", str(file), "--json")
    assert (done.exit_code, '"total": 1' in done.stdout) == (0, True)
    assert file.read_bytes().startswith(PNG)


def test_digest_draws_into_a_folder_that_is_not_there(place: Place) -> None:
    done = place.run("digest", "--png", str(place.root / "no" / "week.png"))
    assert (done.exit_code, "cannot be written" in done.stderr) == (1, True)


def test_only_a_picture_loads_what_draws_it() -> None:
    code = "import sys, bot.cli, bot.cli.reports; print([n for n in ('matplotlib', 'numpy') if n in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
