from __future__ import annotations

import csv
import io
import json
import re
import stat
import sys
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest

from bot.cli.output import Output
from bot.cli.reports import digest_parts, period_of
from bot.cli.trail import COLUMNS, Beside, trail
from bot.oncall.incidents import Incident
from bot.oncall.pages import Logged
from core.clock import iso
from core.digest import Digest, DigestBuilder, Share, Stretch
from core.ledgerformat import read_item
from tests.unit.bot.cli.kit import ARCHITECT, FOLAKE, Prompt, long_ago


def test_export_says_who_asked_who_answered_when_through_what(prompt: Prompt) -> None:
    asked = prompt.ask(42, "engineer", "architect", "OAuth", "Which flow?")
    prompt.later(minutes=5)
    answered = prompt.answer(asked, "PKCE", ARCHITECT)
    question, answer = prompt.lines()
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
        "receipt": None,
        "reply": None,
    }


def test_export_tells_each_round_by_its_own_answer(prompt: Prompt) -> None:
    for decider, text in ((ARCHITECT, "one"), (FOLAKE, "two"), (ARCHITECT, "three")):
        prompt.answer(prompt.ask(42, "engineer", "architect"), text, decider)
        prompt.later(minutes=1)
    answers = [line for line in prompt.lines() if line["type"] == "answer"]
    assert [(a["round"], a["response"], a["decidedBy"], a["user"]) for a in answers] == [
        (1, "one", "agent:architect", None),
        (2, "two", "user:slack/T1/U1", "U1"),
        (3, "three", "agent:architect", None),
    ]


def test_export_of_the_last_round_asked_beyond_keeps_its_answer(prompt: Prompt) -> None:
    prompt.answer(prompt.ask(42, "engineer", "architect", max_rounds=1), "the only one", FOLAKE)
    prompt.later(minutes=1)
    prompt.ask(42, "engineer", "architect")
    lines = prompt.lines()
    assert [line["type"] for line in lines] == ["question", "answer", "question", "escalation"]
    assert (lines[1]["user"], lines[1]["response"]) == ("U1", "the only one")


def test_export_never_tells_a_reply_token(prompt: Prompt) -> None:
    token = "tok_very_secret"
    more: dict[str, Any] = {
        "via": None,
        "producer": "p",
        "session_id": "s",
        "event_id": "e",
        "reply_token": token,
    }
    prompt.answer(prompt.ask(42, "engineer", "human", **more), "yes", FOLAKE)
    lines = prompt.lines()
    assert token not in json.dumps(lines)
    assert (lines[0]["surface"], lines[0]["producer"], lines[1]["reply"]) == ("aaep", "p", "sending")


def test_export_of_others_records_says_what_they_wrote(prompt: Prompt) -> None:
    prompt.write(5, long_ago(5, 1))
    question, answer = prompt.lines()
    assert (question["surface"], answer["surface"], answer["decidedBy"]) == ("ledger", "ledger", None)
    assert (answer["by"], answer["response"]) == ("architect", "a")


def test_earlier_rounds_that_others_broke_are_shown_and_exported(prompt: Prompt) -> None:
    prompt.write(5, long_ago(5, 1, round=2, aaep={"earlier": [{"nudges": "many"}], "kinds": ["freetext"]}))
    assert "architect answers" in prompt.fine("show", "CLR-5-001")
    assert len(prompt.lines()) == 2


def test_export_takes_what_is_asked_for(prompt: Prompt) -> None:
    prompt.write(5, long_ago(5, 1))
    prompt.ask(42, "engineer", "architect")
    prompt.ask(43, "engineer", "architect")
    assert {line["issue"] for line in prompt.lines()} == {5, 42, 43}
    assert {line["issue"] for line in prompt.lines("--since", "1d")} == {42, 43}
    assert {line["issue"] for line in prompt.lines("--issue", "43")} == {43}
    assert {line["issue"] for line in prompt.lines("--since", "999999w")} == {5, 42, 43}


@pytest.mark.parametrize("command", ["export", "digest"])
@pytest.mark.parametrize("since", ["soon", "-1d", "9" * 9 + "d"])
def test_reports_since_what_is_no_span(prompt: Prompt, command: str, since: str) -> None:
    done = prompt(command, f"--since={since}")
    assert (done.code, done.out) == (2, "")
    assert "BAD_INPUT" in done.err


def test_export_names_what_cannot_be_read_and_exports_the_rest(prompt: Prompt) -> None:
    prompt.ask(42, "engineer", "architect")
    prompt.ask(43, "engineer", "architect")
    prompt.tear(43)
    prompt.write(45, long_ago(45, 1), {"id": "CLR-45-002"})
    done = prompt("export")
    assert done.code == 1
    assert {json.loads(line)["issue"] for line in done.out.splitlines()} == {42, 45}
    for named in ("CLR-43-001", "CLR-45-002"):
        assert named in done.err, named
    file = prompt.folder / "trail.jsonl"
    assert prompt("export", "-o", str(file)).code == 1
    assert file.read_text() == done.out


def test_export_writes_a_file_whole(prompt: Prompt) -> None:
    prompt.ask(42, "engineer", "architect", "日本")
    file = prompt.folder / "reports" / "trail.jsonl"
    file.parent.mkdir()
    file.write_text("old")
    done = prompt("export", "-o", str(file))
    assert (done.code, done.out) == (0, "")
    assert json.loads(file.read_text(encoding="utf-8"))["topic"] == "日本"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert list(file.parent.iterdir()) == [file]
    nowhere = prompt("export", "-o", str(prompt.folder / "no" / "file"))
    assert (nowhere.code, "cannot be written" in nowhere.err) == (1, True)


@pytest.mark.parametrize(
    "said",
    ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1", "\n=1", "＝1", "＋1", "－1", "＠1"],
)
def test_export_as_csv_has_no_formula(prompt: Prompt, said: str) -> None:
    prompt.answer(prompt.ask(42, "engineer", "architect", words=said), said, FOLAKE)
    head, *rows = csv.reader(io.StringIO(prompt.fine("export", "--csv"), newline=""))
    assert tuple(head) == COLUMNS
    cells = [dict(zip(head, each, strict=True)) for each in rows]
    assert [each["body"][0] for each in cells] == ["'", "'"]
    assert cells[1]["response"].startswith("'")
    assert [each["body"] for each in prompt.lines()] == [said, said], "JSON is as it was said"


def test_export_as_csv_obeys_no_terminal_and_keeps_the_rest(prompt: Prompt) -> None:
    prompt.ask(42, "engineer", "architect", words='a, "b"\n\x1b[31mc; 日本')
    (row,) = csv.DictReader(io.StringIO(prompt.fine("export", "--csv"), newline=""))
    assert (row["body"], row["blocking"], row["producer"]) == ('a, "b"\n[31mc; 日本', "true", "")


def test_export_as_csv_has_a_column_for_each_field(prompt: Prompt) -> None:
    consent = {
        "kinds": ["confirmation"],
        "action": "Send it",
        "riskLevel": "high",
        "direct": {"kind": "approval"},
        "arguments": {"to": "all"},
        "editable": False,
        "edits": [{"changed": {"to": "me"}, "decidedBy": "user:ade", "at": "2020-01-02T03:31:00Z"}],
        "approvals": [{"decidedBy": "user:bea", "at": "2020-01-02T03:30:00Z", "digest": ""}],
        "decidedBy": "user:ade",
        "answeredAt": "2020-01-02T04:04:05Z",
        "response": "accept",
        "refusals": [
            {"by": "user:eve", "surface": "slack", "why": "guest", "times": 3}
            | dict.fromkeys(("first", "last"), "2020-01-02T03:50:00Z")
        ],
        "nudges": 2,
        "nudgedAt": "2020-01-02T03:20:00Z",
    }
    prompt.write(5, long_ago(5, 1, aaep=consent))
    record = read_item(prompt.record("CLR-5-001"))
    assert record is not None
    at = datetime(2020, 1, 2, 3, 40, tzinfo=UTC)
    sending: dict[str, object] = {"via": "slack", "to": "U1", "mentions": [], "state": "sent", "note": None}
    incident = Incident(1, "e", "escalated", "platform", None, record.id, "t", "overdue", "", None, at, None)
    paged = Logged(incident, {"what": "sent", "at": at.timestamp(), "step": 0, "page": 1}, (sending,))
    lines = trail(record, None, Beside({}, {record.id: [paged]}))
    assert [each["type"] for each in lines] == [
        *("question", "reminder", "approval", "edit", "page", "refusal", "answer"),
    ]
    named = {name for line in lines for name in line} - {"risk"}
    assert named <= set(COLUMNS)
    assert set(COLUMNS) - named == {*("riskClaimed", "riskCounted", "tampered", "lapsed")}
    reminder, edit = lines[1], lines[3]
    assert (reminder["number"], reminder["channel"]) == (2, None), "only the latest is in the ledger"
    assert (edit["before"], edit["changed"]) == ({"to": "all"}, {"to": "me"})


def test_digest_counts_within_the_span(prompt: Prompt) -> None:
    prompt.write(5, long_ago(5, 1))
    asked = prompt.ask(42, "engineer", "architect", "OAuth")
    prompt.later(minutes=10)
    prompt.answer(asked, "PKCE", FOLAKE)
    prompt.ask(43, "qa", "architect", "Data")
    week = prompt.json("digest")
    assert (week["total"], week["open"], week["answered"], week["answers"]) == (2, 1, 1, 1)
    assert (week["medianSeconds"], week["roundsMax"]) == (600.0, 1)
    assert week["answerers"] == [{"name": "user:slack/T1/U1", "times": 1}]
    assert prompt.json("digest", "--since", "5000d")["total"] == 3
    assert prompt.json("digest", "--since", "999999w")["since"] is None


def test_digest_in_a_pipe_has_the_same_figures_and_cuts_nothing(prompt: Prompt) -> None:
    topic = "x" * 100
    asked = prompt.ask(42, "engineer", "architect", topic)
    prompt.later(minutes=10)
    prompt.answer(asked, "PKCE", FOLAKE)
    for issue in (43, 44, 45):
        prompt.ask(issue, "qa", "architect", "Data")
    assert "By route" not in prompt("digest").out
    prompt.configure(
        '[slack]\nfallback_channel = "C0FALLBACK"\n[[routes]]\nagent = "eng*"\nchannel = "C0ENG"\n'
    )
    figures, lines = prompt.json("digest", "3d"), prompt("digest", "3d").out.splitlines()
    assert lines[0].startswith("Period\t20")
    assert {"Asked\t4", f"Top topics: {topic}\t1"} <= set(lines)
    assert [line for line in lines if line.startswith("By ")] == [
        "By route: all others\t3 asked, no answer",
        "By route: eng*\t1 asked, 1 answer, median 10 minutes",
        "By person: user:slack/T1/U1\t1 answer, median 10 minutes",
    ]
    assert figures["routes"] == [
        {"name": "*", "asked": 3, "answers": 0, "medianSeconds": None},
        {"name": "eng*", "asked": 1, "answers": 1, "medianSeconds": 600.0},
    ]
    assert figures["people"] == [{"name": "user:slack/T1/U1", "answers": 1, "medianSeconds": 600.0}]
    days = figures["days"]
    assert len(days) == 4
    (today,) = [each for each in days if each["answered"]]
    assert today == {"first": f"{asked.created:%Y-%m-%d}", "days": 1, "answered": 1, "open": 3, "closed": 0}
    assert f"Questions of {today['first']}\t1 answered, 3 open" in lines
    assert f"Questions of {days[0]['first']}\tnone" in lines
    assert not set("█▒░") & set("".join(lines)), "bars are for a terminal"


def on_a_terminal(patch: pytest.MonkeyPatch, digest: Digest) -> list[str]:
    stream = io.StringIO()
    patch.setattr(stream, "isatty", lambda: True)
    patch.setattr(sys, "stdout", stream)
    patch.setenv("COLUMNS", "100")
    parts = digest_parts(digest, period_of("7d", datetime(2026, 11, 22, tzinfo=UTC)))
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
    assert {"Approvals approved\t1", "Approvals expired\t1", "Approvals edited\t0"} <= set(lines)
    assert "Time to decide, high risk, median\t3600.000 s" in lines
    assert "By person: user:bea\t1 approved" in lines
