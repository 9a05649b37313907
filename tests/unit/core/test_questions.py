"""Questions as agents ask them: every field that is wrong is named, with what it must be."""

from __future__ import annotations

from typing import Any

import pytest

from core.questions import BadField, NewQuestion

FIELDS = {field.alias or name for name, field in NewQuestion.model_fields.items()}
NAME = "a string of 1 to 256 characters on one line, without control characters."
LONG = "a string of 1 to 16,384 characters that is not blank."
ONE = {"type": "object", "properties": {"n": {"type": "integer"}}}


def refused(given: Any) -> tuple[str | None, str]:
    with pytest.raises(BadField) as caught:
        NewQuestion.model_validate(given)
    return caught.value.field, str(caught.value)


# A field, values that it cannot have, and what it must be.
WRONG: list[tuple[str, list[Any], str]] = [
    ("question", [7, "", " ", "x" * 16_385, []], LONG),
    ("kind", ["poll", 7], "yes_no, choice, number, text, approval or form."),
    ("choices", ["a", [], ["a"] * 101, {}], "a list of 1 to 100 choices: strings, or objects with `value`."),
    ("multiple", ["yes", 1], "true or false."),
    ("other", ["yes", 1], "true or false."),
    ("context", [7, "x" * 65_537], "a string of at most 65,536 characters."),
    ("agent", [7, "", " ", "x" * 257, "a\nb", "a\n", "a\x07", "a\x9b", "a\u2029"], NAME),
    ("session", [7, "", "x" * 257, "a\rb"], NAME),
    (
        "requested_by",
        [7, "ann", "@ann", "C0CHANNEL"],
        "an email address or a Slack user ID, such as U0FOLAKE.",
    ),
    ("to", [7, "ann", "@ann", "C0CHANNEL"], "an email address or a Slack user ID, such as U0FOLAKE."),
    ("action", [7, "", " ", "x" * 16_385], LONG),
    ("consequence", [7, "", " ", "x" * 16_385], LONG),
    ("risk", ["grave", 3], "low, medium or high."),
    ("irreversible", ["yes", 1], "true or false."),
    ("arguments", [[], "x", 7], "an object."),
    ("arguments_schema", [[], "x", 7], "a JSON Schema object."),
    ("editable", ["yes", 1], "true or false."),
    ("approvals", [0, 6, 1.5, "2", True], "a whole number from 1 to 5."),
    ("schema", [[], "x", 7], "a JSON Schema object."),
    (
        "timeout",
        ["5m", "60", 0, 2_592_001, True, float("nan")],
        "a number of seconds from 1 to 2,592,000.",
    ),
    ("escalate", ["no", 0], "true or false."),
    ("callback_url", [7, "", "x" * 2001], "a URL of at most 2,000 characters."),
    ("key", [7, "", "x" * 201, "é", "a\n"], "a string of 1 to 200 printable ASCII characters."),
    ("issue", [0, 100_001, "42", 1.5], "a whole number from 1 to 100,000."),
    ("topic", [7, "", " ", "x" * 201], "a string of 1 to 200 characters that is not blank."),
]


def test_table_has_all_fields() -> None:
    assert {field for field, _, _ in WRONG} == FIELDS - {"default"}  # that may be anything: see below


@pytest.mark.parametrize(
    ("field", "value", "expected"),
    [(field, value, expected) for field, values, expected in WRONG for value in values],
)
def test_field_that_is_wrong_is_told_what_it_must_be(field: str, value: Any, expected: str) -> None:
    assert refused({"question": "x", field: value}) == (field, f"`{field}` must be {expected}")


@pytest.mark.parametrize(
    ("given", "field", "message"),
    [
        ({}, "question", "`question` is required."),
        (
            {"kind": "approval"},
            "action",
            "`action` is required for an approval: say what the agent is about to do.",
        ),
        ({"question": "x", "kind": "choice"}, "choices", "`choices` is required for the kind choice."),
        ({"question": "x", "kind": "form"}, "schema", "`schema` is required for the kind form."),
        (
            {"question": "x", "approvals": 2},
            "approvals",
            "`approvals` works only with the kind approval, not text. Remove it, or change `kind`.",
        ),
        (
            {"action": "x", "irreversible": True, "risk": "low"},
            "irreversible",
            "`irreversible` requires `risk` medium or high, not low.",
        ),
        (
            {"question": "x", "choices": ["a", 2]},
            "choices.1",
            "`choices[1]` must be a string or an object with `value`.",
        ),
        (
            {"question": "x", "choices": [{"label": "A"}]},
            "choices.0.value",
            "`choices[0].value` is required.",
        ),
        (
            {"question": "x", "choices": ["a", {"value": 7}]},
            "choices.1.value",
            "`choices[1].value` must be a string of 1 to 1,000 characters that is not blank.",
        ),
        (
            {"question": "x", "choices": [{"value": "a", "description": 7}]},
            "choices.0.description",
            "`choices[0].description` must be a string of at most 2,000 characters.",
        ),
        (
            {"question": "x", "choices": [{"value": "a", "colour": "red"}]},
            "choices.0.colour",
            "`choices[0].colour` is not a field of a choice. Use `value`, `label` and `description`.",
        ),
        (
            {"question": "x", "choices": ["a", "b", "a"]},
            "choices.2",
            "Duplicate choice: `choices[2]` repeats the value of an earlier choice.",
        ),
        (
            {"question": "x", "colour": "red"},
            "colour",
            "`colour` is not a field of a question. Remove it, or check its spelling.",
        ),
        (
            {"question": "x", "my secret": 1},
            None,
            "The question has an unknown field. Remove it.",
        ),
        ([], None, "A question must be a JSON object."),
        ("x", None, "A question must be a JSON object."),
        (
            {"question": "\ud800"},
            "question",
            "`question` contains half of a character (a lone surrogate). Remove it.",
        ),
        (
            {"question": "x", "\ud800": 1},
            None,
            "A field's name contains half of a character (a lone surrogate). Remove it.",
        ),
        (
            {"question": "x", "schema": {"properties": {"n": {"type": "object"}}}},
            "schema.properties.n",
            "`schema.properties.n` is invalid. Forms are flat: nested objects are not supported.",
        ),
        (
            {"action": "x", "arguments": {"n": float("inf")}},
            "arguments",
            "`arguments` is invalid. Not valid JSON: NaN and infinite numbers are not allowed.",
        ),
    ],
)
def test_question_that_makes_no_sense_says_why(given: Any, field: str | None, message: str) -> None:
    assert refused(given) == (field, message)


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ({"kind": "yes_no", "default": "yes"}, "must be true or false."),
        ({"kind": "number", "default": "7"}, "must be a number."),
        ({"default": 7}, "must be a string that is not blank."),
        ({"choices": ["a"], "default": "b"}, "must be one of the choices."),
        (
            {"choices": ["a", "b"], "multiple": True, "default": ["a", "a"]},
            "must be a list of one or more of the choices, without duplicates.",
        ),
        ({"action": "y", "default": "accept"}, 'must be "reject"; silence never approves.'),
        ({"schema": ONE, "default": 7}, "must be an object with the fields of the form."),
        (
            {"schema": ONE, "default": {"n": "x"}},
            "must be a valid answer to the form. n: Expected a whole number.",
        ),
    ],
)
def test_default_that_is_no_answer_is_told_what_it_must_be(more: dict[str, Any], expected: str) -> None:
    assert refused({"question": "x", **more}) == ("default", f"`default` {expected}")


def test_schema_of_arguments_makes_another_question() -> None:
    plain = {"action": "Go", "arguments": {"n": 1}}
    shaped = {**plain, "arguments_schema": {"type": "object"}}
    assert NewQuestion.model_validate(shaped).digest != NewQuestion.model_validate(plain).digest
