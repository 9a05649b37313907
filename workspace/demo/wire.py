"""Between agents and the bot's HTTP server: every request is passed on as it came, and what agents ask through `/questions`
and `/mcp`, and what they hear, shows in the traffic.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from socket import socket
from typing import Any

import jwt
from aiohttp import ClientConnectionError, ClientSession, ClientTimeout, TCPConnector, web
from yarl import URL

from workspace import stop_accepting
from workspace.traffic import Traffic

_OF_ONE_CONNECTION = {"connection", "keep-alive", "transfer-encoding"}
_SELF_MADE = ("Accept", "Accept-Encoding", "Content-Type", "User-Agent")
_LONGEST = 140  # characters of words


@dataclass(frozen=True, slots=True)
class Said:
    """What an agent says, in short. `looks`: whether it only looks how a question stands."""

    title: str
    words: str
    body: Any
    looks: bool = False


@asynccontextmanager
async def wire(listener: socket, bot_url: str, traffic: Traffic) -> AsyncIterator[None]:
    """Serve at `listener` in the name of the bot at `bot_url`."""
    async with ClientSession(
        connector=TCPConnector(limit=0, force_close=True),  # a kept connection may be closed when it is used
        timeout=ClientTimeout(total=None),
        auto_decompress=False,
    ) as bot:

        async def pass_on(request: web.Request) -> web.StreamResponse:
            body = await request.read()
            said = about_request(request.method, request.path, body)
            if said and not said.looks:
                traffic.note("agent→bot", said.title, said.words, body=said.body)
            try:
                answer = await bot.request(
                    request.method,
                    URL(bot_url + request.raw_path, encoded=True),
                    headers=_kept(request.headers.items()),
                    skip_auto_headers=_SELF_MADE,
                    data=body or None,
                    allow_redirects=False,
                )
            except ClientConnectionError:
                raise web.HTTPServiceUnavailable(text="The bot is not running.") from None
            async with answer:
                response = web.StreamResponse(status=answer.status, headers=_kept(answer.headers.items()))
                await response.prepare(request)
                heard = bytearray()
                async for part in answer.content.iter_any():
                    if said:
                        heard += part
                    await response.write(part)
                await response.write_eof()
            if said and (told := about_response(bytes(heard), said)):
                title, words, failure, whole = told
                traffic.note("bot→agent", title, words, failure=failure, body=whole)
            return response

        app = web.Application(client_max_size=0)  # the bot has its own bounds
        app.router.add_route("*", "/{path:.*}", pass_on)
        # Who hangs up does so with the bot, too.
        runner = web.AppRunner(app, handler_cancellation=True, access_log=None, shutdown_timeout=1)
        await runner.setup()
        try:
            await web.SockSite(runner, listener).start()
            yield
        finally:
            await stop_accepting(runner)
            await runner.cleanup()


def about_request(method: str, path: str, body: bytes) -> Said | None:
    """What a request says; None if it is not an agent's, or nothing to tell of."""
    given = _json(body)
    if path == "/mcp":
        return _about_tool(given) if isinstance(given, dict) and "id" in given else None
    if path == "/questions" or path.startswith("/questions/"):
        return Said(f"{method} {path}", _asked(given), given, looks=method == "GET")
    return None


def about_response(body: bytes, said: Said) -> tuple[str, str, str, Any] | None:
    """What an agent hears after it said that: title, words, what is wrong, all of it. None if that is no news."""
    heard = next((found for found in map(_result, _messages(body)) if found), None)
    if heard is None:
        return None
    if "error" in heard:
        return str(heard["error"]), "", _line(heard.get("message")), heard
    status = heard.get("status")
    if status is None or (status == "waiting" and said.looks):
        return None
    answer, label = heard.get("answer"), heard.get("label") or heard.get("comment")
    return str(status), _line(label or answer or heard["id"]), "", _readable(heard)


def _readable(state: dict[str, Any]) -> dict[str, Any]:
    """Returns a state with its receipt first, decoded for people: header, claims and signature."""
    receipt = str(state.get("receipt"))
    try:
        parts = jwt.decode_complete(receipt, options={"verify_signature": False})
    except jwt.PyJWTError:
        return state
    signature = receipt.rpartition(".")[2]
    decoded = {"header": parts["header"], "claims": parts["payload"], "signature": signature}
    return {"receipt": decoded, **{name: each for name, each in state.items() if name != "receipt"}}


def _about_tool(call: dict[str, Any]) -> Said | None:
    if call.get("method") != "tools/call":
        return Said(f"MCP {call.get('method')}", "", call)
    params = call.get("params") or {}
    name, arguments = params.get("name"), params.get("arguments")
    return Said(f"MCP {name}", _asked(arguments), arguments, looks=name == "wait_for_answer")


def _asked(given: Any) -> str:
    names = ("question", "action", "id")
    return (
        _line(next((given[name] for name in names if given.get(name)), "")) if isinstance(given, dict) else ""
    )


def _messages(body: bytes) -> Iterator[Any]:
    """The JSON of a body: all of it, or each event's of a stream."""
    if body.lstrip().startswith(b"{"):
        yield _json(body)
    else:
        yield from (_json(line[5:]) for line in body.splitlines() if line.startswith(b"data:"))


def _result(message: Any) -> dict[str, Any] | None:
    """The state, or the error, that a message brings, over HTTP or as the result of an MCP tool."""
    if not isinstance(message, dict):
        return None
    if "jsonrpc" not in message:
        return message
    if "error" in message:
        return {"error": "error", "message": message["error"].get("message")}
    result = message.get("result") or {}
    if result.get("isError"):
        return {"error": "isError", "message": result["content"][0]["text"]}
    state: dict[str, Any] | None = result.get("structuredContent")
    receipt = (result.get("_meta") or {}).get("receipt")
    return state if state is None or receipt is None else state | {"receipt": receipt}


def _json(text: bytes) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return None


def _line(words: Any) -> str:
    text = words if isinstance(words, str) else json.dumps(words, ensure_ascii=False)
    line = " ".join(text.split())
    return line if len(line) <= _LONGEST else f"{line[: _LONGEST - 1]}…"


def _kept(headers: Iterable[tuple[str, str]]) -> dict[str, str]:
    return {name: value for name, value in headers if name.lower() not in _OF_ONE_CONNECTION}
