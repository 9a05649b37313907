"""How the process ends, and what it says then."""

from __future__ import annotations

import asyncio
import signal
import socket

import pytest

from tests.acceptance.world import World
from tests.kit.lives import Life


async def test_second_instance_on_the_same_storage_ends_with_1_and_says_why(world: World) -> None:
    async with Life.of(world) as first:
        second = await Life.begin(world)
        try:
            assert await asyncio.wait_for(second.process.wait(), 60) == 1
        finally:
            second.kill()
        lines = world.log.read_text().splitlines()
        assert any("is in use by another clarify-bot; one instance per storage" in line for line in lines)
        assert "Traceback" not in world.log.read_text()
        await world.asked("rpl-1")  # the first one goes on
        assert await first.stop() == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
async def test_signal_ends_it_with_0(world: World, number: signal.Signals) -> None:
    async with Life.of(world, fresh=number is signal.SIGTERM) as life:
        assert await life.stop(number) == 0, life.last_words()
    events = [line["event"] for line in world.logged()]
    assert "stopping" in events
    assert events[-1] == "stopped"


async def test_busy_port_ends_with_1_so_that_it_is_started_again(world: World) -> None:
    with socket.create_server(("127.0.0.1", world.port)):
        life = await Life.begin(world)
        try:
            assert await asyncio.wait_for(life.process.wait(), 60) == 1
        finally:
            await life.end()
        assert (
            f"{world.file}: http.listen: 127.0.0.1:{world.port}: the address is already in use"
            in world.log.read_text()
        )
    async with Life.of(world) as life:
        assert await life.stop() == 0


@pytest.mark.parametrize("name", ["SLACK_BOT_TOKEN", "SLACK_APP_TOKEN"])
async def test_refused_token_ends_it_with_2_and_names_it(world: World, name: str) -> None:
    token = "xoxb-revoked-secret" if "BOT" in name else "xapp-revoked-secret"
    life = await Life.begin(world, env={name: token})
    try:
        assert await asyncio.wait_for(life.process.wait(), 60) == 2
    finally:
        await life.end()
    told = next(line for line in world.log.read_text().splitlines() if line.startswith("clarify: "))
    assert name in told
    assert "invalid_auth" in told
    assert "revoked-secret" not in world.log.read_text()
    assert "Traceback" not in world.log.read_text()
