from __future__ import annotations

import re
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workspace.mrkdwn import Names, compose, plain_to_html, to_html, to_words
from workspace.seed import ADE, seeded

NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
NAMES = Names({"U1": "Ade <b>"}, {"C1": "agents"}, {"S1": "platform"}, NOW)
STAMP = int(NOW.timestamp())


@pytest.mark.parametrize(
    ("text", "html"),
    [
        ("a *b* _c_ ~d~", "a <strong>b</strong> <em>c</em> <s>d</s>"),
        ("2*3*4 snake_case_name", "2*3*4 snake_case_name"),
        ("`a *b*`", "<code>a *b*</code>"),
        ("```x < y\nz```", "<pre>x &lt; y\nz</pre>"),
        ("a\nb", "a<br>b"),
        ("&gt; quoted\nnot", "<blockquote>quoted</blockquote>not"),
        ("<@U1>", '<span class="mention">@Ade &lt;b&gt;</span>'),
        ("<#C1>", '<span class="mention">#agents</span>'),
        ("<!here>", '<span class="mention">@here</span>'),
        ("<!subteam^S1>", '<span class="mention">@platform</span>'),
        ("<https://x.org/?a=1&amp;b=2|x &amp; y>", '<a href="https://x.org/?a=1&amp;b=2" target="_blank" rel="noopener noreferrer">x &amp; y</a>'),
        ("see https://x.org/a.", 'see <a href="https://x.org/a" target="_blank" rel="noopener noreferrer">https://x.org/a</a>.'),
        ("<javascript:alert(1)|click>", "&lt;javascript:alert(1)&gt;"),
        ("<script>alert(1)</script>", "&lt;script&gt;alert(1)&lt;/script&gt;"),
        ("&lt;script&gt; &amp;amp;", "&lt;script&gt; &amp;amp;"),
        (":x: :nothing:", "❌ :nothing:"),
        (f"<!date^{STAMP}^{{date_num}} {{time}}|later>", f'<time datetime="{NOW.isoformat()}" title="Saturday 21 November 2026 12:00:00">2026-11-21 12:00</time>'),
        ("<!date^soon^{time}|later &lt;b&gt;>", "later &lt;b&gt;"),
    ],
)  # fmt: skip
def test_mrkdwn_to_html(text: str, html: str) -> None:
    assert str(to_html(text, NAMES)) == html


@pytest.mark.parametrize(
    ("form", "seconds", "words"),
    [
        ("{date_pretty} at {time}", 0, "today at 12:00"),
        ("{date_short_pretty}", 86_400, "tomorrow"),
        ("{date_long_pretty}", -86_400, "yesterday"),
        ("{date}", 0, "November 21, 2026"),
        ("{date_long}", 0, "Saturday, November 21, 2026"),
        ("{ago}", 1800, "in 30 minutes"),
        ("{ago}", -3600, "1 hour ago"),
    ],
)
def test_mrkdwn_dates(form: str, seconds: int, words: str) -> None:
    assert to_words(f"<!date^{STAMP + seconds}^{form}|?>", NAMES) == words


@given(st.text(alphabet=st.sampled_from("<>&;|`*_~\"'\n\\ @#!:/abxU1\ue000\ue0010=")))
def test_mrkdwn_never_lets_markup_through(text: str) -> None:
    for html in (str(to_html(text, NAMES)), str(plain_to_html(text))):
        for tag in re.findall(r"<[^>]*>", html):
            assert re.fullmatch(
                r'</?(strong|em|s|code|pre|blockquote|br|a|span|time)( (class="mention"|href="https?://[^"]*" target="_blank" rel="noopener noreferrer"|(datetime|title)="[^"]*"))?>',
                tag,
            ), (text, html)
        assert "\ue000" not in html or html == str(plain_to_html(text))


@pytest.mark.parametrize(
    ("typed", "stored"),
    [
        ("a < b & c", "a &lt; b &amp; c"),
        ("@ade and <@U0ADE>", f"<@{ADE}> and <@{ADE}>"),
        ("@platform in #agents @here", "<!subteam^S0PLATFORM> in <#C0AGENTS|agents> <!here>"),
        ("mail ade@x.org", "mail ade@x.org"),
        ("(https://x.org/a?b=1&c=2)", "(<https://x.org/a?b=1&amp;c=2>)"),
        ("<!channel> stays as the composer made it", "<!channel> stays as the composer made it"),
        ("<script>", "&lt;script&gt;"),
    ],
)
def test_compose_stores_as_slack_does(typed: str, stored: str) -> None:
    assert compose(seeded(lambda: 0.0), typed) == stored


def test_words_of_several_lines_stay_apart() -> None:
    assert to_words("One.\nTwo\n&gt; three\nfour", NAMES) == "One. Two three four"
