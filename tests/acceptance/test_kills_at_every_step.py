"""SIGKILL at each step of "question, card, click, acknowledgement, reply, card updated" (promises P1 to P4)."""

from __future__ import annotations

import asyncio
import os
import random
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from bot.workspace import Options, Workspace
from tests.acceptance.dying import Plan, live
from tests.acceptance.lives import environment
from tests.acceptance.matters import Matter, check_all
from tests.acceptance.world import MinimalAgent, StandardAgent, Tap, World
from tests.kit.processes import forks

AGENTS_BY_DIALECT: dict[str, Callable[[Tap], StandardAgent | MinimalAgent]] = {
    "standard": StandardAgent,
    "minimal": MinimalAgent,
}
SIDE_BY_SIDE = 4
NEVER = 10**9


class Doomed:
    """A process that dies at its n-th step after `arm`."""

    def __init__(self, world: World, at: int, *, tells_all: bool = False) -> None:
        self.world = world
        plan = Plan(world.config, world.log, environment(world), at, world.folder / "epitaph.txt", tells_all)
        self.process: Any = forks().Process(target=live, args=(plan,))
        self.end: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def begin(self) -> None:
        """In this thread, as its end is noticed: multiprocessing takes an exit code once, whoever asks."""
        self.process.start()
        asyncio.get_running_loop().add_reader(self.process.sentinel, self._ended)

    def _ended(self) -> None:
        asyncio.get_running_loop().remove_reader(self.process.sentinel)
        self.process.join()
        self.end.set_result(None)

    async def ready(self) -> None:
        await self.world.until(lambda: self.world.workspace.link.connections or self.ended)
        assert not self.ended, self._last_words()

    def arm(self) -> None:
        os.kill(self.process.pid, signal.SIGUSR1)

    @property
    def ended(self) -> bool:
        return self.end.done()

    async def died_before(self, work: asyncio.Task[None]) -> bool:
        """Wait for the end of either; True if the process died first, as planned."""
        async with asyncio.timeout(120):
            await asyncio.wait({self.end, work}, return_when=asyncio.FIRST_COMPLETED)
        if not self.end.done():
            work.result()
            return False
        assert self.process.exitcode == -signal.SIGKILL, self._last_words()
        return True

    async def survived(self) -> bool:
        """Stop it in order; False if its step came after all, while it stopped."""
        with suppress(ProcessLookupError):
            os.kill(self.process.pid, signal.SIGTERM)
        async with asyncio.timeout(60):
            await self.end
        assert self.process.exitcode in {0, -signal.SIGKILL}, self._last_words()
        return bool(self.process.exitcode == 0)

    def _last_words(self) -> str:
        lines = self.world.log.read_text(encoding="utf-8", errors="replace").splitlines()
        return "\n".join([f"ended with {self.process.exitcode}", *lines[-15:]])


@asynccontextmanager
async def doomed(world: World, at: int, *, tells_all: bool = False) -> AsyncIterator[Doomed]:
    life = Doomed(world, at, tells_all=tells_all)
    life.begin()
    try:
        yield life
    finally:
        with suppress(ProcessLookupError):
            os.kill(life.process.pid, signal.SIGKILL)
        await life.end
        await world.until(lambda: not world.workspace.link.connections)


@asynccontextmanager
async def a_world(folder: Path, dialect: str) -> AsyncIterator[World]:
    tap = Tap()
    async with (
        Workspace(options=Options(ack_timeout=1.5)) as workspace,
        AGENTS_BY_DIALECT[dialect](tap) as agent,
    ):
        yield World(folder, workspace, agent, tap)


async def whole(matter: Matter, seed: int) -> None:
    await matter.play(random.Random(seed))  # noqa: S311
    await matter.confirm()


async def sweep(world: World, first: int, stride: int) -> int:
    """Kill at steps `first`, `first + stride`, …; returns how many kills there were until none was left to make."""
    async with doomed(world, NEVER) as life:
        await life.ready()
        await world.get_acquainted()
    matters: list[Matter] = []
    work: asyncio.Task[None] | None = None
    for at in range(first, NEVER, stride):
        async with doomed(world, at) as life:
            await life.ready()
            if work is not None:
                assert not await life.died_before(work)
            matter = Matter(world, f"rpl-{at}", f"sess_{at}")
            matters.append(matter)
            life.arm()
            work = asyncio.create_task(whole(matter, at))
            if await life.died_before(work):
                continue
            if await life.survived():
                check_all(world, matters)
                return len(matters) - 1
    raise AssertionError


STEPS = {
    *(
        "fsync",
        "replace",
        "link",
        "unlink",
        "commit",
        "acknowledgement",
        "Slack chat.postMessage",
        "Slack chat.update",
    ),
}
REPLY = {"standard": "producer POST /aaep/v1/replies", "minimal": "producer POST /messages"}


@pytest.mark.parametrize("dialect", REPLY)
async def test_steps_that_a_kill_meets(tmp_path: Path, dialect: str) -> None:
    """Another database driver or HTTP client would take steps away, and the sweep below would not notice."""
    async with a_world(tmp_path, dialect) as world:
        async with doomed(world, NEVER, tells_all=True) as life:
            await life.ready()
            await world.get_acquainted()
            life.arm()
            work = asyncio.create_task(whole(Matter(world, "rpl-1", "sess_1"), 1))
            assert not await life.died_before(work)
            assert await life.survived()
        met = set((world.folder / "epitaph.txt").read_text().splitlines())
        assert {
            f"{when} {step}" for when in ("before", "after") for step in STEPS | {REPLY[dialect]}
        } - met == set()


@pytest.mark.timeout(1200)
@pytest.mark.parametrize(
    ("dialect", "every"),
    [
        ("standard", 6),
        ("minimal", 12),
        pytest.param("standard", 1, marks=pytest.mark.long),
        pytest.param("minimal", 1, marks=pytest.mark.long),
    ],
)
async def test_kill_at_every_step_from_question_to_updated_card(
    tmp_path: Path, dialect: str, every: int
) -> None:
    """At each n-th step: both dialects take the same steps but for the reply."""

    async def one(number: int) -> int:
        folder = tmp_path / str(number)
        await asyncio.to_thread(folder.mkdir)
        async with a_world(folder, dialect) as world:
            return await sweep(world, number, SIDE_BY_SIDE * every)

    async with asyncio.TaskGroup() as group:
        sweeps = [group.create_task(one(number)) for number in range(1, SIDE_BY_SIDE + 1)]
    kills = sum(each.result() for each in sweeps)
    print(f"{kills} kills, {dialect}")  # noqa: T201
    assert kills * every >= 75
