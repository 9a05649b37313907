"""Sockets: what is retried and what is not, what a fault of the connection does."""

from __future__ import annotations

import asyncio
from typing import Any

import aiohttp
import pytest

from bot.workspace import Workspace
from bot.workspace.seed import ADE, AGENTS
from tests.unit.bot.workspace.kit import (
    Bot,
    Json,
    StartBot,
    actions,
    button,
    card,
    listening,
)


async def test_event_without_acknowledgement_is_retried(ws: Workspace, start: StartBot) -> None:
    bot = Bot(ws)

    @bot.app.event("message")
    async def deaf_twice(ack: Any, body: Json) -> None:
        await bot.note(body)
        if len(bot.bodies) < 3:
            await asyncio.Event().wait()
        await ack()

    await start(bot)
    await ws.post(ADE, AGENTS, "hello?")
    await ws.wait_for(lambda: ws.acks and ws.acks[-1].ok)
    assert [(a.attempt, a.failure) for a in ws.acks] == [(0, "timeout"), (1, "timeout"), (2, None)]
    assert len({b["event_id"] for b in bot.bodies}) == 1


async def test_events_while_nobody_is_connected_are_retried_and_lost(ws: Workspace) -> None:
    await ws.post(ADE, AGENTS, "hello?")
    await ws.wait_for(lambda: len(ws.acks) == 4)
    assert {a.failure for a in ws.acks} == {"no_connection"}


async def test_click_without_acknowledgement_is_an_error_and_not_retried(
    ws: Workspace, start: StartBot
) -> None:
    bot = Bot(ws)

    @bot.app.action("yes")
    async def deaf(body: Json) -> None:
        await bot.note(body)

    await start(bot)
    ts = await card(bot, actions(button()))
    outcome = await ws.click(ADE, AGENTS, ts, "yes")
    assert (outcome.ok, outcome.error) == (False, "timeout")
    assert [e.reason for e in ws.errors(ADE)] == ["timeout"]
    await ws.post(ADE, AGENTS, "time passes")
    await ws.wait_for(lambda: [a for a in ws.acks if a.kind == "events_api" and a.attempt == 3], timeout=60)
    assert len(bot.bodies) == 1


@pytest.mark.parametrize("fault", ["cut", "disconnect"])
async def test_bolt_reconnects(ws: Workspace, start: StartBot, fault: str) -> None:
    bot = await start(listening(ws))
    before = ws.link.connections[0]
    result = getattr(ws.link, fault)()
    if asyncio.iscoroutine(result):
        await result
    await ws.wait_for(lambda: ws.link.connections and before not in ws.link.connections, timeout=60)
    ts = await card(bot, actions(button()))
    assert (await ws.click(ADE, AGENTS, ts, "yes")).ok


async def test_half_open_socket_swallows_clicks(ws: Workspace, start: StartBot) -> None:
    bot = await start(listening(ws))
    ts = await card(bot, actions(button()))
    await ws.wait_for(lambda: ws.acks)
    ws.link.half_open()
    assert not (await ws.click(ADE, AGENTS, ts, "yes")).ok
    assert not [ack for ack in ws.acks if ack.payload_type == "block_actions" and ack.failure is None]


async def test_rejected_upgrades_and_used_tickets(ws: Workspace) -> None:
    ws.link.reject(1)
    async with aiohttp.ClientSession() as session:
        for _ in range(2):
            with pytest.raises(aiohttp.WSServerHandshakeError):
                await session.ws_connect(f"{ws.url}link/?ticket=made-up")
        url = ws.link.new_url()
        async with session.ws_connect(url) as socket:
            hello = await socket.receive_json()
            await socket.ping(b"sdk-ping-pong:1")
        with pytest.raises(aiohttp.WSServerHandshakeError):
            await session.ws_connect(url)
    assert (hello["type"], hello["num_connections"]) == ("hello", 1)


async def test_hello_counts_the_connections_that_there_are(ws: Workspace) -> None:
    async def hello(http: aiohttp.ClientSession) -> tuple[aiohttp.ClientWebSocketResponse, int]:
        socket = await http.ws_connect(ws.link.new_url())
        return socket, (await socket.receive_json())["num_connections"]

    async with aiohttp.ClientSession() as http:
        first, alone = await hello(http)
        second, both = await hello(http)
        await first.close()
        await ws.wait_for(lambda: len(ws.link.connections) == 1)
        third, after = await hello(http)
        assert (alone, both, after) == (1, 2, 2)
        await second.close()
        await third.close()
