"""Endpoints as responders: a real server on this machine."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import logging
import socket
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest
import structlog
from aiohttp import web
from pydantic import SecretStr

from bot.responders.http import MOST, HttpResponder
from core.aaep import Kind
from core.dispatch import Inquiry
from core.errors import AgentError
from tests.clocks import until

TOKEN = "t0p-s3cret-token"
LONG = timedelta(seconds=60)
PLAIN, JSON = "text/plain; charset=utf-8", "application/json"


class Endpoint:
    """An agent's server; `then` makes the responses."""

    def __init__(self) -> None:
        self.requests: list[web.Request] = []
        self.bodies: list[Any] = []
        self.gone = 0
        self.status, self.body, self.type = 200, b'{"answer": "JSON"}', JSON
        self.headers: dict[str, str] = {}
        self.hangs, self.dribbles = False, False
        self.url = ""

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.requests.append(request)
        self.bodies.append(await request.json() if request.can_read_body else None)
        if self.hangs:
            await self._hang()
        headers = {"Content-Type": self.type, **self.headers}
        if not self.dribbles:
            return web.Response(status=self.status, body=self.body, headers=headers)
        response = web.StreamResponse(headers=headers)
        await response.prepare(request)
        await response.write(b'{"ans')
        await self._hang()
        return response

    async def _hang(self) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            self.gone += 1

    def responder(
        self, timeout: timedelta = LONG, token: str | None = TOKEN, path: str = "/ask"
    ) -> HttpResponder:
        return HttpResponder(self.url + path, None if token is None else SecretStr(token), timeout)


@pytest.fixture
async def endpoint() -> AsyncIterator[Endpoint]:
    found = Endpoint()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", found.handle)
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    found.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    yield found
    await runner.cleanup()


async def test_http_posts_json_with_the_token(endpoint: Endpoint, inquiry: Inquiry) -> None:
    assert await endpoint.responder().answer(inquiry) == "JSON"
    (request,) = endpoint.requests
    assert (request.method, request.path) == ("POST", "/ask")
    assert request.headers["Authorization"] == f"Bearer {TOKEN}"
    assert request.headers["Content-Type"] == "application/json"
    assert endpoint.bodies == [inquiry.as_json()]


async def test_http_without_a_token(endpoint: Endpoint, inquiry: Inquiry) -> None:
    assert await endpoint.responder(token=None).answer(inquiry) == "JSON"
    assert "Authorization" not in endpoint.requests[0].headers


@pytest.mark.parametrize(
    ("sent", "kinds", "answer"),
    [
        ((JSON, b'{"answer": " JSON "}'), ("freetext",), " JSON "),
        ((JSON + "; charset=utf-8", b'\xef\xbb\xbf{"answer": "JSON", "more": 1}'), ("freetext",), "JSON"),
        ((JSON, b'{"answer": true}'), ("yes_no",), "yes"),
        ((JSON, b'{"answer": false}'), ("yes_no",), "no"),
        ((JSON, b'{"answer": 1200}'), ("numeric",), "1200"),
        ((JSON, b'{"answer": 1.234}'), ("numeric",), "1.2340"),
        ((JSON, b'{"answer": 1.234}'), ("freetext",), "1.234"),
        ((PLAIN, "süß\n".encode()), ("freetext",), "süß"),
        (("Text/Plain", b"JSON"), ("freetext",), "JSON"),
    ],
)
async def test_http_answers(
    endpoint: Endpoint, inquiry: Inquiry, sent: tuple[str, bytes], kinds: tuple[Kind, ...], answer: str
) -> None:
    endpoint.type, endpoint.body = sent
    assert await endpoint.responder().answer(dataclasses.replace(inquiry, kinds=kinds)) == answer


NO_ANSWER = 'gave JSON without "answer": a string, number or boolean'


@pytest.mark.parametrize(
    ("sent", "message"),
    [
        ((500, JSON, b'{"answer": "JSON"}'), "answered HTTP 500"),
        ((404, PLAIN, b"not here"), "answered HTTP 404"),
        ((401, PLAIN, b""), "refuses our token (HTTP 401)"),
        ((204, JSON, b""), "gave no answer: the response is empty"),
        ((200, PLAIN, b" \n"), "gave no answer: the response is empty"),
        ((200, JSON, b'{"answer": " "}'), "gave no answer: it is empty"),
        ((200, "text/html", b"<p>JSON</p>"), "gave an answer that is not application/json or text/plain"),
        ((200, PLAIN, b"caf\xe9"), "gave an answer that is not UTF-8"),
        ((200, JSON, b"{"), NO_ANSWER),
        ((200, JSON, b"[" * 5000), NO_ANSWER),
        ((200, JSON, b'"JSON"'), NO_ANSWER),
        ((200, JSON, b'{"answer": null}'), NO_ANSWER),
        ((200, JSON, b'{"answer": NaN}'), NO_ANSWER),
        ((200, JSON, b'{"answer": 1e999}'), NO_ANSWER),
        ((200, JSON, b'{"answer": ["JSON"]}'), NO_ANSWER),
        ((200, PLAIN, b"x" * (MOST + 1)), "gave more than 64 KiB"),
        ((200, PLAIN, b"x" * 20_000_000), "gave more than 64 KiB"),
    ],
)
async def test_http_failures_say_what_happened(
    endpoint: Endpoint, inquiry: Inquiry, sent: tuple[int, str, bytes], message: str
) -> None:
    endpoint.status, endpoint.type, endpoint.body = sent
    with pytest.raises(AgentError) as failed:
        await endpoint.responder().answer(inquiry)
    assert str(failed.value) == f"architect (http) {message}"


async def test_http_64_kib_are_an_answer(endpoint: Endpoint, inquiry: Inquiry) -> None:
    endpoint.type, endpoint.body = PLAIN, b"x" * MOST
    assert len(await endpoint.responder().answer(inquiry)) == MOST


@pytest.mark.parametrize("status", [301, 302, 307, 308])
async def test_http_redirects_are_not_followed(endpoint: Endpoint, inquiry: Inquiry, status: int) -> None:
    endpoint.status, endpoint.headers = status, {"Location": f"{endpoint.url}/elsewhere"}
    with pytest.raises(AgentError, match=rf"redirects \(HTTP {status}\)"):
        await endpoint.responder().answer(inquiry)
    assert [request.path for request in endpoint.requests] == ["/ask"]


@pytest.mark.parametrize("fault", ["hangs", "dribbles"])
async def test_http_an_answer_that_takes_too_long(endpoint: Endpoint, inquiry: Inquiry, fault: str) -> None:
    setattr(endpoint, fault, True)
    with pytest.raises(AgentError) as failed:
        await endpoint.responder(timedelta(seconds=0.5)).answer(inquiry)
    assert str(failed.value) == "architect (http) did not answer within 0.5 s"


async def test_http_stopped_lets_go_of_the_connection(endpoint: Endpoint, inquiry: Inquiry) -> None:
    endpoint.hangs = True
    work = asyncio.create_task(endpoint.responder().answer(inquiry))
    await until(lambda: endpoint.requests)
    work.cancel()
    with pytest.raises(asyncio.CancelledError):
        await work
    await until(lambda: endpoint.gone)


async def test_http_nobody_listens(inquiry: Inquiry) -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        responder = HttpResponder(f"http://127.0.0.1:{bound.getsockname()[1]}/", None, LONG)
        with pytest.raises(AgentError) as failed:
            await responder.answer(inquiry)
    assert str(failed.value) == "architect (http) cannot be asked: cannot connect (Connection refused)"


async def test_http_that_is_not_http(inquiry: Inquiry) -> None:
    async def nonsense(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"SSH-2.0-OpenSSH\r\n\r\n")
        writer.close()
        await writer.wait_closed()

    server = await asyncio.start_server(nonsense, "127.0.0.1", 0)
    async with server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
        with pytest.raises(AgentError, match="cannot be asked: the connection"):
            await HttpResponder(url, SecretStr(TOKEN), LONG).answer(inquiry)


@pytest.mark.parametrize(
    ("token", "status"),
    [(TOKEN, 200), (TOKEN, 500), (TOKEN, 302), (f"{TOKEN}\r\nX: 1", 200), (TOKEN + "ü", 200)],
)
async def test_http_token_and_words_are_in_no_log_and_no_message(
    endpoint: Endpoint, inquiry: Inquiry, token: str, status: int, caplog: pytest.LogCaptureFixture
) -> None:
    endpoint.status, endpoint.body = status, json.dumps({"answer": "s3cret answer"}).encode()
    said = ""
    with caplog.at_level(logging.DEBUG), structlog.testing.capture_logs() as logs:
        try:
            await endpoint.responder(token=token).answer(inquiry)
        except AgentError as error:
            said = f"{error!r} {error.__cause__!r}"
    everything = f"{said} {caplog.text} {logs} {vars(endpoint.responder(token=token))}"
    for secret in (TOKEN, "s3cret answer", inquiry.question):
        assert secret not in everything
    assert [line["id"] for line in logs] == (["CLR-42-001"] if token.isprintable() else [])
