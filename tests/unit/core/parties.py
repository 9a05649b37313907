"""The processes that share a folder of ledgers: ours, and another implementation."""

from __future__ import annotations

from contextlib import suppress
from datetime import timedelta
from pathlib import Path

import pytest

from bot.monitoring import Watchman
from core.clarification import Clarification
from core.errors import LockTimeout
from core.hub import Hub
from core.index import summarize
from core.monitor import Monitor
from core.records import parse
from core.router import Router
from core.workflow import Scopes
from tests.clocks import ManualClock
from tests.unit.core.mortal import Killed, Life, MortalLedger
from tests.unit.core.other_hand import OtherHand
from tests.unit.core.witness import Witness

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
        self._watchman = Watchman(
            monitor=self._monitor, router=self.router, ledger=self.ledger, clock=clock, alarm=False
        )

    async def look(self) -> None:
        """Take in what others wrote."""
        for issue in sorted(self.ledger.changed()):
            for item in await self.ledger.news(issue) or ():
                if (record := parse(item)) is not None:
                    summary = summarize(record)
                    self._watchman.note(summary)
                    if summary.adoptable:
                        await self.router.adopt(record.id)

    async def watch(self) -> None:
        """As long as something is due."""
        for _ in range(_TURNS):
            await self._watchman.catch_up()
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
        self._watchman.note(summarize(record))
