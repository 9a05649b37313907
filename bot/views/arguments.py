"""The arguments of an action that needs approval: how people read them, and how they change them.

A command or SQL is shown as code. Short values become lines of `name: value`, nested ones by their path: `links › survey`.
Longer values become lines, nested ones indented. Each line of a multi-line text is marked (`│`), so that it cannot look like
another argument; in blocks it has a bar, which wrapped lines keep. All of it is `inert.visible`, and ambiguous strings are quoted
(`inert.value_words`).

Every value is shown as it is: nothing replaces one. For a change of a file, a comparison of the two texts comes before them. Pure.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

from bot.views import inert
from bot.views.blockkit import (
    NO_VALUE,
    SECTION,
    TYPE_A_NUMBER,
    YES_OR_NO,
    YES_VALUE,
    Input,
    Items,
    Lines,
    Rich,
    RichElement,
    Run,
    Section,
    Words,
    chosen,
    code,
    json_size,
    pieces,
)
from bot.views.fields import choosing, positions
from bot.views.markdown import GAP, rich_parts
from core.answers import from_field_text
from core.clarification import Round, round_with
from core.errors import AnswerRejected
from core.forms import FormField, FormOption, fields_in
from core.names import whole_characters
from core.questions import REDACTED

FIELD = "argument."
LONGEST = 3000  # characters of a value that can be changed: plain_text_input takes no more
MOST_FIELDS = 40
_FIELD_ROWS = 4
_ROOM = 120_000  # bytes of all fields in a view
_COMMAND = frozenset({"command", "cmd", "script"})
_CHANGE = frozenset({"patch", "diff"})
_SQL = frozenset({"sql", "query", "statement"})
_SQL_WORDS = re.compile(
    r"\s*(?:--[^\n]*\n\s*)*(?:select|insert|update|delete|with|create|alter|drop|truncate|grant|revoke|merge|replace"
    r"|begin|explain|vacuum)\b",
    re.IGNORECASE,
)
_REPLACED = (("old_string", "new_string"), ("old_str", "new_str"), ("old_text", "new_text"), ("old", "new"))
_COMPARED = 400  # lines: comparing more takes too long
_DIFFERENCE_ROWS = 40  # lines of a comparison; a longer one is no help
_DEEPEST = 24
_APART = 8  # pieces with one argument each; further arguments share pieces
_LONG_LINES, _LONG = 7, 600
_ROWS_EACH, _DEEPEST_ROW = 8, 3  # lines of one argument; names in a path
_NAME, _CELL, _LIST = 100, 300, 80  # characters of a path, of a value after it, and of a list as JSON
_LABEL = 150  # characters of a field's label
_PLAIN_NUMBER = re.compile(r"-?\d{1,15}(?:\.\d{1,15})?")
_ARGUMENTS = "Arguments:"
CHANGED = "Changed:\n"
_ISOLATES = re.compile("[\u2066-\u2069]")
_DASH = "- "  # before each value of a list
_DEEPEST_ITEM = 8  # level of a nested list
_CRLF = "with CRLF line ends"
_BRIEF, _AROUND = 300, 40  # characters of a value on one line, and of context around a change
_SENT_AS_TEXT = "Sent as text, not as a number or another value."
_NONE = "None (null)"
_EMPTY_IS_NULL = "Empty is sent as null."
_TYPED = {"text", "email", "uri", "uuid", "date", "time", "date-time", "number", "integer", "list"}
_JSON_KINDS: tuple[tuple[Any, str], ...] = (
    (dict, 'an object in braces, like {"name": 1}'),
    (list, "a list in brackets, like [1, 2]"),
    ((int, float), "a number"),
)
_YES_OR_NO = "Yes is sent as true, No as false."


class _Missing:
    """Stands for a missing value."""


_NOTHING = _Missing()


@dataclass(frozen=True, slots=True)
class Piece:
    """Some arguments as text; `is_code`: shown verbatim, below its `title`; `is_list`: short ones, one a line."""

    text: str
    title: str = ""
    is_code: bool = False
    is_list: bool = False


def argument_pieces(arguments: Mapping[str, Any]) -> list[Piece]:
    """Returns all arguments in order, except that short values are grouped where the first of them is. A comparison of two
    texts comes before them.
    """
    found: list[Piece] = []
    lines: list[str] = []
    rows: list[tuple[str, str]] = []
    at: int | None = None  # where the rows are inserted
    changes = _changes(arguments)
    apart = 0
    for name, value in arguments.items():
        change = changes.get(name) if apart < _APART else None
        piece = _code(name, value, changes) if apart < _APART else None
        if piece is None:
            if in_rows := _rows(inert.name_words(name), value):
                at = len(found) + bool(lines) if at is None else at
                rows += in_rows
                continue
            told = "\n".join(_outlined(name, value, 0))
            is_short = told.count("\n") < _LONG_LINES and inert.size(told) < _LONG
            if change is None and (apart == _APART or is_short):
                lines.append(told)
                continue
            piece = Piece(told)  # so that cutting it hides no other argument
        apart += 1
        if lines:
            found.append(Piece("\n".join(lines)))
            lines = []
        found += [piece] if change is None else [change, piece]
    if lines:
        found.append(Piece("\n".join(lines)))
    if at is not None:
        found.insert(at, Piece("\n".join(map(": ".join, rows)), is_list=True))
    return found


def argument_texts(arguments: Mapping[str, Any]) -> list[str]:
    """Returns all arguments as texts, each line with a bar."""
    return [
        "\n".join(filter(None, (each.title, inert.with_bar(each.text))))
        for each in argument_pieces(arguments)
    ]


def argument_words(arguments: Mapping[str, Any]) -> str:
    """Returns all arguments as one text, after a heading; empty without arguments."""
    return "\n".join((_ARGUMENTS, *argument_texts(arguments))) if arguments else ""


def outline(value: object, limit: int = inert.NO_LIMIT) -> str:
    """Returns any other structured content from an agent in the same lines, clipped; empty if there is none."""
    value = _undirected(value)
    if isinstance(value, Mapping):
        lines = [line for name, each in value.items() for line in _outlined(str(name), each, 0)]
    elif isinstance(value, list):
        lines = [line for each in value for line in _named("-", each, 0)]
    else:
        lines = [] if value is None else [inert.value_words(value)]
    return inert.clip("\n".join(lines), limit)


def _undirected(value: object) -> object:
    """Returns content without isolates: each line gets its own."""
    if isinstance(value, str):
        return _ISOLATES.sub("", value)
    if isinstance(value, Mapping):
        return {_undirected(str(name)): _undirected(each) for name, each in value.items()}
    return list(map(_undirected, value)) if isinstance(value, list) else value


def main_argument(arguments: Mapping[str, Any], limit: int, *, only_code: bool = False) -> str:
    """Returns the most telling argument, such as the command, on one line of at most `limit`, after what it is; empty without
    arguments. `only_code`: also empty if none is a command, code or a change of a text.
    """
    found = argument_pieces(arguments)
    code = [each for each in found if each.is_code]
    if not (code or (found and not only_code)):
        return ""
    chosen = code[0] if code else found[0]
    said = (" · " if chosen.is_list else " ⏎ ").join(filter(str.strip, chosen.text.split("\n")))
    return inert.line(f"{chosen.title or _ARGUMENTS} {said}", limit)


def fits_line(arguments: Mapping[str, Any], limit: int) -> bool:
    """Returns whether `main_argument` has all arguments, as they are."""
    found = argument_pieces(arguments)
    if len(found) > 1 or any(not each.is_list or "  " in each.text for each in found):
        return False
    return inert.size(main_argument(arguments, inert.NO_LIMIT)) <= limit


def argument_parts(found: Iterable[Piece]) -> tuple[Section | Rich, ...]:
    """Returns the pieces as blocks, without blank ones."""
    return tuple(part for each in found if each.text.strip() for part in _parts(each))


def _parts(each: Piece) -> tuple[Section | Rich, ...]:
    if each.is_code:
        return (Section(Words(each.title)), *(code(part) for part in pieces(each.text)))
    found = rich_parts(_listed(each.text))
    return tuple(replace(part, aloud="" if n else inert.with_bar(each.text)) for n, part in enumerate(found))


def _listed(text: str) -> Iterator[RichElement]:
    """Yields arguments that were outlined as items of a list, and texts of several lines as quotes, all of it with a bar."""
    lines = text.split("\n")
    for kind, group in groupby(lines, _line_kind):
        said = list(group)
        if kind == "gap":
            yield Lines(tuple(Run(each) for each in said))
        elif kind == "text":
            text = "\n".join(_without(inert.BAR, each) if inert.bar_of(each) else each for each in said)
            yield Lines((Run(text or " "),), "quote")
        else:
            for level, items in groupby(said, _level):
                runs = ((Run(_without(_DASH, each) or _DASH),) for each in items)
                yield Items(tuple(runs), level=level, has_bar=True)


def _line_kind(line: str) -> str:
    if GAP.fullmatch(line):
        return "gap"
    return "text" if inert.bar_of(line) or inert.size(line) > SECTION else "item"


def _without(mark: str, line: str) -> str:
    return line.lstrip(" ").removeprefix(mark)


def _level(line: str) -> int:
    return min(_DEEPEST_ITEM, (len(line) - len(line.lstrip(" "))) // 2)


def change_words(current: Round) -> list[str]:
    """Returns the last change of the arguments, one line each; empty if they were never changed."""
    edits = current.consent.edits or ()
    if not edits:
        return []
    before = round_with(current, edits=edits[:-1]).arguments
    changed = edits[-1].changed.items()
    return [
        line for name, value in changed for line in _compared(inert.name_words(name), before.get(name), value)
    ]


def shows_originals(current: Round) -> bool:
    """Returns whether `change_words` has all of what the agent sent in the arguments that people changed."""
    edits = current.consent.edits or ()
    sent = current.question.sent_arguments
    last = edits[-1].changed if edits else {}
    return all(
        name in last and max(map(inert.size, map(_brief, (sent.get(name), last[name])))) <= _BRIEF
        for edit in edits
        for name in edit.changed
    ) and all(name not in edit.changed for edit in edits[:-1] for name in last)


def changed_in_all(current: Round) -> str:
    """Returns how the arguments differ from what the agent sent, one line each; empty if they were never changed."""
    sent = current.question.sent_arguments
    names = {name: None for edit in current.consent.edits or () for name in edit.changed}
    return "\n".join(
        line
        for name in names
        for line in _compared(inert.name_words(name), sent.get(name), current.arguments[name])
    )


def _compared(name: str, was: object, now: object) -> list[str]:
    """Returns the differences, one line each; nested ones by their path: `links › survey: (none) → …`."""
    if isinstance(was, Mapping) and isinstance(now, Mapping):
        lines = [
            line
            for each in {**was, **now}
            if _json_of(was.get(each, _NOTHING)) != _json_of(now.get(each, _NOTHING))
            for line in _compared(
                f"{name} › {inert.name_words(each)}", was.get(each, _NOTHING), now.get(each, _NOTHING)
            )
        ]
        if lines:
            return lines
    before, after = _differing(_brief(was), _brief(now))
    if before == after:  # they differ in invisible characters
        before, after = _differing(_json_of(was), _json_of(now))
    return [f"{name}: {before} → {after}"]


def _json_of(value: object) -> str:
    return str(value) if isinstance(value, _Missing) else json.dumps(value)


def _brief(value: object) -> str:
    return "(left out)" if isinstance(value, _Missing) else inert.value_words(value)


def _differing(was: str, now: str) -> tuple[str, str]:
    """Returns two values, long ones cut to their difference and a little context."""
    if max(map(inert.size, (was, now))) <= _BRIEF:
        return was, now
    head = _alike(was, now)
    tail = _alike(was[head:][::-1], now[head:][::-1])
    start, end = max(0, head - _AROUND), max(0, tail - _AROUND)
    cut = [
        f"{'…' if start else ''}{each[start : len(each) - end]}{'…' if end else ''}" for each in (was, now)
    ]
    return _one_line(cut[0]), _one_line(cut[1])


def _alike(was: str, now: str) -> int:
    """Returns the length of the common prefix."""
    pairs = enumerate(zip(was, now, strict=False))
    return next((n for n, (one, other) in pairs if one != other), min(len(was), len(now)))


def _one_line(text: str) -> str:
    return inert.excerpt(text, _BRIEF).replace("\n", " ")


def editable(current: Round) -> dict[str, Input]:
    """Returns an input for each argument that people may change before accepting, by its name; the others are only shown."""
    found: dict[str, Input] = {}
    if current.confirmation is None or not current.confirmation.editable:
        return found
    shapes, room = _shapes(current), _ROOM
    for place, (name, value) in enumerate(current.arguments.items()):
        if len(found) == MOST_FIELDS or (field := _field(place, name, value, shapes.get(name))) is None:
            continue
        room -= field.cost if field.options else json_size((field.label, field.initial))
        if room < 0:
            break
        found[name] = field
    return found


def read_changes(values: Mapping[str, Any], current: Round) -> tuple[dict[str, Any], dict[str, str]]:
    """Returns what a submitted form changes, and its errors by block_id. An untouched field changes nothing."""
    changed: dict[str, Any] = {}
    errors: dict[str, str] = {}
    shapes = _shapes(current)
    for name, field in editable(current).items():
        if field.block_id not in values:
            continue
        state = values[field.block_id].get(field.action_id) or {}
        try:
            if (change := _edited(state, field, current.arguments[name], shapes.get(name))) is not None:
                changed[name] = change[0]
        except ValueError as error:
            errors[field.block_id] = str(error)
    return changed, errors


def overflows(field: Input) -> bool:
    """Returns whether a field cannot show its whole content at once: many lines, or long runs of blanks."""
    if field.element != "plain_text_input":
        return False
    return inert.excerpt(inert.visible(str(field.initial)), rows=_FIELD_ROWS) != inert.plain(
        str(field.initial)
    )


def _shapes(current: Round) -> dict[str, FormField]:
    """Returns the fields of the schema of the arguments, without choices of which parts are redacted."""
    schema = current.confirmation.arguments_schema if current.confirmation else None
    fields = fields_in(schema) if schema else {}
    found = {}
    for name, each in fields.items():
        options = tuple(option for option in each.options if REDACTED not in f"{option.value}{option.label}")
        none = (FormOption(None, _NONE),) if options and each.nullable else ()
        found[name] = replace(each, options=(*options, *none))
    return found


def _menu(made: Input, value: object, shape: FormField) -> Input | None:
    """Returns a menu of the choices that an argument can have, or None: it has none, or its value is none of them."""
    values = value if shape.type == "choices" else [value]
    if not shape.options or not isinstance(values, list):
        return None
    if any(shape.option(each) is None for each in values) or len(positions(shape, values)) < len(values):
        return None
    menu = choosing(made, replace(shape, default=None))
    return replace(menu, initial=positions(shape, values))


def _field(place: int, name: str, value: object, shape: FormField | None) -> Input | None:
    block, label = f"{FIELD}{place}", inert.name_words(name)
    if inert.size(label) > _LABEL:
        return None  # its label would be cut
    if shape is not None and (shaped := _shaped(Input(block, label, ""), value, shape)):
        return shaped
    return _by_value(block, label, value, whole=shape is not None and shape.type == "integer")


def _shaped(made: Input, value: object, shape: FormField) -> Input | None:
    """Returns the input that only its schema gives an argument, or None."""
    if value is None and shape.nullable and shape.type in _TYPED:
        return replace(made, element="plain_text_input", optional=True, hint=_EMPTY_IS_NULL)
    return _menu(replace(made, optional=shape.type == "choices"), value, shape)


def _by_value(block: str, label: str, value: object, *, whole: bool) -> Input | None:
    """Returns the input for a value of this type; None: it can only be shown. `whole`: for whole numbers only."""
    if isinstance(value, bool):
        initial = YES_VALUE if value else NO_VALUE
        return Input(block, label, "radio_buttons", hint=_YES_OR_NO, options=YES_OR_NO, initial=initial)
    if isinstance(value, (int, float)) and _PLAIN_NUMBER.fullmatch(json.dumps(value)):
        whole = whole and isinstance(value, int)
        return Input(block, label, "number_input", initial=json.dumps(value), whole=whole)
    if isinstance(value, str):
        shown = value.replace("\r\n", "\n") if inert.ends_with_crlf(value) else value
        hint = _SENT_AS_TEXT if inert.is_mistakable(value) else ""
    else:
        shown, hint = json.dumps(value, indent=2, ensure_ascii=False), "As JSON."
    if inert.size(shown) > LONGEST or REDACTED in shown:
        return None  # too long to edit, or redacted: the agent keeps its value
    if inert.has_hidden(shown):
        return None  # showing it would change it
    blank = not shown.strip()  # a text may be changed but not cleared: the agent would get an empty text
    return Input(block, label, "plain_text_input", optional=blank, hint=hint, initial=shown, most=LONGEST)


def _edited(
    state: Mapping[str, Any], field: Input, value: object, shape: FormField | None
) -> tuple[Any] | None:
    """Returns what `_change` does; also for inputs that only the schema gives."""
    if shape is not None and field.options and field.options != YES_OR_NO:
        return _picked(state, field, shape)
    if shape is None or value is not None or field.hint != _EMPTY_IS_NULL:
        return _change(state, field, value)
    text = whole_characters(str(state.get("value") or ""))
    try:
        return (from_field_text(shape, text),) if text.strip() else None
    except AnswerRejected as error:
        raise ValueError(str(error)) from error


def _change(state: Mapping[str, Any], field: Input, value: object) -> tuple[Any] | None:
    """Returns the new value in a tuple, or None if the field was not changed.

    Raises:
        ValueError: the input is invalid; in words for the person.
    """
    if field.element == "radio_buttons":
        if (picked := chosen(state)) not in ([YES_VALUE], [NO_VALUE]):
            raise ValueError("Choose Yes or No.")
        return None if picked == [field.initial] else (picked == [YES_VALUE],)
    text = whole_characters(str(state.get("value") or "")).replace("\r\n", "\n")
    initial = str(field.initial)
    # Slack may strip the initial text. Outer blanks that were not there before were typed by the person.
    is_typed = isinstance(value, str) and initial == initial.strip() != "" and text != initial
    if text.strip() == initial.strip() and not is_typed:
        return None
    if not text.strip():
        raise ValueError("This can't be empty. To leave it out, reject the action and say why.")
    if field.element == "number_input":
        return _number(text.strip(), value)
    if isinstance(value, str):
        return (text.replace("\n", "\r\n") if inert.ends_with_crlf(value) else text,)
    return _json(text, value)


def _picked(state: Mapping[str, Any], field: Input, shape: FormField) -> tuple[Any] | None:
    picked = tuple(chosen(state) or ())
    if picked == field.initial:
        return None
    if any(not each.isdecimal() or int(each) >= len(shape.options) for each in picked):
        raise ValueError("That choice is not one of the argument's.")
    values = [shape.options[int(each)].value for each in picked]
    if shape.type == "choices":
        return (values,)
    if not values:
        raise ValueError("Choose one.")
    return (values[0],)


def _number(text: str, value: object) -> tuple[int | float] | None:
    if re.fullmatch(r"[+-]?\d{1,15}", text):
        read: int | float = int(text)
    elif re.fullmatch(r"[+-]?(?:\d{1,15}\.\d{0,15}|\.\d{1,15})", text):
        read = float(text)
    else:
        raise ValueError(TYPE_A_NUMBER)
    return None if json.dumps(read) == json.dumps(value) else (read,)


def _json(text: str, value: object) -> tuple[Any] | None:
    def refused(word: str) -> Any:
        raise ValueError(f"{word} is not JSON.")

    try:
        read = json.loads(text, parse_constant=refused)
        written = json.dumps(read)
    except (ValueError, RecursionError):
        raise ValueError('This is not JSON. For example: ["a", 2], {"name": true} or null.') from None
    kind, called = next((each for each in _JSON_KINDS if _is_of(value, each[0])), (object, ""))
    if not _is_of(read, kind):
        raise ValueError(f"The agent sent {called}; enter one, too.")
    return None if written == json.dumps(value) else (read,)


def _is_of(value: object, kind: Any) -> bool:
    return isinstance(value, kind) and (kind is object or not isinstance(value, bool))


def _code(name: str, value: object, changes: Mapping[str, Piece]) -> Piece | None:
    """Returns an argument to show verbatim, or None. `changes`: the comparisons of texts, by the argument they precede."""
    if not isinstance(value, str) or not value.strip():
        return None
    is_code = name in _COMMAND or name in _CHANGE or (name in _SQL and _SQL_WORDS.match(value))
    is_code = is_code or (
        "\n" in value and any(name in pair and not changes.keys().isdisjoint(pair) for pair in _REPLACED)
    )
    head = _before_text(f"{inert.name_words(name)}:", value)
    return Piece(inert.visible(value), head, is_code=True) if is_code else None


def _before_text(head: str, text: str) -> str:
    """Returns what stands before a text of several lines, with what the text does not show of its line ends."""
    return f"{head} ({_CRLF})" if inert.ends_with_crlf(text) else head


def _changes(arguments: Mapping[str, Any]) -> dict[str, Piece]:
    """Returns comparisons of what a change of a file replaces with its replacement, each by the argument that it precedes."""
    found: dict[str, Piece] = {}
    for old, new in _REPLACED:
        if said := _difference(arguments.get(old), arguments.get(new)):
            title = f"Differences (- {old}, + {new}):"
            found[min(old, new, key=list(arguments).index)] = Piece(said, title, is_code=True)
    edits = arguments.get("edits")
    pairs = (
        _difference(each.get(old), each.get(new))
        for each in (edits if isinstance(edits, list) else ())
        if isinstance(each, Mapping)
        for old, new in _REPLACED
    )
    said = "\n⋯\n".join(filter(None, pairs))
    if said and said.count("\n") < _DIFFERENCE_ROWS:
        found["edits"] = Piece(said, "Differences in edits (- old, + new):", is_code=True)
    return found


def _difference(old: object, new: object) -> str:
    """Returns two texts as a diff, without its header; empty if it would tell no more than the texts themselves: if they are
    equal, have no line in common, or are too long.
    """
    if not (isinstance(old, str) and isinstance(new, str)):
        return ""
    before, after = (inert.visible(each).split("\n") for each in (old, new))
    if before == after or set(before).isdisjoint(after) or len(before) + len(after) > _COMPARED:
        return ""
    lines = [
        "⋯" if each.startswith("@@") else each
        for each in list(difflib.unified_diff(before, after, lineterm="", n=3))[3:]
    ]
    return "\n".join(lines) if len(lines) <= _DIFFERENCE_ROWS else ""


def _rows(path: str, value: object, depth: int = 1) -> list[tuple[str, str]]:
    """Returns a short value as pairs of path and value; empty if it is too long or too nested for that."""
    if isinstance(value, Mapping) and value:
        found = [
            _rows(f"{path} › {inert.name_words(str(name))}", each, depth + 1) for name, each in value.items()
        ]
        is_short = depth < _DEEPEST_ROW and all(found) and sum(map(len, found)) <= _ROWS_EACH
        return [row for rows in found for row in rows] if is_short else []
    if isinstance(value, str) and value.strip() and "\n" in value:
        return []
    said, most = inert.value_words(value), _CELL
    if isinstance(value, list) and value:
        most = _LIST if all(map(_is_plain, value)) else 0
    return [(path, said)] if inert.size(path) <= _NAME and inert.size(said) <= most else []


def _is_plain(value: object) -> bool:
    """Returns whether JSON shows a value as people would write it."""
    if isinstance(value, str):
        return not inert.has_hidden(value) and not any(each in value for each in '\n\t"\\')
    return not isinstance(value, (Mapping, list))


def _outlined(name: str, value: object, depth: int) -> Iterator[str]:
    yield from _named(f"{'  ' * depth}{inert.name_words(name)}:", value, depth)


def _named(head: str, value: object, depth: int) -> Iterator[str]:
    """Yields a value after its name or dash, on the same line if it fits, or is too deep within others."""
    if depth > _DEEPEST:
        yield f"{head} {inert.value_words(value)}"
    elif isinstance(value, Mapping) and value:
        yield head
        for name, each in value.items():
            yield from _outlined(str(name), each, depth + 1)
    elif isinstance(value, list) and value:
        yield head
        for each in value:
            yield from _named(f"{'  ' * (depth + 1)}-", each, depth + 1)
    elif isinstance(value, str) and value.strip() and "\n" in value:
        yield _before_text(head, value)
        yield inert.with_bar(inert.visible(value), "  " * (depth + 1))
    else:
        yield f"{head} {inert.value_words(value)}"
