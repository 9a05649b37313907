"""An app on a real socket."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI

from bot.web.server import ConnectionLimits, HttpServer

PATIENCE = 60.0


@asynccontextmanager
async def serving(
    app: FastAPI, limits: ConnectionLimits | None = None, port: int = 0
) -> AsyncIterator[HttpServer]:
    server = HttpServer(app, "127.0.0.1", port, limits or ConnectionLimits.within(1024))
    await server.bind()
    running = asyncio.create_task(server.run())
    try:
        yield server
    finally:
        server.begin_stop()
        async with asyncio.timeout(PATIENCE):
            await running
