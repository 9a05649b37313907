"""Runs `aaep-minimal-producer`, with POST /emit in addition: its emitter has no clarification method.

A question is emitted through the emitter's own plumbing, and its reply awaited as the package awaits
decisions; when it comes, the session goes on. GET /taken has the replies that it took. Prints its port.
"""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import Awaitable, Callable
from typing import Any

from aaep_minimal_producer import server  # type: ignore[import-untyped]
from aiohttp import web


async def emit(request: web.Request) -> web.Response:
    emitter = request.app["emitter"]
    event: dict[str, Any] = await request.json()
    token = event.get("reply_token")
    if token and token not in request.app["session_tasks"]:
        emitter._reply_decisions[token] = asyncio.get_running_loop().create_future()
        task = asyncio.create_task(go_on(emitter, event["session_id"], token))
        request.app["session_tasks"][token] = task
    emitter._emit(event)
    return web.json_response({})


async def go_on(emitter: Any, session_id: str, token: str) -> None:
    decision = await emitter.wait_for_decision(token)
    emitter.state_changed(
        session_id=session_id,
        from_state="awaiting_input",
        to_state="thinking",
        summary_normal=f"Got {decision}",
    )


class Taken:
    """The replies that it answered with 200, in their order."""

    def __init__(self) -> None:
        self._messages: list[Any] = []

    @web.middleware
    async def keep(
        self, request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        response = await handler(request)
        if request.path == "/messages" and response.status == 200:
            self._messages.append(await request.json())
        return response

    async def tell(self, _request: web.Request) -> web.Response:
        return web.json_response(self._messages)


def main() -> None:
    listening = socket.create_server(("127.0.0.1", int(sys.argv[1])))
    app, taken = server._build_app(), Taken()
    app.middlewares.append(taken.keep)
    app.router.add_get("/taken", taken.tell)
    app.router.add_post("/emit", emit)
    print(listening.getsockname()[1], flush=True)  # noqa: T201  the one who started it reads it
    web.run_app(app, sock=listening, print=None)


if __name__ == "__main__":
    main()
