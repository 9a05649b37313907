"""The server on a real socket: where it listens, how it ends, how many may be connected."""

from __future__ import annotations

import asyncio
import resource
import socket
from collections.abc import AsyncIterator, Collection, Iterator
from contextlib import asynccontextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any, cast

import httpx
import pytest
import structlog
from fastapi import APIRouter, Response
from fastapi.responses import StreamingResponse
from starlette.requests import Request
from uvicorn.protocols.http.h11_impl import H11Protocol

from bot.errors import AddressInUseError, ConfigurationError, TaskDiedError
from bot.settings.load import parse_settings
from bot.settings.model import HttpSettings, Settings
from bot.web.guard import Callers, stopping_of
from bot.web.server import HttpServer, build_app, listen, most_connections
from tests.kit.until import until
from tests.unit.bot.web.serving import PATIENCE
from tests.unit.bot.web.serving import serving as serving_app

CONNECTIONS = 4
HEAD = b"GET /fast HTTP/1.1\r\nHost: localhost\r\n"
BODY = b"POST /read HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\n"
WAIT = b"GET /wait HTTP/1.1\r\nHost: localhost\r\n\r\n"
LARGE = 32 * 1024 * 1024
TOKENS = {"SLACK_BOT_TOKEN": "xoxb-1-1-a", "SLACK_APP_TOKEN": "xapp-1-A-1-a", "SLACK_SIGNING_SECRET": "s"}
PLAIN = '[[routes]]\nchannel = "C1"\n'


class Caller:
    """One connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self._writer = reader, writer

    async def send(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()

    async def answer(self) -> tuple[int, dict[str, str], bytes]:
        async with asyncio.timeout(PATIENCE):
            head = (await self.reader.readuntil(b"\r\n\r\n")).decode()
            status, *lines = head.strip().split("\r\n")
            headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
            body = await self.reader.readexactly(int(headers["content-length"]))
        return int(status.split()[1]), headers, body

    async def ended(self) -> bytes:
        """What came until the other side closed."""
        async with asyncio.timeout(PATIENCE):
            try:
                return await self.reader.read()
            except ConnectionResetError:
                return b""

    def close(self) -> None:
        self._writer.close()


class World:
    def __init__(self, server: HttpServer, client: httpx.AsyncClient, waiting: asyncio.Semaphore) -> None:
        self.server = server
        self._port = int(server.url.rpartition(":")[2])
        self._callers: list[Caller] = []
        self.client = client
        self.waiting = waiting  # released by each request that waits
        self.release = server.stopping

    async def connect(self, said: bytes = b"") -> Caller:
        caller = Caller(*await asyncio.open_connection("127.0.0.1", self._port))
        self._callers.append(caller)
        await caller.send(said)
        return caller

    @property
    def connections(self) -> Collection[H11Protocol]:
        """Who is connected, as the server sees it."""
        return cast("Collection[H11Protocol]", self.server._server.server_state.connections)

    def close(self) -> None:
        for caller in self._callers:
            caller.close()


def routes(waiting: asyncio.Semaphore) -> APIRouter:
    router = APIRouter()

    @router.get("/fast")
    async def fast() -> dict[str, bool]:
        return {"ok": True}

    @router.get("/large")
    async def large() -> Response:
        return Response(b"x" * LARGE)

    @router.post("/read")
    async def read(request: Request) -> dict[str, int]:
        return {"length": len(await request.body())}

    @router.get("/wait")
    async def wait(request: Request) -> dict[str, bool]:
        waiting.release()
        await stopping_of(request).wait()
        return {"ended": True}

    @router.get("/stream")
    async def stream(request: Request) -> StreamingResponse:
        async def lines() -> AsyncIterator[bytes]:
            yield b": hello\n\n"
            waiting.release()
            await stopping_of(request).wait()
            yield b": bye\n\n"

        return StreamingResponse(lines(), media_type="text/event-stream")

    @router.get("/stuck")
    async def stuck() -> None:
        waiting.release()
        await asyncio.Event().wait()

    return router


@asynccontextmanager
async def serving(connections: int = CONNECTIONS) -> AsyncIterator[World]:
    waiting = asyncio.Semaphore(0)
    async with (
        serving_app(build_app([routes(waiting)], Callers({})), connections) as server,
        httpx.AsyncClient(base_url=server.url, timeout=PATIENCE, trust_env=False) as client,
    ):
        world = World(server, client, waiting)
        try:
            yield world
        finally:
            world.close()


@pytest.fixture(autouse=True)
def log() -> Iterator[list[Any]]:
    with structlog.testing.capture_logs() as lines:
        yield cast("list[Any]", lines)


async def test_server_answers_and_documents_what_it_serves() -> None:
    async with serving() as world:
        answer = await world.client.get("/fast")
        document = (await world.client.get("/openapi.json")).json()
    assert (answer.status_code, answer.json()) == (200, {"ok": True})
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["cache-control"] == "no-store"
    assert "server" not in answer.headers
    assert document["info"]["version"] == version("clarify-bot")
    responses = document["paths"]["/fast"]["get"]["responses"]
    assert set(responses) == {"200", "default"}
    assert document["components"]["schemas"]["ErrorBody"]["required"] == ["error", "message"]


@pytest.mark.parametrize(
    ("path", "expected"), [("/wait", '{"ended":true}'), ("/stream", ": hello\n\n: bye\n\n")]
)
async def test_end_of_the_server_ends_what_waits(path: str, expected: str) -> None:
    async with serving() as world:
        asked = asyncio.create_task(world.client.get(path))
        async with asyncio.timeout(PATIENCE):
            await world.waiting.acquire()
        world.server.begin_stop()
        answer = await asked
    assert (answer.status_code, answer.text) == (200, expected)


async def test_end_of_the_server_does_not_wait_for_ever() -> None:
    async with serving() as world:
        asked = asyncio.create_task(world.client.get("/stuck"))
        async with asyncio.timeout(PATIENCE):
            await world.waiting.acquire()
        world.server.begin_stop()
        answer = await asked
    assert (answer.status_code, answer.json()["error"]) == (503, "STOPPING")


def unserved(host: str = "127.0.0.1", port: int = 0) -> HttpServer:
    return HttpServer(build_app([], Callers({})), host, port, CONNECTIONS)


async def test_run_cancelled_gives_the_address_free() -> None:
    server = unserved()
    port = int(server.url.rpartition(":")[2])
    running = asyncio.create_task(server.run())
    async with asyncio.timeout(PATIENCE), httpx.AsyncClient(trust_env=False) as client:
        assert (await client.get(f"{server.url}/nowhere")).status_code == 404
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
    assert server.stopping.is_set()
    again = unserved(port=port)
    again.begin_stop()


async def test_run_that_ends_by_itself_is_an_error() -> None:
    server = unserved()
    server._server.should_exit = True
    with pytest.raises(TaskDiedError):
        await server.run()
    server.begin_stop()


@pytest.fixture
def taken() -> Iterator[int]:
    """A port at which somebody else listens."""
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        yield other.getsockname()[1]


@pytest.mark.parametrize(
    ("host", "why"),
    [("192.0.2.1", "not an address of this machine"), ("no-such-host.invalid", "unknown host")],
)
async def test_address_of_another_machine_is_said(host: str, why: str) -> None:
    with pytest.raises(ConfigurationError, match=f"^http.listen: {host}:0: {why}$"):
        unserved(host)


@pytest.mark.parametrize("host", ["localhost", "::1"])
async def test_address_may_be_a_name_or_of_version_6(host: str) -> None:
    if host == "::1" and not _has_version_6():
        pytest.skip("this machine has no ::1")
    server = unserved(host)
    assert server.url.startswith("http://[::1]:" if host == "::1" else "http://localhost:")
    server.begin_stop()


def _has_version_6() -> bool:
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return False
    return True


def configured(folder: Path, text: str, default: int | None = None) -> Settings:
    """`default`: the port that stands in for the one which is taken where none is configured."""
    settings = parse_settings(text, file=folder / "clarify.toml", environ=TOKENS)
    if default is None:
        return settings
    http = HttpSettings.model_construct(set(), listen=f"127.0.0.1:{default}")
    return settings.model_copy(update={"http": http})


async def test_taken_default_address_that_nobody_needs_is_no_trouble(
    tmp_path: Path, taken: int, log: list[Any]
) -> None:
    settings = configured(tmp_path, PLAIN, taken)
    assert listen(build_app([], Callers({})), settings, CONNECTIONS) is None
    assert [each["log_level"] for each in log] == ["warning"]


@pytest.mark.parametrize(
    "text", [PLAIN + '[[producers]]\nname = "planner"\n', PLAIN + '[slack]\nmode = "http"\n', None]
)
async def test_taken_address_that_somebody_counts_on_stops_the_start(
    tmp_path: Path, taken: int, text: str | None
) -> None:
    own = f'{PLAIN}[http]\nlisten = "127.0.0.1:{taken}"\n'
    settings = configured(tmp_path, text, taken) if text else configured(tmp_path, own)
    with pytest.raises(
        AddressInUseError, match=r"clarify.toml: http.listen: 127.0.0.1:\d+: the address is already in use"
    ):
        listen(build_app([], Callers({})), settings, CONNECTIONS)


async def test_parts_of_an_answer_do_not_wait_for_each_other() -> None:
    async with serving() as world:
        await world.client.get("/fast")
        (connection,) = world.connections
        ours = connection.transport.get_extra_info("socket")
        assert ours.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


async def test_silent_connection_gives_way_and_who_asks_is_served() -> None:
    async with serving() as world:
        busy = await world.connect(WAIT)
        async with asyncio.timeout(PATIENCE):
            await world.waiting.acquire()
        silent = [await world.connect(said) for said in (b"", BODY, HEAD, b"", BODY)]
        caller = await world.connect(HEAD + b"\r\n")
        assert (await caller.answer())[0] == 200
        for each in silent[:4]:  # the longest silent ones first
            assert await each.ended() == b""
        assert not silent[4].reader.at_eof()
        world.release.set()
        assert (await busy.answer())[0] == 200


async def test_who_does_not_read_its_answer_gives_way() -> None:
    async with serving(2) as world:
        deaf = await world.connect(b"GET /large HTTP/1.1\r\nHost: localhost\r\n\r\n")
        await until(lambda: any(each.flow.write_paused for each in world.connections))
        caller = await world.connect(HEAD + b"\r\n")
        assert (await caller.answer())[0] == 200
        assert len(await deaf.ended()) < LARGE


async def test_who_comes_while_all_are_busy_is_told() -> None:
    async with serving() as world:
        busy = [await world.connect(WAIT) for _ in range(3)]
        async with asyncio.timeout(PATIENCE):
            for _ in busy:
                await world.waiting.acquire()
        late = await world.connect(HEAD + b"\r\n")
        assert (await late.answer())[0] == 503
        assert await late.ended() == b""
        world.release.set()
        for each in busy:
            assert (await each.answer())[0] == 200


@pytest.mark.parametrize(
    ("soft", "hard", "most", "raised"), [(1024, 1024, 512, False), (1024, 524288, 2048, True)]
)
def test_descriptors_are_raised_where_that_is_allowed_and_half_are_left_to_others(
    monkeypatch: pytest.MonkeyPatch, soft: int, hard: int, most: int, *, raised: bool
) -> None:
    asked: list[tuple[int, int]] = []
    monkeypatch.setattr(resource, "getrlimit", lambda _: (soft, hard))
    monkeypatch.setattr(resource, "setrlimit", lambda _, limits: asked.append(limits))
    assert most_connections() == most
    assert asked == ([(4096, hard)] if raised else [])
