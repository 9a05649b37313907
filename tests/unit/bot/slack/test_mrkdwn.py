from __future__ import annotations

from typing import Any

import pytest

from bot.slack.mrkdwn import attached_to, begins_with, mentions_someone, plain, without

NAMES = {"U1": "ade"}.get


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("yes", "yes"),
        ("a &lt; b &amp;&amp; c &gt; d", "a < b && c > d"),
        ("&amp;lt;", "&lt;"),
        ("ask <@U1> or <@U2>", "ask @ade or @U2"),
        ("ask <@U2|folake>", "ask @folake"),
        ("in <#C1|general> and <#C2>", "in #general and #C2"),
        ("<https://example.com/a?b=1&amp;c=2>", "https://example.com/a?b=1&c=2"),
        ("<http://example.com|example.com>", "example.com"),
        ("<mailto:a@b.c|a@b.c>", "a@b.c"),
        ("<!here> <!channel> <!everyone>", "@here @channel @everyone"),
        ("<!subteam^S1|@platform>", "@platform"),
        ("<!subteam^S1>", "@S1"),
        ("<!date^1392734382^{date}|Feb 18, 2014>", "Feb 18, 2014"),
        ("&gt; quoted", "> quoted"),
        ("1 &lt; 2 <unclosed", "1 < 2 <unclosed"),
        ("", ""),
    ],
)
def test_plain_reads_markup_back(text: str, expected: str) -> None:
    assert plain(text, NAMES) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("<@UBOT> yes", "yes"),
        ("<@UBOT>: yes", "yes"),
        ("<@UBOT|clarify>, yes", "yes"),
        ("yes <@UBOT>", "yes"),
        ("use <@UBOT> twice", "use twice"),
        ("  as typed  ", "as typed"),
    ],
)
def test_plain_leaves_the_bot_out(text: str, expected: str) -> None:
    assert plain(text, drop="UBOT") == expected


@pytest.mark.parametrize(
    ("text", "talk"),
    [
        ("<@U1> what do you think?", True),
        ("<@UBOT> yes", False),
        ("<@UBOT> <@U1>", True),
        ("<!subteam^S1|@platform> hm", True),
        ("<!here> yes", False),
        ("&lt;@U1&gt;", False),
        ("<#C1|general>", False),
    ],
)
def test_mentions_someone(text: str, talk: bool) -> None:
    assert mentions_someone(text, "UBOT") is talk


@pytest.mark.parametrize(
    ("text", "begins", "left"),
    [
        ("<@U0BOT> stale", True, "stale"),
        (" <@U0BOT|clarify>: stale", True, "stale"),
        ("hey <@U0BOT>, stale", False, "hey stale"),
        ("<@U0BOT> oncall hand <@U0ADE> 2h", True, "oncall hand <@U0ADE> 2h"),
        ("<@U0BOTHER> stale", False, "<@U0BOTHER> stale"),
    ],
)
def test_mention_of_the_bot_is_told_from_the_rest(text: str, begins: bool, left: str) -> None:
    assert begins_with(text, "U0BOT") is begins
    assert without(text, "U0BOT") == left


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
