"""Processes of ours on one database, as the bot and a shell beside it are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from datetime import timedelta
from pathlib import Path
from typing import Any, Self, TypeVar

from bot.monitoring import Monitoring
from bot.storage.ledger import DatabaseLedger
from bot.storage.opening import open_storage
from core.clarification import Clarification
from core.hub import Hub
from core.ledger import LOCK_TIMEOUT, Reach
from core.monitor import Monitor
from core.records import Book, dump
from core.router import Router
from core.workflow import Scopes
from tests.kit.clocks import ManualClock
from tests.unit.core.witness import Witness

_T = TypeVar("_T")

SLA = timedelta(minutes=30)
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


class SeenLedger(DatabaseLedger):
    """A real one, that tells `saw` of each write within its transaction."""

    saw: Callable[[Sequence[Clarification]], None]

    async def transact(
        self,
        reach: Reach,
        decide: Callable[[Book], _T],
        timeout: float = LOCK_TIMEOUT,
        written: Callable[[], None] | None = None,
        along: Callable[[Any, _T], None] | None = None,
    ) -> _T:
        put: list[Clarification] = []

        def decided(book: Book) -> _T:
            result = decide(book)
            put[:] = book.written
            return result

        def beside(tx: Any, result: _T) -> None:
            self.saw(put)
            if along is not None:
                along(tx, result)

        return await super().transact(reach, decided, timeout, written, beside)


class Party:
    """One process of ours, with what it was told was written."""

    def __init__(self, ledger: SeenLedger, workflows: Path, clock: ManualClock, witness: Witness) -> None:
        self.clock = clock
        self.told: list[tuple[str, int]] = []
        self.ledger = ledger
        ledger.saw = lambda put: witness.saw(map(dump, put), self)
        self.router = Router(ledger, clock, SLA, self._changed)
        self.hub = Hub(router=self.router, ledger=ledger, scopes=Scopes(workflows), clock=clock)
        self._monitor = Monitor(SLA, ("architect", "engineer"))
        self._monitoring = Monitoring(
            monitor=self._monitor, router=self.router, ledger=ledger, clock=clock, alarm=False
        )

    @classmethod
    async def open(
        cls, file: Path, workflows: Path, clock: ManualClock, witness: Witness, stack: AsyncExitStack
    ) -> Self:
        store = await open_storage(file, beside=True)
        stack.push_async_callback(store.close)
        return cls(SeenLedger(store), workflows, clock, witness)

    async def look(self) -> None:
        """Take in what others wrote."""
        async for found in self.ledger.every():
            for each in found.records:
                if (record := await self.ledger.news(each.id)) is not None:
                    self._monitoring.record_changed(record)

    async def watch(self) -> None:
        """As long as something is due."""
        for _ in range(_TURNS):
            await self._monitoring.catch_up()
            due = self._monitor.next_due()
            if due is None or due > self.clock.now():
                return
        raise AssertionError("what is due stays due")

    def _changed(self, record: Clarification) -> None:
        self.told.append((record.id, record.revision))
        self._monitoring.record_changed(record)
