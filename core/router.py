"""The only writer of ledgers: every decision about a clarification goes through here, under its issue's lock."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal, TypeVar

from core.answers import hint
from core.approvals import accepted, check_seen
from core.clarification import (
    DONE,
    US,
    AlreadyAnswered,
    Answer,
    Ask,
    Clarification,
    Closed,
    Decider,
    Holder,
    MaxRoundsExceeded,
    NotAnswered,
    ReplyState,
    Superseded,
    Why,
    abandoned,
    agent_key,
    answered,
    check_open,
    claimed,
    escalated,
    handed,
    has_expired,
    held_back,
    let_go,
    nudged,
    opened,
    parse_id,
    renewed,
    reply_settled,
    resolved_by_hand,
    taken,
    taken_over,
)
from core.clock import Clock
from core.errors import AnswerRejected, BadInput, ConsentRefused, LedgerUnwritable, TooLong
from core.escalation import escalation_words
from core.ledger import LOCK_TIMEOUT, Ledger
from core.matching import (
    SessionNews,
    after_event,
    after_foreign_answer,
    followed_up,
    foreign_answer,
    is_duplicate,
    is_follow_up,
    is_misnamed,
    is_with_people,
    of_session,
    renamed,
    rounds_before,
    settled,
    tampered,
)
from core.monitor import DueCall, due_call
from core.records import Book, is_unsettled

_T = TypeVar("_T")
Changed = Callable[[Clarification], None]
BODY_LIMIT = 2000  # characters of what agents say to each other
_Change = Callable[[Clarification], Clarification]


@dataclass(frozen=True, slots=True)
class Opened:
    """How a question was recorded: as a new clarification, as the next round of one, or not again, as a duplicate."""

    record: Clarification
    how: Literal["new", "follow_up", "duplicate"]


class Router:
    """Opens, answers, reminds, escalates, closes. Calls `changed(record)` after each write.

    Every method raises LockTimeout, LedgerUnreadable or LedgerUnwritable as `FileLedger.transact` does; then nothing has
    changed. `answer`, `escalate`, `take`, `hand`, `resolve` and `abandon` raise NotFound, or AlreadyAnswered or Closed
    with the current record. A record whose time has run out raises Closed, and is abandoned unless it may have been
    answered.
    """

    def __init__(
        self,
        ledger: Ledger,
        clock: Clock,
        sla: timedelta,
        changed: Changed,
        patience: float = LOCK_TIMEOUT,
        *,
        may_be_answered: Callable[[str], bool] = lambda _: False,
        shown_whole: Callable[[Clarification], bool] = lambda _: True,
    ) -> None:
        """`patience`: how many seconds somebody else may hold a ledger before LockTimeout. `may_be_answered`: whether a
        clarification may have an answer that has not been read yet; it does not expire before that is known.
        `shown_whole`: whether people see all of an action without opening anything; only then a typed accept counts.
        """
        self._ledger = ledger
        self._clock = clock
        self._sla = sla
        self._changed = changed
        self._patience = patience
        self._may_be_answered = may_be_answered
        self._shown_whole = shown_whole

    async def open(self, issue: int, ask: Ask) -> Opened:
        """Write down a question. Idempotent by producer, session, reply token and words.

        Raises:
            MaxRoundsExceeded: an agent asks further about what people have, since its rounds were used up.
        """
        return (await self.open_all(issue, [ask]))[0]

    async def open_all(self, issue: int, asks: Sequence[Ask]) -> list[Opened]:
        """Write down questions of one issue in their order, in one write: all of them or none."""
        return await self._transact(issue, lambda book: [self._open(book, ask) for ask in asks])

    def _open(self, book: Book, ask: Ask) -> Opened:
        records = book.records
        for record in records:
            if is_duplicate(record, ask):
                return Opened(record, "duplicate")
        now = self._clock.now()
        for record in records:
            if is_follow_up(record, ask) and book.verify_question(record):
                return Opened(book.put(followed_up(record, ask, now, self._sla)), "follow_up")
            if is_with_people(record, ask):
                raise MaxRoundsExceeded(record)
        fresh = opened(book.issue, book.next_seq(), ask, now, self._sla)
        if before := rounds_before(records, ask, fresh.max_rounds):
            words = escalation_words(fresh, "rounds exhausted", before)
            fresh = escalated(fresh, "rounds exhausted", words, now)
        return Opened(book.put(fresh), "new")

    async def follow_up(self, clarification_id: str, ask: Ask) -> Opened:
        """Ask further about what was answered: its next round. After the last one it is escalated instead. Idempotent
        by the `event_id` of `ask`, if it has one.

        Raises:
            NotFound: no such record.
            NotAnswered: its question still waits for an answer.
            Closed: it was resolved or abandoned.
            MaxRoundsExceeded: its rounds were used up before, and people have it.
            BadInput: another agent asked it, or a producer, whose own events go on with it.
        """

        def decide(book: Book, record: Clarification) -> Opened:
            if is_duplicate(record, ask):
                return Opened(record, "duplicate")
            check_goes_on(record, ask)
            self._check_asked(book, record)
            return Opened(book.put(followed_up(record, ask, self._clock.now(), self._sla)), "follow_up")

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
        """Record an answer given at `at`; the first valid one in the order of the ledger wins. Where several people have
        to accept an action, the record stays open until the last of them did.

        Args:
            clarification_id: which one.
            read: makes the answer fit the question as it stands under the lock; may raise AnswerRejected.
            decider: who answers.
            at: when the person answered.
            round: the round that the person saw, where known.
            version: of the arguments that an accept is for; None: it was typed (`approvals.check_seen`).

        Raises:
            NotFound, AnswerRejected, ConsentRefused, CountsOnce, NotToldApart, NotSeen, TooLong: as they say.
            AlreadyAnswered, Closed, Superseded, ArgumentsChanged: with the record as it is.
        """

        def change(record: Clarification) -> Clarification:
            if round is not None and round < record.round and record.is_open:
                raise Superseded(record)
            check_open(record)
            answer = read(record)
            check_consent(record, answer, decider)
            check_length(record, answer.label)
            if record.asked.is_confirmation and answer.response == "accept":
                shown = version is not None or self._shown_whole(record)
                check_seen(record, version, shown_whole=shown)
                return accepted(record, answer, decider, at)
            return answered(record, answer, decider, at)

        return await self._change_record(clarification_id, change, at)

    async def apply_due(self, clarification_id: str) -> DueCall | Literal["held"] | None:
        """Carries out what is due now: remind, escalate, expire. Returns what was done; None: nothing was due; "held": it
        would expire, but may have an answer that has not been read yet.

        Raises:
            NotFound: no such record.
        """

        def decide(book: Book, record: Clarification) -> DueCall | Literal["held"] | None:
            now = self._clock.now()
            call = due_call(record, self._sla, now)
            if call is not None and call.kind == "expire" and self._may_be_answered(clarification_id):
                return "held"
            if call is not None:
                book.put(done(record, call, now, self._sla))
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

        return await self._change_record(clarification_id, change)

    async def take(self, clarification_id: str, holder: Holder) -> Clarification:
        """Somebody has it in hand."""
        return await self._change_record(clarification_id, lambda record: taken(record, holder))

    async def take_over(self, clarification_id: str, holder: Holder) -> Clarification:
        """Somebody has it in hand; whoever loses it is told."""
        return await self._change_record(clarification_id, lambda record: taken_over(record, holder))

    async def claim(self, clarification_id: str, holder: Holder) -> Clarification:
        """Somebody has it in hand, unless somebody else has; the first one wins."""
        return await self._change_record(clarification_id, lambda record: claimed(record, holder))

    async def let_go(self, clarification_id: str, user: str) -> Clarification:
        """Somebody does not have it in hand any more; nothing changes where another one has."""
        return await self._change_record(clarification_id, lambda record: let_go(record, user))

    async def hand(self, clarification_id: str, holder: Holder) -> Clarification:
        """Offer it to somebody, who has yet to take it."""
        return await self._change_record(clarification_id, lambda record: handed(record, holder))

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
            AnswerRejected: as `read` says, or an approval, which is accepted or rejected; ConsentRefused: nobody
                accepts a confirmation in this way.
            TooLong: between agents, as `check_length` says.
        """

        def change(record: Clarification) -> Clarification:
            check_length(record, text, "answer" if record.is_open else "resolution")
            if record.is_open:
                if record.asked.direct is not None and record.asked.is_confirmation:
                    raise AnswerRejected(hint(record.asked))
                answer = read(record)
                if record.asked.is_confirmation and answer.response == "accept":
                    raise ConsentRefused(record.id)
                check_length(record, answer.label)
                after = answered(record, answer, decider, at)
                return after if after.asked.reply else resolved_by_hand(after, text, decider, at)
            if record.status != "answered":
                check_open(record)
            return resolved_by_hand(record, text, decider, at)

        return await self._change_record(clarification_id, change, at)

    async def abandon(self, clarification_id: str, decider: Decider, words: str = "") -> Clarification:
        """Close it without an answer, by hand; `words` say why, for the thread."""

        def change(record: Clarification) -> Clarification:
            check_open(record)
            return abandoned(record, "by hand", self._clock.now(), decider.decided_by, words)

        return await self._change_record(clarification_id, change)

    async def withdraw(self, clarification_id: str, words: str = "") -> Clarification:
        """Its asker needs no answer any more; `words` say why. One that was closed before is returned as it is.

        Raises:
            NotFound: no such record. AlreadyAnswered: an answer came first.
        """

        def decide(book: Book, record: Clarification) -> Clarification:
            if not record.is_open and record.asked.closed is None:
                raise AlreadyAnswered(record)
            if not record.is_open:
                return record
            now = self._clock.now()
            return book.put(abandoned(record, "withdrawn", now, record.from_, words))

        return await self._decide(clarification_id, decide)

    async def hold_back(self, clarification_id: str, reason: str) -> None:
        """Have people see a question that its target may not be asked, while it is open."""

        def decide(book: Book, record: Clarification) -> None:
            if record.is_open and record.asked.held_back is None:
                book.put(held_back(record, reason))

        await self._decide(clarification_id, decide)

    async def too_few(self, clarification_id: str, may_answer: int) -> None:
        """Write down that only so many people may answer an action that more have to accept, and pass it on to the person
        on call, unless nobody is to be paged; or that enough may answer it now.
        """

        def decide(book: Book, record: Clarification) -> None:
            asked = record.asked
            found = may_answer if may_answer < asked.needed else None
            if not record.is_open or asked.too_few == found:
                return
            after = renewed(record, aaep=asked.model_copy(update={"too_few": found}))
            if found is not None and record.escalates and record.status != "escalated":
                words = escalation_words(after, "too few people")
                after = escalated(after, "too few people", words, self._clock.now())
            book.put(after)

        await self._decide(clarification_id, decide)

    async def adopt(self, clarification_id: str) -> None:
        """Take over an answer that another implementation wrote into the ledger, if the producer can use it and it is
        no consent; and take a person's name off an answer that did not come through us. A question that another
        program changed is closed, unless it was settled before: that stays as it is.
        """

        def decide(book: Book, record: Clarification) -> None:
            if book.seals.is_tampered(record):
                return  # it stays as it is, for people to look into
            if is_unsettled(record) and not (as_asked := book.verify_question(record)):
                if as_asked is not None:
                    book.put(tampered(record, self._clock.now()))
                return
            verified = book.seals.verify_answer(record)
            # Whether what was settled is ours can only be told with the key that sealed its question.
            is_known = is_unsettled(record) or book.seals.verify_question(record)
            if is_known and (foreign := foreign_answer(record, verified=verified)) is not None:
                book.put(after_foreign_answer(foreign, self._clock.now(), self._sla))
            elif is_misnamed(record, verified=verified):
                book.put(renamed(record))

        await self._decide(clarification_id, decide)

    async def trust(self, clarification_id: str) -> None:
        """Take the answer that a record holds for our own, where it is not marked: earlier releases marked none."""

        def decide(book: Book, record: Clarification) -> None:
            if record.asked.response is not None and record.asked.seal is None:
                book.put(book.seals.sealed(record))

        await self._decide(clarification_id, decide)

    async def trust_questions(self, issue: int) -> None:
        """Accept unsealed questions of an issue as ours, since earlier releases did not seal them. Nothing that people see changes, so `changed` is not called."""

        def decide(book: Book) -> None:
            for record in book.records:
                is_bare = record.asked.reply_token is not None and record.asked.question_seal is None
                if is_bare and (record.status not in DONE or is_unsettled(record)):
                    book.trust(record)

        await self._ledger.transact(issue, decide, self._patience)

    async def session_went_on(self, issue: int, news: SessionNews) -> None:
        """Draw the consequences of a session's event for its clarifications (design: Status)."""

        def decide(book: Book) -> None:
            mine = [r for r in book.records if of_session(r, news)]
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
        """Record the state of the reply. With `resolve` (proof of acceptance) the clarification is resolved.

        A reply that was confirmed stays so; a token of an earlier round changes nothing, nor one that a producer used
        again for its next question.
        """

        def decide(book: Book, record: Clarification) -> None:
            asked = record.asked
            if (
                asked.reply is not None
                and asked.reply_token == token
                and asked.reply not in {"confirmed", state}
            ):
                book.put(settled(record, state, note, self._clock.now(), resolve=resolve))

        await self._decide(clarification_id, decide)

    async def note_reply(self, clarification_id: str, token: str, note: str) -> None:
        """Write down why a reply that is still being sent has not arrived."""

        def decide(book: Book, record: Clarification) -> None:
            asked = record.asked
            if asked.reply == "sending" and asked.reply_token == token and asked.reply_note != note:
                book.put(reply_settled(record, "sending", note))

        await self._decide(clarification_id, decide)

    async def _change_record(
        self, clarification_id: str, change: _Change, at: datetime | None = None
    ) -> Clarification:
        """Change one record under the lock, unless another program changed what it asks, or its time had run out at `at`
        (None: now).
        """

        def decide(book: Book, record: Clarification) -> Clarification | Closed:
            self._check_asked(book, record)
            now = self._clock.now()
            if has_expired(record, at or now):
                # Written down, unless an answer given in time may still come to light.
                is_open = self._may_be_answered(record.id)
                return Closed(record if is_open else book.put(abandoned(record, "expired", now)))
            after = change(record)
            return record if after is record else book.put(after)

        outcome = await self._decide(clarification_id, decide)
        if isinstance(outcome, Closed):
            raise outcome
        return outcome

    async def _decide(self, clarification_id: str, decide: Callable[[Book, Clarification], _T]) -> _T:
        """Run `decide` on one record, as it is under the lock."""
        issue, _ = parse_id(clarification_id)
        return await self._transact(issue, lambda book: decide(book, book.get(clarification_id)))

    def _check_asked(self, book: Book, record: Clarification) -> None:
        """Checks that a record still asks what its agent asked, and says what was decided.

        Raises:
            Closed: another program changed it. LedgerUnwritable: that cannot be told.
        """
        as_asked = book.verify_question(record)
        if as_asked or not (is_unsettled(record) or book.seals.is_tampered(record)):
            return
        if as_asked is None:
            raise LedgerUnwritable(record.issue_number, "the key that tells what was asked cannot be used")
        raise Closed(tampered(record, self._clock.now()))

    async def _transact(self, issue: int, decide: Callable[[Book], _T]) -> _T:
        written: list[Clarification] = []

        def run(book: Book) -> _T:
            result = decide(book)
            written.extend(book.changed)
            return result

        def report() -> None:
            for record in written:
                self._changed(record)

        # Called even if the caller stops waiting: the decision is written, so it has to be shown.
        return await self._ledger.transact(issue, run, self._patience, report)


def check_goes_on(record: Clarification, ask: Ask) -> None:
    """Does nothing if `ask` may be the next question of `record`; raises what `Router.follow_up` says. Pure."""
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


def done(record: Clarification, call: DueCall, now: datetime, sla: timedelta) -> Clarification:
    """The record after what was due was done, at `now` (pure)."""
    if call.kind == "expire":
        return abandoned(record, "expired", now)
    if call.kind == "nudge":
        return nudged(record, now, sla)
    if call.kind == "unclaimed":
        return reply_settled(record, "unclaimed", None)
    return escalated(record, "stale", escalation_words(record, "stale"), now)
