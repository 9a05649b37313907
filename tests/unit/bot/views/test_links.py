"""Addresses that agents write, as an attacker would write them: which of them become links, and where those lead."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.settings.model import ProducerSettings
from bot.views.links import NO_LINKS, Links, find
from tests.kit.node import node_program

__all__ = ["node_program"]
ACME = Links.of(["https://github.com/acme/*"])


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
        (
            "https://ｇithub.com/acme/x",
            "https://github.com/acme/x",
        ),  # browsers read it so; it is shown as read
        ("https://github.com/acme/?q='a'", "https://github.com/acme/?q=%27a%27"),
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
    "https://github.com/acme/ä",
    "https://github.com/acme/x?ä",
    "https://github.com/acme/x#ä",
    "https://github.com/acme/x#a#b",
    "https://github.com/acme/\u202egnp.exe",
    "https://github.com/acme/x\u200b",
    "https://git\u200bhub.com/acme/x",  # nothing invisible, even where a browser leaves it out
    "https://git\u00adhub.com/acme/x",
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
        ("https://docs.acme.com", "https://docs.acme.com/", True),
        ("https://docs.acme.com", "https://docs.acme.com/a", False),
        ("https://docs.acme.com/a", "https://docs.acme.com/a?b#c", True),
        ("https://docs.acme.com/a", "https://docs.acme.com/ab", False),
        ("https://docs.acme.com/a", "https://docs.acme.com/a/", False),
        ("https://docs.acme.com:8443/*", "https://docs.acme.com:8443/a", True),
        ("https://docs.acme.com:8443/*", "https://docs.acme.com/a", False),
        ("https://wiki/*", "https://wiki/a", True),
        ("https://bücher.example/*", "https://BÜCHER.example/a", True),
        ("https://bücher.example/*", "https://xn--bcher-kva.example/a", True),
        ("https://xn--bcher-kva.example/*", "https://bücher.example/a", True),
        ("https://bücher.example/*", "https://bu\u0308cher.example/a", True),
        ("https://bücher.example/*", "https://bucher.example/a", False),
    ],
)
def test_list_counts_host_and_port_exactly_and_the_path_to_its_star(
    pattern: str, url: str, *, fits: bool
) -> None:
    shown = Links.of([pattern]).allowed(url)
    assert (shown is not None) == fits
    assert shown is None or shown.isascii()


def test_nothing_is_a_link_without_a_list() -> None:
    assert NO_LINKS.allowed("https://github.com/acme/x") is None
    assert list(NO_LINKS.pieces("https://github.com/acme/x")) == [("https://github.com/acme/x", False)]


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        ("http://github.com/acme/*", "expected https://"),
        ("github.com/acme/*", "expected a URL with https:// and a host"),
        ("https://*.github.com/*", "expected a host name"),
        ("https://*/*", "expected a host name"),
        ("https://github.com*/acme", "expected a host name"),
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
        ("*https://a.example/x* and _https://a.example/y_…", ["https://a.example/x", "https://a.example/y"]),
        ("https://a.example/?u=https://b.example/", ["https://a.example/?u=https://b.example/"]),
        ("https://a.example/x|https://b.example/y", ["https://a.example/x|https://b.example/y"]),
        ("https://a.example\\@b.example/x", ["https://a.example\\@b.example/x"]),
        ("xhttps://a.example/ git+https://a.example/ http://a.example/ https:// https://.", []),
    ],
)
def test_addresses_are_found_where_readers_see_them_end(text: str, found: list[str]) -> None:
    assert [url for _, _, url in find(text)] == found
    assert all(text[start:end] == url for start, end, url in find(text))


def test_pieces_link_only_what_is_allowed() -> None:
    text = "Merge HTTPS://github.com/acme/shop/pull/7? Not https://github.com/acme-evil/x, https://evil.com."
    assert list(ACME.pieces(text)) == [
        ("Merge ", False),
        ("https://github.com/acme/shop/pull/7", True),
        ("? Not https://github.com/acme-evil/x, https://evil.com.", False),
    ]


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
        assert shown.isascii()
        assert shown.isprintable()
        assert " " not in shown
        assert ACME.allowed(shown) == shown


@given(st.one_of(TEXTS, LIKELY.map("See https://github.com/acme/x".__add__)))
def test_pieces_lose_nothing_of_a_text(text: str) -> None:
    at = 0
    for piece, is_link in ACME.pieces(text):
        assert piece
        if is_link:
            _, end, url = next(each for each in find(text) if each[0] == at)
            assert piece == ACME.allowed(url)
            at = end
        else:
            assert text.startswith(piece, at)
            at += len(piece)
    assert at == len(text)


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
    assert opened[1::2] == [shown for _, shown in allowed]
    assert [each.replace("'", "%27") if "?" in each else each for each in opened[0::2]] == opened[1::2]
