"""What it costs to look for what is due, stuck or deadlocked, beside thousands of ledgers where nothing happened."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TypeVar

from bot.logs import configure_logging
from bot.monitoring import Monitoring
from core.clarification import Clarification
from core.index import Index, scan_now
from core.ledger import FileLedger
from core.monitor import Monitor
from core.router import Router
from tests.bench.seeding import FIRST, seed_issues
from tests.bench.table import Row, median, ms, quantile, spread
from tests.kit.clocks import START, ManualClock

_SLA = timedelta(hours=4)
_BEAT = 0.001
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Size:
    """`pending` of three times `issues` records wait; `rounds` of `triggers`; then as many where some are due.

    Of those that are pending a tenth and a hundredth is due in each round: less than a ninth may be left over.
    """

    issues: int
    pending: int
    rounds: int
    triggers: int


class World:
    """Ledgers, and the parts that watch over them, joined as in production, on a clock of their own."""

    def __init__(self, folder: Path, issues: int, pending: int) -> None:
        folder.mkdir(parents=True)
        seed_issues(folder, issues, pending, START)
        self.ledger = FileLedger(folder)
        self.clock = ManualClock(START)
        self.index = Index()
        self.router = Router(self.ledger, self.clock, _SLA, self._changed)
        self.monitoring = Monitoring(
            monitor=Monitor(_SLA, ()), router=self.router, ledger=self.ledger, clock=self.clock
        )
        began = time.perf_counter()
        found = scan_now(self.ledger, FIRST + issues)
        self.scanned = time.perf_counter() - began
        if len(found.records) != pending:
            raise RuntimeError(f"{len(found.records)} clarifications need something, expected {pending}")
        for summary in found.records:
            self._note(summary)

    async def trigger(self, summary: Clarification) -> None:
        """One clarification was changed, and whatever the monitor makes of it is done."""
        self._note(summary)
        self.monitoring.trigger()
        await self.monitoring.catch_up()

    async def come_due(self, count: int) -> None:
        """The next `count` are due, and are attended to; so is what changes by that."""
        self.clock.jump(self.clock.now() + timedelta(seconds=count))
        before = self._nudged()
        await self.monitoring.catch_up()
        await self.monitoring.catch_up()
        if self._nudged() != before + count:
            raise RuntimeError(f"{self._nudged() - before} were attended to, expected {count}")

    def _nudged(self) -> int:
        return sum(summary.nudges for summary in self.index)

    def _changed(self, record: Clarification) -> None:
        self._note(record)

    def _note(self, summary: Clarification) -> None:
        self.index.put(summary)
        self.monitoring.record_changed(summary)


async def triggers(folder: Path, size: Size) -> list[Row]:
    """The large world and one with a hundredth of it, in turn: first while nothing is due, then with some due."""
    large = await asyncio.to_thread(World, folder / "large", size.issues, size.pending)
    small = await asyncio.to_thread(World, folder / "small", size.issues // 100, max(1, size.pending // 100))
    configure_logging("error")  # that something is attended to is told a thousand times
    try:
        return [*await _with_nothing_due(large, small, size), *await _with_some_due(large, size)]
    finally:
        for world in (large, small):
            world.ledger.close()


async def _with_nothing_due(large: World, small: World, size: Size) -> list[Row]:
    rng = random.Random(3)  # noqa: S311 - the same choice in every run
    rounds: dict[World, list[list[float]]] = {large: [], small: []}
    with _beats() as blocked:
        for _ in range(size.rounds + 1):
            for world, measured in rounds.items():
                waiting = list(world.index)
                measured.append(
                    [await _took(world.trigger, rng.choice(waiting)) for _ in range(size.triggers)]
                )
    ours, few = (measured[1:] for measured in rounds.values())
    seconds = [each for measured in ours for each in measured]
    ratios = [median(mine) / median(theirs) for mine, theirs in zip(ours, few, strict=True)]
    what = f"{size.issues:,} issues, {3 * size.issues:,} records, {size.pending:,} pending"
    return [
        Row(
            f"monitor trigger, {what}, nothing due, p99 of {len(seconds):,}",
            quantile(seconds, 0.99) * 1e3,
            "{:.2f} ms",
            f"{ms(seconds)}, worst {max(seconds) * 1e3:.2f}",
            f"{large.scanned:.2f} s for a scan of all ledgers, {large.scanned / median(seconds):,.0f} times a trigger",
            goal=20.0,
        ),
        _blocked("… the event loop was blocked meanwhile, worst", blocked, goal=10.0),
        Row(
            f"… against a hundredth of the issues ({size.issues // 100:,})",
            median(ratios),
            "{:.2f}×",
            f"{ms(seconds)} (ratio {spread(ratios)})",
            ms([each for measured in few for each in measured]),
            goal=3.0,
        ),
    ]


async def _with_some_due(world: World, size: Size) -> list[Row]:
    few, many = max(1, size.pending // 100), max(1, size.pending // 10)
    each: dict[int, list[float]] = {few: [], many: []}
    with _beats() as blocked:
        for _ in range(size.rounds + 1):
            for count, measured in each.items():
                measured.append(await _took(world.come_due, count) / count)
    with_few, with_many = (measured[1:] for measured in each.values())
    ratios = [mine / theirs for mine, theirs in zip(with_many, with_few, strict=True)]
    return [
        Row(
            f"monitor, for each due clarification, {many} due against {few} due",
            median(ratios),
            "{:.2f}×",
            f"{median(with_many) * 1e3:.2f} ms each (ratio {spread(ratios)})",
            f"{median(with_few) * 1e3:.2f} ms each",
            goal=1.5,
        ),
        _blocked("… the event loop was blocked meanwhile, worst", blocked),
    ]


def _blocked(what: str, blocked: list[float], goal: float | None = None) -> Row:
    words = f"p99 {quantile(blocked, 0.99) * 1e3:.2f} ms of {len(blocked):,} beats"
    return Row(what, max(blocked) * 1e3, "{:.2f} ms", words, goal=goal)


async def _took(work: Callable[[_T], Awaitable[None]], argument: _T) -> float:
    began = time.perf_counter()
    await work(argument)
    return time.perf_counter() - began


@contextmanager
def _beats() -> Iterator[list[float]]:
    """How long the event loop was kept from going on, again and again, in seconds.

    What this process worked meanwhile counts, in whichever thread: the interpreter runs one of them at a time. That
    others had the processor does not.
    """
    blocked: list[float] = []

    async def beat() -> None:
        while True:
            wall, work = time.perf_counter(), time.process_time()
            await asyncio.sleep(_BEAT)
            late = time.perf_counter() - wall - _BEAT
            blocked.append(max(0.0, min(late, time.process_time() - work)))

    task = asyncio.create_task(beat(), name="beats")
    try:
        yield blocked
    finally:
        task.cancel()
