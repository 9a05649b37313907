"""The modals about a question: the form, how a submitted one is read, everything in full."""

from __future__ import annotations

import re
from typing import Any

import pytest

from bot.views.codec import Press, unseal
from bot.views.forms import SubmissionErrors, full_view, message_modal, read_submission
from core.clarification import Answer, Clarification, Decider
from core.matching import followed_up
from core.transitions import amended, answered, escalated
from tests.unit.bot.judges import RENDERER, judge_view, labels, shown
from tests.unit.bot.strategies import NOW, SLA, ask_of, record_of

CONSENT: dict[str, Any] = {
    "type": "aaep:agent.awaiting.confirmation", "action": "Pay.", "consequence": "Paid.",
}  # fmt: skip
CHOICES = [{"value": "a", "label": "Apple"}, {"value": "b", "label": "Pear"}]


def full(record: Clarification, page: int = 1) -> dict[str, Any]:
    view = RENDERER.view(full_view(record, page=page))
    judge_view(view)
    return view


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


def test_modal_points_to_view_full_where_it_cannot_hold_all(largest: Clarification) -> None:
    view = RENDERER.answer_modal(largest)
    judge_view(view)
    assert "click View full" in shown(view)


@pytest.mark.parametrize(("token", "limit"), [("rpl_1", 3000), (None, 2000)])
def test_modal_takes_as_much_as_the_router_does(token: str | None, limit: int) -> None:
    record = kinds("freetext", to="architect")
    view = RENDERER.answer_modal(amended(record, reply_token=token))
    element = next(block["element"] for block in view["blocks"] if block["type"] == "input")
    assert element["max_length"] == limit
    assert f"Up to {limit} characters" in str(view)


def test_modal_has_numbers_as_its_reader_is_used_to_but_for_what_is_typed() -> None:
    record = kinds("freetext", "numeric", to="architect")
    hints = [
        each["hint"]["text"] for each in RENDERER.answer_modal(record, "de-DE")["blocks"] if "hint" in each
    ]
    assert hints == [
        "Use a point for decimals, like 1200 or 12.5.",
        "Up to 3.000 characters; for a longer answer, reply in the thread.",
    ]


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
        (record_of(**CONSENT), picked("decision", "accept"), Answer("accept", "Accept")),
        (
            record_of(**CONSENT),
            {**picked("decision", "reject"), **typed("rationale", "  too early ")},
            Answer("reject", "Reject", "too early"),
        ),
        (
            record_of(**CONSENT),
            {**picked("decision", "reject"), **typed("rationale", "  ")},
            Answer("reject", "Reject"),
        ),
    ],
)
def test_submission_reads_the_one_thing_filled_in(
    record: Clarification, values: dict[str, Any], answer: Answer
) -> None:
    assert read_submission(values, record) == answer


@pytest.mark.parametrize(
    ("record", "values", "errors"),
    [
        (kinds("freetext"), typed("freetext", None), {"answer.freetext": "Fill this in to answer."}),
        (
            kinds("yes_no", "numeric"),
            picked("yes_no", "none"),
            {
                "answer.yes_no": "Fill in one of these.",
                "answer.numeric": "Fill in one of these.",
            },
        ),
        (
            kinds("yes_no", "numeric", "freetext"),
            {**picked("yes_no", "yes"), **typed("freetext", "x")},
            {
                "answer.yes_no": "Fill in only one of these, and clear the others.",
                "answer.freetext": "Fill in only one of these, and clear the others.",
            },
        ),
        (
            kinds("numeric"),
            typed("numeric", "1,200"),
            {"answer.numeric": "“1,200” is ambiguous: reply 1200 or 1.2000."},
        ),
        (kinds("numeric"), typed("numeric", "many"), {"answer.numeric": "Type a number, like 1200 or 12.5."}),
        (
            kinds("multiple_choice", choices=CHOICES),
            picked("choices", "7"),
            {"answer.choices": "That choice is not part of the question."},
        ),
    ],
)
def test_submission_says_what_to_mend_and_where(
    record: Clarification, values: dict[str, Any], errors: dict[str, str]
) -> None:
    with pytest.raises(SubmissionErrors) as caught:
        read_submission(values, record)
    assert caught.value.errors == errors


@pytest.mark.parametrize(
    ("values", "block"),
    [
        ({}, "answer.decision"),
        (picked("decision", "maybe"), "answer.decision"),
        (picked("decision", "accept"), "answer.decision"),  # which this agent does not take
        ({**picked("decision", "reject"), **typed("rationale", "x" * 4097)}, "answer.rationale"),
    ],
)
def test_submission_of_a_decision_says_what_to_mend(values: dict[str, Any], block: str) -> None:
    with pytest.raises(SubmissionErrors) as caught:
        read_submission(values, record_of(**CONSENT, allowed_replies=["reject"]))
    assert set(caught.value.errors) == {block}


def test_view_full_turns_pages_where_one_view_is_not_enough(largest: Clarification) -> None:
    first, second = full(largest), full(largest, 2)
    assert labels(first) == ["Next"]
    assert Press.unpack(unseal(first["private_metadata"])[1]) == Press("view", "CLR-42-001", 1, "1")
    assert labels(second)[0] == "Previous"
    last = re.search(r"Page 2 of (\d+)", shown(second))
    assert last is not None
    assert full(largest, 99) == full(largest, int(last[1]))


def test_view_full_shows_the_thread() -> None:
    done = answered(
        record_of(), Answer("65", "65"), Decider("user:slack/T1/U0GOOD", "slack", "T1", "U0GOOD"), NOW
    )
    event = {"event_id": "evt_2", "question": "Again?", "reply_token": "rpl_2"}
    asked = {
        "type": "aaep:agent.awaiting.clarification",
        "session_id": "sess_1",
        "timestamp": NOW.isoformat(),
    }
    seen = shown(
        full(followed_up(done, ask_of({**asked, **event, "producer": {"agent_id": "planner"}}), NOW, SLA))
    )
    assert "answer · user:slack/T1/U0GOOD\n65" in seen
    assert "question · planner\nAgain?" in seen


def test_view_full_shows_the_positions_of_an_escalation() -> None:
    words = "It says the same again.\nCLR-7-001: b asks a: “No, you.”"
    assert f"Escalated. {words}" in shown(full(escalated(record_of(), "stuck", words, NOW)))


@pytest.mark.parametrize(
    ("title", "text"), [("A title longer than Slack allows", "x" * 9000), ("", "\u202e")]
)
def test_modal_that_says_something_is_taken_by_slack(title: str, text: str) -> None:
    judge_view(RENDERER.view(message_modal(title, text)))
