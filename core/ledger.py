"""The port to the records: `Ledger`. `bot.storage.ledger` keeps them in the database, one row per clarification."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple, Protocol, TypeVar

from core.clarification import Ask, Clarification
from core.errors import ClarifyError
from core.records import Book, Receipts, Signer, agrees, unsigned_rounds
from core.summary import Seen, Summary

_T = TypeVar("_T")
_log = logging.getLogger("clarify.ledger")

LOCK_TIMEOUT = 2.0  # seconds


@dataclass(frozen=True, slots=True)
class OfRecord:
    """A decision about one record."""

    clarification: str


@dataclass(frozen=True, slots=True)
class Asking:
    """Questions about an issue: the decision sees the earlier questions of their sessions, and assigns the issue's next numbers.

    `issue` may be a function of the storage's own transaction, which runs first.
    """

    issue: int | Callable[[Any], int]
    asks: Sequence[Ask]


@dataclass(frozen=True, slots=True)
class OfSession:
    """An event of a producer's session: the decision sees the session's records that need something or have ended since."""

    producer: str
    session: str
    since: datetime


@dataclass(frozen=True, slots=True)
class OfIssue:
    """All records of an issue, and its next numbers."""

    issue: int


Reach = OfRecord | Asking | OfSession | OfIssue
"""What a decision reads and locks. It can put only records that it has read, or new ones."""


class Contents(NamedTuple):
    """Some records, and the ids of others that cannot be read."""

    records: list[Clarification]
    unreadable: list[str]


class Ledger(Protocol):
    """The records. `receipts` checks receipts (None: nothing does), `signer` signs them (None: there is no key in this
    process). `found_tampered` is called with records that do not agree with their receipts; `found_unreadable`, in any thread,
    with the id of one that does not parse. `owes` stores what a write of a record owes, in its transaction, if the feed tells of
    it (`core.bus.change`).
    """

    receipts: Receipts | None = None
    signer: Signer | None = None
    found_tampered: Callable[[Sequence[Clarification]], None] | None = None
    found_unreadable: Callable[[str], object] | None = None
    owes: Callable[[Any, Clarification], None] | None = None

    async def transact(
        self,
        reach: Reach,
        decide: Callable[[Book], _T],
        timeout: float = LOCK_TIMEOUT,
        written: Callable[[], None] | None = None,
        along: Callable[[Any, _T], None] | None = None,
    ) -> _T:
        """Run `decide` on the records that `reach` names, under their locks, write what it put, return what it returned.

        `decide` runs in a worker thread; if it raises, nothing is written. Once started, it finishes even if the caller is
        cancelled; `written` is called in the event loop if it succeeded. `along` writes more in the storage's own
        transaction, after the decision. All of it may be tried again.

        Raises:
            LockTimeout: not locked within `timeout` seconds, and `decide` will not run.
            LedgerUnreadable: a record does not parse; it is left as it is.
            LedgerUnwritable: the database refused; nothing is changed.
            LedgerInDoubt: it is unknown whether it was written.
        """

    async def find(self, clarification_id: str) -> Clarification:
        """One record, as last written.

        Raises:
            BadInput: no id. NotFound: no such record.
            LedgersAway: the database cannot be read. LedgerUnreadable: it does not parse.
        """

    def recent(self, clarification_id: str, revision: int) -> Clarification | None:
        """The record as of `revision` if it was recently written or read here, otherwise None."""

    async def whole(self, seen: Seen) -> Clarification:
        """The record of a summary; read, as `find` does, only if it is not in memory."""
        if isinstance(seen, Clarification):
            return seen
        return self.recent(seen.id, seen.revision) or await self.find(seen.id)

    async def whole_if_readable(self, seen: Seen) -> Seen:
        """The record of a summary, or the summary if the record cannot be read now."""
        try:
            return await self.whole(seen)
        except ClarifyError:
            return seen

    async def by_token(self, producer: str, token: str) -> Clarification:
        """The record whose current round is replied to with a producer's token.

        Raises:
            NotFound: there is none. LedgersAway, LedgerUnreadable: as `find`.
        """

    async def read(self, issue: int) -> Contents:
        """The records of an issue as last written, in the order of their numbers.

        Raises:
            LedgersAway: the database cannot be read.
        """

    def load(self) -> AsyncGenerator[list[Summary]]:
        """At the start, summaries of the records that need something, in batches.

        Raises:
            LedgersAway: the database cannot be read.
        """

    def every(
        self,
        *,
        issue: int | None = None,
        since: datetime | None = None,
        waiting: bool = False,
        after: tuple[int, int] = (0, 0),
    ) -> AsyncGenerator[Contents]:
        """All records in batches, ordered by issue and number.

        Args:
            issue: only its records.
            since: without those that were over before.
            waiting: only those that need something.
            after: only those after this issue and number.

        Raises:
            LedgersAway: the database cannot be read.
        """

    async def latest(self, most: int) -> list[Clarification]:
        """The records that were written last, the latest first; raises LedgersAway."""

    async def news(self, clarification_id: str) -> Clarification | None:
        """A record as another process last wrote it; None if this process has written it since.

        Raises:
            NotFound, LedgersAway, LedgerUnreadable: as `find`.
        """

    def changes(self) -> AsyncGenerator[list[str]]:
        """Yields the ids of records that other processes may have changed: first earlier changes, then new ones as they happen."""

    def woken(self, clarification_id: str) -> AbstractAsyncContextManager[asyncio.Event]:
        """An event that is set whenever any process writes the record. Notices can be lost, so look regularly too."""

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
        if not record.is_open and record.current.receipt is None:
            rounds.append(record)
        if signer is None or not rounds:
            return False
        return await asyncio.to_thread(lambda: any(map(signer.owes, rounds)))


def ended(what: str, change: asyncio.Future[Any]) -> None:
    """Log that a change failed whose caller is gone; without the error's message, which may quote answers."""
    if not change.cancelled() and (error := change.exception()) is not None:
        _log.warning("%s: abandoned transaction failed: %s", what, type(error).__name__)
