"""Ledgers: the clarifications of each issue. `Ledger` is the port; `bot.storage.ledger` keeps them in the database."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, NamedTuple, Protocol, TypeVar

from core.clarification import Clarification
from core.clock import Clock
from core.errors import (
    ClarifyError,
    LedgerUnreadable,
    NotFound,
)
from core.records import (
    Book,
    OwnRecords,
    Raw,
    Seals,
    Signer,
    identity,
    speaks_for_a_person,
    unsigned_rounds,
)

_T = TypeVar("_T")
_log = logging.getLogger("clarify.ledger")

LOCK_TIMEOUT = 2.0  # seconds
_RETRY = 1.0  # seconds
_AT_ONCE = 200  # ledgers read in one visit to a thread
_STILL_THERE = 2000  # milliseconds


class Written(NamedTuple):
    """The issues whose ledgers may have changed, and the ledgers that were quarantined because they did not parse."""

    issues: list[int]
    set_aside: list[LedgerUnreadable]


class Loaded(NamedTuple):
    """The highest issue number, archived or not, and why some ledgers could not be read."""

    highest: int
    troubles: list[ClarifyError]


class IssueContents(NamedTuple):
    """Everything stored of one issue. `parts`: the name and records of each of its files, the live one first; `problems`: in
    words, what cannot be read.
    """

    parts: list[tuple[str, list[Any]]]
    problems: list[str]


Take = Callable[[list[Raw]], bool]


class History(Protocol):
    """What else is known of decisions, besides the ledgers."""

    async def known(self, records: Sequence[Clarification]) -> Callable[[Clarification], bool]:
        """Returns a test of these records, and of later versions of them: whether one lacks what was decided, or has another
        receipt. The test is as of now, so an older version may fail it.
        """


class Ledger(Protocol):
    """The records of issues, each changed under its lock. Archived ledgers can be read; they are restored before they are
    written. `seals` checks records, blocking; `own`: what this process wrote; `receipts` signs receipts (None: there is no
    key in this process); `history`: what else shows that a record was changed, if anything.
    """

    seals: Seals
    own: OwnRecords
    receipts: Signer | None = None
    history: History | None = None

    async def transact(
        self,
        issue: int,
        decide: Callable[[Book], _T],
        timeout: float = LOCK_TIMEOUT,
        written: Callable[[], None] | None = None,
    ) -> _T:
        """Run `decide` on the records of `issue` under its lock, write what it put, return what it returned.

        `decide` runs in a worker thread; if it raises, nothing is written. Once started, it finishes even if the caller is
        cancelled; `written` is called in the event loop if it succeeded.

        Raises:
            LedgersAway: the ledgers are missing; `decide` did not run.
            LockTimeout: not locked within `timeout` seconds, and `decide` will not run; or the lock was lost, as after a
                long suspend, and nothing was written.
            LedgerUnreadable: the ledger does not parse and was quarantined; the next call starts a new one.
            LedgerUnwritable: the disk refused; the ledger is unchanged.
        """

    async def read(self, issue: int) -> list[Raw]:
        """The raw records of `issue` as last written, without its lock; none if there is no ledger.

        Raises:
            LedgerUnreadable, LockTimeout: it did not parse, even under the lock.
        """

    async def find(self, clarification_id: str, issue: int) -> Clarification:
        """One record, read without the lock.

        Raises:
            NotFound: no such record.
        """
        for item in await self.read(issue):
            if identity(item) == clarification_id and (record := self.own.parse(issue, item)):
                return record
        raise NotFound(clarification_id)

    async def load(self, last_issue: int, take: Take) -> Loaded:
        """On start, call `take` with the records of every live ledger, in a worker thread. It returns whether `changes` must
        report the ledger again.

        `last_issue`: the last reserved number that was given out, according to the storage.
        """

    async def live(self) -> list[int]:
        """The issues of all ledgers that are not archived, sorted.

        Raises:
            LedgersAway: they are missing.
        """

    async def latest(self, most: int) -> list[int]:
        """The issues whose live ledgers were written last, the latest first; raises LedgersAway."""

    def every(self, *, issue: int | None = None, archived: bool = True) -> AsyncGenerator[IssueContents]:
        """Each issue once, sorted, or only `issue`; includes ledgers that are archived meanwhile.

        Raises:
            LedgersAway: they are missing.
        """

    async def news(self, issue: int) -> list[Raw] | None:
        """The raw records, or None if the ledger is unchanged since this process last wrote it or called `news`.

        Raises:
            LedgerUnreadable, LockTimeout: as `read`.
        """

    def forget(self, issue: int) -> None:
        """Have `news` report it again."""

    def changes(self, clock: Clock) -> AsyncGenerator[Written]:
        """What other processes write while it is iterated, beginning with what they wrote before."""

    def woken(self, issue: int) -> AbstractAsyncContextManager[asyncio.Event]:
        """An event that is set whenever any process writes the ledger. Notices can be lost, so look regularly too."""

    async def shelve(
        self, issue: int, is_over: Callable[[list[Raw]], bool], timeout: float = LOCK_TIMEOUT
    ) -> bool:
        """Archive a ledger if `is_over(records)` under its lock; returns whether it was archived.

        Raises:
            LockTimeout, LedgerUnreadable, LedgerUnwritable: as `transact`; it was not archived.
        """

    async def verify_answer(self, record: Clarification) -> bool:
        """Whether a record's answer comes from the person it names; False: another program put the name there."""
        return not speaks_for_a_person(record) or await self._checked(self.seals.verify_answer, record)

    async def verify_holder(self, record: Clarification) -> bool:
        """Whether it has a holder that we wrote; False if it has none, or only another program says so."""
        return await self._checked(self.seals.verify_holder, record)

    async def verify_question(self, record: Clarification) -> bool | None:
        """Whether a record's question, the address of its reply and its decision are as we wrote them; None: unknown."""
        return await self._checked(self.seals.verify_question, record)

    async def is_tampered(self, record: Clarification) -> bool:
        """Whether another program changed a record after it was settled: then no one may get it as an answer."""
        return record.id in await self.tampered_among([record])

    async def tampered_among(self, records: Sequence[Clarification]) -> frozenset[str]:
        """Returns the ids of records that another program changed after they were settled."""
        others = [each for each in records if not self.seals.is_verified(each)]
        if not others:
            return frozenset()
        if len(others) == 1:
            found = {each.id for each in others if await self._checked(self.seals.is_tampered, each)}
        else:
            found = await asyncio.to_thread(
                lambda: {each.id for each in others if self.seals.is_tampered(each)}
            )
        if self.history is None:
            return frozenset(found)
        settled = [each for each in others if each.id not in found and not each.is_open]
        if not settled:
            return frozenset(found)
        contradicts = await self.history.known(settled)
        for record in filter(contradicts, settled):
            try:  # what was read before the last change is only old
                now = await self.find(record.id, record.issue_number)
            except ClarifyError:  # it is archived
                now = record
            if contradicts(now):
                found.add(record.id)
        return frozenset(found)

    async def is_behind(self, record: Clarification) -> bool:
        """Whether a record lacks what people did, as far as that is known."""
        return self.history is not None and (await self.history.known([record]))(record)

    async def owes_receipt(self, record: Clarification) -> bool:
        """Whether a round of a record ended without a receipt, and this process can sign it."""
        receipts = self.receipts
        rounds = [then for _, then in unsigned_rounds(record)]
        if not record.is_open and record.asked.receipt is None:
            rounds.append(record)
        if (
            receipts is None
            or not rounds
            or not await asyncio.to_thread(lambda: any(map(receipts.owes, rounds)))
        ):
            return False
        # One that had a receipt, which another program removed, gets no other.
        return not (await self.is_behind(record) or await self.is_tampered(record))

    async def _checked(self, check: Callable[[Clarification], _T], record: Clarification) -> _T:
        """Run a check of seals, in a thread if the key must be read first or there is much to check."""
        is_quick = self.seals.is_ready and not record.asked.arguments and record.asked.receipt is None
        if self.seals.is_verified(record) or is_quick:
            return check(record)
        return await asyncio.to_thread(check, record)


def ended(issue: int, change: asyncio.Future[Any]) -> None:
    """Log that a change failed whose caller is gone; without the error's message, which may quote answers."""
    if not change.cancelled() and (error := change.exception()) is not None:
        _log.warning("issue %d: abandoned transaction failed: %s", issue, type(error).__name__)


def _records(raw: Raw) -> list[Raw]:
    items: list[Raw] = raw["clarifications"]
    return items
