"""Somebody opens more connections to the HTTP server than a process may have descriptors, and asks nothing."""

from __future__ import annotations

import asyncio
import resource
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import httpx
import pytest

from tests.acceptance.world import World, question
from tests.kit.lives import Life
from workspace.seed import AGENTS, FOLAKE, SIGNING_SECRET

IDLE = 1100
DESCRIPTORS = 1024
MORE = """
[[producers]]
name = "mailer"
token_env = "MAILER_TOKEN"
"""


@pytest.fixture(autouse=True)
def _many_descriptors() -> Iterator[None]:
    """Of our own, to hold the other ends."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < 2 * IDLE <= hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (2 * IDLE, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@contextmanager
def connections(url: str, count: int, begun: bytes) -> Iterator[None]:
    """That many, each of which sends `begun` and nothing more."""
    address = ("127.0.0.1", httpx.URL(url).port or 0)
    with ExitStack() as stack:
        for _ in range(count):
            connection = stack.enter_context(socket.create_connection(address, timeout=30))
            connection.sendall(begun)
        yield


SAID = {
    "nothing": b"",
    "half a head": b"GET /livez HTTP/1.1\r\nHost: localhost\r\n",
    "half a body": b"POST /slack/events HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n{",
}


@pytest.mark.parametrize(
    ("mode", "said"),
    [("socket", "nothing"), ("http", "half a head"), ("http", "half a body")],
)
async def test_connections_that_ask_nothing_stop_nothing(world: World, mode: str, said: str) -> None:
    text = world.file.read_text().replace('mode = "socket"', f'mode = "{mode}"')
    world.file.write_text(text + MORE)
    secrets = {"MAILER_TOKEN": "mailer-token", "SLACK_SIGNING_SECRET": SIGNING_SECRET}
    life = await Life.begin(
        world,
        env=secrets,
        first=partial(resource.setrlimit, resource.RLIMIT_NOFILE, (DESCRIPTORS, DESCRIPTORS)),
    )
    try:
        url = await world.until(lambda: logged(world, life, "listening", "url"))
        await world.until(lambda: logged(world, life, "ready for clicks", "event"))
        if mode == "http":
            await world.workspace.link.requests.set_url(f"{url}/slack/events")
        before = await world.asked("rpl-before")
        with ExitStack() as stack:
            await asyncio.to_thread(lambda: stack.enter_context(connections(url, IDLE, SAID[said])))
            assert (await world.workspace.click(FOLAKE, AGENTS, before.ts, label="Yes")).ok
            await world.until(lambda: world.agent.honoured("rpl-before"))
            await world.asked("rpl-after")
            await pushed(url, "rpl-pushed")
            await world.until(lambda: world.card_saying("with rpl-pushed?"))
            assert descriptors_of(life) < DESCRIPTORS - 256
    finally:
        await life.end()


def logged(world: World, life: Life, event: str, field: str) -> str | None:
    assert not life.ended, life.last_words()
    return next((line[field] for line in world.logged() if line["event"] == event), None)


def descriptors_of(life: Life) -> int:
    return len(list(Path(f"/proc/{life.process.pid}/fd").iterdir()))


async def pushed(url: str, token: str) -> None:
    """An agent asks over HTTP while the others say nothing."""
    headers = {"Authorization": "Bearer mailer-token"}
    envelope = {
        "@context": "https://aaep-protocol.org/context/v1",
        "timestamp": datetime.now(UTC).isoformat(),
        "producer": {"agent_id": "mailer"},
    }
    async with httpx.AsyncClient(base_url=url, headers=headers, timeout=10, trust_env=False) as client:
        event = envelope | question(token, "sess_pushed")
        answer = await client.post("/aaep/v1/messages", json=event)
        assert answer.status_code == 202, answer.text
        assert (await client.get("/livez")).status_code == 200
