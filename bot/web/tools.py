"""Runs the MCP tools in the bot, for one request to `/mcp` at a time.

Imports the MCP SDK, which loads slowly, so `bot.web.mcp` imports this module at the first call.
"""

from __future__ import annotations

import asyncio
import functools
import json
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import structlog
from mcp.server.context import ServerRequestContext
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.server.transport_security import TransportSecuritySettings
from mcp_types import CallToolResult
from starlette.types import Message, Receive, Scope, Send

from bot.producers.questions import Questions
from bot.telemetry import Telemetry
from bot.tools import error_result, make_server, state_result, wait_in
from bot.web.guard import BODY_LIMIT, answer_to
from bot.web.questions import Waiting
from core.clarification import AlreadyAnswered, Clarification, parse_id
from core.questions import BadField, NewQuestion
from core.workflow import Speaker

_RESULT = b'"result"'  # in the part of a response that has the result, as JSON or as an event
_log = structlog.get_logger("clarify.mcp")
logging.getLogger("mcp").setLevel(logging.WARNING)  # it logs each request


@dataclass(eq=False)
class Call:
    """Serves one request, and records that its answer was picked up once the response is written. `name`: the caller's
    name for this call, if it may repeat it.
    """

    questions: Questions
    waiting: Waiting
    speaker: Speaker
    stopping: Callable[[], Awaitable[Any]]
    telemetry: Telemetry
    name: str | None
    _handed: Clarification | None = field(default=None, init=False)
    _written: Clarification | None = field(default=None, init=False)
    _gone: bool = field(default=False, init=False)

    async def serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        manager = StreamableHTTPSessionManager(
            make_server(self._carry),
            stateless=True,
            security_settings=TransportSecuritySettings(enable_dns_rebinding_protection=False),
            max_request_body_size=BODY_LIMIT,
        )

        async def read() -> Message:
            message = await receive()
            self._gone = self._gone or message["type"] == "http.disconnect"
            return message

        try:
            async with manager.run():
                await manager.handle_request(scope, read, functools.partial(self._write, send))
        finally:
            if self._written is not None:
                await self.questions.picked_up(self._written)

    async def _write(self, send: Send, message: Message) -> None:
        """Sends a part of the response. An answer counts as picked up if the caller is still there at its end."""
        body = message.get("body", b"")
        if self._handed is None or _RESULT not in body:
            await send(message)
            return
        record, self._handed = self._handed, None
        await send({**message, "body": body[:-1], "more_body": True})
        await asyncio.sleep(0)  # a closed connection accepts any data, but `_gone` is set by now
        if not self._gone:
            self._written = record
        await send({**message, "body": body[-1:]})

    async def _carry(
        self, name: str, arguments: dict[str, Any], _: ServerRequestContext[Any, Any]
    ) -> CallToolResult:
        outcome = "left"  # the caller hung up first
        try:
            result, outcome = await self._result(name, arguments)
            return result
        finally:
            self.telemetry.tools[name, outcome] += 1

    async def _result(self, name: str, arguments: dict[str, Any]) -> tuple[CallToolResult, str]:
        try:
            record, state = await self._settled(name, dict(arguments))
        except Exception as error:  # noqa: BLE001 - reported as on the routes; unexpected errors are logged
            answer = _body_of(error)
            failed = answer["error"] == "INTERNAL_ERROR"
            if failed:
                _log.exception("tool failed", tool=name)
            return error_result(answer), "failed" if failed else "refused"
        self._handed = record
        return state_result(state, record.asked.receipt), "done"

    async def _settled(self, name: str, arguments: dict[str, Any]) -> tuple[Clarification, dict[str, Any]]:
        """Runs a tool. Returns the question that it is about, and its state."""
        producer = self.speaker.producer
        if name == "withdraw_question":
            try:
                record = await self.questions.withdraw(_id_in(arguments), producer)
            except AlreadyAnswered as error:
                record = error.record
            (state,) = await self.waiting.states([record])
            return record, state
        try:
            wait = wait_in(arguments)
        except ValueError as error:
            raise BadField("wait", str(error)) from None
        if name == "wait_for_answer":
            record = await self.questions.find(_id_in(arguments), producer)
        else:
            if "callback_url" in arguments:  # a model must not choose whom the bot calls
                raise BadField("callback_url", "`callback_url` is not an argument of this tool. Remove it.")
            if name == "ask_approval":
                arguments.setdefault("kind", "approval")
            new = NewQuestion.model_validate(arguments)
            record, _ = await self.questions.ask(new, self.speaker, repeats=True, call=self.name)
        record, state, _ = await self.waiting.settled(record, producer, wait, self.stopping)
        return record, state


def _id_in(arguments: dict[str, Any]) -> str:
    """Returns the id in a call's arguments.

    Raises:
        BadField: it is missing, or there are other arguments.
        BadInput: it is no clarification's id.
    """
    if others := sorted(set(arguments) - {"id"}):
        raise BadField(others[0][:64], f"`{others[0][:64]}` is not an argument of this tool. Remove it.")
    given = arguments.get("id")
    if not isinstance(given, str):
        raise BadField(
            "id",
            "`id` is required: pass the id returned by ask_human or ask_approval, such as CLR-100001-001.",
        )
    parse_id(given)
    return given


def _body_of(error: Exception) -> dict[str, Any]:
    body: dict[str, Any] = json.loads(bytes(answer_to(error).body))
    return body
