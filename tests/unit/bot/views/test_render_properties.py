from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bot.views import inert
from bot.views.codec import Press
from bot.views.forms import full_view
from bot.views.lists import rollup, rollup_modal, which_question
from bot.views.render import Renderer
from bot.views.rounds import Verbosity, round_of
from core.clarification import Clarification
from tests.unit.bot.judges import judge_message, judge_view, walk
from tests.unit.bot.strategies import open_records, settled_records

RENDERER = Renderer()
VERBOSITY = st.sampled_from(["terse", "normal", "detailed"])
many = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def full_text(record: Clarification) -> str:
    """All pages of View full, joined."""
    parts: list[str] = []
    page = 1
    while True:
        view = RENDERER.view(full_view(record, page=page))
        judge_view(view)
        parts += [block["text"]["text"] for block in view["blocks"] if block["type"] == "section"]
        following = [
            Press.unpack(item["value"]).number()
            for item in walk(view)
            if item.get("type") == "button" and item["text"]["text"] == "Next"
        ]
        if not following:
            return "".join(parts)
        page = following[0]


def choices_offered(payload: Any) -> set[str]:
    return {
        Press.unpack(item["value"]).arg
        for item in walk(payload)
        if str(item.get("value", "")).startswith("1|choice|")
    }


@many
@given(open_records(), VERBOSITY)
def test_card_open_is_taken_by_slack_and_inert(record: Clarification, verbosity: Verbosity) -> None:
    judge_message(RENDERER.card(record, verbosity=verbosity, posted_to_fallback="C0GOOD"))


@many
@given(settled_records())
def test_card_settled_is_taken_by_slack_inert_and_without_controls(record: Clarification) -> None:
    message = RENDERER.card(record)
    judge_message(message)
    pressed = [Press.unpack(item["value"]).verb for item in walk(message.blocks) if "value" in item]
    assert set(pressed) <= {"view"}


@many
@given(open_records())
def test_choices_are_all_offered_and_readable_in_full(record: Clarification) -> None:
    labels = round_of(record).labels
    everything = full_text(record)
    for n, label in enumerate(labels, 1):
        assert f"{n}. {label}" in everything
    indexes = {str(n) for n in range(len(labels))}
    if labels and record.asked.multi_select:
        modal = RENDERER.answer_modal(record)
        block = next(each for each in modal["blocks"] if each.get("block_id") == "answer.choices")
        assert {option["value"] for option in block["element"]["options"]} == indexes
    else:
        assert choices_offered(RENDERER.card(record).blocks) == indexes


@many
@given(open_records())
def test_question_is_readable_in_full_wherever_a_card_cuts_it(record: Clarification) -> None:
    message = RENDERER.card(record)
    question = inert.plain(record.question)
    on_card = "".join(block["text"]["text"] for block in message.blocks if block["type"] == "section")
    squeezed = "".join(question.split())
    assert squeezed in "".join(full_text(record).split())
    if squeezed not in "".join(on_card.split()) and squeezed:
        assert "View full" in str(message.blocks)
    if message.more:
        assert "the whole follows in the thread" in message.text
        whole = "".join("".join(message.more).split())
        assert squeezed in whole
    else:
        assert "".join(inert.fallback(question, 10**9).split()) in "".join(message.text.split())


@many
@given(open_records())
def test_answer_modal_is_taken_by_slack_and_inert(record: Clarification) -> None:
    judge_view(RENDERER.answer_modal(record))


@settings(many, max_examples=12)
@given(st.lists(open_records(), min_size=1, max_size=25, unique_by=lambda record: record.id))
def test_lists_are_taken_by_slack_and_inert(records: list[Clarification]) -> None:
    judge_message(
        RENDERER.message(rollup(records, len(records) + 7, records[0].asked.expires_at, records[0].from_))
    )
    judge_view(RENDERER.view(rollup_modal(records[:20], 2, 61)))
    which = RENDERER.message(which_question(records, "1716561732.123456"))
    judge_message(which)
    values = [item["value"] for item in walk(which.blocks) if "value" in item]
    assert [Press.unpack(value).clarification for value in values] == [record.id for record in records]


@pytest.mark.parametrize("verbosity", ["terse", "normal", "detailed"])
def test_card_of_the_largest_question_is_taken_by_slack(verbosity: Verbosity, largest: Clarification) -> None:
    message = RENDERER.card(largest, verbosity=verbosity)
    judge_message(message)
    assert "View full" in str(message.blocks)
    judge_view(RENDERER.answer_modal(largest))
    assert full_text(largest).count("𝔏") >= 32 * 1000
