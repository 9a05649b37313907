"""What people send along with a message, as text."""

from __future__ import annotations

from typing import Any

import pytest

from bot.slack.mrkdwn import attached_to


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
TO_MESSAGE = {
    k: v for k, v in FORWARDED.items() if k != "is_share"
}  # a link to a message, as Slack previews it


def test_table_is_a_line_for_each_row() -> None:
    number = {"type": "raw_number", "value": 1200}
    table = pasted(
        [raw("region"), raw("cost")],
        [rich(words("eu"), words("-west"), {"type": "user", "user_id": "U1"}), number],
        [raw("a|b\nc & d <e>"), rich({"type": "link", "url": "https://x.example", "text": "x"})],
    )
    assert attached_to({"attachments": [table]}) == (
        "region | cost\neu-west<@U1> | 1200\na\\|b c &amp; d &lt;e&gt; | <https://x.example|x>",
        False,
    )


def test_forwarded_message_is_quoted_with_its_author() -> None:
    assert attached_to({"attachments": [FORWARDED]}) == (
        "Forwarded from <@U1|Ann &lt;Lee&gt;>:\n&gt; ship it\n&gt; but <@U2> &amp; I watch",
        False,
    )


def test_forwarded_message_without_text_is_read_from_its_blocks_and_tables() -> None:
    inner = {"blocks": [rich(words("see <here>"))], "attachments": [pasted([raw("a"), raw("b")])]}
    shared = FORWARDED | {"text": "", "message_blocks": [{"message": inner}], "author_id": None}
    assert attached_to({"attachments": [shared]}) == (
        "Forwarded from Ann &lt;Lee&gt;:\n&gt; see &lt;here&gt;\n&gt;\n&gt; a | b",
        False,
    )


@pytest.mark.parametrize(
    "sent",
    [
        {"files": [{"id": "F1"}]},
        {"attachments": [{"id": 1, "fallback": "[no preview available]"}]},
        {"attachments": [FORWARDED | {"text": "", "message_blocks": []}]},
        {"attachments": [FORWARDED | {"files": [{"id": "F1"}]}]},
        {"attachments": [pasted()]},
    ],
)
def test_what_is_no_text_is_known(sent: dict[str, Any]) -> None:
    assert attached_to(sent).files


@pytest.mark.parametrize("preview", [LINK, TO_MESSAGE, {"is_app_unfurl": True, **pasted([raw("a")])}])
def test_preview_of_a_link_is_no_part_of_a_message(preview: dict[str, Any]) -> None:
    assert attached_to({"text": "see", "attachments": [preview]}) == ("", False)


@pytest.mark.parametrize(
    "odd", [None, 1, {}, [None, 1, {"blocks": 1}], [{"blocks": [{"type": "table", "rows": [1]}]}]]
)
def test_odd_attachments_raise_nothing(odd: object) -> None:
    assert attached_to({"attachments": odd}).text == ""
