"""The server on a real socket: where it listens, how it ends, how many may be connected, and how long each may take."""

from __future__ import annotations

import asyncio
import json
import resource
import socket
import time
from collections.abc import AsyncIterator, Collection, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any, cast

import httpx
import pytest
import structlog
from fastapi import APIRouter, Response
from fastapi.responses import StreamingResponse
from starlette.requests import Request

from bot.errors import AddressInUseError, ConfigurationError, TaskDiedError
from bot.settings.load import parse_settings
from bot.settings.model import HttpSettings, Settings
from bot.web import server as web_server
from bot.web.callers import Callers
from bot.web.guard import stopping_of
from bot.web.server import (
    ConnectionLimits,
    Connections,
    HttpConnection,
    HttpServer,
    build_app,
    listen,
    raise_descriptor_limit,
)
from tests.kit.until import until
from tests.unit.bot.web.serving import PATIENCE
from tests.unit.bot.web.serving import serving as serving_app

LIMITS = ConnectionLimits(connections=3, per_address=2)
HEAD = b"GET /fast HTTP/1.1\r\nHost: localhost\r\n"
BODY = b"POST /read HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\n"
NOWHERE = b"POST /nowhere HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100000\r\n\r\n"
WAIT = b"GET /wait HTTP/1.1\r\nHost: localhost\r\n\r\n"
SOON = 0.3
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
    def connections(self) -> Collection[HttpConnection]:
        """Who is connected, as the server sees it."""
        return cast("Collection[HttpConnection]", self.server._server.server_state.connections)

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
async def serving(limits: ConnectionLimits = LIMITS) -> AsyncIterator[World]:
    waiting = asyncio.Semaphore(0)
    async with (
        serving_app(build_app([routes(waiting)], Callers({})), limits) as server,
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
    return HttpServer(build_app([], Callers({})), host, port, LIMITS)


async def test_run_cancelled_gives_the_address_free() -> None:
    server = unserved()
    await server.bind()
    port = int(server.url.rpartition(":")[2])
    running = asyncio.create_task(server.run())
    async with asyncio.timeout(PATIENCE), httpx.AsyncClient(trust_env=False) as client:
        assert (await client.get(f"{server.url}/nowhere")).status_code == 404
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
    assert server.stopping.is_set()
    again = unserved(port=port)
    await again.bind()
    again.begin_stop()


async def test_run_that_ends_by_itself_is_an_error() -> None:
    server = unserved()
    await server.bind()
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
        await unserved(host).bind()


@pytest.mark.parametrize("host", ["localhost", "::1"])
async def test_address_may_be_a_name_or_of_version_6(host: str) -> None:
    if host == "::1" and not _has_version_6():
        pytest.skip("this machine has no ::1")
    server = unserved(host)
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
    assert await listen(build_app([], Callers({})), settings, LIMITS) is None
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
        await listen(build_app([], Callers({})), settings, LIMITS)


@pytest.mark.parametrize(
    ("said", "status"),
    [(b"", None), (HEAD, 408), (BODY + b"x", 408), (NOWHERE + b"x", 404)],
    ids=["nothing", "half a head", "half a body", "half a body that nobody wants"],
)
async def test_request_that_does_not_end_is_ended_and_told_so(said: bytes, status: int | None) -> None:
    async with serving(replace(LIMITS, head=SOON, body=SOON)) as world:
        began = time.monotonic()
        caller = await world.connect(said)
        answer = await caller.ended()
    assert time.monotonic() - began >= SOON * 0.9
    if status is None:
        assert answer == b""
    else:
        head, _, body = answer.partition(b"\r\n\r\n")
        assert head.startswith(f"HTTP/1.1 {status} ".encode())
        assert json.loads(body)["error"] == ("TOO_SLOW" if status == 408 else "NOT_FOUND")


@pytest.mark.parametrize("said", [HEAD, BODY, NOWHERE], ids=["head", "body", "body that nobody wants"])
async def test_dribbling_gains_no_time(said: bytes) -> None:
    async with serving(replace(LIMITS, head=SOON, body=SOON)) as world:
        caller = await world.connect(said)
        ending = asyncio.ensure_future(caller.ended())
        began = time.monotonic()
        while not ending.done() and time.monotonic() - began < PATIENCE:
            try:
                await caller.send(b"X")
            except ConnectionError:
                break
            await asyncio.sleep(SOON / 10)
        await ending
        assert time.monotonic() - began < PATIENCE / 2


async def test_parts_of_an_answer_do_not_wait_for_each_other() -> None:
    async with serving() as world:
        await world.client.get("/fast")
        (connection,) = world.connections
        ours = connection.transport.get_extra_info("socket")
        assert ours.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


async def test_request_that_runs_may_take_its_time() -> None:
    async with serving(replace(LIMITS, head=SOON, body=SOON, write=SOON)) as world:
        caller = await world.connect(WAIT)
        silent = await world.connect()
        await silent.ended()
        assert not caller.reader.at_eof()
        world.release.set()
        assert (await caller.answer())[0] == 200


async def test_answer_that_nobody_reads_is_given_up() -> None:
    async with serving(replace(LIMITS, write=SOON)) as world:
        caller = await world.connect(b"GET /large HTTP/1.1\r\nHost: localhost\r\n\r\n")
        await until(lambda: world.connections)
        await until(lambda: not world.connections)
        read = 0
        try:
            async with asyncio.timeout(PATIENCE):
                while part := await caller.reader.read(65536):
                    read += len(part)
        except ConnectionResetError:
            pass
        assert read < LARGE


@pytest.mark.parametrize("more", [b"", b"Connection: close\r\n"], ids=["kept", "closed"])
async def test_answer_that_is_read_slowly_is_read_whole(monkeypatch: pytest.MonkeyPatch, more: bytes) -> None:
    monkeypatch.setattr(web_server, "_LINGER", SOON)
    async with serving(replace(LIMITS, head=SOON, write=SOON)) as world:
        caller = await world.connect(b"GET /large HTTP/1.1\r\nHost: localhost\r\n" + more + b"\r\n")
        head = await caller.reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200")
        read, began = 0, time.monotonic()
        while read < LARGE:
            read += len(await caller.reader.readexactly(LARGE // 32))
            await asyncio.sleep(SOON / 8)  # the pace
        assert time.monotonic() - began > 3 * SOON


async def test_idle_connection_gives_way_and_who_asks_is_served(log: list[Any]) -> None:
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
    told = [each for each in log if each["event"] == "too many connections; idle ones are closed"]
    assert len(told) == 1  # not for each
    assert told[0]["client"] == "127.0.0.1"


async def test_who_does_not_read_its_answer_gives_way(log: list[Any]) -> None:
    async with serving(ConnectionLimits(connections=1, per_address=1)) as world:
        deaf = await world.connect(b"GET /large HTTP/1.1\r\nHost: localhost\r\n\r\n")
        await until(lambda: any(each.flow.write_paused for each in world.connections))
        caller = await world.connect(HEAD + b"\r\n")
        assert (await caller.answer())[0] == 200
        assert len(await deaf.ended()) < LARGE
    assert [each["event"] for each in log if "connections" in each["event"]] == [
        "too many connections; idle ones are closed"
    ]


async def test_who_comes_while_all_are_busy_is_told() -> None:
    async with serving() as world:
        busy = [await world.connect(WAIT) for _ in range(3)]
        async with asyncio.timeout(PATIENCE):
            for _ in busy:
                await world.waiting.acquire()
        late = await world.connect(HEAD + b"\r\n")
        status, headers, body = await late.answer()
        assert (status, headers["retry-after"], json.loads(body)["error"]) == (503, "5", "BUSY")
        assert await late.ended() == b""
        world.release.set()
        for each in busy:
            assert (await each.answer())[0] == 200


class Stand:
    """Stands for a connection from elsewhere; `lost` says that it was ended."""

    def __init__(self, address: str) -> None:
        self.address, self.lost, self.transport = address, False, self

    def abort(self) -> None:
        self.lost = True

    close = abort


def arrive(connections: Connections, address: str, *, asks: bool = False) -> tuple[Stand, bool]:
    stand = Stand(address)
    connection = cast("HttpConnection", stand)
    served = connections.admit(connection)
    connections.waits(connection, since_now=not asks)
    return stand, served


def test_address_has_a_share_but_this_machine_has_all() -> None:
    connections = Connections(ConnectionLimits(connections=10, per_address=2))
    other, _ = arrive(connections, "192.0.2.2")
    first, _ = arrive(connections, "192.0.2.1")
    arrive(connections, "192.0.2.1", asks=True)
    assert arrive(connections, "192.0.2.1", asks=True)[1]
    assert (first.lost, other.lost) == (True, False)  # its own one gives way
    assert not arrive(connections, "192.0.2.1")[1]  # both are busy
    assert all(arrive(connections, "127.0.0.1", asks=True)[1] for _ in range(6))


def test_connection_that_comes_while_the_server_ends_is_ended_too() -> None:
    connections = Connections(ConnectionLimits(connections=9, per_address=9))
    first, _ = arrive(connections, "127.0.0.1")
    connections.end()
    late, served = arrive(connections, "127.0.0.1")
    assert (first.lost, late.lost, served) == (True, True, False)


@pytest.mark.parametrize(
    ("descriptors", "most", "each", "waiting"),
    [(4096, 2048, 512, 1000), (64, 32, 8, 16)],
)
def test_half_of_the_descriptors_is_left_to_others(
    descriptors: int, most: int, each: int, waiting: int
) -> None:
    limits = ConnectionLimits.within(descriptors)
    assert (limits.connections, limits.per_address, limits.waiting) == (most, each, waiting)


@pytest.mark.parametrize(
    ("soft", "hard", "now", "raised"),
    [
        (1024, 1024, 1024, False),
        (1024, 524288, 4096, True),
    ],
)
def test_descriptor_limit_is_raised_where_that_is_allowed(
    monkeypatch: pytest.MonkeyPatch, soft: int, hard: int, now: int, *, raised: bool
) -> None:
    asked: list[tuple[int, int]] = []
    monkeypatch.setattr(resource, "getrlimit", lambda _: (soft, hard))
    monkeypatch.setattr(resource, "setrlimit", lambda _, limits: asked.append(limits))
    assert raise_descriptor_limit() == now
    assert asked == ([(4096, hard)] if raised else [])
