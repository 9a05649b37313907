"""Adopts or undoes what other programs wrote into ledgers, and notifies people."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from functools import partial

import structlog

from bot.intake.notices import Notices
from bot.storage.store import until_stored
from core.clarification import Clarification, parse_id
from core.clock import Clock
from core.errors import ClarifyError, LedgerUnreadable, LedgerUnwritable, LockTimeout, NotFound
from core.ledger import Ledger
from core.matching import foreign_answer
from core.records import is_unsettled
from core.router import Router

_log = structlog.get_logger("clarify.monitor")


@dataclass(kw_only=True, eq=False, repr=False)
class Adoption:
    """`leads` tells whether this bot leads: of the bots on one database, only the leader looks for what to tell people."""

    ledger: Ledger
    router: Router
    notices: Notices
    clock: Clock
    leads: Callable[[], bool] = lambda: True

    async def adopt(self, clarification: str) -> bool:
        """Adopts an answer that another implementation wrote, or closes a question that another program changed.

        Returns False if it must be tried again.
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

    async def close_rolled_back(self, records: Iterable[Clarification]) -> tuple[set[str], bool]:
        """Closes those of the open records that lack what people did: another program put their ledger back to an earlier
        state. Returns the ids of those that are, or were when they were read, and False to look again.
        """
        still_open, history = [each for each in records if each.is_open], self.ledger.history
        if history is None or not still_open or not self.leads():
            return set(), True
        known = partial(history.known, still_open)
        is_behind = await until_stored(
            known, self.clock, _log, "a look for ledgers that went back has to wait"
        )
        found, done = set[str](), True
        for each in filter(is_behind, still_open):
            try:
                now = await self.ledger.find(each.id, each.issue_number)  # it may be newer than what was read
                found.add(each.id)
                if now.is_open and is_behind(now):
                    # First: otherwise a crash in between would hide it.
                    await self.notify(partial(self.notices.rolled_back, now))
                    await self.router.close_rolled_back(each.id, is_behind)
                else:
                    done = False
            except (LockTimeout, LedgerUnwritable) as error:
                _log.warning("closing a question later", id=each.id, reason=str(error))
                done = False
            except (LedgerUnreadable, NotFound) as error:
                _log.error("cannot close a question", id=each.id, reason=str(error))
        return found, done

    async def receipt(self, record: Clarification) -> bool:
        """Makes the receipt of a record whose round ended in another process, or without a key. Returns whether it did."""
        if not await self.ledger.owes_receipt(record):
            return False
        try:
            return (await self.router.receipt(record.id)).asked.receipt is not None
        except ClarifyError as error:
            _log.warning("receipt delayed", id=record.id, reason=str(error))
            return False

    async def _notify_first(self, clarification: str) -> None:
        """Notifies people that another program changed a question or wrote a consent. Before it is undone, so that a crash
        in between does not hide it, and by the bot that undoes it: afterwards the leader would find nothing to tell.
        """
        issue, _ = parse_id(clarification)
        record = await self.ledger.find(clarification, issue)
        if await self.ledger.is_tampered(record):
            await self._store(partial(self.notices.records_tampered, issue, [clarification], []))
            return
        if is_unsettled(record) and await self.ledger.verify_question(record) is False:
            await self._store(partial(self.notices.question_changed, record))
            return
        foreign = foreign_answer(record, verified=await self.ledger.verify_answer(record))
        if foreign is not None and foreign.consents:
            await self._store(partial(self.notices.consent_refused, record, foreign.by))

    async def notify(self, notice: Callable[[], Awaitable[None]]) -> None:
        """Stores a notice if this bot leads; retries while the storage is unavailable."""
        if self.leads():
            await self._store(notice)

    async def _store(self, notice: Callable[[], Awaitable[None]]) -> None:
        await until_stored(notice, self.clock, _log, "notice delayed")
