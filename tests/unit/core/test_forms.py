"""Forms: what a JSON Schema object asks, and what fits."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from core.answers import from_text, hint
from core.clarification import Direct, Question
from core.errors import AnswerRejected
from core.forms import FormField, Misfits, read_form
from core.schemas import SCHEMA_LIMIT, BadSchema
from tests.unit.bot.form_schemas import schemas

Json = dict[str, Any]
FRUIT = {"oneOf": [{"const": "a", "title": "Apple"}, {"const": "p", "title": "Pear"}]}


def field(said: Json, *, required: bool = False, **definitions: Json) -> FormField:
    form = read_form({"properties": {"a": said}, "required": ["a"] if required else [], "$defs": definitions})
    return form.fields[0]


@pytest.mark.parametrize(
    ("said", "kind", "values"),
    [
        ({"$ref": "#/$defs/E"}, "choice", ["x", "y"]),
        ({"allOf": [{"$ref": "#/$defs/E"}], "default": "x"}, "choice", ["x", "y"]),
        ({"anyOf": [{"$ref": "#/$defs/E"}, {"type": "null"}]}, "choice", ["x", "y"]),
        ({"anyOf": [{"$ref": "#/$defs/E"}, {"const": "z"}]}, "choice", ["x", "y", "z"]),
        ({"enum": ["x", None]}, "choice", ["x"]),
        ({"const": 5}, "choice", [5]),
        ({"const": "x", "enum": ["x"], "type": "string"}, "choice", ["x"]),
        ({"type": "array", "items": {"$ref": "#/$defs/E"}}, "choices", ["x", "y"]),
        ({"type": "array", "items": {"anyOf": [{"const": 1, "title": "One"}]}}, "choices", [1]),
        ({"type": ["integer", "null"]}, "integer", []),
        ({"anyOf": [{"type": "string", "format": "date"}, {"type": "null"}], "title": "On"}, "date", []),
    ],
)
def test_field_as_pydantic_and_others_write_it(said: Json, kind: str, values: list[Any]) -> None:
    read = field(said, E={"enum": ["x", "y"], "type": "string", "title": "E"})
    assert (read.type, [each.value for each in read.options]) == (kind, values)
    assert read.title in {"a", "On"}  # never the name of a class


@pytest.mark.parametrize(
    ("said", "labels"),
    [
        (FRUIT, ["Apple", "Pear"]),
        ({"enum": ["a", "p"], "enumNames": ["Apple", "Pear"]}, ["Apple", "Pear"]),
        ({"enum": ["a", 1.5, True]}, ["a", "1.5", "Yes"]),
    ],
)
def test_titles_of_choices(said: Json, labels: list[str]) -> None:
    assert [each.label for each in field(said).options] == labels


@pytest.mark.parametrize(
    "said",
    [
        {"type": "string", "pattern": "x"},
        {"type": "string", "format": "email", "pattern": "("},
        {"type": "string", "format": "email", "pattern": "((a{100}){100}){100}"},
        {"type": "string", "format": "phone"},
        {"type": "string", "minLength": 5, "maxLength": 4},
        {"type": "string", "minLength": 3001},
        {"type": "string", "maxLength": 0},
        {"type": "string", "maxLength": "5"},
        {"type": "string", "format": "date", "minLength": 3},
        {"type": "string", "default": "x" * 3001},
        {"type": "string", "title": 5},
        {"type": "number", "multipleOf": 2},
        {"type": "number", "minimum": 2**53 + 2},
        {"type": "number", "minimum": True},
        {"type": "number", "exclusiveMinimum": 1, "maximum": 1},
        {"type": "boolean", "not": {"const": True}},
        {"type": "array", "items": {"type": "object"}},
        {"type": "array", "items": {"type": "boolean"}},
        {"type": "array", "items": {"type": "array", "items": {"type": "string"}}},
        {"type": "array"},
        {"type": "array", "items": FRUIT, "maxItems": 0},
        {"type": "array", "items": FRUIT, "contains": {"const": "a"}},
        {"type": "array", "items": FRUIT, "default": ["a", "a"]},
        {"type": ["string", "integer"]},
        {"enum": []},
        {"enum": ["a", "a"]},
        {"enum": [1, 1.0]},
        {"enum": [["a"]]},
        {"enum": ["a"], "type": "integer"},
        {"enum": ["a"], "minLength": 2},
        {"enum": ["a"], "enumNames": []},
        {"oneOf": [{"const": "a", "type": "integer"}]},
        {"oneOf": [{"const": "a", "pattern": "b"}]},
        {"$ref": "#/$defs/E", "type": "integer"},
    ],
)
def test_what_forms_do_not_have_is_refused(said: Json) -> None:
    with pytest.raises(BadSchema) as refused:
        field(said, E={"enum": ["x"], "type": "string"})
    assert refused.value.where.startswith("properties.a")


@pytest.mark.parametrize(
    ("said", "value", "kept"),
    [
        ({"type": "integer"}, 3.0, 3),
        ({"type": "string", "format": "date-time"}, "2026-05-24T16:00:00.5+02:00", "2026-05-24T14:00:00.500000Z"),
        ({"type": "array", "items": FRUIT}, ["p", "a"], ["a", "p"]),
        ({"type": "string", "format": "uri"}, "urn:isbn:0451450523", "urn:isbn:0451450523"),
        ({"type": ["string", "null"]}, None, None),
    ],
)  # fmt: skip
def test_value_that_fits(said: Json, value: Any, kept: Any) -> None:
    found = field(said).checked(value)
    assert (found, type(found)) == (kept, type(kept))


@pytest.mark.parametrize(
    ("said", "value"),
    [
        ({"type": "integer"}, True),
        ({"type": "integer"}, 1e400),
        ({"type": "integer"}, "3"),
        ({"type": "boolean"}, "true"),
        ({"enum": [1]}, True),
        (FRUIT, "Apple"),
        ({"type": "array", "items": FRUIT}, ["a", "a"]),
        ({"type": "array", "items": FRUIT}, "a"),
        ({"type": "string"}, "x" * 16_385),
        ({"type": "string", "format": "date"}, "2026-02-30"),
        ({"type": "string", "format": "date"}, "２０２６-02-03"),
        ({"type": "string", "format": "date-time"}, "2026-05-24T14:00:00"),
        ({"type": "string", "format": "date-time"}, "0001-01-01T00:00:00+05:00"),
        ({"type": "string", "format": "email"}, "a b@example.org"),
        ({"type": "string", "format": "uri"}, "https://"),
        ({"type": "string", "format": "uri"}, "https://example.org/a b"),
        ({"type": "string", "format": "uri"}, "https://exämple.org"),
        ({"type": "string"}, None),
    ],
)
def test_value_that_does_not_fit(said: Json, value: Any) -> None:
    with pytest.raises(AnswerRejected, match=r"^Expected "):
        field(said).checked(value)


def asked(schema: Json) -> Question:
    return Question(kinds=("form",), direct=Direct(kind="form", form=schema))


TWO = {
    "properties": {"n": {"type": "integer", "title": "How many"}, "ok": {"type": "boolean"}},
    "required": ["n"],
}


def test_json_fills_in_a_form() -> None:
    answer = from_text(asked(TWO), ' {"ok": false, "n": 3.0}\n')
    assert answer.response == {"n": 3, "ok": False}
    assert answer.label == "How many: 3\nok: No"


@pytest.mark.parametrize(
    ("text", "errors"),
    [
        ("{}", {"n": "Required: expected a whole number."}),
        ('{"n": NaN, "ok": "no"}', {"n": "Expected a whole number.", "ok": "Expected true or false."}),
        ('{"n": 1, "m": 2}', {"m": "The form has no such field."}),
    ],
)
def test_json_that_does_not_fit_names_the_fields(text: str, errors: dict[str, str]) -> None:
    with pytest.raises(Misfits) as rejected:
        from_text(asked(TWO), text)
    assert rejected.value.errors == errors


@pytest.mark.parametrize("text", ["3", "n: 3", "[3]", '{"n": 3', "yes"])
def test_words_do_not_fill_in_several_fields(text: str) -> None:
    with pytest.raises(AnswerRejected) as rejected:
        from_text(asked(TWO), text)
    assert str(rejected.value) == hint(asked(TWO))


@pytest.mark.parametrize(
    ("said", "text", "value"),
    [
        ({"type": "integer"}, "1,200.0", 1200),
        ({"type": "boolean"}, "Nope", False),
        ({"type": "string"}, " {no json} ", " {no json} "),
        ({"type": "string"}, '{"b": 1}', '{"b": 1}'),
        ({"type": "string"}, '{"a": "x"}', "x"),
        ({"type": "string", "format": "date"}, " 2026-05-24 ", "2026-05-24"),
        (FRUIT, "2", "p"),
        (FRUIT, "apple", "a"),
        ({"type": "array", "items": FRUIT}, "pear, 1", ["a", "p"]),
        ({"enum": [10, 20]}, "20", 20),
    ],
)
def test_words_fill_in_a_single_field(said: Json, text: str, value: Any) -> None:
    assert from_text(asked({"properties": {"a": said}}), text).response == {"a": value}


@pytest.mark.parametrize(
    ("said", "text"),
    [
        ({"type": "integer"}, "a few"),
        (FRUIT, "plum"),
        ({"type": "boolean"}, "maybe"),
        ({"type": "string"}, " "),
    ],
)
def test_words_that_are_no_value_get_a_hint(said: Json, text: str) -> None:
    with pytest.raises(AnswerRejected, match=r"Expected|Reply"):
        from_text(asked({"properties": {"a": said}}), text)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=3,
)


@settings(deadline=None, max_examples=25, suppress_health_check=list(HealthCheck))
@given(schemas(), st.data())
def test_what_a_form_takes_is_valid_by_its_schema(schema: Json, data: st.DataObject) -> None:
    """Defaults and choices as they are, and anything else, are tried as the fields' values."""
    assume(len(str(schema)) < SCHEMA_LIMIT // 8)
    form = read_form(schema)
    given_values = {}
    for each in form.fields:
        fair = [option.value for option in each.options] + [each.default]
        way = data.draw(st.sampled_from(["fair", "several", "any", "none"]))
        if way == "fair":
            given_values[each.name] = data.draw(st.sampled_from(fair))
        elif way == "several":
            given_values[each.name] = data.draw(st.lists(st.sampled_from(fair), max_size=4))
        elif way == "any":
            given_values[each.name] = data.draw(JSON)
    try:
        answer = form.checked(given_values)
    except Misfits as error:
        answer = {
            name: value
            for name, value in given_values.items()
            if name not in error.errors and value is not None
        }
        schema = schema | {"required": []}
    Draft202012Validator(schema).validate(answer)
