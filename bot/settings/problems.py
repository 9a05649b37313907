"""Finds and words the problems of a configuration.

Each model checks its own table. Checks across tables run on the document as read, so that they are reported together
with the problems of single keys: duplicate and unknown names, routes that are never reached.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, NamedTuple

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from bot import integrations
from bot.checks import CheckResult
from bot.settings.model import Configuration, Settings, is_loopback
from core.clarification import agent_key

Place = tuple[str | int, ...]

_TEXTS = {  # pydantic's error types → our words
    "missing": "required",
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


_TOML = {  # how tomllib's messages begin → our words
    "Expected '=' after a key": 'expected "=" after the key',
    "Invalid value": "expected a value: text in quotes, a number, true, false, a list or a table",
    "Invalid initial character for a key part": "expected a key, or a value in quotes",
    "Invalid statement": "expected a key, such as `mode = …`, or a table, such as [slack]",
    "Illegal character '\\n'": "the text has no closing quote on this line",
    "Unterminated string": "the text has no closing quote",
    "Expected newline or end of document": "expected the end of the line after the value",
    "Unclosed array": "the list has no closing ]",
    "Unclosed inline table": "the table has no closing }",
    "Expected ']' at the end of a table": "the table's name has no closing ]",
    "Cannot overwrite a value": "this key is set twice",
    "Duplicate inline table key": "this key is set twice",
    "Cannot declare": "this table is defined twice; an array of tables has double brackets, [[…]]",
    "Unescaped '\\' in a string": "write the backslash twice, or put the text in single quotes",
}


class SettingsProblem(NamedTuple):
    """One problem. `place` is the path to the key, such as ("producers", 0, "dialect")."""

    place: Place
    text: str


def tables(document: Mapping[str, Any], array: str) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """Yields the tables of an array with their index; the model reports what is not a table."""
    value = document.get(array)
    for index, table in enumerate(value if isinstance(value, list) else ()):
        if isinstance(table, dict):
            yield index, table


def describe(problems: Iterable[SettingsProblem], source: str, file: str) -> list[str]:
    """Returns one line per problem, in the file's order: `clarify.toml:12: producers[0].dialect: expected …`."""
    told = []
    for place, text in problems:
        number = line_of(source, place, str(place[-1])) if place else None
        where = file if number is None else f"{file}:{number}"
        key = dotted(place)
        told.append((number or 0, f"{where}: {key}: {text}" if key else f"{where}: {text}"))
    return list(dict.fromkeys(line for _, line in sorted(told, key=lambda item: item[0])))


def syntax_error(error: tomllib.TOMLDecodeError, source: str, file: str) -> str:
    """Returns `clarify.toml:3:5: not valid TOML: …`, with line and column counted from 1."""
    said = str(error)
    if (at := re.search(r" \(at line (\d+), column (\d+)\)$", said)) is not None:
        line, column = int(at[1]), int(at[2])
    else:  # "(at end of document)"
        lines = source.splitlines() or [""]
        line, column = len(lines), len(lines[-1]) + 1
    plain = said.partition(" (at ")[0]
    words = next((ours for theirs, ours in _TOML.items() if plain.startswith(theirs)), plain)
    return f"{file}:{line}:{column}: not valid TOML: {words}"


def line_of(source: str, place: Place, word: str) -> int | None:
    """Returns the line with `word` under a key, or the key's line if it is not found. Understands lists of several
    lines, also of inline tables.
    """
    lines = line_numbers(source)
    known = next((place[:n] for n in range(len(place), 0, -1) if place[:n] in lines), None)
    if known is None:
        return None
    start = lines[known]
    end = min(
        (number for key, number in lines.items() if number > start and key[: len(known)] != known),
        default=None,
    )
    texts = [line.partition("#")[0] for line in source.splitlines()[start - 1 : end and end - 1]]
    index = next((part for part in place[len(known) :] if isinstance(part, int)), -1)
    if index >= 0 and any("{" in text for text in texts):
        counted = [sum(text.count("{") for text in texts[: n + 1]) for n in range(len(texts))]
        first = next((n for n, count in enumerate(counted) if count > index), 0)
        after = next((n for n, count in enumerate(counted) if count > index + 1 and n > first), len(texts))
        texts, start = texts[first:after], start + first
    return next(
        (n for n, text in enumerate(texts, start) if re.search(rf"\b{re.escape(word)}\b", text)), start
    )


def dotted(place: Place) -> str:
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in place).lstrip(".")


def located(settings: Settings, result: CheckResult, name: str, places: Sequence[Place]) -> CheckResult:
    """Adds the line in the file, and the other keys with the same value."""
    lines = {place: line_of(settings.source, place, name) for place in places}
    first, *others = lines
    text = result.text
    if others:
        text += f" (also {', '.join(f'{dotted(each)} in line {lines[each]}' for each in others)})"
    line = f"{settings.file.name}:{lines[first]}" if lines[first] is not None else ""
    return result._replace(text=text, line=line)


def line_numbers(source: str) -> dict[Place, int]:
    """Returns the line of each table and key. Only a hint: does not parse inline tables and multi-line strings."""
    found: dict[Place, int] = {}
    counts: dict[str, int] = {}
    table: Place = ()
    for number, line in enumerate(source.splitlines(), start=1):
        if header := re.match(r"\s*(\[\[?)\s*+([^\[\]]+)\]", line):
            name = header.group(2).rstrip()
            table = tuple(part.strip().strip("\"'") for part in name.split("."))
            if header.group(1) == "[[":
                counts[name] = counts.get(name, -1) + 1
                table = (*table, counts[name])
            elif table[0] in counts:
                table = (table[0], counts[str(table[0])], *table[1:])
            for length in range(1, len(table) + 1):
                found.setdefault(table[:length], number)
        elif key := re.match(r"\s*[\"']?([A-Za-z0-9_-]+)[\"']?\s*=", line):
            found.setdefault((*table, key.group(1)), number)
    return found


def from_validation(error: ValidationError, expected: object, above: Place = ()) -> Iterator[SettingsProblem]:
    """Yields pydantic's errors in our words. Omits "too short" for a list whose items are wrong.

    Args:
        error: what the validation raised.
        expected: the model of what was validated, or a type that holds it.
        above: where that stands in the file.
    """
    details = error.errors(include_url=False, include_context=True)
    wrong = {detail["loc"][:length] for detail in details for length in range(1, len(detail["loc"]))}
    for detail in details:
        if detail["type"] == "too_short" and detail["loc"] in wrong:
            continue
        inside = tuple(part for part in detail["loc"] if part != "[key]")
        place, text = above + inside, _words(detail, expected, above, inside)
        inner = (
            re.match(r"((?:[a-z_]+|\[\d+\])(?:\[\d+\])?(?:\.[a-z_]+)?): (.+)", text)
            if detail["type"] == "value_error"
            else None
        )
        if inner:  # a check of several keys names the one to change
            parts = re.findall(r"[a-z_]+|\d+", inner.group(1))
            place = (*place, *(int(part) if part.isdigit() else part for part in parts))
            text = inner.group(2)
        yield SettingsProblem(place, text)


def _words(detail: ErrorDetails, expected: object, above: Place, inside: Place) -> str:
    context: Mapping[str, Any] = detail.get("ctx") or {}
    if detail["type"] == "extra_forbidden":
        return "unknown key" + _suggestion(str(inside[-1]), _known_keys(expected, above, inside[:-1]))
    if detail["type"] in {"model_type", "dict_type", "model_attributes_type"}:
        return f"expected a table, such as [{dotted(above + inside)}]"
    if template := _TEXTS.get(detail["type"]):
        return template.format_map(context)
    return detail["msg"].replace("Input should be", "expected")


def _suggestion(key: str, known: Collection[str]) -> str:
    near = get_close_matches(key, known, n=1)
    if near:
        return f'; did you mean "{near[0]}"?'
    return f"; expected one of {', '.join(sorted(known))}" if known else ""


def _known_keys(expected: object, above: Place, table: Place) -> Collection[str]:
    model = _model_in(expected)
    for part in table:
        if (
            model is None or part not in model.model_fields
        ):  # an index, or the user's own name: [responders.x]
            continue
        model = _model_in(model.model_fields[str(part)].annotation)
    keys = [] if model is None else [key for key, field in model.model_fields.items() if not field.exclude]
    if not (*above, *table):
        return [*keys, *integrations.tables()]
    return [*keys, *integrations.ON_CALL] if table[:1] == ("on_call",) and len(table) == 2 else keys


def _model_in(annotation: object) -> type[BaseModel] | None:
    """Returns the table's model within `Model`, `tuple[Model, ...]`, `Annotated[…]` or `Model | None`."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    for inner in getattr(annotation, "__args__", ()):
        if model := _model_in(inner):
            return model
    return None


def cross_problems(document: Mapping[str, Any]) -> Iterator[SettingsProblem]:
    for array in ("producers", "on_call"):
        for place, name, _ in _repeated(_values(document, array, "name")):
            yield SettingsProblem(place, f'"{name}" is already used; names must be unique')
    responders = document.get("responders")
    roles = responders if isinstance(responders, dict) else ()
    for place, _, earlier in _repeated((("responders", role), agent_key(role)) for role in roles):
        yield SettingsProblem(place, f'the same role as "{earlier[-1]}"; roles must be unique')
    yield from _on_call_references(document)
    yield from _unreachable_routes(document)
    yield from _missing_fallback(document)


def _values(document: Mapping[str, Any], array: str, key: str) -> Iterator[tuple[Place, str]]:
    for index, table in tables(document, array):
        if isinstance(value := table.get(key), str):
            yield (array, index, key), value


def _repeated(found: Iterable[tuple[Place, str]]) -> Iterator[tuple[Place, str, Place]]:
    """Yields each repetition: its place, its value, and the place of the first one."""
    first: dict[str, Place] = {}
    for place, value in found:
        earlier = first.setdefault(value, place)
        if earlier != place:
            yield place, value, earlier


def _on_call_references(document: Mapping[str, Any]) -> Iterator[SettingsProblem]:
    known = {str(table.get("name")) for _, table in tables(document, "on_call")}
    for index, route in tables(document, "routes"):
        name = route.get("on_call")
        if isinstance(name, str) and name not in known:
            choice = ", ".join(sorted(known)) or "none is defined"
            text = f'no [[on_call]] is named "{name}"; expected one of: {choice}'
            yield SettingsProblem(("routes", index, "on_call"), text)


def _unreachable_routes(document: Mapping[str, Any]) -> Iterator[SettingsProblem]:
    first: dict[str, int] = {}
    default: int | None = None
    for index, route in tables(document, "routes"):
        agent = route.get("agent")
        if "agent" not in route:
            if default is not None:
                yield SettingsProblem(
                    ("routes", index), f"a second route without agent; routes[{default}] is the default"
                )
            default = index if default is None else default
        elif isinstance(agent, str):
            earlier = first.get(agent, first.get("*"))
            if earlier is not None:
                yield SettingsProblem(
                    ("routes", index, "agent"), f"never reached: routes[{earlier}] takes all of it"
                )
            first.setdefault(agent, index)


def _missing_fallback(document: Mapping[str, Any]) -> Iterator[SettingsProblem]:
    slack = document.get("slack")
    has_fallback = isinstance(slack, dict) and "fallback_channel" in slack
    if not has_fallback and all("agent" in route for _, route in tables(document, "routes")):
        text = "required unless a route without agent exists: other agents' events need a channel"
        yield SettingsProblem(("slack", "fallback_channel"), text)


def open_address_problems(configuration: Configuration) -> Iterator[SettingsProblem]:
    if is_loopback(configuration.http.host):
        return
    for index, producer in enumerate(configuration.producers):
        if producer.pushes and producer.token_env is None:
            text = f"required: it pushes to the bot, and http.listen ({configuration.http.listen}) is open to other hosts"
            yield SettingsProblem(("producers", index, "token_env"), text)
