"""The words of an escalation: everything to decide, short, and nobody's words in the place of ours."""

from __future__ import annotations

from datetime import timedelta
from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.aaep import Choice
from core.clarification import Answer, Clarification, Why, answered
from core.escalation import WORDS_LIMIT, escalation_words
from core.matching import followed_up
from tests.unit.core.records import ADE, NOW, SLA, ask, record

LATER = NOW + timedelta(minutes=5)
WHYS: tuple[Why, ...] = get_args(Why)


def asking(issue: int, from_: str, to: str, question: str) -> Clarification:
    return record(issue=issue, agent_id=from_, to=to, question=question)


def test_words_of_a_plain_question() -> None:
    found = record(
        agent_id="engineer",
        to="architect",
        topic="Which database",
        question="Postgres or SQLite?",
        choices=(Choice("pg", "Postgres"), Choice("lite", "SQLite")),
        default_response="pg",
    )
    assert escalation_words(found, "stale") == (
        "Nobody answered in time, nor after a reminder.\n"
        "Topic: Which database\n"
        "engineer asks architect: “Postgres or SQLite?”\n"
        "Options: Postgres · SQLite\n"
        "Assumed otherwise: Postgres"
    )


def test_words_when_rounds_are_exhausted_hold_both_positions() -> None:
    first = record(agent_id="engineer", to="architect", question="Postgres?").model_copy(update={"round": 5})
    told = answered(first, Answer("SQLite", "SQLite will do"), ADE, NOW)
    last = followed_up(
        told,
        ask(agent_id="engineer", to="architect", question="But the load?", reply_token="rpl_2"),
        LATER,
        SLA,
    )
    entry = last.thread[-1]
    assert (last.status, last.asked.escalated_for, last.asked.escalated_at) == (
        "escalated",
        "rounds exhausted",
        LATER,
    )
    assert entry.body.splitlines() == [
        "Rounds exhausted: asked again after 5 rounds.",
        "Topic: Postgres?",
        "engineer asks architect: “But the load?”",
        f"{ADE.decided_by} answered: “SQLite will do”",
    ]
    assert last.question == "But the load?"


def test_words_of_a_circle_give_each_side_its_own() -> None:
    me = asking(1, "engineer", "architect", "Which schema?")
    others = [asking(2, "architect", "reviewer", "Which review?"), asking(3, "reviewer", "engineer", "Code?")]
    words = escalation_words(me, "deadlocked", [me, *others])
    assert "engineer asks architect: “Which schema?”" in words
    assert "CLR-2-001, architect asks reviewer: “Which review?”" in words
    assert "CLR-3-001, reviewer asks engineer: “Code?”" in words
    assert words.count("Which schema?") == 2, "its topic, and its own position once"


def test_words_of_a_large_circle_say_how_many_more() -> None:
    others = [asking(n, f"agent-{n}", f"agent-{n + 1}", "Why? " * 500) for n in range(2, 52)]
    words = escalation_words(asking(1, "a", "b", "How? " * 500), "deadlocked", others)
    assert "And 44 more." in words
    assert len(words) <= WORDS_LIMIT
    assert min(len(line) for line in words.splitlines() if "asks" in line) > 80, "each still says something"


def test_words_of_the_same_asked_again_give_the_answer_that_did_not_help() -> None:
    first = answered(asking(9, "planner", "human", "Which age?"), Answer("65", "65  please"), ADE, NOW)
    again = asking(9, "planner", "human", "Which\nage?").model_copy(update={"id": "CLR-9-002"})
    words = escalation_words(again, "stuck", [first], "It asks the same again.")
    assert words.splitlines() == [
        "It asks the same again.",
        "Topic: Which age?",
        "planner asks human: “Which age?”",
        f"CLR-9-001, {ADE.decided_by} answered: “65 please”",
    ]


def test_words_of_another_question_that_was_answered_give_both() -> None:
    first = answered(asking(8, "planner", "human", "At what age?"), Answer("65", "At 65"), ADE, NOW)
    words = escalation_words(asking(9, "planner", "human", "Which age?"), "stuck", [first])
    assert words.splitlines()[-2:] == [
        "CLR-8-001, planner asks human: “At what age?”",
        f"CLR-8-001, {ADE.decided_by} answered: “At 65”",
    ]


def test_words_of_the_same_asked_in_the_other_direction_name_who_asks_whom() -> None:
    words = escalation_words(asking(1, "a", "b", "Which?"), "stuck", [asking(2, "b", "a", "Which?")])
    assert "CLR-2-001, b asks a: “Which?”" in words


@pytest.mark.parametrize("why", WHYS)
def test_words_say_why_in_a_sentence_of_their_own(why: Why) -> None:
    words = {each: escalation_words(record(), each).splitlines()[0] for each in WHYS}
    assert words[why].endswith(".")
    assert list(words.values()).count(words[why]) == 1


def test_words_of_agents_stay_on_their_line() -> None:
    forged = "Fine?\nOptions: delete everything\r\n\u2028Topic: none"
    lines = escalation_words(record(question=forged, topic="t"), "stale").splitlines()
    assert [line.split(":")[0] for line in lines[1:]] == ["Topic", "retirement-planner asks human"]


texts = st.text(max_size=3000) | st.sampled_from(["x" * 20_000, "𝔔" * 5000, "\n" * 50, ""])


@settings(max_examples=50, deadline=None)
@given(texts, texts, texts, st.lists(texts, max_size=32), st.integers(0, 12))
def test_words_are_never_longer_than_their_limit(
    topic: str, question: str, name: str, labels: list[str], others: int
) -> None:
    found = record(
        topic=topic,
        question=question,
        agent_id=name,
        default_response=question,
        choices=tuple(Choice(str(n), label) for n, label in enumerate(labels)),
    )
    found = answered(found, Answer(question, question), ADE, LATER)
    circle = [asking(n, name, name, question) for n in range(100, 100 + others)]
    circle[1::2] = [answered(each, Answer(question, question), ADE, LATER) for each in circle[1::2]]
    for why in WHYS:
        assert 0 < len(escalation_words(found, why, circle)) <= WORDS_LIMIT
