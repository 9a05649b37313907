"""An app on a real socket."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI

from bot.web.server import HttpServer

PATIENCE = 60.0


@asynccontextmanager
async def serving(app: FastAPI, connections: int = 512, port: int = 0) -> AsyncIterator[HttpServer]:
    server = HttpServer(app, "127.0.0.1", port, connections)
    running = asyncio.create_task(server.run())
    try:
        yield server
    finally:
        server.begin_stop()
        async with asyncio.timeout(PATIENCE):
            await running
