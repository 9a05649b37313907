from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from slack_sdk.web.async_client import AsyncWebClient

from bot.slack.socket import Envelope, SlackSocket, Timing, Unacknowledged
from bot.slackapi import Availability
from core.clock import SystemClock
from tests.kit.until import until
from workspace import Workspace
from workspace.seed import ADE, AGENTS, APP_TOKEN, BOT_TOKEN

QUICK = Timing(
    open=1.0, hello=1.0, ping=0.4, ack=30.0, drain=5.0, overlap=0.5, first_retry=0.01, longest_retry=0.05
)


class Desk:
    """Takes every envelope; a test may make it slow or unwilling."""

    def __init__(self) -> None:
        self.seen: list[Envelope] = []
        self.returns = 0
        self.gate = asyncio.Event()
        self.gate.set()
        self.unwilling = 0
        self.counts: list[int] = []

    async def __call__(self, envelope: Envelope) -> dict[str, Any] | None:
        self.seen.append(envelope)
        await self.gate.wait()
        if self.unwilling:
            self.unwilling -= 1
            raise Unacknowledged("not stored")
        return None

    def returned(self) -> None:
        self.returns += 1

    async def counted(self, others: int) -> None:
        self.counts.append(others)


@asynccontextmanager
async def connected(
    ws: Workspace, desk: Desk, timing: Timing = QUICK, replicas: int = 0
) -> AsyncIterator[SlackSocket]:
    socket = SlackSocket(
        web=AsyncWebClient(BOT_TOKEN, base_url=ws.api_url, retry_handlers=[]),
        app_token=APP_TOKEN,
        clock=SystemClock(),
        jitter=lambda: 0.5,
        on_return=desk.returned,
        counted=desk.counted,
        replicas=lambda: replicas,
        availability=Availability(SystemClock()),
        timing=timing,
    )
    try:
        async with asyncio.timeout(60):
            await socket.start(desk)
        yield socket
    finally:
        desk.gate.set()
        await socket.stop()


@pytest.fixture
def desk() -> Desk:
    return Desk()


def opened(ws: Workspace) -> int:
    return sum(call.method == "apps.connections.open" for call in ws.calls)


async def heard(ws: Workspace, desk: Desk, text: str) -> None:
    """Slack reaches us: somebody says something and it arrives and is acknowledged."""
    await ws.post(ADE, AGENTS, text)
    await until(lambda: any(e.payload["event"].get("text") == text for e in desk.seen))
    await until(lambda: ws.acks and ws.acks[-1].ok)


async def test_rejected_url_is_replaced_by_a_new_one(ws: Workspace, desk: Desk) -> None:
    ws.link.reject(3)
    async with connected(ws, desk):
        assert ws.link.refused_upgrades == 3
        assert opened(ws) == 4
        await heard(ws, desk, "one")
    assert desk.returns == 1


async def test_half_open_socket_is_replaced(ws: Workspace, desk: Desk) -> None:
    async with connected(ws, desk) as socket:
        ws.link.half_open()
        await ws.wait_for(lambda: any(not c.half_open for c in ws.link.connections))
        await until(lambda: socket.connected and desk.returns == 1)
        await heard(ws, desk, "one")


async def test_quiet_healthy_socket_is_left_alone(ws: Workspace, desk: Desk) -> None:
    async with connected(ws, desk, replace(QUICK, ping=0.1)) as socket:
        before = socket.since
        await asyncio.sleep(0.4)  # four pings
        assert opened(ws) == 1
        assert socket.connected
        assert socket.since == before


async def test_bot_whose_replicas_have_all_connections_runs_without_until_there_is_one(
    ws: Workspace, desk: Desk
) -> None:
    async with AsyncExitStack() as ten:
        others = [await ten.enter_async_context(connected(ws, Desk(), replicas=10)) for _ in range(10)]
        async with connected(ws, desk, replicas=10) as socket:
            assert socket.spare
            assert not socket.connected
            await others[0].stop()
            await until(lambda: socket.connected)
            assert not socket.spare
            assert desk.returns == 1, "what was missed is looked for"


async def test_bot_does_not_do_without_a_connection_where_others_than_replicas_have_them(
    ws: Workspace, desk: Desk
) -> None:
    async with AsyncExitStack() as ten:
        others = [await ten.enter_async_context(connected(ws, Desk())) for _ in range(10)]

        async def gives_up() -> None:
            before = opened(ws)
            await until(lambda: opened(ws) > before + 3)
            await others[0].stop()

        waiting = asyncio.create_task(gives_up())
        async with connected(ws, desk) as socket:
            assert waiting.done(), "it waited for one"
            assert socket.connected
        await waiting


async def test_refresh_opens_the_next_before_the_old_one_ends(ws: Workspace, desk: Desk) -> None:
    async with connected(ws, desk):
        old = ws.link.connections[0]
        open_at_once: list[int] = []

        async def second() -> None:
            await ws.wait_for(lambda: len(ws.link.connections) == 2)
            open_at_once.append(len(ws.link.connections))

        waiting = asyncio.create_task(second())
        await ws.link.disconnect("refresh_requested")
        await waiting
        await ws.wait_for(lambda: old not in ws.link.connections)
        await heard(ws, desk, "one")
    assert open_at_once == [2]
    assert desk.returns == 0


async def test_token_that_is_refused_later_is_tried_again(ws: Workspace, desk: Desk) -> None:
    async with connected(ws, desk):
        ws.faults.add("apps.connections.open", "refuse:invalid_auth", times=2)
        ws.link.cut()
        await until(lambda: desk.returns == 1)
        await heard(ws, desk, "one")


async def test_opening_that_hangs_is_given_up(ws: Workspace, desk: Desk) -> None:
    ws.faults.add("apps.connections.open", "delay:30", times=1)
    async with asyncio.timeout(60), connected(ws, desk) as socket:
        assert socket.connected


async def test_sign_of_life_elsewhere_ends_the_wait_for_the_next_try(
    ws: Workspace, desk: Desk, caplog: pytest.LogCaptureFixture
) -> None:
    clock = SystemClock()
    availability = Availability(clock)
    socket = SlackSocket(
        web=AsyncWebClient(BOT_TOKEN, base_url=ws.api_url, retry_handlers=[]),
        app_token=APP_TOKEN,
        clock=clock,
        jitter=lambda: 0.5,
        availability=availability,
        counted=desk.counted,
        timing=replace(QUICK, first_retry=600.0, longest_retry=600.0),
    )
    ws.faults.add("apps.connections.open", "5xx:503")
    starting = asyncio.create_task(socket.start(desk))
    try:
        await until(lambda: "cannot be reached" in caplog.text)  # it rests
        availability.failed()
        availability.answered()
        async with asyncio.timeout(60):  # not ten minutes
            await starting
    finally:
        await socket.stop()


async def test_bots_on_the_same_database_are_expected_and_one_more_is_noticed(
    ws: Workspace, desk: Desk, caplog: pytest.LogCaptureFixture
) -> None:
    quick = replace(QUICK, count_again=0.2, count_others=0.2)
    async with connected(ws, Desk()), connected(ws, desk, quick, replicas=1) as socket:
        await until(lambda: desk.counts)
        assert desk.counts == [0]
        assert "ANOTHER BOT" not in caplog.text
        async with connected(ws, Desk()):
            socket.suspect()
            await until(lambda: socket.others == 1)


def _reopened(ws: Workspace, socket: SlackSocket, before: int) -> bool:
    return opened(ws) > before and socket.connected


async def test_refresh_and_reconnect_are_no_other_bot(ws: Workspace, desk: Desk) -> None:
    async with connected(ws, desk, replace(QUICK, count_again=0.1)) as socket:
        for _ in range(2):
            before = opened(ws)
            await ws.link.disconnect("refresh_requested")
            await until(partial(_reopened, ws, socket, before))
        ws.link.cut()
        await until(lambda: opened(ws) > 3 and socket.connected)
        await heard(ws, desk, "one")
        await asyncio.sleep(0.3)  # long enough to be counted again, if anything was suspected
        assert set(desk.counts) == {0}
