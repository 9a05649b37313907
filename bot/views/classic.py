"""Slack's newer blocks, and the classic ones that say the same.

Slack rolls its features out in phases: a workspace that does not have a block yet refuses the whole message
(`bot.slackapi.Gateway` then sends it in classic blocks). A newer block is used once `_CLASSIC` says what stands in for it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Any

Block = dict[str, Any]


def _section(text: Block) -> Block:
    return {"type": "section", "text": text, "expand": True}


def _alert(block: Block) -> list[Block]:
    """Returns an alert's text: a grave one in bold after a sign that screen readers name, a warning in bold."""
    text, level = block["text"], block["level"]
    if text["type"] == "mrkdwn" or level not in _BOLD:
        return [_section(text)]
    said = f"{SIGN if level == 'error' else ''}{text['text']}"
    words = {"type": "text", "text": said, "style": {"bold": True}}
    return [{"type": "rich_text", "elements": [{"type": "rich_text_section", "elements": [words]}]}]


SIGN = "⚠ "  # before what is grave; screen readers name it
_BOLD = frozenset({"error", "warning"})
_CLASSIC: dict[str, Callable[[Block], list[Block]]] = {
    "alert": _alert,
    "container": lambda _: [],  # what it unfolds is behind View full, too
}
NOT_IN_MESSAGES = frozenset({"alert"})


def newer(blocks: Iterable[Block]) -> frozenset[str]:
    """Returns the types of the newer blocks among `blocks`."""
    return frozenset(block["type"] for block in blocks) & _CLASSIC.keys()


def classic(blocks: Iterable[Block], refused: Collection[str] = _CLASSIC.keys()) -> list[Block]:
    """Returns the blocks, with classic ones in place of those of `refused` types (default: of all newer ones). The first
    takes over the block_id.
    """
    made: list[Block] = []
    for block in blocks:
        if block["type"] not in refused:
            made.append(block)
            continue
        own = {"block_id": block["block_id"]} if "block_id" in block else {}
        for stand_in in _CLASSIC[block["type"]](block):
            made.append({**stand_in, **own})
            own = {}
    return made
