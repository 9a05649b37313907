from __future__ import annotations

from typing import Any

import pytest

from bot.views.codec import Press
from bot.views.forms import SubmissionErrors, read_submission
from bot.views.render import Renderer
from core.clarification import Answer, Clarification
from tests.unit.bot.judges import judge_view, shown
from tests.unit.bot.strategies import record_of

RENDERER = Renderer()
CHOICES = [{"value": "a", "label": "Apple"}, {"value": "b", "label": "Pear"}]


def kinds(*names: str, **more: Any) -> Clarification:
    return record_of(accepted_response_kinds=list(names), **more)


def inputs(record: Clarification) -> dict[str, dict[str, Any]]:
    view = RENDERER.answer_modal(record)
    judge_view(view)
    return {block["block_id"]: block for block in view["blocks"] if block["type"] == "input"}


def typed(block: str, value: str | None) -> dict[str, Any]:
    return {f"answer.{block}": {"value": {"type": "plain_text_input", "value": value}}}


def picked(block: str, *values: str) -> dict[str, Any]:
    options = [{"text": {"type": "plain_text", "text": "x"}, "value": value} for value in values]
    return {
        f"answer.{block}": {
            "value": {"type": "radio_buttons", "selected_option": options[0] if options else None}
        }
    }


def ticked(block: str, *values: str) -> dict[str, Any]:
    options = [{"text": {"type": "plain_text", "text": "x"}, "value": value} for value in values]
    return {f"answer.{block}": {"value": {"type": "checkboxes", "selected_options": options}}}


@pytest.mark.parametrize(
    ("record", "elements"),
    [
        (kinds("freetext"), {"answer.freetext": "plain_text_input"}),
        (kinds("numeric"), {"answer.numeric": "number_input"}),
        (kinds("yes_no"), {"answer.yes_no": "radio_buttons"}),
        (kinds("multiple_choice", choices=CHOICES), {"answer.choices": "radio_buttons"}),
        (kinds("multiple_choice", choices=CHOICES, multi_select=True), {"answer.choices": "checkboxes"}),
        (record_of(options=[f"o{n}" for n in range(11)]), {"answer.choices": "static_select"}),
        (record_of(options=["x" * 76, "y"]), {"answer.choices": "static_select"}),
        (
            record_of(options=[f"o{n}" for n in range(11)], multi_select=True),
            {"answer.choices": "multi_static_select"},
        ),
        (
            kinds("multiple_choice", "yes_no", "numeric", "freetext", choices=CHOICES),
            {
                "answer.choices": "radio_buttons",
                "answer.yes_no": "radio_buttons",
                "answer.numeric": "number_input",
                "answer.freetext": "plain_text_input",
            },
        ),
    ],
)
def test_modal_inputs_by_kinds(record: Clarification, elements: dict[str, str]) -> None:
    found = inputs(record)
    assert {name: block["element"]["type"] for name, block in found.items()} == elements
    assert {block["element"]["action_id"] for block in found.values()} == {"value"}
    assert {block["optional"] for block in found.values()} == {len(elements) > 1}


def test_modal_carries_its_press_and_names_itself() -> None:
    view = RENDERER.answer_modal(kinds("freetext"))
    assert view["callback_id"] == "clarify.answer"
    assert Press.unpack(view["private_metadata"]) == Press("answer", "CLR-42-001", 1)


def test_modal_for_several_kinds_says_that_one_is_to_be_filled_in() -> None:
    view = RENDERER.answer_modal(kinds("yes_no", "numeric"))
    assert "Fill in exactly one of these." in shown(view)
    assert "None of these" in shown(view)
    assert "None of these" not in shown(RENDERER.answer_modal(kinds("yes_no")))


def test_modal_shows_clipped_choices_in_full() -> None:
    assert "1. " + "x" * 300 in shown(RENDERER.answer_modal(record_of(options=["x" * 300, "y"])))


def test_modal_points_to_view_full_where_it_cannot_hold_all(largest: Clarification) -> None:
    view = RENDERER.answer_modal(largest)
    judge_view(view)
    assert "press View full" in shown(view)


@pytest.mark.parametrize(
    ("record", "values", "answer"),
    [
        (kinds("freetext"), typed("freetext", " as typed\n"), Answer(" as typed\n", " as typed\n")),
        (kinds("numeric"), typed("numeric", "12.5"), Answer(12.5, "12.5")),
        (kinds("numeric"), typed("numeric", " 1200 "), Answer(1200, "1200")),
        (kinds("yes_no"), picked("yes_no", "yes"), Answer(response=True, label="Yes")),
        (kinds("yes_no"), picked("yes_no", "no"), Answer(response=False, label="No")),
        (kinds("multiple_choice", choices=CHOICES), picked("choices", "1"), Answer("b", "Pear")),
        (
            kinds("multiple_choice", choices=CHOICES, multi_select=True),
            ticked("choices", "1", "0"),
            Answer("Apple, Pear", "Apple, Pear"),
        ),
        (
            kinds("yes_no", "numeric"),
            {**picked("yes_no", "none"), **typed("numeric", "3")},
            Answer(3, "3"),
        ),
        (
            kinds("multiple_choice", "freetext", choices=CHOICES),
            {**picked("choices"), **typed("freetext", "else")},
            Answer("else", "else"),
        ),
        (kinds("freetext"), {**typed("freetext", "x"), **typed("numeric", "1")}, Answer("x", "x")),
    ],
)
def test_submission_reads_the_one_thing_filled_in(
    record: Clarification, values: dict[str, Any], answer: Answer
) -> None:
    assert read_submission(values, record.asked) == answer


@pytest.mark.parametrize(
    ("record", "values", "errors"),
    [
        (kinds("freetext"), typed("freetext", None), {"answer.freetext": "Fill this in to answer."}),
        (kinds("freetext"), typed("freetext", "  \n"), {"answer.freetext": "Fill this in to answer."}),
        (kinds("freetext"), {}, {"answer.freetext": "Fill this in to answer."}),
        (
            kinds("yes_no", "numeric"),
            picked("yes_no", "none"),
            {
                "answer.yes_no": "Fill in exactly one of these.",
                "answer.numeric": "Fill in exactly one of these.",
            },
        ),
        (
            kinds("yes_no", "numeric", "freetext"),
            {**picked("yes_no", "yes"), **typed("freetext", "x")},
            {
                "answer.yes_no": "Fill in exactly one of these, and empty the others.",
                "answer.freetext": "Fill in exactly one of these, and empty the others.",
            },
        ),
        (
            kinds("numeric"),
            typed("numeric", "1,200"),
            {"answer.numeric": "“1,200” can be read in two ways: reply 1200 or 1.2000."},
        ),
        (kinds("numeric"), typed("numeric", "many"), {"answer.numeric": "Type a number, like 1200 or 12.5."}),
        (
            kinds("multiple_choice", choices=CHOICES),
            picked("choices", "7"),
            {"answer.choices": "That choice is not part of the question."},
        ),
        (
            kinds("multiple_choice", choices=CHOICES),
            picked("choices", "x"),
            {"answer.choices": "That choice is not part of the question."},
        ),
    ],
)
def test_submission_says_what_to_mend_and_where(
    record: Clarification, values: dict[str, Any], errors: dict[str, str]
) -> None:
    with pytest.raises(SubmissionErrors) as caught:
        read_submission(values, record.asked)
    assert caught.value.errors == errors
