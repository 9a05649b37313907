"""Callback URLs and the addresses behind their hosts, as an attacker would write them."""

from __future__ import annotations

import pytest

from bot.settings.addresses import callback_url, link_url, may_be_called, reach
from bot.settings.model import ProducerSettings


@pytest.mark.parametrize(
    ("given", "read"),
    [
        ("https://api.trigger.dev/a?b=c", "https://api.trigger.dev/a?b=c"),
        ("HTTPS://API.Trigger.DEV", "https://api.trigger.dev/"),
        ("https://api.trigger.dev:443/a", "https://api.trigger.dev/a"),
        ("https://n8n.internal:8443/a%20b/", "https://n8n.internal:8443/a%20b/"),
        ("http://127.0.0.1:5678/a", "http://127.0.0.1:5678/a"),
        ("http://[::1]:80/a", "http://[::1]/a"),
        ("https://[2606:4700:0:0::1]/a", "https://[2606:4700::1]/a"),
        ("https://bücher.example/a", "https://xn--bcher-kva.example/a"),
        ("https://BÜCHER.example/a", "https://xn--bcher-kva.example/a"),
        ("https://10.0.0.5/a", "https://10.0.0.5/a"),
    ],
)
def test_callback_url_has_one_spelling(given: str, read: str) -> None:
    assert callback_url(given).text == read
    assert callback_url(read).text == read


@pytest.mark.parametrize(
    "given",
    [
        "",
        "ftp://api.trigger.dev/",
        "//api.trigger.dev/",
        "https:///a",
        "https:api.trigger.dev/",
        "http://api.trigger.dev/a",  # unencrypted
        "http://10.0.0.5/a",
        "https://user@api.trigger.dev/",
        "https://user:secret@api.trigger.dev/",
        "https://api.trigger.dev@evil.example/",
        "https://api.trigger.dev\\@evil.example/",
        "https://api.trigger.dev/#a",
        "https://api.trigger.dev/a b",
        "https://api.trigger.dev/a\nHost: evil",
        "https://api.trigger.dev/\r\n",
        " https://api.trigger.dev/",
        "https://api.trigger.dev:0/",
        "https://api.trigger.dev:65536/",
        "https://api.trigger.dev:/",
        "https://api.trigger.dev:443x/",
        "https://api.trigger.dev./",  # another name for TLS
        "https://.trigger.dev/",
        "https://*.trigger.dev/",
        "https://api%2etrigger.dev/",
        "https://localhost/",
        "https://a.localhost/",
        "http://localhost:5678/",
        "https://ⓛocalhost/",
        "https://2130706433/",  # 127.0.0.1, as resolvers read it
        "https://0x7f.1/",
        "https://127.1/",
        "https://0177.0.0.1/",
        "https://127.0.0.01/",
        "https://169.254.169.254/latest/meta-data",
        "https://0.0.0.0/",
        "https://[::]/",
        "https://[fe80::1]/",
        "https://[fe80::1%25eth0]/",
        "https://[::ffff:127.0.0.1]/",
        "http://[::ffff:127.0.0.1]/",
        "https://[::ffff:169.254.169.254]/",
        "https://[64:ff9b::7f00:1]/",
        "https://[2002:7f00:1::]/",
        "https://[1.2.3.4]/",
        "https://api.trigger.dev/a/../b",
        "https://api.trigger.dev/a/%2e%2E/b",
        "https://api.trigger.dev/a/%252e%252e/b",
        "https://api.trigger.dev/a/..%2fb",
        "https://api.trigger.dev/a/..;x/b",
        "https://api.trigger.dev/a/..%5cb",
        "https://api.trigger.dev/a/..%20/b",
        "https://api.trigger.dev/a/..%00/b",
        "https://api.trigger.dev/a/..%00x/b",
        "https://api.trigger.dev/a/.%0d%0a./b",
        "https://api.trigger.dev/a/%c0%ae%c0%ae/b",  # "." in too many bytes
        "https://api.trigger.dev/a/%ef%bc%8e%ef%bc%8e/b",  # wide ones
        "https://api.trigger.dev/a/%e2%80%a5/b",  # one character
        "https://api.trigger.dev/a/..%ef%bc%8fb",  # a wide slash
        "https://api.trigger.dev/a/%u002e%u002e/b",
        "https://api.trigger.dev/a%zz",
        "https://api.trigger.dev/a?b=100%",
        "https://api.trigger.dev/ä",
        "https://api.trigger.dev/ı",  # "i" and "s", where case does not count
        "httpſ://api.trigger.dev/",
        f"https://api.trigger.dev/{'a' * 2000}",
    ],
)
def test_callback_url_that_can_be_read_in_two_ways_is_refused(given: str) -> None:
    with pytest.raises(ValueError, match=r"^expected") as caught:
        callback_url(given)
    assert "trigger" not in str(caught.value)


@pytest.mark.parametrize(
    ("url", "pattern", "fits"),
    [
        ("https://api.trigger.dev/v1/a", "https://api.trigger.dev/*", True),
        ("https://api.trigger.dev/v1/a?x=1&y=/z", "https://api.trigger.dev/v1/*", True),
        ("https://api.trigger.dev/v1/a/done", "https://api.trigger.dev/*/a/*", True),
        ("https://api.trigger.dev/v1/aa/done", "https://api.trigger.dev/v1/*a/done", True),
        ("https://api.trigger.dev/v2/a", "https://api.trigger.dev/v1/*", False),
        ("https://api.trigger.dev/v1", "https://api.trigger.dev/v1/*", False),
        ("https://api.trigger.dev/done", "https://api.trigger.dev/done", True),
        ("https://api.trigger.dev/done/", "https://api.trigger.dev/done", False),
        ("https://api.trigger.dev/ab", "https://api.trigger.dev/ab*b", False),
        ("https://api.trigger.dev/a", "https://api.trigger.dev", False),
        ("https://api.trigger.dev:8443/a", "https://api.trigger.dev/*", False),
        ("https://api.trigger.dev/a", "https://api.trigger.dev:8443/*", False),
        ("https://api.trigger.dev.evil.example/a", "https://api.trigger.dev/*", False),
        ("https://trigger.dev/a", "https://api.trigger.dev/*", False),
        ("https://127.0.0.1/a", "http://127.0.0.1/*", False),
        ("https://xn--bcher-kva.example/a", "https://bücher.example/*", True),
    ],
)
def test_list_counts_scheme_host_and_port_exactly(url: str, pattern: str, fits: bool) -> None:
    assert callback_url(url).fits(callback_url(pattern)) == fits


@pytest.mark.parametrize(
    ("address", "reached"),
    [
        ("8.8.8.8", "public"),
        ("2606:4700::1", "public"),
        ("10.1.2.3", "private"),
        ("172.31.0.1", "private"),
        ("192.168.0.1", "private"),
        ("100.64.0.1", "private"),
        ("fd00::1", "private"),
        ("fd00:ec2::254", "never"),  # AWS
        ("fd00:ec2::23", "never"),
        ("fd20:ce::254", "never"),  # Google
        ("100.100.100.200", "never"),  # Alibaba
        ("168.63.129.16", "never"),  # Azure
        ("192.0.0.192", "never"),  # Oracle
        ("::ffff:100.100.100.200", "never"),
        ("64:ff9b::a83f:8110", "never"),
        ("127.0.0.1", "loopback"),
        ("127.8.8.8", "loopback"),
        ("::1", "loopback"),
        ("169.254.169.254", "never"),
        ("fe80::1", "never"),
        ("fe80::1%eth0", "never"),
        ("2606:4700::1%eth0", "never"),
        ("fec0::1", "never"),
        ("0.0.0.0", "never"),
        ("::", "never"),
        ("224.0.0.1", "never"),
        ("ff02::1", "never"),
        ("255.255.255.255", "never"),
        ("240.0.0.1", "never"),
        ("192.0.2.1", "never"),
        ("192.88.99.1", "never"),
        ("2001:db8::1", "never"),
        ("3fff::1", "never"),
        ("192.0.0.9", "never"),
        ("4000::1", "never"),  # not given out
        ("::1:7f00:1", "never"),
        ("fe00::1", "never"),
        ("2001:4:112::1", "never"),
        ("2001:0:4136:e378:8000:63bf:3fff:fdd2", "never"),  # Teredo
        ("::ffff:8.8.8.8", "public"),  # mapped
        ("::ffff:10.0.0.1", "private"),
        ("::ffff:127.0.0.1", "never"),
        ("::ffff:169.254.169.254", "never"),
        ("::127.0.0.1", "never"),  # compatible
        ("::10.0.0.1", "private"),
        ("::ffff:0:8.8.8.8", "public"),  # translated
        ("::ffff:0:127.0.0.1", "never"),
        ("::ffff:0:169.254.169.254", "never"),
        ("64:ff9b:0:0:0:1:7f00:1", "never"),
        ("64:ff9b::808:808", "public"),  # NAT64
        ("64:ff9b::a00:1", "private"),
        ("64:ff9b::7f00:1", "never"),
        ("64:ff9b::a9fe:a9fe", "never"),
        ("64:ff9b:1::808:808", "never"),  # NAT64 of a network of its own
        ("2002:808:808::1", "public"),  # 6to4
        ("2002:a00:1::1", "private"),
        ("2002:7f00:1::1", "never"),
        ("2002:a9fe:a9fe::1", "never"),
    ],
)
def test_address_reaches_no_more_than_what_it_holds(address: str, reached: str) -> None:
    assert reach(address) == reached
    assert may_be_called(address, private=False) == (reached == "public")
    assert may_be_called(address, private=True) == (reached in {"public", "private"})


@pytest.mark.parametrize(
    ("entry", "wrong"),
    [
        ("https://api.trigger.dev/*?a", "without"),
        ("https://*.trigger.dev/*", "host"),
        ("https://10.0.0.5/*", "private"),
        ({"url": "https://10.0.0.5/*", "private": False}, "private"),
        ("http://n8n.internal/*", "https"),
        ("https://localhost:5678/*", "127.0.0.1"),
        ({"url": "https://n8n.internal/*", "open": True}, "open"),
    ],
)
def test_entry_that_allows_nothing_safe_is_a_mistake(entry: object, wrong: str) -> None:
    with pytest.raises(ValueError, match=wrong):
        ProducerSettings.model_validate({"name": "a", "callbacks": [entry]})


def test_only_the_host_of_a_url_is_in_its_representation() -> None:
    shown = repr(link_url("https://hooks.acme.example/s3cret?key=s3cret#s3cret"))
    assert "hooks.acme.example" in shown
    assert "s3cret" not in shown


def test_entry_may_be_a_string_or_a_table() -> None:
    given = ["https://api.trigger.dev/*", {"url": "https://10.0.0.5/*", "private": True}]
    read = ProducerSettings.model_validate({"name": "a", "callbacks": given})
    assert [(each.url, each.private) for each in read.callbacks] == [
        ("https://api.trigger.dev/*", False),
        ("https://10.0.0.5/*", True),
    ]
