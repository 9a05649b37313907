from __future__ import annotations

import json
import sys

import pytest

from core.clarification import Choice
from tests.kit.databases import issues_in
from tests.unit.bot.cli.kit import Prompt, foreign

CHOICES = (Choice(value="stg", label="Staging"), Choice(value="prd", label="Production"))


def test_answer_by_the_person_at_the_prompt(prompt: Prompt) -> None:
    prompt.asked()
    said = prompt("answer", "CLR-42-001", "PostgreSQL")
    assert (said.code, said.out) == (0, "CLR-42-001 is answered: “PostgreSQL”.\n")
    asked = prompt.record("CLR-42-001")["aaep"]
    assert asked["decidedBy"].startswith("user:os/")
    assert "@" in asked["decidedBy"]
    assert (asked["answeredBy"]["surface"], asked["response"]) == ("shell", "PostgreSQL")


def test_answer_as_a_role(prompt: Prompt) -> None:
    prompt.asked()
    record = prompt("answer", "42", "PostgreSQL", "--as", "architect", "--json").json
    assert (record["status"], record["decidedBy"], record["answer"]) == (
        "answered",
        "agent:architect",
        "PostgreSQL",
    )
    assert prompt.record("CLR-42-001")["thread"][-1]["from"] == "architect"


@pytest.mark.parametrize("role", ["", "\x1b[31m"])
def test_answer_as_nobody(prompt: Prompt, role: str) -> None:
    prompt.asked()
    said = prompt("answer", "42", "PostgreSQL", "--as", role)
    assert (said.code, "--as: expected a role" in said.err) == (2, True)


@pytest.mark.parametrize(
    ("kinds", "choices", "typed", "response"),
    [
        (("yes_no",), (), "y", True),
        (("multiple_choice",), CHOICES, "2", "prd"),
        (("numeric",), (), "12.5", 12.5),
    ],
)
def test_answer_fits_the_question(
    prompt: Prompt,
    kinds: tuple[str, ...],
    choices: tuple[Choice, ...],
    typed: str,
    response: object,
) -> None:
    prompt.event(kinds=kinds, choices=choices)
    said = prompt("answer", "42", typed)
    asked = prompt.record("CLR-42-001")["aaep"]
    assert (said.code, asked["response"], asked["reply"]) == (0, response, "sending")
    assert "the agent gets its reply once you start `clarify run`" in said.err


def test_resolve_an_open_one_and_an_answered_one(prompt: Prompt) -> None:
    prompt.asked("one", issue=1)
    prompt.asked("two", issue=2)
    prompt.fine("answer", "2", "yes", "--as", "architect")
    assert prompt.fine("resolve", "1", "done by hand") == "CLR-1-001 is resolved.\n"
    assert prompt.fine("resolve", "2", "taken over", "--as", "engineer") == "CLR-2-001 is resolved.\n"
    last = prompt.record("CLR-2-001")["thread"][-1]
    assert (last["type"], last["from"], last["body"]) == ("resolution", "agent:engineer", "taken over")
    assert prompt.record("CLR-1-001")["aaep"]["response"] == "done by hand"


def test_escalate_says_why_and_only_once(prompt: Prompt) -> None:
    prompt.asked()
    assert prompt.fine("escalate", "42", "nobody here knows") == "CLR-42-001 is escalated.\n"
    entry = prompt.record("CLR-42-001")["thread"][-1]
    assert (entry["type"], entry["from"].startswith("user:os/")) == ("escalation", True)
    assert entry["body"].startswith("nobody here knows\n")
    assert prompt.fine("escalate", "42") == "CLR-42-001 is escalated already.\n"
    assert len(prompt.record("CLR-42-001")["thread"]) == 2


def test_abandon_says_why(prompt: Prompt) -> None:
    prompt.asked()
    said = prompt.fine("abandon", "#42", "not", "needed")
    assert said == "CLR-42-001 is closed without an answer.\n"
    assert "not needed" in prompt.record("CLR-42-001")["thread"][-1]["body"]


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (["answer"], "For example: clarify answer CLR-42-001 yes"),
        (["answer", "CLR-7-001"], "text is required"),
        (["resolve", "CLR-7-001"], 'clarify resolve CLR-42-001 "done by hand"'),
        (["abandon", "7"], "2 questions of issue 7 are open; give one id: CLR-7-001, CLR-7-002."),
        (["escalate", "CLR-7-001", "x" * 2001], "The reason has 2001 characters; at most 2000"),
    ],
)
def test_changes_say_what_is_wrong_with_their_input(prompt: Prompt, arguments: list[str], hint: str) -> None:
    prompt.write(7, foreign(1), foreign(2))
    said = prompt(*arguments)
    assert (said.code, said.out) == (2, "")
    assert said.err.startswith("clarify: BAD_INPUT: ")
    assert hint in said.err


ASK = ("request", "--from", "engineer", "--to", "architect", "--issue", "42")


def test_request_prints_the_id_and_writes_who_asked_through_what(prompt: Prompt) -> None:
    said = prompt(*ASK, "--topic", "Storage", "--context", "We have 2 TB.", "Which database?")
    assert (said.code, said.out) == (0, "CLR-42-001\n")
    assert "The bot is not running" in said.err
    record = prompt.record("CLR-42-001")
    assert (record["from"], record["to"], record["topic"], record["blocking"], record["maxRounds"]) == (
        "engineer",
        "architect",
        "Storage",
        True,
        2,
    )
    assert record["thread"][0]["body"] == "Which database?"
    assert (record["aaep"]["via"], record["aaep"]["context"]) == ("shell", "We have 2 TB.")


@pytest.mark.parametrize("option", ["--no-blocking", "--non-blocking"])
def test_request_may_go_on_meanwhile(prompt: Prompt, option: str) -> None:
    assert prompt.record(prompt.asked("Which?", option))["blocking"] is False


@pytest.mark.parametrize(
    ("arguments", "stdin", "question"),
    [
        (["-"], "From a pipe,\nwith two lines\n", "From a pipe,\nwith two lines"),
        (["--question", "As an option"], None, "As an option"),
        (["--", "--dashes"], None, "--dashes"),
    ],
)
def test_request_takes_its_question_in_several_ways(
    prompt: Prompt, arguments: list[str], stdin: str | None, question: str
) -> None:
    prompt.fine(*ASK, *arguments, stdin=stdin)
    assert prompt.record("CLR-42-001")["thread"][0]["body"] == question


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        ([*ASK], "question is required. For example: clarify request --from"),
        ([*ASK, "one", "--question", "two"], "given twice"),
        (["request", "Why?"], "--from, --to, --issue required. For example:"),
        ([*ASK, " "], "question must not be empty"),
        (
            ["request", "--from", "engineer", "--to", "archi\ntect", "--issue", "42", "Why?"],
            "target (to) must be a role",
        ),
        (["request", "--from", "engineer", "--to", "architect", "--issue", "100001", "Why?"], "reserved"),
        ([*ASK, "Why?", "--timeout", "soon"], "expected a duration such as 90s"),
        (
            ["request", "--follow-up", "CLR-42-001", "--to", "architect", "Why?"],
            "--to: not allowed with --follow-up",
        ),
    ],
)
def test_request_says_what_is_wrong_with_its_input(prompt: Prompt, arguments: list[str], hint: str) -> None:
    said = prompt(*arguments)
    assert (said.code, said.out) == (2, "")
    assert said.err.startswith("clarify: BAD_INPUT: ")
    assert hint in said.err
    assert issues_in(prompt.storage) == []


def test_request_with_standard_input_that_is_no_text(prompt: Prompt) -> None:
    said = prompt(*ASK, "-", stdin=b"\xff\xfe\x00bad")
    assert (said.code, "not UTF-8" in said.err) == (2, True)


def test_request_further_is_the_next_round(prompt: Prompt) -> None:
    prompt.asked("Which database?", "--topic", "Storage")
    prompt.fine("answer", "42", "PostgreSQL", "--as", "architect")
    assert (
        prompt.fine("request", "--follow-up", "clr-42-1", "--from", "Engineer", "Which version?")
        == "CLR-42-001\n"
    )
    record = prompt.record("CLR-42-001")
    assert (record["round"], record["status"], record["thread"][-1]["body"]) == (
        2,
        "pending",
        "Which version?",
    )


def test_request_further_is_for_whoever_asked(prompt: Prompt) -> None:
    prompt.asked()
    prompt.fine("answer", "42", "PostgreSQL")
    said = prompt("request", "--follow-up", "CLR-42-001", "--from", "reviewer", "Why?")
    assert (said.code, "only engineer can follow up on it" in said.err) == (2, True)


@pytest.mark.needs("agentstatus")
def test_request_blocks_and_frees_the_agent_in_the_status_file(prompt: Prompt) -> None:
    def engineer() -> dict[str, object]:
        states: dict[str, dict[str, object]] = json.loads(
            (prompt.folder / ".agentx/state/agent-status.json").read_text()
        )
        return states["engineer"]

    first = prompt.asked("Which database?", "--topic", "a")
    second = prompt.asked("Which language?", "--topic", "b")
    assert (engineer()["status"], engineer()["clarificationId"]) == ("blocked-clarification", first)
    prompt.fine("answer", first, "x")
    assert (engineer()["status"], engineer()["clarificationId"]) == ("blocked-clarification", second)
    prompt.fine("abandon", second)
    assert (engineer()["status"], engineer()["clarificationId"]) == ("working", None)


def responder(prompt: Prompt, code: str) -> None:
    """The architect answers by this Python code."""
    script = prompt.folder / "architect.py"
    script.write_text(code)
    command = json.dumps([sys.executable, str(script)])
    prompt.configure(f'[slack]\nfallback_channel = "C0F"\n[responders.architect]\ncommand = {command}\n')


def test_request_waits_for_a_responder_that_it_runs_itself(prompt: Prompt) -> None:
    responder(prompt, 'import json, sys; print("You asked:", json.load(sys.stdin)["question"])')
    said = prompt(*ASK, "Which database?", "--wait", "--timeout", "60s")
    assert (said.code, said.out) == (0, "You asked: Which database?\n")
    assert "Asked architect: CLR-42-001, round 1." in said.err
    record = prompt.record("CLR-42-001")
    assert (record["status"], record["aaep"]["decidedBy"]) == ("answered", "agent:architect")
    assert record["aaep"]["answeredBy"]["surface"] == "responder"
    told = prompt(*ASK, "Which language?", "--wait", "--json").json
    assert (told["id"], told["answer"]) == ("CLR-42-002", "You asked: Which language?")


def test_request_whose_responder_fails_twice_is_an_agent_error(
    prompt: Prompt, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("core.hub.RETRY_AFTER", 0.01)
    tries = prompt.folder / "tries"
    responder(prompt, f'open({str(tries)!r}, "a").write("x"); raise SystemExit(3)')
    said = prompt(*ASK, "Which database?", "--wait", "--timeout", "3s")
    assert (said.code, said.out) == (7, "")
    assert "clarify: AGENT_ERROR: architect" in said.err
    assert "Escalated to people; still waiting." in said.err
    assert (prompt.record("CLR-42-001")["status"], tries.read_text()) == ("escalated", "xx")


def test_request_without_a_bot_says_when_its_responder_is_asked(prompt: Prompt) -> None:
    responder(prompt, 'print("PostgreSQL")')
    said = prompt(*ASK, "Which database?")
    assert (said.out, prompt.record("CLR-42-001")["status"]) == ("CLR-42-001\n", "pending")
    assert "architect will be asked once you start `clarify run`. Or use --wait" in said.err


def test_request_whose_own_work_breaks_does_not_wait_for_ever(
    prompt: Prompt, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def breaks(_: object) -> None:
        raise RuntimeError("broken")

    monkeypatch.setattr("core.hub.Dispatcher.run", breaks)
    responder(prompt, 'print("PostgreSQL")')
    with pytest.raises(RuntimeError, match="broken"):
        prompt(*ASK, "Which database?", "--wait", "--timeout", "60s")
