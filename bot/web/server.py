"""The HTTP server: one FastAPI app of the routes that the parts give, served by uvicorn in our own event loop.

uvicorn limits the requests that run and how long a connection idles after an answer. It has no limit for connections
that say nothing at all, and none for requests that never end. Each costs a file descriptor, and ledgers, Slack and
agents need theirs. Who has a request running keeps its connection; when there are too many, of the others the one that
has kept us waiting longest gives way (`Connections`).
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
from fastapi import APIRouter, FastAPI
from starlette.types import Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from bot.errors import AddressInUseError, ClarifyBotError, ConfigurationError, TaskDiedError
from bot.settings.model import Settings
from bot.web import docs
from bot.web.callers import Callers, is_loopback_address
from bot.web.guard import ERRORS, Counted, Guard, answer_errors, answer_to, problem

_log = structlog.get_logger("clarify.http")
_GRACE = 1  # seconds that requests have to end by themselves; those that wait watch `stopping`
_BACKLOG = 128  # as many connections are accepted at once, before one of them can be refused
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
_MOST_REFUSED = 64  # connections beyond the limit, which are told so
_LINGER = 5.0  # seconds that a connection may take to end
_LOG_EVERY = 60.0


def build_app(routers: Sequence[APIRouter], callers: Callers, counted: Counted = lambda *_: None) -> FastAPI:
    """One app of all routes and of the page that describes them. Long polls and streams watch `stopping_of(request)`.
    `counted`: see `Guard`.
    """
    app = FastAPI(
        title="clarify-bot",
        version=version("clarify-bot"),
        description=_ABOUT,
        openapi_url=None,  # `docs` serves it, to those who may see it
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        responses=ERRORS,
    )
    app.state.stopping = asyncio.Event()
    answer_errors(app)
    for router in routers:
        app.include_router(router)
    docs.serve(app, callers)
    app.add_middleware(Guard, stopping=app.state.stopping, counted=counted)
    return app


async def listen(app: FastAPI, settings: Settings, limits: ConnectionLimits) -> HttpServer | None:
    """The server, bound and not yet serving; None where nobody counts on it and its address is taken.

    Raises:
        AddressInUseError, ConfigurationError: the address cannot be had, and somebody counts on it.
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
    """Serves an app: `bind`, then `run` until cancelled or told to stop."""

    app: InitVar[FastAPI]
    host: str
    port: int
    limits: InitVar[ConnectionLimits]

    def __post_init__(self, app: FastAPI, limits: ConnectionLimits) -> None:
        self.stopping: asyncio.Event = app.state.stopping
        self._sockets: list[socket.socket] = []
        self._serves = False
        self._server = _Server(_configuration(app))
        self._server.server_state = Connections(limits)

    async def bind(self) -> None:
        """Take the address; nothing is answered before `run`.

        Raises:
            AddressInUseError, ConfigurationError: it cannot be had.
        """
        self._sockets = await bind(self.host, self.port)

    @property
    def url(self) -> str:
        """Where it listens, once it is bound."""
        return f"http://{_authority(self.host, self._sockets[0].getsockname()[1])}"

    async def run(self) -> None:
        """Serve. Cancelled, it ends like one that was told to: requests have a moment to end.

        Raises:
            TaskDiedError: it ended by itself.
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
        """Take no more requests; `run` ends within 2 s. An address that was bound and is not served is given up."""
        self.stopping.set()
        self._server.stop()
        if not self._serves:
            self._give_up()

    def _give_up(self) -> None:
        for bound in self._sockets:
            bound.close()


class _Server(uvicorn.Server):
    """uvicorn without its signal handlers: the process is not its own."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self._told = asyncio.Event()

    def stop(self) -> None:
        self.should_exit = True
        self._told.set()

    async def main_loop(self) -> None:
        """Ends at once when it is told to; uvicorn's looks ten times a second."""
        while not await self.on_tick(0):  # it sets the time of day in answers, too
            with suppress(TimeoutError):
                async with asyncio.timeout(1.0):
                    await self._told.wait()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End every connection, also those that are accepted just now.

        A listening socket that is closed between `accept` and the connection's task leaves an open connection that
        nobody knows (CPython 3.11), so each stops accepting a turn of the loop before it is closed.
        """
        for listening in (each for server in self.servers for each in server.sockets):
            asyncio.get_running_loop().remove_reader(listening)
        await asyncio.sleep(0)
        await super().shutdown(sockets)
        if self.server_state.tasks:  # cancelled: each tells its caller
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
        why = _WHY.get(error.errno or 0, "unknown host" if unknown else error.strerror)
        told = f"http.listen: {_authority(host, port)}: {why}"
        if error.errno == errno.EADDRINUSE:
            raise AddressInUseError(told) from error
        raise ConfigurationError([told]) from error


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
    # Named, since asyncio turns Nagle's algorithm off only where it is: a response is written in several parts, and the
    # later ones would wait for the first to be acknowledged, 40 ms.
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

    `head`: until a request's headers are in, `body`: its body after that; `write`: while nothing of an answer is read.
    """

    connections: int
    per_address: int
    head: float = 10.0
    body: float = 30.0
    write: float = 30.0

    @classmethod
    def within(cls, descriptors: int) -> ConnectionLimits:
        """At most half of the descriptors: the others are for ledgers, Slack and agents."""
        most = max(1, min(_MOST, descriptors // 2))
        return cls(most, max(1, most // 4))

    @property
    def waiting(self) -> int:
        """How many may wait for news at once, so that others are still served."""
        return min(1000, max(1, self.connections // 2))


def raise_descriptor_limit() -> int:
    """Raise the limit of file descriptors as far as is useful and allowed; returns how many there may be now."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    allowed = _DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, _DESCRIPTORS)
    if soft == resource.RLIM_INFINITY or soft >= allowed:
        return _DESCRIPTORS if soft == resource.RLIM_INFINITY else soft
    resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
    return allowed


class Connections(ServerState):
    """Who is connected, and who gives way when there are too many."""

    def __init__(self, limits: ConnectionLimits) -> None:
        super().__init__()
        self.limits = limits
        self._held: set[HttpConnection] = set()
        self._of: Counter[str] = Counter()
        self._waiting: dict[HttpConnection, None] = {}  # the longest first
        self._logged = float("-inf")
        self._over = False

    def end(self) -> None:
        """End what is connected, and what still comes."""
        self._over = True
        for each in list(self._held):
            each.transport.close()  # once what was written is read

    def admit(self, new: HttpConnection) -> bool:
        """Count a new connection; returns whether it is served. If not, it is told so and ends."""
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
        """Forget a connection that ends; again does nothing."""
        if connection in self._held:
            self._held.remove(connection)
            self._of[connection.address] -= 1
            if not self._of[connection.address]:
                del self._of[connection.address]
        self._waiting.pop(connection, None)

    def waits(self, connection: HttpConnection, *, since_now: bool) -> None:
        """Note whether `connection` keeps us waiting from now on, for a request or for its reading of an answer."""
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
    """One connection. What we wait for decides how long it has: headers, a body, its reading of what we wrote, its end."""

    server_state: Connections

    address = ""
    _phase: str | None = None  # what we wait for: "head", "body", "reading", "end"; None: its request runs
    _began = False  # some of the request that we wait for is here
    _served = True
    _stalled = False  # more is written than it has read
    _unread = 0  # bytes of it, when the timer began
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
        """End it at once, whatever is still to be sent."""
        self.transport.abort()

    def _note_phase(self) -> None:
        """Start the timer of a phase when it begins; within one phase nothing gains time."""
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
        """Whether a request waits for its answer. Before the first one there is no cycle, whatever its type says."""
        return self.cycle is not None and not self.cycle.response_complete  # type: ignore[redundant-expr]

    def _overdue(self) -> None:
        if self.transport.is_closing() or self._phase in {"reading", "end"}:
            if 0 < self.transport.get_write_buffer_size() < self._unread:  # slowly, but it reads
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
