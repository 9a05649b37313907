"""The agent-status file after a command: also when no bot runs, it says who waits for whom."""

from __future__ import annotations

import asyncio

from bot.scan import scan
from bot.settings.shell import ShellSettings
from bot.shell.presence import bot_runs
from core.agents import StatusFile, StatusKeeper
from core.clarification import Clarification
from core.clock import Clock
from core.index import Summary, summarize
from core.ledger import FileLedger

NAME = "agent-status.json"


class Standing:
    """`note` every record that was written, `settle` when something is to be seen of it."""

    def __init__(self, settings: ShellSettings, ledger: FileLedger, clock: Clock) -> None:
        self._storage = settings.storage.path
        self._ledger = ledger
        self._file = StatusFile(settings.ledger.directory.parent / NAME, clock, mode=settings.ledger.mode)
        people = [role for role, each in settings.responders.items() if each.kind == "people"]
        self._keeper = StatusKeeper(self._file, people, clock)
        self._news = False
        self._knows_others = False

    def note(self, record: Clarification) -> None:
        """A record as it was just written."""
        self._keeper.note(summarize(record))
        self._news = True

    def working(self, summary: Summary, begun: bool) -> None:  # noqa: FBT001 - a dispatcher's callback
        """A responder that this command runs has begun, or ended."""
        self._keeper.working(summary, begun)

    async def settle(self) -> None:
        """Bring the file up to date. A bot that runs does so itself, and knows what else an agent waits for."""
        if not self._news:
            return
        if not self._knows_others and not bot_runs(self._storage):
            await self._learn_others()
        await self._keeper.settle()

    async def run(self) -> None:
        """Keep it up to date until cancelled."""
        await self._keeper.run()

    def close(self) -> None:
        self._file.close()

    async def _learn_others(self) -> None:
        """What was not of this command: an agent may wait for something else as well."""
        for summary in (await asyncio.to_thread(scan, self._ledger)).summaries:
            self._keeper.note(summary)
        self._knows_others = True
