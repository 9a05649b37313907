"""Recognises the events that nobody is shown, without parsing them: they are most of what agents emit."""

from __future__ import annotations

import re

from core.aaep import CRITICAL_TYPES

# The top level's members up to `type`, as long as they are flat: so the `type` found is the event's own.
_FLAT = r'(?:"[^"\\]*"|[-+.\w]+|\[[^\[\]{}"\\]*(?:"[^"\\]*"[^\[\]{}"\\]*)*\])'
_TYPE_FIRST = re.compile(
    rf'\s*\{{(?:\s*"[^"\\]*"\s*:\s*{_FLAT}\s*,)*?\s*"type"\s*:\s*'
    r'"(?:aaep:|https?://(?:www\.)?aaep-protocol\.org/[^ "\\]*)agent\.(?:output\.streaming|progress\.updated)"'
)
_ESCAPED_ASCII = re.compile(r"\\u00[2-7]")
_URGENT = re.compile(r'"urgency"\s*:\s*"critical"')


def droppable(data: str) -> bool:
    """Whether one event's JSON is certainly an `output.streaming` or `progress.updated` that is not critical.

    False means "parse it": it never says that the event is another one. Certain, because
    - the `type` found belongs to the top level and is spelled out,
    - no later member is called `type` (the last of two would count), not even by an escaped name,
    - the word `critical` occurs nowhere, not even escaped.
    No other AAEP type is named after it either: in what is broken, that may be the start of a lost event.
    """
    found = _TYPE_FIRST.match(data)
    if found is None or "critical" in data:
        return False
    end = found.end()
    if data.find('"type"', end) >= 0 or data.find("agent.", end) >= 0:
        return False
    return not ("\\u00" in data and _ESCAPED_ASCII.search(data))


def may_be_critical(text: str) -> bool:
    """Whether text that could not be read as an event names something critical, so that a human must look."""
    return any(name in text for name in CRITICAL_TYPES) or _URGENT.search(text) is not None
