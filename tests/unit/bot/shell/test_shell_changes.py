from __future__ import annotations

import pytest

from core.aaep import Choice
from tests.unit.bot.shell.prompt import Prompt, foreign

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


@pytest.mark.parametrize("role", ["", " ", "archi\ntect", "x" * 81, "\x1b[31m"])
def test_answer_as_nobody(prompt: Prompt, role: str) -> None:
    prompt.asked()
    said = prompt("answer", "42", "PostgreSQL", "--as", role)
    assert (said.code, "--as: expected a role" in said.err) == (2, True)


@pytest.mark.parametrize(
    ("kinds", "choices", "typed", "response"),
    [
        (("yes_no",), (), "y", True),
        (("multiple_choice",), CHOICES, "2", "prd"),
        (("multiple_choice",), CHOICES, "production", "prd"),
        (("numeric",), (), "12.5", 12.5),
        (("freetext",), (), "1", "1"),
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
    assert "the agent gets its reply when `clarify run` is started" in said.err


def test_answer_from_standard_input(prompt: Prompt) -> None:
    prompt.asked()
    prompt.fine("answer", "42", "-", stdin="Two\nlines\n")
    assert prompt.record("CLR-42-001")["thread"][-1]["body"] == "Two\nlines"


def test_answer_of_an_escalated_one_resolves_it(prompt: Prompt) -> None:
    prompt.asked()
    prompt.fine("escalate", "42")
    assert prompt.fine("answer", "42", "PostgreSQL") == "CLR-42-001 is resolved: “PostgreSQL”.\n"


def test_answer_shows_what_was_answered_inert(prompt: Prompt) -> None:
    prompt.asked()
    assert prompt.fine("answer", "42", "\x1b[31m[red]x\ny") == "CLR-42-001 is answered: “[31m[red]x y”.\n"


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
    assert said == "CLR-42-001 is abandoned: whoever asked gets no answer.\n"
    assert "not needed" in prompt.record("CLR-42-001")["thread"][-1]["body"]


def test_changes_to_the_record_of_another_implementation_keep_its_fields(prompt: Prompt) -> None:
    prompt.write(7, foreign(1, theirs={"x": 1}))
    prompt.fine("answer", "CLR-7-001", "yes", "--as", "architect")
    record = prompt.record("CLR-7-001")
    assert (record["theirs"], record["status"], record["thread"][-1]["from"]) == (
        {"x": 1},
        "answered",
        "architect",
    )


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (["answer"], "For example: clarify answer CLR-42-001 yes"),
        (["answer", "CLR-7-001"], "What is the text?"),
        (["resolve", "CLR-7-001"], 'clarify resolve CLR-42-001 "done by hand"'),
        (["escalate"], "Which one? Give its id, or the number of its issue"),
        (["abandon", "7"], "2 of issue 7 are open: give the id of one: CLR-7-001, CLR-7-002."),
        (["show"], "unquoted #42"),
        (["escalate", "CLR-7-001", "x" * 2001], "The reason has 2001 characters; at most 2000"),
        (["abandon", "CLR-7-001", "x" * 2001], "The reason has 2001 characters; at most 2000"),
        (["answer", "CLR-7-001", "x" * 2001], "The answer has 2001 characters; at most 2000"),
        (["resolve", "CLR-7-001", "x" * 2001], "The answer has 2001 characters; at most 2000"),
    ],
)
def test_changes_say_what_is_wrong_with_their_input(prompt: Prompt, arguments: list[str], hint: str) -> None:
    prompt.write(7, foreign(1), foreign(2))
    said = prompt(*arguments)
    assert (said.code, said.out) == (2, "")
    assert said.err.startswith("clarify: BAD_INPUT: ")
    assert hint in said.err
