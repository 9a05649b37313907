"""The port to the records: `Ledger`; and what a change of one is. `bot.storage.ledger` keeps them in the database, one row per
clarification.

The five lifecycle events of clarifications (AgentEventBus, §4.2) are found by comparing two states of a record (`lifecycle`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, NamedTuple, Protocol, TypeVar, get_args

from core.clarification import OPEN, Ask, Clarification, Status
from core.clock import iso
from core.errors import ClarifyError
from core.receipts import number_of
from core.records import Book, Receipts, Signer, agrees, as_of, unsigned_rounds
from core.summary import Seen, Summary

_T = TypeVar("_T")
_log = logging.getLogger("clarify.ledger")

LOCK_TIMEOUT = 2.0  # seconds
Name = Literal[
    "clarification-requested",
    "clarification-answered",
    "clarification-stale",
    "clarification-resolved",
    "clarification-escalated",
]

_PREFIX = "clarification-"
RECEIPT: Literal["receipt"] = "receipt"
ABANDONED = "abandoned"
EXECUTED = "executed"
FORGOTTEN = "forgotten"
_BY_WORD: dict[str, Name] = {name.removeprefix(_PREFIX): name for name in get_args(Name)}


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
    it (`core.ledger.change`).
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


def payload(record: Clarification, at: datetime) -> dict[str, object]:
    """Returns the payload of a clarification's event at `at`, as JSON values under the protocol's names. Its topic is the
    agents' text: never log it.
    """
    return {
        "clarificationId": record.id,
        "issueNumber": record.issue_number,
        "fromAgent": record.from_,
        "toAgent": record.to,
        "topic": record.short_topic,
        "blocking": record.blocking,
        "timestamp": iso(at),
    }


class State(NamedTuple):
    """The fields of a clarification whose change makes an event. `nudges`: reminders about the latest question."""

    status: Status
    round: int
    asked_last: datetime
    nudges: int

    @classmethod
    def of(cls, record: Seen) -> State:
        return cls(record.status, record.round, record.asked_last, record.nudges)


def lifecycle(before: Seen | None, record: Seen) -> list[Name]:
    """Returns the events between two states of a clarification, in the order in which they happen. `before`: None: seen for the
    first time, which gives only the event of its current state. An abandoned clarification has no event.
    """
    if before is None:
        first = _FIRST_SEEN[record.status]
        return [] if first is None else [first]
    return _changes(State.of(before), State.of(record))


def change(before: Clarification | None, record: Clarification) -> str:
    """Returns what a write of a record means, for the feed: its events, that it was abandoned, and receipts that follow the
    end of their round, each with the round's number: `answered/1 resolved/1`, `receipt/1`. Empty if there are none. A new
    record was asked first.
    """
    after = State.of(record)
    asked = before is None
    state = State("pending", 1, record.created, 0) if before is None else State.of(before)
    names: list[Name] = ["clarification-requested"] if asked else []
    names += _changes(state, after)
    found = [f"{name.removeprefix(_PREFIX)}/{number_of(record)}" for name in names]
    if after.status == ABANDONED and state.status != ABANDONED:
        found.append(f"{ABANDONED}/{number_of(record)}")
    if before is not None:
        found += [f"{RECEIPT}/{number}" for number in _signed_late(before, record)]
    return " ".join(found)


def executed(record: Clarification, result_sha256: str, *, is_error: bool) -> str:
    """Returns what the feed tells of an approved action that was carried out: `executed/1/DIGEST/0`, the round's number, the
    base64url SHA-256 of its result, and whether that is an error.
    """
    return f"{EXECUTED}/{number_of(record)}/{result_sha256}/{is_error:d}"


def told_in(what: str) -> list[tuple[Name | Literal["receipt"], int]]:
    """Returns the events and receipts of a change, with the number of their round. Being abandoned is no event."""
    found: list[tuple[Name | Literal["receipt"], int]] = []
    for word in what.split():
        name, _, number = word.partition("/")
        if name == RECEIPT:
            found.append((RECEIPT, int(number)))
        elif (event := _BY_WORD.get(name)) is not None:
            found.append((event, int(number)))
    return found


def _signed_late(before: Clarification, record: Clarification) -> Iterator[int]:
    """Yields the numbers of the rounds that ended before and have got their receipt only now."""
    lacked = [past.receipt is None for past in before.earlier]
    lacked.append(not before.is_open and before.current.receipt is None)
    has = [each.receipt is not None for each in record.rounds]
    for place, (did_lack, has_it) in enumerate(zip(lacked, has, strict=False)):
        if did_lack and has_it:
            yield number_of(record if place == len(record.earlier) else as_of(record, place))


_FIRST_SEEN: dict[Status, Name | None] = {
    "pending": "clarification-requested",
    "stale": "clarification-stale",
    "escalated": "clarification-escalated",
    "answered": "clarification-answered",
    "resolved": "clarification-resolved",
    "abandoned": None,
}


def _changes(before: State, after: State) -> list[Name]:
    # A follow-up after the last round keeps the round's number and is escalated at once.
    asked_again = after.round > before.round or after.asked_last > before.asked_last
    changed = after.status != before.status
    nudges = 0 if asked_again else before.nudges
    answered = after.status == "answered" or (
        after.status == "resolved" and (before.status in OPEN or asked_again)
    )
    happened: list[tuple[bool, Name]] = [
        (asked_again, "clarification-requested"),
        (after.nudges > nudges or (after.status == "stale" and changed), "clarification-stale"),
        (after.status == "escalated" and changed, "clarification-escalated"),
        (answered and (changed or asked_again), "clarification-answered"),
        (after.status == "resolved" and (changed or asked_again), "clarification-resolved"),
    ]
    return [name for did, name in happened if did]
