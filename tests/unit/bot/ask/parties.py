"""The parties of these tests: an inbox, a clock, servers that misbehave, and a producer from PyPI."""

from __future__ import annotations

import asyncio
import json
import random
import sys
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Self

from pydantic import SecretStr

from bot.ask.client import Dialect, Reply
from bot.ask.inbox import Arrived, Inbox, Incoming
from bot.ask.producers import Producers
from bot.ask.receiver import StreamTrouble
from bot.errors import StorageUnavailable
from bot.settings.model import ProducerSettings
from bot.storage.opening import open_storage
from bot.storage.store import Store
from bot.telemetry import Telemetry
from core.clarification import Response
from core.clock import Clock
from tests.kit.clocks import ManualClock
from workspace import stop_accepting

NOW = datetime(2026, 5, 24, 14, 22, 11, tzinfo=UTC)
Writer = asyncio.StreamWriter
Serve = Callable[[str, Writer], Awaitable[None]]


def seeded(seed: int) -> random.Random:
    return random.Random(seed)  # noqa: S311  jitter, no secret


def event(kind: str = "agent.state.changed", n: int = 1, **fields: Any) -> dict[str, Any]:
    return {
        "@context": "https://aaep-protocol.org/context/v1",
        "type": f"aaep:{kind}",
        "event_id": f"evt_{n:016x}",
        "session_id": "sess_2c91a7b4d23f1e88",
        "timestamp": "2026-05-24T14:22:11.000Z",
        "producer": {"agent_id": "retirement-planner"},
        **fields,
    }


def question(n: int = 1, **fields: Any) -> dict[str, Any]:
    asked = {
        "question": "Deploy?",
        "reply_token": f"rpl_{n:016x}",
        "timeout_seconds": 600,
        "urgency": "critical",
    }
    return event("agent.awaiting.clarification", n, **{**asked, **fields})


def frame(data: object, *, sse_id: str | None = None) -> bytes:
    text = data if isinstance(data, str) else json.dumps(data)
    return (f"id: {sse_id}\n" if sse_id else "").encode() + f"data: {text}\n\n".encode()


def reply(response: Response = "yes") -> Reply:
    return Reply("rpl_0000000000000001", response, NOW, "user:slack/T1/U1", None)


class Box(Inbox):
    """An inbox that keeps what came, and that can be out of order for a while, or slow, or choke on one event."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.got: list[Incoming] = []
        self.unavailable = 0
        self.gate = asyncio.Event()  # cleared: `put` waits
        self.gate.set()
        self.chokes_on: str | None = None

    async def put(self, *incoming: Incoming) -> list[Arrived]:
        await self.gate.wait()
        self._check()
        if any(each.event.event_id == self.chokes_on for each in incoming):
            raise KeyError("Deploy to production?")
        arrived = await super().put(*incoming)
        self.got.extend(incoming)
        return arrived

    async def cursor(self, producer: str) -> str | None:
        self._check()
        return await super().cursor(producer)

    def ids(self, producer: str | None = None) -> list[str]:
        return [one.event.event_id for one in self.got if producer in (None, one.producer)]

    def _check(self) -> None:
        if self.unavailable:
            self.unavailable -= 1
            raise StorageUnavailable


async def until_ticking(clock: ManualClock, seconds: float, condition: Callable[[], object]) -> None:
    """Returns once `condition()` holds, moving the clock on by `seconds` again and again."""
    async with asyncio.timeout(60):
        while not condition():
            await clock.advance(seconds)
            await asyncio.sleep(0.005)


Configured = tuple[ProducerSettings, str | None]
"""A producer's table, and the token that the environment has for it."""


class Party:
    """All producers with what surrounds them; it starts and stops as a context."""

    def __init__(
        self,
        *configured: Configured,
        open_on: tuple[str, ...] = (),
        box: Callable[[Store], Box] = Box,
        clock: Clock | None = None,
        cursor: str | None = None,
    ) -> None:
        """`box` makes the inbox; `cursor` is what the planner's stream is resumed after."""
        self.box: Box
        self.producers: Producers
        self.clock = ManualClock(NOW)
        self.telemetry = Telemetry(self.clock)
        self.troubles: list[StreamTrouble] = []
        self._configured = configured
        self._open_on = open_on
        self._make_box = box
        self._real_clock = clock
        self._cursor = cursor
        self._folder = TemporaryDirectory()

    async def __aenter__(self) -> Self:
        self._store = await open_storage(Path(self._folder.name) / "clarify.db")
        self.box = self._make_box(self._store)
        if self._cursor is not None:
            await self._store.run("insert into cursors values ('planner', :cursor)", cursor=self._cursor)
        tokens = {each.name: SecretStr(token) for each, token in self._configured if token}
        self.producers = Producers(
            [each for each, _ in self._configured],
            token_of=lambda each: tokens.get(each.name),
            inbox=self.box,
            store=self._store,
            clock=self._real_clock or self.clock,
            rng=seeded(7),
            report_trouble=self.tell,
            telemetry=self.telemetry,
        )
        await self.producers.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.producers.stop(self._open_on)
        await self._store.close()
        self._folder.cleanup()

    async def tell(self, trouble: StreamTrouble) -> None:
        self.troubles.append(trouble)

    def state(self, name: str = "planner") -> dict[str, Any]:
        return self.producers.status()[name]

    async def until_connected(self, name: str = "planner") -> None:
        await until_ticking(self.clock, 0.2, lambda: self.state(name)["connected"])

    async def until_got(self, *ids: str) -> None:
        await until_ticking(self.clock, 0.2, lambda: set(ids) <= set(self.box.ids()))


def planner(
    url: str | None, dialect: Dialect = "minimal", token: str | None = None, name: str = "planner"
) -> Configured:
    return ProducerSettings(name=name, url=url, dialect=dialect), token


class RawServer:
    """A server that answers as its `serve` says, byte by byte. `requests`: what came, head and body."""

    def __init__(self, serve: Serve) -> None:
        self.requests: list[str] = []
        self.url = ""
        self._serve = serve
        self._server: asyncio.Server
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        await stop_accepting(self._server)
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def heads(self, start: str) -> list[str]:
        return [request for request in self.requests if request.startswith(start)]

    def _accept(self, reader: asyncio.StreamReader, writer: Writer) -> None:
        task = asyncio.ensure_future(self._talk(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _talk(self, reader: asyncio.StreamReader, writer: Writer) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            length = next(
                (int(x.split(":")[1]) for x in head.lower().split("\r\n") if x.startswith("content-length")),
                0,
            )
            request = head + (await reader.readexactly(length)).decode()
            self.requests.append(request)
            await self._serve(request, writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass  # the other side hung up, as it may
        finally:
            writer.close()


async def answer(writer: Writer, status: str, body: str = "", **headers: str) -> None:
    """A whole HTTP answer; header names with `_` for `-`."""
    lines = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
    data = body.encode()
    writer.write(
        f"HTTP/1.1 {status}\r\n{lines}Content-Length: {len(data)}\r\nConnection: close\r\n\r\n".encode()
        + data
    )
    await writer.drain()


async def stream(writer: Writer, *parts: bytes, hold: bool = True) -> None:
    """An event stream of these parts; held open for ever unless told otherwise."""
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n")
    for part in parts:
        writer.write(part)
        await writer.drain()
    if hold:
        await asyncio.Event().wait()


class Agent:
    """`aaep-minimal-producer` as a process, with a door to emit through its own emitter."""

    def __init__(self, url: str, process: asyncio.subprocess.Process) -> None:
        self.url = url
        self.process = process

    @classmethod
    async def start(cls, port: int = 0) -> Agent:
        script = Path(__file__).with_name("minimal_agent.py")
        process = await asyncio.create_subprocess_exec(
            sys.executable, str(script), str(port), stdout=asyncio.subprocess.PIPE
        )
        assert process.stdout is not None
        line = await process.stdout.readline()
        return cls(f"http://127.0.0.1:{int(line)}", process)

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])

    async def kill(self) -> None:
        if self.process.returncode is None:
            self.process.kill()
        await self.process.communicate()
