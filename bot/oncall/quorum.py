"""Looks, for actions that several people have to accept, whether so many may answer; if not, on-call is told at once."""

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
_AGAIN = 10.0  # seconds until Slack, or a ledger that cannot be had, is asked again


@dataclass(kw_only=True, eq=False)
class Quorum:
    """Counts the people who may answer, when an action is asked, after each accept, and at the start."""

    settings: Settings
    people: People
    router: Router
    clock: Clock
    _queue: asyncio.Queue[Clarification] = field(default_factory=asyncio.Queue, init=False)
    _known: dict[str, Clarification] = field(default_factory=dict, init=False)

    def record_changed(self, record: Clarification) -> None:
        """A clarification as it is now: after each change, and at the start. Cheap; `run` does the rest."""
        if not record.is_open or record.asked.needed == 1:
            self._known.pop(record.id, None)
            return
        known = self._known.get(record.id)
        if known is None or _progress(known) != _progress(record):
            self._known[record.id] = record
            self._queue.put_nowait(record)

    async def run(self) -> None:
        """Look at what is new, one after the other; runs until cancelled."""
        while True:
            record = await self._queue.get()
            if self._known.get(record.id) is record and not await self._looked(record):
                self._queue.put_nowait(record)
                await self.clock.sleep(_AGAIN)

    async def _looked(self, record: Clarification) -> bool:
        """Whether it is known how many may answer, and written down; if not, it is to be tried again."""
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
    """The round, and how many have accepted in it."""
    return record.round, len(record.asked.approvals or ())
