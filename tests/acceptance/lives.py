"""The real process: started, killed, asked to stop; and what must not be in its log."""

from __future__ import annotations

import asyncio
import os
import resource
import signal
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial

from bot.workspace.seed import APP_TOKEN, BOT_TOKEN
from tests.acceptance.world import World
from tests.kit.processes import Process, clarify


def environment(world: World) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")}
    return kept | {
        "SLACK_BOT_TOKEN": BOT_TOKEN,
        "SLACK_APP_TOKEN": APP_TOKEN,
        "SLACK_API_URL": world.workspace.api_url,
    }


class Life:
    """One process, from its start to its end."""

    def __init__(self, world: World, process: Process) -> None:
        self.world = world
        self.process = process
        self.copying: asyncio.Task[None] | None = None
        self._killed = False

    @classmethod
    async def begin(
        cls,
        world: World,
        *,
        before: Callable[[], None] | None = None,
        instead: Mapping[str, str] | None = None,
        piped: bool = False,
        largest_file: int | None = None,
        descriptors: int | None = None,
        stderr: int | None = None,
        first: Callable[[], object] | None = None,
        fresh: bool = False,
    ) -> Life:
        """Start `clarify run`.

        Args:
            world: where.
            before: called just before.
            instead: changes to its environment.
            piped: it logs into a pipe, where limits on files do not count.
            largest_file: bytes that a file may have.
            descriptors: how many it may have, and cannot have more.
            stderr: where it logs to instead.
            first: called in the process, before the program begins.
            fresh: it is a new interpreter.
        """
        if before is not None:
            before()
        with world.log.open("ab") as log:
            process = await clarify(
                *("run", "--config", str(world.config)),
                env=environment(world) | dict(instead or {}),
                stdout=log,
                stderr=PIPE if piped else log if stderr is None else stderr,
                first=first or partial(_limit, largest_file, descriptors),
                fresh=fresh,
            )
        world.tap("started")
        life = cls(world, process)
        life.copying = asyncio.create_task(life.copy()) if piped else None
        return life

    @classmethod
    @asynccontextmanager
    async def of(cls, world: World, *, piped: bool = False, fresh: bool = False) -> AsyncIterator[Life]:
        """A process that takes clicks; killed at the end, where it still lives."""
        life = await cls.begin(world, piped=piped, fresh=fresh)
        try:
            await life.ready()
            yield life
        finally:
            await life.end()

    async def copy(self) -> None:
        """From the pipe to the log."""
        assert self.process.stderr is not None
        with self.world.log.open("ab", buffering=0) as log:
            async for line in self.process.stderr:
                log.write(line)

    async def ready(self, timeout: float = 90.0) -> None:
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

    async def stop(self, number: signal.Signals = signal.SIGTERM, timeout: float = 60.0) -> int:
        self.process.send_signal(number)
        async with asyncio.timeout(timeout):
            return await self.process.wait()

    async def end(self) -> None:
        """Whatever happened in the test, no process is left."""
        if not self.ended:
            self.process.kill()
            await self.process.wait()
        if self.copying is not None:
            await self.copying
        await self.world.until(lambda: not self.world.workspace.link.connections)

    def last_words(self) -> str:
        lines = self.world.log.read_text(encoding="utf-8", errors="replace").splitlines()
        return "\n".join([f"ended with {self.process.returncode}", *lines[-15:]])


def _limit(largest_file: int | None, descriptors: int | None) -> None:
    if largest_file is not None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (largest_file, resource.RLIM_INFINITY))
    if descriptors is not None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (descriptors, descriptors))
