"""Trouble on demand: what a producer does with the next requests instead of what it should."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Awaitable, Callable, Mapping
from typing import Literal

from aiohttp import web

from bot.demo.protocol import Refusal

Endpoint = Literal["subscriptions", "events", "replies"]
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Faults:
    """Faults wait per endpoint, and each is used up by one request."""

    def __init__(self) -> None:
        self._waiting: defaultdict[
            str, deque[Callable[[web.Request, Handler], Awaitable[web.StreamResponse]]]
        ]
        self._waiting = defaultdict(deque)

    def refuse(self, endpoint: Endpoint, status: int, headers: Mapping[str, str]) -> None:
        """Answer with `status`, and do nothing else."""

        async def refused(_request: web.Request, _handler: Handler) -> web.StreamResponse:
            return problem(status, Refusal("fault", "asked for"), headers)

        self._waiting[endpoint].append(refused)

    def lose_response(self, endpoint: Endpoint) -> None:
        """Do what was asked, and cut the connection before the response."""

        async def lost(request: web.Request, handler: Handler) -> web.StreamResponse:
            response = await handler(request)
            if request.transport is not None:
                request.transport.abort()
            return response

        self._waiting[endpoint].append(lost)

    async def handle(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        waiting = self._waiting[request.path.rpartition("/")[2]]
        return await (waiting.popleft()(request, handler) if waiting else handler(request))


def problem(status: int, refusal: Refusal, headers: Mapping[str, str] | None = None) -> web.Response:
    """Build the protocol's error response."""
    return web.json_response(refusal._asdict(), status=status, headers=headers)
