from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest

from bot.audience import Audience
from bot.home.facts import Admitted, AgentLine, DutyLine, Fleet, ReadyLine
from bot.home.model import Answered, Chosen, Snapshot, by_time_left, chosen
from tests.clocks import START
from tests.unit.bot.home.parties import ADE, BEA, summary

PLANNER = Admitted(frozenset({Audience("planner")}))
NOBODYS = Admitted(frozenset())


def seen(user: str = ADE, admitted: Admitted = PLANNER, **facts: Any) -> Chosen:
    return chosen(Snapshot(1, **facts), user, admitted, {})


def ids(shown: Chosen) -> list[str]:
    return [each.id for each in shown.inbox.items]


def test_questions_with_the_least_time_left_come_first_and_those_without_a_limit_last() -> None:
    hour = START + timedelta(hours=1)
    questions = [
        summary(1),
        summary(2, expires_at=hour + timedelta(seconds=1)),
        summary(3, created=START - timedelta(days=1)),
        summary(4, expires_at=hour),
        summary(5, expires_at=hour, created=START),
    ]

    assert [each.id[-1] for each in by_time_left(questions)] == ["5", "4", "2", "3", "1"]


@pytest.mark.parametrize(
    ("more", "theirs"),
    [
        ({}, True),
        ({"agent_id": "reviewer", "from_": "reviewer"}, False),
        ({"to": "architect"}, False),  # put to others
        ({"to": "architect", "held_back": True}, True),
        ({"agent_id": None, "from_": "planner"}, True),
        ({"agent_id": "reviewer", "taken_by": ADE}, True),
        ({"agent_id": "reviewer", "handed_to": ADE}, True),
        ({"agent_id": "reviewer", "handed_to": BEA}, False),
        ({"agent_id": "reviewer", "id": "CLR-42-007"}, True),  # paged
    ],
)
def test_inbox_holds_what_somebody_may_answer_or_is_theirs_on_call(
    more: dict[str, Any], theirs: bool
) -> None:
    question = summary(**more)

    shown = seen(questions=[question], paged={"CLR-42-007": frozenset({ADE})})

    assert ids(shown) == ([question.id] if theirs else [])


def test_taken_holds_what_somebody_took_and_nobody_elses() -> None:
    shown = seen(questions=[summary(1, taken_by=ADE), summary(2, taken_by=BEA), summary(3)])

    assert [each.id for each in shown.taken.items] == ["CLR-42-001"]
    assert shown.questions == shown.inbox.items


def test_answers_are_seen_by_who_may_answer_that_agent_or_gave_them() -> None:
    def answer(agent: str, user: str | None) -> Answered:
        return Answered(f"CLR-42-00{len(agent)}", 1, agent, "Q?", "A", START, "user:x", user)

    answers = (answer("planner", None), answer("reviewer", ADE), answer("ops", BEA))

    assert [each.agent for each in seen(answers=answers).answers.items] == ["planner", "reviewer"]


def test_stranger_sees_neither_agents_nor_answers() -> None:
    fleet = Fleet(agents=(AgentLine("planner", "blocked"),))
    shown = seen(admitted=NOBODYS, questions=[summary()], fleet=fleet, duties=(DutyLine("ops", (BEA,)),))

    assert shown.stranger
    assert (shown.inbox.total, shown.agents.total, shown.ready.total) == (0, 0, 0)
    assert shown.duty.total == 1


def test_who_is_paged_is_no_stranger() -> None:
    fleet = Fleet(agents=(AgentLine("planner", "blocked"),))
    shown = seen(admitted=NOBODYS, questions=[summary()], fleet=fleet, paged={"CLR-42-001": frozenset({ADE})})

    assert not shown.stranger
    assert shown.agents.total == 1


@pytest.mark.parametrize(("user", "whole"), [(ADE, False), (BEA, True)])
def test_agents_of_others_are_shown_to_who_is_on_call_only(user: str, whole: bool) -> None:
    fleet = Fleet(
        agents=(AgentLine("Planning", "working", id="planner"), AgentLine("secret", "working")),
        ready=(ReadyLine("Planning", "s1", id="planner"), ReadyLine("secret", "s2")),
    )

    shown = seen(user, fleet=fleet, duties=(DutyLine("ops", (BEA,)),))

    assert [each.agent for each in shown.agents.items] == ["planner", "secret"][: 1 + whole]
    assert [each.session for each in shown.ready.items] == ["s1", "s2"][: 1 + whole]


def test_nobody_is_a_stranger_where_nothing_is() -> None:
    assert not seen(admitted=NOBODYS).stranger


@pytest.mark.parametrize(
    ("total", "asked", "page", "shown"),
    [
        (0, 1, (1, 1), []),
        (10, 1, (1, 1), range(1, 11)),
        (11, 1, (1, 2), range(1, 11)),
        (11, 2, (2, 2), [11]),
        (11, 9, (2, 2), [11]),  # a page that is gone
        (11, 0, (1, 2), range(1, 11)),
    ],
)
def test_page_of_the_inbox(total: int, asked: int, page: tuple[int, int], shown: Sequence[int]) -> None:
    questions = [summary(seq) for seq in range(1, total + 1)]
    inbox = chosen(Snapshot(1, questions), ADE, PLANNER, {"inbox": asked}).inbox

    assert (inbox.number, inbox.pages) == page
    assert inbox.total == total
    assert [each.id for each in inbox.items] == [f"CLR-42-{seq:03d}" for seq in shown]
