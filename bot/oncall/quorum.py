"""Checks that enough people may approve an action that needs several approvals, or one of someone other than the person its
agent works for; otherwise on-call is paged at once.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

import structlog

from bot.errors import SlackError
from bot.people.answerers import count_answerers
from bot.people.directory import People
from bot.routing import audience_of
from bot.settings.model import RouteSettings, Settings
from core.clarification import Clarification
from core.clock import Clock
from core.errors import ClarifyError, LedgerUnwritable, LockTimeout
from core.index import Index
from core.ledger import Ledger
from core.router import Router
from core.summary import Seen, Summary, summary_of

_log = structlog.get_logger("clarify.paging")
_RETRY = 10.0  # seconds, after Slack or the ledger failed


@dataclass(kw_only=True, eq=False)
class Quorum:
    """Counts the people who may answer: for each new action, after each approval, and on start."""

    settings: Settings
    people: People
    router: Router
    index: Index
    ledger: Ledger
    clock: Clock
    _queue: asyncio.Queue[Summary] = field(default_factory=asyncio.Queue, init=False)
    _known: dict[str, Summary] = field(default_factory=dict, init=False)

    def record_changed(self, seen: Seen) -> None:
        """Queue a clarification for `run`, if its approvals changed. Call after each change, and on start."""
        if not seen.is_open or not seen.is_guarded:
            self._known.pop(seen.id, None)
            return
        known, now = self._known.get(seen.id), summary_of(seen)
        if known is None or _progress(known) != _progress(now):
            self._known[now.id] = now
            self._queue.put_nowait(now)

    async def run(self) -> None:
        """Check the queued clarifications, one at a time, until cancelled."""
        while True:
            queued = await self._queue.get()
            if self._known.get(queued.id) is queued and not await self._check(queued.id):
                self._queue.put_nowait(queued)
                await self.clock.sleep(_RETRY)

    async def _check(self, clarification: str) -> bool:
        """Count and record the possible approvers; False: try again later."""
        try:
            record = await self.index.find(clarification, self.ledger)
            route = self.settings.route_for(*audience_of(record))
            may = 0 if record.asked.lacks_requester else await self._count(record, route)
            await self.router.too_few(record.id, may)
        except (SlackError, LockTimeout, LedgerUnwritable) as error:
            _log.warning("cannot count possible approvers yet", id=clarification, reason=str(error))
            return False
        except ClarifyError as error:
            _log.error("cannot count possible approvers", id=clarification, reason=str(error))
        return True

    async def _count(self, record: Clarification, route: RouteSettings) -> int:
        home, asked = await self.people.installation(), record.asked
        besides = asked.barred.by if asked.barred is not None else None
        return await count_answerers(route, self.settings, self.people, home, asked.needed, besides=besides)


def _progress(summary: Summary) -> tuple[int, int, int]:
    """The round, and its numbers of approvals that count and that no longer do."""
    return summary.round, summary.approvals, summary.lapsed
