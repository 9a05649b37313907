"""From the page's forms to controls and values. Pure.

An element's field is named `e:{block_id}:{action_id}`; ids with a colon in them are found by comparison, not
by splitting.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .controls import Control, ControlError, controls, encode
from .state import Json

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
    msg = "That control is not there any more."
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
