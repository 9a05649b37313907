"""SIGKILL at random moments around intake, post, answer, acknowledgement, reply and update (promises P1 to P4, P10).

Each seed is another course; one that failed is added to the list.
"""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest

from tests.acceptance.exchanges import Exchange, PagedExchange, check_all
from tests.acceptance.test_kills_at_every_step import IMPATIENT
from tests.acceptance.world import AGENTS_BY_DIALECT, World, a_world
from tests.kit.lives import Life

PATIENCE = 4.0  # seconds after which a process is killed though its moment has not come


@dataclass(frozen=True)
class Moment:
    """When to kill: up to `within` seconds after `trigger`; `slow` calls of Slack make room for it."""

    trigger: str
    within: float
    slow: str | None = None


MOMENTS = (
    Moment("started", 0.8),
    Moment("started", 0.8),
    Moment("asked", 0.06),
    Moment("asked", 0.2),
    Moment("chat.postMessage", 0.05),
    Moment("chat.postMessage", 0.1, "delay:0.06"),
    Moment("chat.postMessage", 0.1, "accept_then_delay:0.1"),
    Moment("clicked", 0.03),
    Moment("clicked", 0.1),
    Moment("acknowledged", 0.03),
    Moment("said", 0.06),
    Moment("reply", 0.06),
    Moment("reply", 0.1),
    Moment("replied", 0.04),
    Moment("chat.update", 0.05),
    Moment("chat.update", 0.1, "delay:0.06"),
    Moment("chat.update", 0.1, "accept_then_delay:0.1"),
    Moment("chat.delete", 0.05),
    Moment("chat.delete", 0.1, "delay:0.06"),
    Moment("chat.delete", 0.1, "accept_then_delay:0.1"),
    Moment("apps.connections.open", 0.1),
    Moment("conversations.replies", 0.05),
)

AT_START = {"started", "apps.connections.open", "conversations.replies"}


async def killed_again_and_again(world: World, rng: random.Random, kills: int) -> None:
    exchanges: list[Exchange] = []
    talk: list[asyncio.Task[None]] = []
    async with Life.of(world) as life:
        await world.get_acquainted()
        assert await life.stop() == 0
    for kill in range(kills):
        await one_life(world, rng, kill, exchanges, talk)
    life = await Life.begin(world)
    try:
        await finish(life, talk, exchanges)
        check_all(world, exchanges)
        assert await life.stop() == 0
    finally:
        await life.end()


async def one_life(
    world: World, rng: random.Random, kill: int, exchanges: list[Exchange], talk: list[asyncio.Task[None]]
) -> None:
    """A process, from its start to its death. Questions come while it starts or when it is ready."""
    moment = rng.choice(MOMENTS)
    early = moment.trigger in AT_START or rng.random() < 0.25
    soon = asyncio.Event()
    lit = partial(fuse, soon, rng.random() * moment.within)
    if early:
        world.tap.lay(moment.trigger, lit)
    life = await Life.begin(world)
    world.tap("started")
    try:
        if not early:
            await life.ready()
            world.tap.lay(moment.trigger, lit)
        with_fault(world, moment, rng)
        for number in range(rng.choice((1, 1, 2))):
            exchange = new_exchange(world, f"rpl-{kill}-{number}", exchanges, rng)
            talk.append(asyncio.create_task(exchange.play(random.Random(rng.random()))))  # noqa: S311
        await soon_or(soon, PATIENCE)
        await life.killed()
    finally:
        await life.end()
    world.workspace.faults.clear()


def with_fault(world: World, moment: Moment, rng: random.Random) -> None:
    if moment.slow is not None:
        world.workspace.faults.add(moment.trigger, moment.slow)
    world.agent.before = world.agent.after = 0.0
    if moment.trigger == "reply":
        world.agent.before, world.agent.after = rng.random() * 0.1, rng.random() * 0.1


def fuse(soon: asyncio.Event, seconds: float) -> None:
    asyncio.get_running_loop().call_later(seconds, soon.set)


async def soon_or(soon: asyncio.Event, seconds: float) -> None:
    try:
        async with asyncio.timeout(seconds):
            await soon.wait()
    except TimeoutError:
        return  # its moment did not come in this life: any moment is a good one


def new_exchange(world: World, token: str, exchanges: list[Exchange], rng: random.Random) -> Exchange:
    """A question of a session of its own, or a further one of the last session; some of them are paged."""
    exchange = (PagedExchange if rng.random() < 0.3 else Exchange)(world, token, f"sess_{token}")
    if exchanges and rng.random() < 0.25:
        exchange.session, exchange.alone = exchanges[-1].session, False
        exchanges[-1].alone = False
    exchanges.append(exchange)
    return exchange


async def finish(life: Life, talk: list[asyncio.Task[None]], exchanges: list[Exchange]) -> None:
    """Nobody kills any more: everything comes to its end."""
    async with asyncio.timeout(150 + 2 * len(exchanges)):
        await life.ready()
        await asyncio.gather(*talk)
        for exchange in exchanges:
            await exchange.end()


@pytest.mark.timeout(1200)
@pytest.mark.parametrize(
    ("seed", "kills"), [(2, 2), *(pytest.param(seed, 40, marks=pytest.mark.long) for seed in (3, 4, 5))]
)
async def test_kills_at_random_lose_nothing_and_double_nothing(tmp_path: Path, seed: int, kills: int) -> None:
    """Two worlds side by side, one for each dialect."""

    async def one(dialect: str) -> None:
        folder = tmp_path / dialect
        folder.mkdir()
        async with a_world(folder, dialect, IMPATIENT) as world:
            await killed_again_and_again(world, random.Random(f"{seed}{dialect}"), kills)  # noqa: S311

    async with asyncio.TaskGroup() as group:
        for dialect in AGENTS_BY_DIALECT:
            group.create_task(one(dialect))
