"""`clarify run` in a process that kills itself at its n-th step.

A step is a moment before or after something that others can see later: a file synced, replaced, linked or removed, a
transaction committed, a call to Slack or to a producer, an acknowledgement.
"""

from __future__ import annotations

import asyncio
import functools
import os
import signal
import threading
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Self

import aiohttp
from yarl import URL

from bot.storage import sqlite
from tests.kit.lives import Life, Place

_FILE_STEPS = ("fsync", "replace", "rename", "link", "unlink")


class Doomed(Life):
    """A process that dies at its n-th step after `arm`."""

    @classmethod
    def at(cls, place: Place, step: int, *, all: bool = False) -> AbstractAsyncContextManager[Self]:  # noqa: A002
        """One that takes clicks. The names of its steps go to `epitaph.txt`: the last, or `all`."""
        return cls.of(place, first=partial(install, Plan(step, place.folder / "epitaph.txt", all)))

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


@dataclass(frozen=True)
class Plan:
    """Die at step `at`, counted from SIGUSR1, or from the first step called `since`. The step's name goes to `epitaph`;
    those before it, too, where `all`.
    """

    at: int
    epitaph: Path
    all: bool = False
    since: str | None = None


class Countdown:
    def __init__(self, plan: Plan) -> None:
        self._left = plan.at
        self._counting = False
        self._epitaph = plan.epitaph
        self._all = plan.all
        self._since = plan.since
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
            if self._all or self._left <= 0:
                with self._epitaph.open("a") as file:
                    file.write(f"{name}\n")
            if self._left <= 0:
                os.kill(os.getpid(), signal.SIGKILL)
                signal.pause()

    def around(self, call: Callable[..., Any], name: str) -> Callable[..., Any]:
        @functools.wraps(call)
        def counted(*args: Any, **more: Any) -> Any:
            self.step(f"before {name}")
            result = call(*args, **more)
            self.step(f"after {name}")
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
        setattr(os, name, countdown.around(getattr(os, name), name))
    sqlite._commit = countdown.around(sqlite._commit, "commit")
    for owner, method, named in (
        (aiohttp.ClientSession, "_request", _request),
        (aiohttp.ClientWebSocketResponse, "send_str", lambda _: "acknowledgement"),
    ):
        setattr(owner, method, countdown.around_async(getattr(owner, method), named))


def _request(args: tuple[Any, ...]) -> str:
    """A call to Slack, or to the producer: both go through aiohttp."""
    method, url = str(args[1]).upper(), URL(str(args[2]))
    return f"Slack {url.name}" if "/api/" in url.path else f"producer {method} {url.path}"
