"""The MCP tools over standard input and output, for agents that start their MCP servers themselves.

Passes each call of a tool on to the bot's `/mcp`, and what the client asks of its tasks. The process is the session and its client the agent, unless a call names
others.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import time
from collections.abc import AsyncGenerator, Collection, Mapping, Sequence
from contextlib import aclosing, suppress
from typing import Any

from mcp.server.context import ServerRequestContext
from mcp.server.stdio import stdio_server
from mcp.shared.exceptions import MCPError
from mcp.shared.inbound import encode_header_value
from mcp_types import (
    CLIENT_CAPABILITIES_META_KEY,
    CLIENT_INFO_META_KEY,
    INTERNAL_ERROR,
    INVALID_PARAMS,
    PROTOCOL_VERSION_META_KEY,
    CallToolResult,
)

import clarify
from bot.tasks import IDENTIFIER, Task, UnknownTask, add_tasks, created, declares
from bot.tools import ASKING, DEFAULT_WAIT, LONGEST_WAIT, error_result, make_server

_PROTOCOL = "2026-07-28"  # between us and the bot, independent of the client's version
_LONGEST_NAME = 256
_PATIENCE = 10.0  # seconds to wait for a bot that is away; clients kill calls after 60 or more
_PAUSES = (0.2, 2.0)
_QUIET = 60.0  # seconds without a sign of life from a bot that is listened to, which sends one every 15


def serve(url: str | None = None) -> None:
    """Serve until standard input ends. `url`: the bot's, instead of CLARIFY_URL.

    Raises:
        ValueError: the address or CLARIFY_TOKEN is invalid.
    """
    with suppress(KeyboardInterrupt):
        asyncio.run(_Passing(clarify.Client(url)).serve())


class _Away(Exception):
    """The bot is away for too long. The message says why."""


class _Passing:
    """Passes calls, and what is asked of their tasks, on to the bot at `client`."""

    def __init__(self, client: clarify.Client) -> None:
        self._client = client
        self._session = f"mcp-{os.urandom(6).hex()}"
        self._numbers = itertools.count(1)

    async def serve(self) -> None:
        server = make_server(self._carry)
        add_tasks(server, self)
        async with stdio_server() as (received, sent):
            await server.run(received, sent, server.create_initialization_options())

    async def _carry(
        self, name: str, arguments: dict[str, Any], context: ServerRequestContext[Any, Any]
    ) -> CallToolResult | dict[str, Any]:
        as_task = name in ASKING and declares(context)
        if name in ASKING:
            given = {field: each for field, each in arguments.items() if each is not None}
            arguments = {"session": self._session} | given
            if agent := _name_of(context):
                arguments = {"agent": agent} | arguments
        seconds = _seconds(name, arguments, 0 if as_task else DEFAULT_WAIT)
        params = {"name": name, "arguments": arguments}
        try:
            reply = await self._sent("tools/call", name, params, seconds, knows_tasks=as_task)
        except _Away as error:
            again = (
                "The question may have been asked. Repeat the same call: it joins an open question instead of asking twice."
                if name in ASKING
                else ""
            )
            return error_result({"message": f"{error} {again}".strip()})
        return _result(reply)

    async def get(self, task_id: str) -> Task:
        return await self._of_task("tasks/get", task_id)

    async def cancel(self, task_id: str) -> None:
        await self._of_task("tasks/cancel", task_id)

    async def update(self, task_id: str, responses: Mapping[str, Any]) -> None:
        await self._of_task("tasks/update", task_id, inputResponses=dict(responses))

    async def known(self, task_ids: Sequence[str]) -> Sequence[str]:
        ends = time.monotonic() + _PATIENCE
        while True:
            try:
                async with aclosing(self._listened(task_ids)) as events:
                    async for event in events:
                        if event.get("method") == "notifications/subscriptions/acknowledged":
                            found: list[str] = event["params"]["notifications"].get("taskIds", [])
                            return found
                raise MCPError(INTERNAL_ERROR, "clarify-bot does not know tasks. Upgrade it.")
            except OSError as error:
                if time.monotonic() > ends:
                    raise MCPError(INTERNAL_ERROR, self._unreachable(error)) from error
            await asyncio.sleep(_PAUSES[0])

    async def watch(self, task_ids: Collection[str]) -> AsyncGenerator[Task]:
        """Listens again whenever the bot was away. Sends a task that has ended once."""
        waiting = list(task_ids)
        pause = _PAUSES[0]
        while waiting:
            with suppress(OSError):
                async with aclosing(self._listened(tuple(waiting))) as events:
                    async for event in events:
                        pause = _PAUSES[0]
                        if event.get("method") != "notifications/tasks":
                            continue
                        task = _unstamped(event["params"])
                        if task["status"] != "working":
                            waiting.remove(task["taskId"])
                        yield task
            await asyncio.sleep(pause)
            pause = min(pause * 2, _PAUSES[1])

    async def _listened(self, task_ids: Sequence[str]) -> AsyncGenerator[dict[str, Any]]:
        """Yields what the bot sends while it is listened to.

        Raises:
            OSError: the bot is away. MCPError: it refuses.
        """
        params = {"notifications": {"taskIds": list(task_ids)}}
        call = self._call("subscriptions/listen", None, params, knows_tasks=True, patience=_QUIET)
        try:
            async with aclosing(self._client.aevents(call)) as events:
                async for event in events:
                    if isinstance(event, dict):
                        yield event
        except clarify.Refused as error:
            if error.status >= 500:
                raise ConnectionError(str(error)) from error
            raise MCPError(INTERNAL_ERROR, str(error)) from error

    async def _of_task(self, method: str, task_id: str, **more: Any) -> dict[str, Any]:
        """Returns the result of a request about a task.

        Raises:
            UnknownTask: the bot says so. MCPError: it refuses, or is away.
        """
        try:
            reply = await self._sent(method, task_id, {"taskId": task_id} | more, 0, knows_tasks=True)
        except _Away as error:
            raise MCPError(INTERNAL_ERROR, str(error)) from error
        answer = _answer_in(reply)
        if isinstance(answer.get("result"), dict):
            return _unstamped(answer["result"])
        refusal = answer.get("error")
        if isinstance(refusal, dict) and refusal.get("code") == INVALID_PARAMS:
            raise UnknownTask
        raise MCPError(INTERNAL_ERROR, _problem_in(reply))

    async def _sent(
        self, method: str, name: str, params: dict[str, Any], seconds: int, *, knows_tasks: bool
    ) -> clarify.Reply:
        """Returns the bot's response. Retries a request that breaks off, which is idempotent. `seconds`: how long the bot may
        wait for an answer.

        Raises:
            _Away: the bot is away too long.
        """
        pause, call = _PAUSES[0], os.urandom(16).hex()
        ends, away_since = time.monotonic() + seconds, None
        while True:
            began = time.monotonic()
            try:
                reply = await self._client.acall(
                    self._call(
                        method,
                        name,
                        params,
                        knows_tasks=knows_tasks,
                        patience=seconds + clarify.PATIENCE,
                        headers={"Clarify-Call": call},
                    )
                )
            except OSError as error:
                why = self._unreachable(error)
            else:
                if not reply.is_passing:
                    return reply
                why = f"clarify-bot is not available: {reply.refusal()}"
            now = time.monotonic()
            away_since = now if away_since is None or now - began > _PATIENCE else away_since
            if now + pause > away_since + _PATIENCE:
                raise _Away(why)
            await asyncio.sleep(pause)
            pause = min(pause * 2, _PAUSES[1])
            if seconds:
                seconds = max(0, int(ends - time.monotonic()))
                params = {**params, "arguments": {**params["arguments"], "wait": seconds}}

    def _call(
        self,
        method: str,
        name: str | None,
        params: dict[str, Any],
        *,
        knows_tasks: bool,
        patience: float,
        headers: Mapping[str, str] | None = None,
    ) -> clarify.Call:
        meta = {
            PROTOCOL_VERSION_META_KEY: _PROTOCOL,
            CLIENT_INFO_META_KEY: {"name": "clarify mcp", "version": "1"},
            CLIENT_CAPABILITIES_META_KEY: {"extensions": {IDENTIFIER: {}}} if knows_tasks else {},
        }
        named = {} if name is None else {"Mcp-Name": encode_header_value(name)}
        return clarify.Call(
            "POST",
            "/mcp",
            {
                "jsonrpc": "2.0",
                "id": next(self._numbers),
                "method": method,
                "params": {**params, "_meta": meta},
            },
            headers={
                "Accept": "application/json, text/event-stream",
                "MCP-Protocol-Version": _PROTOCOL,
                "Mcp-Method": method,
                **named,
                **(headers or {}),
            },
            patience=patience,
        )

    def _unreachable(self, error: OSError) -> str:
        return f"clarify-bot at {self._client.url} cannot be reached: {error}."


def _seconds(name: str, arguments: dict[str, Any], default: int) -> int:
    """Returns how many seconds a call may wait for an answer."""
    wait = arguments.get("wait", default)
    fits = isinstance(wait, (int, float)) and 0 <= wait <= LONGEST_WAIT
    return int(wait) if fits and name != "withdraw_question" else 0  # the bot refuses a wrong value at once


def _name_of(context: ServerRequestContext[Any, Any]) -> str | None:
    """Returns the client's name."""
    client = context.session.client_params
    name = client.client_info.name.strip() if client is not None else ""
    return name[:_LONGEST_NAME] or None


def _result(reply: clarify.Reply) -> CallToolResult | dict[str, Any]:
    """Returns the tool's result or the task in the bot's response, or the error."""
    result = _answer_in(reply).get("result")
    if not isinstance(result, dict):
        return error_result({"message": _problem_in(reply)})
    if result.get("resultType") == "task":
        return created(_unstamped(result))
    return CallToolResult.model_validate(result)


def _unstamped(task: Mapping[str, Any]) -> Task:
    """Returns a task without what belongs to the bot's response; ours gets its own."""
    return {name: each for name, each in task.items() if name not in {"_meta", "resultType"}}


def _problem_in(reply: clarify.Reply) -> str:
    error = _answer_in(reply).get("error")
    return str(error.get("message") if isinstance(error, dict) else reply.refusal())


def _answer_in(reply: clarify.Reply) -> dict[str, Any]:
    answer = reply.json
    if "text/event-stream" in reply.headers.get("content-type", ""):
        answer = _last_event(reply.body.decode("utf-8", "replace"))
    return answer if isinstance(answer, dict) else {}


def _last_event(stream: str) -> Any:
    """Returns the data of a stream's last event; earlier ones only keep the connection alive."""
    data = [line[5:].strip() for line in stream.splitlines() if line.startswith("data:")]
    try:
        return json.loads(data[-1]) if data else None
    except ValueError:
        return None
