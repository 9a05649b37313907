from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, get_args

import pytest

from bot.cli.app import StatusName
from bot.cli.records import relative
from bot.cli.running import seconds_of
from core.clarification import Answer, Choice, Confirmation, Decider, Status
from core.clock import iso
from core.errors import BadInput
from tests.kit.databases import open_store
from tests.unit.bot.cli.kit import Prompt, foreign

NOW = datetime(2026, 5, 24, 14, 22, tzinfo=UTC)
BEN = Decider("user:slack/T1/U2", "slack", "T1", "U2")


def ids(text: str) -> list[str]:
    return [line.split("\t")[0] for line in text.splitlines()]


def test_list_shows_what_is_open_the_most_urgent_first(prompt: Prompt) -> None:
    prompt.asked("later", issue=1)
    prompt.event(2, question="runs out")
    prompt.asked("passed on", issue=3)
    prompt.fine("escalate", "3")
    prompt.asked("answered", issue=4)
    prompt.fine("answer", "4", "yes")
    assert ids(prompt.fine("list")) == ["CLR-3-001", "CLR-2-001", "CLR-1-001"]
    assert ids(prompt.fine("list", "--all"))[-1] == "CLR-4-001"
    first = prompt.fine("list").splitlines()[0].split("\t")
    assert first[:3] == ["CLR-3-001", "escalated (by hand)", "engineer → architect"]
    assert first[4] == "passed on"
    assert datetime.now(UTC) - datetime.fromisoformat(first[3]) < timedelta(minutes=5)


@pytest.mark.parametrize(
    ("arguments", "found"),
    [
        (["--issue", "7"], ["CLR-7-001", "CLR-7-002"]),
        (["--issue", "9"], []),
        (["--from", "ENGINEER"], ["CLR-7-001"]),
        (["--to", "architect"], ["CLR-7-001"]),
        (["--status", "answered"], ["CLR-7-003"]),
        (["--status", "answered", "--status", "pending"], ["CLR-7-001", "CLR-7-003"]),
        (["--all"], ["CLR-7-001", "CLR-7-002", "CLR-7-003"]),
    ],
)
def test_list_of_some_only(prompt: Prompt, arguments: list[str], found: list[str]) -> None:
    other: dict[str, Any] = {"from": "reviewer", "to": "engineer"}
    prompt.write(
        7, foreign(1), foreign(2, status="escalated", **other), foreign(3, status="answered", **other)
    )
    assert sorted(ids(prompt.fine("list", *arguments))) == found
    assert sorted(each["id"] for each in prompt("list", "--json", *arguments).json) == found


def test_lists_take_an_issue_as_slack_does(prompt: Prompt) -> None:
    prompt.asked("one", issue=1)
    prompt.asked("two", issue=2)
    for words in (("list", "2"), ("list", "#2"), ("list", "2", "--issue", "2")):
        assert ids(prompt.fine(*words)) == ["CLR-2-001"]
    for wrong in (("list", "two"), ("list", "2", "--issue", "1")):
        said = prompt(*wrong)
        assert (said.code, "is not an issue number" in said.err) == (2, True)


@pytest.mark.parametrize(
    "words", [("show", "#2"), ("show", "2"), ("#2",), ("show", "clr-2-1"), ("CLR-2-001", "--json")]
)
def test_id_or_issue_alone_is_shown_as_in_slack(prompt: Prompt, words: tuple[str, ...]) -> None:
    prompt.asked("one", issue=1)
    prompt.asked("two", issue=2)
    said = prompt.fine(*words)
    assert "CLR-2-001" in said
    assert "CLR-1-001" not in said


def test_mine_lists_what_people_answer(prompt: Prompt) -> None:
    prompt.configure(
        """[slack]
fallback_channel = "C0F"
[responders.architect]
command = ["false"]
[responders.product-manager]
people = ["C0PRODUCT", "U0ANN"]
"""
    )
    assert prompt("mine").out == prompt("mine", "--as", "architect").out == ""
    prompt.asked("an agent answers this", issue=1)
    prompt.asked("this was passed on", issue=2)
    prompt.fine("escalate", "2")
    prompt.asked("people answer for that role", "--to", "product-manager", issue=3)
    prompt.event(4, question="an agent asks people")
    assert sorted(ids(prompt.fine("mine"))) == ["CLR-2-001", "CLR-3-001", "CLR-4-001"]
    assert sorted(ids(prompt.fine("mine", "--as", "Architect"))) == ["CLR-1-001", "CLR-2-001"]


def test_help_and_what_only_slack_knows(prompt: Prompt) -> None:
    assert "Questions and answers" in prompt.fine("help")
    assert "The first answer wins" in prompt.fine("help", "answer")
    assert (prompt("help", "nonsense").code, "No such command" in prompt("help", "nonsense").err) == (2, True)
    assert (prompt("oncall").code, "/clarify oncall" in prompt("oncall").err) == (2, True)


def test_list_with_a_status_that_there_is_not(prompt: Prompt) -> None:
    said = prompt("list", "--status", "open")
    assert (said.code, "escalated" in said.err) == (2, True)
    assert {each.value for each in StatusName} == set(get_args(Status))


def test_list_tells_what_cannot_be_read_and_shows_the_rest(prompt: Prompt) -> None:
    prompt.write(7, foreign(1), {"id": "CLR-7-002", "status": "pending"}, foreign(3))
    prompt.write(8, foreign(1, 8))
    prompt.tear(8)
    said = prompt("list")
    assert ids(said.out) == ["CLR-7-001", "CLR-7-003"]
    assert said.code == 1
    for each in ("CLR-7-002", "CLR-8-001"):
        assert f"{each} cannot be read" in said.err


def test_stale_is_overdue_reminded_or_escalated(prompt: Prompt) -> None:
    prompt.asked("fresh", issue=1)
    prompt.asked("passed on", issue=2)
    prompt.fine("escalate", "2")
    prompt.write(7, foreign(1), foreign(2, staleAfter=None), foreign(3, staleAfter=None, status="stale"))
    assert sorted(ids(prompt.fine("stale"))) == ["CLR-2-001", "CLR-7-001", "CLR-7-003"]
    assert {each["id"] for each in prompt("stale", "--json").json} == {"CLR-2-001", "CLR-7-001", "CLR-7-003"}


def test_show_prints_the_thread_with_who_when_and_through_what(prompt: Prompt) -> None:
    prompt.asked("Which database?", "--topic", "Storage", "--context", "2 TB")
    prompt.fine("answer", "42", "PostgreSQL", "--as", "architect")
    prompt.fine("request", "--follow-up", "CLR-42-001", "Which version?")
    lines = prompt.fine("show", "CLR-42-001").splitlines()
    assert lines[:2] == [
        "CLR-42-001 · pending · round 2 of 2",
        "engineer asks architect, and is waiting for the answer · issue 42",
    ]
    heads = [line for line in lines if line.startswith("Round")]
    assert [head.split(" · ")[1] for head in heads] == [
        "engineer asks",
        "agent:architect answers",
        "engineer asks",
    ]
    assert all(head.endswith("through the shell") for head in heads)
    assert all(str(datetime.now(UTC).year) in head for head in heads)
    assert [line for line in lines if line.startswith("  ")] == [
        "  Which database?",
        "  PostgreSQL",
        "  Which version?",
    ]


def test_show_of_an_agents_event_says_how_to_answer(prompt: Prompt) -> None:
    choices = (Choice(value="stg", label="Staging"), Choice(value="prd", label="Production"))
    prompt.event(question="Where?", kinds=("multiple_choice",), choices=choices, default_response="stg")
    said = prompt.fine("show", "42")
    assert "1. Staging\n  2. Production\n" in said
    assert "through producer planner" in said
    assert "If no one answers, the agent uses its default: Staging" in said
    assert "clarify answer CLR-42-001 1" in said


def test_show_of_an_issue_has_all_of_it(prompt: Prompt) -> None:
    prompt.write(7, foreign(1, question="One?"), foreign(2, question="Two?", status="resolved"))
    said = prompt.fine("show", "7")
    assert said.index("One?") < said.index("Two?")
    assert "engineer asks architect, and is waiting for the answer" in said
    assert "engineer asked architect, and waited for the answer" in said
    data = prompt("show", "#7", "--json").json
    assert (data["issueNumber"], [each["id"] for each in data["clarifications"]]) == (
        7,
        ["CLR-7-001", "CLR-7-002"],
    )


def test_show_as_json_keeps_what_is_between_producers_and_us_to_itself(prompt: Prompt) -> None:
    record = prompt.event(correlation_id="corr_1")
    prompt.using(
        lambda router: router.answer(record.id, lambda _: Answer(True, "Yes"), BEN, datetime.now(UTC))
    )
    shown = prompt("show", record.id, "--json")
    data = shown.json
    assert "rpl_secret" not in shown.out
    assert not {"aaep", "replyToken", "from_"} & data.keys()
    assert (data["from"], data["answer"], data["response"]) == ("retirement-planner", "Yes", True)
    assert (data["decidedBy"], data["answeredThrough"]) == ("user:slack/T1/U2", "slack")
    assert (data["issueNumber"], data["maxRounds"], data["via"]) == (42, 5, None)
    assert data["answeredAt"].endswith("Z")
    assert data["expiresAt"].endswith("Z")


def test_show_of_agents_words_is_inert(prompt: Prompt) -> None:
    prompt.asked("\x1b[31mred \x9b2J[bold]not bold[/bold]\nClose it: yes", "--topic", "\x1b]0;title\x07t")
    said = prompt.fine("show", "42") + prompt.fine("list")
    assert "\x1b" not in said
    assert "\x9b" not in said
    assert "[bold]not bold[/bold]" in said
    assert json.loads(prompt.fine("show", "CLR-42-001", "--json"))["thread"][0]["body"].startswith(
        "\x1b[31mred"
    )


def test_show_of_an_action_hides_no_character(prompt: Prompt) -> None:
    action = "Pay\u200b 5\u202e01 €"
    wanted = Confirmation(action=action, consequence="It\u2066 is paid.")
    prompt.event(question=wanted.words, kinds=("confirmation",), wanted=wanted)
    said = prompt.fine("show", "CLR-42-001")
    assert "  Approve: Pay<U+200B> 5<U+202E>01 €\n  Consequence: It<U+2066> is paid.\n" in said


def test_show_sets_apart_what_the_agent_says_besides(prompt: Prompt) -> None:
    said = "c\nRound 1 · user:ada answers · 2026-05-24T14:22:00.000Z\n  yes"
    prompt.event(7, context=said, default_response=said)
    lines = prompt.fine("show", "CLR-7-001").splitlines()
    assert "  Round 1 · user:ada answers · 2026-05-24T14:22:00.000Z" in lines
    assert not [line for line in lines if line.startswith("Round 1 · user:ada")]


def test_show_of_a_number_that_json_does_not_know_is_json_all_the_same(prompt: Prompt) -> None:
    prompt.write(7, foreign(1, aaep={"response": float("nan"), "choices": []}))

    def refuse(name: str) -> None:
        raise AssertionError(name)

    for command in (["show", "CLR-7-001"], ["list"]):
        json.loads(prompt.fine(*command, "--json"), parse_constant=refuse)


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0, "just now"),
        (60, "1 min ago"),
        (3600, "1 h ago"),
        (86_400, "1 d ago"),
        (15 * 86_400, "2026-05-09"),
        (-60, "in 1 min"),
        (-20 * 86_400, "2026-06-13"),
    ],
)
def test_times_are_told_from_now(seconds: int, words: str) -> None:
    assert relative(NOW - timedelta(seconds=seconds), NOW) == words


def test_times_of_a_timeout() -> None:
    assert (seconds_of(None), seconds_of("1h30m"), seconds_of("250ms")) == (None, 5400.0, 0.25)
    with pytest.raises(BadInput, match="90s, 30m or 1h30m"):
        seconds_of("-5m")


def test_show_waits_for_the_answer(prompt: Prompt) -> None:
    prompt.asked("Which database?")
    prompt.fine("answer", "42", "PostgreSQL")
    assert "  PostgreSQL\n" in prompt.fine("show", "CLR-42-001", "--wait")


async def _hear(root: Path, *agents: str) -> None:
    """Have a storage in which a bot heard of the agents an hour ago, a second after one another."""
    store = await open_store(root / "clarify.db")
    first = (datetime.now(UTC) - timedelta(hours=1)).timestamp()
    try:
        for at, agent in enumerate(agents, round(first)):
            await store.run(
                "insert into sessions (producer, session_id, agent_id) values ('p', 'sess_' || :agent, :agent)",
                agent=agent,
            )
            await store.run(
                "insert into inbox (producer, event_id, session_id, received_at, at, live)"
                " values ('p', 'evt_' || :agent, 'sess_' || :agent, :at, :at, 1)",
                agent=agent,
                at=at,
            )
    finally:
        await store.close()


def test_agents_says_who_waits_for_whom_since_when(prompt: Prompt) -> None:
    waited = prompt.ask(42, "engineer", "architect")
    prompt.later(hours=1)
    prompt.ask(43, "qa", "engineer")
    rows = prompt.json("agents")
    assert [(row["agent"], row["status"], row["under"]) for row in rows] == [
        ("architect", "clarifying", None),
        ("engineer", "blocked", "architect"),
        ("qa", "blocked", "engineer"),
    ]
    assert rows[0]["toAnswer"] == ["CLR-42-001"]
    assert rows[1]["waitsFor"] == [
        {
            "agent": "architect",
            "clarification": "CLR-42-001",
            "since": iso(waited.asked_last),
            "escalated": False,
        }
    ]
    assert rows[1]["issues"] == [42]


def test_agents_in_a_pipe_are_lines_of_which_nothing_is_cut(prompt: Prompt) -> None:
    name = "engineer-" + "x" * 200
    for _ in range(5):
        prompt.ask(42, name, "architect", topic="")
    prompt.ask(43, name, "architect")
    done = prompt("agents")
    assert name in done.out
    assert all(f"CLR-42-{number:03d}" in done.out for number in range(1, 6))
    assert "…" not in done.out


def test_ready_says_who_can_go_on_and_who_is_blocked_by_what(prompt: Prompt) -> None:
    prompt.ask(42, "engineer", "architect")
    answered = prompt.ask(44, "planner", "architect")
    prompt.answer(answered, "yes")
    asyncio.run(_hear(prompt.folder, "planner"))
    items = prompt.json("ready")
    assert [(item["agent"], item["ready"], item["issue"]) for item in items] == [
        ("planner", True, None),
        ("engineer", False, 42),
    ]
    assert items[1]["blockedBy"] == [{"clarification": "CLR-42-001", "agent": "architect"}]
    assert prompt("ready").out.splitlines()[1].startswith("engineer\t42\tblocked\tCLR-42-001 (architect)\t")


def test_boards_show_the_sessions_of_a_bot(prompt: Prompt) -> None:
    asyncio.run(_hear(prompt.folder, "engineer", "qa"))
    prompt.ask(
        42,
        "engineer",
        "human",
        via=None,
        producer="p",
        session_id="sess_engineer",
        reply_token="t",
        event_id="e",
    )
    assert [
        (item["agent"], item["ready"], item["issue"], item["session"]) for item in prompt.json("ready")
    ] == [
        ("qa", True, None, "sess_qa"),
        ("engineer", False, 42, "sess_engineer"),
    ]
    assert [(row["agent"], row["status"]) for row in prompt.json("agents")] == [
        ("engineer", "blocked"),
        ("qa", "working"),
    ]
