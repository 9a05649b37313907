"""Where measures get their stage and their bot: each its own, or, to show only that everything runs, all the same."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from bot.workspace import Options
from tests.bench.seeding import Seed, seed
from tests.bench.stage import UNPACED, Stage, bot, configured, stage

_SHARED_PAST = Seed(open=20, stale=2, archived=20)
_SHARED_PACE = 20.0


@dataclass(frozen=True, slots=True)
class Running:
    """A bot that takes clicks. `seconds`: from its first instruction until it did."""

    pid: int
    seconds: float


class Parties:
    """Every measure has its own. `folder`: where each makes a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Nothing is left to be closed."""

    @asynccontextmanager
    async def stage(
        self, name: str, *, past: Seed | None = None, options: Options | None = None
    ) -> AsyncIterator[Stage]:
        """A workspace and a producer; nobody is connected to them yet."""
        async with stage(self.folder / name, options) as on:
            configured(on)
            if past is not None:
                await seed(on, past)
            yield on

    @asynccontextmanager
    async def bot(self, on: Stage, *, pace: float = UNPACED) -> AsyncIterator[Running]:
        """`clarify run` on that stage, in a process of its own."""
        began = time.perf_counter()
        async with bot(on, pace=pace) as pid:
            yield Running(pid, time.perf_counter() - began)


class SharedParties(Parties):
    """All measures have the same bot on the same stage, with a past and a pace that suit none of them."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._open = AsyncExitStack()
        self._stage: Stage | None = None
        self._bot: Running | None = None

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._open.aclose()

    @asynccontextmanager
    async def stage(
        self, name: str, *, past: Seed | None = None, options: Options | None = None
    ) -> AsyncIterator[Stage]:
        if self._stage is None:
            one = super().stage("shared", past=_SHARED_PAST)
            self._stage = await self._open.enter_async_context(one)
        yield self._stage

    @asynccontextmanager
    async def bot(self, on: Stage, *, pace: float = UNPACED) -> AsyncIterator[Running]:
        if self._bot is None:
            self._bot = await self._open.enter_async_context(super().bot(on, pace=_SHARED_PACE))
        yield self._bot
