"""The controls in blocks: found by what a person reads, and what is entered as Slack's values. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from typing import Any

from .state import Json


class ControlError(LookupError):
    """There is no such control on what is shown, or it does not take this value."""


@dataclass(frozen=True)
class Control:
    """One interactive element and the block that holds it."""

    block: Json
    element: Json

    @property
    def kind(self) -> str:
        return str(self.element["type"])

    @property
    def block_id(self) -> str:
        return str(self.block["block_id"])

    @property
    def action_id(self) -> str:
        return str(self.element["action_id"])

    @property
    def is_input(self) -> bool:
        return bool(self.block["type"] == "input")

    def names(self) -> set[str]:
        """Everything that a person (or a test) may call it by."""
        texts = [
            self.element.get("text"),
            self.element.get("placeholder"),
            self.block.get("label"),
            self.block.get("text"),
        ]
        spoken = {str(text["text"]) for text in texts if isinstance(text, dict)}
        return spoken | {self.block_id, self.action_id, str(self.element.get("accessibility_label", ""))} - {
            ""
        }


def controls(blocks: list[Json]) -> Iterator[Control]:
    """All interactive elements, in reading order, also those in containers."""
    for block in blocks:
        if block["type"] == "container":
            yield from controls(block["child_blocks"])
        if block["type"] == "actions":
            yield from (Control(block, element) for element in block["elements"])
        for place in ("accessory", "element"):
            element = block.get(place)
            if isinstance(element, dict) and element["type"] != "image":
                yield Control(block, element)


def find(blocks: list[Json], name: str | None, *, kinds: set[str] | None = None) -> Control:
    """The control that goes by `name`; without a name, the only one of these kinds.

    Raises:
        ControlError: none, or more than one; the message lists what is there.
    """
    candidates = [c for c in controls(blocks) if kinds is None or c.kind in kinds]
    found = [c for c in candidates if name is None or name in c.names()]
    if len(found) == 1:
        return found[0]
    there = [sorted(c.names()) for c in candidates]
    msg = f"{len(found)} controls are named {name!r}, not one. Controls: {there}"
    raise ControlError(msg)


def find_button(blocks: list[Json], name: str | None) -> tuple[Control, str | None]:
    """The button that goes by `name`, or the overflow menu that offers it, and what is chosen there.

    Raises:
        ControlError: none, or more than one.
    """
    for control in controls(blocks):
        if control.kind == "overflow" and name in {
            each["text"]["text"] for each in options_of(control.element)
        }:
            return control, name
    return find(blocks, name, kinds={"button"}), None


def options_of(element: Json) -> list[Json]:
    groups = element.get("option_groups", [])
    return list(element.get("options", [])) + [option for group in groups for option in group["options"]]


_STATELESS = {"button", "overflow"}
# Under which name an element's value stands, as a part of `selected_…` and `initial_…`; all others have a `value`.
_NAMES = {
    "static_select": "option",
    "radio_buttons": "option",
    "overflow": "option",
    "checkboxes": "options",
    "multi_static_select": "options",
    "users_select": "user",
    "conversations_select": "conversation",
    "channels_select": "channel",
    "multi_users_select": "users",
    "multi_conversations_select": "conversations",
    "multi_channels_select": "channels",
    "datepicker": "date",
    "timepicker": "time",
    "datetimepicker": "date_time",
}


def encode(element: Json, entered: Any) -> Json:
    """What was entered, as interactions carry it: `{"type", "value" | "selected_option" | …}`.

    Options go by their text or their value, moments as seconds since 1970 or as `2026-05-24T14:00` in UTC; None is
    "nothing entered".

    Raises:
        ControlError: an option that is not offered, or no such moment.
    """
    kind = str(element["type"])
    if kind == "datetimepicker" and isinstance(entered, str) and entered:
        entered = _moment(entered)
    name = _NAMES.get(kind)
    if name == "options":
        chosen = [entered] if isinstance(entered, str) else list(entered or [])
        value: Any = [_option(element, item) for item in chosen if item]
    elif entered in (None, "", []):
        value = [] if kind.startswith("multi_") else None
    else:
        value = _option(element, entered) if name == "option" else entered if name else str(entered)
    return {"type": kind, f"selected_{name}" if name else "value": value}


def initial(element: Json) -> Json:
    """The value that an untouched element has."""
    kind = str(element["type"])
    name = _NAMES.get(kind)
    empty: list[Json] | None = [] if name and name.endswith("s") else None
    return {
        "type": kind,
        f"selected_{name}" if name else "value": element.get(f"initial_{name or 'value'}", empty),
    }


def state_values(blocks: list[Json], held: Json) -> Json:
    """`state.values` as interactions carry it: every element that holds a value, untouched ones too.

    Source: docs.slack.dev, "block_actions payload", "view_submission payload".
    """
    values: Json = {}
    for control in controls(blocks):
        if control.kind not in _STATELESS:
            value = held.get(control.block_id, {}).get(control.action_id) or initial(control.element)
            values.setdefault(control.block_id, {})[control.action_id] = value
    return values


def still_there(blocks: list[Json], held: Json) -> Json:
    """Of what was entered, what belongs to an element of these blocks: the rest is gone with its element."""
    kept: Json = {}
    for control in controls(blocks):
        value = held.get(control.block_id, {}).get(control.action_id)
        if value is not None and value["type"] == control.kind:
            kept.setdefault(control.block_id, {})[control.action_id] = value
    return kept


_PATTERNS = {
    "email_text_input": (re.compile(r"[^\s@]+@[^\s@.][^\s@]*\.[^\s@.]+").fullmatch, "email address"),
    "url_text_input": (re.compile(r"https?://\S+").fullmatch, "URL"),
}


def complaint(control: Control, value: Json) -> str | None:
    """What Slack's own client says about a value before it lets the modal go; None where it is right."""
    if not any(part for name, part in value.items() if name != "type"):
        return None if control.block.get("optional") else "Please complete this required field."
    most, chosen = control.element.get("max_selected_items"), value.get("selected_options") or []
    if most is not None and len(chosen) > most:
        return f"Please choose at most {most}."
    text = str(value.get("value"))
    if control.kind == "number_input":
        return _number_complaint(control.element, text)
    if control.kind == "plain_text_input":
        return _text_complaint(control.element, text)
    if control.kind not in _PATTERNS:
        return None
    fits, name = _PATTERNS[control.kind]
    return None if fits(text) else f"Please enter a valid {name}."


def _moment(entered: str) -> int:
    try:
        return int(datetime.fromisoformat(entered).replace(tzinfo=UTC).timestamp())
    except ValueError:
        msg = f"{entered!r} is not a date and time such as 2026-05-24T14:00"
        raise ControlError(msg) from None


def _option(element: Json, entered: Any) -> Json:
    options = options_of(element)
    for option in options:
        if entered in {option["text"]["text"], option["value"]}:
            return option
    msg = f"no option {entered!r}. Options: {[option['text']['text'] for option in options]}"
    raise ControlError(msg)


def _number_complaint(element: Json, text: str) -> str | None:
    try:
        number = Decimal(text)
    except InvalidOperation:
        return "Please enter a number."
    if not number.is_finite() or re.search(r"[eE_]", text):
        return "Please enter a number."
    if not element["is_decimal_allowed"] and number != number.to_integral_value():
        return "Please enter a whole number."
    low, high = element.get("min_value"), element.get("max_value")
    if low is not None and number < Decimal(low):
        return f"Please enter a number not less than {low}."
    if high is not None and number > Decimal(high):
        return f"Please enter a number not greater than {high}."
    return None


def _text_complaint(element: Json, text: str) -> str | None:
    least, most = element.get("min_length", 0), element.get("max_length", 3000)
    if len(text) < least:
        return f"Please enter at least {least} characters."
    return f"Please enter at most {most} characters." if len(text) > most else None


# The page's forms. An element's field is named `e:{block_id}:{action_id}`; ids with a colon in them are found by
# comparison, not by splitting.


Posted = Mapping[str, list[str]]


def field_name(control: Control) -> str:
    return f"e:{control.block_id}:{control.action_id}"


def pressed(blocks: list[Json], posted: Posted) -> tuple[Control, Any]:
    """The control that was used (its field's name is in `pressed`) and what it now holds.

    Where the message was drawn anew in between, its blocks have other ids: what then has the same action and (a button)
    the same value is the same control.

    Raises:
        ControlError: it is not there any more.
    """
    name, value = posted.get("pressed", [""])[-1], posted.get("holds", [""])[-1]
    there = list(controls(blocks))
    same = [control for control in there if field_name(control) == name]
    same += [
        control
        for control in there
        if name.endswith(f":{control.action_id}") and str(control.element.get("value", "")) == value
    ]
    for control in same[:1]:
        return control, _entered(control, posted.get(name, []))
    msg = "This control no longer exists."
    raise ControlError(msg)


def entered_in_view(blocks: list[Json], posted: Posted) -> Json:
    """`state.values` of a modal's form: every element that holds a value, empty ones included."""
    values: Json = {}
    for control in controls(blocks):
        if control.kind in {"button", "overflow"}:
            continue
        value = encode(control.element, _entered(control, posted.get(field_name(control), [])))
        values.setdefault(control.block_id, {})[control.action_id] = value
    return values


def _entered(control: Control, values: list[str]) -> Any:
    """A single value or a list of them, as `controls.encode` wants it."""
    chosen = [value for value in values if value]
    if control.kind == "checkboxes" or control.kind.startswith("multi_"):
        return chosen
    return chosen[-1] if chosen else None
