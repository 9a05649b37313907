"""The MCP tools over standard input and output, for agents that start their MCP servers themselves.

Passes each call of a tool on to the bot's `/mcp`. The process is the session and its client the agent, unless a call names
others.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import time
from typing import Any

from mcp.server.context import ServerRequestContext
from mcp.server.stdio import stdio_server
from mcp_types import (
    CLIENT_CAPABILITIES_META_KEY,
    CLIENT_INFO_META_KEY,
    PROTOCOL_VERSION_META_KEY,
    CallToolResult,
)

import clarify
from bot.tools import ASKING, DEFAULT_WAIT, LONGEST_WAIT, error_result, make_server

_PROTOCOL = "2026-07-28"  # between us and the bot, independent of the client's version
_LONGEST_NAME = 256
_PATIENCE = 10.0  # seconds to wait for a bot that is away; clients kill calls after 60 or more
_PAUSES = (0.2, 2.0)


def serve(url: str | None = None) -> None:
    """Serve until standard input ends. `url`: the bot's, instead of CLARIFY_URL.

    Raises:
        ValueError: the address or CLARIFY_TOKEN is invalid.
    """
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(_Passing(clarify.Client(url)).serve())


class _Passing:
    """Passes calls on to the bot at `client`."""

    def __init__(self, client: clarify.Client) -> None:
        self._client = client
        self._session = f"mcp-{os.urandom(6).hex()}"
        self._numbers = itertools.count(1)

    async def serve(self) -> None:
        server = make_server(self._carry)
        async with stdio_server() as (received, sent):
            await server.run(received, sent, server.create_initialization_options())

    async def _carry(
        self, name: str, arguments: dict[str, Any], context: ServerRequestContext[Any, Any]
    ) -> CallToolResult:
        if name in ASKING:
            given = {field: each for field, each in arguments.items() if each is not None}
            arguments = {"session": self._session} | given
            if agent := _name_of(context):
                arguments = {"agent": agent} | arguments
        return await self._passed(name, arguments)

    async def _passed(self, name: str, arguments: dict[str, Any]) -> CallToolResult:
        """Returns the bot's result. Retries a call that breaks off, which is idempotent, until the bot is away too long."""
        seconds, pause, call = _seconds(name, arguments), _PAUSES[0], os.urandom(16).hex()
        ends, away_since = time.monotonic() + seconds, None
        while True:
            began = time.monotonic()
            try:
                reply = await self._client.acall(self._call(name, arguments, seconds, call))
            except OSError as error:
                why = f"clarify-bot at {self._client.url} cannot be reached: {error}."
            else:
                if not reply.is_passing:
                    return _result(reply)
                why = f"clarify-bot is not available: {reply.refusal()}"
            now = time.monotonic()
            away_since = now if away_since is None or now - began > _PATIENCE else away_since
            if now + pause > away_since + _PATIENCE:
                again = (
                    "The question may have been asked. Repeat the same call: it joins an open question instead of asking twice."
                    if name in ASKING
                    else ""
                )
                return error_result({"message": f"{why} {again}".strip()})
            await asyncio.sleep(pause)
            pause = min(pause * 2, _PAUSES[1])
            if seconds:
                seconds = max(0, int(ends - time.monotonic()))
                arguments = {**arguments, "wait": seconds}

    def _call(self, name: str, arguments: dict[str, Any], seconds: int, call: str) -> clarify.Call:
        meta = {
            PROTOCOL_VERSION_META_KEY: _PROTOCOL,
            CLIENT_INFO_META_KEY: {"name": "clarify mcp", "version": "1"},
            CLIENT_CAPABILITIES_META_KEY: {},
        }
        return clarify.Call(
            "POST",
            "/mcp",
            {
                "jsonrpc": "2.0",
                "id": next(self._numbers),
                "method": "tools/call",
                "params": {"name": name, "arguments": arguments, "_meta": meta},
            },
            headers={
                "Accept": "application/json, text/event-stream",
                "MCP-Protocol-Version": _PROTOCOL,
                "Mcp-Method": "tools/call",
                "Mcp-Name": name,
                "Clarify-Call": call,
            },
            patience=seconds + clarify.PATIENCE,
        )


def _seconds(name: str, arguments: dict[str, Any]) -> int:
    """Returns how many seconds a call may wait for an answer."""
    wait = arguments.get("wait", DEFAULT_WAIT)
    fits = isinstance(wait, (int, float)) and 0 <= wait <= LONGEST_WAIT
    return int(wait) if fits and name != "withdraw_question" else 0  # the bot refuses a wrong value at once


def _name_of(context: ServerRequestContext[Any, Any]) -> str | None:
    """Returns the client's name."""
    client = context.session.client_params
    name = client.client_info.name.strip() if client is not None else ""
    return name[:_LONGEST_NAME] or None


def _result(reply: clarify.Reply) -> CallToolResult:
    """Returns the result in the bot's response, or the error."""
    answer = reply.json
    if "text/event-stream" in reply.headers.get("content-type", ""):
        answer = _last_event(reply.body.decode("utf-8", "replace"))
    if isinstance(answer, dict) and isinstance(answer.get("result"), dict):
        return CallToolResult.model_validate(answer["result"])
    error = answer.get("error") if isinstance(answer, dict) else None
    if isinstance(error, dict):
        return error_result({"message": str(error.get("message"))})
    return error_result({"message": str(reply.refusal())})


def _last_event(stream: str) -> Any:
    """Returns the data of a stream's last event; earlier ones only keep the connection alive."""
    data = [line[5:].strip() for line in stream.splitlines() if line.startswith("data:")]
    try:
        return json.loads(data[-1]) if data else None
    except ValueError:
        return None
