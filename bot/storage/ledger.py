"""Records in the database, one row per clarification: its JSON, and the columns used for lookups.

Callers share transactions, so no transaction waits for a lock while it holds another: two bots waiting for each other
would deadlock. If a record, a session or an issue is locked, the caller retries in a new transaction.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import random
from collections import OrderedDict
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from operator import itemgetter
from typing import Any, TypeVar

import structlog

from bot.errors import StorageBusy, StorageInDoubt, StorageUnavailable
from bot.storage import changes
from bot.storage.store import Store, until_stored
from bot.storage.tx import Row, Tx, batches
from core.clarification import Ask, Clarification, parse_id
from core.clock import Clock
from core.errors import (
    LedgerInDoubt,
    LedgersAway,
    LedgerUnreadable,
    LedgerUnwritable,
    LockTimeout,
    NotFound,
    RecordUnreadable,
)
from core.ledger import (
    LOCK_TIMEOUT,
    Asking,
    Contents,
    Ledger,
    OfIssue,
    OfRecord,
    OfSession,
    Reach,
    change,
    ended,
)
from core.matching import session_asking
from core.records import Book, Raw, closed_at, dump, packed, parse, unpacked
from core.summary import Summary, packed_summary, unpacked_summary

_T = TypeVar("_T")
_SHORTEST, _LONGEST = 0.002, 0.012  # seconds between attempts on a lock
_LOOK, _DOUBT = 0.25, 1.0  # seconds between checks, and until waiting callers are told: Slack allows three
_BUSY = 1.0  # seconds that an attempt takes while another process holds SQLite's file
_PAGE = 500  # records read at once
_MOST_KNOWN = 1024  # records in memory
_LARGEST_KNOWN = 65_536  # characters of one
_LATEST = 200  # open records of a session, and closed ones, that a question is compared with
CHANNEL = "clarify_records"
_READ = "select id, body from clarifications where "
_log = structlog.get_logger("clarify.storage")


@dataclass(eq=False)
class DatabaseLedger(Ledger):
    """A `core.ledger.Ledger` on a `Store`."""

    store: Store
    clock: Clock | None = None  # by which changes are told; None: the storage's
    # By id, with the text of the row: while that is the same, nothing is parsed again, and no receipt checked. Used from
    # several threads.
    _known: OrderedDict[str, tuple[str, Clarification]] = field(default_factory=OrderedDict)
    _wrote: OrderedDict[str, int] = field(default_factory=OrderedDict)  # the revision that we wrote last
    _reported: OrderedDict[str, int] = field(
        default_factory=OrderedDict
    )  # the one of others that we told of last
    _writing: set[asyncio.Future[None]] = field(default_factory=set)
    _waiting: dict[asyncio.Event, str] = field(default_factory=dict)
    _loaded: int = 0

    async def transact(
        self,
        reach: Reach,
        decide: Callable[[Book], _T],
        timeout: float = LOCK_TIMEOUT,
        written: Callable[[], None] | None = None,
        along: Callable[[Any, _T], None] | None = None,
    ) -> _T:
        transaction = asyncio.ensure_future(self._transact(reach, decide, timeout, written, along))
        try:
            while not (await asyncio.wait({transaction}, timeout=_LOOK))[0]:
                if self.store.doubt > _DOUBT:  # the caller needs an answer
                    raise LedgerInDoubt(_what(reach))
        finally:
            if not transaction.done():
                transaction.add_done_callback(partial(ended, _what(reach)))  # it continues regardless
        return transaction.result()

    async def _transact(
        self,
        reach: Reach,
        decide: Callable[[Book], _T],
        timeout: float,
        written: Callable[[], None] | None,
        along: Callable[[Any, _T], None] | None,
    ) -> _T:
        def work(tx: Tx) -> tuple[_T, list[Clarification]]:
            book = self._book(tx, reach)
            result = decide(book)
            put, now = book.written, (self.clock or self.store.clock).now()
            for record in put:
                self._write(tx, book.read.get(record.id), record, now)
            if any(record.id not in book.read for record in put):
                _note_number(tx, book.issue, book.highest)
            if along is not None:
                along(tx, result)
            return result, put

        with self._marked_as_ours():
            result, put = await self._locking(_what(reach), work, timeout)
            for record in put:
                _note_latest(self._wrote, record.id, record.revision)
            if written is not None:
                written()
        for record in put:
            self._wake(record.id)
        return result

    @contextmanager
    def _marked_as_ours(self) -> Iterator[None]:
        done = asyncio.get_running_loop().create_future()
        self._writing.add(done)
        try:
            yield
        finally:
            self._writing.discard(done)
            done.set_result(None)

    async def _locking(self, what: str, work: Callable[[Tx], _T], timeout: float) -> _T:
        """Runs `work` in a transaction; retries while something is locked."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        deadline = began + timeout
        while True:
            try:
                return await self.store.write(work)
            except StorageBusy:
                waited = loop.time() - began
                if waited + _BUSY > timeout:  # the next attempt would take too long
                    raise LockTimeout(what, waited, "another process") from None
            except StorageInDoubt as error:
                raise LedgerInDoubt(what) from error
            except StorageUnavailable as error:
                raise LedgerUnwritable(what, str(error)) from error
            except LockedError:
                if loop.time() > deadline:
                    raise LockTimeout(what, timeout, "another bot") from None
            await asyncio.sleep(random.uniform(_SHORTEST, _LONGEST))  # noqa: S311 - so that two bots do not collide again

    def _book(self, tx: Tx, reach: Reach) -> Book:
        """Returns what a decision reads, with its locks. What it writes is locked when it is written (`_write`)."""
        match reach:
            case OfRecord(clarification):
                _lock(tx, clarification)
                rows = tx.rows(f"{_READ} id = :id", id=clarification)
                return Book(map(self._parsed, rows), signer=self.signer)
            case OfSession(producer, session, since):
                _lock(tx, f"session {producer} {session}")
                of_session = f"{_READ} producer = :producer and session = :session and"
                same = {"producer": producer, "session": session}
                rows = tx.rows(f"{of_session} live = 1", **same)
                rows += tx.rows(
                    f"{of_session} live = 0 and closed >= :since", since=since.timestamp(), **same
                )
                return self._read_book(sorted(rows, key=_number))
            case OfIssue(issue):
                _lock(tx, f"issue {issue}")
                return self._read_book(
                    tx.rows(f"{_READ} issue = :issue order by number", issue=issue), tx, issue
                )
            case Asking(of, asks):
                issue = of(tx) if callable(of) else of
                sessions = [session_asking(ask) for ask in asks]
                for producer, session in sorted(set(sessions)):
                    _lock(tx, f"session {producer or issue} {session}")
                _lock(tx, f"issue {issue}")
                found: dict[str, Row] = {}
                for known, some in itertools.groupby(zip(sessions, asks, strict=True), key=itemgetter(0)):
                    rows = _asked_before(tx, issue, [ask for _, ask in some], *known)
                    found |= {row["id"]: row for row in rows}
                return self._read_book(sorted(found.values(), key=_number), tx, issue)

    def _read_book(self, rows: Sequence[Row], tx: Tx | None = None, issue: int = 0) -> Book:
        records = [record for row in rows if (record := self._readable(row)) is not None]
        highest = 0 if tx is None else _highest(tx, issue)
        return Book(records, issue=issue, highest=highest, signer=self.signer)

    def _write(self, tx: Tx, before: Clarification | None, record: Clarification, now: datetime) -> None:
        """Writes a record, if it is still as it was read.

        Raises:
            LockedError: it is not, or another bot is about to change it.
        """
        _lock(tx, record.id)
        body = packed(dump(record))
        if not write(tx, record, body, None if before is None else before.revision):
            raise LockedError
        what = change(before, record)
        changes.note(tx, record.id, what, now)
        if what and self.owes is not None:
            self.owes(tx, record)
        self._know(record, body)

    def _know(self, record: Clarification, body: str) -> None:
        if len(body) > _LARGEST_KNOWN:
            self._known.pop(record.id, None)
            return
        self._known[record.id] = body, record
        while len(self._known) > _MOST_KNOWN:
            self._known.popitem(last=False)

    def _parsed(self, row: Row) -> Clarification:
        """Returns the record of a row.

        Raises:
            LedgerUnreadable: somebody else wrote into it.
        """
        name, body = row["id"], row["body"]
        known = self._known.get(name)
        if known is not None and known[0] == body:
            return known[1]
        record = record_of(body)
        if record is None or record.id != name:
            self._tell_of_unreadable(name)
            raise RecordUnreadable(name, parse_id(name)[0])
        self._know(record, body)
        return record

    def _readable(self, row: Row) -> Clarification | None:
        try:
            return self._parsed(row)
        except LedgerUnreadable:
            return None  # `found_unreadable` tells

    async def find(self, clarification_id: str) -> Clarification:
        parse_id(clarification_id)
        rows = await self._rows("id = :id", few=True, id=clarification_id)
        if not rows:
            raise NotFound(clarification_id)
        return self._parsed(rows[0])

    def recent(self, clarification_id: str, revision: int) -> Clarification | None:
        _, record = self._known.get(clarification_id, (None, None))
        return record if record is not None and record.revision == revision else None

    async def by_token(self, producer: str, token: str) -> Clarification:
        where = "producer = :producer and token = :token order by issue desc, number desc limit 1"
        rows = await self._rows(where, few=True, producer=producer, token=token)
        if not rows:
            raise NotFound(token[:40])
        return self._parsed(rows[0])

    async def news(self, clarification_id: str) -> Clarification | None:
        record = await self.find(clarification_id)
        if self._writing:  # the row may contain our own write before we know that it succeeded
            await asyncio.wait(set(self._writing), timeout=LOCK_TIMEOUT)
        return record if self._wrote.get(clarification_id, 0) < record.revision else None

    async def read(self, issue: int) -> Contents:
        return await self._contents(await self._rows("issue = :issue order by number", issue=issue))

    async def _contents(self, rows: Sequence[Row]) -> Contents:
        """Returns the records of many rows. In a thread, unless they are few."""

        def contents() -> Contents:
            found = Contents([], [])
            for row in rows:
                record = self._readable(row)
                if record is None:
                    found.unreadable.append(row["id"])
                else:
                    found.records.append(record)
            return found

        return contents() if len(rows) <= 1 else await asyncio.to_thread(contents)

    async def load(self) -> AsyncGenerator[list[Summary]]:
        (row,) = await self._query(f"select {self.store.horizon} as until")
        self._loaded = row["until"]  # what is written from here on is news
        async for rows in self._pages("select id, summary from clarifications where live = 1"):
            yield [known for row in rows if (known := self._summarized(row)) is not None]

    def _summarized(self, row: Row) -> Summary | None:
        try:
            return unpacked_summary(row["summary"])
        except ValueError:
            self._tell_of_unreadable(row["id"])
            return None

    def _tell_of_unreadable(self, clarification: str) -> None:
        if self.found_unreadable is not None:
            self.found_unreadable(clarification)

    async def every(
        self,
        *,
        issue: int | None = None,
        since: datetime | None = None,
        waiting: bool = False,
        after: tuple[int, int] = (0, 0),
    ) -> AsyncGenerator[Contents]:
        where, values = ["live = 1" if waiting else "1 = 1"], dict[str, Any]()
        if issue is not None:
            where.append("issue = :of")
            values["of"] = issue
        if since is not None:
            where.append("(closed is null or closed >= :since)")
            values["since"] = since.timestamp()
        async for rows in self._pages(_READ + " and ".join(where), after, **values):
            yield await self._contents(rows)

    async def _pages(
        self, which: str, last: tuple[int, int] = (0, 0), **values: Any
    ) -> AsyncGenerator[list[Row]]:
        """Yields the rows of a query, in the order of issues and numbers."""
        page = f"{which} and (issue, number) > (:issue, :number) order by issue, number limit :most"
        while rows := await self._query(page, issue=last[0], number=last[1], most=_PAGE, **values):
            yield rows
            last = parse_id(rows[-1]["id"])

    async def latest(self, most: int) -> list[Clarification]:
        rows = await self._rows("1 = 1 order by written desc, id desc limit :most", most=most)
        return (await self._contents(rows)).records

    async def _rows(self, where: str, *, few: bool = False, **values: object) -> list[Row]:
        return await self._query(_READ + where, few=few, **values)

    async def _query(self, sql: str, *, few: bool = False, **values: object) -> list[Row]:
        try:
            return await (self.store.find if few else self.store.read)(sql, **values)
        except StorageUnavailable as error:
            raise LedgersAway(None, why=str(error)) from error

    async def changes(self) -> AsyncGenerator[list[str]]:
        """Each notice names a record and its revision. Without any, some may have been missed."""
        since = self._loaded
        async with aclosing(self.store.notices(CHANNEL)) as told:
            async for heard in told:
                if heard:
                    news = [(name, int(revision)) for name, revision in map(str.split, heard)]
                else:
                    look = partial(self._changed, since)
                    since, news = await until_stored(
                        look, self.store.clock, _log, "cannot look for changed records yet, will retry"
                    )
                yield self._report(news)

    async def _changed(self, since: int) -> tuple[int, list[tuple[str, int]]]:
        """Returns the records changed by transactions still open at `since`, and from when to look next time."""
        rows = await self.store.read(
            f"select {self.store.horizon} as until, clarifications.id as id, revision from installation"  # noqa: S608 - a constant
            " left join clarifications on written >= :since",
            since=since,
        )
        return rows[0]["until"], [(row["id"], row["revision"]) for row in rows if row["id"] is not None]

    def _report(self, news: Sequence[tuple[str, int]]) -> list[str]:
        found = set[str]()
        for name, revision in news:
            if max(self._wrote.get(name, 0), self._reported.get(name, 0)) < revision:
                found.add(name)
                _note_latest(self._reported, name, revision)
        for name in found:
            self._wake(name)
        return sorted(found)

    def _wake(self, clarification: str) -> None:
        for event, meant in self._waiting.items():
            if meant == clarification:
                event.set()

    @asynccontextmanager
    async def woken(self, clarification_id: str) -> AsyncIterator[asyncio.Event]:
        event = asyncio.Event()
        self._waiting[event] = clarification_id
        try:
            yield event
        finally:
            del self._waiting[event]


def _note_latest(known: OrderedDict[str, int], name: str, revision: int) -> None:
    known[name] = revision
    known.move_to_end(name)
    while len(known) > _MOST_KNOWN:
        known.popitem(last=False)


def record_of(body: str) -> Clarification | None:
    """Returns the record of a row's text; None: it cannot be read."""
    try:
        return parse(unpacked(body))
    except ValueError:
        return None


def as_stored(tx: Tx, record: Clarification) -> Clarification:
    """Returns a record as its row is now; without a row, as it is."""
    row = tx.one(
        "select body from clarifications where id = :id and revision <> :revision",
        id=record.id,
        revision=record.revision,
    )
    return record if row is None else record_of(row["body"]) or record


def write(tx: Tx, record: Clarification, body: str, before: int | None) -> bool:
    """Writes a record, if its row still has the revision `before` (None: there is none yet). Returns whether it did."""
    producer, session = session_asking(record)
    closed, asked = closed_at(record), record.asked
    issue, number = parse_id(record.id)
    changed = tx.run(
        _INSERT.format(stamp=tx.stamp) if before is None else _UPDATE.format(stamp=tx.stamp),
        id=record.id,
        issue=issue,
        number=number,
        producer=producer,
        session=session,
        token=asked.reply_token,
        event=asked.event_id,
        live=int(record.needs_something),
        closed=None if closed is None else closed.timestamp(),
        revision=record.revision,
        summary=packed_summary(record),
        body=body,
        before=before,
    )
    if changed:
        tx.notify(CHANNEL, f"{record.id} {record.revision}")
    return changed == 1


_INSERT = (
    "insert into clarifications"
    " (id, issue, number, producer, session, token, event, live, closed, revision, summary, body, written) values (:id,"
    " :issue, :number, :producer, :session, :token, :event, :live, :closed, :revision, :summary, :body, {stamp})"
    " on conflict (id) do nothing"
)
_UPDATE = (
    "update clarifications set producer = :producer, session = :session, token = :token, event = :event, live = :live,"
    " closed = :closed, revision = :revision, summary = :summary, body = :body,"
    " written = case when written > {stamp} then written else {stamp} end where id = :id and revision = :before"
)


def tell(tx: Tx, clarification: str, what: str, now: datetime) -> None:
    """Has consumers of the feed hear of a record that is not written. Wake the feed once this is stored."""
    changes.note(tx, clarification, what, now)
    tx.notify(CHANNEL, f"{clarification} 0")  # a revision that everyone knows


def hold(tx: Tx, clarifications: Iterable[str]) -> None:
    """Locks records before the transaction takes any other lock, so that bots never wait for one while holding one."""
    for each in sorted(clarifications):
        tx.lock(each, wait=True)


def rewrite(
    tx: Tx, clarifications: Iterable[str], edit: Callable[[Raw], Raw], what: str, now: datetime
) -> int:
    """Lets `edit` change the JSON of rows that are held; the feed tells `what` that means. Returns how many it changed."""
    changed = 0
    for some in batches(clarifications):
        for row in tx.rows("select id, body, revision from clarifications where id in :some", some=some):
            try:
                raw = unpacked(row["body"])
            except ValueError:
                raw = {"id": row["id"]}
            if (after := edit(raw)) == raw:
                continue
            after = after | {"revision": row["revision"] + 1}
            record = parse(after)
            if record is not None and record.id == row["id"]:
                write(tx, record, packed(after), row["revision"])
                changes.note(tx, record.id, what, now)
                changed += 1
    return changed


def naming(tx: Tx, user: str, names: Iterable[str] = ()) -> list[str]:
    """Returns the ids of the records in which a Slack user id stands, or one of the `names` that agents are told instead."""
    sql = "select id, body from clarifications where body like :one order by issue, number"
    values = [f'{user}"', *(json.dumps(each, ensure_ascii=False) for each in names)]
    rows = ((row, value) for value in values for row in tx.rows(sql, one=f"%{value}%"))
    return list(dict.fromkeys(row["id"] for row, value in rows if value in row["body"]))


def delete(tx: Tx, clarifications: Iterable[str], over_before: float) -> int:
    """Deletes records that were over before then (seconds since 1970), with all that hangs on them (`on delete cascade`), but
    not those that another bot is about to change. Returns how many. Their numbers stay used.
    """
    tx.run(  # with SQLite, what is written next counts on from here (`Tx.stamp`)
        """insert into counters (name, value) select 'written', coalesce(max(written), 0) from clarifications where 1 = 1
           on conflict (name) do update set value = excluded.value where counters.value < excluded.value"""
    )
    return tx.run(
        "delete from clarifications where id in :ids and live = 0 and closed < :over_before",
        ids=[each for each in sorted(clarifications) if tx.lock(each)],
        over_before=over_before,
    )


def leave_out_numbers(tx: Tx, count: int) -> None:
    """Skips the next `count` numbers of each issue, also of those that have none yet."""
    tx.run("update issues set highest = highest + :count", count=count)
    tx.run(
        """insert into counters (name, value) values ('number', :count)
           on conflict (name) do update set value = counters.value + :count""",
        count=count,
    )


def fill(tx: Tx, records: Iterable[Clarification], highest: Mapping[int, int]) -> None:
    """Writes records of a new database, which nobody is told of. `highest`: the highest number that was given out, by
    issue.
    """
    for record in records:
        write(tx, record, packed(dump(record)), None)
    for issue, number in highest.items():
        _note_number(tx, issue, number)


def _note_number(tx: Tx, issue: int, highest: int) -> None:
    """Stores an issue's highest number, which stays whatever is deleted: no number is used twice."""
    tx.run(
        """insert into issues (issue, highest) values (:issue, :highest)
           on conflict (issue) do update set highest = excluded.highest where issues.highest < excluded.highest""",
        issue=issue,
        highest=highest,
    )


def _highest(tx: Tx, issue: int) -> int:
    row = tx.one(
        """select coalesce((select highest from issues where issue = :issue),
             (select value from counters where name = 'number'), 0) as highest""",
        issue=issue,
    )
    return 0 if row is None else int(row["highest"])


def _asked_before(tx: Tx, issue: int, asks: Sequence[Ask], producer: str, session: str) -> list[Row]:
    """Returns the rows that questions of a session may repeat or continue."""
    if not producer:
        return tx.rows(
            f"{_READ} producer = '' and issue = :issue and (session = :session or event in :events)"
            " order by number desc limit :most",
            issue=issue,
            session=session,
            events=[ask.asked.event_id for ask in asks],
            most=_LATEST,
        )
    same = {"producer": producer, "session": session, "most": _LATEST}
    with_token = f"{_READ} producer = :producer and token in :tokens and session = :session limit :most"
    found = tx.rows(with_token, tokens=[ask.asked.reply_token for ask in asks], **same)
    if any(ask.asked.direct is None for ask in asks):  # else they continue nothing
        # The ids first: what is sorted has no texts.
        for which in (
            "closed is null order by issue desc, number desc",
            "closed is not null order by closed desc",
        ):
            latest = (
                f"select id from clarifications where producer = :producer and session = :session and {which}"  # noqa: S608 - constants
            )
            found += tx.rows(f"{_READ} id in ({latest} limit :most)", **same)
    return found


def _number(row: Row) -> tuple[int, int]:
    return parse_id(row["id"])


class LockedError(Exception):
    """Another bot is about to change it."""


def _lock(tx: Tx, name: str) -> None:
    if not tx.lock(name):
        raise LockedError


def _what(reach: Reach) -> str:
    """Returns a name for what is locked, for errors."""
    match reach:
        case OfRecord(clarification):
            return clarification
        case OfSession(_, session, _):
            return f"session {session}"
        case OfIssue(issue):
            return f"issue {issue}"
        case Asking(issue, _):
            return "a new question" if callable(issue) else f"issue {issue}"
