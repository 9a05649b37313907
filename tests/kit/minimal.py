"""A producer of the minimal dialect, as they are found."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Self
from uuid import uuid4

from aiohttp import web

from tests.kit.until import until
from workspace import stop_accepting


class MinimalProducer:
    """Bare `data:` lines to all who are connected, and 200 to any reply; with a `token` set, only to those that carry it.

    `replays`: whoever connects gets everything again. `connections`: so far.
    """

    def __init__(self, *, replays: bool = False) -> None:
        self.replies: list[dict[str, Any]] = []
        self.connections = 0
        self.url = ""
        self.token: str | None = None
        self._past: list[str] | None = [] if replays else None
        self._readers: list[asyncio.Queue[str | None]] = []
        self._runner: web.AppRunner | None = None

    async def __aenter__(self) -> Self:
        app = web.Application()
        app.add_routes([web.get("/events", self._events), web.post("/messages", self._reply)])
        # A reader that is gone is one no more, at once.
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1, handler_cancellation=True)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        self.url = f"http://127.0.0.1:{site.port}"
        return self

    async def __aexit__(self, *_: object) -> None:
        self.cut()
        assert self._runner is not None
        await stop_accepting(self._runner)
        await self._runner.cleanup()

    async def emit(self, event: Mapping[str, Any], at: str | None = None) -> None:
        """Send to all who read; waits for one, unless it is replayed. `at`: its timestamp, now unless said."""
        whole = {
            "@context": "https://aaep-protocol.org/context/v1",
            "event_id": f"evt_{uuid4().hex}",
            "timestamp": at or datetime.now(UTC).isoformat(),
            "producer": {"agent_id": "planner-agent", "agent_name": "Planner"},
            **event,
        }
        data = json.dumps(whole)
        if self._past is None:
            await until(lambda: self._readers)
        else:
            self._past.append(data)
        for reader in self._readers:
            reader.put_nowait(data)

    def cut(self) -> None:
        """End all streams."""
        for reader in self._readers:
            reader.put_nowait(None)

    async def reply(self, token: str) -> dict[str, Any]:
        """The first reply to a token."""
        found: dict[str, Any] = await until(
            lambda: next((reply for reply in self.replies if reply["reply_token"] == token), None)
        )
        return found

    async def _events(self, request: web.Request) -> web.StreamResponse:
        if request.query_string:
            raise web.HTTPNotFound
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        queue: asyncio.Queue[str | None] = asyncio.Queue()
        for data in self._past or ():
            queue.put_nowait(data)
        self._readers.append(queue)
        self.connections += 1
        try:
            while (item := await queue.get()) is not None:
                await response.write(f"data: {item}\n\n".encode())
        finally:
            self._readers.remove(queue)
        return response

    async def _reply(self, request: web.Request) -> web.StreamResponse:
        if self.token is not None and request.headers.get("Authorization") != f"Bearer {self.token}":
            raise web.HTTPUnauthorized
        self.replies.append(await request.json())
        return web.json_response({"status": "received"})
