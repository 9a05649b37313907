"""Imports what other programs wrote about clarifications: single entries, and existing ledger files.

An entry counts like any other message, but can never approve an action (P5).

`Earlier` imports the records of existing ledger files into a new, empty database: once, before producers connect.

If operators lose a database, they start with a new one and still have the files. Without the records in them, a producer that
repeats its events would have its questions shown and answered twice. So imported records keep their ids and tokens, and their
numbers count as assigned. But any program that can write the files may have written the records:

- A round that ended counts as a person's decision only with a valid receipt, and only in the receipt's words. Without one, its
  answer counts as given by `ledger:NAME`, and an approval counts as closed.
- An approval that was not delivered yet is asked again, even with a receipt: no receipt says which token it belongs to.
- The card of an open question says that the question comes from a ledger file. Claims, first accepts and edits have no receipt
  yet, so people have to repeat them.

Only the lost database knew where messages are and which replies may have arrived. So the bot looks each card up before it posts
the card again, and treats each unfinished reply as one that may have arrived.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Literal

import structlog

from bot.ask.inbox import Session, know_sessions, reserve_above
from bot.decisions import log
from bot.errors import StorageUnavailable
from bot.intake.notices import Teller
from bot.routing import Audiences
from bot.show.memory import mark
from bot.show.messages import TAKEN_UP, Fresh, card_of, doubt, put, put_cards
from bot.signing import PublicKeys
from bot.storage.ledger import fill
from bot.storage.store import Store
from bot.storage.tx import Tx
from bot.views.notices import storage_began
from core.answers import TEXT_LIMIT, decision_in, from_text
from core.clarification import (
    DONE,
    UNDELIVERED,
    Answer,
    AnsweredBy,
    Ask,
    Clarification,
    Consent,
    Decider,
    DeliveryState,
    Entry,
    Given,
    Question,
    Round,
    Status,
    round_with,
)
from core.clock import Clock
from core.errors import (
    AnswerRejected,
    BadInput,
    ClarifyError,
    LedgerInDoubt,
    LedgersAway,
    LedgerUnwritable,
    LockTimeout,
)
from core.ledger import Ledger
from core.ledgerfiles import FIRST_RESERVED, HIGHEST
from core.matching import author_of, reopened
from core.records import Book, as_of, dump, forgotten, is_forgotten, parse
from core.router import BODY_LIMIT, Router
from core.transitions import amended

_log = structlog.get_logger("clarify.ledger")
NOT_NOW = (LockTimeout, LedgerUnwritable, LedgersAway, LedgerInDoubt, StorageUnavailable)
Counted = Literal["taken", "refused", "for people"]
"""What came of an entry: it was taken; it came second or does not fit; or it decides about an action, which only people do."""
# Resets what people did to an open question, and its answer: no receipt proves them.
_NOTHING: dict[str, Any] = {
    "given": Given(),
    "delivery": DeliveryState(),
    "consent": Consent(),
    "receipt": None,
}


@dataclass(kw_only=True, eq=False, repr=False)  # holds what was asked
class Entries:
    """Imports what programs wrote that are neither a producer nor a person: their names count as `agent:…` or `ledger:…`.

    Each method raises LockTimeout, LedgerUnwritable, LedgersAway, LedgerInDoubt or StorageUnavailable if it cannot do that now.
    """

    router: Router
    ledger: Ledger
    clock: Clock

    async def open(self, begun: Clarification) -> Clarification:
        """Opens a clarification that another program began, with only its question, and returns it. If its number is taken, it gets
        the next free one.

        Raises:
            BadInput: it contains more than a question.
        """
        if begun.rounds or begun.status != "pending" or [each.type for each in begun.thread] != ["question"]:
            raise BadInput("expected a new question")
        return await self.router.take_in(begun)

    async def add(self, record: Clarification, entry: Entry, by: Decider, *, abandons: bool) -> Counted:
        """Adds an entry to the thread. `abandons`: as a resolution, it closes the question without an answer."""
        limit = TEXT_LIMIT if entry.type == "answer" and record.asked.reply_token else BODY_LIMIT
        if len(entry.body) > limit:
            return "refused"
        if record.asked.is_confirmation and entry.type in {"answer", "resolution"}:
            self.router.note_refusal(record, by, "not in Slack", _decision(record, entry.body))
            return "for people"
        return await _counted(record, self._add(record, entry, by, abandons=abandons))

    async def _add(self, record: Clarification, entry: Entry, by: Decider, *, abandons: bool) -> None:
        body, at, router = entry.body, self.clock.now(), self.router
        meant = entry.round if "round" in entry.model_fields_set else None
        if entry.type == "question":
            asker = by.decided_by.removeprefix("agent:")
            ask = Ask(asker, body, record.to, record.topic, record.blocking, Question(received_at=at))
            await router.follow_up(record.id, ask)
        elif entry.type == "escalation":
            await router.escalate(record.id, "by hand", body or None, by)
        elif entry.type == "answer":
            await router.answer(record.id, partial(_read, body), by, at, meant)
        elif abandons:
            await router.abandon(record.id, by, body)
        else:
            await router.resolve(record.id, partial(_read, body), body, by, at, round=meant)

    async def move(self, record: Clarification, status: str, by: Decider) -> Counted:
        """Sets a status that no entry explains."""
        if status != "escalated" and record.asked.is_confirmation:
            return "refused"
        return await _counted(record, self._move(record, status, by))

    async def _move(self, record: Clarification, status: str, by: Decider) -> None:
        if status == "escalated":
            await self.router.escalate(record.id, "by hand", None, by)
        elif status == "resolved":
            await self.router.resolve(record.id, partial(_read, ""), "", by, self.clock.now())
        else:
            await self.router.abandon(record.id, by)


async def _counted(record: Clarification, act: Awaitable[None]) -> Counted:
    try:
        await act
    except NOT_NOW:
        raise
    except ClarifyError as error:
        _log.info("another program's entry does not count", id=record.id, reason=str(error))
        return "refused"
    return "taken"


def _decision(record: Clarification, body: str) -> str | None:
    """Returns what an entry says about an action, if it says anything."""
    with suppress(AnswerRejected):
        return str(from_text(record.asked, body).response)
    return None


def _read(body: str, record: Clarification) -> Answer:
    return from_text(record.asked, body)


_NOTHING |= dict.fromkeys(("taken_by", "taken_from", "handed_to"))


NOT_EMPTY = (
    "select 1 from inbox union all select 1 from messages union all select 1 from sessions"
    " union all select 1 from clarifications limit 1"
)


@dataclass(kw_only=True, eq=False, repr=False)  # holds what was asked
class Earlier:
    """Records as found in the files. If several have the same id, the first one that can be imported counts.

    Args:
        highest: the highest assigned number of each issue.
        former: the installation that wrote the records; empty if unknown.
        along: stores more in the same transaction. Gets the imported records, by id.
    """

    records: Sequence[Clarification]
    highest: Mapping[int, int]
    former: str
    along: Callable[[Tx, Mapping[str, Clarification]], None]


@dataclass(kw_only=True, eq=False, repr=False)
class TakingIn:
    """Fills a new, empty database.

    Args:
        keys: verify receipts.
        sla: the time until a question is stale.
        name: the database's name, for people.
    """

    store: Store
    clock: Clock
    keys: PublicKeys | None
    sla: timedelta
    audiences: Audiences
    teller: Teller
    name: str

    async def is_wanted(self) -> bool:
        """Whether the database is new and empty."""
        return await self.store.read_one(NOT_EMPTY) is None

    async def fill(self, found: Earlier) -> bool:
        """Stores the records that count, in one transaction, and returns whether there are any. Call it before records are loaded.

        Raises:
            StorageUnavailable: nothing was stored.
        """
        now = self.clock.now()
        taken = await asyncio.to_thread(
            _vetted, found.records, Vetting(self.keys or PublicKeys(), self.sla, now)
        )
        records, notices = list(taken.values()), list[Fresh]()
        needed = [record for record in records if record.needs_something]
        cards = [record for record in needed if record.rounds and self.audiences.shows(record)]
        if records:
            count = sum(record.is_open for record in needed)
            _log.warning(
                "new storage beside existing ledgers; taking them in",
                storage=self.name,
                records=len(records),
                open=count,
                installation=found.former,
            )
            notices = [self.teller.for_operators("storage-began", storage_began(self.name, count))]
        issues = {record.issue_number for record in records}
        highest = {issue: number for issue, number in found.highest.items() if issue in issues}

        def work(tx: Tx) -> None:
            fill(tx, records, highest)
            log.take_in(tx, records, self.store.horizon, now)
            found.along(tx, taken)
            reserve_above(tx, max((FIRST_RESERVED - 1, *(each for each in issues if each <= HIGHEST))))
            know_sessions(tx, _sessions(records))
            _put(tx, self.audiences, cards, found.former)
            put(tx, notices)

        await self.store.write(work)
        return bool(records)


def _vetted(records: Iterable[Clarification], vetting: Vetting) -> dict[str, Clarification]:
    book, taken = Book(), dict[str, Clarification]()
    for record in records:
        if record.id in taken:
            continue
        try:
            taken[record.id] = book.put(vetting.counted(record))
        except Exception:  # noqa: BLE001 - one odd record must not stop the start
            _log.exception("an earlier record cannot be taken in", id=record.id)
    return taken


def _put(tx: Tx, audiences: Audiences, records: Sequence[Clarification], former: str) -> None:
    """Stores cards that may be in Slack. The bot reads each channel's thread replies again, from its oldest question on.
    `former`: the installation that posted the cards; empty if unknown.
    """
    marks: dict[str, float] = {}
    for record in records:
        card, asked_at = card_of(audiences, record), record.asked_last.timestamp()
        put_cards(tx, [card])
        doubt(tx, card.key, card.target, asked_at, f"{TAKEN_UP}{former}")
        marks[card.target] = min(asked_at, marks.get(card.target, asked_at))
    for channel, at in marks.items():
        mark(tx, channel, f"{at:.6f}")


def _sessions(records: Sequence[Clarification]) -> list[Session]:
    """Returns every session that asked a question. If a session has several issues, the highest counts, because a number of the
    reserved range can be found only by its session.
    """
    found = dict[tuple[str, str], Session]()
    for record in sorted(records, key=lambda each: each.issue_number):
        asked = record.asked
        if asked.producer is not None and asked.session_id is not None:
            agent = asked.agent_id or record.from_
            found[asked.producer, asked.session_id] = Session(
                asked.producer, asked.session_id, agent, asked.agent_name, record.issue_number
            )
    return list(found.values())


@dataclass(frozen=True, slots=True)
class Vetting:
    """Decides which parts of a record count, since any program may have written it."""

    keys: PublicKeys
    sla: timedelta
    now: datetime

    def counted(self, record: Clarification) -> Clarification:
        """Returns the record with only the parts that count."""
        if not record.rounds:
            asker = author_of(record.from_).removeprefix("agent:")
            thread = tuple(
                _entry(each, asker if each.type == "question" else _writer(each.from_))
                for each in record.thread
            )
            return record.model_copy(update={"from_": asker, "thread": thread})
        if is_forgotten(record):
            return _blank(record)
        record, proven = self._rounds_checked(record)
        is_proven = not record.is_open and self.keys.proves(record)
        if is_proven:
            proven.add(record.round)
        ended = {each.round: each for each in self._proven(record, proven)}
        thread = tuple(
            each.model_copy(update={"body": _proven_words(ended[each.round], each.body)})
            if each.round in ended and each.type == "answer"
            else _entry(each, _writer(each.from_))
            for each in record.thread
        )
        record = record.model_copy(update={"thread": thread})
        if is_proven and record.asked.is_confirmation and record.delivery.reply in UNDELIVERED:
            # Its receipt does not say which token it belongs to.
            return reopened(amended(record, **_NOTHING, from_file=True), self.now, self.sla)
        if is_proven:
            return amended(record, label=_proven_words(record, record.given.label or ""))
        return _begun(record) if record.is_open or _is_undecided(record) else self._unproven(record)

    def _proven(self, record: Clarification, rounds: Collection[int]) -> Iterator[Clarification]:
        """Yields the record as it was at the end of each proven round."""
        for place in range(len(record.earlier)):
            if (then := as_of(record, place)).round in rounds:
                yield then
        if record.round in rounds:
            yield record

    def _rounds_checked(self, record: Clarification) -> tuple[Clarification, set[int]]:
        """Returns the record with only the parts of its earlier rounds that count, and the numbers of the proven ones."""
        proven = set[int]()
        rounds = list(record.rounds)
        for place, past in enumerate(record.earlier):
            then = as_of(record, place)
            if self.keys.proves(then):
                proven.add(then.round)
            else:
                rounds[place] = _past(past)
        return record.model_copy(update={"rounds": tuple(rounds)}), proven

    def _unproven(self, record: Clarification) -> Clarification:
        """Returns a record whose round ended without a valid receipt."""
        if record.given.response is None or not _decides(record.current):
            by = None if record.given.response is None else author_of(record.given.decided_by or "")
            surface = None if by is None else AnsweredBy(surface="ledger")
            return amended(record, receipt=None, decided_by=by, answered_by=surface)
        waits = record.delivery.reply in UNDELIVERED
        _log.warning("an approval has no valid receipt", id=record.id, asked_again=waits)
        if waits:
            return reopened(amended(record, **_NOTHING, from_file=True), self.now, self.sla)
        return amended(record, **_NOTHING, closed="resolved elsewhere")


def _begun(record: Clarification) -> Clarification:
    """Returns the record as an open question. Drops an answer that is only in the file: the bridge adds it, and it competes like
    any other.
    """
    status: Status = record.status
    thread = record.thread
    if not record.is_open:
        status = "pending"
        last = max(at for at, each in enumerate(thread) if each.type == "question")
        thread = thread[: last + 1]
    update = {"status": status, "resolved_at": None, "thread": thread}
    return amended(record.model_copy(update=update), **_NOTHING, closed=None, from_file=True)


def _decides(current: Round) -> bool:
    """Returns whether an answer may be a decision about an action. Only the file says what kind of question it was."""
    return current.question.is_confirmation or (
        isinstance(current.given.response, str) and decision_in(current.given.response) is not None
    )


def _proven_words(then: Clarification, text: str) -> str:
    """Returns the answer's text if it matches the response that the receipt proves, otherwise that response."""
    asked, response = then.asked, then.given.response
    if asked.is_confirmation:
        fits = decision_in(text) == response
    elif isinstance(response, bool):
        fits = text.strip().casefold() == ("yes" if response else "no")
    elif isinstance(response, str) and "multiple_choice" not in asked.kinds:
        fits = text.strip() == response.strip()
    else:
        fits = True
    return text if fits else str(response)


def _blank(record: Clarification) -> Clarification:
    """Returns a forgotten record without any text that it may still contain."""
    bare = parse(forgotten(dump(record))) or record
    bare = amended(bare, **_NOTHING)
    bare = bare.model_copy(update={"rounds": bare.rounds[-1:]})
    return bare if bare.status in DONE else bare.model_copy(update={"status": "abandoned"})


def _is_undecided(record: Clarification) -> bool:
    """Returns whether another program ended our question without changing our own fields."""
    has_question = any(each.type == "question" for each in record.thread)
    return record.given.response is None and record.current.closed is None and has_question


def _past(current: Round) -> Round:
    """Returns an earlier round as it counts without a valid receipt."""
    if current.given.response is None:
        return round_with(current, receipt=None)
    if current.question.is_confirmation:
        return round_with(current, receipt=None, response=None, label=None)
    by, surface = author_of(str(current.given.decided_by)), AnsweredBy(surface="ledger")
    return round_with(current, receipt=None, decided_by=by, answered_by=surface)


def _writer(name: str) -> str:
    """Returns the author of an entry: the agent's name, or `ledger:NAME` for anyone else."""
    by = author_of(name)
    return by if by.startswith("ledger:") else name


def _entry(entry: Entry, by: str) -> Entry:
    return entry if entry.from_ == by else entry.model_copy(update={"from_": by})
