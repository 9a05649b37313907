"""`clarify run` in a process of its own: started, killed, asked to stop; and what it logged."""

from __future__ import annotations

import asyncio
import os
import signal
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Protocol, Self

import pytest

from tests.kit.processes import Process, Said, clarify, command
from tests.kit.until import until
from tests.kit.world import environment
from workspace import Workspace


class Place(Protocol):
    """Where a bot runs: a folder with its clarify.toml, and the workspace that it connects to."""

    @property
    def folder(self) -> Path: ...
    @property
    def workspace(self) -> Workspace: ...


class Life:
    """One process, from its start to its end. It logs to `bot.log` in the folder, after those before it."""

    def __init__(self, place: Place, process: Process) -> None:
        self.process = process
        self.log = place.folder / "bot.log"
        self._link = place.workspace.link
        self._killed = False
        self._copying: asyncio.Task[None] | None = None

    @classmethod
    async def begin(
        cls,
        place: Place,
        *,
        env: Mapping[str, str] | None = None,
        piped: bool = False,
        stderr: int | None = None,
        first: Callable[[], object] | None = None,
        fresh: bool = False,
    ) -> Self:
        """Start `clarify run`.

        Args:
            place: where.
            env: changes to its environment, beyond what the place has.
            piped: it logs into a pipe, where limits on files do not count.
            stderr: where it logs to instead.
            first: called in the process, before the program begins.
            fresh: it is a new interpreter.
        """
        kept = {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")}
        with (place.folder / "bot.log").open("ab") as log:
            process = await clarify(
                *("run", "--config", str(place.folder / "clarify.toml")),
                env=kept | _environ(place) | dict(env or {}),
                stdout=log,
                stderr=PIPE if piped else log if stderr is None else stderr,
                first=first,
                fresh=fresh,
            )
        life = cls(place, process)
        life._copying = asyncio.create_task(life._copy()) if piped else None
        return life

    @classmethod
    @asynccontextmanager
    async def of(cls, place: Place, **how: Any) -> AsyncIterator[Self]:
        """A process that takes clicks, begun with `how`; killed at the end, where it still lives."""
        life = await cls.begin(place, **how)
        try:
            await life.ready()
            yield life
        finally:
            await life.end()

    async def _copy(self) -> None:
        """From the pipe to the log."""
        assert self.process.stderr is not None
        with self.log.open("ab", buffering=0) as log:
            async for line in self.process.stderr:
                log.write(line)

    async def ready(self, timeout: float = 90.0) -> None:
        """It takes clicks."""
        await self.until(lambda: self._link.connections, timeout)

    async def until(self, predicate: Callable[[], Any], timeout: float = 60.0) -> None:
        """Wait for `predicate()`; fails with the last words of the process after `timeout` seconds, or at its end."""
        try:
            await until(lambda: predicate() or self.ended, timeout)
        except TimeoutError:
            pytest.fail(f"not within {timeout:g} s: {self.last_words()}")
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
        """Kill it, unless that was done, and wait for its end; it must not have ended before by itself."""
        if not self._killed:
            self.kill()
        code = await self.process.wait()
        assert code == -signal.SIGKILL, self.last_words()
        await until(lambda: not self._link.connections)

    async def stop(self, number: signal.Signals = signal.SIGTERM, timeout: float = 60.0) -> int:
        """Ask it to stop; its exit code."""
        self.process.send_signal(number)
        async with asyncio.timeout(timeout):
            return await self.process.wait()

    async def end(self) -> None:
        """Whatever happened in the test, no process is left."""
        if not self.ended:
            self.process.kill()
            await self.process.wait()
        if self._copying is not None:
            await self._copying
        await until(lambda: not self._link.connections)

    def words(self) -> str:
        """All that was logged in this folder."""
        return self.log.read_text(encoding="utf-8", errors="replace")

    def last_words(self) -> str:
        state = f"ended with {self.process.returncode}" if self.ended else "it still runs"
        return "\n".join([state, *self.words().splitlines()[-15:]])


async def beside(place: Place, *words: str) -> Said:
    """`clarify WORDS` beside the bot, run to its end."""
    return await command(place.folder / "clarify.toml", *words, env=dict(os.environ) | _environ(place))


def _environ(place: Place) -> dict[str, str]:
    """Slack's tokens, and what else its configuration names."""
    return environment(place.workspace) | dict(getattr(place, "environ", {}))
