"""What is wrong with a configuration, as values; and the lines that tell it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from difflib import get_close_matches
from typing import Any, NamedTuple

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from bot.settings.model import Configuration

Place = tuple[str | int, ...]

_TEXTS = {  # pydantic's error types → our words
    "missing": "required, but not there",
    "literal_error": "expected {expected}",
    "value_error": "{error}",
    "greater_than": "expected more than zero",
    "too_short": "expected at least one",
    "string_too_short": "expected at least {min_length} character",
    "string_too_long": "expected at most {max_length} characters",
    "path_type": "expected a path, as a string",
    "tuple_type": "expected a list",
    "list_type": "expected a list",
}


class Problem(NamedTuple):
    """`place` is the way to the key, such as ("producers", 0, "dialect")."""

    place: Place
    text: str


def tables(document: Mapping[str, Any], array: str) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """Yield the tables of an array with their index; what is no table is told by the model's own check."""
    value = document.get(array)
    for index, table in enumerate(value if isinstance(value, list) else ()):
        if isinstance(table, dict):
            yield index, table


def describe(problems: Iterable[Problem], source: str, file: str) -> list[str]:
    """One line each, in the order of the file: `clarify.toml:12: producers[0].dialect: expected …`."""
    lines = line_numbers(source)
    told = []
    for place, text in problems:
        number = next((lines[place[:n]] for n in range(len(place), 0, -1) if place[:n] in lines), None)
        where = file if number is None else f"{file}:{number}"
        key = dotted(place)
        told.append((number or 0, f"{where}: {key}: {text}" if key else f"{where}: {text}"))
    return list(dict.fromkeys(line for _, line in sorted(told, key=lambda item: item[0])))


def line_of(source: str, place: Place, word: str) -> int | None:
    """The line where `word` stands under a key, in a list of several lines too; the key's where it is not seen."""
    lines = line_numbers(source)
    known = next((place[:n] for n in range(len(place), 0, -1) if place[:n] in lines), None)
    if known is None:
        return None
    start = lines[known]
    end = min(
        (number for key, number in lines.items() if number > start and key[: len(known)] != known),
        default=None,
    )
    for number, line in enumerate(source.splitlines()[start - 1 : end and end - 1], start=start):
        if re.search(rf"\b{re.escape(word)}\b", line.partition("#")[0]):
            return number
    return start


def dotted(place: Place) -> str:
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in place).lstrip(".")


def line_numbers(source: str) -> dict[Place, int]:
    """Find the line of each table and key. A hint: inline tables and multi-line strings are not looked into."""
    found: dict[Place, int] = {}
    counts: dict[str, int] = {}
    table: Place = ()
    for number, line in enumerate(source.splitlines(), start=1):
        if header := re.match(r"\s*(\[\[?)\s*([^\[\]]+?)\s*\]", line):
            name = header.group(2)
            table = tuple(part.strip().strip("\"'") for part in name.split("."))
            if header.group(1) == "[[":
                counts[name] = counts.get(name, -1) + 1
                table = (*table, counts[name])
            elif table[0] in counts:
                table = (table[0], counts[str(table[0])], *table[1:])
            found.setdefault(table, number)
        elif key := re.match(r"\s*[\"']?([A-Za-z0-9_-]+)[\"']?\s*=", line):
            found.setdefault((*table, key.group(1)), number)
    return found


def from_validation(error: ValidationError) -> Iterator[Problem]:
    for detail in error.errors(include_url=False, include_context=True):
        place = tuple(part for part in detail["loc"] if part != "[key]")
        text = _words(detail, place)
        inner = (
            re.match(r"([a-z_]+(?:\[\d+\])?(?:\.[a-z_]+)?): (.+)", text)
            if detail["type"] == "value_error"
            else None
        )
        if inner:  # a check of several keys together names the one to change
            place, text = place + _place_of(inner.group(1)), inner.group(2)
        yield Problem(place, text)


def _place_of(key: str) -> Place:
    return tuple(int(part) if part.isdigit() else part for part in re.findall(r"[a-z_]+|\d+", key))


def _words(detail: ErrorDetails, place: Place) -> str:
    context: Mapping[str, Any] = detail.get("ctx") or {}
    if detail["type"] == "extra_forbidden":
        return "unknown key" + _suggestion(place)
    if detail["type"] in {"model_type", "dict_type", "model_attributes_type"}:
        return f"expected a table, such as [{dotted(place)}]"
    if template := _TEXTS.get(detail["type"]):
        return template.format_map(context)
    return detail["msg"].replace("Input should be", "expected")


def _suggestion(place: Place) -> str:
    known = _known_keys(place[:-1])
    near = get_close_matches(str(place[-1]), known, n=1)
    if near:
        return f'; did you mean "{near[0]}"?'
    return f"; expected one of {', '.join(sorted(known))}" if known else ""


def _known_keys(table: Place) -> list[str]:
    model: type[BaseModel] | None = Configuration
    for part in table:
        if (
            model is None or part not in model.model_fields
        ):  # an index, or a name of the user's: [responders.x]
            continue
        model = _model_in(model.model_fields[str(part)].annotation)
    return [] if model is None else list(model.model_fields)


def _model_in(annotation: object) -> type[BaseModel] | None:
    """The table's model inside `Model`, `tuple[Model, ...]`, `Annotated[…]` or `Model | None`."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    for inner in getattr(annotation, "__args__", ()):
        if model := _model_in(inner):
            return model
    return None
