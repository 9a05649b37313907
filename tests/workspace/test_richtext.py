"""Rich text as it is drawn: its styles and elements, and nothing that its texts only look like."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from tests.workspace.kit import Json
from workspace.mrkdwn import Names
from workspace.richtext import rich_html

NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
NAMES = Names({"U1": "Ade <b>"}, {"C1": "agents"}, {"S1": "platform"}, NOW)
AWAY = 'target="_blank" rel="noopener noreferrer"'


def text(words: str, **style: bool) -> Json:
    return {"type": "text", "text": words} | ({"style": style} if style else {})


def part(kind: str, *elements: Json, **more: Any) -> Json:
    return {"type": f"rich_text_{kind}", "elements": list(elements)} | more


@pytest.mark.parametrize(
    ("element", "html"),
    [
        (text("a", bold=True, italic=True, strike=True), "<strong><em><s>a</s></em></strong>"),
        (text("a", code=True, bold=True), "<strong><code>a</code></strong>"),
        (text("a", bold=False), "a"),
        (text("*a* `b` :x: <@U1> <!here> https://x.org <b> &amp;"), "*a* `b` :x: &lt;@U1&gt; &lt;!here&gt; https://x.org &lt;b&gt; &amp;amp;"),
        ({"type": "link", "url": "https://x.org/?a=1&b=2"}, f'<a href="https://x.org/?a=1&amp;b=2" {AWAY}>https://x.org/?a=1&amp;b=2</a>'),
        ({"type": "link", "url": "https://x.org", "text": "<docs>", "style": {"bold": True}}, f'<strong><a href="https://x.org" {AWAY}>&lt;docs&gt;</a></strong>'),
        ({"type": "link", "url": "slack://open", "text": "x"}, "&lt;slack://open&gt;"),
        ({"type": "user", "user_id": "U1"}, '<span class="mention">@Ade &lt;b&gt;</span>'),
        ({"type": "user", "user_id": "U2"}, '<span class="mention">@U2</span>'),
        ({"type": "usergroup", "usergroup_id": "S1"}, '<span class="mention">@platform</span>'),
        ({"type": "channel", "channel_id": "C1"}, '<span class="mention">#agents</span>'),
        ({"type": "team", "team_id": "T1"}, '<span class="mention">@T1</span>'),
        ({"type": "broadcast", "range": "here"}, '<span class="mention">@here</span>'),
        ({"type": "emoji", "name": "one", "unicode": "0031-20e3"}, "1\u20e3"),
        ({"type": "emoji", "name": "x"}, "❌"),
        ({"type": "emoji", "name": "ours", "unicode": "no"}, ":ours:"),
        ({"type": "date", "timestamp": int(NOW.timestamp()), "format": "{date_slash}, {date_long_full}, {day_divider_pretty}"}, '<time datetime="2026-11-21T12:00:00+00:00" title="Saturday 21 November 2026 12:00:00">21/11/2026, November 21, 2026, today</time>'),
        ({"type": "date", "timestamp": int(NOW.timestamp()), "format": "{time}", "url": "https://x.org"}, f'<a href="https://x.org" {AWAY}><time datetime="2026-11-21T12:00:00+00:00" title="Saturday 21 November 2026 12:00:00">12:00</time></a>'),
        ({"type": "color", "value": "#F405B3"}, '<svg class="swatch" aria-hidden="true" width="10" height="10"><rect fill="#F405B3" width="10" height="10"/></svg> #F405B3'),
    ],
)  # fmt: skip
def test_element(element: Json, html: str) -> None:
    assert str(rich_html([part("section", element)], NAMES)) == f'<p dir="auto">{html}</p>'


@pytest.mark.parametrize(
    ("made", "html"),
    [
        (part("preformatted", text("a\n<b>"), language="sql"), '<pre dir="auto">a\n&lt;b&gt;</pre>'),
        (part("quote", text("a"), border=1), '<blockquote dir="auto" data-border="1">a</blockquote>'),
        (part("list", part("section", text("a")), style="bullet", border=0), '<ul><li dir="auto">a</li></ul>'),
        (part("list", part("section", text("a")), part("section"), style="ordered", offset=2, indent=1), '<ol start="3" data-indent="1"><li dir="auto">a</li><li dir="auto"></li></ol>'),
    ],
)  # fmt: skip
def test_part(made: Json, html: str) -> None:
    assert str(rich_html([made], NAMES)) == html
