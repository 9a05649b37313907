"""The real process: started, killed, asked to stop; and what must not be in its log."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from asyncio.subprocess import Process
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from bot.workspace.seed import APP_TOKEN, BOT_TOKEN
from tests.acceptance.world import World


def environment(world: World, **instead: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")}
    return kept | {
        "SLACK_BOT_TOKEN": BOT_TOKEN,
        "SLACK_APP_TOKEN": APP_TOKEN,
        "SLACK_API_URL": world.workspace.api_url,
        **instead,
    }


class Life:
    """One process, from its start to its end."""

    def __init__(self, world: World, process: Process) -> None:
        self.world = world
        self.process = process
        self._killed = False

    @classmethod
    async def begin(cls, world: World, *, before: Callable[[], None] | None = None, **instead: str) -> Life:
        """Start `clarify run`; `instead` changes its environment. `before` is called just before."""
        if before is not None:
            before()
        with world.log.open("ab") as log:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "bot.cli",
                "run",
                "--config",
                str(world.config),
                env=environment(world, **instead),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        world.tap("started")
        return cls(world, process)

    @classmethod
    @asynccontextmanager
    async def of(cls, world: World, **instead: str) -> AsyncIterator[Life]:
        """A process that takes clicks; killed at the end, where it still lives."""
        life = await cls.begin(world, **instead)
        try:
            await life.ready()
            yield life
        finally:
            await life.end()

    async def ready(self, timeout: float = 30.0) -> None:
        """It takes clicks."""
        await self.world.until(lambda: self.world.workspace.link.connections or self.ended, timeout)
        assert not self.ended, self.last_words()

    @property
    def ended(self) -> bool:
        return self.process.returncode is not None

    def kill(self) -> None:
        """SIGKILL, now."""
        self._killed = True
        if not self.ended:
            self.process.kill()

    async def killed(self) -> None:
        """Wait for the end that `kill` made; it must not have ended before by itself."""
        code = await self.process.wait()
        assert self._killed
        assert code == -signal.SIGKILL, self.last_words()
        await self.world.until(lambda: not self.world.workspace.link.connections)

    async def stop(self, number: signal.Signals = signal.SIGTERM, timeout: float = 20.0) -> int:
        self.process.send_signal(number)
        async with asyncio.timeout(timeout):
            return await self.process.wait()

    async def end(self) -> None:
        """Whatever happened in the test, no process is left."""
        if not self.ended:
            self.process.kill()
            await self.process.wait()
        await self.world.until(lambda: not self.world.workspace.link.connections)

    def last_words(self) -> str:
        lines = self.world.log.read_text(encoding="utf-8", errors="replace").splitlines()
        return "\n".join([f"ended with {self.process.returncode}", *lines[-15:]])
