"""Agents that ask agents: the parts that answer, tell and show it beside Slack, noted of every record together."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterable

import structlog

from bot.github.sync import GithubSync
from bot.responders import responders_of
from bot.settings.model import Settings
from bot.storage.store import Store
from core.agents import StatusFile, StatusKeeper
from core.bus import lifecycle
from core.clock import Clock
from core.dispatch import Dispatcher
from core.index import Summary
from core.ledger import FileLedger
from core.router import Router
from core.workflow import Scopes

_log = structlog.get_logger("clarify.lifecycle")


class AgentDesk:
    """Has the roles answer that are asked, keeps the agent-status file, publishes the lifecycle events on `bus`, and
    mirrors the issues on GitHub, where that is configured.
    """

    def __init__(
        self,
        *,
        settings: Settings,
        store: Store,
        router: Router,
        ledger: FileLedger,
        scopes: Scopes,
        clock: Clock,
        rng: random.Random,
    ) -> None:
        self._clock = clock
        responders = settings.responders
        people = [role for role, responder in responders.items() if responder.kind == "people"]
        self._status = StatusFile(
            settings.ledger.directory.parent / "agent-status.json", clock, mode=settings.ledger.mode
        )
        self._keeper = StatusKeeper(self._status, people, clock, ledger)
        self._dispatcher = Dispatcher(
            responders=responders_of(responders, settings.secrets.by_variable, settings.file.parent),
            router=router,
            ledger=ledger,
            clock=clock,
            scopes=scopes,
            working=self._keeper.working,
        )
        self._github = _github(settings, ledger, store, clock, rng)

    def note(self, before: Summary | None, after: Summary) -> None:
        """A record is as `after` says now; `before`: as it was known, if it was."""
        self._dispatcher.note(after)
        self._keeper.note(after)
        if self._github is not None:
            self._github.record_changed(after)
        if before is None and not after.needs_something:
            return  # over before it was known, or touched again after: no news
        for event in lifecycle(before, after, self._clock.now()):
            _log.info(event.name, id=event.clarification_id)  # never what it is about

    async def restore(self, summaries: Iterable[Summary]) -> None:
        """What needed something when the bot started."""
        found = list(summaries)
        for summary in found:
            self._dispatcher.note(summary)
            self._keeper.note(summary)
        if self._github is not None:
            await self._github.restore(found)

    async def run(self) -> None:
        """Until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._dispatcher.run(), name="responders")
            group.create_task(self._keeper.run(), name="agent status")
            if self._github is not None:
                group.create_task(self._github.run(), name="GitHub")

    async def close(self) -> None:
        """After `run`: the last word into the agent-status file."""
        await self._keeper.settle()
        await asyncio.to_thread(self._status.close)


def _github(
    settings: Settings, ledger: FileLedger, store: Store, clock: Clock, rng: random.Random
) -> GithubSync | None:
    github = settings.github
    if github is None:
        return None
    token = settings.secrets.by_variable[github.token_env]
    return GithubSync(github, token, ledger=ledger, store=store, clock=clock, rng=rng)
