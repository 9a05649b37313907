from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from datetime import timedelta

import httpx
import pytest
from pydantic import SecretStr
from structlog.testing import capture_logs

from bot.http import open_client
from bot.paging.heartbeat import Heartbeat
from tests.clocks import ManualClock, until
from tests.unit.bot.paging.crew_parties import Receiver, receiving

KEY = "s3cret-key"
MINUTE = timedelta(minutes=1)
Start = Callable[[str, "Health"], None]


class Health:
    def __init__(self) -> None:
        self.good = True

    def __call__(self) -> bool:
        return self.good


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    async with receiving() as found:
        yield found


@pytest.fixture
async def http() -> AsyncIterator[httpx.AsyncClient]:
    async with open_client(None) as client:
        yield client


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def start(http: httpx.AsyncClient, clock: ManualClock) -> AsyncIterator[Start]:
    tasks: list[asyncio.Task[None]] = []

    def begin(url: str, health: Health) -> None:
        beat = Heartbeat(SecretStr(url), MINUTE, clock, http, health)
        tasks.append(asyncio.create_task(beat.run()))

    yield begin
    for task in tasks:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def next_beat(clock: ManualClock) -> None:
    await until(lambda: clock.sleeping)
    await clock.advance(60)
    await until(lambda: clock.sleeping)


def url_of(receiver: Receiver) -> str:
    return f"http://127.0.0.1:{receiver.port}/ping/{KEY}?via=clarify"


async def test_heartbeat_beats_every_minute_while_healthy(
    receiver: Receiver, clock: ManualClock, start: Start
) -> None:
    health = Health()
    start(url_of(receiver), health)
    await until(lambda: clock.sleeping)
    assert receiver.paths == [f"/ping/{KEY}?via=clarify"]

    await next_beat(clock)
    assert len(receiver.paths) == 2

    health.good = False
    await next_beat(clock)
    await next_beat(clock)
    assert len(receiver.paths) == 2

    health.good = True
    await next_beat(clock)
    assert len(receiver.paths) == 3


async def test_heartbeat_trouble_is_logged_once_without_the_address(
    receiver: Receiver, clock: ManualClock, start: Start
) -> None:
    receiver.status = 500
    with capture_logs() as logs:
        start(url_of(receiver), Health())
        await next_beat(clock)
        await next_beat(clock)
        receiver.status = 200
        await next_beat(clock)
        await next_beat(clock)

    assert [(entry["event"], entry.get("reason")) for entry in logs] == [
        ("the heartbeat does not arrive", "HTTP 500"),
        ("the heartbeat arrives again", None),
    ]
    assert KEY not in str(logs)
    assert len(receiver.paths) == 5


async def test_heartbeat_goes_on_when_nobody_listens(clock: ManualClock, start: Start) -> None:
    with socket.socket() as taken, capture_logs() as logs:
        taken.bind(("127.0.0.1", 0))
        start(f"http://127.0.0.1:{taken.getsockname()[1]}/{KEY}", Health())
        await next_beat(clock)
        await next_beat(clock)

    (entry,) = logs
    assert "cannot connect" in entry["reason"]
    assert KEY not in str(logs)


@pytest.mark.parametrize("url", [f"ftp://{KEY}", f"http://[{KEY}", ""])
async def test_heartbeat_goes_on_with_an_address_that_is_none(
    clock: ManualClock, start: Start, url: str
) -> None:
    with capture_logs() as logs:
        start(url, Health())
        await next_beat(clock)

    (entry,) = logs
    assert KEY not in str(entry)
