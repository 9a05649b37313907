"""Reads the forms that agents ask people to fill in, and checks the values that people give.

An agent sends a form as a flat JSON Schema object, as pydantic, MCP's elicitation and people write it. This module
supports a part of JSON Schema 2020-12. `read_form` refuses everything else, so that no form fails only when a person
answers it. `Form.checked` returns only objects that are valid by the agent's schema.

Sources: JSON Schema 2020-12 "Validation" (§6, §7.3), RFC 3339 §5.6, RFC 3986; MCP 2025-11-25 "Elicitation" (titles of
choices: `oneOf` or `anyOf` with `const` and `title`, earlier `enum` with `enumNames`). Pure.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from functools import lru_cache
from typing import Any, Literal
from urllib.parse import urlsplit

from core.aaep import whole_characters
from core.errors import AnswerRejected, BadInput

FieldType = Literal[
    "text", "email", "uri", "date", "date-time", "number", "integer", "boolean", "choice", "choices"
]
Scalar = str | bool | int | float
Json = Mapping[str, Any]

MOST_FIELDS = 40
MOST_OPTIONS = 100
SCHEMA_LIMIT = 262_144  # bytes of JSON
DEFAULTS_LIMIT = 65_536  # bytes of JSON of all default texts
TEXT_LIMIT = 16_384  # characters of a text
TYPED_LIMIT = 3000  # characters that an input in a modal takes
_LONGEST_NAME = 200
_LARGEST_NUMBER = 2**53  # the largest whole number that every JSON reader takes exactly
_LONGEST_CHAIN = 10  # references that follow each other
_MOST_NAMED = 200  # characters of choices that a hint lists

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
_NULL = {"type": "null"}
_FORM_KEYWORDS = {"type", "properties", "required", "additionalProperties", "unevaluatedProperties"}
_FIELD_KEYWORDS: dict[FieldType, set[str]] = {
    "text": {"type", "format", *_LENGTHS},
    "email": {"type", "format", *_LENGTHS},
    "uri": {"type", "format", *_LENGTHS},
    "date": {"type", "format"},
    "date-time": {"type", "format"},
    "number": {"type", "format", *_BOUNDS},
    "integer": {"type", "format", *_BOUNDS},
    "boolean": {"type"},
    "choice": {"type", *_CHOICE_KEYWORDS},
    "choices": {"type", "items", "minItems", "maxItems", "uniqueItems"},
}
_FORMATS: dict[str | None, FieldType] = {
    None: "text",
    "email": "email",
    "uri": "uri",
    "date": "date",
    "date-time": "date-time",
}
_DATE = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
_DATE_TIME = re.compile(
    r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(\.\d{1,9})?([Zz]|[+-]([01]\d|2[0-3]):[0-5]\d)", re.ASCII
)
_EMAIL = re.compile(
    r"(?=.{3,254}$)[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+(\.[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+)*"
    r"@([A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?)(\.[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?)*"
)
_LOCAL_PART = 64
_URI = re.compile(
    r"[A-Za-z][A-Za-z0-9+.-]*:([A-Za-z0-9._~:/?#@!$&'()*+,;=-]|\[[0-9A-Fa-f:.]+\]|%[0-9A-Fa-f]{2})+"
)
_TYPE_NAMES: dict[FieldType, str] = {
    "text": "text",
    "email": "an e-mail address",
    "uri": "a web address or another URI",
    "date": "a date",
    "date-time": "a date and time with its zone",
    "number": "a number",
    "integer": "a whole number",
    "boolean": "yes or no",
}
_EXAMPLES: dict[FieldType, str] = {
    "uri": ", like https://example.org",
    "date": ", like 2026-05-24",
    "date-time": ", like 2026-05-24T14:00:00Z",
}


class BadSchema(BadInput):
    """The schema is not a supported form. `where`: the path of the error, empty for the whole schema."""

    def __init__(self, where: str, message: str) -> None:
        super().__init__(message)
        self.where = where


class Misfits(AnswerRejected):
    """Some values do not fit their fields. `errors`: a field's name → what is expected of it."""

    def __init__(self, errors: Mapping[str, str]) -> None:
        super().__init__(" ".join(f"{name}: {error}" for name, error in errors.items()))
        self.errors = dict(errors)


@dataclass(frozen=True, slots=True)
class FormOption:
    """A choice of a field. `label`: its title, or its value as text."""

    value: Scalar
    label: str
    description: str | None = None


@dataclass(frozen=True, slots=True)
class FormField:
    """A field of a form. `title`: the label that people read, by default its name; `nullable`: null is a value.

    `least`, `most`: inclusive bounds of a number, a text's length or the number of choices; `above`, `below`: exclusive
    bounds of a number. None: no bound.
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

    @property
    def may_be_empty(self) -> bool:
        """Whether people can leave it empty."""
        return not self.required or self.nullable or (self.type == "choices" and not self.least)

    @property
    def expected(self) -> str:
        """Describes a valid value, for the end of a sentence: `a whole number from 1 to 5`."""
        if self.type == "choice":
            return f"one of {self._option_names}"
        if self.type == "choices":
            return f"{self.how_many or 'some'} of {self._option_names}"
        name = _TYPE_NAMES[self.type]
        if self.type in {"number", "integer"}:
            return f"{name} {self._bounds}".rstrip()
        length = _range(None if self.least == 1 else self.least, self.most)
        return f"{name}{f' of {length} characters' if length else ''}{_EXAMPLES.get(self.type, '')}"

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
                fits = isinstance(value, bool)
            case "number" | "integer":
                value, fits = self._number(value)
            case "choice":
                option = self._option(value)
                value, fits = option.value if option else None, option is not None
            case "choices":
                value, fits = self._chosen(value)
            case _:
                value, fits = self._text(value)
        if not fits:
            raise AnswerRejected(f"Expected {'true or false' if self.type == 'boolean' else self.expected}.")
        return value

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
        return self._label(value) if self.type == "choice" else str(value)

    def _label(self, value: Any) -> str:
        option = self._option(value)
        return option.label if option else str(value)

    def _option(self, value: Any) -> FormOption | None:
        return next((each for each in self.options if _comparable(each.value) == _comparable(value)), None)

    def _chosen(self, value: Any) -> tuple[Any, bool]:
        """Returns the picked choices in the order of the schema, and whether they fit."""
        if not isinstance(value, list) or len(value) > len(self.options):
            return None, False
        found = [self._option(each) for each in value]
        picked = [each.value for each in self.options if each in found]
        return picked, None not in found and len(picked) == len(found) and self._is_within(len(found))

    def _number(self, value: Any) -> tuple[Any, bool]:
        if (
            isinstance(value, bool)
            or not isinstance(value, (int, float))
            or not -_LARGEST_NUMBER <= value <= _LARGEST_NUMBER
        ):
            return None, False
        if self.type == "integer" and value != int(value):
            return None, False
        return int(value) if self.type == "integer" else value, self._is_within(value)

    def _text(self, value: Any) -> tuple[Any, bool]:
        if not isinstance(value, str):
            return None, False
        if len(value) > TEXT_LIMIT:
            raise AnswerRejected(f"Expected at most {TEXT_LIMIT} characters.")
        value = whole_characters(value)
        match self.type:
            case "email":
                fits = _EMAIL.fullmatch(value) is not None and value.index("@") <= _LOCAL_PART
            case "uri":
                fits = _is_uri(value)
            case "date":
                fits = _is_date(value)
            case "date-time":
                value = _to_utc(value)
                fits = value is not None
            case _:
                fits = True
        return value, fits and (self.type in {"date", "date-time"} or self._is_within(len(value)))

    def _is_within(self, value: float) -> bool:
        return not (
            (self.least is not None and value < self.least)
            or (self.most is not None and value > self.most)
            or (self.above is not None and value <= self.above)
            or (self.below is not None and value >= self.below)
        )


@dataclass(frozen=True, slots=True)
class Form:
    """A form, with its fields in the order of the schema."""

    fields: tuple[FormField, ...]

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
        if errors:
            raise Misfits(errors)
        return answer

    def lines(self, values: Json) -> str:
        """Returns the values as people read them, a line for each field that has one."""
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
    return _form(_encoded(schema))


@lru_cache(maxsize=32)  # each card reads its form several times
def _form(text: str) -> Form:
    schema = json.loads(text)
    definitions = {
        f"#/{place}/{name}": each
        for place in ("$defs", "definitions")
        if isinstance(found := schema.get(place), dict)
        for name, each in found.items()
    }
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
    texts = [each.default for each in fields if isinstance(each.default, str) and not each.options]
    if (size := len(json.dumps(texts))) > DEFAULTS_LIMIT:
        raise BadSchema(
            "properties", f"{size} bytes of JSON as defaults; at most {DEFAULTS_LIMIT} are allowed."
        )
    return Form(tuple(fields))


def _encoded(schema: Any) -> str:
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


def _field(name: str, raw: Any, definitions: Json, where: str, *, required: bool) -> FormField:
    schema, nullable = _flat(raw, definitions, where)
    texts = {key: schema.get(key) for key in ("title", "description")}
    if wrong := [key for key, text in texts.items() if not isinstance(text, str | None)]:
        raise BadSchema(where, f"`{wrong[0]}` must be a string.")
    kind, options, has_null = _type(schema, definitions, where)
    if unsupported := sorted((_ASSERTIONS - _FIELD_KEYWORDS[kind]) & schema.keys()):
        raise BadSchema(where, f"`{unsupported[0]}` is not supported {_for_type(kind, schema)}.")
    field = FormField(
        name=name,
        title=_one_line(texts["title"]) or _one_line(name),
        type=kind,
        description=(texts["description"] or "").strip() or None,
        required=required,
        nullable=nullable or has_null,
        options=options,
        **_limits(kind, schema, len(options), where),
    )
    return _with_default(field, schema.get("default"), where)


def _with_default(field: FormField, default: Any, where: str) -> FormField:
    if default is None:
        return field
    try:
        value = field.checked(default)
    except AnswerRejected as error:
        raise BadSchema(where, f"`default` is invalid: {str(error)[:1].lower()}{str(error)[1:]}") from None
    if isinstance(value, str) and len(value.encode("utf-16-le")) // 2 > TYPED_LIMIT:
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
            if isinstance(parts := schema.get(key), list) and _NULL in parts:
                schema[key] = [each for each in parts if each != _NULL]
                nullable = nullable or "type" not in schema
        inner = _pop_inner(schema, definitions, where)
        if inner is None:
            return _of_one_type(schema, where, nullable=nullable)
        for key in _ASSERTIONS & inner.keys() & schema.keys():
            if inner[key] != schema[key]:
                raise BadSchema(where, f"`{key}` is given twice, with different values.")
        schema = inner | schema
    raise BadSchema(where, "References form a loop, or are nested too deeply.")


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
        inner, _ = _flat(schema.get("items"), definitions, where)
        if not _CHOICE_KEYWORDS & inner.keys():
            raise BadSchema(
                where, "Lists need `items` with an `enum`: the only lists in forms are lists of choices."
            )
        return "choices", _options(inner, definitions, where)[0], False
    if named in ("boolean", "integer", "number"):
        return named, (), False
    if named == "string" and schema.get("format") in _FORMATS:
        return _FORMATS[schema.get("format")], (), False
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


def _limits(kind: FieldType, schema: Json, offered: int, where: str) -> dict[str, float | None]:
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
        case "text" | "email" | "uri":
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
    return found


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
    return "for choices" if kind in {"choice", "choices"} else f"for the type {schema['type']}"


def _has_type(value: Scalar, named: Any) -> bool:
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


def _is_date(text: str) -> bool:
    if not _DATE.fullmatch(text):
        return False
    try:
        date.fromisoformat(text)
    except ValueError:
        return False
    return True


def _to_utc(text: str) -> str | None:
    """Returns an RFC 3339 time in UTC, or None if it is invalid."""
    if not _DATE_TIME.fullmatch(text):
        return None
    try:
        return datetime.fromisoformat(text.upper()).astimezone(UTC).isoformat().replace("+00:00", "Z")
    except (ValueError, OverflowError):
        return None


def _is_uri(text: str) -> bool:
    """Whether a text is a URI by RFC 3986, with a scheme; for http and https, also with a host."""
    if not _URI.fullmatch(text) or text.count("#") > 1:
        return False
    try:
        parts = urlsplit(text)
        parts.port  # noqa: B018 - raises if it is not a number
    except ValueError:
        return False
    return "[" not in f"{parts.path}{parts.query}{parts.fragment}" and (
        parts.scheme not in {"http", "https"} or bool(parts.hostname)
    )
