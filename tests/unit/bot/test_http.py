"""The HTTP client of those we talk to: what goes out, what came back, and what failed, in words."""

from __future__ import annotations

import asyncio
import gzip
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import certifi
import pytest
from aiohttp import web

import bot.http
from bot.http import MAX_BODY, NETWORK, NOT_SENT, HttpClient, clean, exact_url, retry_after, words
from tests.kit.certificates import certificate
from tests.kit.served import accepting, served
from tests.kit.until import until
from tests.unit.bot.ask.parties import NOW, RawServer, Writer


@pytest.fixture
async def client() -> AsyncIterator[HttpClient]:
    async with HttpClient("secret") as made:
        yield made


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("3", 3.0), ("0.25", 0.25), ("-3", 0.0), ("nan", None), ("soon", None), ("", None),
        ("Sun, 24 May 2026 14:22:21 GMT", 10.0), ("Sun, 24 May 2020 14:22:21 GMT", 0.0), ("1e9", 86400.0),
        ("Mon, 01 Jan 2026 00:00:00 +99999999999999999999", None),
    ],
)  # fmt: skip
def test_retry_after_reads_seconds_and_dates(value: str, seconds: float | None) -> None:
    assert retry_after({"retry-after": value}, NOW) == seconds


def test_clean_leaves_one_short_line() -> None:
    assert clean("a\x1b[31m\n\tb\u202e" + "x" * 300, 10) == "a [31m b x…"[:9] + "…"


def test_words_name_every_failure() -> None:
    assert words(aiohttp.SocketTimeoutError()) == "no answer within 10 s"
    assert words(aiohttp.ClientOSError(104, "reset")) == "the connection broke"
    assert words(ValueError("x")) == "ValueError"


async def test_request_sends_what_it_is_given_and_nothing_else(client: HttpClient) -> None:
    async def serve(_request: str, writer: Writer) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nX-Any: 1\r\n\r\nok")
        await writer.drain()

    async with RawServer(serve) as server:
        answer = await client.request("POST", f"{server.url}/x", b"{}", headers={"webhook-id": "1"})
    assert (answer.status, answer.headers["x-any"], answer.body) == (200, "1", b"ok")
    head, _, body = server.requests[0].partition("\r\n\r\n")
    first, *lines = head.split("\r\n")
    assert (first, body) == ("POST /x HTTP/1.1", "{}")
    assert {line.split(": ")[0].lower(): line.split(": ")[1] for line in lines} == {
        "host": server.url.removeprefix("http://"),
        "user-agent": "clarify-bot",
        "accept": "*/*",
        "accept-encoding": "identity",
        "authorization": "Bearer secret",
        "content-type": "application/json",
        "content-length": "2",
        "webhook-id": "1",
    }


@pytest.mark.parametrize(
    ("given", "sent"),
    [
        ("/a%40b%2Fc/%7e?y=%2Fz+1%20%7E&sig=A%2B%3d", "/a%40b%2Fc/%7e?y=%2Fz+1%20%7E&sig=A%2B%3d"),
        ("/a;b=c,d?x=[1]&y=(2)", "/a;b=c,d?x=[1]&y=(2)"),
        ("/é b?q=é<#part", "/%C3%A9%20b?q=%C3%A9%3C"),
        ("/100%?50%x", "/100%25?50%25x"),
        ("", "/"),
        ("?a=1", "/?a=1"),
    ],
)
async def test_urls_are_sent_as_they_are_written(client: HttpClient, given: str, sent: str) -> None:
    """Who made one may have signed it, letter by letter."""
    asked: list[str] = []

    async def handle(request: web.Request) -> web.Response:
        asked.append(request.raw_path)
        return web.Response()

    async with served(handle) as url:
        await client.request("GET", url + given)
    assert asked == [sent]


def test_urls_may_name_hosts_in_any_script() -> None:
    assert str(exact_url("https://müller.example/x")) == "https://xn--mller-kva.example/x"


async def test_redirects_cookies_and_the_environment_change_nothing(
    client: HttpClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".netrc").write_text("machine 127.0.0.1 login ann password hers")
    monkeypatch.setenv("NETRC", str(tmp_path / ".netrc"))
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    asked: list[web.Request] = []

    async def handle(request: web.Request) -> web.Response:
        asked.append(request)
        return web.Response(status=302, headers={"Location": "/there", "Set-Cookie": "seen=1; Path=/"})

    async with served(handle) as url, HttpClient(None) as nobody:
        for each in (client, client, nobody):
            assert (await each.request("GET", url)).status == 302
    assert [request.path for request in asked] == ["/", "/", "/"]
    assert not any("Cookie" in request.headers for request in asked)
    assert [request.headers.get("Authorization") for request in asked] == ["Bearer secret"] * 2 + [None]


async def test_bodies_are_read_as_sent_up_to_a_bound(client: HttpClient) -> None:
    """A few kilobytes that were compressed could become gigabytes."""
    bomb = gzip.compress(bytes(10_000_000))
    bodies = [bomb, bytes(MAX_BODY + 1)]

    async def handle(request: web.Request) -> web.Response:
        return web.Response(body=bodies.pop(0), headers={"Content-Encoding": "gzip"})

    async with served(handle) as url:
        assert (await client.request("GET", url)).body == bomb
        assert len((await client.request("GET", url)).body) == MAX_BODY


async def test_connections_are_used_again_and_closed(client: HttpClient) -> None:
    connections: list[Any] = []

    async def handle(request: web.Request) -> web.Response:
        connections.append(request.transport)
        return web.Response()

    async with served(handle) as url:
        await client.request("GET", url)
        await client.request("POST", url, b"{}")
        assert connections[0] is connections[1]
        assert not connections[0].is_closing()
        await client.close()
        assert client.is_closed
        await until(connections[0].is_closing)


async def test_headers_may_be_long(client: HttpClient) -> None:
    async def serve(_request: str, writer: Writer) -> None:
        writer.write(b"HTTP/1.1 204 No Content\r\nX-Policy: " + b"x" * 20_000 + b"\r\n\r\n")
        await writer.drain()

    async with RawServer(serve) as server:
        assert (await client.request("GET", server.url)).status == 204


@pytest.mark.parametrize("end", [b"", b"nonsense\r\n"])
async def test_what_came_before_a_connection_broke_can_be_read(client: HttpClient, end: bytes) -> None:
    """An agent that dies right after its question must have asked it: the minimal dialect sends nothing again."""
    opened = asyncio.Event()

    async def serve(_request: str, writer: Writer) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n7\r\ndata: 1\r\n")
        await opened.wait()
        writer.write(b"2\r\n\n\n\r\n" + end)
        await writer.drain()

    async with RawServer(serve) as server, client.stream("GET", server.url) as response:
        opened.set()
        content: aiohttp.StreamReader = response.read.args[0]  # type: ignore[attr-defined]
        await until(content.exception)
        assert await response.read() == b"data: 1\n\n"
        with pytest.raises(NETWORK) as failed:
            await response.read()
    assert words(failed.value) == "the connection ended in mid-answer, or what came is not HTTP"


async def test_certificates_are_checked_against_the_list_or_what_replaces_it(
    client: HttpClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bot.http, "_ssl_context", bot.http._ssl_context.__wrapped__)
    for name in ("SSL_CERT_FILE", "SSL_CERT_DIR"):
        monkeypatch.delenv(name, raising=False)
    theirs = ssl.create_default_context(cafile=certifi.where())
    assert bot.http._ssl_context().get_ca_certs() == theirs.get_ca_certs()

    async def serve(received: asyncio.StreamReader, sent: asyncio.StreamWriter) -> None:
        try:
            await received.readuntil(b"\r\n\r\n")
            sent.write(b"HTTP/1.1 204 No Content\r\n\r\n")
            await sent.drain()
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            sent.close()

    context = certificate(tmp_path, "localhost")
    async with accepting(serve, context=context) as port:
        url = f"https://localhost:{port}"
        with pytest.raises(NOT_SENT) as refused:
            await client.request("GET", url)
        assert "certificate verify failed" in words(refused.value).lower().replace("_", " ")
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "cert.pem"))
        async with HttpClient(None) as trusting:
            assert (await trusting.request("GET", url)).status == 204


async def silent(_request: str, _writer: Writer) -> None:
    await asyncio.Event().wait()


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("http://127.0.0.1:1/", "cannot connect to 127.0.0.1:1 (Connection refused)"),
        ("http://localhost:1/", "cannot connect to localhost:1 (Connection refused)"),
        ("ftp://agents.example/", "the address is neither http:// nor https://"),
        ("http://[", "the address is no URL"),
        ("/secret", "the address is no URL"),
        ("", "the address is no URL"),
    ],
)
async def test_what_was_never_sent_is_told_apart(client: HttpClient, url: str, said: str) -> None:
    with pytest.raises(NOT_SENT) as failed:
        await client.request("GET", url)
    assert isinstance(failed.value, NETWORK)
    assert words(failed.value) == said


async def test_headers_that_break_http_are_not_sent_and_not_quoted(client: HttpClient) -> None:
    async with RawServer(silent) as server:
        with pytest.raises(NOT_SENT) as failed:
            await client.request("GET", server.url, headers={"If-None-Match": "a\r\nX-Injected: 1"})
    assert words(failed.value) == "the request breaks HTTP (does the token hold a line end?)"
    assert failed.value.__suppress_context__
    assert server.requests == []


async def test_silence_is_bounded(client: HttpClient, monkeypatch: pytest.MonkeyPatch) -> None:
    async with RawServer(silent) as server:
        with pytest.raises(TimeoutError) as late:
            async with client.stream("POST", server.url, b"{}", silence=0.05):
                pass
        assert not isinstance(late.value, NOT_SENT)
        assert words(late.value) == "no answer within 10 s"
        monkeypatch.setattr(bot.http, "CONNECT_TIMEOUT", 0.05)
        with pytest.raises(NOT_SENT) as unconnected:
            async with client.stream("POST", server.url.replace("http", "https"), silence=7):
                pass
        assert words(unconnected.value) == "no connection within 0.05 s"
