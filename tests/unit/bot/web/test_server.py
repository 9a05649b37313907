"""The server on a real socket, with routes of the kinds that the parts give it."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from typing import Annotated, Any, Literal

import httpx
import pytest
import structlog
from fastapi import APIRouter, HTTPException, Query
from fastapi.responses import StreamingResponse
from pydantic import BaseModel, Field, field_validator
from starlette.requests import Request
from starlette.types import Message

from bot.errors import (
    AddressInUseError,
    ClarifyBotError,
    ConfigurationError,
    StorageUnavailable,
    TaskDiedError,
)
from bot.web.errors import BODY_LIMIT, TooLarge, answer_to, problem
from bot.web.guard import limited
from bot.web.health import Check, health_routes
from bot.web.server import HttpServer, build_app, stopping_of
from core.errors import AgentError, BadInput, ClarifyError, LockTimeout, NotFound, ScopeViolation

PATIENCE = 60.0
SECRET = "sesame-opens-the-cave"


class Circle(BaseModel):
    kind: Literal["circle"]


class Square(BaseModel):
    kind: Literal["square"]


class Ask(BaseModel):
    question: str = Field(min_length=1, max_length=10)
    round: int = 1
    shape: Annotated[Circle | Square, Field(discriminator="kind")] | None = None
    names: dict[str, int] = Field(default_factory=dict)

    @field_validator("question")
    @classmethod
    def no_spoilers(cls, value: str) -> str:
        if value.startswith("sesame"):
            raise ValueError(f"{value} gives it away")
        return value


def routes(started: asyncio.Event, errors: Sequence[Exception] = ()) -> APIRouter:
    router = APIRouter()

    @router.post("/ask", status_code=201)
    async def ask(asked: Ask) -> dict[str, int]:
        return {"round": asked.round}

    @router.post("/raw")
    async def raw(request: Request) -> dict[str, Any]:
        try:
            return {"length": len(await request.body())}
        except TooLarge:
            started.set()
            raise

    @router.get("/fail/{number}")
    async def fail(number: int, token: Annotated[str, Query()] = "") -> None:
        raise errors[number]

    @router.get("/wait")
    async def wait(request: Request) -> dict[str, bool]:
        started.set()
        await stopping_of(request).wait()
        return {"ended": True}

    @router.get("/stream")
    async def stream(request: Request) -> StreamingResponse:
        async def lines() -> AsyncIterator[bytes]:
            yield b": hello\n\n"
            started.set()
            await stopping_of(request).wait()
            yield b": bye\n\n"

        return StreamingResponse(lines(), media_type="text/event-stream")

    @router.get("/stuck")
    async def stuck() -> None:
        started.set()
        await asyncio.Event().wait()

    return router


class World:
    def __init__(self, server: HttpServer, client: httpx.AsyncClient, started: asyncio.Event) -> None:
        self.server, self.client, self.started = server, client, started


@asynccontextmanager
async def serving(errors: Sequence[Exception] = ()) -> AsyncIterator[World]:
    started, listening = asyncio.Event(), asyncio.Event()
    app = build_app([routes(started, errors)], version="1.2.3")
    server = HttpServer(app, "127.0.0.1", 0, lambda _: listening.set())
    await server.bind()
    running = asyncio.create_task(server.run())
    async with asyncio.timeout(PATIENCE):
        await listening.wait()
    async with httpx.AsyncClient(base_url=server.url, timeout=PATIENCE, trust_env=False) as client:
        try:
            yield World(server, client, started)
        finally:
            server.begin_stop()
            async with asyncio.timeout(PATIENCE):
                await running


@asynccontextmanager
async def calling(errors: Sequence[Exception] = ()) -> AsyncIterator[httpx.AsyncClient]:
    """The app without a socket."""
    app = build_app([routes(asyncio.Event(), errors)], version="1.2.3")
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(base_url="http://test", transport=transport) as client:
        yield client


@pytest.fixture(autouse=True)
def log() -> Iterator[list[Any]]:
    with structlog.testing.capture_logs() as entries:
        yield entries


async def test_server_answers_and_documents_what_it_serves() -> None:
    async with serving() as world:
        answer = await world.client.post("/ask", json={"question": "Why?"})
        document = (await world.client.get("/openapi.json")).json()
    assert (answer.status_code, answer.json()) == (201, {"round": 1})
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["cache-control"] == "no-store"
    assert "server" not in answer.headers
    assert document["info"]["version"] == "1.2.3"
    responses = document["paths"]["/ask"]["post"]["responses"]
    assert set(responses) == {"201", "default"}
    assert document["components"]["schemas"]["ErrorBody"]["required"] == ["error", "message"]


BAD_REQUESTS: list[tuple[str, str, dict[str, Any], int, str, str | None]] = [
    ("no such place", "GET /nowhere", {}, 404, "NOT_FOUND", None),
    ("no such method", "PUT /ask", {}, 405, "METHOD_NOT_ALLOWED", None),
    ("no JSON", "POST /ask", {"content": b'{"question": "' + SECRET.encode()}, 400, "NOT_JSON", None),
    ("too deep", "POST /ask", {"content": b"[" * 100_000}, 400, "BAD_REQUEST", None),
    ("no text", "POST /ask", {"content": b'{"question": "\xff\xfe"}'}, 400, "BAD_REQUEST", None),
    ("nothing", "POST /ask", {"content": b""}, 422, "BAD_INPUT", None),
    ("field missing", "POST /ask", {"json": {"round": 2}}, 422, "BAD_INPUT", "question"),
    ("too long", "POST /ask", {"json": {"question": SECRET}}, 422, "BAD_INPUT", "question"),
    ("our own word", "POST /ask", {"json": {"question": "sesame"}}, 422, "BAD_INPUT", "question"),
    (
        "no such kind",
        "POST /ask",
        {"json": {"question": "x", "shape": {"kind": SECRET}}},
        422,
        "BAD_INPUT",
        "shape",
    ),
    (
        "words as a name",
        "POST /ask",
        {"json": {"question": "x", "names": {SECRET + " <b>": "y"}}},
        422,
        "BAD_INPUT",
        None,
    ),
    ("wrong in the path", "GET /fail/x", {}, 422, "BAD_INPUT", "number"),
]


@pytest.mark.parametrize(
    ("what", "arguments", "status", "code", "field"),
    [
        pytest.param(what, arguments, status, code, field, id=name)
        for name, what, arguments, status, code, field in BAD_REQUESTS
    ],
)
async def test_error_of_a_request_says_why_and_not_what_was_sent(
    what: str, arguments: dict[str, Any], status: int, code: str, field: str | None
) -> None:
    method, path = what.split()
    headers = {"content-type": "application/json"}
    async with calling() as client:
        answer = await client.request(method, path, headers=headers, **arguments)
    body = answer.json()
    assert (answer.status_code, body["error"], body.get("field")) == (status, code, field)
    assert body["message"]
    assert "sesame" not in answer.text
    if status == 405:
        assert answer.headers["allow"] == "POST"


@pytest.mark.parametrize(
    ("error", "status", "body"),
    [
        (problem(403, "NOT_LOCAL", "No.", field="host", headers={"X-Why": "so"}), 403, "NOT_LOCAL"),
        (HTTPException(418, "short and stout"), 418, "IM_A_TEAPOT"),
        (StorageUnavailable("Nothing was stored: disk full."), 503, "STORAGE_UNAVAILABLE"),
        (LockTimeout(7, 2.0, "another"), 503, "LOCK_TIMEOUT"),
        (NotFound("CLR-1-001"), 404, "NOT_FOUND"),
        (BadInput("That is no topic."), 400, "BAD_INPUT"),
        (ScopeViolation("engineer may not ask ceo."), 403, "SCOPE_VIOLATION"),
        (AgentError("It ended with 3."), 502, "AGENT_ERROR"),
        (ClarifyError("Who knows."), 500, "ERROR"),
        (ClarifyBotError("Who knows."), 500, "INTERNAL_ERROR"),
        (RuntimeError(SECRET), 500, "INTERNAL_ERROR"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else str(value),
)
async def test_error_of_a_route_is_told_as_json(error: Exception, status: int, body: str) -> None:
    async with calling([error]) as client:
        answer = await client.get("/fail/0")
    assert (answer.status_code, answer.json()["error"]) == (status, body)
    assert ("retry-after" in answer.headers) == (status == 503)
    assert SECRET not in answer.text


def test_error_keeps_the_headers_it_was_given() -> None:
    answer = answer_to(problem(401, "UNAUTHORIZED", "No.", headers={"WWW-Authenticate": "Bearer"}))
    assert answer.headers["www-authenticate"] == "Bearer"


@pytest.mark.parametrize("path", ["/ask", "/raw"])
@pytest.mark.parametrize("declared", [True, False], ids=["declared", "chunked"])
async def test_body_over_the_limit_is_refused(path: str, declared: bool) -> None:
    size = BODY_LIMIT + 1

    async def pieces() -> AsyncIterator[bytes]:
        for _ in range(size // 4096 + 1):
            yield b" " * 4096

    content: Any = b" " * size if declared else pieces()
    async with serving() as world:
        answer = await world.client.post(path, content=content, headers={"content-type": "application/json"})
        after = await world.client.post("/ask", json={"question": "Why?"})
        assert world.started.is_set() == (path == "/raw")  # a route that reads by itself is told
    assert (answer.status_code, answer.json()["error"]) == (413, "TOO_LARGE")
    assert after.status_code == 201


async def test_body_that_says_it_is_over_the_limit_is_not_read() -> None:
    async def receive() -> Message:
        raise AssertionError("read")

    with pytest.raises(TooLarge):
        await limited(receive, BODY_LIMIT + 1)()


async def test_body_at_the_limit_is_taken() -> None:
    async with serving() as world:
        answer = await world.client.post("/raw", content=b" " * BODY_LIMIT)
    assert answer.json() == {"length": BODY_LIMIT}


async def test_log_has_the_path_without_query_and_body(log: list[Any]) -> None:
    async with serving([RuntimeError("no")]) as world:
        await world.client.get(f"/fail/0?token={SECRET}")
        await world.client.get("/ask%1b%5b31m")
        await world.client.post("/ask", json={"question": SECRET})
    requests = [each for each in log if each["event"] == "request"]
    assert [(each["method"], each["path"], each["status"], each["log_level"]) for each in requests] == [
        ("GET", "/fail/0", 500, "warning"),
        ("GET", "/ask%1b%5b31m", 404, "info"),
        ("POST", "/ask", 422, "info"),
    ]
    assert any(each["event"] == "a request failed" for each in log)
    assert SECRET not in repr(log)


async def test_log_is_quiet_about_what_is_asked_every_few_seconds(log: list[Any]) -> None:
    app = build_app([health_routes([Check("slack", lambda: "away")])], version="1")
    async with httpx.AsyncClient(base_url="http://test", transport=httpx.ASGITransport(app)) as client:
        for path in ("/livez", "/healthz", "/readyz"):
            await client.get(path)
    assert [(each["path"], each["log_level"]) for each in log] == [
        ("/livez", "debug"),
        ("/healthz", "debug"),
        ("/readyz", "debug"),
    ]


@pytest.mark.parametrize("path", ["/wait", "/stream"])
async def test_end_of_the_server_ends_what_waits(path: str) -> None:
    async with serving() as world:
        asked = asyncio.create_task(world.client.get(path))
        async with asyncio.timeout(PATIENCE):
            await world.started.wait()
        world.server.begin_stop()
        answer = await asked
    assert answer.status_code == 200
    assert answer.text in {'{"ended":true}', ": hello\n\n: bye\n\n"}


async def test_end_of_the_server_does_not_wait_for_ever() -> None:
    async with serving() as world:
        asked = asyncio.create_task(world.client.get("/stuck"))
        async with asyncio.timeout(PATIENCE):
            await world.started.wait()
        world.server.begin_stop()
        answer = await asked
    assert (answer.status_code, answer.json()["error"]) == (503, "STOPPING")


async def test_run_cancelled_gives_the_address_free() -> None:
    listening: asyncio.Queue[str] = asyncio.Queue()
    server = HttpServer(build_app([], version="1"), "127.0.0.1", 0, listening.put_nowait)
    await server.bind()
    running = asyncio.create_task(server.run())
    async with asyncio.timeout(PATIENCE):
        url = await listening.get()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
    assert server.stopping.is_set()
    port = int(url.rpartition(":")[2])
    again = HttpServer(build_app([], version="1"), "127.0.0.1", port, listening.put_nowait)
    await again.bind()
    again.begin_stop()


async def test_run_that_ends_by_itself_is_an_error() -> None:
    server = HttpServer(build_app([], version="1"), "127.0.0.1", 0, lambda _: None)
    await server.bind()
    server._server.should_exit = True
    with pytest.raises(TaskDiedError):
        await server.run()
    server.begin_stop()


@pytest.fixture
def held() -> Iterator[int]:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        yield other.getsockname()[1]


async def test_address_in_use_is_said(held: int) -> None:
    server = HttpServer(build_app([], version="1"), "127.0.0.1", held, lambda _: None)
    with pytest.raises(AddressInUseError, match=f"^http.listen: 127.0.0.1:{held}: the address is in use"):
        await server.bind()


@pytest.mark.parametrize(
    ("host", "why"), [("192.0.2.1", "no address of this machine"), ("no-such-host.invalid", "no such host")]
)
async def test_address_of_another_machine_is_said(host: str, why: str) -> None:
    server = HttpServer(build_app([], version="1"), host, 0, lambda _: None)
    with pytest.raises(ConfigurationError, match=f"^http.listen: {host}:0: {why}$"):
        await server.bind()


@pytest.mark.parametrize("host", ["localhost", "::1"])
async def test_address_may_be_a_name_or_of_version_6(host: str) -> None:
    if host == "::1" and not _has_version_6():
        pytest.skip("this machine has no ::1")
    server = HttpServer(build_app([], version="1"), host, 0, lambda _: None)
    await server.bind()
    assert server.url.startswith("http://[::1]:" if host == "::1" else "http://localhost:")
    server.begin_stop()


def _has_version_6() -> bool:
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return False
    return True
