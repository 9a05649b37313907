"""Checks that enough people may answer when an action needs several approvals; otherwise on-call is paged at once."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

import structlog

from bot.errors import SlackError
from bot.people.answerers import count_answerers
from bot.people.directory import People
from bot.routing import audience_of
from bot.settings.model import Settings
from core.clarification import Clarification
from core.clock import Clock
from core.errors import ClarifyError, LedgerUnwritable, LockTimeout
from core.router import Router

_log = structlog.get_logger("clarify.paging")
_RETRY = 10.0  # seconds, after Slack or the ledger failed


@dataclass(kw_only=True, eq=False)
class Quorum:
    """Counts the people who may answer: for each new action, after each approval, and on start."""

    settings: Settings
    people: People
    router: Router
    clock: Clock
    _queue: asyncio.Queue[Clarification] = field(default_factory=asyncio.Queue, init=False)
    _known: dict[str, Clarification] = field(default_factory=dict, init=False)

    def record_changed(self, record: Clarification) -> None:
        """Queue a clarification for `run`, if its approvals changed. Call after each change, and on start."""
        if not record.is_open or record.asked.needed == 1:
            self._known.pop(record.id, None)
            return
        known = self._known.get(record.id)
        if known is None or _progress(known) != _progress(record):
            self._known[record.id] = record
            self._queue.put_nowait(record)

    async def run(self) -> None:
        """Check the queued clarifications, one at a time, until cancelled."""
        while True:
            record = await self._queue.get()
            if self._known.get(record.id) is record and not await self._check(record):
                self._queue.put_nowait(record)
                await self.clock.sleep(_RETRY)

    async def _check(self, record: Clarification) -> bool:
        """Count and record the possible approvers; False: try again later."""
        try:
            route = self.settings.route_for(*audience_of(record))
            home, needed = await self.people.installation(), record.asked.needed
            may = await count_answerers(route, self.settings, self.people, home, needed)
            await self.router.too_few(record.id, may)
        except (SlackError, LockTimeout, LedgerUnwritable) as error:
            _log.warning("cannot count possible approvers yet", id=record.id, reason=str(error))
            return False
        except ClarifyError as error:
            _log.error("cannot count possible approvers", id=record.id, reason=str(error))
        return True


def _progress(record: Clarification) -> tuple[int, int]:
    """The round, and its number of approvals."""
    return record.round, len(record.asked.approvals or ())
