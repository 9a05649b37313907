from __future__ import annotations

import csv
import io
import json
import stat
from datetime import UTC, datetime
from typing import Any

import pytest

from bot.cli.reports import COLUMNS, Beside, trail
from bot.oncall.incidents import Incident
from bot.oncall.pages import Logged
from core.clock import iso
from core.ledgerfiles import read_item
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
    assert {line["issue"] for line in prompt.lines("--since", "2020-01-03")} == {42, 43}


@pytest.mark.parametrize("since", ["soon", "-1d", "9" * 9 + "d"])
def test_export_since_what_is_no_span(prompt: Prompt, since: str) -> None:
    done = prompt("export", f"--since={since}")
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
