"""Makes and writes every decision about a clarification, under its lock. Only this module changes records."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Literal, TypeVar

from core.answers import hint
from core.approvals import accepted, check_seen, why_refused, with_refusal
from core.clarification import (
    DONE,
    US,
    Answer,
    Ask,
    Clarification,
    Decider,
    Holder,
    Refusal,
    ReplyState,
    Why,
    agent_key,
    has_expired,
    parse_id,
)
from core.clock import Clock
from core.errors import (
    AnswerRejected,
    BadInput,
    ClarifyError,
    ConsentRefused,
    LedgerUnwritable,
    LockTimeout,
    Tampered,
    TooLong,
)
from core.escalation import escalation_words
from core.ledger import LOCK_TIMEOUT, Asking, Ledger, OfIssue, OfRecord, OfSession, Reach
from core.matching import (
    SessionNews,
    after_event,
    followed_up,
    is_duplicate,
    is_follow_up,
    is_same,
    is_with_people,
    rounds_before,
    settled,
)
from core.monitor import DueCall, due_call
from core.records import PLAUSIBLE, Book, agrees, is_forgotten
from core.transitions import (
    AlreadyAnswered,
    Closed,
    MaxRoundsExceeded,
    NotAnswered,
    Superseded,
    abandoned,
    amended,
    answered,
    check_open,
    claimed,
    escalated,
    handed,
    held_back,
    left,
    nudged,
    opened,
    released,
    renewed,
    reply_settled,
    resolved_by_hand,
    taken,
    taken_over,
)

_log = logging.getLogger("clarify.router")
_T = TypeVar("_T")
_RETRY = 5.0  # seconds
Changed = Callable[[Clarification], None]
BODY_LIMIT = 2000  # characters of what agents say to each other
_Change = Callable[[Clarification], Clarification]


@dataclass(frozen=True, slots=True)
class Opened:
    """A recorded question. `how`: as a new clarification, as the next round of one, or a duplicate that changed nothing."""

    record: Clarification
    how: Literal["new", "follow_up", "duplicate"]


@dataclass(eq=False, repr=False)
class Router:
    """Opens, answers, reminds, escalates, closes. Calls `changed(record)` after each write.

    `sla`: the time to the first reminder. `patience`: seconds to wait for a locked ledger before LockTimeout.
    `may_be_answered`: whether a clarification may have an answer that the bot has not read yet; until that is known it does
    not expire. `shown_whole`: whether its card shows the whole action; only then a typed accept counts.

    Every method can raise LockTimeout, LedgerUnreadable or LedgerUnwritable (see `Ledger.transact`); then nothing has
    changed. `answer`, `escalate`, `take`, `hand`, `resolve` and `abandon` raise NotFound, or AlreadyAnswered or Closed
    with the current record. If the record has expired, they raise Closed; they also abandon it, unless it may have an
    answer that the bot has not read yet.
    """

    ledger: Ledger
    clock: Clock
    sla: timedelta
    changed: Changed
    patience: float = LOCK_TIMEOUT
    may_be_answered: Callable[[str], bool] = field(default=lambda _: False, kw_only=True)
    shown_whole: Callable[[Clarification], bool] = field(default=lambda _: True, kw_only=True)
    # By id and round; bounded like the records themselves.
    _refused: dict[tuple[str, int], tuple[Refusal, ...]] = field(default_factory=dict, init=False)
    _has_refused: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    _writing: asyncio.Lock = field(default_factory=asyncio.Lock, init=False)

    async def open(
        self,
        issue: int | Callable[[Any], int],
        ask: Ask,
        along: Callable[[Any, Opened], None] | None = None,
    ) -> Opened:
        """Records a question. Idempotent by producer, session, reply token and text.

        `issue` may be a function of the storage's transaction (see `Asking`), and `along` writes more in it.

        Raises:
            MaxRoundsExceeded: a follow-up to a clarification that was escalated because its rounds were used up.
        """
        return await self._transact(Asking(issue, [ask]), lambda book: self._open(book, ask), along)

    async def open_all(self, issue: int, asks: Sequence[Ask]) -> list[Opened]:
        """Records the questions of one issue, in this order, in one write: all of them or none."""
        return await self._transact(Asking(issue, asks), lambda book: [self._open(book, ask) for ask in asks])

    def _open(self, book: Book, ask: Ask) -> Opened:
        records = book.records
        for record in records:
            if is_duplicate(record, ask):
                return Opened(record, "duplicate")
        now = self.clock.now()
        for record in records:
            if is_follow_up(record, ask) and self._agrees(record):
                return Opened(book.put(followed_up(record, ask, now, self.sla)), "follow_up")
            if is_with_people(record, ask):
                raise MaxRoundsExceeded(record)
        fresh = opened(book.issue, book.next_seq(), ask, now, self.sla)
        if before := rounds_before(records, ask, fresh.max_rounds):
            words = escalation_words(fresh, "rounds exhausted", before)
            fresh = escalated(fresh, "rounds exhausted", words, now)
        return Opened(book.put(fresh), "new")

    async def take_in(self, record: Clarification) -> Clarification:
        """Records a clarification that another implementation of the protocol began, and returns it. If its number was given out
        before, or would leave no room for others, it gets the next one. Idempotent by who asked what when (`is_same`).
        """

        def decide(book: Book) -> Clarification:
            if record.id not in book.read and book.highest < parse_id(record.id)[1] <= PLAUSIBLE:
                return book.put(record)
            same = [each for each in book.records if is_same(each, record)]
            if same:
                return next((each for each in same if each.id == record.id), same[0])
            return book.put(record.model_copy(update={"id": f"CLR-{book.issue}-{book.next_seq():03d}"}))

        return await self._transact(OfIssue(record.issue_number), decide)

    async def follow_up(self, clarification_id: str, ask: Ask) -> Opened:
        """Records a follow-up as the next round of an answered clarification; after its last round, escalates it instead.
        Idempotent by the `event_id` of `ask`, if it has one.

        Raises:
            NotFound: no such record.
            NotAnswered: its question has no answer yet.
            Closed: it was resolved or abandoned.
            MaxRoundsExceeded: it was escalated before because its rounds were used up.
            BadInput: another agent asked it, or it came from a producer's event.
        """

        def decide(book: Book, record: Clarification) -> Opened:
            if is_duplicate(record, ask):
                return Opened(record, "duplicate")
            check_follow_up(record, ask)
            self._check_agrees(record)
            return Opened(book.put(followed_up(record, ask, self.clock.now(), self.sla)), "follow_up")

        return await self._decide(clarification_id, decide)

    async def answer(
        self,
        clarification_id: str,
        read: Callable[[Clarification], Answer],
        decider: Decider,
        at: datetime,
        round: int | None = None,  # noqa: A002 - the protocol's word
        *,
        version: str | None = None,
    ) -> Clarification:
        """Records an answer given at `at`. The first valid one wins. If several people must accept an action, the record
        stays open until the last accept.

        Args:
            clarification_id: which one.
            read: returns the answer to the question as it is under the lock; may raise AnswerRejected.
            decider: who answers.
            at: when the person answered.
            round: the round that the person saw, if known.
            version: the version of the arguments that the person saw; None: they typed (`approvals.check_seen`).

        Raises:
            NotFound, AnswerRejected, ConsentRefused, CountsOnce, NotToldApart, NotSeen, TooLong: see `core.errors`.
            AlreadyAnswered, Closed, Superseded, ArgumentsChanged: with the current record.
        """
        seen: Clarification | None = None

        def change(record: Clarification) -> Clarification:
            nonlocal seen
            seen = record
            check_round(record, round)
            check_open(record)
            answer = read(record)
            check_consent(record, answer, decider)
            check_length(record, answer.label)
            if record.asked.is_confirmation and answer.response == "accept":
                shown = version is not None or self.shown_whole(record)
                check_seen(record, version, shown_whole=shown)
                return accepted(record, answer, decider, at)
            return answered(record, answer, decider, at)

        try:
            return await self._change_record(clarification_id, change, at)
        except ClarifyError as error:
            if seen is not None and (why := why_refused(error, decider)) is not None:
                self.note_refusal(seen, decider, why, "accept")
            raise

    def note_refusal(
        self, record: Clarification, decider: Decider, why: str, response: str | None = None
    ) -> None:
        """Notes that someone tried to decide about an action but may not. `write_refusals` writes it later, so that this person
        is told at once. `response`: what they tried, if known.
        """
        if not (record.is_open and record.asked.is_confirmation):
            return
        now = self.clock.now()
        attempt = Refusal(
            team=decider.team,
            user=decider.user,
            by=decider.decided_by,
            surface=decider.surface,
            why=why,
            response=response,
            first=now,
            last=now,
        )
        of = record.id, record.round
        self._refused[of] = with_refusal(self._refused.get(of, ()), attempt)
        self._has_refused.set()

    async def run(self) -> None:
        """Writes refusals as they come; runs until cancelled."""
        while True:
            await self._has_refused.wait()
            # Not cancelled in the middle: it would be unknown what is written.
            if not await asyncio.shield(self.write_refusals()):
                await self.clock.sleep(_RETRY)
                self._has_refused.set()

    async def write_refusals(self) -> bool:
        """Writes the noted refusals, and returns False if some could not be written now. They are written even if the question has
        ended since, unless it was forgotten or has a new round.
        """
        async with self._writing:
            self._has_refused.clear()
            for of in list(self._refused):
                attempts = self._refused.pop(of)
                try:
                    await self._decide(of[0], partial(_put_refusals, of[1], attempts))
                except (LockTimeout, LedgerUnwritable) as error:
                    _log.warning("%s: refusals not recorded yet, will retry: %s", of[0], error)
                    for each in self._refused.get(of, ()):
                        attempts = with_refusal(attempts, each)
                    self._refused[of] = attempts
                except ClarifyError as error:
                    _log.error("%s: refusals not recorded: %s", of[0], error)
            return not self._refused

    async def apply_due(self, clarification_id: str) -> DueCall | Literal["held"] | None:
        """Reminds, escalates or expires a clarification if that is due. Returns what it did, or None; "held": it would
        expire, but may have an answer that the bot has not read yet.

        Raises:
            NotFound: no such record.
        """

        def decide(book: Book, record: Clarification) -> DueCall | Literal["held"] | None:
            now = self.clock.now()
            call = due_call(record, self.sla, now)
            if call is not None and call.kind == "expire" and self.may_be_answered(clarification_id):
                return "held"
            if call is not None:
                book.put(after_due_call(record, call, now, self.sla))
            return call

        return await self._decide(clarification_id, decide)

    async def escalate(
        self,
        clarification_id: str,
        why: Why,
        words: str | None = None,
        by: Decider | None = None,
        only: Callable[[Clarification], bool] | None = None,
    ) -> Clarification:
        """Escalates to on-call. Returns the record unchanged if it is escalated already.

        Args:
            clarification_id: which one.
            why: the reason, for the record.
            words: plain text for its thread; None: reason, topic, positions and options.
            by: who escalated it; None: the bot.
            only: whether the reason still holds, checked under the lock; if not, nothing changes.
        """

        def change(record: Clarification) -> Clarification:
            check_open(record)
            if record.status == "escalated" or (only is not None and not only(record)):
                return record
            text = words if words is not None else escalation_words(record, why)
            return escalated(record, why, text, self.clock.now(), by.decided_by if by else US)

        return await self._change_record(clarification_id, change)

    async def take(self, clarification_id: str, holder: Holder) -> Clarification:
        """Records who claimed it."""
        return await self._change_record(clarification_id, lambda record: taken(record, holder))

    async def take_over(self, clarification_id: str, holder: Holder) -> Clarification:
        """Records who took it over; the previous holder gets a message."""
        return await self._change_record(clarification_id, lambda record: taken_over(record, holder))

    async def claim(self, clarification_id: str, holder: Holder) -> Clarification:
        """Records who claimed it, unless someone holds it already."""
        return await self._change_record(clarification_id, lambda record: claimed(record, holder))

    async def release(self, clarification_id: str, user: str) -> Clarification:
        """Records that `user` released it. Changes nothing if they do not hold it."""
        return await self._change_record(clarification_id, lambda record: released(record, user))

    async def left(self, clarification_id: str, user: str) -> bool:
        """Records that `user`, who held it, is gone. Returns False and changes nothing if they do not hold it."""
        held = False

        def change(record: Clarification) -> Clarification:
            nonlocal held
            after = left(record, user)
            held = after is not record
            return after

        await self._change_record(clarification_id, change)
        return held

    async def hand(self, clarification_id: str, holder: Holder) -> Clarification:
        """Records whom it was handed to; they have not claimed it yet."""
        return await self._change_record(clarification_id, lambda record: handed(record, holder))

    async def resolve(
        self,
        clarification_id: str,
        read: Callable[[Clarification], Answer],
        text: str,
        decider: Decider,
        at: datetime,
        *,
        round: int | None = None,  # noqa: A002 - the protocol's word
    ) -> Clarification:
        """Resolves a clarification with `text`, given at `at`.

        For an open one, `text` is also the answer. If an agent waits for it, this only answers the clarification; it is
        resolved when the agent has the answer.

        Args:
            clarification_id: which one.
            read: returns the answer to an open question, under the lock; may raise AnswerRejected.
            text: the decision, for the thread.
            decider: who decided.
            at: when.
            round: the round that is meant, if known.

        Raises:
            Superseded: it has another round by now.
            AnswerRejected: from `read`, or the question is an approval, which people accept or reject.
            ConsentRefused: `text` accepts a confirmation, which is not possible here.
            TooLong: see `check_length`.
        """

        def change(record: Clarification) -> Clarification:
            check_round(record, round)
            check_length(record, text, "answer" if record.is_open else "resolution")
            if record.is_open:
                if record.asked.direct is not None and record.asked.is_confirmation:
                    raise AnswerRejected(hint(record.asked))
                answer = read(record)
                if record.asked.is_confirmation and answer.response == "accept":
                    raise ConsentRefused(record.id)
                check_length(record, answer.label)
                after = answered(record, answer, decider, at)
                return after if after.delivery.reply else resolved_by_hand(after, text, decider, at)
            if record.status != "answered":
                check_open(record)
            return resolved_by_hand(record, text, decider, at)

        return await self._change_record(clarification_id, change, at)

    async def abandon(self, clarification_id: str, decider: Decider, words: str = "") -> Clarification:
        """Closes it without an answer, by hand. `words`: the reason, for the thread."""

        def change(record: Clarification) -> Clarification:
            check_open(record)
            return abandoned(record, "by hand", self.clock.now(), decider.decided_by, words)

        return await self._change_record(clarification_id, change)

    async def withdraw(self, clarification_id: str, words: str = "") -> Clarification:
        """Closes it because its agent no longer needs an answer. Returns it unchanged if it was closed before. `words`:
        the reason, for the thread.

        Raises:
            NotFound: no such record. AlreadyAnswered: an answer came first.
        """

        def decide(book: Book, record: Clarification) -> Clarification:
            if not record.is_open and record.current.closed is None:
                raise AlreadyAnswered(record)
            if not record.is_open:
                return record
            now = self.clock.now()
            return book.put(abandoned(record, "withdrawn", now, record.from_, words))

        return await self._decide(clarification_id, decide)

    async def hold_back(self, clarification_id: str, reason: str) -> None:
        """Records that people are asked instead of the target, for `reason`, if it is open."""

        def decide(book: Book, record: Clarification) -> None:
            if record.is_open and record.asked.held_back is None:
                book.put(held_back(record, reason))

        await self._decide(clarification_id, decide)

    async def too_few(self, clarification_id: str, may_answer: int) -> None:
        """Records that fewer people may answer (`may_answer`) than must accept, and escalates it if the question allows
        that; or that enough may answer again.
        """

        def decide(book: Book, record: Clarification) -> None:
            asked = record.asked
            found = may_answer if may_answer < asked.needed else None
            if not record.is_open or record.consent.too_few == found:
                return
            after = renewed(amended(record, too_few=found))
            if found is not None and record.escalates and record.status != "escalated":
                words = escalation_words(after, "too few people")
                after = escalated(after, "too few people", words, self.clock.now())
            book.put(after)

        await self._decide(clarification_id, decide)

    async def receipt(self, clarification_id: str) -> Clarification:
        """Returns a record with the missing receipt of its round, which ended in another process or while the key could not be
        read.
        """

        def decide(book: Book, record: Clarification) -> Clarification:
            is_owed = book.owes_receipt(record) and self._agrees(record)
            return book.put(record, owed=True) if is_owed else record

        return await self._decide(clarification_id, decide)

    async def session_went_on(self, news: SessionNews) -> None:
        """Applies a session's event to its clarifications (see `after_event`)."""

        def decide(book: Book) -> None:
            for record in after_event(book.records, news, self.clock.now()):
                book.put(record)

        await self._transact(OfSession(news.producer, news.session_id, news.at), decide)

    async def settle_reply(
        self,
        clarification_id: str,
        token: str,
        state: ReplyState,
        note: str | None = None,
        *,
        resolve: bool = False,
    ) -> bool:
        """Records the state of the reply. `resolve`: the agent has accepted it, so the clarification is resolved.

        Changes nothing, and returns False, if the reply is confirmed, or if `token` is not that of the current reply.
        """

        def decide(book: Book, record: Clarification) -> bool:
            asked = record.asked
            is_news = (
                record.delivery.reply is not None
                and asked.reply_token == token
                and record.delivery.reply not in {"confirmed", state}
            )
            if is_news:
                book.put(settled(record, state, note, self.clock.now(), resolve=resolve))
            return is_news

        return await self._decide(clarification_id, decide)

    async def note_reply(self, clarification_id: str, token: str, note: str) -> None:
        """Records why a reply that is still being sent has not arrived."""

        def decide(book: Book, record: Clarification) -> None:
            asked = record.asked
            if (
                record.delivery.reply == "sending"
                and asked.reply_token == token
                and record.delivery.reply_note != note
            ):
                book.put(reply_settled(record, "sending", note))

        await self._decide(clarification_id, decide)

    async def _change_record(
        self, clarification_id: str, change: _Change, at: datetime | None = None
    ) -> Clarification:
        """Changes one record under the lock.

        Raises:
            Tampered: see `_check_agrees`. Closed: it had expired at `at` (None: now).
        """

        def decide(book: Book, record: Clarification) -> Clarification | Closed:
            self._check_agrees(record)
            now = self.clock.now()
            if has_expired(record, at or now):
                # Stays open as long as an answer given in time may come to light.
                stays_open = self.may_be_answered(record.id)
                return Closed(record if stays_open else book.put(abandoned(record, "expired", now)))
            after = change(record)
            return record if after is record else book.put(after)

        outcome = await self._decide(clarification_id, decide)
        if isinstance(outcome, Closed):
            raise outcome
        return outcome

    async def _decide(self, clarification_id: str, decide: Callable[[Book, Clarification], _T]) -> _T:
        """Runs `decide` on one record under the lock."""
        parse_id(clarification_id)
        return await self._transact(
            OfRecord(clarification_id), lambda book: decide(book, book.get(clarification_id))
        )

    def _agrees(self, record: Clarification) -> bool:
        return self.ledger.receipts is None or agrees(record, self.ledger.receipts)

    def _check_agrees(self, record: Clarification) -> None:
        """Raises Tampered if a record does not agree with its receipts."""
        if not self._agrees(record):
            raise Tampered(record.id)

    async def _transact(
        self,
        reach: Reach,
        decide: Callable[[Book], _T],
        along: Callable[[Any, _T], None] | None = None,
    ) -> _T:
        written: list[Clarification] = []

        def run(book: Book) -> _T:
            result = decide(book)
            written[:] = book.changed
            return result

        def report() -> None:
            for record in written:
                self.changed(record)

        # `report` runs even if the caller is cancelled: what is written must be shown.
        return await self.ledger.transact(reach, run, self.patience, report, along)


def _put_refusals(number: int, attempts: tuple[Refusal, ...], book: Book, record: Clarification) -> None:
    if record.round != number or not record.rounds or is_forgotten(record):
        return
    refusals = record.consent.refusals or ()
    for each in attempts:
        refusals = with_refusal(refusals, each)
    book.put(renewed(amended(record, refusals=refusals)))


def check_follow_up(record: Clarification, ask: Ask) -> None:
    """Raises unless `ask` can be the next round of `record` (see `Router.follow_up`). Pure."""
    if record.asked.reply_token is not None:
        raise BadInput(f"{record.id} came from a producer's event. Only that producer can ask a follow-up.")
    if agent_key(ask.agent_id) != agent_key(record.from_):
        raise BadInput(f"{record.id} was asked by another agent. Only that agent can ask a follow-up.")
    if record.status in DONE:
        raise Closed(record)
    if is_with_people(record, ask):
        raise MaxRoundsExceeded(record)
    if record.status != "answered":
        raise NotAnswered(record)


def check_round(record: Clarification, round: int | None) -> None:  # noqa: A002 - the protocol's word
    """Raises Superseded if `record` is open and has reached a later round than the one that is meant."""
    if round is not None and round < record.round and record.is_open:
        raise Superseded(record)


def check_length(record: Clarification, text: str, what: str = "answer") -> None:
    """Checks the length of a text that ends a round of `record` (guard 6 of the architecture's §7; pure).

    Raises:
        TooLong: over 2000 characters between agents. Answers to a producer's event have AAEP's limits instead.
    """
    if record.asked.reply_token is None and len(text) > BODY_LIMIT:
        raise TooLong(what, len(text), BODY_LIMIT)


def check_consent(record: Clarification, answer: Answer, decider: Decider) -> None:
    """Checks that `decider` may give this answer (pure).

    Raises:
        ConsentRefused: it accepts a confirmation, and `decider` may not (see `Decider.may_accept`).
    """
    if record.asked.is_confirmation and answer.response == "accept" and not decider.may_accept:
        raise ConsentRefused(record.id)


def after_due_call(record: Clarification, call: DueCall, now: datetime, sla: timedelta) -> Clarification:
    """Returns the record after the due call, at `now` (pure)."""
    if call.kind == "expire":
        return abandoned(record, "expired", now)
    if call.kind == "nudge":
        return nudged(record, now, sla)
    if call.kind == "unclaimed":
        return reply_settled(record, "unclaimed", None)
    return escalated(record, "stale", escalation_words(record, "stale"), now)
