"""What people send along with a message, as text."""

from __future__ import annotations

from typing import Any


def rich(*elements: dict[str, Any]) -> dict[str, Any]:
    return {"type": "rich_text", "elements": [{"type": "rich_text_section", "elements": list(elements)}]}


def words(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def pasted(*rows: list[dict[str, Any]]) -> dict[str, Any]:
    """An attachment as Slack makes it of a pasted table."""
    table = {"type": "table", "block_id": "b", "rows": list(rows), "column_settings": [None]}
    return {"id": 1, "blocks": [table], "fallback": "[no preview available]"}


def raw(text: str) -> dict[str, Any]:
    return {"type": "raw_text", "text": text}


FORWARDED = {
    "id": 1,
    "ts": "1700000000.000100",
    "is_share": True,
    "is_msg_unfurl": True,
    "from_url": "https://local.slack.com/archives/C1/p1700000000000100",
    "author_id": "U1",
    "author_name": "Ann <Lee>",
    "text": "ship it\nbut <@U2> &amp; I watch",
    "fallback": "[date] Ann: ship it",
    "message_blocks": [{"message": {"blocks": [rich(words("ship it"))]}}],
}
LINK = {"from_url": "https://example.com", "original_url": "https://example.com", "title": "Example"}
TO_
