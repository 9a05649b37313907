"""`/mcp`: the tools with which agents ask people, over MCP's streamable HTTP.

Nothing is kept between requests, so that each can be served by another replica; what a caller asked before is found by
what it says (`Questions.ask`). The SDK is loaded at the first call: the bot starts without it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from types import ModuleType

from fastapi import APIRouter, HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from bot.producers.questions import Questions
from bot.telemetry import Telemetry
from bot.web.callers import Callers
from bot.web.guard import answer_to, problem, stopping_of
from bot.web.questions import Waiting

CALL_HEADER = "Clarify-Call"
"""By which `clarify mcp` names a call that it may have to repeat; as it does, never the same for two calls."""
_HEADERS = [
    "authorization",
    "content-type",
    "last-event-id",
    "mcp-method",
    "mcp-name",
    "mcp-protocol-version",
]


def mcp_routes(
    *, questions: Questions, callers: Callers, waiting: Waiting, origins: Sequence[str], telemetry: Telemetry
) -> APIRouter:
    """The route. `origins`: of web pages that may call it. `telemetry` counts what became of the calls."""
    served: ASGIApp = _Served(questions, callers, waiting, telemetry)
    if origins:
        served = CORSMiddleware(served, allow_origins=origins, allow_methods=["POST"], allow_headers=_HEADERS)
    router = APIRouter()
    router.routes.append(Route("/mcp", served, include_in_schema=False))
    return router


@dataclass(eq=False)
class _Served:
    """The ASGI app: who calls, then the SDK's transport, a new one for each request."""

    questions: Questions
    callers: Callers
    waiting: Waiting
    telemetry: Telemetry
    _tools: ModuleType | None = field(default=None, init=False)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        try:
            speaker = self.callers.speaker(request)
            if request.method != "POST":
                # A client that would listen for what the server says by itself: it says nothing.
                raise problem(
                    405,
                    "METHOD_NOT_ALLOWED",
                    "Use POST: this endpoint has no event stream.",
                    headers={"Allow": "POST"},
                )
            body = await request.body()
        except HTTPException as error:
            await answer_to(error)(scope, receive, send)
            return
        if self._tools is None:
            self._tools = await asyncio.to_thread(_load)
        call = self._tools.Call(
            self.questions,
            self.waiting,
            speaker,
            stopping_of(request).wait,
            self.telemetry,
            name=request.headers.get(CALL_HEADER),
        )
        await call.serve(scope, _replayed(body, receive), send)


def _replayed(body: bytes, receive: Receive) -> Receive:
    """The body again, for somebody who wants to read it, and then what comes after it."""
    parts: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def read() -> Message:
        return parts.pop() if parts else await receive()

    return read


def _load() -> ModuleType:
    """Import the SDK, beside the event loop."""
    from bot.web import tools  # noqa: PLC0415 - at the first call

    return tools
