"""The HTTP server: one FastAPI app with all routes of a bot (`build`), served by uvicorn in our own event loop.

uvicorn limits running requests. Timeouts for slow callers, and a share for each address, are a proxy's job. Only connections
that send nothing are ours: each costs a file descriptor, which the database, Slack and agents need (`_Connection`).

`/mcp` has the tools with which agents ask people, over MCP's streamable HTTP. No state is kept between requests, so each can go to
another replica: `Questions.ask` recognizes a repeated question by its call's name or its content. The MCP SDK is loaded at the
first call, so that the bot starts without it.
"""

from __future__ import annotations

import asyncio
import errno
import resource
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from functools import partial
from importlib.metadata import version
from types import ModuleType
from typing import TYPE_CHECKING, Any

import h11
import structlog
import uvicorn
from fastapi import APIRouter, Depends, FastAPI, HTTPException
from fastapi.responses import JSONResponse, PlainTextResponse
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from bot.ask.questions import Questions
from bot.base import Base
from bot.checks import Check
from bot.errors import AddressInUseError, ClarifyBotError, ConfigurationError, TaskDiedError
from bot.feed import Feed
from bot.intake.intake import AgentParts
from bot.integrated import Integrated
from bot.logs import log_trouble
from bot.oncall.build import OnCallBoard
from bot.oncall.pager import Escalations
from bot.people import access
from bot.settings.model import ProducerSettings, Settings, is_loopback
from bot.show.delivery import ShowParts
from bot.signing import Signing
from bot.slack.app import SlackParts
from bot.telemetry import Telemetry
from bot.web import clarifications, health, integrations, push, questions
from bot.web.guard import ERRORS, Callers, Counted, Guard, answer_errors, answer_to, problem, stopping_of
from bot.web.questions import Waiting, exact_json
from core.hub import Hub

if TYPE_CHECKING:
    from bot.show.callbacks import Callbacks


_log = structlog.get_logger("clarify.http")
_GRACE = 1  # seconds for running requests at the stop; waiting ones watch `stopping`
_BACKLOG = 128  # connections that are accepted at once, before one of them can be closed
_WHY = {
    errno.EADDRINUSE: "the address is already in use; stop the other program or choose another port",
    errno.EACCES: "permission denied; choose a port of 1024 or above, or grant the right to use this one",
    errno.EADDRNOTAVAIL: "not an address of this machine",
    socket.EAI_NONAME: "unknown host",
    socket.EAI_AGAIN: "unknown host",
}
_ABOUT = """Ask people in Slack with `POST /questions`; MCP clients connect to `/mcp`. Below: agents that ask agents, agents that
push their events, and health and metrics for operators.

Send the bearer token of your producer; processes on this machine may call without one. Every error is JSON: `error`,
`message`, and `field` if one is at fault; only a 503 for too many requests at once is plain text. A body can be up to 1 MiB.
"""
_WELCOME = """clarify-bot is running. People answer in Slack; agents ask here:

  POST /questions     ask a question:
                      curl -H 'Content-Type: application/json' -d '{"question": "Which region?"}' ADDRESS/questions
  /mcp                for MCP clients
  GET /openapi.json   everything that you can call
  GET /readyz         whether it works, and what does not
  GET /metrics        for Prometheus

Other machines need the token of their [[producers]] table: Authorization: Bearer TOKEN.
"""
_DESCRIPTORS = 4096
_MOST_WAITING = 1000  # callers that wait for news at once, so that others are still served
_POLLS = "they do not get through, so that it is asked twice a second: put a direct address in storage.listen_url_env"
_SPARE = "no connection of its own: other replicas have the ten that Slack gives an app"
CALL_HEADER = "Clarify-Call"
"""With it, `clarify mcp` names each call uniquely; if it must repeat the call, the question is not asked twice."""
_HEADERS = [
    "authorization",
    "content-type",
    "last-event-id",
    "mcp-method",
    "mcp-name",
    "mcp-protocol-version",
]


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

    @app.get("/", include_in_schema=False)
    async def welcome() -> PlainTextResponse:
        return PlainTextResponse(_WELCOME)

    @app.get("/openapi.json", include_in_schema=False, dependencies=[Depends(callers.onlooker)])
    async def openapi() -> JSONResponse:
        return JSONResponse(app.openapi())

    app.add_middleware(Guard, stopping=app.state.stopping, counted=counted)
    return app


def listen(app: FastAPI, settings: Settings, connections: int) -> HttpServer | None:
    """Returns the server, bound but not yet serving; None if it cannot bind and nothing needs it.

    Raises:
        AddressInUseError, ConfigurationError: it cannot bind, and the settings need it.
    """
    file = settings.file
    trouble: ClarifyBotError
    try:
        return HttpServer(app, settings.http.host, settings.http.port, connections)
    except AddressInUseError as error:
        trouble = AddressInUseError(f"{file}: {error}")
    except ConfigurationError as error:
        trouble = ConfigurationError([f"{file}: {each}" for each in error.problems])
    if settings.must_listen:
        raise trouble
    _log.warning("cannot start the HTTP server; change http.listen", reason=str(trouble))
    return None


class HttpServer:
    """Listens at an address, and serves an app there: `run` until cancelled or `begin_stop`. Up to `connections` at once."""

    def __init__(self, app: FastAPI, host: str, port: int, connections: int) -> None:
        """Raises:
        AddressInUseError, ConfigurationError: it cannot listen there.
        """
        self.stopping: asyncio.Event = app.state.stopping
        self._serves = False
        self._server = _UvicornServer(_configuration(app, connections))
        self._socket = bind(host, port)
        self.url = f"http://{_authority(host, self._socket.getsockname()[1])}"

    async def run(self) -> None:
        """Serve until `begin_stop`, or until cancelled, which gives requests the same moment to end.

        Raises:
            TaskDiedError: uvicorn ended unexpectedly.
        """
        self._serves = True
        _log.info("listening", url=self.url)
        serving = asyncio.ensure_future(self._serve())
        try:
            await asyncio.shield(serving)
        except asyncio.CancelledError:
            self.begin_stop()
            await serving
            raise
        if not self.stopping.is_set():
            raise TaskDiedError("The HTTP server stopped unexpectedly.")

    def begin_stop(self) -> None:
        """Take no more requests; `run` ends within 2 s. Without `run`, closes the socket."""
        self.stopping.set()
        self._server.stop()
        if not self._serves:
            self._socket.close()
        elif self._socket.fileno() >= 0:
            # A turn of the loop before uvicorn closes it: else CPython 3.11 loses a connection that is being accepted.
            asyncio.get_running_loop().remove_reader(self._socket)

    async def _serve(self) -> None:
        with self._socket:
            await self._server.serve([self._socket])
        if tasks := self._server.server_state.tasks:  # cancelled ones still respond
            await asyncio.wait(tasks, timeout=_GRACE)


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
        """Ends at once if nobody is connected; uvicorn's own waits a tenth of a second first."""
        if self.server_state.connections:
            await super().shutdown(sockets)
            return
        for each in (*self.servers, *(sockets or ())):
            each.close()
        for server in self.servers:
            await server.wait_closed()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def _configuration(app: FastAPI, connections: int) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        loop="asyncio",
        http=_Connection,
        ws="none",
        lifespan="off",
        log_config=None,
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=False,  # only the connection itself shows whether a caller is on this machine
        backlog=_BACKLOG,
        limit_concurrency=connections,
        timeout_graceful_shutdown=_GRACE,
    )


class _Connection(H11Protocol):
    """One connection. From three quarters of the limit on, a new one closes the one that has been silent longest, but none
    with a running request. At the limit, uvicorn responds with 503.
    """

    limit_concurrency: int
    heard = 0.0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        super().connection_made(transport)
        self.heard = self.loop.time()
        if len(self.connections) > self.limit_concurrency * 3 // 4:
            others = (each for each in self.connections if isinstance(each, _Connection) and each is not self)
            if silent := [each for each in others if each.is_silent]:
                min(silent, key=lambda each: each.heard).transport.abort()

    def data_received(self, data: bytes) -> None:
        self.heard = self.loop.time()
        super().data_received(data)

    def on_response_complete(self) -> None:
        self.heard = self.loop.time()
        super().on_response_complete()

    @property
    def is_silent(self) -> bool:
        """Whether we wait for it to send a request, or to read a response."""
        waits = self.conn.their_state in {h11.IDLE, h11.SEND_BODY} or self.flow.write_paused
        return waits and not self.transport.is_closing()


def bind(host: str, port: int) -> socket.socket:
    """Listen at an address; of a name's, at the IPv4 one.

    Raises:
        AddressInUseError: another program does.
        ConfigurationError: it cannot be bound.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        bound = socket.create_server((host, port), family=family)
    except OSError as error:
        why = _WHY.get(error.errno or 0, error.strerror)
        told = f"http.listen: {_authority(host, port)}: {why}"
        if error.errno == errno.EADDRINUSE:
            raise AddressInUseError(told) from error
        raise ConfigurationError([told]) from error
    # Its connections inherit this. Otherwise later parts of a response wait 40 ms until the first one is acknowledged.
    bound.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return bound


def _authority(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def most_connections() -> int:
    """Raise the limit of file descriptors as far as is useful and allowed. Returns half of it for connections: the database,
    Slack and agents need the rest.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, _DESCRIPTORS)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return wanted // 2


def build(
    base: Base,
    board: OnCallBoard,
    show: ShowParts,
    intake: AgentParts,
    in_slack: SlackParts,
    *,
    signing: Signing | None,
    integrated: Integrated,
    feed: Feed,
    escalations: Escalations,
    callbacks: Callbacks | None,
    connections: int,
) -> FastAPI:
    """`signing` makes receipts; None: decisions get none."""
    settings, store, clock, producers = base.settings, base.store, base.clock, intake.producers
    most_waiting = min(_MOST_WAITING, connections // 2)
    app = in_slack.app
    callers = _callers(settings, [each for each in settings.producers if each.pushes])
    # Who may ask directly: producers with a token, and processes on this machine, as the producer without one.
    asking = [each for each in settings.producers if each.token_env is not None or each.pushes]
    askers, origins = _callers(settings, asking), settings.http.origins
    with_pages = _callers(settings, asking, origins, local_pages=is_loopback(settings.http.host))
    sources = health.Sources(
        telemetry=base.telemetry,
        index=base.index,
        audiences=base.audiences,
        clock=clock,
        leads=lambda: store.leads,
        backlog=lambda: intake.inbox.backlog(clock.now()),
        producers=producers.status,
        slack_connected=lambda: app.connected,
        queues={
            "delivery": lambda: show.lanes.length,
            "replies": lambda: len(intake.replies.outbox),
            "callbacks": lambda: len(callbacks) if callbacks is not None else 0,
        },
        outside=integrated.waiting,
        integrations=integrated.counted,
    )
    needed = [
        Check("slack", app.trouble),
        Check("storage", store.trouble),
    ]
    others = [
        Check("database notices", lambda: _POLLS if store.polls else None),
        Check("slack app", lambda: app.other_bots),
        Check("slack connection", lambda: _SPARE if app.is_spare else None),
        Check("channels", intake.channels.trouble),
        Check("answerers", lambda: access.troubles(settings, base.people)),
        Check("log", log_trouble),
        Check("callbacks", lambda: callbacks.trouble() if callbacks is not None else None),
        Check("changes", feed.trouble),
        Check("pages", escalations.trouble),
        *integrated.checks(),
        Check("signing key", lambda: signing.trouble if signing else None),
        *health.producer_checks([each.name for each in settings.producers], producers.status),
    ]
    waiting = questions.Waiting(intake.questions, board.permalinks.links, most_waiting)
    routers = [  # in the order of /openapi.json
        questions.question_routes(questions=intake.questions, callers=askers, waiting=waiting),
        questions.receipt_routes(
            questions=intake.questions,
            callers=askers,
            jwks=partial(signing.published, store) if signing else _no_keys,
        ),
        mcp_routes(
            questions=intake.questions,
            callers=with_pages,
            waiting=waiting,
            most_listening=max(1, most_waiting // 2),
            origins=origins,
            telemetry=base.telemetry,
        ),
        clarifications.clarification_routes(
            hub=Hub(router=base.router, ledger=base.ledger, scopes=base.scopes, clock=clock, via="http"),
            ledger=base.ledger,
            callers=callers,
            most_waiting=most_waiting,
            reading=intake.questions.reading,
        ),
        push.push_routes(callers=callers, producers=producers, clock=clock),
        health.health_routes(needed, others),
        health.metrics_routes(sources, callers),
        integrations.integration_routes(integrated.routes, askers, waiting.places),
    ]
    if app.request_url is not None:
        routers.append(push.slack_routes(app.request_url))
    return build_app(routers, callers, base.telemetry.requested)


async def _no_keys() -> dict[str, Any]:
    return {"keys": []}


def _callers(
    settings: Settings,
    producers: Sequence[ProducerSettings],
    origins: Sequence[str] = (),
    *,
    local_pages: bool = False,
) -> Callers:
    return Callers(
        {each.name: settings.producer_token(each) for each in producers},
        {each.name: each.speaker for each in producers},
        origins=origins,
        local_pages=local_pages,
    )


def mcp_routes(
    *,
    questions: Questions,
    callers: Callers,
    waiting: Waiting,
    most_listening: int,
    origins: Sequence[str],
    telemetry: Telemetry,
) -> APIRouter:
    """Returns the route. At most `most_listening` clients listen to tasks at once, since they may do so for days. `origins`:
    web pages that may call it. `telemetry` counts the outcomes of calls.
    """
    served: ASGIApp = _ServedOverHttp(
        questions, callers, waiting, asyncio.Semaphore(most_listening), telemetry
    )
    if origins:
        served = CORSMiddleware(served, allow_origins=origins, allow_methods=["POST"], allow_headers=_HEADERS)
    router = APIRouter()
    router.routes.append(Route("/mcp", served, include_in_schema=False))
    return router


@dataclass(eq=False)
class _ServedOverHttp:
    """The ASGI app: checks the caller, then serves the request with a new transport of the SDK."""

    questions: Questions
    callers: Callers
    waiting: Waiting
    listening: asyncio.Semaphore
    telemetry: Telemetry
    _tools: ModuleType | None = field(default=None, init=False)
    _polled: Any = field(default=None, init=False)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        try:
            speaker = self.callers.speaker(request)
            if request.method != "POST":
                # GET would open a stream for the server's own messages: it sends none.
                raise problem(
                    405,
                    "METHOD_NOT_ALLOWED",
                    "Use POST: this endpoint has no event stream.",
                    headers={"Allow": "POST"},
                )
            listens = request.headers.get("mcp-method") == "subscriptions/listen"
            if listens and self.listening.locked():
                raise problem(
                    503,
                    "TOO_MANY_LISTEN",
                    "Too many clients listen to tasks. Poll with tasks/get.",
                    headers={"Retry-After": "60"},
                )
            body = await request.body()
            with suppress(ValueError, RecursionError):  # the transport says what is wrong
                await self.questions.reading.run(speaker.producer, partial(exact_json, body), len(body))
        except HTTPException as error:
            await answer_to(error)(scope, receive, send)
            return
        if self._tools is None:
            self._tools = await asyncio.to_thread(_load)
            self._polled = self._tools.Polled()
        call = self._tools.Call(
            self.questions,
            self.waiting,
            speaker,
            stopping_of(request).wait,
            self.telemetry,
            name=request.headers.get(CALL_HEADER),
            polled=self._polled,
        )
        async with self.listening if listens else nullcontext():
            await call.serve(scope, _replayed(body, receive), send)


def _replayed(body: bytes, receive: Receive) -> Receive:
    """Returns a `receive` that returns the body, which was already read, and then the messages after it."""
    parts: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def read() -> Message:
        return parts.pop() if parts else await receive()

    return read


def _load() -> ModuleType:
    """Imports the module that needs the SDK. Blocking."""
    from bot.web import tools  # noqa: PLC0415 - at the first call

    return tools
