"""Slack's rules for what may be posted or shown: blocks, elements, views, texts. Pure; nothing here keeps state.

Written from the Block Kit reference and from what Slack answered to those who broke it. Where Slack's
documents leave a limit open, the tightest one seen refused is taken. `check_message` and `check_view` also
judge payloads that never meet this workspace.

The tables `BLOCKS` and `ELEMENTS` say field by field what each type may hold; what several fields must agree on is
checked by the function beside them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal, InvalidOperation
from functools import partial
from math import isfinite
from typing import Any, NamedTuple

Json = Mapping[str, Any]

POST_TEXT, UPDATE_TEXT = 40_000, 4_000
MESSAGE_BLOCKS, VIEW_BLOCKS = 50, 100
# Undocumented: refusals were seen from about 11 000 to 13 000 characters on.
TEXT_BUDGET = 11_000
VIEW_BYTES = 250_000
MOST_OPTIONS = 100
TABLE_TEXT = 10_000  # characters in all cells of a message
MESSAGE, MODAL, HOME, ANYWHERE = "message", "modal", "home", "anywhere"


# What is judged


def check_message(payload: Json, *, update: bool = False) -> list[str]:
    """What Slack would refuse in the `text` and `blocks` of a message; empty where nothing.

    `update`: judged as the payload of `chat.update`, which takes less text than `chat.postMessage`.
    """
    return [f"{p.code}: {p}" for p in message_problems(payload, update=update)]


def message_problems(payload: Json, *, update: bool = False, without: Collection[str] = ()) -> list[Problem]:
    """As `check_message`, each problem with the error code that Slack names. `without`: types of blocks that the workspace
    does not have.
    """
    report = Report(MESSAGE, without=without)
    text = payload.get("text")
    if text is not None and not isinstance(text, str):
        return [Problem("invalid_arguments", "/text", "must be a string")]
    if not (text or "").strip() and not payload.get("blocks") and not update:
        return [Problem("no_text", "/text", "text or blocks are required")]
    most = UPDATE_TEXT if update else POST_TEXT
    if text and len(text) > most:
        report.problems.append(Problem("msg_too_long", "/text", f"must be less than {most + 1} characters"))
    if payload.get("blocks") is not None:
        _blocks(report, payload["blocks"], "/blocks", most=MESSAGE_BLOCKS)
        _tables(report, payload["blocks"])
        total = _characters(payload["blocks"])
        if total > TEXT_BUDGET:
            said = f"{total} characters of text, at most {TEXT_BUDGET}"
            report.problems.append(Problem("msg_blocks_too_long", "/blocks", said))
    return report.done("/blocks")


def check_view(view: Json, *, without: Collection[str] = ()) -> list[str]:
    """What Slack would refuse in a modal or a Home tab; empty where nothing. `without`: as for a message."""
    return [str(problem) for problem in view_problems(view, without=without)]


def view_problems(view: Json, *, without: Collection[str] = ()) -> list[Problem]:
    """As `check_view`, as problems."""
    kind = view.get("type")
    report = Report(str(kind), code="invalid_arguments", without=without)
    if kind not in (MODAL, HOME):
        report.add("/view/type", "must be modal or home")
        return report.problems
    blocks = {"blocks": Needed(partial(_blocks, most=VIEW_BLOCKS))}
    report.fields(view, "/view", _VIEW | (_MODAL if kind == MODAL else {}) | blocks)
    if kind == MODAL and "submit" not in view and "input" in _kinds(view.get("blocks")):
        report.add("/view", "missing required field: submit (a view with an input block needs it)")
    report.done("/view/blocks")
    if len(json.dumps(view, ensure_ascii=False).encode()) > VIEW_BYTES:
        report.add("/view", f"must be less than {VIEW_BYTES + 1} bytes")
    return report.problems


def check_schema(name: str, value: Any) -> list[Problem]:
    """Returns the problems that `blocks.validate` finds in `blocks`, a `message` or a `view`.

    It checks the schema of each block, not what Slack refuses only when a message is posted, nor what a workspace lacks.
    Pointers start at the value.
    """
    report = Report(ANYWHERE if name == "blocks" else MESSAGE)
    if name == "blocks":
        _blocks(report, value, "", most=VIEW_BLOCKS)
    elif not isinstance(value, Mapping):
        report.add("", "must be an object")
    elif name == "message":
        blocks = Needed(partial(_blocks, most=MESSAGE_BLOCKS))
        report.fields(value, "", {"blocks": blocks} | unlooked("attachments"))
    else:
        return [replace(p, pointer=p.pointer.removeprefix("/view")) for p in view_problems(value)]
    return report.done("")


def _kinds(blocks: object) -> list[object]:
    return [block.get("type") for block in _objects(blocks)]


def _objects(value: object) -> list[Json]:
    return [each for each in value if isinstance(each, Mapping)] if isinstance(value, list) else []


def _tables(report: Report, blocks: object) -> None:
    """A message has one table, also where it stands in a container, and so many characters in its cells."""
    found = [
        block
        for outer in _objects(blocks)
        for block in [outer, *_objects(outer.get("child_blocks"))]
        if block.get("type") in {"table", "data_table"}
    ]
    if len(found) > 1:
        report.problems.append(Problem("invalid_attachments", "", "only_one_table_allowed"))
    if sum(_characters(table.get("rows")) for table in found) > TABLE_TEXT:
        report.add("/blocks", f"no more than {TABLE_TEXT} characters allowed in the cells of a table")


def _characters(value: Any) -> int:
    """All text of all blocks together."""
    if isinstance(value, dict):
        own = len(value["text"]) if isinstance(value.get("text"), str) else 0
        return own + sum(_characters(item) for item in value.values() if not isinstance(item, str))
    return sum(_characters(item) for item in value) if isinstance(value, list) else 0


# Problems


@dataclass(frozen=True)
class Problem:
    """One broken rule: Slack's error code, where (JSON pointer), what was expected."""

    code: str
    pointer: str
    text: str

    def __str__(self) -> str:
        return f"{self.text} [json-pointer:{self.pointer}]" if self.pointer else self.text


@dataclass
class Report:
    """The problems found so far in one payload of a `surface`, and what has to be unique within it."""

    surface: str
    code: str = "invalid_blocks"
    problems: list[Problem] = field(default_factory=list)
    block_ids: set[str] = field(default_factory=set)
    focused: int = 0
    without: Collection[str] = ()

    def add(self, pointer: str, said: str) -> None:
        self.problems.append(Problem(self.code, pointer, said))

    def missing(self, pointer: str, name: str) -> None:
        self.add(pointer, f"missing required field: {name}")

    def fields(self, owner: Json, pointer: str, checks: Mapping[str, Check | Needed]) -> None:
        """Only these fields may be there, and each that is there has to be right."""
        for name in owner:
            if name not in checks:
                self.add(pointer, f"no more than the known fields allowed: {name}")
        for name, check in checks.items():
            if isinstance(check, Needed) and owner.get(name) is None:
                self.missing(pointer, name)
            elif name in owner:
                (check.check if isinstance(check, Needed) else check)(self, owner[name], f"{pointer}/{name}")

    def items(self, value: object, pointer: str, least: int, most: int) -> list[tuple[Json, str]]:
        """The objects of a list with their pointers; those that are no objects are reported."""
        if value is None:
            self.missing(*pointer.rsplit("/", 1))
            return []
        if not isinstance(value, list):
            self.add(pointer, "must be an array")
            return []
        if len(value) < least:
            self.add(pointer, f"no less than {least} items allowed")
        if len(value) > most:
            self.add(pointer, f"no more than {most} items allowed")
        found = []
        for index, item in enumerate(value):
            if isinstance(item, Mapping):
                found.append((item, f"{pointer}/{index}"))
            else:
                self.add(f"{pointer}/{index}", "must be an object")
        return found

    def done(self, blocks: str) -> list[Problem]:
        if self.focused > 1:
            self.add(blocks, "only one element may have focus_on_load")
        return self.problems


Check = Callable[[Report, Any, str], object]
"""Reports what is wrong with a value; the pointer is the value's."""


class Needed(NamedTuple):
    """The check of a field that must be there."""

    check: Check


class Kind(NamedTuple):
    """What a type of block or element may hold, beside what all of them may; `also` looks at several fields."""

    fields: Mapping[str, Check | Needed] = {}
    also: Check = lambda _report, _owner, _pointer: None


Fields = dict[str, Check | Needed]


# Checks of one value: strings, numbers, text objects


def anything(report: Report, value: Any, pointer: str) -> None:
    """Nobody looks at it here."""


def unlooked(*names: str) -> Fields:
    return dict.fromkeys(names, anything)


def string(most: int, least: int = 1) -> Check:
    def check(report: Report, value: Any, pointer: str) -> None:
        if value is None:
            return
        if not isinstance(value, str):
            report.add(pointer, "must be a string")
        elif len(value) < least:
            report.add(pointer, f"must be more than {least - 1} characters")
        elif len(value) > most:
            report.add(pointer, f"must be less than {most + 1} characters")

    return check


def boolean(report: Report, value: Any, pointer: str) -> None:
    if not isinstance(value, bool):
        report.add(pointer, "must be a boolean")


def integer(least: int, most: int) -> Check:
    def check(report: Report, value: Any, pointer: str) -> None:
        if not isinstance(value, int) or isinstance(value, bool):
            report.add(pointer, "must be an integer")
        elif not least <= value <= most:
            report.add(pointer, f"must be between {least} and {most}")

    return check


def one_of(*allowed: str) -> Check:
    return matching("|".join(allowed), f"one of {', '.join(allowed)}")


def matching(pattern: str, expected: str) -> Check:
    def check(report: Report, value: Any, pointer: str) -> None:
        if not re.fullmatch(pattern, str(value)):
            report.add(pointer, f"must be {expected}")

    return check


def link(report: Report, value: Any, pointer: str) -> None:
    """A link that Slack takes: http or https (buttons also mailto and slack)."""
    before = len(report.problems)
    string(3000)(report, value, pointer)
    right = re.match(r"(https?|mailto|slack):/*[^/]", str(value), re.IGNORECASE)
    if not right and len(report.problems) == before:
        report.add(pointer, "must be a valid URL")


def text(most: int, *, plain: bool = True) -> Check:
    """A text object: `plain` allows plain_text only, otherwise mrkdwn too."""

    def check(report: Report, value: Any, pointer: str) -> None:
        if value is None:
            return
        if not isinstance(value, Mapping):
            report.add(pointer, "must be a text object")
        elif value.get("type") not in (["plain_text"] if plain else ["plain_text", "mrkdwn"]):
            report.add(f"{pointer}/type", "must be plain_text" if plain else "must be plain_text or mrkdwn")
        else:
            flag = "emoji" if value["type"] == "plain_text" else "verbatim"
            report.fields(value, pointer, {"type": anything, flag: boolean, "text": Needed(string(most))})

    return check


_STYLE = one_of("danger", "primary")
_CONFIRM: Fields = {
    "title": Needed(text(100)),
    "text": Needed(text(300, plain=False)),
    "confirm": Needed(text(30)),
    "deny": Needed(text(30)),
    "style": _STYLE,
}


def confirm(report: Report, value: Any, pointer: str) -> None:
    if isinstance(value, Mapping):
        report.fields(value, pointer, _CONFIRM)
    else:
        report.add(pointer, "must be a confirm object")


def dispatch(report: Report, value: Any, pointer: str) -> None:
    if value is None:
        return
    triggers = value.get("trigger_actions_on") if isinstance(value, Mapping) else None
    allowed = ["on_character_entered", "on_enter_pressed"]
    if not isinstance(triggers, list) or not triggers or any(each not in allowed for each in triggers):
        report.add(pointer, f"trigger_actions_on must hold some of {allowed}")


# Options of a select, a menu, a group of buttons or boxes


def options(most: int, *, plain: bool = True, **more: Check) -> Check:
    said = text(75, plain=plain)
    fields: Fields = {"text": Needed(said), "value": Needed(string(150)), "description": said, **more}

    def check(report: Report, value: Any, pointer: str) -> None:
        found = report.items(value, pointer, 1, most)
        for option, where in found:
            report.fields(option, where, fields)
        values = [str(option.get("value")) for option, _ in found]
        if len(set(values)) != len(values):
            report.add(pointer, "values must be unique")

    return check


def option_groups(report: Report, value: Any, pointer: str) -> None:
    for group, where in report.items(value, pointer, 1, MOST_OPTIONS):
        report.fields(group, where, {"label": Needed(text(75)), "options": Needed(options(MOST_OPTIONS))})


def _one_source(one: str, other: str) -> Check:
    def check(report: Report, owner: Any, pointer: str) -> None:
        if (one in owner) == (other in owner):
            report.add(pointer, f"exactly one of {one} and {other} is required")

    return check


def _offered(owner: Json) -> list[object]:
    groups = [owner, *(each for each in _list(owner.get("option_groups")) if isinstance(each, Mapping))]
    return [option for group in groups for option in _list(group.get("options"))]


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _initial(report: Report, element: Any, pointer: str) -> None:
    """What is chosen at the start is offered."""
    if "initial_option" in element and element["initial_option"] not in _offered(element):
        report.add(f"{pointer}/initial_option", "must be one of the options")
    chosen = element.get("initial_options")
    if chosen is not None and (not _list(chosen) or any(each not in _offered(element) for each in chosen)):
        report.add(f"{pointer}/initial_options", "must be a non-empty array of some of the options")


def _static(report: Report, element: Any, pointer: str) -> None:
    _one_source("options", "option_groups")(report, element, pointer)
    _initial(report, element, pointer)


# Elements


def _lengths(report: Report, element: Any, pointer: str) -> None:
    low, high = element.get("min_length", 0), element.get("max_length", 3000)
    if type(low) is type(high) is int and low > high:
        report.add(f"{pointer}/min_length", "must not be greater than max_length")
    string(high if type(high) is int else 3000, 0)(
        report, element.get("initial_value"), f"{pointer}/initial_value"
    )


def _bounds(report: Report, element: Any, pointer: str) -> None:
    whole = element.get("is_decimal_allowed")
    if not isinstance(whole, bool):
        report.missing(pointer, "is_decimal_allowed")
    low, high, start = (
        _number(report, element.get(name), f"{pointer}/{name}", whole=whole is False)
        for name in ("min_value", "max_value", "initial_value")
    )
    if low is not None and high is not None and low > high:
        report.add(f"{pointer}/min_value", "must not be greater than max_value")
    if start is not None and ((low is not None and start < low) or (high is not None and start > high)):
        report.add(f"{pointer}/initial_value", "must lie between min_value and max_value")


def _number(report: Report, value: Any, pointer: str, *, whole: bool) -> Decimal | None:
    """The bound as a number; Slack wants it as a string."""
    if not isinstance(value, str):
        string(255)(report, value, pointer)
        return None
    try:
        number = Decimal(value)
    except InvalidOperation:
        number = Decimal("NaN")
    if number.is_finite() and (not whole or number == number.to_integral_value()):
        return number
    report.add(pointer, "must be a whole number" if whole else "must be a number")
    return None


_COMMON: Fields = {"type": anything, "action_id": string(255), "focus_on_load": boolean, "confirm": confirm}
_SELECT: Fields = {"placeholder": text(150)}
_QUERY: Fields = _SELECT | {"min_query_length": integer(0, 1000)}
_FILTER: Fields = _SELECT | unlooked("default_to_current_conversation", "filter", "response_url_enabled")
_STATIC: Fields = _SELECT | {"options": options(MOST_OPTIONS), "option_groups": option_groups}
_TYPED: Fields = _SELECT | {"dispatch_action_config": dispatch}
_LINE: Fields = _TYPED | {"initial_value": string(3000, 0)}
_MULTI: Fields = {"max_selected_items": integer(1, MOST_OPTIONS)}

ELEMENTS: dict[str, Kind] = {
    "button": Kind(
        {
            "text": Needed(text(75)),
            "value": string(2000),
            "accessibility_label": string(75),
            "style": _STYLE,
            "url": link,
        }
    ),
    "static_select": Kind(_STATIC | unlooked("initial_option"), _static),
    "multi_static_select": Kind(_STATIC | _MULTI | unlooked("initial_options"), _static),
    "external_select": Kind(_QUERY | unlooked("initial_option")),
    "multi_external_select": Kind(_QUERY | _MULTI | unlooked("initial_options")),
    "users_select": Kind(_SELECT | unlooked("initial_user")),
    "multi_users_select": Kind(_SELECT | _MULTI | unlooked("initial_users")),
    "conversations_select": Kind(_FILTER | unlooked("initial_conversation")),
    "multi_conversations_select": Kind(_FILTER | _MULTI | unlooked("initial_conversations")),
    "channels_select": Kind(_SELECT | unlooked("initial_channel", "response_url_enabled")),
    "multi_channels_select": Kind(_SELECT | _MULTI | unlooked("initial_channels")),
    "overflow": Kind({"options": Needed(options(5, url=link))}),
    "radio_buttons": Kind(
        {"options": Needed(options(10, plain=False)), "initial_option": anything}, _initial
    ),
    "checkboxes": Kind({"options": Needed(options(10, plain=False)), "initial_options": anything}, _initial),
    "datepicker": Kind(_SELECT | {"initial_date": matching(r"\d{4}-\d{2}-\d{2}", "a date, YYYY-MM-DD")}),
    "timepicker": Kind(
        _SELECT
        | {"initial_time": matching(r"([01]\d|2[0-3]):[0-5]\d", "a time, HH:mm"), "timezone": string(255)}
    ),
    "datetimepicker": Kind({"initial_date_time": integer(1_000_000_000, 9_999_999_999)}),
    "plain_text_input": Kind(
        _TYPED
        | {"multiline": boolean, "min_length": integer(0, 3000), "max_length": integer(1, 3000)}
        | unlooked("initial_value"),
        _lengths,
    ),
    "email_text_input": Kind(_LINE),
    "url_text_input": Kind(_LINE),
    "number_input": Kind(
        _TYPED | unlooked("is_decimal_allowed", "min_value", "max_value", "initial_value"), _bounds
    ),
    "file_input": Kind(unlooked("filetypes", "max_files")),
    "rich_text_input": Kind(_SELECT | unlooked("initial_value", "dispatch_action_config")),
}
_SELECTS = {kind for kind in ELEMENTS if kind.endswith("_select")}
_CHOOSERS = {"radio_buttons", "checkboxes", "datepicker", "timepicker", "button", "overflow"}
_IN_SECTION = _SELECTS | _CHOOSERS | {"image"}
_IN_ACTIONS = {k for k in _SELECTS if not k.startswith("multi_")} | _CHOOSERS | {"datetimepicker"}
_IN_INPUT = set(ELEMENTS) - {"button", "overflow"}
_ONLY_MODAL = {"file_input"}


def _element(report: Report, value: Any, pointer: str, allowed: set[str]) -> None:
    if not isinstance(value, Mapping):
        report.add(pointer, "must be an object")
        return
    kind = str(value.get("type"))
    if kind not in allowed or (kind in _ONLY_MODAL and report.surface != MODAL):
        report.add(f"{pointer}/type", f"unsupported type: {value.get('type')}")
    elif kind == "image":
        _image_element(report, value, pointer)
    else:
        report.fields(value, pointer, {**_COMMON, **ELEMENTS[kind].fields})
        ELEMENTS[kind].also(report, value, pointer)
        report.focused += value.get("focus_on_load") is True


def _actions(report: Report, value: Any, pointer: str) -> None:
    """Elements side by side: their action_ids differ within the block."""
    seen = set()
    for element, where in report.items(value, pointer, 1, 25):
        _element(report, element, where, _IN_ACTIONS)
        action_id = element.get("action_id")
        if isinstance(action_id, str):
            if action_id in seen:
                report.add(f"{where}/action_id", "action_id must be unique within its block")
            seen.add(action_id)


# Blocks


def _texts(report: Report, value: Any, pointer: str) -> None:
    for item, where in report.items(value, pointer, 1, 10):
        text(2000, plain=False)(report, item, where)


def _context(report: Report, value: Any, pointer: str) -> None:
    for item, where in report.items(value, pointer, 1, 10):
        (_image_element if item.get("type") == "image" else text(3000, plain=False))(report, item, where)


# Rich text. Sources: the rich text block's page and those of its elements; Slack's own types (node-slack-sdk).


def flags(*names: str) -> Check:
    """An object of booleans."""
    allowed: Fields = dict.fromkeys(names, boolean)

    def check(report: Report, value: Any, pointer: str) -> None:
        if isinstance(value, Mapping):
            report.fields(value, pointer, allowed)
        else:
            report.add(pointer, "must be an object")

    return check


def objects(allowed: Mapping[str, Fields], least: int = 0, most: int = 1000) -> Check:
    """A list of objects, each with the fields of its `type`."""

    def check(report: Report, value: Any, pointer: str) -> None:
        for item, where in report.items(value, pointer, least, most):
            typed(report, item, where, allowed)

    return check


def typed(report: Report, item: Json, pointer: str, allowed: Mapping[str, Fields]) -> None:
    """The object has the fields of its `type`."""
    fields = allowed.get(str(item.get("type")))
    if fields is None:
        report.add(f"{pointer}/type", f"unsupported type: {item.get('type')}")
    else:
        report.fields(item, pointer, {"type": anything} | fields)


_ID = Needed(string(255))
_WORDS: Fields = {"style": flags("bold", "italic", "strike", "code", "underline")}
_MENTION: Fields = {
    "style": flags("bold", "italic", "strike", "underline", "highlight", "client_highlight", "unlink")
}
_PLAIN_INLINE: dict[str, Fields] = {
    "text": _WORDS | {"text": Needed(string(POST_TEXT))},
    "link": _WORDS | {"url": Needed(link), "text": string(POST_TEXT), "unsafe": boolean},
}
_INLINE: dict[str, Fields] = _PLAIN_INLINE | {
    "emoji": {
        "name": _ID,
        "unicode": string(255),
        "skin_tone": integer(1, 6),
        "style": flags("bold", "italic"),
    },
    "user": _MENTION | {"user_id": _ID},
    "usergroup": _MENTION | {"usergroup_id": _ID},
    "channel": _MENTION | {"channel_id": _ID},
    "team": _MENTION | {"team_id": _ID},
    "broadcast": _MENTION | {"range": Needed(one_of("here", "channel", "everyone"))},
    "color": _MENTION | {"value": Needed(matching("#[0-9a-fA-F]{3,8}", "a hex color"))},
    "date": _WORDS
    | {"timestamp": Needed(integer(0, 9_999_999_999)), "format": _ID, "url": link, "fallback": string(3000)},
}
_BORDER: Fields = {"border": integer(0, 1)}
_SECTION: dict[str, Fields] = {"rich_text_section": {"elements": Needed(objects(_INLINE))}}
_RICH_TEXT: dict[str, Fields] = _SECTION | {
    "rich_text_list": _BORDER
    | {
        "style": Needed(one_of("bullet", "ordered")),
        "elements": Needed(objects(_SECTION, least=1)),
        "indent": integer(0, 8),
        "offset": integer(0, 100_000),
    },
    "rich_text_preformatted": _BORDER | {"elements": Needed(objects(_PLAIN_INLINE)), "language": string(255)},
    "rich_text_quote": _BORDER | {"elements": Needed(objects(_INLINE))},
}


# Tables. Sources: the pages of the table block and the data table block.


def number(report: Report, value: Any, pointer: str) -> None:
    if not isinstance(value, int | float) or isinstance(value, bool) or not isfinite(value):
        report.add(pointer, "must be a number")


_SHOWN = Needed(string(POST_TEXT))
_HEADER_CELLS: dict[str, Fields] = {
    "raw_text": {"text": _SHOWN},
    "raw_number": {"value": Needed(number), "text": _SHOWN},
}
_CELLS: dict[str, Fields] = _HEADER_CELLS | {"rich_text": {"elements": Needed(objects(_RICH_TEXT))}}
_COLUMN: Fields = {"align": one_of("left", "center", "right"), "is_wrapped": boolean}


def _rows(
    report: Report,
    value: Any,
    pointer: str,
    *,
    least: int = 1,
    most: int = 100,
    header: Mapping[str, Fields] = _CELLS,
) -> None:
    if not isinstance(value, list):
        report.add(pointer, "must be an array")
        return
    if not least <= len(value) <= most:
        less = len(value) < least
        report.add(pointer, f"no {'less' if less else 'more'} than {least if less else most} items allowed")
    for index, row in enumerate(value):
        for cell, where in report.items(row, f"{pointer}/{index}", 1, 20):
            typed(report, cell, where, _CELLS if index else header)


def _data_rows(report: Report, value: Any, pointer: str) -> None:
    """A header and 1 to 100 rows, all of one length."""
    _rows(report, value, pointer, least=2, most=101, header=_HEADER_CELLS)
    if len({len(_list(row)) for row in _list(value)}) > 1:
        report.add(pointer, "all rows must have the same number of cells")


def _columns(report: Report, value: Any, pointer: str) -> None:
    """Settings of columns; null skips one."""
    set_ = [{} if each is None else each for each in value] if isinstance(value, list) else value
    for column, where in report.items(set_, pointer, 0, 20):
        report.fields(column, where, _COLUMN)


def _some_text(report: Report, block: Any, pointer: str) -> None:
    if "text" not in block and "fields" not in block:
        report.missing(pointer, "text")


_ALT_TEXT = Needed(string(2000, 0))
_IMAGE: Fields = {"type": anything, "alt_text": _ALT_TEXT, "slack_file": anything, "image_url": link}
_IMAGE_SOURCE = _one_source("image_url", "slack_file")


def _image_element(report: Report, element: Any, pointer: str) -> None:
    report.fields(element, pointer, _IMAGE)
    _IMAGE_SOURCE(report, element, pointer)


def _children(report: Report, value: Any, pointer: str) -> None:
    _blocks(report, value, pointer, most=10, least=1, allowed=_IN_CONTAINER)


def _rich_title(report: Report, value: Any, pointer: str) -> None:
    if isinstance(value, Mapping):
        typed(report, value, pointer, {"rich_text": {"elements": Needed(objects(_RICH_TEXT))}})
    else:
        report.add(pointer, "must be an object")


def _container(report: Report, block: Any, pointer: str) -> None:
    if block.get("title") is None and block.get("rich_text_title") is None:
        report.missing(pointer, "title")
    collapsible = block.get("is_collapsible") is True
    if block.get("default_collapsed") is True and not collapsible:
        report.add(f"{pointer}/default_collapsed", "requires is_collapsible to be true")
    if block.get("has_header_divider") is True and collapsible:
        report.add(f"{pointer}/has_header_divider", "cannot be set when is_collapsible is true")


_IN_CONTAINER = {"actions", "context", "divider", "file", "header", "image", "input", "section", "table", "video"}  # fmt: skip

BLOCKS: dict[str, Kind] = {
    "section": Kind(
        {
            "text": text(3000, plain=False),
            "expand": boolean,
            "fields": _texts,
            "accessory": partial(_element, allowed=_IN_SECTION),
        },
        _some_text,
    ),
    "divider": Kind(),
    "image": Kind(_IMAGE | {"title": text(2000)}, _IMAGE_SOURCE),
    "context": Kind({"elements": Needed(_context)}),
    "actions": Kind({"elements": Needed(_actions)}),
    "header": Kind({"text": Needed(text(150)), "level": integer(1, 4)}),
    "input": Kind(
        {
            "label": Needed(text(2000)),
            "hint": text(2000),
            "optional": boolean,
            "dispatch_action": boolean,
            "element": Needed(partial(_element, allowed=_IN_INPUT)),
        }
    ),
    "rich_text": Kind({"elements": Needed(objects(_RICH_TEXT))}),
    "video": Kind(
        {
            "title": Needed(text(199)),
            "alt_text": Needed(string(2000)),
            "video_url": Needed(link),
            "thumbnail_url": Needed(link),
        }
        | unlooked("title_url", "description", "author_name", "provider_name", "provider_icon_url")
    ),
    "markdown": Kind({"text": Needed(string(12_000))}),
    "table": Kind({"rows": Needed(_rows), "column_settings": _columns}),
    "data_table": Kind(
        {
            "rows": Needed(_data_rows),
            "caption": Needed(string(POST_TEXT)),
            "page_size": integer(1, 100),
            "row_header_column_index": integer(0, 19),
        }
    ),
    "file": Kind(unlooked("external_id", "source")),
    "context_actions": Kind(unlooked("elements")),
    "alert": Kind(
        {
            "text": Needed(text(3000, plain=False)),
            "level": one_of("default", "info", "warning", "error", "success"),
        }
    ),
    "container": Kind(
        {
            "title": text(150),
            "rich_text_title": _rich_title,
            "subtitle": text(150, plain=False),
            "icon": partial(_element, allowed={"image"}),
            "width": one_of("narrow", "standard", "wide", "full"),
            **dict.fromkeys(("is_collapsible", "default_collapsed", "has_header_divider"), boolean),
            "child_blocks": Needed(_children),
        },
        _container,
    ),
}
# Where a block may stand: the reference's "Surfaces". All others may stand everywhere.
_SURFACES = {
    "alert": {MODAL},
    **{
        kind: {MESSAGE}
        for kind in (
            "markdown",
            "table",
            "data_table",
            "container",
            "file",
            "context_actions",
        )
    },
}


def _blocks(
    report: Report,
    value: Any,
    pointer: str,
    *,
    most: int,
    least: int = 0,
    allowed: Collection[str] = BLOCKS,
) -> None:
    """Blocks side by side: their number, their types, each one's own rules, unique ids."""
    for block, where in report.items(value, pointer, least, most):
        kind = str(block.get("type"))
        elsewhere = report.surface not in {ANYWHERE, *_SURFACES.get(kind, {report.surface})}
        if kind not in allowed or kind in report.without or elsewhere:
            report.add(f"{where}/type", f"unsupported type: {block.get('type')}")
            continue
        report.fields(block, where, {"type": anything, "block_id": _block_id, **BLOCKS[kind].fields})
        BLOCKS[kind].also(report, block, where)


def _block_id(report: Report, value: Any, pointer: str) -> None:
    string(255)(report, value, pointer)
    if isinstance(value, str):
        if value in report.block_ids:
            report.add(pointer, "block_id must be unique")
        report.block_ids.add(value)


# Views


_VIEW: Fields = {
    "type": anything,
    "private_metadata": string(3000, 0),
    "callback_id": string(255, 0),
    "external_id": string(255, 0),
}
_MODAL: Fields = {
    "title": Needed(text(24)),
    "submit": text(24),
    "close": text(24),
    **dict.fromkeys(("clear_on_close", "notify_on_close", "submit_disabled"), boolean),
}
