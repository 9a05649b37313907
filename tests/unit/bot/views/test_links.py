"""Addresses that agents write, as an attacker would write them: which of them become links, where those lead, and in which
messages.
"""

from __future__ import annotations

import json
import re
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs

from bot.settings.model import ProducerSettings
from bot.views.blockkit import (
    Button,
    Context,
    Draft,
    Header,
    Items,
    Lines,
    Part,
    Rich,
    Run,
    Section,
    Words,
    code,
)
from bot.views.forms import full_view
from bot.views.page import page_card
from bot.views.render import NO_LINKS, Links, Renderer, find, links_by_producer
from core.clarification import Answer, Clarification, Decider, Question
from core.matching import followed_up
from core.transitions import amended, answered
from tests.kit.times import walk
from tests.unit.bot.judges import OURS, RENDERER, judge_message, judge_view
from tests.unit.bot.strategies import NOW, SLA, ask_of, open_records, record_of, settled_records
from tests.unit.bot.views.kit import about, content, drafts_of, windows_of

ACME = Links.of(["https://github.com/acme/*"])
PULL = "https://github.com/acme/shop/pull/7"
# "p" asks in these tests' records.
LINKING = Renderer(
    OURS,
    links_by_producer(
        [ProducerSettings(name="p", links=("https://github.com/acme/*",)), ProducerSettings(name="q")]
    ),
)


def within(links: Links, text: str) -> list[tuple[int, int, str]]:
    """What is linked to in a text."""
    return [(start, end, address) for start, end, address in links.judged(text) if address is not None]


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://github.com/acme/shop/pull/7", "https://github.com/acme/shop/pull/7"),
        ("https://github.com/acme/", "https://github.com/acme/"),
        ("https://github.com/acme/shop?a=1&b=/x", "https://github.com/acme/shop?a=1&b=/x"),
        ("https://github.com/acme/shop#L10-L20", "https://github.com/acme/shop#L10-L20"),
        ("https://github.com/acme/a%20b/%C3%A4", "https://github.com/acme/a%20b/%C3%A4"),
        ("https://github.com/acme//x", "https://github.com/acme//x"),
        ("https://github.com/acme/@evil.com", "https://github.com/acme/@evil.com"),
        ("HTTPS://GitHub.COM/acme/x", "https://github.com/acme/x"),
        ("https://github.com:443/acme/x", "https://github.com/acme/x"),
        ("https://github.com/acme/a/...", "https://github.com/acme/a/..."),
    ],
)
def test_address_on_the_list_is_shown_as_browsers_open_it(url: str, shown: str) -> None:
    assert ACME.allowed(url) == shown
    assert ACME.allowed(shown) == shown


REFUSED = [
    "",
    "https://",
    "https://github.com",
    "https://github.com/acme",
    "https://github.com/Acme/x",
    "https://github.com/acme-evil/x",
    "https://github.com/%61cme/x",
    "https://github.com/acme%2fx",
    "https://github.com//acme/x",
    "https://github.com/other/acme/x",
    "https://github.com/?/acme/x",
    "https://github.com/#/acme/x",
    "https://github.com.evil.com/acme/x",
    "https://evil.com/github.com/acme/x",
    "https://xgithub.com/acme/x",
    "https://github.com:8443/acme/x",
    "https://github.com:80/acme/x",
    "https://github.com:/acme/x",
    "https://github.com:0443x/acme/x",
    "https://github.com./acme/x",
    "https://github.com..evil.com/acme/x",
    "https://github%2ecom/acme/x",
    "https://github.com%2eevil.com/acme/x",
    "https://github.com%00.evil.com/acme/x",
    "http://github.com/acme/x",
    "javascript://github.com/acme/x",
    "//github.com/acme/x",
    "httpſ://github.com/acme/x",
    "https://github.com/acme/ı",
    "https:github.com/acme/x",
    "https:/github.com/acme/x",
    "https:///github.com/acme/x",
    "https:\\\\github.com/acme/x",
    "https://user@github.com/acme/x",
    "https://user:secret@github.com/acme/x",
    "https://github.com@evil.com/acme/x",
    "https://github.com:443@evil.com/acme/x",
    "https://github.com%40evil.com/acme/x",
    "https://github.com\\@evil.com/acme/x",
    "https://evil.com\\@github.com/acme/x",
    "https://github.com\\acme\\x",
    "https://github.com/acme\\..\\evil",
    "https://github.com/acme/../evil",
    "https://github.com/acme/..",
    "https://github.com/acme/./x",
    "https://github.com/acme/%2e%2e/evil",
    "https://github.com/acme/%2E./evil",
    "https://github.com/acme/%252e%252e/evil",
    "https://github.com/acme/%25252e%25252e/evil",
    "https://github.com/acme/..%2fevil",
    "https://github.com/acme/..%5cevil",
    "https://github.com/acme/x%2f..%2f..%2fevil",
    "https://github.com/acme/..;/evil",
    "https://github.com/acme/x y",
    "https://github.com/acme/x\tevil",
    "https://github.com/acme/x\nevil",
    "https://git\thub.com/acme/x",
    "ht\ntps://github.com/acme/x",
    "https://github.com/acme/x\x00",
    "https://github.com/acme/x\x7f",
    "https://github.com/acme/x|label",
    "https://github.com/acme/x<b>",
    "https://github.com/acme/x>",
    'https://github.com/acme/x"',
    "https://github.com/acme/x`",
    "https://github.com/acme/{x}",
    "https://github.com/acme/[x]",
    "https://github.com/acme/?q='a'",  # browsers escape it
    "https://github.com/acme/ä",
    "https://github.com/acme/x?ä",
    "https://github.com/acme/x#ä",
    "https://github.com/acme/x#a#b",
    "https://github.com/acme/\u202egnp.exe",
    "https://github.com/acme/x\u200b",
    "https://git\u200bhub.com/acme/x",  # nothing invisible, even where a browser leaves it out
    "https://git\u00adhub.com/acme/x",
    "https://ｇithub.com/acme/x",
    "https://gıthub.com/acme/x",
    "https://gіthub.com/acme/x",  # a Cyrillic letter
    "https://xn--gthub-n4a.com/acme/x",
    "https://github.com℀/acme/x",
    "https://github.com∕acme∕x",
    "https://github.com／acme／x",
    "https://github.com？/acme/x",
    "https://[::1]/acme/x",
    "https://[2606:50c0:8000::154]/acme/x",
    "https://140.82.121.4/acme/x",
    "https://2354184708/acme/x",
    "https://localhost/acme/x",
    " https://github.com/acme/x",
    "https://github.com/acme/x ",
    "https://github.com/acme/https://github.com/acme/x\ud800",
    "https://github.com/acme/" + "x" * 2000,
    "https://github.com/acme/%" + "25" * 200_000,  # decoding it again and again would take minutes
    "https://github.com/acme/#" + "x" * 2000,
    "https://github.com/acme/?" + "'" * 900,
    "https://" + "a." * 900 + "com/acme/x",
]


@pytest.mark.parametrize("url", REFUSED)
def test_address_off_the_list_or_with_two_readings_is_no_link(url: str) -> None:
    assert ACME.allowed(url) is None


@pytest.mark.parametrize(
    ("pattern", "url", "fits"),
    [
        ("https://docs.acme.com/*", "https://docs.acme.com/", True),
        ("https://docs.acme.com/*", "https://docs.acme.com", True),
        ("https://docs.acme.com/*", "https://www.docs.acme.com/", False),
        ("https://docs.acme.com/*", "https://docs.acme.com?a", False),  # browsers add a slash
        ("https://docs.acme.com", "https://docs.acme.com/", True),
        ("https://docs.acme.com", "https://docs.acme.com/a", False),
        ("https://docs.acme.com/a", "https://docs.acme.com/a?b#c", True),
        ("https://docs.acme.com/a", "https://docs.acme.com/ab", False),
        ("https://docs.acme.com/a", "https://docs.acme.com/a/", False),
        ("https://docs.acme.com:8443/*", "https://docs.acme.com:8443/a", True),
        ("https://docs.acme.com:8443/*", "https://docs.acme.com/a", False),
        ("https://wiki/*", "https://wiki/a", True),
        ("https://bücher.example/*", "https://bücher.example/a", False),  # agents write punycode
        ("https://bücher.example/*", "https://xn--bcher-kva.example/a", True),
        ("https://BÜCHER.example/*", "https://XN--BCHER-kva.example/a", True),
        ("https://bücher.example/*", "https://bucher.example/a", False),
    ],
)
def test_list_counts_host_and_port_exactly_and_the_path_to_its_star(
    pattern: str, url: str, *, fits: bool
) -> None:
    shown = Links.of([pattern]).allowed(url)
    assert (shown is not None) == fits
    assert shown in (None, url, url.lower())


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        ("http://github.com/acme/*", "expected https://"),
        ("github.com/acme/*", "expected a URL with https:// and a host"),
        ("https://*.github.com/*", 'expected a host without "*"'),
        ("https://*/*", 'expected a host without "*"'),
        ("https://github.com*/acme", 'expected a host without "*"'),
        ("https://github.com/acme*", 'expected "*" only at the end, after a "/"'),
        ("https://github.com/*/shop", 'expected "*" only at the end, after a "/"'),
        ("https://github.com/**", 'expected "*" only at the end, after a "/"'),
        ("https://github.com/acme/*?a", "expected a URL without ? and #"),
        ("https://github.com/acme/*#a", "expected a URL without ? and #"),
        ("https://github.com/acme/../*", "expected a path without . and .. segments"),
        ("https://ann@github.com/*", "without a user name"),
        ("https://10.0.0.5/*", "expected the name of a host, not an IP address"),
        ("https://[::1]/*", "expected the name of a host, not an IP address"),
        ("https://localhost/*", "expected the name of a host, not an IP address or localhost"),
        ("", "expected a URL with https:// and a host"),
    ],
)
def test_entry_that_would_allow_too_much_or_nothing_is_a_mistake(entry: str, expected: str) -> None:
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - pydantic's, too
        Links.of([entry])
    assert expected in str(caught.value)
    with pytest.raises(ValueError) as refused:  # noqa: PT011
        ProducerSettings.model_validate({"name": "a", "links": ["https://github.com/acme/*", entry]})
    assert expected in str(refused.value)
    assert "links.1" in str(refused.value)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("https://a.example/x", ["https://a.example/x"]),
        ("See https://a.example/x.", ["https://a.example/x"]),
        ("See (https://a.example/x).", ["https://a.example/x"]),
        ("Is it [https://a.example/x]?!", ["https://a.example/x"]),
        ("https://a.example/wiki/A_(b)", ["https://a.example/wiki/A_(b)"]),
        ("(https://a.example/wiki/A_(b))", ["https://a.example/wiki/A_(b)"]),
        ("“https://a.example/x”, «https://a.example/y»", ["https://a.example/x", "https://a.example/y"]),
        ("<https://a.example/x>", ["https://a.example/x"]),
        ("请看https://a.example/x。谢谢", ["https://a.example/x"]),
        ("\u2067שלום https://a.example/x\u2069", ["https://a.example/x"]),
        (
            "HTTPS://A.example/x\nhttps://b.example/?a=b,c;",
            ["HTTPS://A.example/x", "https://b.example/?a=b,c"],
        ),
        ("*https://a.example/x* and _https://a.example/y_!", ["https://a.example/x", "https://a.example/y"]),
        ("https://a.example/?u=https://b.example/", ["https://a.example/?u=https://b.example/"]),
        ("https://a.example/x|https://b.example/y", ["https://a.example/x|https://b.example/y"]),
        ("https://a.example\\@b.example/x", ["https://a.example\\@b.example/x"]),
        ("xhttps://a.example/ git+https://a.example/ http://a.example/ https:// https://.", []),
    ],
)
def test_addresses_are_found_where_readers_see_them_end(text: str, found: list[str]) -> None:
    assert [url for _, _, url in find(text)] == found
    assert all(text[start:end] == url for start, end, url in find(text))


@pytest.mark.parametrize("after", ["…", " …", "\n… 1204 more characters …\n", "\u2069…"])
def test_address_at_which_a_text_was_cut_is_left_out(after: str) -> None:
    assert within(ACME, f"See https://github.com/acme/shop{after}") == []


def test_only_what_is_allowed_is_linked_and_approved_text_only_as_it_is() -> None:
    text = "Merge HTTPS://github.com/acme/shop/pull/7? Not https://github.com/acme-evil/x, https://evil.com."
    assert within(ACME, text) == [(6, 41, "https://github.com/acme/shop/pull/7")]
    exact = replace(ACME, exact=True)
    assert within(exact, text) == []
    assert within(exact, text.lower()) == [(6, 41, "https://github.com/acme/shop/pull/7")]


SAFE = re.compile(r"[A-Za-z0-9\-._~!$&'()*+,;=:@%/?#]+")
ODD = [
    *"/\\@:?#.%&;|<>()[]'\"` \t\n*_~,",
    "..",
    "%2e",
    "%2f",
    "%5c",
    "%25",
    "\u200b",
    "\u202e",
    "。",
    "ı",
    "é",
]
WORDS = ["https://", "HTTPS://", "http://", "github.com", "evil.com", "acme", "user", "443", "8443", "xn--"]
TEXTS = st.one_of(st.text(), st.lists(st.sampled_from([*WORDS, *ODD]), max_size=14).map("".join))
LIKELY = st.lists(st.sampled_from([*WORDS, *ODD]), max_size=8).map("".join)


@given(
    st.one_of(TEXTS, LIKELY.map("https://github.com/acme/".__add__), LIKELY.map("https://github.com".__add__))
)
def test_link_always_leads_below_its_list_and_is_its_own_spelling(url: str) -> None:
    if (shown := ACME.allowed(url)) is not None:
        assert shown.startswith("https://github.com/acme/")
        assert SAFE.fullmatch(shown)
        assert len(shown) <= len(url)
        assert ACME.allowed(shown) == shown


def test_browsers_open_a_link_as_it_is_shown(node_program: Path) -> None:
    """Node reads addresses as browsers do (WHATWG URL)."""
    tails = [
        f"{a}{b}{c}"
        for a in ("", "/acme/x", "acme/")
        for b in ODD
        for c in ("", "/evil", "evil.com/acme/x", "..")
    ]
    given = [f"https://github.com/acme/{tail}" for tail in tails] + [
        f"https://github.com{tail}" for tail in tails
    ]
    allowed = [(url, shown) for url in given if (shown := ACME.allowed(url)) is not None]
    script = (
        "console.log(JSON.stringify(JSON.parse(require('fs').readFileSync(0)).map((u) => new URL(u).href)))"
    )
    ran = subprocess.run(
        [node_program, "-e", script],
        input=json.dumps([each for pair in allowed for each in pair]),
        capture_output=True,
        text=True,
        check=True,
    )
    opened = json.loads(ran.stdout)
    assert len(allowed) > 100
    assert opened == [shown for pair in allowed for shown in (pair[1], pair[1])]


def links(payload: Any) -> list[str]:
    """Where the links of a message or view lead."""
    return [each["url"] for each in walk(payload) if each.get("type") == "link"]


def text_of(payload: Any) -> str:
    """All that it shows, links included."""
    return "".join(
        str(each.get("text", each.get("url", "")))
        for each in walk(payload)
        if isinstance(each.get("text", ""), str)
    )


def laid_out(part: Part, rule: Links = ACME) -> Any:
    return Renderer(OURS, lambda _: rule).message(Draft("x", "x", (part,), asked=Question())).blocks


def linked_runs(*runs: Run) -> Any:
    return laid_out(Rich((Lines(runs),)))[0]["elements"][0]["elements"]


def test_plain_text_with_an_address_is_rich_text_around_a_link() -> None:
    (block,) = laid_out(Section(Words(f"Merge {PULL}?\nSee https://evil.com")))
    assert block["type"] == "rich_text"
    assert block["elements"] == [
        {
            "type": "rich_text_section",
            "elements": [
                {"type": "text", "text": "Merge "},
                {"type": "link", "url": PULL},
                {"type": "text", "text": "?\nSee https://evil.com"},
            ],
        }
    ]


@pytest.mark.parametrize(
    "part",
    [
        Section(Words("See https://evil.com")),
        Section(Words(f"See {PULL}", live=True)),
        Section(Words(f"See {PULL}"), Button("View full", "view", "x")),
        Section(Words(f"See {PULL}"), fields=(Words("x"),)),
        Header(PULL),
        code(PULL),
        Rich((Lines((Run(PULL),), "preformatted"),)),
        Context((Words("small"), Words(PULL, live=True))),
    ],
)
def test_nothing_else_changes(part: Part) -> None:
    assert laid_out(part) == laid_out(part, NO_LINKS)
    assert links(laid_out(part)) == []


def test_small_print_with_an_address_becomes_text_with_a_link() -> None:
    words = ("one", "two", f"Context: {PULL}", "three")
    blocks = laid_out(Context(tuple(map(Words, words))))
    assert [block["type"] for block in blocks] == ["context", "rich_text", "context"]
    assert text_of(blocks) == "".join(words)


def test_links_in_lists_and_quotes_keep_their_style() -> None:
    bold = frozenset({"bold"})
    run = Run(f"See {PULL}", bold)
    for part in (Rich((Items(((run,), (Run("x"),))),)), Rich((Lines((run,), "quote"),))):
        found = [each for each in walk(laid_out(part)) if each.get("type") == "link"]
        assert found == [{"type": "link", "url": PULL, "style": {"bold": True}}]


@pytest.mark.parametrize(
    "runs",
    [
        (Run(PULL, frozenset({"code"})),),
        (Run("https://github.com/acme/"), Run("x", frozenset({"bold"})), Run("evil")),
        (Run(PULL), Run("@evil.com", frozenset({"italic"}))),
        (Run(PULL), Run("\\@evil.com", frozenset({"code"}))),
        (Run("git+"), Run(PULL, frozenset({"bold"}))),
    ],
)
def test_address_in_code_or_several_styles_stays_text(runs: tuple[Run, ...]) -> None:
    assert linked_runs(*runs) == [
        {"type": "text", "text": run.text} | ({"style": run.style} if run.styles else {}) for run in runs
    ]


def test_message_has_a_hundred_links_at_most() -> None:
    many = " ".join(f"https://github.com/acme/{n}" for n in range(90))
    blocks = (
        Renderer(OURS, lambda _: ACME)
        .message(Draft("x", "x", (Section(Words(many)), Section(Words(many))), asked=Question()))
        .blocks
    )
    assert links(blocks) == [f"https://github.com/acme/{n}" for n in (*range(90), *range(10))]
    assert text_of(blocks) == many * 2


def of(**changes: Any) -> list[str]:
    """The links of a card, under another producer's name or state."""
    record = record_of(question=f"Merge {PULL}?")
    record = amended(record, **changes)
    return links(LINKING.card(record).blocks)


def test_what_counts_is_the_producer_that_asked() -> None:
    assert of() == [PULL]
    assert of(agent_id="q", agent_name="q") == [PULL]
    assert of(producer="q") == []
    assert of(producer="q", agent_id="p", agent_name="p") == []
    assert of(producer=None) == []
    assert of(reply_token=None) == []  # another program wrote it into the ledger
    assert links(RENDERER.card(record_of(question=f"Merge {PULL}?")).blocks) == []


def test_each_round_has_the_rule_of_its_producer() -> None:
    """Another implementation may change what it likes."""
    event = {
        "type": "aaep:agent.awaiting.clarification",
        "event_id": "evt_2",
        "session_id": "sess_1",
        "timestamp": "2026-05-24T14:22:00Z",
        "producer": {"agent_id": "retirement-planner"},
        "reply_token": "rpl_2",
        "question": f"Then merge {PULL}?",
    }
    by = Decider("user:slack/T1/U0GOOD", "slack", "T1", "U0GOOD")
    record = answered(record_of("Merging", question=f"Merge {PULL}?"), Answer("Yes", "Yes"), by, NOW)
    record = followed_up(record, ask_of(event), NOW, SLA)
    changed = amended(record, producer="q")
    assert links(LINKING.card(record).blocks) == [PULL]
    assert links(LINKING.card(changed).blocks) == []
    assert links(LINKING.card(changed, round=1).blocks) == [PULL]


@pytest.mark.parametrize("text", [PULL, "https://a.bc/ ", "https://github.com/acme/x " * 4])
def test_p8_largest_question_full_of_addresses_fits_everywhere(text: str) -> None:
    everything = Renderer(OURS, lambda _: Links.of(["https://github.com/acme/*", "https://a.bc/*"]))
    record = record_of(
        question=(text + "\n") * (16_000 // len(text)), context=(text + " ") * (4000 // len(text))
    )
    with capture_logs() as logs:
        assert links(everything.card(record).blocks)
        assert links(everything.answer_modal(record))
        assert links(everything.view(full_view(record)))
        assert links(everything.message(page_card(content(about(record)))).blocks)
    assert logs == []


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(open_records() | settled_records())
def test_p8_nothing_an_agent_says_leads_outside_its_list(record: Clarification) -> None:
    messages = list(map(LINKING.message, drafts_of(record)))
    for message in messages:
        judge_message(message)  # also that no mrkdwn, which Slack reads, has a link
    views = list(windows_of(record, LINKING))
    for view in views:
        judge_view(view)
    for address in links([[message.blocks for message in messages], views]):
        assert ACME.allowed(address) == address
