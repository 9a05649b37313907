"""Any form that is taken, in all the ways in which agents write one, in hostile words as well as in fair ones."""

from __future__ import annotations

from datetime import UTC, date, datetime
from typing import Any

from hypothesis import strategies as st

from tests.unit.bot.strategies import words

Schema = dict[str, Any]
SAYS = words(120).filter(str.strip)
NUMBERS = st.integers(-(2**53), 2**53) | st.floats(-(2.0**53), 2.0**53)
VALUES = words(40) | st.integers(-50, 50) | st.floats(-9, 9) | st.booleans()
EMAILS = st.sampled_from(["ann@example.org", "o'neil+x@mail.example.co", "a@b.c"])
URIS = st.sampled_from(
    ["https://example.org/a?b=c#d", "mailto:ann@example.org", "urn:isbn:1", "http://[::1]:80/"]
)
MOMENTS = st.datetimes(datetime(1, 1, 2), datetime(9999, 12, 30)).map(lambda at: f"{at.replace(microsecond=0, tzinfo=UTC).isoformat()}")  # fmt: skip  # noqa: DTZ001
UUIDS = st.uuids().map(str)
TIMES = st.times().map(lambda at: f"{at.replace(microsecond=0, second=0).isoformat()}Z")
PATTERNS = {
    "email": [
        ".",
        r"^(?!\.)(?!.*\.\.)([A-Za-z0-9_'+\-\.]*)[A-Za-z0-9_+-]@([A-Za-z0-9][A-Za-z0-9\-]*\.)+[A-Za-z]{2,}$",
    ],
    "date": [r"^\d{4}-\d\d-\d\d$"],
    "time": [r"^([01]\d|2[0-3]):[0-5]\d(:[0-5]\d)?Z$"],
    "date-time": [r"^[^T]+T[^T]+Z$"],
}
DATES = st.dates(date(1, 1, 1)).map(date.isoformat)


def key(value: Any) -> tuple[bool, Any]:
    return isinstance(value, bool), value


@st.composite
def texts(draw: st.DrawFn) -> Schema:
    least = draw(st.integers(0, 40))
    most = least + draw(st.integers(0 if least else 1, 60))
    made: Schema = {"type": "string"}
    made |= {"minLength": least} if draw(st.booleans()) else {}
    made |= {"maxLength": most} if draw(st.booleans()) else {}
    if draw(st.booleans()):
        made["default"] = draw(
            st.text(st.characters(exclude_categories=["Cs"]), min_size=least, max_size=most)
        )
    return made


@st.composite
def formatted(draw: st.DrawFn) -> Schema:
    name, defaults = draw(
        st.sampled_from(
            [
                ("email", EMAILS),
                ("uri", URIS),
                ("uuid", UUIDS),
                ("date", DATES),
                ("time", TIMES),
                ("date-time", MOMENTS),
            ]
        )
    )
    made: Schema = {"type": "string", "format": name}
    if name in PATTERNS and draw(st.booleans()):
        made["pattern"] = draw(st.sampled_from(PATTERNS[name]))
        return made
    return made | ({"default": draw(defaults)} if draw(st.booleans()) else {})


@st.composite
def numbers(draw: st.DrawFn) -> Schema:
    whole = draw(st.booleans())
    drawn = st.integers(-(2**53), 2**53) if whole else NUMBERS
    low, default, high = sorted(draw(st.lists(drawn, min_size=3, max_size=3, unique=True)))
    made: Schema = {"type": "integer" if whole else "number"}
    made |= draw(st.sampled_from([{}, {"minimum": low}, {"exclusiveMinimum": low}]))
    made |= draw(st.sampled_from([{}, {"maximum": high}, {"exclusiveMaximum": high}]))
    return made | ({"default": default} if draw(st.booleans()) else {})


@st.composite
def offers(draw: st.DrawFn, most: int = 100) -> tuple[Schema, list[Any]]:
    """Choices, and their values."""
    count = draw(st.sampled_from([1, 2, 3, 10, 11, most]))
    values = draw(st.lists(VALUES, min_size=min(count, 12), max_size=min(count, 12), unique_by=key))
    values += [f"v{n}" for n in range(len(values), count)]
    if draw(st.booleans()):
        values = [f"{each}{n}" for n, each in enumerate(values)]
    named = {"type": "string"} if all(isinstance(each, str) for each in values) else {}
    titles = draw(st.lists(words(200), min_size=1, max_size=3))
    labelled = [{"const": each, "title": titles[n % len(titles)]} for n, each in enumerate(values)]
    ways: list[Schema] = [
        {"enum": values} | named,
        {"enum": values, "enumNames": [each["title"] for each in labelled]} | named,
        {"oneOf": labelled},
        {"anyOf": labelled} | named,
    ]
    return draw(st.sampled_from(ways)), values


@st.composite
def choosing(draw: st.DrawFn) -> Schema:
    made, values = draw(offers())
    return made | ({"default": draw(st.sampled_from(values))} if draw(st.booleans()) else {})


@st.composite
def choosing_several(draw: st.DrawFn) -> Schema:
    offered, values = draw(offers())
    least = draw(st.integers(0, len(values)))
    most = draw(st.integers(max(1, least), len(values)))
    made: Schema = {"type": "array", "items": offered}
    made |= {"minItems": least} if draw(st.booleans()) else {}
    made |= {"maxItems": most} if draw(st.booleans()) else {}
    made |= {"uniqueItems": True} if draw(st.booleans()) else {}
    return made | ({"default": values[:most]} if draw(st.booleans()) else {})


@st.composite
def lists(draw: st.DrawFn) -> Schema:
    entry = draw(texts() | formatted() | numbers())
    default = entry.pop("default", None)
    least = draw(st.integers(0, 2))
    made: Schema = {"type": "array", "items": entry}
    made |= {"minItems": least} if draw(st.booleans()) else {}
    made |= {"maxItems": least + 1} if draw(st.booleans()) else {}
    fits = default is not None and least < 2 and str(default).strip() == str(default) != ""
    return made | ({"default": [default]} if fits and "\n" not in str(default) else {})


@st.composite
def schemas(draw: st.DrawFn) -> Schema:
    """A form."""
    field = (
        texts()
        | formatted()
        | numbers()
        | st.just({"type": "boolean"})
        | choosing()
        | choosing_several()
        | lists()
    )
    names = draw(st.lists(words(60).filter(str.strip), min_size=1, max_size=6, unique=True))
    if draw(st.booleans()):
        names += [f"f{n}" for n in range(draw(st.sampled_from([1, 34])))]
    definitions: Schema = {}
    properties: Schema = {}
    few = draw(st.lists(field, min_size=1, max_size=6))
    for n, name in enumerate(names):
        made = few[n % len(few)]
        way = draw(st.sampled_from(["plain", "optional", "types", "reference"]))
        default = {"default": made["default"]} if "default" in made else {}
        bare = {keyword: each for keyword, each in made.items() if keyword != "default"}
        if way == "optional":
            made = {"anyOf": [bare, {"type": "null"}]} | default
        elif way == "types" and isinstance(made.get("type"), str) and "enum" not in made:
            made = made | {"type": [made["type"], "null"]}
        elif way == "reference":
            definitions[f"D{n}"] = bare | {"title": "A class"}
            made = {"$ref": f"#/$defs/D{n}"} | default
        said = {"title": draw(SAYS)} if draw(st.booleans()) else {}
        said |= {"description": draw(SAYS)} if draw(st.booleans()) else {}
        properties[name] = made | said
    required = [name for name in names if draw(st.booleans())]
    form: Schema = {"type": "object", "properties": properties, "required": required}
    return form | ({"$defs": definitions} if definitions else {})
