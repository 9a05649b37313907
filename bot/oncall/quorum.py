"""Looks, for actions that several people have to accept, whether so many may answer; if not, on-call is told at once."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import NamedTuple

import structlog

from bot.errors import SlackError
from bot.people.answerers import count_answerers
from bot.people.directory import People
from bot.routing import audience_of
from bot.settings.model import Settings
from core.clock import Clock
from core.errors import ClarifyError, LedgerUnwritable, LockTimeout
from core.index import Summary
from core.ledger import Ledger
from core.router import Router

_log = structlog.get_logger("clarify.paging")
_AGAIN = 10.0  # seconds until Slack, or a ledger that cannot be had, is asked again


class _Look(NamedTuple):
    clarification: str
    issue: int
    round: int
    accepted: int


@dataclass(kw_only=True, eq=False)
class Quorum:
    """Counts the people who may answer, when an action is asked, after each accept, and at the start."""

    settings: Settings
    people: People
    router: Router
    ledger: Ledger
    clock: Clock
    _queue: asyncio.Queue[_Look] = field(default_factory=asyncio.Queue, init=False)
    _known: dict[str, _Look] = field(default_factory=dict, init=False)

    def record_changed(self, seen: Summary) -> None:
        """A clarification as it is now: after each change, and at the start. Cheap; `run` does the rest."""
        if not seen.is_open or seen.needed == 1:
            self._known.pop(seen.id, None)
            return
        look = _Look(seen.id, seen.issue, seen.round, seen.accepted)
        if self._known.get(seen.id) != look:
            self._known[seen.id] = look
            self._queue.put_nowait(look)

    async def run(self) -> None:
        """Look at what is new, one after the other; runs until cancelled."""
        while True:
            look = await self._queue.get()
            if self._known.get(look.clarification) == look and not await self._looked(look):
                self._queue.put_nowait(look)
                await self.clock.sleep(_AGAIN)

    async def _looked(self, look: _Look) -> bool:
        """Whether it is known how many may answer, and written down; if not, it is to be tried again."""
        try:
            record = await self.ledger.find(look.clarification, look.issue)
            route = self.settings.route_for(*audience_of(record))
            home, needed = await self.people.installation(), record.asked.needed
            may = await count_answerers(route, self.settings, self.people, home, needed)
            await self.router.too_few(record.id, may)
        except (SlackError, LockTimeout, LedgerUnwritable) as error:
            _log.warning("cannot count possible approvers yet", id=look.clarification, reason=str(error))
            return False
        except ClarifyError as error:
            _log.error("cannot count possible approvers", id=look.clarification, reason=str(error))
        return True
