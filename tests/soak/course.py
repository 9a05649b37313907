"""A bot under load with faults: questions come, people answer, Slack and the agent fail in every way they know."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

import psutil

from tests.acceptance.world import StandardAgent, World, a_world, has_controls, question, went_on
from tests.kit.lives import Life
from tests.soak.figures import Sample
from workspace.seed import ADE, AGENTS, FOLAKE

_SESSIONS = 100
_FAULT_EVERY, _SAMPLE_EVERY, _LOOK_EVERY = 2.0, 1.0, 0.2
_AWAY = 0.5
_LAST_ANSWERS = 120.0
_SLACK = ("accept_then_drop", "drop", "429:1", "5xx:503", "delay:0.5", "accept_then_error:internal_error")


@dataclass
class Course:
    """`rate`: questions a second. What happened is counted in `asked`, `clicks`, `faults`, `samples`."""

    world: World
    rng: random.Random
    rate: float
    asked: list[str] = field(default_factory=list)
    clicks: int = 0
    faults: int = 0
    samples: list[Sample] = field(default_factory=list)
    _seen: int = 0
    _again: list[str] = field(default_factory=list)

    @property
    def agent(self) -> StandardAgent:
        assert isinstance(self.world.agent, StandardAgent)
        return self.world.agent

    async def run(self, life: Life, seconds: float) -> None:
        """Load for so long; returns when every question was answered and its agent has the answer."""
        began = time.monotonic()
        process = psutil.Process(life.process.pid)
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(self._every(1 / self.rate, self._ask)),
                group.create_task(self._every(_FAULT_EVERY, self._fault)),
                group.create_task(self._every(_LOOK_EVERY, self._answer)),
                group.create_task(self._sample(process, began)),
            ]
            await asyncio.sleep(seconds)
            for task in tasks:
                task.cancel()
        async with asyncio.timeout(_LAST_ANSWERS):
            while self.open:
                await self._answer()
                await asyncio.sleep(_LOOK_EVERY)

    @property
    def open(self) -> list[str]:
        """The questions whose agents have no answer."""
        answered = {reply["reply_token"] for reply in self.agent.replies}
        return [token for token in self.asked if token not in answered]

    async def _every(self, seconds: float, step: Callable[[], Awaitable[None]]) -> None:
        while True:
            await step()
            await asyncio.sleep(seconds)

    async def _ask(self) -> None:
        number = len(self.asked)
        session = f"sess_{number % _SESSIONS}"
        if number >= _SESSIONS:
            await self.agent.emit(went_on(session))
        token = f"rpl_{number}"
        await self.agent.emit(question(token, session, timeout_seconds=3600))
        self.asked.append(token)

    async def _answer(self) -> None:
        """Press Yes on every card that came since, and on those where it did not work."""
        messages = self.world.workspace.channel(AGENTS).messages
        fresh = [
            message.ts
            for message in islice(messages.values(), self._seen, None)
            if (message.metadata or {}).get("event_type") == "clarify_card"
        ]
        self._seen = len(messages)
        waiting, self._again = [*self._again, *fresh], []
        for ts in waiting:
            message = messages.get(ts)
            if message is None or not has_controls(message):
                continue
            if not self.world.workspace.link.connections:
                self._again.append(ts)
                continue
            outcome = await self.world.workspace.click(
                self.rng.choice([ADE, FOLAKE]), AGENTS, ts, label="Yes"
            )
            self.clicks += 1
            if not outcome.ok or has_controls(message):
                self._again.append(ts)

    async def _fault(self) -> None:
        self.faults += 1
        workspace = self.world.workspace
        match self.rng.randrange(6):
            case 0 | 1:
                workspace.faults.add(
                    self.rng.choice(["chat.postMessage", "chat.update"]), self.rng.choice(_SLACK)
                )
            case 2:
                workspace.link.cut()
            case 3:
                self.agent.before = 1.0
            case 4:
                await workspace.link.disconnect()
            case _:
                await self.agent.down()
                try:
                    await asyncio.sleep(_AWAY)
                finally:  # also where the load ends just now: the last answers have to get there
                    await self.agent.start()

    async def _sample(self, process: psutil.Process, began: float) -> None:
        while True:
            with process.oneshot():
                self.samples.append(
                    Sample(
                        time.monotonic() - began,
                        process.memory_info().rss,
                        process.num_fds(),
                        process.num_threads(),
                    )
                )
            await asyncio.sleep(_SAMPLE_EVERY)


async def soaked(folder: Path, seconds: float, rate: float, seed: int) -> Course:
    """A course of its own in `folder`.

    Raises:
        TimeoutError: not every question was answered in the end.
    """
    async with a_world(folder) as world, Life.of(world) as life:
        course = Course(world, random.Random(seed), rate)  # noqa: S311 - which fault is next
        await course.run(life, seconds)
        return course
