"""The only writer of ledgers: every decision about a clarification goes through here, under its issue's lock."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal, TypeVar

from core import aaep
from core.adoption import adopted, decided_elsewhere, is_adoptable, not_usable, reopened
from core.answers import from_text
from core.clarification import Answer, Ask, Clarification, CloseReason, Decider, ReplyState, parse_id
from core.clock import Clock
from core.errors import AnswerRejected, Closed, NotOpen, Superseded
from core.index import Summary
from core.ledger import Book, Ledger
from core.matters import is_known, is_same_matter
from core.steering import Steering
from core.transitions import (
    abandoned,
    answered,
    followed_up,
    has_expired,
    opened,
    reply_settled,
    resolved,
    went_on,
)

_T = TypeVar("_T")
_UNPROVEN = frozenset({"sending", "delivered", "unconfirmed"})
Changed = Callable[[Clarification], None]


@dataclass(frozen=True, slots=True)
class Opened:
    """What became of a question: a new clarification, its next round, or one that was there already."""

    record: Clarification
    how: Literal["new", "follow_up", "duplicate"]


@dataclass(frozen=True, slots=True)
class SessionNews:
    """What an event says about its session's clarifications.

    `sent` is its time on the producer's clock, `at` on ours.
    """

    producer: str
    session_id: str
    type: str
    sent: datetime
    at: datetime
    left_awaiting: bool = False


class Router(Steering):
    """Opens, answers, closes; chases and escalates as `Steering` says. `changed` is told every record as written, after it was written.

    Every method raises LockTimeout, LedgerUnreadable or LedgerUnwritable as `Ledger.transact` does; then nothing
    was decided.
    """

    def __init__(self, ledger: Ledger, clock: Clock, sla: timedelta, changed: Changed) -> None:
        self._ledger = ledger
        self._clock = clock
        self._sla = sla
        self._changed = changed

    async def open(self, issue: int, ask: Ask) -> Opened:
        """Write down a question. Idempotent by producer, session, reply token and words."""
        return (await self.open_all(issue, [ask]))[0]

    async def open_all(self, issue: int, asks: Sequence[Ask]) -> list[Opened]:
        """Write down questions of one issue in their order, in one write: all of them or none."""
        return await self._transact(issue, lambda book: [self._open(book, ask) for ask in asks])

    def _open(self, book: Book, ask: Ask) -> Opened:
        records = book.records
        for record in records:
            if is_known(record, ask):
                return Opened(record, "duplicate")
        now = self._clock.now()
        for record in records:
            if is_same_matter(record, ask):
                return Opened(book.put(followed_up(record, ask, now, self._sla)), "follow_up")
        return Opened(book.put(opened(book.issue, book.next_seq(), ask, now, self._sla)), "new")

    async def answer(
        self,
        clarification_id: str,
        read: Callable[[Clarification], Answer],
        decider: Decider,
        at: datetime,
        round: int | None = None,  # noqa: A002 - the protocol's word
    ) -> Clarification:
        """Record an answer given at `at`; the first valid one in the order of the ledger wins.

        Args:
            clarification_id: which one.
            read: makes the answer fit the question as it stands under the lock; may raise AnswerRejected.
            decider: who answers.
            at: when the person answered.
            round: the round that the person saw, where known.

        Raises:
            NotFound, AnswerRejected: as they say.
            AlreadyAnswered, Closed, Superseded: with the record as it is.
        """
        issue, _ = parse_id(clarification_id)

        def decide(book: Book) -> Clarification | NotOpen:
            record = book.get(clarification_id)
            if has_expired(record, at):
                return Closed(book.put(abandoned(record, "expired", self._clock.now())))
            if round is not None and round < record.round and record.is_open:
                return Superseded(record)
            answer = read(record) if record.is_open else Answer("", "")
            return book.put(answered(record, answer, decider, at))

        outcome = await self._transact(issue, decide)
        if isinstance(outcome, NotOpen):
            raise outcome
        return outcome

    async def expire(self, clarification_id: str) -> None:
        """Abandon a clarification whose time has run out; anything else is left as it is."""
        issue, _ = parse_id(clarification_id)

        def decide(book: Book) -> None:
            record, now = book.get(clarification_id), self._clock.now()
            if has_expired(record, now):
                book.put(abandoned(record, "expired", now))

        await self._transact(issue, decide)

    async def adopt(self, clarification_id: str) -> None:
        """Take over an answer that another implementation wrote into the ledger, if the producer can use it."""
        issue, _ = parse_id(clarification_id)

        def decide(book: Book) -> None:
            record = book.get(clarification_id)
            entry = decided_elsewhere(record)
            if not is_adoptable(record) or entry is None:
                return
            try:
                book.put(adopted(record, from_text(record.asked, entry.body), entry))
            except AnswerRejected:
                answered = entry.type == "answer"
                book.put(reopened(record, self._clock.now(), self._sla) if answered else not_usable(record))

        await self._transact(issue, decide)

    async def session_went_on(self, issue: int, news: SessionNews) -> None:
        """Draw the consequences of a session's event for its clarifications (design: Status)."""

        def decide(book: Book) -> None:
            mine = [r for r in book.records if _of_session(r, news)]
            for record in after_event(mine, news, self._clock.now()):
                book.put(record)

        await self._transact(issue, decide)

    async def settle_reply(
        self,
        clarification_id: str,
        token: str,
        state: ReplyState,
        note: str | None = None,
        resolve: bool = False,  # noqa: FBT001, FBT002
    ) -> None:
        """Write down where the reply stands. With `resolve` (proof of acceptance) the clarification is resolved.

        A reply that was confirmed stays so; a token of an earlier round changes nothing.
        """
        issue, _ = parse_id(clarification_id)

        def decide(book: Book) -> None:
            record = book.get(clarification_id)
            asked = record.asked
            if asked.reply_token == token and asked.reply not in {"confirmed", state}:
                book.put(_settled(record, state, note, self._clock.now(), resolve=resolve))

        await self._transact(issue, decide)

    async def _transact(self, issue: int, decide: Callable[[Book], _T]) -> _T:
        written: list[Clarification] = []

        def run(book: Book) -> _T:
            result = decide(book)
            written.extend(book.changed)
            return result

        def tell() -> None:
            for record in written:
                self._changed(record)

        # Also if the caller does not wait for the end any more: it was decided, so it has to be shown.
        return await self._ledger.transact(issue, run, written=tell)


def concerns(news: SessionNews, known: Summary) -> bool:
    """Whether news of its session may change a clarification: `after_event` says how, under the lock (pure)."""
    voids = news.left_awaiting or news.type in aaep.SESSION_ENDS
    return known.reply in _UNPROVEN or (known.is_open and voids)


def after_event(records: list[Clarification], news: SessionNews, now: datetime) -> list[Clarification]:
    """The records of one session that an event changes (pure).

    An answered one is confirmed by anything that follows its answer. An open one is void when the session ended, or
    when it left `awaiting_input` and exactly one was open at that time: with several nobody can tell which. An event
    that an answer explains voids nothing: the agent went on with that answer, and may still wait for another.
    """
    changed = [
        _went_on(record, news, now)
        for record in records
        if record.asked.reply in _UNPROVEN and record.asked.went_on_at is None and _follows(record, news)
    ]
    waiting = [record for record in records if record.is_open and _asked_before(record, news)]
    if news.type in aaep.SESSION_ENDS:
        reason: CloseReason = "cancelled" if news.type == aaep.CANCELLED else "session ended"
        changed += [abandoned(record, reason, now) for record in waiting]
    elif (
        news.left_awaiting
        and len(waiting) == 1
        and not changed
        and not any(_answered_since(r, news) for r in records)
    ):
        changed.append(abandoned(waiting[0], "requester moved on", now))
    return changed


def _went_on(record: Clarification, news: SessionNews, now: datetime) -> Clarification:
    """The session went on. While the outcome of sending is open, that is only noted: it may have timed out."""
    noted = went_on(record, news.at)
    return noted if noted.asked.reply == "sending" else _settled(noted, "delivered", None, now, resolve=True)


def _settled(
    record: Clarification, state: ReplyState, note: str | None, now: datetime, *, resolve: bool
) -> Clarification:
    """`delivered` or `unconfirmed`, with the session seen going on since, is `confirmed`."""
    proven = record.asked.went_on_at is not None and state in {"delivered", "unconfirmed"}
    settled = reply_settled(record, "confirmed" if proven else state, None if proven else note)
    return resolved(settled, now) if (resolve or proven) and settled.status == "answered" else settled


def _follows(record: Clarification, news: SessionNews) -> bool:
    answered_at = record.asked.answered_at
    return answered_at is not None and news.at >= answered_at


def _answered_since(record: Clarification, news: SessionNews) -> bool:
    answered_at = record.asked.answered_at
    return answered_at is not None and answered_at > news.at and _asked_before(record, news)


def _asked_before(record: Clarification, news: SessionNews) -> bool:
    """By the producer's own clock, which both times are of."""
    asked_at = record.asked.asked_at
    return asked_at is None or asked_at <= news.sent


def _of_session(record: Clarification, news: SessionNews) -> bool:
    return record.asked.producer == news.producer and record.asked.session_id == news.session_id
