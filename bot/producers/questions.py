"""Takes in the questions that agents ask directly, and finds them again: for their askers, by id or by key.

A question is stored in the inbox, together with its key, in one transaction; the asker is told once it is in the ledger.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import secrets
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from math import inf
from typing import Any, ClassVar, NamedTuple

import structlog

from bot.producers.inbox import Inbox, Incoming, take
from bot.producers.redaction import Redaction, Redactor, TooSlow
from bot.settings.model import ProducerSettings
from bot.storage.store import Store, Sweep
from bot.storage.tx import Row, Tx, batches
from core.clarification import Clarification, parse_id
from core.clock import Clock
from core.errors import BadInput, ClarifyError, LedgerUnwritable, LockTimeout, NotFound, Tampered
from core.index import Index
from core.ledger import Ledger
from core.questions import (
    BadField,
    NewQuestion,
    Status,
    check_form,
    event_of,
    plain,
    state_of,
)
from core.records import Raw, Subject, identity, is_direct, is_unsettled, parse
from core.router import Router
from core.workflow import Speaker

KEYS_KEPT = timedelta(days=7)  # after a question's time is over
_MOST_OPEN = 100
MOST_LISTED = 20  # on a page
_MOST_LOOKS = 10  # at as many rows each, for a page
_MORE_WAITING = 10  # times as many
_LISTS_AT_ONCE = 2  # others' questions are not to wait behind lists
_GONE = "forgotten"  # in place of a digest
_WORDS = (
    "agent",
    "session",
    "question",
    "choices",
    "context",
    "action",
    "consequence",
    "arguments",
    "form",
    "default",
    "topic",
)
_NOT_HANDED_OUT = ("waiting", "unclaimed")  # reply states
_RETRY = 0.5  # seconds
_SAME_TIMEOUT = 0.5  # seconds between two that are the same: times of day are not exact
_SLOW = 1.0  # seconds that the bot that leads has to put a question into its ledger
_PATIENCE = 20.0  # seconds until an asker is told that its question is not in the ledger yet
_PLACE_OF = "select created_at, token from questions where producer = :producer and clarification = :id"
_LISTED = """select token, issue, clarification, created_at from questions
  where producer = :producer and (created_at, token) < (:at, :token)
  order by created_at desc, token desc limit :most"""
_LISTED_OF_SESSION = """select token, issue, clarification, created_at from questions
  where producer = :producer and session_id = :session and (created_at, token) < (:at, :token)
  order by created_at desc, token desc limit :most"""
_log = structlog.get_logger("clarify.questions")


class QuestionRefused(ClarifyError):
    """A question is not taken, or is not to be had. `status`: of HTTP; `field`: which is at fault, if one is."""

    status: ClassVar = 400
    field: ClassVar[str | None] = None
    retry_after: ClassVar[int | None] = None  # seconds


class KeyReused(QuestionRefused):
    """The key was used for a different question."""

    code, status, field = "KEY_REUSED", 409, "key"

    def __init__(self) -> None:
        super().__init__("This key was used for a different question. Use a new key.")


class TooManyOpen(QuestionRefused):
    """So many questions of this producer wait already that it may ask no more."""

    code, status, retry_after = "TOO_MANY_OPEN", 429, 5

    def __init__(self, most: int) -> None:
        super().__init__(
            f"You already have {most} open questions, the limit (`max_open`). Wait for an answer, or withdraw one."
        )


class NotRecordedYet(QuestionRefused):
    """The question is stored and will be asked, but it is in no ledger yet."""

    code, status, retry_after = "NOT_RECORDED_YET", 503, 5

    def __init__(self) -> None:
        super().__init__(
            "The question is stored and will be posted once its ledger can be written. Ask again with the same key to get its state."
        )


class Forgotten(QuestionRefused):
    """Nothing is known any more of what was asked and answered."""

    code, status = "FORGOTTEN", 410

    def __init__(self, clarification_id: str) -> None:
        super().__init__(f"{clarification_id} was deleted with `clarify forget`.")


class OtherAgent(QuestionRefused):
    """The producer may not speak for the agent that the question names."""

    code, status, field = "OTHER_AGENT", 403, "agent"

    def __init__(self) -> None:
        super().__init__("You may not ask as this `agent`. Use one of `agents` in your [[producers]] table.")


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a question is: its token, its issue, and its clarification, once that is known."""

    token: str
    issue: int
    clarification: str | None
    is_new: bool


@dataclass(eq=False, slots=True, repr=False)
class _Waiter:
    """Waits for a clarification to change. `record`: as it was written last, where it was since."""

    changed: asyncio.Event = field(default_factory=asyncio.Event)
    record: Clarification | None = None


class Listed(NamedTuple):
    """A page of questions. `next`: the id after which the next page begins; None: there is no more."""

    questions: list[Clarification]
    next: str | None


@dataclass(eq=False)
class Questions:
    """Ask, find, wait, withdraw, and take note of what was picked up.

    `adopt` takes over what another program wrote into a ledger, or undoes it. `trouble_with` says why a person cannot be
    asked, if that is known now. `write_down` puts a stored question (producer, token) into its ledger from here.

    Every method raises StorageUnavailable, LockTimeout, LedgerUnreadable or LedgerUnwritable where its storage or ledger
    cannot be used now.
    """

    producers: Mapping[str, ProducerSettings]
    inbox: Inbox
    store: Store
    index: Index
    ledger: Ledger
    router: Router
    adopt: Callable[[str], Awaitable[bool]]
    trouble_with: Callable[[str], Awaitable[str | None]]
    write_down: Callable[[str, str], Awaitable[None]]
    clock: Clock
    _redactions: Mapping[str, Redaction] = field(init=False)
    _on_the_way: Counter[str] = field(
        default_factory=Counter, init=False
    )  # producer → being stored, not in the ledger yet
    _waiting: defaultdict[str, set[_Waiter]] = field(default_factory=lambda: defaultdict(set), init=False)
    _listing: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(_LISTS_AT_ONCE), init=False)

    def __post_init__(self) -> None:
        self._redactions = {
            name: Redaction(name, each.redact) for name, each in self.producers.items() if each.redact
        }

    def record_changed(self, record: Clarification) -> None:
        """A record was written: who waits for it is woken, also if it was forgotten."""
        for name in (record.id, record.asked.event_id or ""):
            for waiter in self._waiting.get(name, ()):
                waiter.record = record
                waiter.changed.set()

    async def ask(
        self, new: NewQuestion, speaker: Speaker, *, repeats: bool = False, call: str | None = None
    ) -> tuple[Clarification, bool]:
        """The question's record, and whether it was asked just now: with a known key it was before.

        With `repeats`, for callers that give no keys and ask again when a call breaks off, it was also asked before if
        the same question of the same session waits, or, within its time, was answered and never handed out. An approval
        is joined only while it waits, and only in a session that the caller names: one Accept is for one call. `call`: the
        caller's name for this very call, which it repeats when it breaks off, and never uses for another one.

        Before this first waits for something, the question is on its way into the storage, and stays so if the caller
        leaves.

        Raises:
            BadField: it cannot be asked of that person, or not be redacted.
            OtherAgent, KeyReused, TooManyOpen, NotRecordedYet: as they say. After the last one it will be asked.
            Forgotten, Tampered: it was asked before; see `find`.
        """
        token = f"q_{secrets.token_hex(12) if call is None else _call_digest(speaker.producer, call)}"
        agent = new.agent or speaker.producer
        if not speaker.may_be(agent):
            raise OtherAgent
        asked = new.model_copy(update={"agent": agent})
        asking = asyncio.ensure_future(
            self._asked(asked, speaker.producer, token, repeats=repeats, may_be_repeated=call is not None)
        )
        asking.add_done_callback(_ended)
        # Not given up half-way when the caller leaves: what it was told or not, the question is asked.
        try:
            record, is_new = await asyncio.shield(asking)
        except NotFound as error:  # it came with this key before
            raise Tampered(error.clarification_id, deleted=True) from None
        if not is_new:
            record = await self.find(record.id, speaker.producer)
        return record, is_new

    async def _asked(
        self, given: NewQuestion, producer: str, token: str, *, repeats: bool, may_be_repeated: bool
    ) -> tuple[Clarification, bool]:
        self._on_the_way[producer] += 1
        try:
            asked = await self._redacted(given, producer)
            repeats = repeats and asked.key is None
            if asked.kind == "approval":
                # What was redacted may differ from call to call, and nobody would see it.
                repeats = repeats and asked.session is not None and asked == given
            over: set[str] | None = set() if repeats else None
            trouble = None if asked.to is None else await self.trouble_with(asked.to)
            while True:
                place = await self._stored(
                    asked, producer, token, over, trouble, may_be_repeated=may_be_repeated
                )
                try:
                    record = await self._recorded(place, producer)
                except NotFound:  # its ledger was taken away
                    if over is None or place.token == token:
                        raise
                else:
                    if over is None or place.token == token or _may_be_joined(record, asked):
                        return record, place.is_new
                over.add(place.token)
        finally:
            self._on_the_way[producer] -= 1

    async def find(self, clarification_id: str, producer: str) -> Clarification:
        """A question of this producer, as it stands.

        Raises:
            NotFound: there is none of that id. Forgotten: its content is gone. Tampered: another program changed or deleted
                it after it was decided.
        """
        record = await self._found(clarification_id, producer)
        if await self._is_anothers(record):
            await self.adopt(clarification_id)
            record = await self._found(clarification_id, producer)
            if await self._is_anothers(record):
                raise NotRecordedYet
        if record.asked.direct is None:
            raise Forgotten(clarification_id)
        return record

    async def _found(self, clarification_id: str, producer: str) -> Clarification:
        """The record of a question of this producer, also a forgotten one, as its ledger has it."""
        try:
            issue, _ = parse_id(clarification_id)
        except BadInput:
            raise NotFound(clarification_id[:40]) from None  # what is no id is nobody's
        try:
            record = await self.ledger.find(clarification_id, issue)
        except NotFound:
            record = None
        if record is not None and record.asked.producer == producer and is_direct(record):
            if await self.ledger.is_tampered(record):
                raise Tampered(clarification_id)
            return record
        if await self._was_asked(clarification_id, producer):
            raise Tampered(clarification_id, deleted=record is None)
        raise NotFound(clarification_id)

    async def _was_asked(self, clarification_id: str, producer: str) -> bool:
        """Whether this producer asked it, whatever its ledger says now."""
        found = await self.store.read_one(
            "select 1 as asked from questions where clarification = :id and producer = :producer",
            id=clarification_id,
            producer=producer,
        )
        return found is not None

    async def asked_directly(self, clarifications: Collection[str]) -> set[str]:
        """Which of these were, whatever their ledgers say now."""
        found = set[str]()
        for some in batches(clarifications):
            rows = await self.store.read(
                "select clarification from questions where clarification in :some", some=some
            )
            found |= {row["clarification"] for row in rows}
        return found

    async def _is_anothers(self, record: Clarification) -> bool:
        """Whether another program wrote the answer, and nothing was decided about that yet."""
        if record.is_open or not (is_unsettled(record) or record.asked.is_consent):
            return False
        return record.is_adoptable or not await self.ledger.verify_answer(record)

    async def until_settled(
        self, clarification_id: str, producer: str, seconds: float, *ends: Awaitable[Any]
    ) -> Clarification:
        """The question, once it does not wait any more, or as it is after so many seconds, or at one of `ends`."""
        # The caller's seconds, whatever time it is in the ledgers.
        over = [asyncio.ensure_future(each) for each in (asyncio.sleep(seconds), *ends)]
        try:
            with self._woken(clarification_id) as waiter:
                while True:
                    record = await self.find(clarification_id, producer)
                    if not record.is_open or any(each.done() for each in over):
                        return record
                    await _first(waiter.changed, over)
        finally:
            for each in over:
                each.cancel()
            await asyncio.gather(*over, return_exceptions=True)

    async def listed(
        self,
        producer: str,
        *,
        session: str | None = None,
        status: Status | None = None,
        after: str | None = None,
    ) -> Listed:
        """A page of a producer's questions, the newest first: of one session, if that is named; of one status.

        Each ledger is read once for all of its rows on the page; what waits is known without reading any, where this bot
        leads. Of others than the `status` at most so many are looked at for a page: it may have fewer than fit, and more
        follow.

        Raises:
            NotFound: `after` is no question of this producer.
        """
        if session is not None:
            session = await self._text_redacted("session", plain(session), producer)
        at, token = inf, ""
        if after is not None:
            row = await self.store.read_one(_PLACE_OF, producer=producer, id=after)
            if row is None:
                raise NotFound(after)
            at, token = row["created_at"], row["token"]
        # What waits is found without its ledger: more can be looked at for it.
        many = MOST_LISTED * (_MORE_WAITING if status == "waiting" and self.store.leads else 1)
        sql = _LISTED if session is None else _LISTED_OF_SESSION
        found: list[Clarification] = []
        last: str | None = None
        async with self._listing:
            looks = 0
            while looks < _MOST_LOOKS or last is None:
                looks += 1
                rows = await self.store.read(
                    sql, producer=producer, session=session, at=at, token=token, most=many
                )
                for some in batches((row for row in rows if self._may_be(row, status)), MOST_LISTED):
                    records = await self._records(some)
                    found += [each for each in records if status in {None, state_of(each)["status"]}]
                    if len(found) > MOST_LISTED:
                        return Listed(found[:MOST_LISTED], found[MOST_LISTED - 1].id)
                if len(rows) < many:
                    return Listed(found, None)
                at, token = rows[-1]["created_at"], rows[-1]["token"]
                last = next((row["clarification"] for row in reversed(rows) if row["clarification"]), last)
        return Listed(found, last)

    def _may_be(self, row: Row, status: Status | None) -> bool:
        """Whether a question may have a status, as far as is known without its ledger; another bot that leads knows more."""
        if status is None or row["clarification"] is None or not self.store.leads:
            return True
        known = self.index.get(row["clarification"])
        return (known is not None and known.is_open) == (status == "waiting")

    async def _records(self, rows: Sequence[Row]) -> list[Clarification]:
        """The records of stored questions, in their order, without those that are not there or were forgotten; each ledger
        is read once.
        """
        ledgers: dict[int, list[Raw]] = {}
        found: list[Clarification] = []
        for row in rows:
            if (issue := row["issue"]) not in ledgers:
                ledgers[issue] = await self.ledger.read(issue)
            name, of = (row["clarification"], identity) if row["clarification"] else (row["token"], _event_of)
            record = parse(next((item for item in ledgers[issue] if of(item) == name), None))
            if record is not None and row["clarification"] is None:
                self._note(_place(row), record)
            if record is None or record.asked.direct is None:
                continue
            # What another program changed is told where it is looked at by itself.
            if not await self.ledger.is_tampered(record):
                found.append(record)
        return found

    async def withdraw(self, clarification_id: str, producer: str, words: str = "") -> Clarification:
        """Close a question that needs no answer any more; again, or once it is over without one, changes nothing.

        Raises:
            BadField: the words take too long to redact.
            NotFound, Forgotten: see `find`. AlreadyAnswered: an answer came first.
        """
        await self.find(clarification_id, producer)
        words = await self._text_redacted("comment", words, producer)
        return await self.router.withdraw(clarification_id, words)

    async def picked_up(self, record: Clarification) -> None:
        """The asker has the answer: noted as soon as its ledger can be written."""
        if record.asked.reply not in _NOT_HANDED_OUT or record.asked.reply_token is None:
            return
        while True:
            try:
                await self.router.settle_reply(record.id, record.asked.reply_token, "confirmed", resolve=True)
            except (LockTimeout, LedgerUnwritable) as error:
                _log.warning("pickup not recorded yet, will retry", id=record.id, reason=str(error))
                await self.clock.sleep(_RETRY)
            else:
                return

    async def _stored(
        self,
        asked: NewQuestion,
        producer: str,
        token: str,
        over: Collection[str] | None,
        trouble: str | None,
        *,
        may_be_repeated: bool,
    ) -> _Place:
        """Store a question, unless it was before. `over`: tokens of the same question that are, if it may be asked again;
        `trouble`: why the person who shall answer cannot; `may_be_repeated`: whether it may be there under its token.
        """
        now = self.clock.now()
        expires_at = now + timedelta(seconds=asked.timeout)
        incoming = Incoming(
            producer=producer,
            event=event_of(asked, producer=producer, token=token, at=now),
            received_at=now,
            at=now,
            expires_at=expires_at,
            live=True,
            asked=asked,
        )
        most = self._most_open(producer)
        waiting = sum(each.is_direct and each.is_open and each.producer == producer for each in self.index)
        waiting += self._on_the_way[producer] - 1

        def work(tx: Tx) -> tuple[_Place, Incoming]:
            before = _before(tx, asked, incoming, over, may_be_repeated=may_be_repeated)
            if before is None and (asked.key is not None or over is not None or may_be_repeated):
                tx.queue("inbox")  # another bot may be asked the same right now
                before = _before(tx, asked, incoming, over, may_be_repeated=may_be_repeated)
            if before is not None:
                return before, incoming
            if trouble is not None:
                raise BadField("to", trouble)
            if waiting >= most:
                raise TooManyOpen(most)
            _, stored = take(tx, incoming)
            issue = stored.issue or 0  # every question has one
            tx.run(
                """insert into questions (token, producer, agent, session_id, key, digest, issue, created_at, expires_at)
                   values (:token, :producer, :agent, :session, :key, :digest, :issue, :now, :expires_at)""",
                token=token,
                producer=producer,
                agent=asked.agent,
                session=incoming.event.session_id,
                key=asked.key,
                digest=asked.digest,
                issue=issue,
                now=now.timestamp(),
                expires_at=expires_at.timestamp(),
            )
            return _Place(token, issue, None, is_new=True), stored

        place, stored = await self.store.write(work)
        if place.is_new:
            self.inbox.announce(stored)
        return place

    @contextmanager
    def _woken(self, name: str) -> Iterator[_Waiter]:
        """Hears of each change of a clarification, by its id or its token."""
        waiter = _Waiter()
        self._waiting[name].add(waiter)
        try:
            yield waiter
        finally:
            self._waiting[name].discard(waiter)
            if not self._waiting[name]:
                del self._waiting[name]

    async def _recorded(self, place: _Place, producer: str) -> Clarification:
        """The record of a stored question, once it is in its ledger. The bot that leads puts it there; where that is
        another one, and takes its time, it may be gone.

        Raises:
            NotRecordedYet: it is not there in time.
        """
        with self._woken(place.token) as waiter:
            if place.is_new and self.store.leads:  # it is put there from here
                with suppress(TimeoutError):
                    await asyncio.wait_for(waiter.changed.wait(), _SLOW)
            if waiter.record is not None:
                self._note(place, waiter.record)
                return waiter.record
            slow, late = ends = [asyncio.ensure_future(asyncio.sleep(each)) for each in (_SLOW, _PATIENCE)]
            try:
                while True:
                    try:
                        return await self._at(place)
                    except NotRecordedYet:
                        if late.done():
                            raise
                        if slow in ends and slow.done():
                            ends.remove(slow)
                            if not self.store.leads:
                                await self.write_down(producer, place.token)
                                continue
                        await _first(waiter.changed, ends)
            finally:
                slow.cancel()
                late.cancel()

    async def _at(self, place: _Place) -> Clarification:
        """The record of a stored question.

        Raises:
            NotRecordedYet: it is not in its ledger yet. NotFound: it is there no more.
        """
        if place.clarification is not None:
            return await self.ledger.find(place.clarification, place.issue)
        for item in await self.ledger.read(place.issue):
            if _event_of(item) == place.token and (record := parse(item)) is not None:
                self._note(place, record)
                return record
        raise NotRecordedYet

    def _note(self, place: _Place, record: Clarification) -> None:
        """Store which clarification a question is; what cannot be stored is found by its token again."""
        sql, values = "update questions set clarification = :id where token = :token", {"token": place.token}
        noted = self.store.write_soon(lambda tx: tx.run(sql, id=record.id, **values))
        noted.add_done_callback(_ended)

    def _most_open(self, producer: str) -> int:
        return self.producers[producer].max_open if producer in self.producers else _MOST_OPEN

    async def _redacted(self, asked: NewQuestion, producer: str) -> NewQuestion:
        """A question as it may be stored and shown.

        Raises:
            BadField: it would not be the same question, or takes too long. TooManyOpen: too many wait for this.
        """
        redaction = self._redactions.get(producer)
        if redaction is None:
            return asked
        most = max(self._most_open(producer), _MOST_OPEN)
        if self._on_the_way[producer] > most:
            raise TooManyOpen(most)
        return await redaction.run(lambda redactor: _without_secrets(asked, redactor))

    async def _text_redacted(self, field: str, text: str, producer: str) -> str:
        redaction = self._redactions.get(producer)
        if redaction is None:
            return text
        redacted: str = await redaction.run(lambda redactor: _part_redacted(field, text, redactor))
        return redacted


def _without_secrets(asked: NewQuestion, redactor: Redactor) -> NewQuestion:
    """A question with all that its producer's `redact` replaces replaced.

    Raises:
        BadField: it would not be the same question any more, or it takes too long.
    """
    if asked.key is not None and _part_redacted("key", asked.key, redactor) != asked.key:
        # Replaced, it would be another question's key, too, and that one's answer this one's.
        raise BadField("key", "`key` must not contain text that your `redact` patterns replace.")
    said = asked.model_dump(mode="json")
    for name in _WORDS:
        field = "schema" if name == "form" else name
        said[name] = _part_redacted(field, said[name], redactor, numbers=name == "arguments")
    shown = NewQuestion.restored(said)
    if asked.key is not None and shown.agent != asked.agent:  # keys are each agent's own
        raise BadField(
            "agent", "With a `key`, `agent` must not contain text that your `redact` patterns replace."
        )
    check_form(shown)
    differ = "{} that become the same after your `redact` patterns. Make them differ elsewhere."
    if asked.form and shown.form and len(shown.form["properties"]) < len(asked.form["properties"]):
        raise BadField("schema.properties", differ.format("`schema.properties` has names"))
    if len({each.value for each in shown.choices or ()}) < len(asked.choices or ()):
        raise BadField("choices", differ.format("`choices` has values"))
    if _names(shown.arguments) < _names(asked.arguments):
        raise BadField("arguments", differ.format("`arguments` has names"))
    return shown


def _part_redacted(field: str, value: Any, redactor: Redactor, *, numbers: bool = False) -> Any:
    try:
        return redactor.redacted(value, numbers=numbers)
    except TooSlow as error:
        why = (
            f"`{field}` takes too long to redact with redact[{error.number}] of your [[producers]] table. Shorten the text "
            "or simplify the pattern; `clarify check` tests it."
        )
        raise BadField(field, why) from None


async def _first(changed: asyncio.Event, over: Sequence[asyncio.Future[Any]]) -> None:
    """Returns at a change, or when one of the others is done."""
    news = asyncio.ensure_future(changed.wait())
    try:
        await asyncio.wait({news, *over}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        news.cancel()
    changed.clear()


def _ended(asking: asyncio.Future[Any]) -> None:
    """Where the caller left, nobody is there to be told why it was not asked."""
    if not asking.cancelled():
        asking.exception()


def _before(
    tx: Tx, asked: NewQuestion, incoming: Incoming, over: Collection[str] | None, *, may_be_repeated: bool
) -> _Place | None:
    """The same question, where it was asked before; None: it was not. See `Questions._stored`."""
    producer, now = incoming.producer, incoming.received_at
    known = _known(tx, asked, producer, now)
    if known is None and may_be_repeated:
        known = _repeated(tx, asked, incoming.event.event_id)
    if known is None and over is not None:
        known = _same(tx, asked, producer, now, over)
    return known


def _known(tx: Tx, asked: NewQuestion, producer: str, now: datetime) -> _Place | None:
    """The question that came with this key before; None: none did, or its time has long been over.

    Raises:
        KeyReused: it was another one.
    """
    if asked.key is None:
        return None
    row = tx.one(
        "select * from questions where producer = :producer and agent = :agent and key = :key",
        producer=producer,
        agent=asked.agent,
        key=asked.key,
    )
    if row is None:
        return None
    if row["expires_at"] < (now - KEYS_KEPT).timestamp():
        tx.run("update questions set key = null where token = :token", token=row["token"])
        return None
    if row["digest"] not in {asked.digest, _GONE}:
        raise KeyReused
    return _place(row)


def _repeated(tx: Tx, asked: NewQuestion, token: str) -> _Place | None:
    """The question that the same call asked before.

    Raises:
        KeyReused: it was another one.
    """
    row = tx.one("select * from questions where token = :token", token=token)
    if row is not None and row["digest"] not in {asked.digest, _GONE}:
        raise KeyReused
    return None if row is None else _place(row)


def _same(tx: Tx, asked: NewQuestion, producer: str, now: datetime, over: Collection[str]) -> _Place | None:
    """The newest question that says the same for as long, was given no key, and whose time is not over; None also if it is
    among the `over`.
    """
    row = tx.one(
        """select * from questions where producer = :producer and agent = :agent and digest = :digest and key is null
           and expires_at > :now and expires_at - created_at between :least and :most
           order by created_at desc limit 1""",
        producer=producer,
        agent=asked.agent,
        digest=asked.digest,
        now=now.timestamp(),
        least=asked.timeout - _SAME_TIMEOUT,
        most=asked.timeout + _SAME_TIMEOUT,
    )
    return None if row is None or row["token"] in over else _place(row)


def _may_be_joined(record: Clarification, asked: NewQuestion) -> bool:
    """Whether a call that asks the same need not ask anew."""
    return record.is_open or (asked.kind != "approval" and record.asked.reply in _NOT_HANDED_OUT)


def _call_digest(producer: str, call: str) -> str:
    return hashlib.blake2b(json.dumps([producer, call]).encode(), digest_size=12).hexdigest()


def _event_of(item: object) -> object:
    asked = item.get("aaep") if isinstance(item, dict) else None
    return asked.get("eventId") if isinstance(asked, dict) else None


def _place(row: Row) -> _Place:
    return _Place(row["token"], row["issue"], row["clarification"], is_new=False)


def _names(value: Any) -> int:
    """How many names of properties a value has, all that is nested included."""
    if isinstance(value, dict):
        return len(value) + sum(map(_names, value.values()))
    return sum(map(_names, value)) if isinstance(value, list) else 0


# Keys are known for as long as a question could be asked again with them.
SWEEP = Sweep(
    "questions",
    """select token as name, clarification from questions
       where token > :after and expires_at < :horizon - 604800 order by token limit :most""",
    ("delete from questions where token in :names",),
)


def forget(tx: Tx, subject: Subject) -> None:
    """Forget what questions said; their keys stay, so that they are not asked again."""
    tx.many(
        "update questions set digest = :gone where producer = :producer and token = :name",
        [{"producer": producer, "name": name, "gone": _GONE} for producer, name in subject.tokens],
    )
