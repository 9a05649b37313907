"""`/mcp`: the tools with which agents ask people, over MCP's streamable HTTP.

No state is kept between requests, so each can go to another replica: `Questions.ask` recognizes a repeated question by
its call's name or its content. The MCP SDK is loaded at the first call, so that the bot starts without it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from functools import partial
from types import ModuleType
from typing import Any

from fastapi import APIRouter, HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from bot.ask.questions import Questions
from bot.telemetry import Telemetry
from bot.web.guard import Callers, answer_to, problem, stopping_of
from bot.web.questions import Waiting, exact_json

CALL_HEADER = "Clarify-Call"
"""With it, `clarify mcp` names each call uniquely; if it must repeat the call, the question is not asked twice."""
_HEADERS = [
    "authorization",
    "content-type",
    "last-event-id",
    "mcp-method",
    "mcp-name",
    "mcp-protocol-version",
]


def mcp_routes(
    *,
    questions: Questions,
    callers: Callers,
    waiting: Waiting,
    most_listening: int,
    origins: Sequence[str],
    telemetry: Telemetry,
) -> APIRouter:
    """Returns the route. At most `most_listening` clients listen to tasks at once, since they may do so for days. `origins`:
    web pages that may call it. `telemetry` counts the outcomes of calls.
    """
    served: ASGIApp = _ServedOverHttp(
        questions, callers, waiting, asyncio.Semaphore(most_listening), telemetry
    )
    if origins:
        served = CORSMiddleware(served, allow_origins=origins, allow_methods=["POST"], allow_headers=_HEADERS)
    router = APIRouter()
    router.routes.append(Route("/mcp", served, include_in_schema=False))
    return router


@dataclass(eq=False)
class _ServedOverHttp:
    """The ASGI app: checks the caller, then serves the request with a new transport of the SDK."""

    questions: Questions
    callers: Callers
    waiting: Waiting
    listening: asyncio.Semaphore
    telemetry: Telemetry
    _tools: ModuleType | None = field(default=None, init=False)
    _polled: Any = field(default=None, init=False)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        try:
            speaker = self.callers.speaker(request)
            if request.method != "POST":
                # GET would open a stream for the server's own messages: it sends none.
                raise problem(
                    405,
                    "METHOD_NOT_ALLOWED",
                    "Use POST: this endpoint has no event stream.",
                    headers={"Allow": "POST"},
                )
            listens = request.headers.get("mcp-method") == "subscriptions/listen"
            if listens and self.listening.locked():
                raise problem(
                    503,
                    "TOO_MANY_LISTEN",
                    "Too many clients listen to tasks. Poll with tasks/get.",
                    headers={"Retry-After": "60"},
                )
            body = await request.body()
            with suppress(ValueError, RecursionError):  # the transport says what is wrong
                await self.questions.reading.run(speaker.producer, partial(exact_json, body), len(body))
        except HTTPException as error:
            await answer_to(error)(scope, receive, send)
            return
        if self._tools is None:
            self._tools = await asyncio.to_thread(_load)
            self._polled = self._tools.Polled()
        call = self._tools.Call(
            self.questions,
            self.waiting,
            speaker,
            stopping_of(request).wait,
            self.telemetry,
            name=request.headers.get(CALL_HEADER),
            polled=self._polled,
        )
        async with self.listening if listens else nullcontext():
            await call.serve(scope, _replayed(body, receive), send)


def _replayed(body: bytes, receive: Receive) -> Receive:
    """Returns a `receive` that returns the body, which was already read, and then the messages after it."""
    parts: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def read() -> Message:
        return parts.pop() if parts else await receive()

    return read


def _load() -> ModuleType:
    """Imports the module that needs the SDK. Blocking."""
    from bot.web import tools  # noqa: PLC0415 - at the first call

    return tools
