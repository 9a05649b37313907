"""The HTTP server: one FastAPI app of the routes that the parts give, served by uvicorn in our own event loop."""

from __future__ import annotations

import asyncio
import errno
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import structlog
import uvicorn
from fastapi import APIRouter, FastAPI
from starlette.requests import Request

from bot.errors import AddressInUseError, ConfigurationError, TaskDiedError
from bot.web import docs, errors
from bot.web.callers import Callers
from bot.web.connections import USUAL, Connection, Connections, Limits
from bot.web.guard import Guard

_log = structlog.get_logger("clarify.http")
_GRACE = 1  # seconds that requests have to end by themselves; those that wait watch `stopping`
_BACKLOG = 128  # as many connections are accepted at once, before one of them can be refused
_WHY = {
    errno.EADDRINUSE: "the address is in use; expected one that nothing else listens on",
    errno.EACCES: "not permitted; expected a port from 1024 on, or the right to use this one",
    errno.EADDRNOTAVAIL: "no address of this machine",
}
_ABOUT = """Agents that push their events, agents that ask agents, Slack's requests, and what those who run it look at.

A bearer token per producer; without one, from this machine only. Every error is JSON: `error`, `message`, and `field`
where one is at fault. A body may have 1 MiB.
"""


def build_app(routers: Sequence[APIRouter], *, version: str, callers: Callers | None = None) -> FastAPI:
    """One app of all routes; `callers` says who may look at what describes them. Long polls and streams watch `stopping_of(request)`."""
    app = FastAPI(
        title="clarify-bot",
        version=version,
        description=_ABOUT,
        openapi_url=None,  # `docs` serves it, to those who may see it
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        responses=errors.ERRORS,
    )
    app.state.stopping = asyncio.Event()
    errors.install(app)
    for router in routers:
        app.include_router(router)
    docs.serve(app, callers or Callers({}))
    app.add_middleware(Guard, stopping=app.state.stopping, elapsed=time.monotonic)
    return app


def stopping_of(request: Request) -> asyncio.Event:
    """Set when the server is to end: whatever waits for something else has to end, too."""
    event: asyncio.Event = request.app.state.stopping
    return event


class HttpServer:
    """`bind`, then `run` until cancelled or told to stop. `on_listening(url)` is called once requests are taken."""

    def __init__(
        self,
        app: FastAPI,
        host: str,
        port: int,
        on_listening: Callable[[str], None],
        limits: Limits = USUAL,
    ) -> None:
        self.stopping: asyncio.Event = app.state.stopping
        self._host = host
        self._port = port
        self._on_listening = on_listening
        self._sockets: list[socket.socket] = []
        self._serves = False
        self._server = _Server(_configuration(app), Connections(limits), self._listening)

    async def bind(self) -> None:
        """Take the address; nothing is answered before `run`.

        Raises:
            AddressInUseError, ConfigurationError: it cannot be had.
        """
        self._sockets = await bind(self._host, self._port)

    @property
    def url(self) -> str:
        """Where it listens; after `bind`."""
        return f"http://{_authority(self._host, self._sockets[0].getsockname()[1])}"

    async def run(self) -> None:
        """Serve. Cancelled, it ends like one that was told to: requests have a moment to end.

        Raises:
            TaskDiedError: it ended by itself.
        """
        self._serves = True
        serving = asyncio.ensure_future(self._server.serve(self._sockets))
        try:
            await asyncio.shield(serving)
        except asyncio.CancelledError:
            self.begin_stop()
            await serving
            raise
        finally:
            self._give_up()
        if not self.stopping.is_set():
            raise TaskDiedError("The HTTP server ended, which it must not.")

    def begin_stop(self) -> None:
        """Take no more requests; `run` ends within 2 s. An address that was bound and is not served is given up."""
        self.stopping.set()
        self._server.should_exit = True
        if not self._serves:
            self._give_up()

    def _give_up(self) -> None:
        for bound in self._sockets:
            bound.close()

    def _listening(self) -> None:
        _log.info("listening", url=self.url)
        self._on_listening(self.url)


class _Server(uvicorn.Server):
    """uvicorn without its signal handlers: the process is not its own."""

    def __init__(
        self, config: uvicorn.Config, connections: Connections, on_started: Callable[[], None]
    ) -> None:
        super().__init__(config)
        self.server_state = connections
        self._on_started = on_started

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._on_started()


def _configuration(app: FastAPI) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        loop="asyncio",
        http=Connection,
        ws="none",
        lifespan="off",
        log_config=None,
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=False,  # who calls from this machine is decided by the connection, not by what it says
        backlog=_BACKLOG,
        timeout_graceful_shutdown=_GRACE,
    )


async def bind(host: str, port: int) -> list[socket.socket]:
    """Listen at an address.

    Raises:
        AddressInUseError: somebody else does.
        ConfigurationError: it cannot be had.
    """
    try:
        found = await asyncio.get_running_loop().getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        return _bind_all([(family, address) for family, _, _, _, address in found])
    except OSError as error:
        unknown = isinstance(error, socket.gaierror)
        why = _WHY.get(error.errno or 0, "no such host" if unknown else error.strerror)
        problem = f"http.listen: {_authority(host, port)}: {why}"
        if error.errno == errno.EADDRINUSE:
            raise AddressInUseError(problem) from error
        raise ConfigurationError([problem]) from error


def _authority(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _bind_all(addresses: Sequence[tuple[int, tuple[object, ...]]]) -> list[socket.socket]:
    """A socket for each address of one name, all on the same port; those that this machine lacks are left out."""
    bound: list[socket.socket] = []
    missing: OSError | None = None
    for family, (host, port, *rest) in dict.fromkeys(addresses):
        port = bound[0].getsockname()[1] if bound else port  # noqa: PLW2901 - 0: the first one's choice
        try:
            bound.append(_bind(family, (host, port, *rest)))
        except OSError as error:
            if error.errno not in {errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT}:
                for each in bound:
                    each.close()
                raise
            missing = error
    if missing is not None and not bound:
        raise missing
    return bound


def _bind(family: int, address: tuple[object, ...]) -> socket.socket:
    made = socket.socket(family, socket.SOCK_STREAM)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        made.bind(address)
        made.listen()
    except OSError:
        made.close()
        raise
    return made
