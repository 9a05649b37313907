"""What passes between agents and the bot, as the demo's traffic shows it; and that all of it passes as it came."""

from __future__ import annotations

import asyncio
import json
import socket
import time
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import jwt
import pytest
import pytest_asyncio
from aiohttp import web
from yarl import URL

from workspace.demo.wire import about_request, about_response, wire
from workspace.seed import seeded
from workspace.traffic import Traffic

STATE = {"id": "CLR-1-001", "status": "answered", "answer": {"a": 1}, "label": "Green", "comment": None}
WAITS = STATE | {"status": "waiting", "answer": None, "label": None}


def tool(name: str, **arguments: Any) -> dict[str, Any]:
    return {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "tools/call",
        "params": {"name": name, "arguments": arguments},
    }


def streamed(result: dict[str, Any]) -> bytes:
    said = [{"jsonrpc": "2.0", "method": "notifications/progress"}, {"jsonrpc": "2.0", "id": 1} | result]
    return b"".join(b"event: message\r\ndata: " + json.dumps(each).encode() + b"\r\n\r\n" for each in said)


@pytest.mark.parametrize(
    ("method", "path", "body", "title", "words"),
    [
        ("POST", "/questions", {"question": "Which\ncolour?"}, "POST /questions", "Which colour?"),
        ("POST", "/questions", {"action": "Mail it"}, "POST /questions", "Mail it"),
        ("DELETE", "/questions/CLR-1-001", None, "DELETE /questions/CLR-1-001", ""),
        ("POST", "/mcp", tool("ask_human", question="Which?"), "MCP ask_human", "Which?"),
        ("POST", "/mcp", tool("withdraw_question", id="CLR-1-001"), "MCP withdraw_question", "CLR-1-001"),
        ("POST", "/mcp", {"jsonrpc": "2.0", "id": 0, "method": "initialize"}, "MCP initialize", ""),
    ],
)
def test_what_agents_say(method: str, path: str, body: Any, title: str, words: str) -> None:
    said = about_request(method, path, b"" if body is None else json.dumps(body).encode())
    assert said is not None
    assert (said.title, said.words, said.looks) == (title, words, False)


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/readyz", b""),
        ("/questionsx", b""),
        ("/mcp", b'{"jsonrpc": "2.0", "method": "notifications/initialized"}'),
        ("/mcp", b"nonsense"),
    ],
)
def test_what_agents_do_not_say(path: str, body: bytes) -> None:
    assert about_request("POST", path, body) is None


@pytest.mark.parametrize(
    ("body", "title", "words", "failure"),
    [
        (json.dumps(STATE).encode(), "answered", "Green", ""),
        (json.dumps(WAITS).encode(), "waiting", "CLR-1-001", ""),
        (json.dumps({"error": "INVALID", "message": "kind: …"}).encode(), "INVALID", "", "kind: …"),
        (streamed({"result": {"structuredContent": STATE}}), "answered", "Green", ""),
        (streamed({"result": {"isError": True, "content": [{"text": "wait: …"}]}}), "isError", "", "wait: …"),
        (streamed({"error": {"code": -32601, "message": "no such tool"}}), "error", "", "no such tool"),
    ],
)
def test_what_agents_hear(body: bytes, title: str, words: str, failure: str) -> None:
    said = about_request("POST", "/questions", b'{"question": "Which?"}')
    assert said is not None
    told = about_response(body, said)
    assert told is not None
    assert told[:3] == (title, words, failure)


RECEIPT = jwt.encode({"jti": "CLR-1-001/1"}, "k" * 32, headers={"typ": "clarify-decision+jwt", "kid": "one"})


@pytest.mark.parametrize(
    "body",
    [
        json.dumps(STATE | {"receipt": RECEIPT}).encode(),
        streamed({"result": {"structuredContent": STATE, "_meta": {"receipt": RECEIPT}}}),
    ],
    ids=["HTTP", "MCP"],
)
def test_receipt_is_shown_decoded_before_the_rest(body: bytes) -> None:
    said = about_request("POST", "/questions", b'{"question": "Which?"}')
    assert said is not None
    told = about_response(body, said)
    assert told is not None
    shown = told[3]
    assert next(iter(shown)) == "receipt"
    assert shown.pop("receipt") == {
        "header": {"alg": "HS256", "typ": "clarify-decision+jwt", "kid": "one"},
        "claims": {"jti": "CLR-1-001/1"},
        "signature": RECEIPT.rpartition(".")[2],
    }
    assert shown == STATE


def test_looking_is_told_only_if_it_finds_news() -> None:
    for said in (
        about_request("GET", "/questions/CLR-1-001", b""),
        about_request("POST", "/mcp", json.dumps(tool("wait_for_answer", id="CLR-1-001")).encode()),
    ):
        assert said is not None
        assert said.looks
        assert about_response(json.dumps(WAITS).encode(), said) is None
        assert about_response(json.dumps(STATE).encode(), said) is not None


class Bot:
    """Repeats what it is sent; at `/slow` it never ends what it began."""

    def __init__(self) -> None:
        self.began, self.left = asyncio.Event(), asyncio.Event()

    async def handle(self, request: web.Request) -> web.StreamResponse:
        if request.path != "/slow":
            said = {"path": request.raw_path, "host": request.host, "body": await request.text()}
            return web.json_response(said | {"agent": request.headers.get("User-Agent")}, status=418)
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b"begun")
        self.began.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.left.set()
        return response


@pytest_asyncio.fixture
async def bot() -> AsyncIterator[tuple[Bot, str]]:
    made = Bot()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", made.handle)
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    yield made, f"http://127.0.0.1:{runner.addresses[0][1]}"
    await runner.cleanup()


async def test_requests_pass_as_they_came_and_who_hangs_up_does_so_with_the_bot(bot: tuple[Bot, str]) -> None:
    made, url = bot
    lines: list[Any] = []
    traffic = Traffic(seeded(time.time), lambda: lines.append(traffic.lines[-1]))
    listener = socket.create_server(("127.0.0.1", 0))
    here = f"http://127.0.0.1:{listener.getsockname()[1]}"
    async with wire(listener, url, traffic), aiohttp.ClientSession() as agent:
        asked = {"question": "Which?"}
        async with agent.post(
            URL(f"{here}/questions?wait=0&x=a%2Fb", encoded=True), json=asked, headers={"User-Agent": "me"}
        ) as answer:
            assert answer.status == 418
            heard = await answer.json()
        assert heard["path"] == "/questions?wait=0&x=a%2Fb"
        assert heard["host"] == here.removeprefix("http://")
        assert json.loads(heard["body"]) == asked
        assert heard["agent"] == "me"
        assert [(line.direction, line.title, line.detail) for line in lines] == [
            ("agent→bot", "POST /questions", "Which?")
        ]
        async with agent.get(f"{here}/slow") as answer:
            assert await answer.content.readexactly(5) == b"begun"
        async with asyncio.timeout(20):
            await made.left.wait()


async def test_bot_that_is_not_there_is_told_as_such() -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    here = f"http://127.0.0.1:{listener.getsockname()[1]}"
    nobody = socket.create_server(("127.0.0.1", 0))
    url = f"http://127.0.0.1:{nobody.getsockname()[1]}"
    nobody.close()
    traffic = Traffic(seeded(time.time), lambda: None)
    async with (
        wire(listener, url, traffic),
        aiohttp.ClientSession() as agent,
        agent.get(f"{here}/x") as answer,
    ):
        assert answer.status == 503
