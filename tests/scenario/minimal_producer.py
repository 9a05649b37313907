"""A minimal-dialect producer as some are found: it replays its whole buffer to whoever connects."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web

from tests.kit.until import until


class Replayer:
    """`replies` holds what was posted to it, whatever it was; everything is answered 200, where a `token` is set only
    with it.
    """

    def __init__(self) -> None:
        self.replies: list[dict[str, Any]] = []
        self.connections = 0
        self.url = ""
        self.token: str | None = None
        self._buffer: list[str] = []
        self._readers: list[asyncio.Queue[str | None]] = []
        self._events = 0

    async def emit(self, event: dict[str, Any], at: str) -> None:
        """Send an event to all, now and ever again; `at` is its timestamp."""
        self._events += 1
        envelope = {
            "@context": "https://aaep-protocol.org/context/v1",
            "event_id": f"evt_{self._events}",
            "timestamp": at,
            "producer": {"agent_id": "planner-agent", "agent_name": "Planner"},
        }
        data = json.dumps(envelope | event)
        self._buffer.append(data)
        for reader in self._readers:
            reader.put_nowait(data)

    def cut(self) -> None:
        """End all streams; whoever comes back gets everything again."""
        for reader in self._readers:
            reader.put_nowait(None)

    async def reply(self, token: str) -> dict[str, Any]:
        """The first reply to a token."""
        found: dict[str, Any] = await until(
            lambda: next((reply for reply in self.replies if reply["reply_token"] == token), None)
        )
        return found

    async def _serve_events(self, request: web.Request) -> web.StreamResponse:
        if request.query_string:
            raise web.HTTPNotFound
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        queue: asyncio.Queue[str | None] = asyncio.Queue()
        for data in self._buffer:
            queue.put_nowait(data)
        self._readers.append(queue)
        self.connections += 1
        try:
            while (item := await queue.get()) is not None:
                await response.write(f"data: {item}\n\n".encode())
        finally:
            self._readers.remove(queue)
        return response

    async def _take(self, request: web.Request) -> web.Response:
        if self.token is not None and request.headers.get("Authorization") != f"Bearer {self.token}":
            raise web.HTTPUnauthorized
        self.replies.append(await request.json())
        return web.json_response({"status": "received"})


@asynccontextmanager
async def replayer() -> AsyncIterator[Replayer]:
    producer = Replayer()
    app = web.Application()
    app.add_routes([web.get("/events", producer._serve_events), web.post("/messages", producer._take)])
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    producer.url = f"http://127.0.0.1:{site.port}"
    try:
        yield producer
    finally:
        producer.cut()
        await runner.cleanup()
