"""Reads the forms that agents ask people to fill in, and checks the values that people give.

An agent sends a form as a flat JSON Schema object, or as the schema of a single value, as pydantic, zod, MCP's elicitation and
people write it. This module supports a part of JSON Schema 2020-12. `read_form` refuses everything else, so that no form fails
only when a person answers it. `Form.checked` returns only what is valid by the agent's schema (`core.schemas`).

Sources: JSON Schema 2020-12 "Validation" (§6, §7.3), RFC 3339 §5.6, RFC 3986; MCP 2025-11-25 "Elicitation" (titles of
choices: `oneOf` or `anyOf` with `const` and `title`, earlier `enum` with `enumNames`). Pure.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from dataclasses import field as part
from datetime import UTC, date, datetime, time
from functools import lru_cache
from typing import Any, Literal
from urllib.parse import urlsplit

from core.errors import AnswerRejected
from core.names import whole_characters
from core.schemas import BadSchema, Problem, Schema, compiled, encoded, is_time, schema_of

FieldType = Literal[
    "text",
    "email",
    "uri",
    "uuid",
    "date",
    "time",
    "date-time",
    "number",
    "integer",
    "boolean",
    "choice",
    "choices",
    "list",
]
Scalar = str | bool | int | float
Json = Mapping[str, Any]

MOST_FIELDS = 40
MOST_OPTIONS = 100
DEFAULTS_LIMIT = 65_536  # bytes of JSON of all default texts
TEXT_LIMIT = 16_384  # characters of a text
TYPED_LIMIT = 3000  # characters that an input in a modal takes
_LONGEST_NAME = 200
_MOST_ENTRIES = 1000  # of a list
_DEFINITIONS = ("$defs", "definitions")
_LARGEST_NUMBER = 2**53  # the largest whole number that every JSON reader takes exactly
_LONGEST_CHAIN = 10  # references that follow each other
_MOST_NAMED = 200  # characters of choices that a hint lists
ANSWER = "answer"  # the name of the only field of a schema that is no object

_BOUNDS = {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"}
_LENGTHS = {"minLength", "maxLength"}
_CHOICE_KEYWORDS = {"enum", "const", "oneOf", "anyOf"}
# The keywords that restrict values: a form may only have the supported ones. All other keywords only describe.
_ASSERTIONS = frozenset(
    {
        *_BOUNDS, *_LENGTHS, *_CHOICE_KEYWORDS,
        "$dynamicRef", "$recursiveRef", "$ref", "additionalItems", "additionalProperties", "allOf", "contains",
        "dependencies", "dependentRequired", "dependentSchemas", "disallow", "divisibleBy", "else", "extends", "format",
        "if", "items", "maxContains", "maxItems", "maxProperties", "minContains", "minItems", "minProperties",
        "multipleOf", "not", "pattern", "patternProperties", "prefixItems", "properties", "propertyNames", "required",
        "then", "type", "unevaluatedItems", "unevaluatedProperties", "uniqueItems",
    }
)  # fmt: skip
_FORM_KEYWORDS = {"type", "properties", "required", "additionalProperties", "unevaluatedProperties"}
_WRITTEN = {"type", "format", "pattern"}
_FIELD_KEYWORDS: dict[FieldType, set[str]] = {
    "text": _WRITTEN | _LENGTHS,
    "email": _WRITTEN | _LENGTHS,
    "uri": _WRITTEN | _LENGTHS,
    "uuid": _WRITTEN | _LENGTHS,
    "date": _WRITTEN,
    "time": _WRITTEN,
    "date-time": _WRITTEN,
    "number": {"type", "format", *_BOUNDS},
    "integer": {"type", "format", *_BOUNDS},
    "boolean": {"type"},
    "choice": {"type", *_CHOICE_KEYWORDS},
    "choices": {"type", "items", "minItems", "maxItems", "uniqueItems"},
    "list": {"type", "items", "minItems", "maxItems", "uniqueItems"},
}
_FORMATS: dict[str | None, FieldType] = {
    None: "text",
    "email": "email",
    "uri": "uri",
    "uuid": "uuid",
    "date": "date",
    "time": "time",
    "date-time": "date-time",
}
# Formats of texts that are checked, and have no input of their own. Others need a pattern: they would not be checked.
_CHECKED = {
    "duration", "hostname", "idn-email", "idn-hostname", "ipv4", "ipv6", "iri", "iri-reference", "json-pointer", "regex",
    "relative-json-pointer", "uri-reference", "uri-template",
}  # fmt: skip
_DATE_TIME = re.compile(
    r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(\.\d{1,9})?([Zz]|[+-]([01]\d|2[0-3]):[0-5]\d)", re.ASCII
)
_TYPE_NAMES: dict[FieldType, str] = {
    "text": "text",
    "email": "an e-mail address",
    "uri": "a web address or another URI",
    "uuid": "a UUID",
    "date": "a date",
    "time": "a time",
    "date-time": "a date and time with its zone",
    "number": "a number",
    "integer": "a whole number",
    "boolean": "yes or no",
}
_ANY_DAY = date(2000, 1, 2)
_EXAMPLES: dict[FieldType, str] = {
    "uri": ", like https://example.org",
    "uuid": ", like 123e4567-e89b-12d3-a456-426614174000",
    "date": ", like 2026-05-24",
    "time": ", like 14:00",
    "date-time": ", like 2026-05-24T14:00:00Z",
}


class Misfits(AnswerRejected):
    """Some values do not fit their fields. `errors`: a field's name → what is expected of it."""

    def __init__(self, errors: Mapping[str, str]) -> None:
        super().__init__(" ".join(f"{name}: {error}" for name, error in errors.items()))
        self.errors = dict(errors)


@dataclass(frozen=True, slots=True)
class FormOption:
    """A choice of a field. `label`: its title, or its value as text. `value`: None for null, of an argument only."""

    value: Scalar | None
    label: str
    description: str | None = None


@dataclass(frozen=True, slots=True)
class FormField:
    """A field of a form. `title`: the label that people read, by default its name; `nullable`: null is a value.

    `least`, `most`: inclusive bounds of a number, a text's length or the number of entries; `above`, `below`: exclusive
    bounds of a number. None: no bound. `format`: of a text that has no input of its own. `zoneless`: a time of day without a
    zone. `entry`: of a list. `schema`: of the whole form, which values are checked against.
    """

    name: str
    title: str
    type: FieldType
    description: str | None = None
    required: bool = False
    nullable: bool = False
    default: Any = None
    options: tuple[FormOption, ...] = ()
    least: float | None = None
    most: float | None = None
    above: float | None = None
    below: float | None = None
    format: str | None = None
    zoneless: bool = False
    entry: FormField | None = None
    schema: Schema | None = part(default=None, compare=False, repr=False)

    @property
    def may_be_empty(self) -> bool:
        """Whether people can leave it empty."""
        is_list = self.type in {"choices", "list"}
        return not self.required or self.nullable or (is_list and not self.least)

    @property
    def expected(self) -> str:
        """Describes a valid value, for the end of a sentence: `a whole number from 1 to 5`."""
        if self.type == "choice":
            return f"one of {self._option_names}"
        if self.type == "choices":
            return f"{self.how_many or 'some'} of {self._option_names}"
        if self.entry is not None:
            each = "" if self.entry.expected == "text" else f", each {self.entry.expected}"
            noun = (
                "entry" if (self.most if self.least is None else self.most or self.least) == 1 else "entries"
            )
            return f"{_range(self.least, self.most)} {noun}, one per line{each}".lstrip()
        name = _TYPE_NAMES[self.type]
        if self.type in {"number", "integer"}:
            return f"{name} {self._bounds}".rstrip()
        length = _range(None if self.least == 1 else self.least, self.most)
        form = " in UTC" if self.type == "time" and not self.zoneless else ""
        form = form if self.format is None else f" in the format {self.format}"
        return f"{name}{f' of {length} characters' if length else ''}{form}{_EXAMPLES.get(self.type, '')}"

    @property
    def _bounds(self) -> str:
        """Describes the bounds of a number."""
        if self.above is None and self.below is None and self.least is not None and self.most is not None:
            return f"from {_number_text(self.least)} to {_number_text(self.most)}"
        bounds = (
            ("of at least", self.least),
            ("above", self.above),
            ("of at most", self.most),
            ("below", self.below),
        )
        return " and ".join(f"{words} {_number_text(bound)}" for words, bound in bounds if bound is not None)

    @property
    def names_options(self) -> bool:
        """Whether `expected` lists the choices. If there are too many, it only counts them."""
        return sum(len(each.label) + 2 for each in self.options) <= _MOST_NAMED

    @property
    def how_many(self) -> str:
        """Says how many choices people can pick (`1 to 3`); empty if any number."""
        return _range(self.least, self.most) if self.type == "choices" else ""

    @property
    def _option_names(self) -> str:
        if not self.names_options:
            return f"the {len(self.options)} choices"
        quote = "“{}”" if any("," in each.label for each in self.options) else "{}"
        return ", ".join(quote.format(each.label) if each.label else '""' for each in self.options)

    def checked(self, value: Any) -> Any:
        """Returns a value as the schema takes it: a choice as the agent sent it, a time in UTC.

        Raises:
            AnswerRejected: the value does not fit. The message does not repeat it.
        """
        if value is None and self.nullable:
            return None
        match self.type:
            case "boolean":
                found = value
            case "number" | "integer":
                found = self._number(value)
            case "choice":
                option = self.option(value)
                found = option.value if option else None
            case "choices":
                found = self._chosen(value)
            case "list":
                found = self._entries(value)
            case _:
                found = self._text(value)
        ways = list(_ways_to_write(self, found)) if isinstance(found, str) else [found]
        problems: list[Problem] = []
        for each in ways:
            if each is not None and not (problems := self._problems(each)):
                return each
        expected = f"Expected {'true or false' if self.type == 'boolean' else self.expected}."
        if problems and all(each.rule[-1:] == ("pattern",) for each in problems):
            expected += " The agent's own pattern does not accept this one."
        raise AnswerRejected(expected)

    def _problems(self, value: Any) -> list[Problem]:
        return [] if self.schema is None else self.schema.problems({self.name: value}, of=self.name)

    def shown(self, value: Any) -> str:
        """Returns a value as people read it."""
        if value is None:
            return "nothing"
        if self.type == "boolean":
            return "Yes" if value else "No"
        if self.type == "date-time":
            moment = datetime.fromisoformat(value)
            return moment.strftime("%Y-%m-%d %H:%M:%S UTC").replace(":00 UTC", " UTC")
        if self.type == "choices":
            return ", ".join(self._label(each) for each in value) or "none"
        if self.entry is not None:
            said = [self.entry.shown(each) for each in value]
            return ("\n" if any("," in each for each in said) else ", ").join(said) or "none"
        return self._label(value) if self.type == "choice" else str(value)

    def _label(self, value: Any) -> str:
        option = self.option(value)
        return option.label if option else str(value)

    def option(self, value: Any) -> FormOption | None:
        """Returns the choice with this value, or None."""
        return next((each for each in self.options if _comparable(each.value) == _comparable(value)), None)

    def _chosen(self, value: Any) -> list[Scalar | None] | None:
        """Returns the picked choices in the order of the schema, or None if some are none, or the same."""
        if not isinstance(value, list) or len(value) > len(self.options):
            return None
        found = [self.option(each) for each in value]
        picked = [each.value for each in self.options if each in found]
        return picked if None not in found and len(picked) == len(found) else None

    def _entries(self, value: Any) -> list[Any] | None:
        if not isinstance(value, list) or self.entry is None:
            return None
        if sum(len(each) for each in value if isinstance(each, str)) > TEXT_LIMIT:
            raise AnswerRejected(f"Expected at most {TEXT_LIMIT} characters.")
        try:
            return [self.entry.checked(each) for each in value]
        except AnswerRejected:
            return None

    def _number(self, value: Any) -> int | float | None:
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            return None
        if not -_LARGEST_NUMBER <= value <= _LARGEST_NUMBER:
            return None
        return int(value) if self.type == "integer" and value == int(value) else value

    def _text(self, value: Any) -> str | None:
        if not isinstance(value, str):
            return None
        if len(value) > TEXT_LIMIT:
            raise AnswerRejected(f"Expected at most {TEXT_LIMIT} characters.")
        return whole_characters(value)


@dataclass(frozen=True, slots=True)
class Form:
    """A form, with its fields in the order of the schema. `is_single`: the schema is no object but of a single value, which is
    the answer; here it is that of the field `ANSWER`.
    """

    fields: tuple[FormField, ...]
    is_single: bool = False
    schema: Schema | None = part(default=None, compare=False, repr=False)

    def checked(self, values: Json) -> dict[str, Any]:
        """Returns the answer that `values` give, in the order of the fields. Leaves out nulls of fields that are not
        nullable.

        Raises:
            Misfits: some fields are missing or unknown, or their values do not fit.
        """
        answer: dict[str, Any] = {}
        errors: dict[str, str] = {}
        for field in self.fields:
            value = values.get(field.name)
            if value is None and not (field.name in values and field.nullable):
                if field.required:
                    errors[field.name] = f"Required: expected {field.expected}."
                continue
            try:
                answer[field.name] = field.checked(value)
            except AnswerRejected as error:
                errors[field.name] = str(error)
        known = {field.name for field in self.fields}
        errors |= {name: "The form has no such field." for name in values if name not in known}
        for problem in [] if errors or self.schema is None else self.schema.problems(answer):
            errors.setdefault(str(problem.path[0]) if problem.path else self.fields[0].name, problem.message)
        if errors:
            raise Misfits(errors)
        return answer

    def response(self, values: Json) -> Any:
        """Returns checked values as the agent gets them."""
        return values[ANSWER] if self.is_single else dict(values)

    def values(self, response: Any) -> Json:
        """Returns the values of the fields in a response, or in a default."""
        if self.is_single:
            return {ANSWER: response}
        return response if isinstance(response, Mapping) else {}

    def lines(self, values: Json) -> str:
        """Returns the values as people read them, a line for each field that has one; a single value by itself."""
        if self.is_single:
            return self.fields[0].shown(values[ANSWER])
        lines = [
            f"{field.title}: {field.shown(values[field.name])}".replace("\n", "\n  ")
            for field in self.fields
            if field.name in values
        ]
        return "\n".join(lines) or "Nothing was filled in."

    def times(self, values: Json) -> tuple[tuple[str, datetime], ...]:
        """Returns the moments since 1970 among the values, each after its words in `lines`. Leaves out what is none, since
        another program may have written the values.
        """
        fields = (field for field in self.fields if field.type == "date-time")
        given = ((field, str(values.get(field.name))) for field in fields)
        found = ((field, value, _to_utc(value)) for field, value in given)
        moments = ((field.shown(value), datetime.fromisoformat(utc)) for field, value, utc in found if utc)
        return tuple((said, moment) for said, moment in moments if moment.timestamp() >= 0)


def read_form(schema: Any) -> Form:
    """Returns the form of a JSON Schema object.

    Raises:
        BadSchema: a part of it is not supported, or no value can fit it.
    """
    return _form(encoded(schema))


def fields_in(schema: Json) -> dict[str, FormField]:
    """Returns the properties of any object's schema that a form could have, by name. Leaves out the others."""
    return _fields_in(encoded(schema))


@lru_cache(maxsize=32)
def _fields_in(text: str) -> dict[str, FormField]:
    schema = json.loads(text)
    named = schema.get("properties")
    found: dict[str, FormField] = {}
    for name, raw in named.items() if isinstance(named, dict) else ():
        with suppress(BadSchema):
            found[name] = _field(name, raw, _definitions(schema), name, required=False)
    return found


def misfits(schema: dict[str, Any], value: Any) -> list[Problem]:
    """Returns where an object does not fit its schema, in words for people.

    Raises:
        TooSlow: it takes too long to check.
    """
    fields = fields_in(schema)
    return [
        replace(each, message=f"Expected {fields[str(name)].expected}.")
        if (name := each.path[0] if len(each.path) == 1 else None) in fields
        and each.rule[-1:] != ("required",)
        else each
        for each in schema_of(schema).problems(value)
    ]


@lru_cache(maxsize=32)  # each card reads its form several times
def _form(text: str) -> Form:
    given = json.loads(text)
    definitions = _definitions(given)
    schema, is_single = _object_of(given, definitions)
    try:
        return _form_of(schema, definitions, is_single=is_single)
    except BadSchema as error:
        where = error.where.removeprefix(f"properties.{ANSWER}").lstrip(".") if is_single else error.where
        raise BadSchema(where, str(error)) from None


def _definitions(schema: Json) -> dict[str, Any]:
    """Returns the schemas that references name."""
    return {
        f"#/{place}/{name}": each
        for place in _DEFINITIONS
        if isinstance(found := schema.get(place), dict)
        for name, each in found.items()
    }


def _object_of(given: dict[str, Any], definitions: Json) -> tuple[dict[str, Any], bool]:
    """Returns the schema of an object, and whether that was made around the schema of a single value."""
    if "properties" in given or given.get("type") == "object":
        return given, False
    defined = {name: given[name] for name in _DEFINITIONS if name in given}
    rest = {name: each for name, each in given.items() if name not in {*_DEFINITIONS, "$schema", "$id"}}
    flat, _ = _flat(rest, definitions, "")
    if "properties" in flat or flat.get("type") == "object":
        return flat | defined, False
    if "type" not in flat and not _CHOICE_KEYWORDS & flat.keys():
        return given, False
    return {"properties": {ANSWER: rest}, "required": [ANSWER]} | defined, True


def _form_of(schema: dict[str, Any], definitions: Json, *, is_single: bool) -> Form:
    if schema.get("type", "object") != "object":
        raise BadSchema("type", 'Expected "object": a form is an object of fields.')
    properties, required = schema.get("properties"), schema.get("required", [])
    if not isinstance(properties, dict) or not 0 < len(properties) <= MOST_FIELDS:
        raise BadSchema("properties", f"Expected an object of 1 to {MOST_FIELDS} fields.")
    if not isinstance(required, list) or any(each not in properties for each in map(str, required)):
        raise BadSchema("required", "Must be a list of names from `properties`.")
    if unsupported := sorted((_ASSERTIONS - _FORM_KEYWORDS) & schema.keys()):
        raise BadSchema(unsupported[0], f"`{unsupported[0]}` is not supported in forms.")
    fields = []
    for name, raw in properties.items():
        where = f"properties.{name}"
        if not name.strip() or len(name) > _LONGEST_NAME:
            raise BadSchema("properties", f"Names must have 1 to {_LONGEST_NAME} characters.")
        fields.append(_field(name, raw, definitions, where, required=name in required))
    whole = compiled(json.dumps(schema))
    fields = [_with_default(each, properties[each.name], definitions, whole) for each in fields]
    texts = [each.default for each in fields if isinstance(each.default, str) and not each.options]
    if (size := len(json.dumps(texts))) > DEFAULTS_LIMIT:
        raise BadSchema(
            "properties", f"{size} bytes of JSON as defaults; at most {DEFAULTS_LIMIT} are allowed."
        )
    if is_single:  # an answer is wanted
        title = fields[0].title if fields[0].title != ANSWER else "Answer"
        fields = [replace(fields[0], nullable=False, title=title)]
    return Form(tuple(fields), is_single, whole)


def _field(name: str, raw: Any, definitions: Json, where: str, *, required: bool) -> FormField:
    schema, nullable = _flat(raw, definitions, where)
    texts = {key: schema.get(key) for key in ("title", "description")}
    if wrong := [key for key, text in texts.items() if not isinstance(text, str | None)]:
        raise BadSchema(where, f"`{wrong[0]}` must be a string.")
    kind, options, has_null = _type(schema, definitions, where)
    if kind == "text" and "pattern" in schema and "format" not in schema:
        raise BadSchema(
            where, "`pattern` is supported only beside a `format`. Say in `description` what you need."
        )
    if unsupported := sorted((_ASSERTIONS - _FIELD_KEYWORDS[kind]) & schema.keys()):
        raise BadSchema(where, f"`{unsupported[0]}` is not supported {_for_type(kind, schema)}.")
    return FormField(
        name=name,
        title=_one_line(texts["title"]) or _one_line(name),
        type=kind,
        description=(texts["description"] or "").strip() or None,
        required=required,
        nullable=nullable or has_null,
        options=options,
        entry=_entry(schema, definitions, where) if kind == "list" else None,
        format=schema.get("format") if kind == "text" else None,
        **_limits(kind, schema, len(options), where),
    )


def _entry(schema: Json, definitions: Json, where: str) -> FormField:
    """Returns the field of a list's entries."""
    entry = _field(ANSWER, schema["items"], definitions, f"{where}.items", required=True)
    if entry.type in {"boolean", "choice", "choices", "list"} or entry.nullable:
        raise BadSchema(where, "Lists take choices, texts or numbers only.")
    defined: dict[str, dict[str, Any]] = {place: {} for place in _DEFINITIONS}
    for path, each in definitions.items():
        _, place, name = path.split("/", 2)
        defined[place][name] = each
    whole = compiled(json.dumps({"properties": {ANSWER: schema["items"]}, **defined}))
    return _zoned(replace(entry, schema=whole))


def _zoned(field: FormField) -> FormField:
    """Returns a field of times as the schema wants them: with a zone, unless its pattern takes none."""
    if field.type != "time" or field.schema is None:
        return field
    with_zone, without = (
        not field.schema.problems({field.name: each}, of=field.name) for each in ("14:00:00Z", "14:00:00")
    )
    return replace(field, zoneless=without and not with_zone)


def _with_default(field: FormField, raw: Any, definitions: Json, whole: Schema) -> FormField:
    """Returns a field with the schema of the form, and its default."""
    field, where = _zoned(replace(field, schema=whole)), f"properties.{field.name}"
    default = _flat(raw, definitions, where)[0].get("default")
    if default is None:
        return field
    try:
        value = field.checked(default)
    except AnswerRejected as error:
        raise BadSchema(where, f"`default` is invalid: {str(error)[:1].lower()}{str(error)[1:]}") from None
    typed = "\n".join(map(str, value)) if field.type == "list" else value
    if isinstance(typed, str) and len(typed.encode("utf-16-le")) // 2 > TYPED_LIMIT:
        raise BadSchema(where, f"`default` is too long; at most {TYPED_LIMIT} characters are allowed.")
    return replace(field, default=value)


def _flat(raw: Any, definitions: Json, where: str) -> tuple[dict[str, Any], bool]:
    """Returns a field's schema with its references resolved and null removed, and whether it takes null.

    Raises:
        BadSchema: a reference is broken or in a loop, or two parts contradict each other.
    """
    if not isinstance(raw, dict):
        raise BadSchema(where, "Must be an object with a `type`.")
    schema, nullable = dict(raw), False
    for _ in range(_LONGEST_CHAIN):
        for key in ("anyOf", "oneOf"):
            if isinstance(parts := schema.get(key), list) and any(map(_is_null, parts)):
                schema[key] = [each for each in parts if not _is_null(each)]
                nullable = nullable or "type" not in schema
        inner = _pop_inner(schema, definitions, where)
        if inner is None:
            return _of_one_type(schema, where, nullable=nullable)
        for key in _ASSERTIONS & inner.keys() & schema.keys():
            if inner[key] != schema[key]:
                raise BadSchema(where, f"`{key}` is given twice, with different values.")
        schema = inner | schema
    raise BadSchema(where, "References form a loop, or are nested too deeply.")


def _is_null(part: Any) -> bool:
    return isinstance(part, dict) and (part.get("type") == "null" or part.get("const", "") is None)


def _pop_inner(schema: dict[str, Any], definitions: Json, where: str) -> dict[str, Any] | None:
    """Removes a field's reference, or its only part, from `schema` and returns the schema found there; None: it has none.

    Drops the title and default of a referenced schema: pydantic writes class names there.
    """
    if "$ref" in schema:
        name = str(schema.pop("$ref")).replace("~1", "/").replace("~0", "~")
        if not isinstance(found := definitions.get(name), dict):
            raise BadSchema(where, "References must point to an existing `#/$defs/…`.")
        return {key: each for key, each in found.items() if key not in {"title", "default"}}
    for key in ("allOf", "anyOf", "oneOf"):
        parts = schema.get(key)
        if not isinstance(parts, list) or len(parts) != 1 or not isinstance(parts[0], dict):
            continue
        if key == "allOf" or "const" not in parts[0]:
            return dict(schema.pop(key)[0])
    return None


def _of_one_type(schema: dict[str, Any], where: str, *, nullable: bool) -> tuple[dict[str, Any], bool]:
    """Replaces a list of one type and null by that type; returns also whether the field takes null."""
    types = schema.get("type")
    if not isinstance(types, list):
        return schema, nullable
    rest = [each for each in types if each != "null"]
    if len(rest) != 1:
        raise BadSchema(where, "`type` must be one type, or one type and null.")
    # The choices must allow null, too.
    null = (
        "null" in types
        and None in schema.get("enum", [None])
        and not {"const", "anyOf", "oneOf"} & schema.keys()
    )
    return schema | {"type": rest[0]}, nullable or null


def _type(schema: Json, definitions: Json, where: str) -> tuple[FieldType, tuple[FormOption, ...], bool]:
    """Returns a field's type, its choices, and whether null is one of them."""
    named = schema.get("type")
    if _CHOICE_KEYWORDS & schema.keys():
        options, has_null = _options(schema, definitions, where)
        return "choice", options, has_null and "type" not in schema
    if named == "array":
        if not isinstance(schema.get("items"), dict):
            raise BadSchema(where, "Lists need `items`: choices (an `enum`), texts or numbers.")
        inner, _ = _flat(schema["items"], definitions, where)
        if not _CHOICE_KEYWORDS & inner.keys():
            return "list", (), False
        return "choices", _options(inner, definitions, where)[0], False
    if named in ("boolean", "integer", "number"):
        return named, (), False
    if named == "string" and schema.get("format") in _FORMATS:
        return _FORMATS[schema.get("format")], (), False
    if named == "string" and (schema["format"] in _CHECKED or "pattern" in schema):
        return "text", (), False
    if named == "string":
        expected = ", ".join(each for each in _FORMATS if each)
        raise BadSchema(where, f"Unsupported `format`: use one of {expected}.")
    if named == "object" or "properties" in schema:
        raise BadSchema(where, "Forms are flat: nested objects are not supported.")
    raise BadSchema(where, "`type` is required: string, number, integer, boolean or array, or an `enum`.")


def _options(schema: Json, definitions: Json, where: str) -> tuple[tuple[FormOption, ...], bool]:
    """Returns the choices, and whether null is one of them.

    Raises:
        BadSchema: there are none or too many, or some are equal or of another type.
    """
    if unsupported := sorted((_ASSERTIONS - _FIELD_KEYWORDS["choice"]) & schema.keys()):
        raise BadSchema(where, f"`{unsupported[0]}` is not supported for choices.")
    ways = sorted(_CHOICE_KEYWORDS & schema.keys())
    if ways == ["const", "enum"] and schema["enum"] == [schema["const"]]:
        ways = ["enum"]  # earlier releases of pydantic write a single choice like this
    if len(ways) != 1:
        raise BadSchema(where, "Give the choices in one way only: enum, const, oneOf or anyOf.")
    found = list(_offered(schema, ways[0], definitions, where))
    options = tuple(each for each in found if each is not None)
    if not 0 < len(options) <= MOST_OPTIONS:
        raise BadSchema(where, f"{len(options)} choices; a field takes 1 to {MOST_OPTIONS}.")
    if len({_comparable(each.value) for each in options}) < len(options):
        raise BadSchema(where, "Duplicate choice.")
    named = schema.get("type")
    if any(not _has_type(each.value, named) for each in options):
        raise BadSchema(where, "A choice does not match its `type`.")
    return options, len(options) < len(found)


def _offered(schema: Json, way: str, definitions: Json, where: str) -> Iterator[FormOption | None]:
    """Yields each choice; None for null."""
    if way == "const":
        yield _option(schema["const"], None, None, where)
        return
    offered, names = schema[way], schema.get("enumNames")
    if not isinstance(offered, list):
        raise BadSchema(where, f"`{way}` must be a list.")
    if way != "enum":
        for each in offered:
            yield from _part_options(each, way, definitions, where)
        return
    if names is not None and (not isinstance(names, list) or len(names) != len(offered)):
        raise BadSchema(where, "`enumNames` must have as many entries as `enum`.")
    for value, name in zip(offered, names or [None] * len(offered), strict=True):
        yield None if value is None else _option(value, name, None, where)


def _part_options(raw: Any, way: str, definitions: Json, where: str) -> Iterator[FormOption]:
    """Yields the choices of one part of `oneOf` or `anyOf`."""
    schema, _ = _flat(raw, definitions, where)
    if "enum" in schema:
        yield from _options(schema, definitions, where)[0]
        return
    if "const" not in schema:
        raise BadSchema(where, f"Each entry of `{way}` must be a choice with a `const`, or null.")
    if unsupported := sorted((_ASSERTIONS - {"const", "type"}) & schema.keys()):
        raise BadSchema(where, f"`{unsupported[0]}` is not supported for choices.")
    if not _has_type(schema["const"], schema.get("type")):
        raise BadSchema(where, "A choice does not match its `type`.")
    yield _option(schema["const"], schema.get("title"), schema.get("description"), where)


def _option(value: Any, title: Any, description: Any, where: str) -> FormOption:
    if isinstance(value, str):
        value = whole_characters(value)
    elif not isinstance(value, (bool, int, float)):
        raise BadSchema(where, "Choices must be strings, numbers or booleans.")
    if not isinstance(title, str | None) or not isinstance(description, str | None):
        raise BadSchema(where, "Titles of choices must be strings.")
    words = ("Yes" if value else "No") if isinstance(value, bool) else str(value)
    return FormOption(value, _one_line(title) or _one_line(words), (description or "").strip() or None)


def _limits(kind: FieldType, schema: Json, offered: int, where: str) -> dict[str, Any]:
    """Returns the bounds of a field.

    Raises:
        BadSchema: they are not numbers, or no value fits between them.
    """
    match kind:
        case "number":
            names = {
                "least": "minimum",
                "most": "maximum",
                "above": "exclusiveMinimum",
                "below": "exclusiveMaximum",
            }
            found = {name: _bound(schema, key, where) for name, key in names.items()}
            lowest, highest = -float(_LARGEST_NUMBER), float(_LARGEST_NUMBER)
        case "integer":
            found = _whole_bounds(schema, where)
            lowest, highest = -float(_LARGEST_NUMBER), float(_LARGEST_NUMBER)
        case "choices":
            found = {"least": _count(schema, "minItems", where), "most": _count(schema, "maxItems", where)}
            lowest, highest = 0, offered
            if not isinstance(schema.get("uniqueItems", False), bool):
                raise BadSchema(where, "`uniqueItems` must be true or false.")
        case "list":
            found = {"least": _count(schema, "minItems", where), "most": _count(schema, "maxItems", where)}
            lowest, highest = 0, _MOST_ENTRIES
        case "text" | "email" | "uri" | "uuid":
            found = {"least": _count(schema, "minLength", where), "most": _count(schema, "maxLength", where)}
            lowest, highest = 0, TYPED_LIMIT
        case _:
            return {}
    low = max(found["least"] or lowest, found.get("above") or lowest, lowest)
    high = min(each for each in (found["most"], found.get("below"), highest) if each is not None)
    if (
        low > high
        or (low == high and low in (found.get("above"), found.get("below")))
        or found["most"] == 0 == lowest
    ):
        limit = f" (forms take at most {highest:.0f})" if high == highest else ""
        raise BadSchema(where, f"No value fits its bounds{limit}.")
    # zod writes the bounds of exact numbers: they say nothing to people.
    return {
        name: None if each is not None and abs(each) >= _LARGEST_NUMBER - 1 else each
        for name, each in found.items()
    }


def _whole_bounds(schema: Json, where: str) -> dict[str, float | None]:
    """Returns the smallest and the largest whole number within all bounds."""
    least, most, above, below = (
        _bound(schema, key, where) for key in ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")
    )
    lows = [] if least is None else [math.ceil(least)]
    lows += [] if above is None else [math.floor(above) + 1]
    highs = [] if most is None else [math.floor(most)]
    highs += [] if below is None else [math.ceil(below) - 1]
    return {"least": max(lows, default=None), "most": min(highs, default=None)}


def _bound(schema: Json, key: str, where: str) -> float | None:
    bound = schema.get(key)
    if bound is None and key not in schema:
        return None
    if isinstance(bound, bool) or not isinstance(bound, (int, float)):
        raise BadSchema(where, f"`{key}` must be a number.")
    return bound


def _count(schema: Json, key: str, where: str) -> int | None:
    count = _bound(schema, key, where)
    if count is None:
        return None
    if count < 0 or count != int(count):
        raise BadSchema(where, f"`{key}` must be a whole number of at least 0.")
    return int(count)


def _for_type(kind: FieldType, schema: Json) -> str:
    return (
        "for choices"
        if kind in {"choice", "choices"}
        else "for lists"
        if kind == "list"
        else f"for the type {schema['type']}"
    )


def _has_type(value: Scalar | None, named: Any) -> bool:
    """Whether a choice has the type that the schema names; True if it names none."""
    match named:
        case None:
            return True
        case "string":
            return isinstance(value, str)
        case "boolean":
            return isinstance(value, bool)
        case "number":
            return isinstance(value, (int, float)) and not isinstance(value, bool)
        case "integer":
            return isinstance(value, (int, float)) and not isinstance(value, bool) and value == int(value)
    return False


def _comparable(value: Any) -> tuple[str, Any]:
    """Returns a key that compares as in JSON Schema: 1 equals 1.0, but not true."""
    kind = "boolean" if isinstance(value, bool) else "number" if isinstance(value, (int, float)) else "other"
    return kind, value


def _range(least: float | None, most: float | None) -> str:
    if least is None and most is None:
        return ""
    if least is None or most is None:
        return f"at most {most:.0f}" if least is None else f"at least {least:.0f}"
    return f"{least:.0f}" if least == most else f"{least:.0f} to {most:.0f}"


def _number_text(number: float) -> str:
    return str(int(number)) if number == int(number) else str(number)


def _one_line(text: str | None) -> str:
    return " ".join((text or "").split())


def _ways_to_write(field: FormField, text: str) -> Iterator[str | None]:
    """Yields a text as its field has it; a moment in the ways that a schema's pattern may want, with the usual one first."""
    if field.type == "date-time" and (utc := _to_utc(text)) is not None:
        yield from (utc, utc.replace("Z", ".000Z"), utc.replace(":00Z", "Z"))
    elif field.type == "time" and is_time(text):
        yield from _times_of_day(text, zoneless=field.zoneless)
    elif field.type == "uri":
        yield text if _has_host(text) else None
    elif field.type not in {"date-time", "time"}:
        yield text


def _times_of_day(text: str, *, zoneless: bool) -> Iterator[str]:
    """Yields a time of day, in UTC unless `zoneless`."""
    at = time.fromisoformat(text.upper())
    if at.tzinfo is not None:
        if zoneless:
            return
        at = datetime.combine(_ANY_DAY, at).astimezone(UTC).time()
    said = at.isoformat()
    yield said if zoneless else f"{said}Z"
    if zoneless and said.endswith(":00"):
        yield said[: -len(":00")]


def _to_utc(text: str) -> str | None:
    """Returns an RFC 3339 time in UTC, or None if it is invalid."""
    if not _DATE_TIME.fullmatch(text):
        return None
    try:
        return datetime.fromisoformat(text.upper()).astimezone(UTC).isoformat().replace("+00:00", "Z")
    except (ValueError, OverflowError):
        return None


def _has_host(text: str) -> bool:
    """Whether a URI has a host, if it is one of the web."""
    try:
        parts = urlsplit(text)
    except ValueError:
        return False
    return parts.scheme not in {"http", "https"} or bool(parts.hostname)
