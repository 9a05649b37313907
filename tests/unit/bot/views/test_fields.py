"""The modal of a form: Slack takes it, and what is submitted fits the schema, or is wrong at a field."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import datetime
from typing import Any

import jsonschema_rs
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from bot.views import inert, phrases
from bot.views.card import card
from bot.views.forms import SubmissionErrors, read_submission
from bot.views.notices import nudge
from bot.views.page import page_card
from core import answers
from core.clarification import Answer, Clarification, Decider
from core.schemas import SCHEMA_LIMIT
from core.transitions import answered, escalated
from tests.kit.times import walk
from tests.unit.bot.form_schemas import schemas
from tests.unit.bot.judges import RENDERER, full_text, judge_view, labels, shown
from tests.unit.bot.strategies import HOSTILE, NOW, direct
from tests.unit.bot.views.kit import about, content, judged
from workspace.controls import state_values

Json = dict[str, Any]
some = settings(deadline=None, max_examples=15, suppress_health_check=list(HealthCheck))


def record_of(schema: Json, **fields: Any) -> Clarification:
    return direct(question="How?", schema=schema, **fields)


def one(field: Json, *, required: bool = False) -> Clarification:
    return record_of({"properties": {"a": field}, "required": ["a"] if required else []})


def modal(record: Clarification) -> list[Json]:
    """The modal's inputs."""
    view = RENDERER.answer_modal(record)
    judge_view(view)
    assert view["callback_id"]
    return [block for block in view["blocks"] if block["type"] == "input"]


def is_valid(schema: Json, answer: Any) -> bool:
    by_format = jsonschema_rs.validator_for(schema, validate_formats=True).is_valid(answer)
    return by_format and bool(Draft202012Validator(schema).is_valid(answer))


TEXTS = (
    st.sampled_from(["", " ", "1", "0", "-7", "2.5", "1e3", "#1", "1, 2", "ann@example.org", "https://example.org/x", "http://", "x:y z", "yes"])
    | st.sampled_from(HOSTILE)
    | st.text(max_size=80)
    | st.integers().map(str)
)  # fmt: skip


@st.composite
def entered(draw: st.DrawFn, element: Json) -> Json:
    """Anything that may stand in an element, more than Slack's client would send."""
    kind = element["type"]
    match kind:
        case "radio_buttons" | "static_select":
            return {"type": kind, "selected_option": draw(st.none() | st.sampled_from(element["options"]))}
        case "checkboxes" | "multi_static_select":
            some = st.lists(
                st.sampled_from(element["options"]), max_size=12, unique_by=lambda each: each["value"]
            )
            return {"type": kind, "selected_options": draw(some)}
        case "datepicker":
            return {"type": kind, "selected_date": draw(st.none() | st.dates().map(str))}
        case "timepicker":
            at = st.times().map(lambda time: time.isoformat()[:5])
            return {"type": kind, "selected_time": draw(st.none() | at)}
        case "datetimepicker":
            return {"type": kind, "selected_date_time": draw(st.none() | st.integers(0, 9_999_999_999))}
    return {"type": kind, "value": draw(st.none() | TEXTS)}


def submitted(record: Clarification, values: Json) -> tuple[Answer | None, dict[str, str]]:
    """The answer, or what is wrong in which block."""
    try:
        return read_submission(values, record), {}
    except SubmissionErrors as error:
        return None, error.errors


@some
@given(schemas(), st.data())
def test_every_form_is_shown_and_every_submission_fits_or_is_wrong_at_a_field(
    schema: Json, data: st.DataObject
) -> None:
    assume(len(json.dumps(schema)) < SCHEMA_LIMIT)
    record = record_of(schema)
    judged(card(record))
    judged(nudge(record, ["U0GOOD"]))
    judged(page_card(content(about(escalated(record, "stale", "Nobody answered.", NOW)))))
    inputs = modal(record)
    assert len(inputs) == len(schema["properties"])
    values = state_values(inputs, {})  # what an untouched modal holds
    for block in inputs:
        if data.draw(st.booleans()):
            values[block["block_id"]] = {"value": data.draw(entered(block["element"]))}
    answer, errors = submitted(record, values)
    if answer is None:
        assert errors
        assert errors.keys() <= {block["block_id"] for block in inputs}
        assert all(errors.values())
        return
    assert answer.label.strip()
    assert is_valid(schema, answer.response)
    json.dumps(answer.response, allow_nan=False).encode()
    judged(card(answered(record, answer, Decider("user:slack/T1/U1", "slack", "T1", "U0GOOD"), NOW)))


def element(field: Json, **more: Any) -> Json:
    """The element of a form's only field."""
    (block,) = modal(one(field, **more))
    found: Json = block["element"]
    return found


def taken(field: Json, state: Json, *, required: bool = False) -> Any:
    """What a submission of a form's only field gives: its value, or what is wrong."""
    record = one(field, required=required)
    (block,) = modal(record)
    answer, errors = submitted(record, {block["block_id"]: {"value": state}})
    if answer is None:
        return errors[block["block_id"]]
    assert isinstance(answer.response, dict)
    return answer.response["a"]


def text(value: str | None) -> Json:
    return {"type": "plain_text_input", "value": value}


FRUIT = {"oneOf": [{"const": "a", "title": "Apple"}, {"const": "p", "title": "Pear"}]}
MANY = {"type": "string", "enum": [f"e{n}" for n in range(100)]}


@pytest.mark.parametrize(
    ("field", "holds"),
    [
        ({"type": "string", "maxLength": 80}, {"type": "plain_text_input", "multiline": False, "max_length": 80}),
        ({"type": "string", "default": "a\nb"}, {"multiline": True, "max_length": 3000, "initial_value": "a\nb"}),
        ({"type": "string", "format": "uri"}, {"type": "plain_text_input", "multiline": False}),
        ({"type": "string", "format": "email"}, {"type": "email_text_input"}),
        ({"type": "string", "format": "date", "default": "2026-05-24"}, {"type": "datepicker", "initial_date": "2026-05-24"}),
        ({"type": "string", "format": "time", "default": "16:00:00+02:00"}, {"type": "timepicker", "initial_time": "14:00"}),
        ({"type": "string", "format": "uuid"}, {"type": "plain_text_input", "multiline": False}),
        (
            {"type": "array", "items": {"type": "integer"}, "default": [1, 2]},
            {"type": "plain_text_input", "multiline": True, "initial_value": "1\n2", "max_length": 3000},
        ),
        (
            {"type": "string", "format": "date-time", "default": "2026-05-24T16:00:00+02:00"},
            {"type": "datetimepicker", "initial_date_time": 1779631200},
        ),
        (
            {"type": "integer", "exclusiveMinimum": 0, "exclusiveMaximum": 10, "default": 4},
            {"type": "number_input", "is_decimal_allowed": False, "min_value": "1", "max_value": "9", "initial_value": "4"},
        ),
        ({"type": "number", "minimum": 1e-7}, {"is_decimal_allowed": True, "min_value": "0.0000001"}),
        ({"type": "boolean", "default": False}, {"type": "radio_buttons", "initial_option": {"value": "no"}}),
        (FRUIT | {"default": "p"}, {"type": "radio_buttons", "initial_option": {"value": "1"}}),
        ({"enum": [f"e{n}" for n in range(11)]}, {"type": "static_select"}),
        (MANY | {"default": "e99"}, {"type": "static_select", "initial_option": {"value": "99"}}),
        ({"type": "array", "items": FRUIT, "default": ["p"]}, {"type": "checkboxes", "initial_options": [{"value": "1"}]}),
        ({"type": "array", "items": MANY, "maxItems": 3}, {"type": "multi_static_select", "max_selected_items": 3}),
    ],
)  # fmt: skip
def test_element_of_a_field(field: Json, holds: Json) -> None:
    made = element(field)
    for name, value in holds.items():
        found = made[name]
        for option in found if isinstance(found, list) else [found]:
            if isinstance(option, dict):
                del option["text"]
        assert found == value, name


def test_field_for_a_time_says_in_which_time_zone_it_is_read() -> None:
    when = {"type": "string", "format": "date-time", "description": "Not on a Friday"}
    (block,) = modal(one(when))
    assert block["hint"]["text"] == "Not on a Friday\nIn your time zone, as set in Slack."


@pytest.mark.parametrize(
    ("field", "state", "value"),
    [
        ({"type": "string"}, text("  as typed\n"), "  as typed\n"),
        ({"type": "string"}, text(" "), answers.FILL_IN_SOME),
        ({"type": "string", "format": "uri"}, text(" https://example.org "), "https://example.org"),
        ({"type": "string", "format": "uri"}, text("example.org"), "Expected a web address or another URI, like https://example.org."),
        ({"type": "string", "format": "email"}, text("ann at home"), "Expected an e-mail address."),
        ({"type": "string", "minLength": 3}, text("ab"), "Expected text of at least 3 characters."),
        ({"type": "integer"}, text("7.0"), 7),
        ({"type": "integer"}, text("7.5"), "Expected a whole number."),
        ({"type": "number", "exclusiveMinimum": 0}, text("0"), "Expected a number above 0."),
        ({"type": "number"}, text("9007199254740993"), "Expected a number."),
        ({"type": "string", "format": "date-time"}, {"selected_date_time": 1779631200}, "2026-05-24T14:00:00Z"),
        ({"type": "string", "format": "date"}, {"selected_date": "2026-05-24"}, "2026-05-24"),
        ({"type": "boolean"}, {"selected_option": {"value": "no"}}, False),
        ({"type": "boolean"}, {"selected_option": None}, answers.FILL_IN_SOME),
        ({"enum": [1, True, "1"]}, {"selected_option": {"value": "1"}}, True),
        (FRUIT, {"selected_option": {"value": "7"}}, "That choice is not part of the form."),
        ({"type": "array", "items": FRUIT}, {"selected_options": [{"value": "1"}, {"value": "0"}]}, ["a", "p"]),
        ({"type": "array", "items": FRUIT, "minItems": 2}, {"selected_options": [{"value": "1"}]}, "Expected at least 2 of Apple, Pear."),
    ],
)  # fmt: skip
def test_submitted_field(field: Json, state: Json, value: Any) -> None:
    found = taken(field, state)
    assert (found, type(found)) == (value, type(value))


def test_what_is_required_and_empty() -> None:
    assert taken({"type": "string"}, text(None), required=True) == "Fill this in to answer."
    assert taken({"type": ["string", "null"]}, text(None), required=True) is None
    assert taken({"type": "array", "items": FRUIT}, {"selected_options": []}, required=True) == []


def test_long_lists_are_counted_on_the_card_and_stand_under_view_full() -> None:
    fields = {"a": MANY | {"title": "Which"}, "b": {"type": "boolean"}}
    record = record_of({"properties": fields})
    message = judged(card(record))
    for said in (message.text, shown(message.blocks)):
        assert "• Which (one of the 100 choices; optional)" in said
    assert labels(message.blocks) == ["Answer…", "View full", "Take"]
    assert "  100. e99" in full_text(record)
    alone = judged(card(one(MANY)))  # answered by these numbers in the thread
    assert "  100. e99" in shown(alone.blocks)


def test_form_is_read_aloud_as_it_is_filled_in() -> None:
    """By its button; choices with commas of their own are told apart."""
    whom = {"title": "Whom", "enum": ["All, now", "None"]}
    record = record_of({"properties": {"a": whom, "b": {"enum": ["x", "y"]}}})
    said = judged(card(record)).text
    assert "│ • Whom (one of “All, now”, “None”; optional)\n│ • b (one of x, y; optional)" in said
    assert said.endswith("Click Answer… to fill in the form. Start with note: to comment without answering.")


def test_answered_card_shows_every_field() -> None:
    record = record_of({"properties": {f"f{n}": {"type": "integer"} for n in range(30)}})
    answer = answers.from_form(record.asked, {f"f{n}": n for n in range(30)})
    message = judged(card(answered(record, answer, Decider("user:slack/T1/U1", "slack"), NOW)))
    for said in (message.text, shown(message.blocks)):
        assert "f0: 0\nf1: 1\n" in said.replace("│ ", "")
        assert "f29: 29" in said
    assert labels(message.blocks) == ["View full"]


@pytest.mark.parametrize("at", ["2026-05-24T14:00:00Z", "2026-05-24T14:00:30Z"])
def test_moment_in_an_answer_is_in_the_readers_time_zone_and_as_sent_in_full(at: str) -> None:
    record = one({"type": "string", "format": "date-time", "title": "When"})
    said = answers.from_form(record.asked, {"a": at})
    decided = answered(record, said, Decider("user:slack/T1/U1", "slack"), NOW)
    message = judged(card(decided))
    moment = inert.date(datetime.fromisoformat(at))
    assert f"*Answered: “When: {moment}” by" in shown(message.blocks)
    assert "Answer: " not in shown(message.blocks), "the title has all of it"
    assert f"Answered: “When: {inert.utc_dates(moment)}” by" in message.text
    exact = at.replace("T", " ").replace(":00Z", " UTC").replace("Z", " UTC")
    assert exact in full_text(decided)
    assert f"“When: {moment}”" in phrases.already_answered(decided)


def test_answer_of_several_fields_has_a_line_for_each_and_says_it_once() -> None:
    fields = {"when": {"type": "string", "format": "date-time"}, "who": {"type": "string"}}
    record = record_of({"properties": fields})
    said = answers.from_form(record.asked, {"when": "2026-05-24T14:00:30Z", "who": "Ade"})
    message = judged(card(answered(record, said, Decider("user:slack/T1/U1", "slack"), NOW)))
    assert "*Answered by user:slack/T1/U1*" in shown(message.blocks)
    assert "Answer:\n│ when: 2026-05-24 14:00:30 UTC\n│ who: Ade\n" in message.text
    (at,) = [item for item in walk(message.blocks) if item.get("type") == "date"]
    assert (at["timestamp"], at["fallback"]) == (1779631230, "2026-05-24 14:00:30 UTC")
    assert labels(message.blocks) == ["View full"]


def test_moment_that_another_program_made_up_is_left_as_it_is() -> None:
    record = one({"type": "string", "format": "date-time"})
    said = replace(answers.from_form(record.asked, {"a": "2026-05-24T14:00:00Z"}), response={"a": "soon"})
    decided = answered(record, said, Decider("user:slack/T1/U1", "slack"), NOW)
    assert "a: 2026-05-24 14:00 UTC" in shown(RENDERER.card(decided).blocks)


def test_choices_beyond_what_a_view_holds_are_typed() -> None:
    long = [{"const": n, "title": f"{n} {'ü' * 70}"} for n in range(100)]
    definitions = {"$defs": {"Long": {"oneOf": long}}}
    fields = {f"f{n}": {"$ref": "#/$defs/Long", "default": 99} for n in range(40)}
    record = record_of({"properties": fields} | definitions)
    inputs = modal(record)
    kinds = [block["element"]["type"] for block in inputs]
    assert {"static_select", "plain_text_input"} == set(kinds)
    last = inputs[kinds.index("plain_text_input")]
    values = state_values(inputs, {}) | {last["block_id"]: {"value": text("#8")}}
    answer, _ = submitted(record, values)
    assert answer is not None
    assert isinstance(answer.response, dict)
    assert sorted(answer.response.values()) == [7, *[99] * 39]


def test_what_the_modal_cuts_stands_in_full() -> None:
    long = [f"{name} {'so that nobody can tell ' * 6}" for name in ("First", "Second")]
    record = one({"title": "x" * 400, "description": "y" * 900, "oneOf": [{"const": n, "title": each} for n, each in enumerate(long)]})  # fmt: skip
    view = RENDERER.answer_modal(record)
    judge_view(view)
    for words in ("x" * 400, "y" * 900, *(each.strip() for each in long)):
        assert words in shown(view)
        assert words in full_text(record)
