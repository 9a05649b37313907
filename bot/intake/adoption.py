"""Takes over what other programs wrote into ledgers, or undoes it, and says so."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial

import structlog

from bot.intake.notices import Notices
from bot.storage.store import until_stored
from core.clarification import parse_id
from core.clock import Clock
from core.errors import LedgerUnreadable, LedgerUnwritable, LockTimeout, NotFound
from core.ledger import Ledger
from core.matching import foreign_answer
from core.records import is_unsettled
from core.router import Router

_log = structlog.get_logger("clarify.monitor")


@dataclass(kw_only=True, eq=False, repr=False)
class Adoption:
    """`acts`: whether it is this bot that says what others wrote: of those on one database, the one that leads."""

    ledger: Ledger
    router: Router
    notices: Notices
    clock: Clock
    acts: Callable[[], bool] = lambda: True

    async def adopt(self, clarification: str) -> bool:
        """Take over an answer that another implementation wrote, or close what another program changed; False: it has to
        be tried again.
        """
        try:
            await self._notify_first(clarification)
            await self.router.adopt(clarification)
        except (LockTimeout, LedgerUnwritable) as error:
            _log.warning("another process's answer delayed", id=clarification, reason=str(error))
            return False
        except (LedgerUnreadable, NotFound) as error:
            _log.error("cannot use another process's answer", id=clarification, reason=str(error))
        return True

    async def _notify_first(self, clarification: str) -> None:
        """Says that a question was changed, or that another program consented: before it is undone, so that a kill in
        between does not hide it.
        """
        issue, _ = parse_id(clarification)
        record = await self.ledger.find(clarification, issue)
        if await self.ledger.is_tampered(record):
            await self.notify(partial(self.notices.records_tampered, issue, [clarification], []))
            return
        if is_unsettled(record) and await self.ledger.verify_question(record) is False:
            await self.notify(partial(self.notices.question_changed, record))
            return
        foreign = foreign_answer(record, verified=await self.ledger.verify_answer(record))
        if foreign is not None and foreign.consents:
            await self.notify(partial(self.notices.consent_refused, record, foreign.by))

    async def notify(self, notice: Callable[[], Awaitable[None]]) -> None:
        """Have a notice stored, however long that takes."""
        if self.acts():
            await until_stored(notice, self.clock, _log, "notice delayed")
