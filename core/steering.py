"""What is done about a clarification that gets no answer by itself: chase it, escalate it, take it, close it by hand."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import TypeVar

from core.book import Book
from core.clarification import (
    US,
    Answer,
    Clarification,
    Closed,
    Decider,
    Holder,
    NotOpen,
    Why,
    abandoned,
    answered,
    check_open,
    escalated,
    handed,
    has_expired,
    nudged,
    parse_id,
    resolved_by_hand,
    taken,
)
from core.clock import Clock
from core.errors import ConsentRefused, TooLong
from core.escalation import escalation_words
from core.monitor import Call, due_call

BODY_LIMIT = 2000
_T = TypeVar("_T")
_Change = Callable[[Clarification], Clarification]


class Steering(ABC):
    """The part of the router that keeps questions from ageing unseen.

    Every method but `attend` raises, as `Router.answer` does, NotFound, or AlreadyAnswered or Closed with the record
    as it is; one whose time has run out is abandoned, unless it may have been answered, and told as Closed. All raise what `Ledger.transact` raises.
    """

    _clock: Clock
    _sla: timedelta
    _may_be_answered: Callable[[str], bool]

    @abstractmethod
    async def _transact(self, issue: int, decide: Callable[[Book], _T]) -> _T: ...

    async def attend(self, clarification_id: str) -> Call | None:
        """Do what time has made due, as it is under the lock; returns what was done, None: nothing was due.

        Raises:
            NotFound: no such record.
        """
        issue, _ = parse_id(clarification_id)

        def decide(book: Book) -> Call | None:
            record, now = book.get(clarification_id), self._clock.now()
            call = due_call(record, self._sla, now)
            if call is not None and call.kind == "expire" and self._may_be_answered(clarification_id):
                return None
            if call is not None:
                book.put(done(record, call, now, self._sla))
            return call

        return await self._transact(issue, decide)

    async def escalate(
        self,
        clarification_id: str,
        why: Why,
        words: str | None = None,
        by: Decider | None = None,
        only: Callable[[Clarification], bool] | None = None,
    ) -> Clarification:
        """Pass it on to the person on call. One that is escalated already is returned as it is.

        Args:
            clarification_id: which one.
            why: the reason, for the record.
            words: plain text for its thread; None: reason, topic, positions and options.
            by: who did it; None: we.
            only: asked under the lock whether the reason still holds; if not, the record is returned as it is.
        """

        def change(record: Clarification) -> Clarification:
            check_open(record)
            if record.status == "escalated" or (only is not None and not only(record)):
                return record
            said = words if words is not None else escalation_words(record, why)
            return escalated(record, why, said, self._clock.now(), by.decided_by if by else US)

        return await self._steer(clarification_id, change)

    async def take(self, clarification_id: str, holder: Holder) -> Clarification:
        """Somebody has it in hand."""
        return await self._steer(clarification_id, lambda record: taken(record, holder))

    async def hand(self, clarification_id: str, holder: Holder) -> Clarification:
        """Offer it to somebody, who has yet to take it."""
        return await self._steer(clarification_id, lambda record: handed(record, holder))

    async def resolve(
        self,
        clarification_id: str,
        read: Callable[[Clarification], Answer],
        text: str,
        decider: Decider,
        at: datetime,
    ) -> Clarification:
        """Close it with `text`, given at `at`.

        An answered one is resolved. For an open one `text` is the answer too: where a producer waits for it, it is
        answered as by `Router.answer`, and resolved when that was taken; else it is resolved at once.

        Args:
            clarification_id: which one.
            read: makes the answer of an open one fit its question, under the lock; may raise AnswerRejected.
            text: what was decided, for the thread.
            decider: who decided.
            at: when.

        Raises:
            AnswerRejected: as `read` says; ConsentRefused: nobody accepts a confirmation in this way.
            TooLong: between agents, as `check_length` says.
        """

        def change(record: Clarification) -> Clarification:
            check_length(record, text, "answer" if record.is_open else "resolution")
            if record.is_open:
                answer = read(record)
                if record.asked.is_confirmation and answer.response == "accept":
                    raise ConsentRefused(record.id)
                check_length(record, answer.label)
                after = answered(record, answer, decider, at)
                return after if after.asked.reply else resolved_by_hand(after, text, decider, at)
            if record.status != "answered":
                check_open(record)
            return resolved_by_hand(record, text, decider, at)

        return await self._steer(clarification_id, change, at)

    async def abandon(self, clarification_id: str, decider: Decider, words: str = "") -> Clarification:
        """Close it without an answer, by hand; `words` say why, for the thread."""

        def change(record: Clarification) -> Clarification:
            check_open(record)
            return abandoned(record, "by hand", self._clock.now(), decider.decided_by, words)

        return await self._steer(clarification_id, change)

    async def _steer(
        self, clarification_id: str, change: _Change, at: datetime | None = None
    ) -> Clarification:
        """Change one record under the lock, unless its time had run out at `at` (None: now)."""
        issue, _ = parse_id(clarification_id)

        def decide(book: Book) -> Clarification | NotOpen:
            record, now = book.get(clarification_id), self._clock.now()
            if has_expired(record, at or now):
                return self._expired(book, record)
            after = change(record)
            if after is record:
                return record
            is_answered = record.asked.response is None and after.asked.response is not None
            return book.put(book.sealed(after) if is_answered else after)

        outcome = await self._transact(issue, decide)
        if isinstance(outcome, NotOpen):
            raise outcome
        return outcome

    def _expired(self, book: Book, record: Clarification) -> Closed:
        """What is told of one whose time has run out; it is written down if nobody can have answered it in time."""
        if self._may_be_answered(record.id):
            return Closed(record)
        return Closed(book.put(abandoned(record, "expired", self._clock.now())))


def check_length(record: Clarification, text: str, what: str = "answer") -> None:
    """Does nothing for words that may end a round of `record` (guard 6 of the architecture's §7; pure).

    Raises:
        TooLong: over 2000 characters between agents. What answers a producer's event has AAEP's limits instead.
    """
    if record.asked.reply_token is None and len(text) > BODY_LIMIT:
        raise TooLong(what, len(text), BODY_LIMIT)


def check_consent(record: Clarification, answer: Answer, decider: Decider) -> None:
    """Does nothing for an answer that `decider` may give (pure).

    Raises:
        ConsentRefused: it accepts a confirmation, which people in Slack may, and who is let by the configuration.
    """
    if record.asked.is_confirmation and answer.response == "accept" and not decider.may_accept:
        raise ConsentRefused(record.id)


def done(record: Clarification, call: Call, now: datetime, sla: timedelta) -> Clarification:
    """The record after what was due was done, at `now` (pure)."""
    if call.kind == "expire":
        return abandoned(record, "expired", now)
    if call.kind == "nudge":
        return nudged(record, now, sla)
    return escalated(record, "stale", escalation_words(record, "stale"), now)
