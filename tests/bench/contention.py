"""Several processes that write to one storage at once, as shells do, against a loop that only replaces files.

python -m tests.bench.contention FOLDER NAME    one of them: takes commands on stdin, answers on stdout
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from bot.storage.ledger import DatabaseLedger
from core.clarification import Ask, Holder, parse_id
from core.clock import SystemClock
from core.errors import LedgerUnwritable, LockTimeout
from core.records import packed
from core.router import Router
from tests.bench.table import Row, median, spread
from tests.kit.builders import asking
from tests.kit.databases import records_in
from tests.kit.ledgers import kept_ledger

PROCESSES = 8
_ONE = 1000  # the issue that all write
_OWN = 2000  # the first of those that each writes alone
_ROOT = Path(__file__).parents[2]
_SOON = 0.05  # from a command until all begin at once


@dataclass(frozen=True, slots=True)
class Size:
    """`rounds` of `seconds` each way; `processes`: at once, at most `PROCESSES`."""

    rounds: int
    seconds: float
    processes: int = PROCESSES


@dataclass(frozen=True, slots=True)
class Turn:
    """What one round came to, by all processes together."""

    done: int
    timeouts: int
    longest: float

    @classmethod
    def of(cls, told: Sequence[dict[str, Any]]) -> Turn:
        return cls(
            sum(one["done"] for one in told),
            sum(one["timeouts"] for one in told),
            max(one["longest"] for one in told),
        )


class Worker:
    """A process that does what it is told."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process

    def tell(self, **command: Any) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(command) + "\n")
        self.process.stdin.flush()

    def told(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        answer: dict[str, Any] = json.loads(self.process.stdout.readline())
        return answer

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


async def contended(folder: Path, size: Size) -> list[Row]:
    """Eight processes on one ledger, then each on its own."""
    return await asyncio.to_thread(_contended, folder / "contention", size)


def _contended(folder: Path, size: Size) -> list[Row]:
    folder.mkdir()
    _prepare(folder)
    with ExitStack() as running:
        workers = [running.enter_context(_worker(folder, str(n))) for n in range(size.processes)]
        one = _rounds(workers, [f"CLR-{_ONE}-{n + 1:03d}" for n in range(size.processes)], workers[:1], size)
        own = _rounds(workers, [f"CLR-{_OWN + n}-001" for n in range(size.processes)], workers[:1], size)
    lost = one.lost(folder), own.lost(folder)
    return [
        one.row("one issue", lost[0], size),
        own.row("distinct issues", lost[1], size),
    ]


@dataclass(frozen=True, slots=True)
class Rounds:
    ids: Sequence[str]
    ours: Sequence[Turn]
    floor: Sequence[Turn]

    def lost(self, folder: Path) -> int:
        """Changes that were said to be done and are not there."""

        async def found() -> int:
            async with kept_ledger(folder) as ledger:
                records = [await ledger.find(name) for name in self.ids]
            return sum(each.revision - 1 for each in records)

        return sum(turn.done for turn in self.ours) - asyncio.run(found())

    def row(self, where: str, lost: int, size: Size) -> Row:
        mine, theirs = ([turn.done / size.seconds for turn in turns] for turns in (self.ours, self.floor))
        del mine[0], theirs[0]  # warming up
        ratios = [a / b for a, b in zip(mine, theirs, strict=True)]
        timeouts = sum(turn.timeouts for turn in self.ours)
        longest = max(turn.longest for turn in self.ours)
        return Row(
            f"{size.processes} processes change {where}, durable; {lost} lost, {timeouts} timeouts",
            0.0 if lost or timeouts else median(ratios),
            "{:.2f}×",
            f"{median(mine):.0f}/s (ratio {spread(ratios)}), longest wait {longest * 1e3:.0f} ms",
            f"{median(theirs):.0f}/s ({spread(theirs, '{:.0f}')}): fsynced replaces of as many bytes, one process's loop, as the storage"
            " lets one write at a time",
            goal=0.4,
            better="more",
        )


def _rounds(workers: list[Worker], ids: Sequence[str], floor: list[Worker], size: Size) -> Rounds:
    """Ours and the floor in turn; the first round of each only warms up, and counts for what must not be lost."""
    ours, loops = [], []
    for _ in range(size.rounds + 1):
        loops.append(_turn(floor, [{"do": "replace", "id": name} for name in ids], size.seconds))
        ours.append(_turn(workers, [{"do": "change", "id": name} for name in ids], size.seconds))
    return Rounds(ids, ours, loops)


def _turn(workers: list[Worker], commands: Sequence[dict[str, str]], seconds: float) -> Turn:
    begin = time.monotonic() + _SOON  # the same clock in every process
    for worker, command in zip(workers, commands, strict=False):
        worker.tell(**command, begin=begin, end=begin + seconds)
    return Turn.of([worker.told() for worker in workers])


@contextmanager
def _worker(folder: Path, name: str) -> Iterator[Worker]:
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.bench.contention", str(folder), name],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=_ROOT,
    )  # fmt: skip
    with process:
        worker = Worker(process)
        try:
            worker.told()  # it is there, with everything imported
            yield worker
        finally:
            process.kill()


def _prepare(folder: Path) -> None:
    """Ledgers of `PROCESSES` records each, so that both ways of writing have as many bytes to write."""

    async def fill() -> None:
        async with kept_ledger(folder) as ledger:
            router = Router(ledger, SystemClock(), timedelta(minutes=30), lambda _: None)
            for issue in (_ONE, *range(_OWN, _OWN + PROCESSES)):
                await router.open_all(issue, [_ask(n) for n in range(PROCESSES)])

    asyncio.run(fill())


def _ask(number: int) -> Ask:
    return asking(
        agent_id="engineer",
        question="Which of the two databases do we take for the ledger of payments?",
        to="architect",
        topic=f"database {number}",
        blocking=True,
        received_at=datetime.now(UTC),
        via="shell",
    )


class _Works:
    """The other side of a `Worker`."""

    def __init__(self, folder: Path, name: str, ledger: DatabaseLedger) -> None:
        self._folder = folder
        self._name = name
        self._router = Router(ledger, SystemClock(), timedelta(minutes=30), lambda _: None)

    async def change(self, id: str, begin: float, end: float) -> dict[str, Any]:  # noqa: A002
        """A decision like any other, which leaves the ledger as long as it was."""
        done = timeouts = 0
        longest = 0.0
        await asyncio.sleep(begin - time.monotonic())
        while (now := time.monotonic()) < end or not done + timeouts:
            try:
                await self._router.take(id, self._holder(done))
                done += 1
            except (LockTimeout, LedgerUnwritable):
                timeouts += 1
            longest = max(longest, time.monotonic() - now)
        return {"done": done, "timeouts": timeouts, "longest": longest}

    def _holder(self, turn: int) -> Holder:
        return Holder(user=f"U{turn % 10}", team="T1", at=datetime.now(UTC))

    async def replace(self, id: str, begin: float, end: float) -> dict[str, Any]:  # noqa: A002
        issue, number = parse_id(id)
        content = packed(records_in(self._folder / "clarify.db", issue)[number - 1]).encode()
        path = self._folder / f"floor-{self._name}.json"
        done = 0
        await asyncio.sleep(begin - time.monotonic())
        while time.monotonic() < end or not done:
            _replace(path, content)
            done += 1
        return {"done": done, "timeouts": 0, "longest": 0.0}


def _replace(path: Path, content: bytes) -> None:
    """Replace a file atomically: it and its folder's entry are on the disk when this returns."""
    draft = path.with_name(f".{path.name}")
    with draft.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _say(answer: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


async def main(folder: Path, name: str) -> None:
    async with kept_ledger(folder) as ledger:
        works = _Works(folder, name, ledger)
        _say({})
        while line := await asyncio.to_thread(sys.stdin.readline):
            command = json.loads(line)
            _say(await getattr(works, command.pop("do"))(**command))


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2]))
