"""The HTTP server: one FastAPI app with all routes, served by uvicorn in our own event loop.

uvicorn limits running requests, and how long a connection idles after a response, but not connections that send nothing,
nor requests that never end. Each costs a file descriptor, which ledgers, Slack and agents need. When there are too many
connections, we close the one that has kept us waiting longest, but none with a running request (`Connections`).
"""

from __future__ import annotations

import asyncio
import errno
import resource
import socket
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import InitVar, dataclass
from importlib.metadata import version
from typing import cast

import h11
import structlog
import uvicorn
from fastapi import APIRouter, Depends, FastAPI
from fastapi.responses import JSONResponse
from starlette.types import Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from bot.errors import AddressInUseError, ClarifyBotError, ConfigurationError, TaskDiedError
from bot.settings.model import Settings
from bot.web.callers import Callers, is_loopback_address
from bot.web.guard import ERRORS, Counted, Guard, answer_errors, answer_to, problem

_log = structlog.get_logger("clarify.http")
_GRACE = 1  # seconds for running requests at the stop; waiting ones watch `stopping`
_BACKLOG = 128  # connections that are accepted at once, before one of them can be refused
_WHY = {
    errno.EADDRINUSE: "the address is already in use; stop the other program or choose another port",
    errno.EACCES: "permission denied; choose a port of 1024 or above, or grant the right to use this one",
    errno.EADDRNOTAVAIL: "not an address of this machine",
}
_ABOUT = """Ask people in Slack with `POST /questions`; MCP clients connect to `/mcp`. Below: agents that ask agents, agents that
push their events, and health and metrics for operators.

Send the bearer token of your producer; processes on this machine may call without one. Every error is JSON: `error`,
`message`, and `field` if one is at fault. A body can be up to 1 MiB.
"""
_DESCRIPTORS = 4096
_MOST = 2048  # connections
_MOST_REFUSED = 64  # connections beyond the limit that get a 503; more are cut
_LINGER = 5.0  # seconds that a connection may take to close
_LOG_EVERY = 60.0


def build_app(routers: Sequence[APIRouter], callers: Callers, counted: Counted = lambda *_: None) -> FastAPI:
    """Returns an app with all routes and `/openapi.json`. Long polls and streams watch `stopping_of(request)`. `counted`: see
    `Guard`.
    """
    app = FastAPI(
        title="clarify-bot",
        version=version("clarify-bot"),
        description=_ABOUT,
        openapi_url=None,  # below, after a check of the caller
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        responses=ERRORS,
    )
    app.state.stopping = asyncio.Event()
    answer_errors(app)
    for router in routers:
        app.include_router(router)

    @app.get("/openapi.json", include_in_schema=False, dependencies=[Depends(callers.onlooker)])
    async def openapi() -> JSONResponse:
        return JSONResponse(app.openapi())

    app.add_middleware(Guard, stopping=app.state.stopping, counted=counted)
    return app


async def listen(app: FastAPI, settings: Settings, limits: ConnectionLimits) -> HttpServer | None:
    """Returns the server, bound but not yet serving; None if it cannot bind and nothing needs it.

    Raises:
        AddressInUseError, ConfigurationError: it cannot bind, and the settings need it.
    """
    server, file = HttpServer(app, settings.http.host, settings.http.port, limits), settings.file
    trouble: ClarifyBotError
    try:
        await server.bind()
    except AddressInUseError as error:
        trouble = AddressInUseError(f"{file}: {error}")
    except ConfigurationError as error:
        trouble = ConfigurationError([f"{file}: {each}" for each in error.problems])
    else:
        return server
    if settings.must_listen:
        raise trouble
    _log.warning("cannot start the HTTP server; change http.listen", reason=str(trouble))
    return None


@dataclass(eq=False, repr=False)
class HttpServer:
    """Serves an app: `bind`, then `run` until cancelled or `begin_stop`."""

    app: InitVar[FastAPI]
    host: str
    port: int
    limits: InitVar[ConnectionLimits]

    def __post_init__(self, app: FastAPI, limits: ConnectionLimits) -> None:
        self.stopping: asyncio.Event = app.state.stopping
        self._sockets: list[socket.socket] = []
        self._serves = False
        self._server = _UvicornServer(_configuration(app))
        self._server.server_state = Connections(limits)

    async def bind(self) -> None:
        """Listen at the address; `run` answers requests.

        Raises:
            AddressInUseError, ConfigurationError: it cannot bind.
        """
        self._sockets = await bind(self.host, self.port)

    @property
    def url(self) -> str:
        """Its address, once it is bound."""
        return f"http://{_authority(self.host, self._sockets[0].getsockname()[1])}"

    async def run(self) -> None:
        """Serve until `begin_stop`, or until cancelled, which gives requests the same moment to end.

        Raises:
            TaskDiedError: uvicorn ended unexpectedly.
        """
        self._serves = True
        _log.info("listening", url=self.url)
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
            raise TaskDiedError("The HTTP server stopped unexpectedly.")

    def begin_stop(self) -> None:
        """Take no more requests; `run` ends within 2 s. Without `run`, closes the sockets."""
        self.stopping.set()
        self._server.stop()
        if not self._serves:
            self._give_up()

    def _give_up(self) -> None:
        for bound in self._sockets:
            bound.close()


class _UvicornServer(uvicorn.Server):
    """uvicorn without its signal handlers, since the bot has its own."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self._told = asyncio.Event()

    def stop(self) -> None:
        self.should_exit = True
        self._told.set()

    async def main_loop(self) -> None:
        """Ends as soon as `stop` is called; uvicorn's own polls ten times a second."""
        while not await self.on_tick(0):  # which also updates the Date header
            with suppress(TimeoutError):
                async with asyncio.timeout(1.0):
                    await self._told.wait()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Close every connection, even one that is being accepted.

        Closing a listening socket between `accept` and the connection's task leaks the connection (CPython 3.11), so each
        stops accepting one turn of the loop earlier.
        """
        for listening in (each for server in self.servers for each in server.sockets):
            asyncio.get_running_loop().remove_reader(listening)
        await asyncio.sleep(0)
        await super().shutdown(sockets)
        if self.server_state.tasks:  # cancelled ones still respond
            await asyncio.wait(self.server_state.tasks, timeout=_GRACE)
        cast("Connections", self.server_state).end()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def _configuration(app: FastAPI) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        loop="asyncio",
        http=HttpConnection,
        ws="none",
        lifespan="off",
        log_config=None,
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=False,  # only the connection itself shows whether a caller is on this machine
        backlog=_BACKLOG,
        timeout_graceful_shutdown=_GRACE,
    )


async def bind(host: str, port: int) -> list[socket.socket]:
    """Listen at an address.

    Raises:
        AddressInUseError: another program does.
        ConfigurationError: it cannot be bound.
    """
    try:
        found = await asyncio.get_running_loop().getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        return _bind_all([(family, address) for family, _, _, _, address in found])
    except OSError as error:
        unknown = isinstance(error, socket.gaierror)
        why = _WHY.get(error.errno or 0, "unknown host" if unknown else error.strerror)
        told = f"http.listen: {_authority(host, port)}: {why}"
        if error.errno == errno.EADDRINUSE:
            raise AddressInUseError(told) from error
        raise ConfigurationError([told]) from error


def _authority(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _bind_all(addresses: Sequence[tuple[int, tuple[object, ...]]]) -> list[socket.socket]:
    """Binds a socket to each address of one name, on the same port; skips addresses that this machine lacks."""
    bound: list[socket.socket] = []
    missing: OSError | None = None
    for family, (host, port, *rest) in dict.fromkeys(addresses):
        port = bound[0].getsockname()[1] if bound else port  # noqa: PLW2901 - the first one's, if that was 0
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
    # asyncio turns Nagle's algorithm off only if the protocol is given. With it, the later parts of a response would wait
    # 40 ms until the first one is acknowledged.
    made = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
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


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """`connections` in all, `per_address` from each address but this machine's own; the rest are seconds.

    `head`: for a request's headers, `body`: then for its body; `write`: while the caller reads nothing of a response.
    """

    connections: int
    per_address: int
    head: float = 10.0
    body: float = 30.0
    write: float = 30.0

    @classmethod
    def within(cls, descriptors: int) -> ConnectionLimits:
        """Limits connections to half of the descriptors: ledgers, Slack and agents need the rest."""
        most = max(1, min(_MOST, descriptors // 2))
        return cls(most, max(1, most // 4))

    @property
    def waiting(self) -> int:
        """How many callers may wait for news at once, so that others are still served."""
        return min(1000, max(1, self.connections // 2))


def raise_descriptor_limit() -> int:
    """Raise the limit of file descriptors as far as is useful and allowed; returns the new limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    allowed = _DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, _DESCRIPTORS)
    if soft == resource.RLIM_INFINITY or soft >= allowed:
        return _DESCRIPTORS if soft == resource.RLIM_INFINITY else soft
    resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
    return allowed


class Connections(ServerState):
    """The open connections; decides which one to close when there are too many."""

    def __init__(self, limits: ConnectionLimits) -> None:
        super().__init__()
        self.limits = limits
        self._held: set[HttpConnection] = set()
        self._of: Counter[str] = Counter()
        self._waiting: dict[HttpConnection, None] = {}  # the longest first
        self._logged = float("-inf")
        self._over = False

    def end(self) -> None:
        """Close all connections, and any that still comes."""
        self._over = True
        for each in list(self._held):
            each.transport.close()  # after flushing

    def admit(self, new: HttpConnection) -> bool:
        """Count a new connection; returns whether to serve it. If not, it gets a 503 and is closed."""
        if self._over:
            new.abort()
            return False
        self._held.add(new)
        self._of[new.address] += 1
        crowded = not is_loopback_address(new.address) and self._of[new.address] > self.limits.per_address
        if not crowded and len(self._held) <= self.limits.connections:
            return True
        self._warn(new.address)
        for other in self._waiting:
            if not crowded or other.address == new.address:
                self.release(other)
                other.abort()
                return True
        if len(self._held) > self.limits.connections + _MOST_REFUSED:
            new.abort()
        return False

    def release(self, connection: HttpConnection) -> None:
        """Forget a connection that ends; idempotent."""
        if connection in self._held:
            self._held.remove(connection)
            self._of[connection.address] -= 1
            if not self._of[connection.address]:
                del self._of[connection.address]
        self._waiting.pop(connection, None)

    def waits(self, connection: HttpConnection, *, since_now: bool) -> None:
        """Note whether we wait from now on for `connection` to send a request or to read a response."""
        self._waiting.pop(connection, None)
        if since_now and connection in self._held:
            self._waiting[connection] = None

    def _warn(self, address: str) -> None:
        now = time.monotonic()
        if now - self._logged >= _LOG_EVERY:
            self._logged = now
            _log.warning(
                "too many connections; idle ones are closed",
                connections=len(self._held),
                client=address,
                of_client=self._of[address],
            )


class HttpConnection(H11Protocol):
    """One connection, with a timeout for each phase: headers, body, reading of the response, end."""

    server_state: Connections

    address = ""
    _phase: str | None = None  # what we wait for: "head", "body", "reading", "end"; None: its request runs
    _began = False  # whether part of the request has arrived
    _served = True
    _stalled = False  # whether the write buffer is full
    _unread = 0  # bytes in the write buffer when the timer began
    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        super().connection_made(transport)
        self.address = self.client[0] if self.client else ""
        self._served = self.server_state.admit(self)
        if not self._served:
            self.app = _busy
        self._note_phase()

    def connection_lost(self, exc: Exception | None) -> None:
        self.server_state.release(self)
        if self._timer is not None:
            self._timer.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self._began = True
        super().data_received(data)
        self._note_phase()

    def on_response_complete(self) -> None:
        self._began = bool(self.conn.trailing_data[0])
        super().on_response_complete()
        self._note_phase()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._stalled = True
        self._note_phase()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._stalled = False
        self._note_phase()

    def abort(self) -> None:
        """Close it at once, without flushing."""
        self.transport.abort()

    def _note_phase(self) -> None:
        """Start the timer when a phase begins; data within a phase does not restart it."""
        phase = self._current_phase()
        if phase == self._phase:
            return
        self._phase = phase
        self._begin_timer()
        if self._served:
            self.server_state.waits(self, since_now=phase is not None)

    def _begin_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._phase is None:
            return
        self._unread = self.transport.get_write_buffer_size()
        limits = self.server_state.limits
        times = {"head": limits.head, "body": limits.body, "reading": limits.write, "end": _LINGER}
        self._timer = self.loop.call_later(times[self._phase], self._overdue)

    def _current_phase(self) -> str | None:
        if self.transport.is_closing():
            return "end"
        if self._stalled:
            return "reading"
        state = self.conn.their_state
        if state in {h11.IDLE, h11.SEND_BODY}:
            return "head" if state is h11.IDLE else "body"
        return None if self._runs() else "end"

    def _runs(self) -> bool:
        """Returns whether a request is running. `cycle` is None before the first one, despite its type."""
        return self.cycle is not None and not self.cycle.response_complete  # type: ignore[redundant-expr]

    def _overdue(self) -> None:
        if self.transport.is_closing() or self._phase in {"reading", "end"}:
            if 0 < self.transport.get_write_buffer_size() < self._unread:  # it reads, if slowly
                self._begin_timer()
            else:
                self.abort()
            return
        _log.info("connection timed out", client=self.address, waited_for=self._phase)
        if self._began and self.conn.our_state in {h11.IDLE, h11.SEND_RESPONSE}:
            for event in _too_slow():
                self.transport.write(self.conn.send(event) or b"")
        if self._runs():
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        self.transport.close()
        self._note_phase()


def _too_slow() -> tuple[h11.Event, ...]:
    answer = answer_to(
        problem(408, "TOO_SLOW", "The request did not arrive in time.", headers={"Connection": "close"})
    )
    head = h11.Response(status_code=answer.status_code, headers=answer.raw_headers)
    return head, h11.Data(data=bytes(answer.body)), h11.EndOfMessage()


async def _busy(scope: Scope, receive: Receive, send: Send) -> None:
    headers = {"Connection": "close", "Retry-After": "5"}
    why = "Too many connections. Try again in a few seconds."
    await answer_to(problem(503, "BUSY", why, headers=headers))(scope, receive, send)
