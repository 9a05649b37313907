"""A disk that takes nothing more: nobody is told that anything was kept, and nothing is lost once there is space."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import httpx
import pytest

from tests.acceptance.world import World, question
from tests.kit.lives import Life
from workspace.seed import ADE, AGENTS, FOLAKE

pytestmark = pytest.mark.skipif(not hasattr(resource, "prlimit"), reason="limits another process's files")


@contextmanager
def full_disk(life: Life) -> Iterator[None]:
    """Files of the process take no more bytes: each write fails with EFBIG, as a full disk's does with ENOSPC."""
    _, hard = resource.prlimit(life.process.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(life.process.pid, resource.RLIMIT_FSIZE, (0, hard))
    try:
        yield
    finally:
        if not life.ended:
            resource.prlimit(life.process.pid, resource.RLIMIT_FSIZE, (hard, hard))


@pytest.mark.parametrize("restart", [False, True])
async def test_full_disk_acknowledges_nothing_and_loses_nothing(world: World, restart: bool) -> None:
    async with Life.of(world, piped=True) as life:
        card = await world.asked("rpl-1")
        other = await world.asked("rpl-2")
        with full_disk(life):
            refused = await world.workspace.click(FOLAKE, AGENTS, card.ts, label="Yes")
            await world.agent.emit(question("rpl-3", "sess_3"))
            reply = await world.workspace.post(ADE, AGENTS, "no", thread_ts=other.ts)
            assert reply.ts
            await world.until(lambda: "stored" in world.log.read_text())
            assert not life.ended, life.last_words()
            async with httpx.AsyncClient(base_url=world.addresses[-1], timeout=30) as http:
                assert (await http.get("/readyz")).status_code == 503
            if restart:
                await life.killed()
        assert not refused.ok
        record = world.record("rpl-1")
        assert record is not None
        assert "response" not in record["aaep"]
        if not restart:
            await goes_on(world)
    if restart:
        async with Life.of(world):
            await goes_on(world)
    assert "Traceback" not in world.log.read_text()


async def goes_on(world: World) -> None:
    """There is space again: the missed question has its card, the missed reply counts, and a new click is taken."""
    card = await world.until(lambda: world.card_saying("with rpl-1?"))
    assert (await world.workspace.click(FOLAKE, AGENTS, card.ts, label="No")).ok
    await world.until(lambda: world.agent.honoured("rpl-1"))
    await world.until(lambda: world.card_saying("with rpl-3?"))
    reply = await world.until(lambda: world.agent.honoured("rpl-2"))
    assert reply["response"] is False
    assert len(world.cards()) == 3


async def test_full_disk_at_the_start_ends_it_with_1_and_says_why(world: World) -> None:
    async with Life.of(world) as life:
        await world.asked("rpl-1")
        assert await life.stop() == 0
    life = await Life.begin(
        world,
        piped=True,
        first=partial(resource.setrlimit, resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY)),
    )
    try:
        assert await life.process.wait() == 1
    finally:
        await life.end()
    told = [line for line in world.log.read_text().splitlines() if line.startswith("clarify: ")]
    assert told, life.last_words()
    assert "Traceback" not in world.log.read_text()
    async with Life.of(world):
        await world.until(lambda: world.card_saying("with rpl-1?"))
    assert len(world.cards()) == 1
