"""Stores the questions that agents ask directly, and finds them again for their askers, by id or by key.

A question is recorded in one transaction with its key and its callback URL; then its asker gets its state.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import secrets
from collections import Counter, defaultdict
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Awaitable,
    Callable,
    Collection,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import AbstractAsyncContextManager, ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from math import inf
from typing import Any, ClassVar, NamedTuple, TypeVar

import structlog
from pydantic_core import to_json

from bot.ask.inbox import Session, issue_for, lock_of
from bot.ask.redaction import PatternTooSlow, Redaction, Redactor
from bot.errors import StorageUnavailable
from bot.settings.addresses import WebUrl, callback_url
from bot.settings.model import CallbackSettings, ProducerSettings
from bot.storage.ledger import LockedError, tell
from bot.storage.store import Store
from bot.storage.tx import Row, Tx
from bot.views.blockkit import BUTTONS
from core.clarification import Ask, Clarification
from core.clock import Clock, FairLimit, beside
from core.errors import (
    BadInput,
    ClarifyError,
    LedgersAway,
    LedgerUnreadable,
    LedgerUnwritable,
    LockTimeout,
    NotFound,
    Tampered,
)
from core.index import Index
from core.ledger import Ledger
from core.questions import (
    BadField,
    NewQuestion,
    Status,
    ask_of,
    check_arguments_schema,
    check_form,
    four_eyes_trouble,
    labels_trouble,
    plain,
    state_of,
)
from core.records import Subject, is_direct
from core.router import Opened, Router
from core.summary import Seen
from core.workflow import Speaker

KEYS_KEPT = timedelta(days=7)  # after a question has expired
_MOST_OPEN = 100
MOST_LISTED = 20  # on a page
_MOST_READS = 10  # of rows, for a page
_MOST_LISTS = 20  # of one producer that wait for its current one
LARGEST_PAGE = 1024 * 1024  # bytes
_LOOKS_AT_ONCE = 2
LARGE = 32 * 1024  # bytes of JSON that are not read or written on the event loop
NEW_CALLBACK = "callback"  # in the feed: the question has another callback URL
_GONE = "forgotten"  # in place of a digest
_REDACTED = (  # the fields with text
    "agent",
    "session",
    "question",
    "choices",
    "context",
    "action",
    "consequence",
    "arguments",
    "arguments_schema",
    "form",
    "default",
    "topic",
)
_NOT_HANDED_OUT = ("waiting", "unclaimed")  # reply states
_RETRY = 0.5  # seconds
_SAME_TIMEOUT = 0.5  # timeouts that differ by fewer seconds are the same: times of day are not exact
_LISTED = """select token, clarification, created_at from questions
  where producer = :producer and (created_at, token) < (:at, :token)
  order by created_at desc, token desc limit :most"""
_LISTED_OF_SESSION = """select token, clarification, created_at from questions
  where producer = :producer and session_id = :session and (created_at, token) < (:at, :token)
  order by created_at desc, token desc limit :most"""
# Those that need something are few, and looked up first; `session >= ''` has SQLite take the index of these alone.
_WAITING = """select q.token, q.clarification, q.created_at from clarifications c cross join questions q
  where c.producer = :producer and c.session >= '' and c.live = 1 and q.clarification = c.id
    and (q.created_at, q.token) < (:at, :token)
  order by q.created_at desc, q.token desc limit :most"""
_WAITING_OF_SESSION = _WAITING.replace("c.session >= ''", "c.session = :session")
_NEW_CALLBACK = """update questions set callback_url = :url, callback_failed_at = null
  where token = :token and digest <> :gone and coalesce(callback_url, '') <> :url"""
_OWE_CALLBACK = """update questions set callback_due = 1
  where clarification = :id and callback_url is not null returning *"""
_MAY_BE_OWED = "select clarification from questions where callback_url is not null and callback_due = 0"
_OWED_CALLBACKS = """select * from questions where callback_url is not null and callback_due = 1
  order by case when callback_failed_at is null then 0 else 1 end, created_at"""
_ROW_OF_ID = "select * from questions where clarification = :id"
_log = structlog.get_logger("clarify.questions")
Shown = dict[str, Any]
Step = Callable[[], AbstractAsyncContextManager[None]]
_T = TypeVar("_T")


class QuestionRefused(ClarifyError):
    """A question was not accepted, or cannot be returned. `status`: of HTTP; `field`: the invalid one, if any."""

    status: ClassVar = 400
    field: ClassVar[str | None] = None
    retry_after: ClassVar[int | None] = None  # seconds


class KeyReused(QuestionRefused):
    """The key was used for a different question."""

    code, status, field = "KEY_REUSED", 409, "key"

    def __init__(self) -> None:
        super().__init__("This key was used for a different question. Use a new key.")


class TooManyOpen(QuestionRefused):
    """The producer has too many open questions (`max_open`)."""

    code, status, retry_after = "TOO_MANY_OPEN", 429, 5

    def __init__(self, most: int) -> None:
        super().__init__(
            f"You already have {most} open questions, the limit (`max_open`). Wait for an answer, or withdraw one."
        )


class TooManyLists(QuestionRefused):
    """The producer already reads its lists one after the other, and too many wait."""

    code, status, retry_after = "TOO_MANY_LISTS", 429, 2

    def __init__(self) -> None:
        super().__init__(
            f"{_MOST_LISTS} of your lists wait already; they are read one after the other. Try again in {self.retry_after} seconds."
        )


class Forgotten(QuestionRefused):
    """The question and its answer were deleted."""

    code, status = "FORGOTTEN", 410

    def __init__(self, clarification_id: str) -> None:
        super().__init__(f"{clarification_id} was deleted with `clarify forget`.")


class AlreadyPickedUp(QuestionRefused):
    """The answer may be handed out only once, and it was."""

    code, status = "ALREADY_PICKED_UP", 409

    def __init__(self, clarification_id: str) -> None:
        super().__init__(
            f"The answer to {clarification_id} was picked up before, and `once` asks for one that was not. Ask a new question."
        )


class OtherAgent(QuestionRefused):
    """The producer may not speak for the agent that the question names."""

    code, status, field = "OTHER_AGENT", 403, "agent"

    def __init__(self) -> None:
        super().__init__("You may not ask as this `agent`. Use one of `agents` in your [[producers]] table.")


class _AskedBefore(Exception):
    """Ends a transaction early, because the question was asked before: `row` is its."""

    def __init__(self, row: Row) -> None:
        super().__init__()
        self.token: str = row["token"]
        self.clarification: str = row["clarification"]


@dataclass(frozen=True, slots=True)
class Callback:
    """Where a question's outcome is to be posted.

    `host`: of the URL, all of it that may be shown. `entry`: what allows the URL; None: it is no longer allowed.
    `failed_at`: when posting there first failed; None: it never did.
    """

    clarification: str
    producer: str
    url: str = field(repr=False)
    host: str
    entry: CallbackSettings | None
    failed_at: datetime | None


@dataclass(frozen=True, kw_only=True, slots=True, repr=False)
class Asked:
    """What an integration adds to a question that it asks for a producer: `about`, which `asked` has under its `name`; and
    `store`, which stores its own rows about a new question in the transaction that records it.
    """

    name: str
    about: Mapping[str, Any]
    store: Callable[[Tx, Clarification], object]


@dataclass(eq=False, slots=True, repr=False)
class _Waiter:
    """Waits for a clarification to change. `record`: as last written in the meantime; None: it did not change."""

    changed: asyncio.Event = field(default_factory=asyncio.Event)
    record: Clarification | None = None


class Listed(NamedTuple):
    """A page of questions. `next`: the id after which the next page begins; None: this is the last page."""

    questions: list[Shown]
    next: str | None


@dataclass(slots=True)
class _ListedPage:
    """The questions with `status` (None: all) that find room on a page, as `shown`."""

    shown: Callable[[Clarification], Shown]
    status: Status | None
    questions: list[Shown] = field(default_factory=list)
    _left: int = LARGEST_PAGE

    def add(self, record: Clarification) -> bool:
        """Adds a question, if it has the status. Returns False if there is no room for it."""
        if self.status not in {None, state_of(record)["status"]}:
            return True
        found = self.shown(record)
        size = len(to_json(found))
        if self.questions and (len(self.questions) == MOST_LISTED or size > self._left):
            return False
        self.questions.append(found)
        self._left -= size
        return True


class Reading:
    """Gives every producer its share of the reading of records. It takes processor time, for which the event loop waits, too.

    Lists and look-ups have shares of their own, so that no look-up waits for a list.
    """

    def __init__(self) -> None:
        self._lists = FairLimit(inf)
        self._of_lists = FairLimit(1)
        self._looks = FairLimit(_LOOKS_AT_ONCE)

    def look(self, producer: str) -> AbstractAsyncContextManager[None]:
        """Waits until a producer may do something short, such as read one record or one request."""
        return self._looks.slot(producer)

    async def run(self, producer: str, work: Callable[[], _T], size: int) -> _T:
        """Returns what `work` returns. If it reads or writes `size` bytes and that is much, a worker thread runs it, when it is
        the producer's turn.
        """
        if size < LARGE:
            return work()
        async with self.look(producer):
            return await asyncio.to_thread(work)

    @asynccontextmanager
    async def list(self, producer: str, *, is_short: bool = False) -> AsyncIterator[Step]:
        """Waits until the producer's lists before this one are read. Yields what to hold while reading some records. A list that
        `is_short` counts as look-ups.

        Raises:
            TooManyLists: too many wait already.
        """
        if is_short:
            yield partial(self.look, producer)
            return
        if self._lists.waiting(producer) >= _MOST_LISTS:
            raise TooManyLists
        async with self._lists.slot(producer):
            yield partial(self._of_lists.slot, producer)


@dataclass(eq=False)
class Questions:
    """Asks, finds, lists and withdraws questions, waits for their answers, and records that these were picked up.

    `trouble_with` returns why a person cannot be asked, if that is known. `bounded` returns a question under the rules of its
    route. `wake_feed` has the feed look for changes.

    Every method raises StorageUnavailable, LockTimeout, LedgerUnreadable or LedgerUnwritable if its storage or record
    cannot be used now.
    """

    producers: Mapping[str, ProducerSettings]
    store: Store
    index: Index
    ledger: Ledger
    router: Router
    trouble_with: Callable[[str], Awaitable[str | None]]
    bounded: Callable[[Ask], Ask]
    wake_feed: Callable[[], None]
    clock: Clock
    _redactions: Mapping[str, Redaction] = field(init=False)
    _on_the_way: Counter[str] = field(
        default_factory=Counter, init=False
    )  # producer → its questions that are not recorded yet
    _waiting: defaultdict[str, set[_Waiter]] = field(default_factory=lambda: defaultdict(set), init=False)
    reading: Reading = field(default_factory=Reading, init=False)

    def __post_init__(self) -> None:
        self._redactions = {
            name: Redaction(name, each.redact) for name, each in self.producers.items() if each.redact
        }

    def record_changed(self, record: Clarification) -> None:
        """Wakes everyone who waits for a record that was written, also if it was forgotten."""
        for waiter in self._waiting.get(record.id, ()):
            waiter.record = record
            waiter.changed.set()

    def is_awaited(self, clarification: str) -> bool:
        """Returns whether a caller of this process waits for a question's answer right now."""
        return clarification in self._waiting

    async def ask(
        self,
        new: NewQuestion,
        speaker: Speaker,
        *,
        repeats: bool = False,
        call: str | None = None,
        by: Asked | None = None,
    ) -> tuple[Clarification, bool]:
        """Returns the question's record, and whether it is new: a known key returns the question asked before.

        `repeats` is for callers that give no keys and ask again after a broken call. It also returns a question asked
        before if the same question of the same session waits, or was answered but never picked up and has not expired. An
        approval is joined only while it waits, and only in a session that the caller names: one Accept is for one call.
        `call` is the caller's name for this call, which it repeats after a break and never uses for another call.

        `by` is of an integration that asks. It carries out what is approved, so people must see it as it is: a question whose
        action or arguments the producer's `redact` would change is refused.

        From the first `await` on, the question is being asked, even if the caller leaves.

        Raises:
            BadField: that person cannot be asked, no one could approve, the callback is not allowed, or the question cannot
                be redacted.
            OtherAgent, KeyReused, TooManyOpen: see there.
            NotFound, Forgotten, Tampered: it was asked before; see `find`.
        """
        token = f"q_{secrets.token_hex(12) if call is None else _call_digest(speaker.producer, call)}"
        agent = new.agent or speaker.producer
        if not speaker.may_be(agent):
            raise OtherAgent
        url = None if new.callback_url is None else self._allowed(new.callback_url, speaker.producer)
        asked = new.model_copy(update={"agent": agent, "callback_url": url})
        asking = asyncio.ensure_future(
            self._asked(
                asked, speaker.producer, token, repeats=repeats, may_be_repeated=call is not None, by=by
            )
        )
        asking.add_done_callback(_ended)
        # If the caller leaves, the question is asked all the same.
        record, is_new = await asyncio.shield(asking)
        if not is_new:
            record = await self.find(record.id, speaker.producer)
        return record, is_new

    async def _asked(
        self,
        given: NewQuestion,
        producer: str,
        token: str,
        *,
        repeats: bool,
        may_be_repeated: bool,
        by: Asked | None,
    ) -> tuple[Clarification, bool]:
        self._on_the_way[producer] += 1
        try:
            new = await self._new(
                given, producer, token, repeats=repeats, may_be_repeated=may_be_repeated, by=by
            )
            not_joined: set[str] | None = set() if new.may_be_joined else None
            while True:
                try:
                    opened = await self._opened(new, not_joined)
                except _AskedBefore as asked_before:
                    before = asked_before
                else:
                    return opened.record, opened.how == "new"
                others = not_joined if before.token != token else None
                try:
                    record = await self.ledger.find(before.clarification)
                except NotFound:
                    if others is None:
                        raise
                    others.add(before.token)
                    continue
                is_for_another = _is_for_another(record, new.asked)
                if others is not None and (is_for_another or not _may_be_joined(record, new.asked)):
                    others.add(before.token)
                    continue
                if is_for_another:
                    raise KeyReused
                if new.asked.callback_url is not None:
                    await self._call_back(before.token, record.id, new.asked.callback_url)
                return record, False
        finally:
            self._on_the_way[producer] -= 1

    async def _new(
        self,
        given: NewQuestion,
        producer: str,
        token: str,
        *,
        repeats: bool,
        may_be_repeated: bool,
        by: Asked | None,
    ) -> _New:
        """Returns a question as it is to be recorded; see `ask`."""
        asked = await self._redacted(given, producer)
        if by is not None and (asked.action, asked.arguments) != (given.action, given.arguments):
            name = "action" if asked.action != given.action else "arguments"
            raise BadField(
                name,
                f"People could not see `{name}` whole: `redact` of your [[producers]] table hides a part of it.",
            )
        digest = await self._digest(given, asked, producer)
        why = None if asked.to is None else await self.trouble_with(asked.to)
        now = self.clock.now()
        expires_at = now + timedelta(seconds=asked.timeout)
        ask = ask_of(asked, producer=producer, token=token, at=now, expires_at=expires_at)
        ask = self.bounded(ask if by is None else _told_by(ask, by))
        trouble = labels_trouble(ask.asked, BUTTONS) or (None if why is None else BadField("to", why))
        return _New(
            asked=asked,
            ask=ask,
            at=now,
            producer=producer,
            token=token,
            digest=digest,
            trouble=trouble or four_eyes_trouble(ask.asked),
            may_be_joined=repeats
            and asked.key is None
            and (asked.kind != "approval" or asked.session is not None),
            may_be_repeated=may_be_repeated,
            by=by,
        )

    def _allowed(self, url: str, producer: str) -> str:
        """Returns a callback URL in its one spelling.

        Raises:
            BadField: the producer may not name it.
        """
        try:
            given = callback_url(url)
        except ValueError as error:
            raise BadField("callback_url", f"`callback_url`: {error}.") from None
        if self._entry(given, producer) is None:
            raise BadField(
                "callback_url",
                "`callback_url` is not in `callbacks` of your [[producers]] table. Add it there, or use a URL that is.",
            )
        return given.text

    def _entry(self, url: WebUrl, producer: str) -> CallbackSettings | None:
        """Returns the entry of the producer's `callbacks` that allows a URL; one with `private` first."""
        settings = self.producers.get(producer)
        found = [each for each in (settings.callbacks if settings else ()) if url.fits(each.pattern)]
        return max(found, key=lambda each: each.private, default=None)

    async def _call_back(self, token: str, clarification_id: str, url: str) -> None:
        """Stores a question's newest callback URL. The feed hears of it, for a question that has ended already."""

        def work(tx: Tx) -> None:
            if tx.run(_NEW_CALLBACK, token=token, url=url, gone=_GONE):
                tell(tx, clarification_id, NEW_CALLBACK, self.clock.now())

        await self.store.write(work)
        self.wake_feed()

    async def find(self, clarification_id: str, producer: str) -> Clarification:
        """Returns a question of this producer as it is now.

        Raises:
            NotFound: the producer has no question with that id. Forgotten: it was deleted. Tampered: it does not agree with
                its receipt.
        """
        async with self.reading.look(producer):
            record = await self._found(clarification_id, producer)
        # Its round ended in another process.
        if record.asked.direct is not None and await self.ledger.owes_receipt(record):
            await self.router.receipt(clarification_id)
            async with self.reading.look(producer):
                record = await self._found(clarification_id, producer)
        if record.asked.direct is None:
            raise Forgotten(clarification_id)
        return record

    def waiting(self, clarification_id: str) -> Clarification | None:
        """Returns a question that is known here to wait, if it need not be read. None: see `find`."""
        known = self.index.get(clarification_id)
        if known is None or not known.is_open or not known.is_direct:  # else it is forgotten
            return None
        return self.ledger.recent(known.id, known.revision)

    async def by_token(self, token: str, producer: str) -> Clarification:
        """Returns a producer's clarification, asked directly or by an event, as it is now. `token`: its reply token.

        Raises:
            NotFound: the producer has none with that token in its current round. Tampered: see `find`.
        """
        async with self.reading.look(producer):
            record = await self.ledger.by_token(producer, token)
            if await self.ledger.owes_receipt(record):
                record = await self.router.receipt(record.id)
            if await self.ledger.is_tampered(record):
                raise Tampered(record.id)
            return record

    async def _found(self, clarification_id: str, producer: str) -> Clarification:
        """Returns the record of a question of this producer, also if it was forgotten."""
        try:
            record = await self.ledger.find(clarification_id)
        except BadInput:
            raise NotFound(clarification_id[:40]) from None
        if record.asked.producer != producer or not is_direct(record):
            raise NotFound(clarification_id)
        if await self.ledger.is_tampered(record):
            raise Tampered(clarification_id)
        return record

    async def until_settled(
        self, clarification_id: str, producer: str, seconds: float, *ends: Awaitable[Any]
    ) -> Clarification:
        """Returns the question once it is no longer open, at the latest after `seconds` or when one of `ends` is done."""
        # The caller's seconds are real ones: the bot's clock is not used.
        async with beside(asyncio.sleep(seconds), *ends) as waits:
            with self._woken(clarification_id) as waiter:
                while True:
                    record = await self.find(clarification_id, producer)
                    if not record.is_open or any(each.done() for each in waits):
                        return record
                    await _until_first(waiter.changed, waits)

    async def listed(
        self,
        producer: str,
        shown: Callable[[Clarification], Shown],
        *,
        session: str | None = None,
        status: Status | None = None,
        after: str | None = None,
    ) -> Listed:
        """Returns a page of a producer's questions, newest first: only of one `session` or one `status`, if given.

        `shown` returns a question as the page shows it, with its `id`; it runs in a worker thread. Each ledger is read once
        for its rows on the page. The numbers of rows read and of bytes shown are limited, so a page that is not full can have
        a next one. Lists of a session count as look-ups: hooks read them.

        Raises:
            NotFound: `after` is no question of this producer.
            TooManyLists: too many lists of this producer wait.
        """
        if session is not None:
            session = await self._text_redacted("session", plain(session), producer)
        at, token = (inf, "") if after is None else await self._place_of(after, producer)
        if status == "waiting":
            sql = _WAITING if session is None else _WAITING_OF_SESSION
        else:
            sql = _LISTED if session is None else _LISTED_OF_SESSION
        page = _ListedPage(shown, status)
        async with self.reading.list(producer, is_short=session is not None) as step:
            for _ in range(_MOST_READS):
                rows = await self.store.read(
                    sql, producer=producer, session=session, at=at, token=token, most=MOST_LISTED
                )
                if not await self._fill(page, rows, step):
                    return Listed(page.questions, page.questions[-1]["id"])
                if len(rows) < MOST_LISTED:
                    return Listed(page.questions, None)
                at, token = rows[-1]["created_at"], rows[-1]["token"]
        return Listed(page.questions, rows[-1]["clarification"])

    async def _place_of(self, clarification_id: str, producer: str) -> tuple[float, str]:
        """Returns where a question stands among the producer's.

        Raises:
            NotFound: it is no question of this producer.
        """
        row = await self._row(clarification_id)
        if row is None or row["producer"] != producer:
            raise NotFound(clarification_id)
        return row["created_at"], row["token"]

    async def _fill(self, page: _ListedPage, rows: Sequence[Row], step: Step) -> bool:
        """Adds stored questions to a page, each in a `step`. Returns False if one finds no room."""
        for row in rows:
            async with step():
                record = await self._record(row)
                if record is not None and not await asyncio.to_thread(page.add, record):
                    return False
        return True

    async def _record(self, row: Row) -> Clarification | None:
        """Returns the record of a stored question; None if it is missing, unreadable, forgotten or tampered."""
        try:
            record = await self.ledger.find(row["clarification"])
        except (NotFound, LedgerUnreadable):
            return None
        if record.asked.direct is None or await self.ledger.is_tampered(record):
            return None
        return record

    async def withdraw(self, clarification_id: str, producer: str, words: str = "") -> Clarification:
        """Withdraws a question and returns its record. A question that was closed before stays as it is.

        Raises:
            BadField: the words take too long to redact.
            NotFound, Forgotten, Tampered: see `find`. AlreadyAnswered: an answer came first.
        """
        await self.find(clarification_id, producer)
        words = await self._text_redacted("comment", words, producer)
        return await self.router.withdraw(clarification_id, words)

    async def pick_up_once(self, record: Clarification) -> None:
        """Records that a caller gets the answer, before it does, so that no other can.

        Raises:
            AlreadyPickedUp: a caller got it before, or may have.
        """
        if not await self._confirmed(record):
            raise AlreadyPickedUp(record.id)

    async def _confirmed(self, record: Clarification) -> bool:
        token = record.asked.reply_token
        return token is not None and await self.router.settle_reply(
            record.id, token, "confirmed", resolve=True
        )

    async def picked_up(self, record: Clarification) -> None:
        """Records that the asker has the answer; retries while the record cannot be written."""
        while record.delivery.reply in _NOT_HANDED_OUT:
            try:
                await self._confirmed(record)
            except (LockTimeout, LedgerUnwritable) as error:
                _log.warning("pickup not recorded yet, will retry", id=record.id, reason=str(error))
                await self.clock.sleep(_RETRY)
            else:
                return

    def owe_callback(self, tx: Tx, clarification_id: str) -> Callback | None:
        """Stores that the outcome of a question that has ended is to be posted. Returns where; None: nowhere."""
        row = tx.one(_OWE_CALLBACK, id=clarification_id)
        return None if row is None else self._callback(row)

    async def owed_callbacks(self) -> list[Callback]:
        """Returns where outcomes are still to be posted, in the order to try them: those that never failed first. Also of what
        ended while the bot that led had no callbacks configured.
        """
        ended = [
            row["clarification"]
            for row in await self.store.read(_MAY_BE_OWED)
            if await self._has_ended(row["clarification"])
        ]
        if ended:
            await self.store.write(lambda tx: [self.owe_callback(tx, each) for each in ended])
        return [self._callback(row) for row in await self.store.read(_OWED_CALLBACKS)]

    async def _has_ended(self, clarification_id: str) -> bool:
        try:
            record: Seen = self.index.get(clarification_id) or await self.ledger.find(clarification_id)
        except LedgersAway as error:
            raise StorageUnavailable(str(error)) from error
        except (NotFound, LedgerUnreadable) as error:
            _log.warning("cannot tell whether a callback is owed", id=clarification_id, reason=str(error))
            return False
        return not record.is_open

    async def callback(self, clarification_id: str) -> Callback | None:
        """Returns where a question's outcome is to be posted; None: nowhere, or no longer."""
        row = await self._row(clarification_id)
        return None if row is None or row["callback_url"] is None else self._callback(row)

    def _callback(self, row: Row) -> Callback:
        failed = row["callback_failed_at"]
        given = callback_url(row["callback_url"])
        return Callback(
            clarification=row["clarification"],
            producer=row["producer"],
            url=row["callback_url"],
            host=given.label,
            entry=self._entry(given, row["producer"]),
            failed_at=None if failed is None else datetime.fromtimestamp(failed, UTC),
        )

    async def _row(self, clarification_id: str) -> Row | None:
        """Returns a question as it was stored; None: there is none with that id."""
        return await self.store.read_one(_ROW_OF_ID, id=clarification_id)

    async def callback_failed(self, callback: Callback) -> None:
        """Stores when posting an outcome failed first."""
        if callback.failed_at is None:
            await self.store.run(
                "update questions set callback_failed_at = :now where clarification = :id and callback_url = :url",
                now=self.clock.now().timestamp(),
                id=callback.clarification,
                url=callback.url,
            )

    async def callback_done(self, callback: Callback) -> None:
        """Deletes the URL, unless there is a newer one."""
        await self.store.run(
            "update questions set callback_url = null where clarification = :id and callback_url = :url",
            id=callback.clarification,
            url=callback.url,
        )

    async def _digest(self, given: NewQuestion, asked: NewQuestion, producer: str) -> str:
        """Returns a digest of a question as it was given, before its redaction. If that changed it, no one can guess from the
        digest what was redacted. Two calls that look the same once they are redacted are not the same.
        """
        digest = await self.reading.run(producer, lambda: given.digest, LARGE if given.arguments else 0)
        if asked == given:
            return digest
        return self.token("question", producer, digest)

    def token(self, *words: str) -> str:
        """Returns what no one can guess who cannot read the database: 22 characters, the same for the same words."""
        digest = hmac.digest(self.store.secret, json.dumps(words).encode(), "sha256")
        return base64.urlsafe_b64encode(digest).decode()[:22]

    async def _opened(self, new: _New, not_joined: Collection[str] | None) -> Opened:
        """Records a question, if it was not asked before: its session, its record and its row in one transaction. `not_joined`:
        tokens of same questions that are not to be returned; None: do not look for the same question.

        Raises:
            _AskedBefore, KeyReused, TooManyOpen: nothing was stored.
        """
        most = self._most_open(new.producer)
        waiting = self.index.waiting_of(new.producer) + self._on_the_way[new.producer] - 1

        def issue(tx: Tx) -> int:
            if not all(map(tx.lock, new.locks)):
                raise LockedError
            if (before := _before(tx, new, not_joined)) is not None:
                raise _AskedBefore(before)
            if new.trouble is not None:
                raise new.trouble
            if waiting >= most:
                raise TooManyOpen(most)
            session = new.asked.session or new.token
            return issue_for(tx, Session(new.producer, session, new.agent, None, new.asked.issue))

        opened = await self.router.open(issue, new.ask, new.store)
        _log.info("question", id=opened.record.id, how=opened.how)
        return opened

    async def changes(self, ids: Collection[str], *ends: Callable[[], Awaitable[Any]]) -> AsyncGenerator[str]:
        """Yields the id of each of these questions once, then again whenever it may have changed. Ends when one of `ends` is
        done.
        """
        changed = asyncio.Event()
        async with beside(*(each() for each in ends)) as waits:
            with ExitStack() as stack:
                waiters = {name: stack.enter_context(self._woken(name, changed)) for name in ids}
                for name in ids:
                    yield name
                while not any(each.done() for each in waits):
                    await _until_first(changed, waits)
                    for name, waiter in waiters.items():
                        if waiter.record is not None:
                            waiter.record = None
                            yield name

    @contextmanager
    def _woken(self, name: str, changed: asyncio.Event | None = None) -> Iterator[_Waiter]:
        """Yields a waiter for the changes of a clarification, named by its id or its token. `changed`: to set; several waiters
        may share one.
        """
        waiter = _Waiter(changed or asyncio.Event())
        self._waiting[name].add(waiter)
        try:
            yield waiter
        finally:
            self._waiting[name].discard(waiter)
            if not self._waiting[name]:
                del self._waiting[name]

    def _most_open(self, producer: str) -> int:
        return self.producers[producer].max_open if producer in self.producers else _MOST_OPEN

    async def _redacted(self, asked: NewQuestion, producer: str) -> NewQuestion:
        """Returns a question with its producer's redactions.

        Raises:
            BadField: redacted, it would be another question, or it takes too long. TooManyOpen: too many wait for this.
        """
        redaction = self._redactions.get(producer)
        if redaction is None:
            return asked
        most = max(self._most_open(producer), _MOST_OPEN)
        if self._on_the_way[producer] > most:
            raise TooManyOpen(most)
        return await redaction.run(lambda redactor: _question_redacted(asked, redactor))

    async def _text_redacted(self, field: str, text: str, producer: str) -> str:
        redaction = self._redactions.get(producer)
        if redaction is None:
            return text
        redacted: str = await redaction.run(lambda redactor: _part_redacted(field, text, redactor))
        return redacted


def _question_redacted(asked: NewQuestion, redactor: Redactor) -> NewQuestion:
    """Returns a question with the text replaced that its producer's `redact` patterns match.

    Raises:
        BadField: redacted, it would be another question, or it takes too long.
    """
    if asked.key is not None and _part_redacted("key", asked.key, redactor) != asked.key:
        # Redacted, it could equal another question's key, and return that one's answer.
        raise BadField("key", "`key` must not contain text that your `redact` patterns replace.")
    values = asked.model_dump(mode="json")
    for name in _REDACTED:
        field = "schema" if name == "form" else name
        values[name] = _part_redacted(field, values[name], redactor, numbers=name == "arguments")
    shown = NewQuestion.restored(values)
    if asked.key is not None and shown.agent != asked.agent:  # each agent has its own keys
        raise BadField(
            "agent", "With a `key`, `agent` must not contain text that your `redact` patterns replace."
        )
    check_form(shown)
    check_arguments_schema(shown)
    differ = "{} that become the same after your `redact` patterns. Make them differ elsewhere."
    if _count_names((asked.form or {}).get("properties")) > _count_names(
        (shown.form or {}).get("properties")
    ):
        raise BadField("schema.properties", differ.format("`schema.properties` has names"))
    if len({each.value for each in shown.choices or ()}) < len(asked.choices or ()):
        raise BadField("choices", differ.format("`choices` has values"))
    if _count_names(shown.arguments) < _count_names(asked.arguments):
        raise BadField("arguments", differ.format("`arguments` has names"))
    return shown


def _part_redacted(field: str, value: Any, redactor: Redactor, *, numbers: bool = False) -> Any:
    try:
        return redactor.redacted(value, numbers=numbers)
    except PatternTooSlow as error:
        why = (
            f"`{field}` takes too long to redact with redact[{error.number}] of your [[producers]] table. Shorten the text "
            "or simplify the pattern; `clarify check` tests it."
        )
        raise BadField(field, why) from None


async def _until_first(changed: asyncio.Event, others: Sequence[asyncio.Future[Any]]) -> None:
    """Returns at a change, or when one of the others is done."""
    news = asyncio.ensure_future(changed.wait())
    try:
        await asyncio.wait({news, *others}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        news.cancel()
    changed.clear()


def _ended(asking: asyncio.Future[Any]) -> None:
    """Takes the error of work whose caller may have left, so that asyncio does not log it as never retrieved."""
    if not asking.cancelled():
        asking.exception()


@dataclass(frozen=True, kw_only=True, slots=True, repr=False)
class _New:
    """A question to be asked. `ask`: it under the rules of its route; `digest`: of the question before its redaction;
    `trouble`: why no one could answer, which refuses it if it was not asked before; `may_be_joined`: another call may have
    asked the same; `may_be_repeated`: this call may have asked it before, under its `token`; `by`: the integration that asks.
    """

    asked: NewQuestion
    ask: Ask
    at: datetime
    producer: str
    token: str
    digest: str
    trouble: BadField | None
    may_be_joined: bool
    may_be_repeated: bool
    by: Asked | None

    @property
    def agent(self) -> str:
        return self.ask.agent_id

    @property
    def locks(self) -> list[str]:
        """What no other bot may decide meanwhile: whether it was asked before, and its session's issue."""
        same = json.dumps([self.producer, self.agent, self.asked.key or self.digest])
        session = [] if self.asked.session is None else [lock_of(self.producer, self.asked.session)]
        return [f"question {same}", *session]

    def store(self, tx: Tx, opened: Opened) -> None:
        """Stores the row by which its asker finds it again.

        Raises:
            KeyReused: the same call asked before, so long ago that it is not known any more what it asked.
        """
        if opened.how == "duplicate":
            raise KeyReused
        tx.run(
            """insert into questions (token, producer, agent, session_id, key, digest, clarification, created_at, expires_at,
                 callback_url)
               values (:token, :producer, :agent, :session, :key, :digest, :clarification, :now, :expires_at, :url)""",
            token=self.token,
            producer=self.producer,
            agent=self.agent,
            session=self.ask.asked.session_id,
            key=self.asked.key,
            digest=self.digest,
            clarification=opened.record.id,
            now=self.at.timestamp(),
            expires_at=self.at.timestamp() + self.asked.timeout,
            url=self.asked.callback_url,
        )
        if self.by is not None:
            self.by.store(tx, opened.record)


def _told_by(ask: Ask, by: Asked) -> Ask:
    """Returns a question with what an integration says of it."""
    asked = ask.asked
    if asked.direct is None:
        return ask
    direct = asked.direct.model_copy(update={"about": {by.name: dict(by.about)}})
    return replace(ask, asked=asked.model_copy(update={"direct": direct}))


def _before(tx: Tx, new: _New, not_joined: Collection[str] | None) -> Row | None:
    """Returns the row of the question if it was asked before; None otherwise. See `Questions._opened`."""
    known = _known(tx, new)
    if known is None and new.may_be_repeated:
        known = _repeated(tx, new)
    if known is None and not_joined is not None:
        known = _same(tx, new, not_joined)
    return known


def _known(tx: Tx, new: _New) -> Row | None:
    """Returns the question that was asked with this key; None if there is none, or it expired more than a week ago.

    Raises:
        KeyReused: the key was used for a different question.
    """
    if new.asked.key is None:
        return None
    row = tx.one(
        "select * from questions where producer = :producer and agent = :agent and key = :key",
        producer=new.producer,
        agent=new.agent,
        key=new.asked.key,
    )
    if row is None:
        return None
    if row["expires_at"] < (new.at - KEYS_KEPT).timestamp():
        tx.run("update questions set key = null where token = :token", token=row["token"])
        return None
    if row["digest"] not in {new.digest, _GONE}:
        raise KeyReused
    return row


def _repeated(tx: Tx, new: _New) -> Row | None:
    """Returns the question that the same call asked before, or None.

    Raises:
        KeyReused: it was a different question.
    """
    row = tx.one("select * from questions where token = :token", token=new.token)
    if row is not None and row["digest"] not in {new.digest, _GONE}:
        raise KeyReused
    return row


def _same(tx: Tx, new: _New, not_joined: Collection[str]) -> Row | None:
    """Returns the newest question with the same content and timeout that has no key and has not expired; None if there is
    none, or it is one of `not_joined`.
    """
    row = tx.one(
        """select * from questions where producer = :producer and agent = :agent and digest = :digest and key is null
           and expires_at > :now and expires_at - created_at between :least and :most
           order by created_at desc limit 1""",
        producer=new.producer,
        agent=new.agent,
        digest=new.digest,
        now=new.at.timestamp(),
        least=new.asked.timeout - _SAME_TIMEOUT,
        most=new.asked.timeout + _SAME_TIMEOUT,
    )
    return None if row is None or row["token"] in not_joined else row


def _is_for_another(record: Clarification, asked: NewQuestion) -> bool:
    """Returns whether a question was asked for another person, whose claim decides who may approve it."""
    barred = record.asked.barred
    return (
        barred is not None
        and not barred.pinned
        and (asked.requested_by or "").casefold() != barred.by.casefold()
    )


def _may_be_joined(record: Clarification, asked: NewQuestion) -> bool:
    """Returns whether a call that asks the same gets this question instead of a new one."""
    return record.is_open or (asked.kind != "approval" and record.delivery.reply in _NOT_HANDED_OUT)


def _call_digest(producer: str, call: str) -> str:
    return hashlib.blake2b(json.dumps([producer, call]).encode(), digest_size=12).hexdigest()


def _count_names(value: Any) -> int:
    """Returns how many property names a value has, nested ones included."""
    if isinstance(value, dict):
        return len(value) + sum(map(_count_names, value.values()))
    return sum(map(_count_names, value)) if isinstance(value, list) else 0


async def has_callbacks(store: Store) -> bool:
    """Returns whether an outcome is still to be posted, now or when its question ends.

    Raises:
        StorageUnavailable: it cannot be read now.
    """
    return await store.read_one("select 1 from questions where callback_url is not null limit 1") is not None


def forget(tx: Tx, subject: Subject) -> None:
    """Deletes what questions said. Their keys stay, so that they are not asked again."""
    tx.many(
        """update questions set digest = :gone, callback_url = null, callback_failed_at = null
           where producer = :producer and token = :name""",
        [{"producer": producer, "name": name, "gone": _GONE} for producer, name in subject.tokens],
    )
