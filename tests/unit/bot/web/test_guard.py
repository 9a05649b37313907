"""What a caller is told whatever goes wrong, what a body may have, and what the log says of it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from typing import Annotated, Any, Literal

import httpx
import pytest
import structlog
from fastapi import APIRouter, HTTPException, Query
from pydantic import BaseModel, Field, field_validator
from starlette.requests import Request
from starlette.types import Message

from bot.checks import Check
from bot.errors import ClarifyBotError, StorageUnavailable
from bot.web.guard import BODY_LIMIT, Callers, TooLarge, limited, problem
from bot.web.health import health_routes
from bot.web.server import build_app
from core.errors import AgentError, BadInput, ClarifyError, LockTimeout, NotFound, ScopeViolation
from tests.unit.bot.web.serving import PATIENCE, serving

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


def routes(errors: Sequence[Exception] = (), too_large: list[str] | None = None) -> APIRouter:
    router = APIRouter()

    @router.post("/ask", status_code=201)
    async def ask(asked: Ask) -> dict[str, int]:
        return {"round": asked.round}

    @router.post("/raw")
    async def raw(request: Request) -> dict[str, Any]:
        try:
            return {"length": len(await request.body())}
        except TooLarge:
            if too_large is not None:
                too_large.append(request.url.path)
            raise

    @router.get("/fail/{number}")
    async def fail(number: int, token: Annotated[str, Query()] = "") -> None:
        raise errors[number]

    return router


@asynccontextmanager
async def calling(
    errors: Sequence[Exception] = (), too_large: list[str] | None = None
) -> AsyncIterator[httpx.AsyncClient]:
    app = build_app([routes(errors, too_large)], Callers({}))
    async with (
        serving(app) as server,
        httpx.AsyncClient(base_url=server.url, timeout=PATIENCE, trust_env=False) as client,
    ):
        yield client


@pytest.fixture(autouse=True)
def log() -> Iterator[list[Any]]:
    with structlog.testing.capture_logs() as entries:
        yield entries


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


@pytest.mark.parametrize("path", ["/ask", "/raw"])
@pytest.mark.parametrize("declared", [True, False], ids=["declared", "chunked"])
async def test_body_over_the_limit_is_refused(path: str, declared: bool) -> None:
    size, told = BODY_LIMIT + 1, list[str]()

    async def pieces() -> AsyncIterator[bytes]:
        for _ in range(size // 4096 + 1):
            yield b" " * 4096

    content: Any = b" " * size if declared else pieces()
    async with calling(too_large=told) as client:
        answer = await client.post(path, content=content, headers={"content-type": "application/json"})
        after = await client.post("/ask", json={"question": "Why?"})
    assert told == (["/raw"] if path == "/raw" else [])  # a route that reads by itself is told
    assert (answer.status_code, answer.json()["error"]) == (413, "TOO_LARGE")
    assert after.status_code == 201


async def test_body_that_says_it_is_over_the_limit_is_not_read() -> None:
    async def receive() -> Message:
        raise AssertionError("read")

    with pytest.raises(TooLarge):
        await limited(receive, BODY_LIMIT + 1)()


async def test_body_at_the_limit_is_taken() -> None:
    async with calling() as client:
        answer = await client.post("/raw", content=b" " * BODY_LIMIT)
    assert answer.json() == {"length": BODY_LIMIT}


async def test_log_has_the_path_without_query_and_body(log: list[Any]) -> None:
    async with calling([RuntimeError("no")]) as client:
        await client.get(f"/fail/0?token={SECRET}")
        await client.get("/ask%1b%5b31m")
        await client.post("/ask", json={"question": SECRET})
    requests = [each for each in log if each["event"] == "request"]
    assert [(each["method"], each["path"], each["status"], each["log_level"]) for each in requests] == [
        ("GET", "/fail/0", 500, "warning"),
        ("GET", "/ask%1b%5b31m", 404, "info"),
        ("POST", "/ask", 422, "info"),
    ]
    assert any(each["event"] == "request failed" for each in log)
    assert SECRET not in repr(log)


async def test_log_is_quiet_about_what_is_asked_every_few_seconds(log: list[Any]) -> None:
    app = build_app([health_routes([Check("slack", lambda: "away")])], Callers({}))
    async with httpx.AsyncClient(base_url="http://test", transport=httpx.ASGITransport(app)) as client:
        for path in ("/livez", "/healthz", "/readyz"):
            await client.get(path)
    assert [(each["path"], each["log_level"]) for each in log] == [
        ("/livez", "debug"),
        ("/healthz", "debug"),
        ("/readyz", "debug"),
    ]
