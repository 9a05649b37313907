"""Slack's limits on blocks, as far as our templates can break them: the last look before anything is sent.

Source: docs.slack.dev, "Blocks", "Block elements", "Composition objects", "Views". Pure.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from bot.errors import RenderError
from bot.views.inert import TEXT_LIMIT, size

Block = dict[str, Any]

MESSAGE_BLOCKS = 50
VIEW_BLOCKS = 100
MESSAGE_BUDGET = 10_000  # one message's text in all; Slack refuses somewhere above 11 000
VIEW_BUDGET = 240_000  # one view as JSON; Slack takes 250 KB
SECTION = 3000
OPTION = 75
BUTTON = 75
TITLE = 24
CONFIRM_TEXT = 300
_TEXTS = {
    ("section", "text"): SECTION,
    ("header", "text"): 150,
    ("context", "elements"): 2000,
    ("button", "text"): BUTTON,
    ("option", "text"): OPTION,
    ("input", "label"): 2000,
    ("input", "hint"): 2000,
    ("select", "placeholder"): 150,
    ("confirm", "title"): 100,
    ("confirm", "text"): CONFIRM_TEXT,
    ("confirm", "confirm"): 30,
    ("confirm", "deny"): 30,
    ("modal", "title"): TITLE,
    ("modal", "submit"): TITLE,
    ("modal", "close"): TITLE,
}
_STRINGS = {
    "value": {"button": 2000, "option": 150},
    "accessibility_label": {"button": 75},
    "url": {"button": 3000},
}
_COUNTS = {
    ("context", "elements"): 10,
    ("actions", "elements"): 25,
    ("radio_buttons", "options"): 10,
    ("checkboxes", "options"): 10,
    ("static_select", "options"): 100,
    ("multi_static_select", "options"): 100,
}
_SELECTS = ("static_select", "multi_static_select", "number_input", "plain_text_input")


def check_message(text: str, blocks: Sequence[Block]) -> None:
    """Whether Slack would take a message, also as an update.

    Raises:
        RenderError: with the first thing that is wrong, and where; never the content.
    """
    problems = list(_common(blocks, MESSAGE_BLOCKS))
    if not 0 < size(text) <= TEXT_LIMIT:
        problems.append(f"text has {size(text)} characters; expected 1 to {TEXT_LIMIT}")
    total = text_size(blocks) + size(text)
    if total > MESSAGE_BUDGET:
        problems.append(f"the message has {total} characters in all; expected at most {MESSAGE_BUDGET}")
    _raise(problems)


def check_view(view: Mapping[str, Any]) -> None:
    """Whether Slack would take a modal.

    Raises:
        RenderError: with the first thing that is wrong, and where; never the content.
    """
    problems = list(_common(view["blocks"], VIEW_BLOCKS))
    problems += _texts("view", "modal", view)
    for key, limit in (("private_metadata", 3000), ("callback_id", 255)):
        if size(view.get(key, "")) > limit:
            problems.append(f"view.{key} is longer than {limit}")
    if json_size(view) > VIEW_BUDGET:
        problems.append(f"the view has more than {VIEW_BUDGET} bytes as JSON")
    _raise(problems)


def text_size(blocks: Any) -> int:
    """The characters of all text in blocks."""
    if isinstance(blocks, dict):
        return sum(
            size(value) if key == "text" and isinstance(value, str) else text_size(value)
            for key, value in blocks.items()
        )
    return sum(map(text_size, blocks)) if isinstance(blocks, list) else 0


def json_size(value: Any) -> int:
    """Bytes as JSON in pure ASCII, the longest form that a client may send."""
    return len(json.dumps(value, separators=(",", ":")))


def _raise(problems: Sequence[str]) -> None:
    if problems:
        raise RenderError(f"Slack would refuse this: {problems[0]} (of {len(problems)} problems).")


def _common(blocks: Sequence[Block], most: int) -> Iterator[str]:
    if not 0 < len(blocks) <= most:
        yield f"{len(blocks)} blocks; expected 1 to {most}"
    ids = [block["block_id"] for block in blocks if "block_id" in block]
    actions = [item["action_id"] for item in _walk(blocks) if "action_id" in item and "block_id" not in item]
    messages = len({block.get("type") for block in blocks} & {"input"}) == 0
    for name, names in (("block_id", ids), ("action_id", actions if messages else [])):
        if len(set(names)) < len(names) or any(size(each) > 255 for each in names):
            yield f"{name}s are not unique, or longer than 255"
    for index, block in enumerate(blocks):
        for item in _walk(block):
            yield from _item(f"blocks[{index}]", item)


def _walk(value: Any) -> Iterator[Block]:
    if isinstance(value, dict):
        yield value
        for child in value.values():
            yield from _walk(child)
    elif isinstance(value, list):
        for child in value:
            yield from _walk(child)


def _item(where: str, item: Block) -> Iterator[str]:
    kind = item.get("type") or ("option" if "value" in item else "confirm" if "deny" in item else "")
    kind = str(kind)
    yield from _texts(where, "select" if kind in _SELECTS else kind, item)
    for (of, key), most in _COUNTS.items():
        if of == kind and not 0 < len(item[key]) <= most:
            yield f"{where} has {len(item[key])} {key} in {kind}; expected 1 to {most}"
    for key, limits in _STRINGS.items():
        if kind in limits and size(item.get(key, "")) > limits[kind]:
            yield f"{where}: {key} of {kind} is longer than {limits[kind]}"


def _texts(where: str, kind: str, item: Mapping[str, Any]) -> Iterator[str]:
    for (of, key), most in _TEXTS.items():
        if of != kind or key not in item:
            continue
        for found in item[key] if isinstance(item[key], list) else [item[key]]:
            if not found["text"].strip() or size(found["text"]) > most:
                yield f"{where}: {key} of {kind} has {size(found['text'])} characters; expected 1 to {most}"
