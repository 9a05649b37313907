"""How the process ends, and what it says then."""

from __future__ import annotations

import asyncio
import signal
import socket

import pytest

from bot.workspace.seed import ADE, AGENTS, EVA, FOLAKE, PLATFORM
from tests.acceptance.lives import Life
from tests.acceptance.matters import PEOPLE
from tests.acceptance.test_down import asked
from tests.acceptance.world import World, has_controls


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
        await asked(world, "rpl-1")  # the first one goes on
        assert await first.stop() == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
async def test_signal_ends_it_with_0(world: World, number: signal.Signals) -> None:
    async with Life.of(world, fresh=True) as life:
        assert await life.stop(number) == 0, life.last_words()
    events = [line["event"] for line in world.logged()]
    assert "stopping" in events
    assert events[-1] == "stopped"


async def test_busy_port_ends_with_1_so_that_it_is_started_again(world: World) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        listen = f"127.0.0.1:{other.getsockname()[1]}"
        world.config.write_text(f'{world.config.read_text()}\n[http]\nlisten = "{listen}"\n')
        life = await Life.begin(world)
        try:
            assert await asyncio.wait_for(life.process.wait(), 60) == 1
        finally:
            await life.end()
        assert f"{world.config}: http.listen: {listen}: the address is in use" in world.log.read_text()
    async with Life.of(world) as life:
        assert await life.stop() == 0


@pytest.mark.parametrize("name", ["SLACK_BOT_TOKEN", "SLACK_APP_TOKEN"])
async def test_refused_token_ends_it_with_2_and_names_it(world: World, name: str) -> None:
    token = "xoxb-revoked-secret" if "BOT" in name else "xapp-revoked-secret"
    life = await Life.begin(world, instead={name: token})
    try:
        assert await asyncio.wait_for(life.process.wait(), 60) == 2
    finally:
        await life.end()
    told = next(line for line in world.log.read_text().splitlines() if line.startswith("clarify: "))
    assert name in told
    assert "invalid_auth" in told
    assert "revoked-secret" not in world.log.read_text()
    assert "Traceback" not in world.log.read_text()


async def test_sigterm_with_clicks_in_flight_keeps_every_acknowledged_answer(world: World) -> None:
    tokens = [f"rpl-{number}" for number in range(6)]
    async with Life.of(world) as life:
        cards = [await asked(world, token) for token in tokens]
        clicks = [
            asyncio.create_task(world.workspace.click(PEOPLE[number % 3], AGENTS, card.ts, label="Yes"))
            for number, card in enumerate(cards)
        ]
        await asyncio.sleep(0)  # the clicks are on their way
        code = await life.stop()
        outcomes = await asyncio.gather(*clicks)
    assert code == 0
    for token, outcome in zip(tokens, outcomes, strict=True):
        record = world.record(token)
        assert record is not None
        assert not outcome.ok or record["aaep"]["response"] is True
    async with Life.of(world):
        for token, card, outcome in zip(tokens, cards, outcomes, strict=True):
            if outcome.ok:
                await world.until(lambda name=token: world.agent.honoured(name))  # type: ignore[misc]
                await world.until(lambda shown=card: not has_controls(shown))  # type: ignore[misc]
    assert len(world.cards()) == len(tokens)


async def test_hidden_member_and_disabled_user_group_do_not_end_the_start(world: World) -> None:
    world.config.write_text(
        world.config.read_text().replace('["members"]', f'["members", "{PLATFORM}", "U0NOBODY"]')
    )
    world.workspace.disable_group(PLATFORM)
    for user in (ADE, EVA):
        world.workspace.change_user(user, hidden="user_not_found")
    async with Life.of(world) as life:
        card = await asked(world, "rpl-1")
        assert (await world.workspace.click(FOLAKE, AGENTS, card.ts, label="Yes")).ok
        await world.until(lambda: world.agent.honoured("rpl-1"))
        assert await life.stop() == 0
    log = world.log.read_text()
    for broken in (
        f"user group {PLATFORM}: Slack says no_such_subteam",
        "user U0NOBODY: Slack says user_not_found",
    ):
        assert f"routes[0].answerers: the {broken}" in log
