"""Slack's newer blocks, and the classic ones that say the same.

Slack rolls its features out in phases: a workspace that does not have a block yet refuses the whole message
(`bot.slackapi.Gateway` then sends it in classic blocks). A newer block is used once `_CLASSIC` says what stands in for it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Any

from bot.views import inert

Block = dict[str, Any]


def _chart(block: Block) -> list[Block]:
    """Returns a chart's title: the table below it says the same in text."""
    title = f"*{inert.escape(block['title'])}*"
    return [{"type": "section", "text": {"type": "mrkdwn", "text": title, "verbatim": True}}]


_CLASSIC: dict[str, Callable[[Block], list[Block]]] = {"data_visualization": _chart}


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
        first, *rest = _CLASSIC[block["type"]](block)
        own = {"block_id": block["block_id"]} if "block_id" in block else {}
        made += [{**first, **own}, *rest]
    return made
