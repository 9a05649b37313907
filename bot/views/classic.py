"""Slack's newer blocks, and the classic ones that say the same.

Slack rolls its features out in phases: a workspace that does not have a block yet refuses the whole message
(`bot.slackapi.Gateway` then sends it in classic blocks). A newer block is used once `_CLASSIC` says what stands in for it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

from bot.views import inert

Block = dict[str, Any]


def _section(text: Block) -> Block:
    return {"type": "section", "text": text, "expand": True}


def _chart(block: Block) -> list[Block]:
    """Returns a chart's title: the table below it says the same in text."""
    title = f"*{inert.escape(block['title'])}*"
    return [_section({"type": "mrkdwn", "text": title, "verbatim": True})]


def _alert(block: Block) -> list[Block]:
    """Returns an alert's text: a grave one in bold after a sign that screen readers name, a warning in bold."""
    text, level = block["text"], block["level"]
    if text["type"] == "mrkdwn" or level not in _BOLD:
        return [_section(text)]
    said = f"{SIGN if level == 'error' else ''}{text['text']}"
    words = {"type": "text", "text": said, "style": {"bold": True}}
    return [_rich("rich_text_section", words)]


def _table(block: Block) -> list[Block]:
    """Returns a table's rows as text with a bar beside it; the arguments of an approval as `name: value`."""
    head, *rest = rows = [list(map(_cell, row)) for row in block["rows"]]
    # An agent's own header is bold, so it is no raw text.
    is_arguments = tuple(head) == ARGUMENT_HEADER and all(
        each["type"] == "raw_text" for each in block["rows"][0]
    )
    words = "\n".join(map(": ".join, rest) if is_arguments else table_lines(rows))
    return [
        _rich("rich_text_quote", {"type": "text", "text": piece})
        for piece in inert.split(words, _SECTION)
        if piece.strip()
    ]


def _rich(kind: str, element: Block) -> Block:
    return {"type": "rich_text", "elements": [{"type": kind, "elements": [element]}]}


def _cell(cell: Block) -> str:
    if cell["type"] == "rich_text":
        return "".join(
            each.get("text") or each["url"] for line in cell["elements"] for each in line["elements"]
        )
    return str(cell["text"])


def table_lines(rows: Sequence[Sequence[str]]) -> list[str]:
    """Returns a table, its header first, as lines of text that name the columns: `Region: eu-west · Cost: 3`. The header is a
    line of its own if repeating it would double the text, or if a column has no values.
    """
    head, *rest = ([cell.strip() for cell in row] for row in rows)
    named = [
        " · ".join(f"{name}: {cell}" if name else cell for name, cell in zip(head, row, strict=True) if cell)
        for row in rest
    ]
    bare = [" · ".join(filter(None, row)) for row in (head, *rest)]
    is_complete = all(map(any, zip(*rest, strict=True)))
    return named if rest and is_complete and sum(map(len, named)) <= 2 * sum(map(len, bare)) else bare


ARGUMENT_HEADER = ("Argument", "Value")
SIGN = "⚠ "  # before what is grave; screen readers name it
_BOLD = frozenset({"error", "warning"})
_SECTION = 3000
_CLASSIC: dict[str, Callable[[Block], list[Block]]] = {
    "alert": _alert,
    "container": lambda _: [],  # what it unfolds is behind View full, too
    "data_visualization": _chart,
    "table": _table,
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
