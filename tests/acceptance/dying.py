"""`clarify run` in a process that kills itself at its n-th step.

A step is a moment before or after something that others can see later: a transaction committed, a call to Slack or to a
producer, an acknowledgement, a file synced, replaced, linked or removed. Its name says which: "after commit +inbox sessions"
(a row was inserted into one table, the other one was changed), "before Slack chat.update", "after replace ledger".
"""

from __future__ import annotations

import asyncio
import functools
import os
import re
import signal
import sqlite3
import threading
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Self

import aiohttp
from yarl import URL

from bot.storage import sqlite
from core.ledgerfiles import ARCHIVE
from tests.bench.counting import CHANGES
from tests.kit.lives import Life, Place

NEVER = 10**9
SIDE_BY_SIDE = 4  # sweeps
_FILE_STEPS = ("fsync", "replace", "rename", "link", "unlink")


class Doomed(Life):
    """A process that dies at its n-th step after `arm`."""

    @classmethod
    def at(
        cls,
        place: Place,
        step: int | Sequence[str],
        *,
        all: bool = False,  # noqa: A002
    ) -> AbstractAsyncContextManager[Self]:
        """One that takes clicks; `step`: a number, or a path as `Plan` has it. The names of its steps go to `epitaph.txt`:
        the last, or `all`.
        """
        at, path = (step, ()) if isinstance(step, int) else (NEVER, tuple(step))
        return cls.of(place, first=partial(install, Plan(at, place.folder / "epitaph.txt", all, path=path)))

    def arm(self) -> None:
        self.process.send_signal(signal.SIGUSR1)

    async def died_before(self, work: asyncio.Task[None]) -> bool:
        """Wait for the end of either; True if the process died first, as planned."""
        end = asyncio.create_task(self.process.wait())
        async with asyncio.timeout(120):
            await asyncio.wait({end, work}, return_when=asyncio.FIRST_COMPLETED)
        if not end.done():
            end.cancel()
            work.result()
            return False
        assert end.result() == -signal.SIGKILL, self.last_words()
        return True

    async def survived(self) -> bool:
        """Stop it in order; False if its step came after all, while it stopped."""
        code = await self.stop()
        assert code in {0, -signal.SIGKILL}, self.last_words()
        return code == 0


async def killed_at_steps(folder: Path, every: int, killed: Callable[[Path, int], Awaitable[bool]]) -> int:
    """Kill at each `every`-th step, until none is left to make: `killed` does so in a folder, False if it was over before.
    Returns how many kills there were.
    """

    async def sweep(first: int) -> int:
        for number, at in enumerate(range(first, NEVER, SIDE_BY_SIDE * every)):
            place = folder / f"at{at}"
            await asyncio.to_thread(place.mkdir)
            if not await killed(place, at):
                return number
        raise AssertionError

    async with asyncio.TaskGroup() as group:
        sweeps = [group.create_task(sweep(number)) for number in range(1, SIDE_BY_SIDE + 1)]
    return sum(each.result() for each in sweeps)


@dataclass(frozen=True)
class Plan:
    """Have `signal` at step `at`, counted from SIGUSR1, or from the first step called `since`; or at the end of `path`, whose patterns
    are the names of steps that follow each other, others in between. The step's name goes to `epitaph`; those before it, too,
    where `all`.
    """

    at: int
    epitaph: Path
    all: bool = False
    since: str | None = None
    path: tuple[str, ...] = ()
    signal: signal.Signals = signal.SIGKILL


class Countdown:
    def __init__(self, plan: Plan) -> None:
        self._left = plan.at
        self._counting = False
        self._epitaph = plan.epitaph
        self._all = plan.all
        self._since = plan.since
        self._signal = plan.signal
        self._path = list(plan.path)
        self._lock = threading.Lock()
        signal.signal(signal.SIGUSR1, self._begin)

    def _begin(self, *_: object) -> None:
        self._counting = True

    def step(self, name: str) -> None:
        with self._lock:
            self._counting |= name == self._since
            if not self._counting:
                return
            self._left -= 1
            if self._path and re.fullmatch(self._path[0], name):
                self._path.pop(0)
                self._left = self._left if self._path else 0
            if self._all or self._left <= 0:
                with self._epitaph.open("a") as file:
                    file.write(f"{name}\n")
            if self._left <= 0:
                self._counting = False
                os.kill(os.getpid(), self._signal)
                if self._signal == signal.SIGKILL:
                    signal.pause()

    def around(self, call: Callable[..., Any], name: Callable[[tuple[Any, ...]], str]) -> Callable[..., Any]:
        @functools.wraps(call)
        def counted(*args: Any, **more: Any) -> Any:
            called = name(args)
            self.step(f"before {called}")
            result = call(*args, **more)
            self.step(f"after {called}")
            return result

        return counted

    def around_async(
        self, call: Callable[..., Any], name: Callable[[tuple[Any, ...]], str | None]
    ) -> Callable[..., Any]:
        """`name` tells from the arguments what it is; None: no step."""

        @functools.wraps(call)
        async def counted(*args: Any, **more: Any) -> Any:
            called = name(args)
            if called is None:
                return await call(*args, **more)
            self.step(f"before {called}")
            result = await call(*args, **more)
            self.step(f"after {called}")
            return result

        return counted


def install(plan: Plan) -> None:
    """In the process, before the program begins."""
    countdown = Countdown(plan)
    for name in _FILE_STEPS:
        setattr(os, name, countdown.around(getattr(os, name), partial(_file_step, name)))
    written = set[str]()  # since the last commit: only one connection writes
    connect = sqlite3.connect

    def watched(*args: Any, **more: Any) -> sqlite3.Connection:
        connection: sqlite3.Connection = connect(*args, **more)
        connection.set_trace_callback(lambda text: written.update(_tables(text)))
        return connection

    def commit(_: object) -> str:
        name = " ".join(["commit", *sorted(written)])
        written.clear()
        return name

    sqlite3.connect = watched  # type: ignore[assignment]
    sqlite._commit = countdown.around(sqlite._commit, commit)
    for owner, method, named in (
        (aiohttp.ClientSession, "_request", _request),
        (aiohttp.ClientWebSocketResponse, "send_str", lambda _: "acknowledgement"),
    ):
        setattr(owner, method, countdown.around_async(getattr(owner, method), named))


def _file_step(name: str, args: tuple[Any, ...]) -> str:
    """What is done, and to which of the files that other implementations look at, if any."""
    path = Path(args[-1] if isinstance(args[-1], str | Path) else "")
    if not path.name.startswith("issue-") or path.suffix not in {".json", ".lock"}:
        return name
    archived = path.parent.name == ARCHIVE
    return f"{name} {'marker' if path.suffix == '.lock' else 'archived ledger' if archived else 'ledger'}"


def _tables(statement: str) -> list[str]:
    """The one that a statement writes to, if any, with a plus if it is an insert."""
    found = CHANGES.match(statement)
    return ["+" * (found[1].lower() == "insert") + found[2].lower()] if found else []


def _request(args: tuple[Any, ...]) -> str:
    """A call to Slack, or to the producer: both go through aiohttp."""
    method, url = str(args[1]).upper(), URL(str(args[2]))
    return f"Slack {url.name}" if "/api/" in url.path else f"producer {method} {url.path}"
