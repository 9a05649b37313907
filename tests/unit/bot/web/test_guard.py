"""Who may call, what a caller is told whatever goes wrong, what a body may have, and what the log says of it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Annotated, Any, Literal

import httpx
import pytest
import structlog
from fastapi import APIRouter, HTTPException, Query
from pydantic import BaseModel, Field, SecretStr, field_validator
from starlette.requests import Request
from starlette.types import Message

from bot.checks import Check
from bot.errors import ClarifyBotError, StorageUnavailable
from bot.web.guard import BODY_LIMIT, Callers, TooLarge, is_loopback_host, limited, problem
from bot.web.health import health_routes
from bot.web.server import build_app
from core.errors import AgentError, BadInput, ClarifyError, LockTimeout, NotFound, ScopeViolation
from tests.unit.bot.web.serving import PATIENCE, serving

SECRET = "sesame-opens-the-cave"
TOKENS: Mapping[str, SecretStr | None] = {
    "planner": SecretStr("planner-token"),
    "builder": SecretStr("builder-token"),
    "helper": None,
    "second": None,
}
ONE_BARE: Mapping[str, SecretStr | None] = {"planner": SecretStr("planner-token"), "helper": None}
LOCAL = ("127.0.0.1", 5000)
FAR = ("192.0.2.7", 5000)


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


def request(
    query: str = "",
    *,
    client: tuple[str, int] | None = LOCAL,
    method: str = "GET",
    more: Mapping[str, str] | None = None,
    **headers: str,
) -> Request:
    given = {**(more or {}), **headers}
    named = {"host": "127.0.0.1:8787"} | {name.replace("_", "-"): value for name, value in given.items()}
    return Request(
        {
            "type": "http",
            "method": method,
            "path": "/aaep/v1/messages",
            "query_string": query.encode(),
            "headers": [(name.encode(), value.encode("latin-1")) for name, value in named.items()],
            "client": client,
        }
    )


def test_callers_without_a_token_are_not_let_in_by_a_proxy_that_says_nothing() -> None:
    """nginx, unless told otherwise, names nobody, and the host that it passes on to; it speaks HTTP/1.0."""
    asked = request()
    assert Callers({}).speaker(asked).producer == "local"
    asked.scope["http_version"] = "1.0"
    assert refused(Callers({}).speaker, asked) == (403, "NOT_LOCAL")
    assert refused(Callers(ONE_BARE).speaker, asked) == (401, "UNAUTHORIZED")


def refused(check: Callable[[Request], object], asked: Request) -> tuple[int, str]:
    """Status and code of the refusal, which never repeats what was sent."""
    with pytest.raises(HTTPException) as caught:
        check(asked)
    assert "-token" not in str(caught.value.detail)
    assert isinstance(caught.value.detail, dict)
    assert (caught.value.headers or {}).get("WWW-Authenticate") == (
        "Bearer" if caught.value.status_code == 401 else None
    )
    return caught.value.status_code, caught.value.detail["error"]


@pytest.mark.parametrize(
    ("header", "name"),
    [
        ("Bearer planner-token", "planner"),
        ("bearer builder-token", "builder"),
        ("Bearer  builder-token ", "builder"),
    ],
)
@pytest.mark.parametrize("client", [LOCAL, FAR, None])
def test_callers_know_a_producer_by_its_token_from_anywhere(
    header: str, name: str, client: tuple[str, int] | None
) -> None:
    asked = request(client=client, authorization=header, origin="https://example.org", host="bot.example.org")
    assert Callers(TOKENS).pushing(asked) == name
    assert Callers(TOKENS).speaker(asked).producer == name


@pytest.mark.parametrize("token", ["tökén", "tokà", "tokÅ", "tok…"])
def test_callers_know_a_token_by_its_bytes(token: str) -> None:
    """Those of the last ones end like spaces of Latin-1."""
    asked = request(authorization=f"Bearer {token}".encode().decode("latin-1"))
    assert Callers({"planner": SecretStr(token)}).pushing(asked) == "planner"


@pytest.mark.parametrize(
    "header",
    [
        "Bearer planner-toke",
        "Bearer PLANNER-TOKEN",
        "Bearer",
        "Basic planner-token",
        "",
    ],
)
def test_callers_refuse_a_wrong_token_also_from_this_machine(header: str) -> None:
    assert refused(Callers(TOKENS).pushing, request(authorization=header)) == (401, "UNAUTHORIZED")


@pytest.mark.parametrize(
    ("query", "name"), [("producer=helper", "helper"), ("a=1&producer=second", "second")]
)
def test_callers_let_one_of_several_without_token_say_who_it_is(query: str, name: str) -> None:
    assert Callers(TOKENS).pushing(request(query)) == name


def test_callers_name_those_that_a_caller_without_token_may_be() -> None:
    with pytest.raises(HTTPException) as caught:
        Callers(TOKENS).pushing(request())
    assert caught.value.status_code == 400
    assert "helper, second" in str(caught.value.detail)
    assert "planner" not in str(caught.value.detail)


@pytest.mark.parametrize(
    ("query", "headers", "expected"),
    [
        ("producer=planner", {}, (401, "UNAUTHORIZED")),
        ("producer=nobody", {}, (403, "OTHER_PRODUCER")),
        ("producer=builder", {"authorization": "Bearer planner-token"}, (403, "OTHER_PRODUCER")),
        ("producer=helper", {"authorization": "Bearer planner-token"}, (403, "OTHER_PRODUCER")),
    ],
)
def test_callers_let_nobody_pass_as_another(
    query: str, headers: dict[str, str], expected: tuple[int, str]
) -> None:
    assert refused(Callers(TOKENS).pushing, request(query, more=headers)) == expected


@pytest.mark.parametrize("client", [("127.0.0.1", 1), ("127.8.9.1", 1), ("::1", 1), ("::ffff:127.0.0.1", 1)])
def test_callers_take_a_process_of_this_machine_without_token(client: tuple[str, int]) -> None:
    assert Callers({"helper": None}).pushing(request(client=client)) == "helper"


@pytest.mark.parametrize(
    ("client", "headers"),
    [
        (FAR, {}),
        (("::ffff:192.0.2.7", 1), {}),
        (("testclient", 1), {}),
        (None, {}),
        (LOCAL, {"x_forwarded_for": "127.0.0.1"}),
        (LOCAL, {"forwarded": "for=127.0.0.1"}),
        (LOCAL, {"x_real_ip": "127.0.0.1"}),
        (LOCAL, {"origin": "https://example.org"}),
        (LOCAL, {"origin": "null"}),
        (LOCAL, {"origin": "http://127.0.0.1:8787"}),
        (LOCAL, {"sec_fetch_site": "cross-site"}),
        (LOCAL, {"host": "rebound.example.org:8787"}),
        (LOCAL, {"host": "localhost.example.org"}),
        (LOCAL, {"host": "127.0.0.1.example.org"}),
        (LOCAL, {"host": ""}),
    ],
)
def test_callers_refuse_strangers_and_web_pages_without_token(
    client: tuple[str, int] | None, headers: dict[str, str]
) -> None:
    asked = request(client=client, more=headers)
    assert refused(Callers({"helper": None}).pushing, asked)[0] == 403
    assert refused(Callers({}).speaker, asked)[0] == 403


def test_callers_ask_a_stranger_for_a_token_where_there_is_one() -> None:
    assert refused(Callers(ONE_BARE).pushing, request(client=FAR)) == (401, "UNAUTHORIZED")


def test_callers_are_local_where_no_producer_may_call() -> None:
    assert Callers({}).speaker(request()).producer == "local"
    assert refused(Callers({}).pushing, request()) == (403, "NO_PRODUCER")
    assert refused(Callers({}).speaker, request(authorization="Bearer x")) == (401, "UNAUTHORIZED")
    assert Callers({}).speaker(request(query="producer=local")).producer == "local"
    assert refused(Callers({}).speaker, request(query="producer=planner")) == (403, "OTHER_PRODUCER")


@pytest.mark.parametrize("tokens", [{}, {"helper": None}, {"planner": SecretStr("planner-token")}])
@pytest.mark.parametrize(
    ("kind", "taken"),
    [
        ("application/json", True),
        ("text/plain", False),
        ("", False),
    ],
)
def test_callers_take_bodies_as_json_only(
    tokens: Mapping[str, SecretStr | None], kind: str, taken: bool
) -> None:
    headers = {"authorization": "Bearer planner-token"} if "planner" in tokens else {}
    asked = request(method="POST", content_type=kind, more=headers)
    if taken:
        assert Callers(tokens).speaker(asked).producer
    else:
        assert refused(Callers(tokens).speaker, asked) == (415, "NOT_JSON")


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("localhost", True),
        ("[::1]", True),
        ("[::1]:8787", True),
        ("localhost.", False),
        ("0.0.0.0", False),
        ("[::1].example.org", False),
        ("[::1", False),
        ("127.0.0.1:80@example.org", False),
    ],
)
def test_loopback_host_is_a_name_of_this_machine(host: str, expected: bool) -> None:
    assert is_loopback_host(host) is expected


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, None),
        ({"host": "localhost"}, None),
        ({"host": "192.0.2.1:8787"}, None),
        ({"host": "[2001:db8::1]:8787"}, None),
        ({"host": "rebound.example.org"}, 403),
        ({"host": "127.0.0.1.example.org:8787"}, 403),
        ({"host": ""}, 403),
        ({"host": "bot.example.org", "authorization": "Bearer t-one"}, None),
        ({"host": "bot.example.org", "authorization": "Bearer t-two"}, 401),
    ],
)
def test_onlookers_call_it_by_no_name_that_others_made(headers: dict[str, str], status: int | None) -> None:
    callers, asked = Callers({"one": SecretStr("t-one"), "helper": None}), request(client=FAR, more=headers)
    if status is None:
        callers.onlooker(asked)
    else:
        assert refused(callers.onlooker, asked)[0] == status
