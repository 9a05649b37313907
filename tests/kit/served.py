"""HTTP servers of the tests' own, on this machine."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager

from aiohttp import web

from workspace import stop_accepting

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
Talk = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@contextmanager
def reserved_port() -> Iterator[int]:
    """A port of 127.0.0.1 where nobody listens but who is told to: as often as they like, one after the other.

    One that was merely free a moment ago may be a stranger's by now, and what is asked there is then asked of them.
    """
    with socket.socket() as kept:  # bound, it is given to nobody else
        kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        kept.bind(("127.0.0.1", 0))
        yield kept.getsockname()[1]


@asynccontextmanager
async def served(handler: Handler, port: int = 0) -> AsyncIterator[str]:
    """The address of a server that has `handler` answer whatever it is asked; who hangs up is not answered on."""
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", handler)
    runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", port).start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await stop_accepting(runner)
        await runner.cleanup()


@asynccontextmanager
async def accepting(
    talk: Talk, *, host: str = "127.0.0.1", context: ssl.SSLContext | None = None
) -> AsyncIterator[int]:
    """The port of a server that has `talk` read and write each connection's bytes."""
    server = await asyncio.start_server(talk, host, 0, ssl=context)
    async with server:
        try:
            yield server.sockets[0].getsockname()[1]
        finally:
            await stop_accepting(server)
