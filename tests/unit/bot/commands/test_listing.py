from __future__ import annotations

import pytest
from hypothesis import example, given, settings

from bot.commands import grammar
from bot.views.lists import LINES, agent_row, listing, said, session_row
from core.index import SessionFact, ready_queue, tree
from core.summary import page_of
from tests.kit.builders import changed, record
from tests.unit.bot.judges import RENDERER, judge_message
from tests.unit.bot.strategies import NOW, words


@settings(max_examples=10, deadline=None)
@given(text=words(4000))
@example("1" * 4000)
def test_whatever_is_typed_gets_an_inert_answer(text: str) -> None:
    command = grammar.parse(text)

    if isinstance(command, grammar.Hint):
        judge_message(RENDERER.message(said(command.text, live=False)))


@pytest.mark.parametrize("topic", [None, *grammar.VERBS])
def test_help_fits_and_has_an_example(topic: str | None) -> None:
    message = RENDERER.message(said(grammar.help_text(topic), heading="Help", live=False))

    judge_message(message)
    assert topic is None or "Example: “/clarify" in message.text


@pytest.mark.parametrize(
    "name", ["x" * 400, "&" * 400, "<@U1>*" * 80, "é" * 400], ids=["x", "&", "live", "é"]
)
def test_page_of_a_board_fits_and_is_read_aloud_to_its_end(name: str) -> None:
    waits = [
        changed(record(10**8 + n), producer="p", session_id=f"s{n}", from_=f"{n % 4}{name}", to=f"{n}{name}")
        for n in range(60)
    ]
    facts = [
        SessionFact("p", f"s{n}", f"{n % 4}{name}", f"{n % 4}{name}", 10**8, False, NOW) for n in range(60)
    ]

    agents, queue = (
        list(map(agent_row, tree(waits, facts))),
        list(map(session_row, ready_queue(waits, facts))),
    )
    for rows in (agents, queue):
        message = RENDERER.message(listing("Agents", page_of(rows, 1, LINES), query="agents"))
        judge_message(message)
        assert not message.text.endswith("…")
