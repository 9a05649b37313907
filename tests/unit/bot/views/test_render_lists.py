from __future__ import annotations

import pytest

from bot.views.codec import Press
from bot.views.lists import rollup, rollup_modal, which_question
from bot.views.render import Message, Renderer
from tests.unit.bot.judges import judge_message, judge_view, labels, shown, walk
from tests.unit.bot.strategies import NOW, record_of

RENDERER = Renderer()


def judged(message: Message) -> Message:
    judge_message(message)
    return message


def test_rollup_counts_and_offers_the_first_five() -> None:
    records = [record_of(issue=n, question=f"Question {n}?") for n in range(1, 8)]
    message = judged(RENDERER.message(rollup(records, 27, NOW, "planner")))
    assert labels(message.blocks) == ["Answer…"] * 5 + ["Show all"]
    assert "planner: 27 open questions" in message.text
    assert "24 May 2026, 14:22 UTC" in message.text
    assert "Question 5?" in shown(message.blocks)
    assert "and 22 more." in message.text
    values = [Press.unpack(item["value"]) for item in walk(message.blocks) if "value" in item]
    assert values[-1] == Press("list", "CLR-1-001", 1, "1")


def test_rollup_of_nothing_has_no_controls() -> None:
    message = judged(RENDERER.message(rollup([], 0, None, "planner")))
    assert labels(message.blocks) == []
    assert "no open questions" in message.text


@pytest.mark.parametrize(
    ("page", "total", "turns", "note"),
    [
        (1, 7, [], "7 open questions · page 1 of 1"),
        (1, 41, ["Next"], "41 open questions · page 1 of 3"),
        (2, 41, ["Previous", "Next"], "41 open questions · page 2 of 3"),
        (3, 41, ["Previous"], "41 open questions · page 3 of 3"),
        (9, 41, ["Previous"], "41 open questions · page 3 of 3"),
    ],
)
def test_rollup_modal_turns_pages(page: int, total: int, turns: list[str], note: str) -> None:
    view = RENDERER.view(rollup_modal([record_of()], page, total))
    judge_view(view)
    assert labels(view) == ["Answer…", *turns]
    assert note in shown(view)
    assert view["callback_id"] == "clarify.list"


def test_rollup_modal_of_nothing_says_so() -> None:
    view = RENDERER.view(rollup_modal([], 1, 0))
    judge_view(view)
    assert "Nothing is open here any more." in shown(view)


@pytest.mark.parametrize(("count", "buttons"), [(2, 2), (10, 10), (11, 0), (120, 0)])
def test_which_question_asks_with_buttons_or_a_menu(count: int, buttons: int) -> None:
    records = [
        record_of(issue=n, question="Deploy to production now? " + "x" * 200) for n in range(1, count + 1)
    ]
    message = judged(RENDERER.message(which_question(records, "1716561732.123456")))
    assert message.text.startswith("Which question is this an answer to?\n1. CLR-1-001: Deploy")
    assert len(labels(message.blocks)) == buttons
    values = [Press.unpack(item["value"]) for item in walk(message.blocks) if "value" in item]
    assert len(values) == min(count, 100)
    assert {each.arg for each in values} == {"1716561732.123456"}
