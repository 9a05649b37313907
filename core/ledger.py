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
    NotFound,
)
from core.records import (
    Book,
    OwnRecords,
    Raw,
    Receipts,
    Signer,
    agrees,
    identity,
    unsigned_rounds,
)

_T = TypeVar("_T")
_log = logging.getLogger("clarify.ledger")

LOCK_TIMEOUT = 2.0  # seconds


class Loaded(NamedTuple):
    """The highest issue number, archived or not, and why some ledgers could not be read."""

    highest: int
    troubles: list[ClarifyError]


class IssueContents(NamedTuple):
    """Everything stored of one issue. `parts`: its name and records; `problems`: in words, what cannot be read."""

    parts: list[tuple[str, list[Any]]]
    problems: list[str]


Take = Callable[[list[Raw]], bool]


class Ledger(Protocol):
    """The records of issues, each changed under its lock. Archived ledgers can be read; they are restored before they are
    written. `own`: what this process wrote; `receipts` checks receipts (None: nothing does), `signer` signs them (None:
    there is no key in this process). `found_tampered` is called with records that do not agree with their receipts.
    """

    own: OwnRecords
    receipts: Receipts | None = None
    signer: Signer | None = None
    found_tampered: Callable[[Sequence[Clarification]], None] | None = None

    async def transact(
        self,
        issue: int | Callable[[Any], int],
        decide: Callable[[Book], _T],
        timeout: float = LOCK_TIMEOUT,
        written: Callable[[], None] | None = None,
        along: Callable[[Any, _T], None] | None = None,
    ) -> _T:
        """Run `decide` on the records of `issue` under its lock, write what it put, return what it returned.

        `issue`, `decide` and `along` run in a worker thread, perhaps several times; if one raises, nothing is written. A
        function as `issue` is called first, in the same transaction of the storage, which it gets; `along` is called last,
        with that transaction and what `decide` returned. Once started, it finishes even if the caller is cancelled;
        `written` is called in the event loop if it succeeded.

        Raises:
            LockTimeout: not locked within `timeout` seconds, and `decide` will not run.
            LedgerUnreadable: the ledger does not parse; it is left as it is.
            LedgerUnwritable: the database refused; the ledger is unchanged.
            LedgerInDoubt: it is unknown whether it was written.
        """

    async def read(self, issue: int) -> list[Raw]:
        """The raw records of `issue` as last written, without its lock; none if there is no ledger.

        Raises:
            LedgersAway: the database cannot be read. LedgerUnreadable: it does not parse.
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

    def changes(self, clock: Clock) -> AsyncGenerator[list[int]]:
        """The issues whose ledgers other processes may have changed, while it is iterated, beginning with those before."""

    def woken(self, issue: int) -> AbstractAsyncContextManager[asyncio.Event]:
        """An event that is set whenever any process writes the ledger. Notices can be lost, so look regularly too."""

    async def shelve(
        self, issue: int, is_over: Callable[[list[Raw]], bool], timeout: float = LOCK_TIMEOUT
    ) -> bool:
        """Archive a ledger if `is_over(records)` under its lock; returns whether it was archived.

        Raises:
            LockTimeout, LedgerUnreadable, LedgerUnwritable: as `transact`; it was not archived.
        """

    async def is_tampered(self, record: Clarification) -> bool:
        """Whether a record does not agree with its receipts: then no one may get it as an answer."""
        return record.id in await self.tampered_among([record])

    async def tampered_among(self, records: Sequence[Clarification]) -> frozenset[str]:
        """Returns the ids of the records that do not agree with their receipts."""
        if (receipts := self.receipts) is None:
            return frozenset()
        # Quick without a receipt; a signature takes a thread.
        unclear = [each for each in records if not agrees(each, None)]
        if not unclear:
            return frozenset()
        found = await asyncio.to_thread(lambda: [each for each in unclear if not agrees(each, receipts)])
        if found and self.found_tampered is not None:
            self.found_tampered(found)
        return frozenset(each.id for each in found)

    async def owes_receipt(self, record: Clarification) -> bool:
        """Whether a round of a record ended without a receipt, and this process can sign it."""
        signer, rounds = self.signer, [then for _, then in unsigned_rounds(record)]
        if not record.is_open and record.asked.receipt is None:
            rounds.append(record)
        if signer is None or not rounds:
            return False
        return await asyncio.to_thread(lambda: any(map(signer.owes, rounds)))


def ended(issue: int, change: asyncio.Future[Any]) -> None:
    """Log that a change failed whose caller is gone; without the error's message, which may quote answers."""
    if not change.cancelled() and (error := change.exception()) is not None:
        _log.warning("issue %d: abandoned transaction failed: %s", issue, type(error).__name__)
