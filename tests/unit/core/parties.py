"""Processes of ours on shared ledgers, which die between any two file operations; all in one process.

`dying()` counts what a ledger does with files; a `Life` that was doomed ends before its n-th operation. From then on
nothing of it reaches the disk: what its code still runs (`finally`, `except`) is refused. What the kernel does for a
dead process is done for it: its handles are closed, and with them its locks go. All else stays as it was left.
"""

from __future__ import annotations

import fcntl
import os
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

import pytest

from bot.monitoring import Monitoring
from core.clarification import Clarification
from core.errors import LockTimeout
from core.hub import Hub
from core.ledger import FileLedger
from core.monitor import Monitor
from core.records import Book, parse
from core.router import Router
from core.workflow import Scopes
from tests.kit.clocks import ManualClock
from tests.unit.core.other_hand import OtherHand
from tests.unit.core.witness import Witness

_T = TypeVar("_T")
_LEDGER = re.compile(r"issue-(\d+)\.json")
_STEPS = ("open", "write", "pwrite", "fsync", "fchmod", "link", "unlink", "rename", "replace", "utime")
_TAIL = 100  # bytes that a write of a doomed one leaves for the next
_here = threading.local()


class Killed(BaseException):
    """What a dead process runs into. No `Exception`: nobody's code handles it."""


class Life:
    """One process. `replaced(issue, content)` is told each ledger it wrote, `removed(issue)` each it set aside, while
    it holds the ledger.
    """

    def __init__(self, replaced: Callable[[int, bytes], None], removed: Callable[[int], None]) -> None:
        self.replaced = replaced
        self.removed = removed
        self.is_over = False
        self._left: int | None = None
        self._guard = threading.Lock()

    @property
    def is_doomed(self) -> bool:
        return self._left is not None

    def doom(self, steps: int) -> None:
        """It does so many file operations more."""
        self._left = steps

    def step(self, name: str) -> None:
        with self._guard:
            if self._left is not None:
                self.is_over = self.is_over or self._left == 0
                self._left -= 1
            if self.is_over:
                raise Killed(name)


class MortalLedger(FileLedger):
    """A real one, whose work under the lock is part of a life."""

    def __init__(self, directory: Path, life: Life) -> None:
        super().__init__(directory, workers=4)
        self._life = life

    def _transact(self, issue: int, decide: Callable[[Book], _T], deadline: float, timeout: float) -> _T:
        with _part_of(self._life):
            return super()._transact(issue, decide, deadline, timeout)


@contextmanager
def _part_of(life: Life) -> Iterator[None]:
    _here.life, _here.handles = life, set()
    try:
        life.step("begin")
        yield
        life.step("end")
    finally:
        left, _here.life = _here.handles, None
        for handle in left:
            os.close(handle)
    assert not left, "a file was opened and not closed"


@contextmanager
def dying() -> Iterator[None]:
    """File operations of threads that are part of a life are counted, everybody else's are as always."""
    real = {name: getattr(os, name) for name in (*_STEPS, "close")}
    flock = fcntl.flock
    for name in _STEPS:
        setattr(os, name, _counted(name, globals().get(f"_{name}", _as_it_is), real[name]))
    setattr(os, "close", lambda handle: _close(real["close"], handle))  # noqa: B010 - as those above
    setattr(fcntl, "flock", lambda handle, how: _flock(flock, handle, how))  # noqa: B010
    try:
        yield
    finally:
        for name, call in real.items():
            setattr(os, name, call)
        setattr(fcntl, "flock", flock)  # noqa: B010


def _counted(name: str, act: Callable[..., Any], call: Callable[..., Any]) -> Callable[..., Any]:
    def counted(*args: Any, **more: Any) -> Any:
        life: Life | None = getattr(_here, "life", None)
        if life is None:
            return call(*args, **more)
        life.step(name)
        return act(life, call, *args, **more)

    return counted


def _as_it_is(_: Life, call: Callable[..., Any], *args: Any, **more: Any) -> Any:
    return call(*args, **more)


def _open(_: Life, call: Callable[..., int], *args: Any, **more: Any) -> int:
    handle = call(*args, **more)
    _here.handles.add(handle)
    return handle


def _write(life: Life, call: Callable[..., int], handle: int, content: bytes) -> int:
    """A doomed one may die in the midst of it, too."""
    return call(handle, content[:-_TAIL] if life.is_doomed and len(content) > _TAIL else content)


def _fsync(_: Life, call: Callable[..., None], handle: int) -> None:
    """A process that dies loses nothing that it wrote; only a machine does."""


def _replace(life: Life, call: Callable[..., None], source: str, target: Path) -> None:
    content = Path(source).read_bytes()
    call(source, target)
    if match := _LEDGER.fullmatch(target.name):
        life.replaced(int(match.group(1)), content)


def _rename(life: Life, call: Callable[..., None], source: Path, target: Path) -> None:
    call(source, target)
    if match := _LEDGER.fullmatch(source.name):
        life.removed(int(match.group(1)))


def _close(call: Callable[[int], None], handle: int) -> None:
    if getattr(_here, "life", None) is not None:
        _here.handles.discard(handle)
    call(handle)


def _flock(call: Callable[[int, int], None], handle: int, how: int) -> None:
    life: Life | None = getattr(_here, "life", None)
    if life is not None and how != fcntl.LOCK_UN:
        life.step("flock")
    call(handle, how)


SLA = timedelta(minutes=30)
PATIENCE = 60.0  # seconds; whoever waits for as long waits for somebody who is dead
_TURNS = 6
WORKFLOW = """
[[steps]]
agent = "engineer"
can_clarify = ["architect", "engineer"]
clarify_max_rounds = 2
clarify_sla_minutes = 10

[[steps]]
agent = "architect"
can_clarify = ["engineer", "architect"]
clarify_max_rounds = 1

[[steps]]
agent = "human"
can_clarify = ["engineer", "architect"]
"""


class Party:
    """One process of ours, with what it was told was written."""

    def __init__(self, folder: Path, workflows: Path, clock: ManualClock, witness: Witness) -> None:
        self.clock = clock
        self.told: list[tuple[str, int]] = []
        self.other = OtherHand(folder, witness)
        self.life = Life(lambda issue, content: witness.saw(issue, content, self, ours=True), witness.removed)
        self.ledger = MortalLedger(folder, self.life)
        self.router = Router(self.ledger, clock, SLA, self._changed, PATIENCE)
        scopes = Scopes(workflows)
        self.hub = Hub(router=self.router, ledger=self.ledger, scopes=scopes, clock=clock)
        self._monitor = Monitor(SLA, ("architect", "engineer"))
        self._monitoring = Monitoring(
            monitor=self._monitor, router=self.router, ledger=self.ledger, clock=clock, alarm=False
        )

    async def look(self) -> None:
        """Take in what others wrote."""
        for issue in sorted(self.ledger.changed()):
            for item in await self.ledger.news(issue) or ():
                if (record := parse(item)) is not None:
                    summary = record
                    self._monitoring.record_changed(summary)
                    if summary.is_adoptable:
                        await self.router.adopt(record.id)

    async def watch(self) -> None:
        """As long as something is due."""
        for _ in range(_TURNS):
            await self._monitoring.catch_up()
            due = self._monitor.next_due()
            if due is None or due > self.clock.now():
                return
        raise AssertionError("what is due stays due")

    async def is_kept_out(self, issue: int) -> None:
        """It does not get the ledger, which another has."""
        with suppress(Killed), pytest.raises(LockTimeout):
            await self.ledger.transact(issue, lambda _: None, timeout=0.02)

    def close(self) -> None:
        self.ledger.close()

    def _changed(self, record: Clarification) -> None:
        self.told.append((record.id, record.revision))
        self._monitoring.record_changed(record)
