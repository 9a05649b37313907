from __future__ import annotations

import pytest

from bot.slack.mrkdwn import begins_with, mentions_someone, plain, without

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
