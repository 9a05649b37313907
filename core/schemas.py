"""Checks JSON against the schemas that agents send: JSON Schema 2020-12, with `jsonschema-rs`.

An agent's schema may be hostile. Nothing is fetched: references must point into the schema. Patterns run on a linear-time
engine; those that it does not take (lookaround, backreferences) on one with a limited number of steps, against texts of a
limited length. A schema that evaluates too many of its parts for one value is refused, and so is one with a loop; a value for
which it evaluates too many in all is not checked, and does not count. Pure.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from typing import Any
from urllib.parse import unquote

import jsonschema_rs
from jsonschema_rs import EmailOptions, FancyRegexOptions, RegexOptions, ValidationErrorKind

from core.errors import AnswerRejected, BadInput
from core.names import whole_characters

SCHEMA_LIMIT = 262_144  # bytes of JSON
MOST_PROBLEMS = 20  # that are told of one value
_MOST_PARTS = 5_000  # parts of a schema
_MOST_EVALUATED = 10_000  # parts that may be evaluated for one value, without what is in it
_PATTERN_SIZE = 1_000_000  # bytes of a compiled pattern
_MOST_STEPS = 10_000  # of a pattern with lookaround, at one place of a text
_MOST_WORK = 60_000_000  # steps in the check of a value, at most: 0.2 s
_STEPS_EACH = 150  # of evaluating a part
_LINEAR = RegexOptions(size_limit=_PATTERN_SIZE, dfa_size_limit=_PATTERN_SIZE)
_FANCY = FancyRegexOptions(_MOST_STEPS, _PATTERN_SIZE, _PATTERN_SIZE)
_EMAILS = EmailOptions(allow_display_text=False, allow_domain_literal=False)
_SAME_VALUE = {"allOf", "anyOf", "oneOf", "not", "if", "then", "else"}
_SAME_VALUE |= {"dependentSchemas", "dependencies"}
_CHILDREN = {"items", "prefixItems", "additionalItems", "unevaluatedItems", "contains", "propertyNames"}
_CHILDREN |= {"patternProperties", "additionalProperties", "unevaluatedProperties"}
_BY_NAME = {"patternProperties", "dependentSchemas", "dependencies"}
_REFERENCES = {"$ref", "$dynamicRef", "$recursiveRef"}
_BROKEN = "References must point to an existing `#/$defs/…` of the schema."
_TIME = re.compile(
    r"([01]\d|2[0-3]):[0-5]\d(:[0-5]\d(\.\d{1,9})?)?([Zz]|[+-]([01]\d|2[0-3]):[0-5]\d)?", re.ASCII
)
_UNKNOWN = "Unknown fields are not allowed."
_VALUE = "The value"


class BadSchema(BadInput):
    """The schema is not supported. `where`: the path of the error, empty for the whole schema."""

    def __init__(self, where: str, message: str) -> None:
        super().__init__(message)
        self.where = where


class TooSlow(AnswerRejected):
    """A text takes too long to check."""

    def __init__(self) -> None:
        super().__init__("This takes too long to be checked against the agent's schema. Shorten it.")


@dataclass(frozen=True, slots=True)
class Problem:
    """Where a value does not fit its schema, and why. `message`: a sentence that does not repeat the value; `rule`: the place
    in the schema.
    """

    path: tuple[str | int, ...]
    message: str
    rule: tuple[str | int, ...]

    @property
    def sentence(self) -> str:
        """The message, after the name of the field."""
        return f"{dotted(self.path)}: {self.message}" if self.path else self.message


class Schema:
    """A compiled schema. `text`: its JSON."""

    def __init__(self, text: str) -> None:
        schema = json.loads(text)
        if not isinstance(schema, dict):
            raise BadSchema("", "Must be a JSON Schema object.")
        self._graph = _Graph(schema)
        self._graph.check_cost()
        self._is_fancy = False
        try:
            self._validator = _compiled(schema, _LINEAR)
        except BadSchema as error:
            if not error.where.endswith("pattern") and "patternProperties" not in error.where:
                raise
            self._validator, self._is_fancy = _compiled(schema, _FANCY), True

    def problems(self, value: Any, of: str | None = None) -> list[Problem]:
        """Returns where a value does not fit, at most `MOST_PROBLEMS`; empty if it is valid. `of`: the only property of `value`;
        others may be missing.

        Raises:
            TooSlow: its patterns would take too long, so we do not know.
        """
        if self._graph.work(value, fancy=self._is_fancy) > _MOST_WORK:
            raise TooSlow
        try:
            errors = self._validator.iter_errors(value)
            found = (_problem(error, value) for error in errors if of is None or error.instance_path)
            return list(islice(found, MOST_PROBLEMS))
        except UnicodeEncodeError:
            return [Problem(() if of is None else (of,), "A text contains half of a character.", ())]


def schema_of(schema: Any) -> Schema:
    """Returns a compiled schema.

    Raises:
        BadSchema: it is no valid schema, refers to something outside of it, or would take too long.
    """
    return compiled(encoded(schema))


@lru_cache(maxsize=32)
def compiled(text: str) -> Schema:
    """Returns the compiled schema of `encoded`."""
    return Schema(text)


def encoded(schema: Any) -> str:
    """Returns a schema as JSON.

    Raises:
        BadSchema: it is not valid JSON, or too large.
    """
    if not isinstance(schema, dict):
        raise BadSchema("", "Must be a JSON Schema object.")
    try:
        text = json.dumps(schema, allow_nan=False)
    except (ValueError, RecursionError):
        raise BadSchema(
            "", "Must be valid JSON, without NaN or infinite numbers, and not deeply nested."
        ) from None
    if len(text) > SCHEMA_LIMIT:
        raise BadSchema("", f"{len(text)} bytes of JSON; at most {SCHEMA_LIMIT} are allowed.")
    return text


def dotted(path: tuple[str | int, ...]) -> str:
    """Returns a path as people write it: `mail.to[0]`."""
    said = "".join(f"[{each}]" if isinstance(each, int) else f".{each}" for each in path)
    return said.removeprefix(".")


def is_time(text: str) -> bool:
    """Returns whether a text is a time of day. RFC 3339 wants seconds and a zone; zod and pydantic write `time` for times
    without them, too.
    """
    return _TIME.fullmatch(text) is not None


def _compiled(schema: dict[str, Any], patterns: RegexOptions | FancyRegexOptions) -> Any:
    try:
        return jsonschema_rs.Draft202012Validator(
            schema,
            validate_formats=True,
            formats={"time": is_time},
            pattern_options=patterns,
            email_options=_EMAILS,
            offline=True,
            mask=_VALUE,
        )
    except jsonschema_rs.ValidationError as error:
        if isinstance(error.kind, ValidationErrorKind.Referencing):
            raise BadSchema("", _BROKEN) from None
        where = ".".join(map(str, error.instance_path))
        if where.endswith("pattern"):
            raise BadSchema(where, "`pattern` is no regular expression that can be checked.") from None
        raise BadSchema(where, f"Not a valid schema: {_said(error)}") from None
    except (ValueError, UnicodeEncodeError):
        raise BadSchema("", "Not a valid schema, or nested too deeply.") from None


def _problem(error: jsonschema_rs.ValidationError, value: Any) -> Problem:
    path, rule = tuple(_steps_of(error.instance_path, value)), tuple(error.schema_path)
    match error.kind:
        case ValidationErrorKind.BacktrackLimitExceeded() | ValidationErrorKind.RegexEngineFailure():
            raise TooSlow
        case ValidationErrorKind.Format(name):
            said = f"The value is not a valid {name}."
        case ValidationErrorKind.Required(name):
            path, said = (*path, name), "This field is required."
        case ValidationErrorKind.AdditionalProperties() | ValidationErrorKind.UnevaluatedProperties():
            said = _UNKNOWN
        case ValidationErrorKind.FalseSchema():
            said = _UNKNOWN if rule[-1:] == ("additionalProperties",) else "This field is not allowed."
        case _:
            said = _said(error)
    return Problem(path, said, rule)


def _steps_of(path: list[str | int], value: Any) -> Iterator[str | int]:
    """Yields the steps of a path into a value. The library has numbers for names that are numbers."""
    here = value
    for step in path:
        if isinstance(here, Mapping) and isinstance(step, int):
            step = next((name for name in here if re.fullmatch(rf"\+?0*{step}", name)), str(step))  # noqa: PLW2901
        yield step
        is_there = isinstance(here, list) or (isinstance(here, Mapping) and step in here)
        here = here[step] if is_there else None


def _said(error: jsonschema_rs.ValidationError) -> str:
    said = whole_characters(error.message)
    return said if said.endswith(".") else f"{said}."


def _parts(schema: Any) -> Iterator[dict[str, Any]]:
    """Yields a schema and all schemas in it, also those that nothing refers to.

    Raises:
        BadSchema: there are too many.
    """
    left, seen = [schema], 0
    while left:
        part = left.pop()
        if isinstance(part, dict):
            seen += 1
            if seen > _MOST_PARTS:
                raise BadSchema("", f"More than {_MOST_PARTS} parts.")
            yield part
            left += part.values()
        elif isinstance(part, list):
            left += part


class _Graph:
    """Which parts of a schema are evaluated for a value."""

    def __init__(self, schema: dict[str, Any]) -> None:
        self._schema = schema
        self._anchors: dict[str, list[Any]] = {}
        for part in _parts(schema):
            for word in ("$anchor", "$dynamicAnchor"):
                if isinstance(name := part.get(word), str):
                    self._anchors.setdefault(name, []).append(part)

    def check_cost(self) -> None:
        """Raises BadSchema if checking one value may evaluate too many parts, or never ends."""
        known: dict[int, int] = {}
        left, seen = [self._schema], {id(self._schema)}
        try:
            while left:
                part = left.pop()
                self._cost(part, known, set())
                below = (*self._for_same(part), *_for_any_child(part), *_named(part, "properties").values())
                left += (each for each in below if id(each) not in seen)
                seen |= set(map(id, below))
        except RecursionError:
            raise BadSchema("", "Nested too deeply.") from None

    def _cost(self, part: Mapping[str, Any], known: dict[int, int], entered: set[int]) -> int:
        """Returns how many parts are evaluated for a value, without those for the values in it."""
        place = id(part)
        if place in known:
            return known[place]
        if place in entered:
            raise BadSchema("", "References form a loop.")
        entered.add(place)
        total = 1 + sum(self._cost(each, known, entered) for each in self._for_same(part))
        entered.discard(place)
        if total > _MOST_EVALUATED:
            raise BadSchema("", "Too complex: its parts refer to each other too often.")
        known[place] = total
        return total

    def work(self, value: Any, *, fancy: bool) -> int:
        """Returns how many steps the check of a value may take; above `_MOST_WORK`, it stops counting. `fancy`: patterns may
        have lookaround.
        """
        total, left = 0, [(self._schema, value)]
        while left and total <= _MOST_WORK:
            part, here = left.pop()
            total += _STEPS_EACH
            left += ((each, here) for each in self._for_same(part))
            if isinstance(here, str):
                total += _steps(here, fancy=fancy) if "pattern" in part else 0
            elif isinstance(here, dict):
                named = _named(part, "properties")
                left += ((named[name], each) for name, each in here.items() if name in named)
                left += ((each, below) for each in _for_any_child(part) for below in (*here.values(), *here))
                total += len(_named(part, "patternProperties")) * sum(
                    _steps(each, fancy=fancy) for each in here
                )
            elif isinstance(here, list):
                left += ((each, below) for each in _for_any_child(part) for below in here)
        return total

    def _for_same(self, part: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        """Yields the parts that are evaluated for the same value."""
        for word in _SAME_VALUE & part.keys():
            yield from _schemas(word, part[word])
        for word in _REFERENCES & part.keys():
            yield from self._referenced(part[word])

    def _referenced(self, reference: Any) -> Iterator[dict[str, Any]]:
        """Yields the parts to which a reference may point; none if it is broken, which compiling finds."""
        if not isinstance(reference, str):
            return
        at, _, fragment = reference.partition("#")
        if at:
            raise BadSchema("", _BROKEN)
        if not fragment.startswith("/"):
            yield from self._anchors.get(fragment, []) if fragment else [self._schema]
            return
        found: Any = self._schema
        for raw in fragment.split("/")[1:]:
            name = unquote(raw).replace("~1", "/").replace("~0", "~")
            if isinstance(found, list) and name.isdecimal() and int(name) < len(found):
                found = found[int(name)]
            else:
                found = found.get(name) if isinstance(found, dict) else None
        if isinstance(found, dict):
            yield found


def _schemas(word: str, given: Any) -> Iterator[dict[str, Any]]:
    """Yields the schemas in a keyword: one, a list, or several by name."""
    found = [given] if isinstance(given, dict) else given if isinstance(given, list) else []
    if word in _BY_NAME and isinstance(given, dict):
        found = list(given.values())
    yield from (each for each in found if isinstance(each, dict))


def _for_any_child(part: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yields the schemas that may be evaluated for each value in a value, and for each name."""
    for word in _CHILDREN & part.keys():
        yield from _schemas(word, part[word])


def _named(part: Mapping[str, Any], word: str) -> dict[str, Any]:
    found = part.get(word)
    return (
        {name: each for name, each in found.items() if isinstance(each, dict)}
        if isinstance(found, dict)
        else {}
    )


def _steps(text: str, *, fancy: bool) -> int:
    return len(text) * (min(len(text), _MOST_STEPS) if fancy else 1)
