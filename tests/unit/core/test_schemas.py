"""Agents' schemas: what is checked, and what hostile ones cannot do."""

from __future__ import annotations

import socket
import threading
import time
from typing import Any

import pytest

from core.schemas import BadSchema, TooSlow, schema_of

Json = dict[str, Any]
ZOD_EMAIL = (
    r"^(?!\.)(?!.*\.\.)([A-Za-z0-9_'+\-\.]*)[A-Za-z0-9_+-]@([A-Za-z0-9][A-Za-z0-9\-]*\.)+[A-Za-z]{2,}$"
)
EVIL = "(?!x)(a|aa)+$"


@pytest.mark.parametrize(
    ("schema", "value", "said"),
    [
        ({"properties": {"n": {"type": "integer"}}}, {"n": "1"}, 'n: The value is not of type "integer".'),
        ({"properties": {"a": {"items": {"minimum": 5}}}}, {"a": [6, 4]}, "a[1]: The value is less than the minimum of 5."),
        ({"properties": {"o": {"required": ["p"]}}}, {"o": {}}, "o.p: This field is required."),
        ({"additionalProperties": False}, {"b": 1}, "Unknown fields are not allowed."),
        ({"properties": {"01": {"type": "string"}}}, {"01": 1}, '01: The value is not of type "string".'),
        ({"properties": {"m": {"format": "email"}}}, {"m": "Ann <a@b.c>"}, 'm: The value is not a valid email.'),
        ({"properties": {"a": False}}, {"a": 1}, "a: This field is not allowed."),
        ({"type": "string"}, "\ud800", "A text contains half of a character."),
    ],
)  # fmt: skip
def test_problem_names_the_field(schema: Json, value: Json, said: str) -> None:
    assert [each.sentence for each in schema_of(schema).problems(value)] == [said]


def test_patterns_with_lookaround_are_checked() -> None:
    schema = schema_of({"properties": {"mail": {"format": "email", "pattern": ZOD_EMAIL}}})
    assert not schema.problems({"mail": "ann@example.org"})
    assert schema.problems({"mail": "an..n@example.org"})


def nested(levels: int) -> Json:
    schema: Json = {"type": "string"}
    for _ in range(levels):
        schema = {"properties": {"a": schema}}
    return schema


def doubled(levels: int) -> Json:
    """Each definition refers to the next one twice."""
    defined: Json = {f"a{n}": {"allOf": [{"$ref": f"#/$defs/a{n + 1}"}] * 2} for n in range(levels)}
    return {"$ref": "#/$defs/a0", "$defs": defined | {f"a{levels}": {"type": "string"}}}


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#"},
        {"allOf": [{"$ref": "#/$defs/a"}], "$defs": {"a": {"not": {"$ref": "#"}}}},
        {"$dynamicAnchor": "x", "anyOf": [{"$dynamicRef": "#x"}]},
        {"$ref": "#/$defs/nothing"},
        {"$ref": "file:///etc/passwd"},
        {"properties": {"a": {"$ref": "other.json#/a"}}},
        {"type": "text"},
        {"pattern": "("},
        {"pattern": "((a{100}){100}){100}"},
        {"patternProperties": {"(?=b)((a{100}){100}){100}": {}}},
        {"title": "\ud800"},
        doubled(30),
        nested(300),
        {"properties": {f"p{n}": {"type": "string"} for n in range(6000)}},
    ],
)
def test_hostile_schema_is_refused_at_once(schema: Json) -> None:
    began = time.thread_time()
    with pytest.raises(BadSchema):
        schema_of(schema)
    assert time.thread_time() - began < 2


DEEP: Json = {}
for _ in range(20):
    DEEP = {"x": DEEP}


def test_words_of_a_schema_are_names_and_data_too() -> None:
    named = {name: {"type": "string"} for name in ("$ref", "not", "allOf", "properties")}
    schema = schema_of(
        {"properties": named, "default": {"$ref": "https://example.org"}, "examples": [{"$ref": "#"}]}
    )
    assert not schema.problems({"$ref": "a", "not": "b"})
    assert [each.path for each in schema.problems({"$ref": 1})] == [("$ref",)]


def test_filters_of_filters_are_taken() -> None:
    both = [{"properties": {word: {"items": {"$ref": "#"}}}, "required": [word]} for word in ("and", "or")]
    schema = schema_of({"anyOf": [{"required": ["is"]}, *both]})
    assert not schema.problems({"and": [{"or": [{"is": 1}, {"is": 2}]}, {"and": [{"or": [{"is": 3}]}]}]})
    assert schema.problems({"and": [{"or": [{"is": 1}, {"was": 2}]}]})


def test_schema_of_a_tree_is_taken() -> None:
    tree = {"properties": {"name": {"type": "string"}, "in": {"type": "array", "items": {"$ref": "#"}}}}
    assert not schema_of(tree).problems({"name": "a", "in": [{"name": "b", "in": []}]})
    assert schema_of(tree).problems({"name": "a", "in": [{"name": 1}]})


@pytest.mark.parametrize("keyword", ["$ref", "$schema", "$id"])
def test_nothing_is_fetched(keyword: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        calls: list[object] = []
        server.settimeout(0.5)

        def listen() -> None:
            try:
                calls.append(server.accept())
            except TimeoutError:
                return

        listening = threading.Thread(target=listen)
        listening.start()
        url = f"http://127.0.0.1:{server.getsockname()[1]}/schema"
        try:
            schema_of({keyword: url, "type": "object"}).problems({})
        except BadSchema:
            assert keyword == "$ref"
        listening.join()
    assert not calls


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"properties": {"a": {"pattern": EVIL}}}, {"a": "a" * 100_000 + "b"}),
        ({"allOf": [{"pattern": EVIL}] * 100}, "a" * 2000 + "b"),
        ({"items": {"pattern": EVIL}}, ["a" * 2000 + "b"] * 100),
        ({"patternProperties": {EVIL: False}}, {"a" * 100_000 + "b": 1}),
        ({"propertyNames": {"pattern": EVIL}}, {"a" * 100_000 + "b": 1}),
        ({"properties": {"a": {"pattern": EVIL}}}, {"a": "a" * 7000 + "b"}),
        (
            {
                "$ref": "#/$defs/a",
                "$defs": {"a": {"properties": {"x": {"allOf": [{"$ref": "#/$defs/a"}] * 3}}}},
            },
            DEEP,
        ),
        ({"items": {"allOf": [{"minimum": n} for n in range(100)]}}, list(range(100, 20_000))),
    ],
)
def test_pattern_that_takes_too_long_says_so(schema: Json, value: Any) -> None:
    read, began = schema_of(schema), time.thread_time()
    with pytest.raises(TooSlow):
        read.problems(value)
    assert time.thread_time() - began < 2


def test_linear_pattern_is_checked_against_long_texts() -> None:
    schema, began = schema_of({"properties": {"a": {"pattern": "^(a+)+$"}}}), time.thread_time()
    assert schema.problems({"a": "a" * 200_000 + "b"})
    assert time.thread_time() - began < 2
