"""Ledgers as rows of the database: the same JSON, one row per issue.

Callers share transactions, so no transaction waits for a lock while it holds another: two bots waiting for each other
would deadlock. If an issue is locked, the caller retries in a new transaction.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Collection, Iterable, Iterator, Sequence
from contextlib import aclosing, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import structlog

from bot.errors import StorageBusy, StorageInDoubt, StorageUnavailable
from bot.storage.store import Store, until_stored
from bot.storage.tx import Row, Tx
from core.clock import Clock
from core.errors import LedgerInDoubt, LedgersAway, LedgerUnreadable, LedgerUnwritable, LockTimeout
from core.ledger import LOCK_TIMEOUT, IssueContents, Ledger, Loaded, Take, ended
from core.records import Book, OwnRecords, Raw, decode, encode

_T = TypeVar("_T")
_SHORTEST, _LONGEST = 0.002, 0.012  # seconds between attempts on a locked row
_LOOK, _DOUBT = 0.25, 1.0  # seconds between checks, and until waiting callers are told: Slack allows three
_BUSY = 1.0  # seconds that an attempt takes while another process holds SQLite's file
_PAGE = 500  # ledgers read at once at startup
_UNKNOWN = 0  # in place of an issue that only the transaction knows
CHANNEL = "clarify_ledgers"
_log = structlog.get_logger("clarify.storage")


@dataclass(eq=False)
class DatabaseLedger(Ledger):
    """A `core.ledger.Ledger` on a `Store`."""

    store: Store
    own: OwnRecords = field(default_factory=OwnRecords)
    _seen: dict[int, int] = field(default_factory=dict)
    _writing: dict[int, set[asyncio.Future[None]]] = field(default_factory=dict)
    _waiting: dict[asyncio.Event, int] = field(default_factory=dict)

    async def transact(
        self,
        issue: int | Callable[[Any], int],
        decide: Callable[[Book], _T],
        timeout: float = LOCK_TIMEOUT,
        written: Callable[[], None] | None = None,
        along: Callable[[Any, _T], None] | None = None,
    ) -> _T:
        transaction = asyncio.ensure_future(self._transact(issue, decide, timeout, written, along))
        known = issue if isinstance(issue, int) else _UNKNOWN
        try:
            while not (await asyncio.wait({transaction}, timeout=_LOOK))[0]:
                if self.store.doubt > _DOUBT:  # the caller needs an answer
                    raise LedgerInDoubt(known)
        finally:
            if not transaction.done():
                transaction.add_done_callback(partial(ended, known))  # it continues regardless
        return transaction.result()

    async def _transact(
        self,
        issue: int | Callable[[Any], int],
        decide: Callable[[Book], _T],
        timeout: float,
        written: Callable[[], None] | None,
        along: Callable[[Any, _T], None] | None,
    ) -> _T:
        def work(tx: Tx) -> tuple[_T, int, int | None]:
            number = issue if isinstance(issue, int) else issue(tx)
            row = _locked(tx, number)
            parsed = partial(self.own.parse, number)
            highest = row["highest"] if row else 0
            book = Book(number, _raw(number, row), lambda: highest, parsed, signer=self.signer)
            result, version = decide(book), None
            if book.changed:
                content = encode(book.raw)
                self.own.note(number, book.written, len(content))
                version = _write(tx, book, content, row)
            if along is not None:
                along(tx, result)
            return result, number, version

        known = issue if isinstance(issue, int) else _UNKNOWN
        with self._marked_as_ours(known):
            result, number, version = await self._locking(known, work, timeout)
            if version is not None and self._seen.get(number, 0) == version - 1:
                self._seen[number] = version  # otherwise another writer came first, and that is news
        if version is not None:
            self._wake(number)
        if written is not None:
            written()
        return result

    @contextmanager
    def _marked_as_ours(self, issue: int) -> Iterator[None]:
        done = asyncio.get_running_loop().create_future()
        all_of_them = self._writing.setdefault(issue, set())
        all_of_them.add(done)
        try:
            yield
        finally:
            done.set_result(None)
            all_of_them.discard(done)
            if not all_of_them:
                self._writing.pop(issue, None)

    async def _locking(self, issue: int, work: Callable[[Tx], _T], timeout: float) -> _T:
        """Runs `work` in a transaction; retries while the row is locked."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        deadline = began + timeout
        while True:
            try:
                return await self.store.write(work)
            except StorageBusy:
                waited = loop.time() - began
                if waited + _BUSY > timeout:  # the next attempt would take too long
                    raise LockTimeout(issue, waited, "another process") from None
            except StorageInDoubt as error:
                raise LedgerInDoubt(issue) from error
            except StorageUnavailable as error:
                raise LedgerUnwritable(issue, str(error)) from error
            except LockedError:
                if loop.time() > deadline:
                    raise LockTimeout(issue, timeout, "another bot") from None
            await asyncio.sleep(random.uniform(_SHORTEST, _LONGEST))  # noqa: S311 - so that two bots do not collide again

    async def read(self, issue: int) -> list[Raw]:
        return _records(await self._row(issue), issue)

    async def news(self, issue: int) -> list[Raw] | None:
        row = await self._row(issue)
        # The row may contain our own write before we know that it succeeded.
        if writing := self._writing.get(issue, set()) | self._writing.get(_UNKNOWN, set()):
            await asyncio.wait(writing, timeout=LOCK_TIMEOUT)
        if row is not None:
            if self._seen.get(issue, 0) >= row["version"]:
                return None
            self._seen[issue] = row["version"]
        self.own.forget(issue)
        return _records(row, issue)

    def forget(self, issue: int) -> None:
        self._seen.pop(issue, None)
        self.own.forget(issue)

    async def load(self, last_issue: int, take: Take) -> Loaded:  # noqa: ARG002 - all numbers here are ours
        troubles: list[LedgerUnreadable] = []

        def take_page(rows: list[Row]) -> None:
            for row in rows:
                try:
                    self._seen[row["issue"]] = row["version"]
                    if take(_records(row, row["issue"])):
                        self.forget(row["issue"])
                except LedgerUnreadable as error:
                    troubles.append(error)

        try:
            last, rows = 0, await self._page(0)
            while rows:
                await asyncio.to_thread(take_page, rows)
                last = rows[-1]["issue"]
                rows = await self._page(last)
            highest = await self.store.read_one("select coalesce(max(issue), 0) as issue from ledgers")
        except StorageUnavailable as error:
            return Loaded(0, [LedgersAway(None, why=str(error))])
        return Loaded(highest["issue"] if highest else 0, [*troubles])

    async def _page(self, after: int, *, archived: bool = False) -> list[Row]:
        live = "select issue, body, version from ledgers where archived = 0 and issue > :after order by issue limit :most"
        return await self.store.read(
            live.replace("archived = 0 and", "") if archived else live, after=after, most=_PAGE
        )

    async def every(
        self, *, issue: int | None = None, archived: bool = True
    ) -> AsyncGenerator[IssueContents]:
        if issue is not None:
            row = await self._row(issue)
            if row is not None:
                yield _contents(row, issue)
            return
        last = 0
        try:
            while rows := await self._page(last, archived=archived):
                for row in rows:
                    yield _contents(row, row["issue"])
                last = rows[-1]["issue"]
        except StorageUnavailable as error:
            raise LedgersAway(None, why=str(error)) from error

    async def live(self) -> list[int]:
        return await self._issues("select issue from ledgers where archived = 0 order by issue")

    async def latest(self, most: int) -> list[int]:
        return await self._issues(
            "select issue from ledgers where archived = 0 order by written desc limit :most", most=most
        )

    async def _issues(self, sql: str, **values: object) -> list[int]:
        try:
            return [row["issue"] for row in await self.store.read(sql, **values)]
        except StorageUnavailable as error:
            raise LedgersAway(None, why=str(error)) from error

    async def changes(self, clock: Clock) -> AsyncGenerator[list[int]]:  # noqa: ARG002 - uses the server's time
        """Each notice names an issue. Without any, some may have been missed."""
        since = 0
        async with aclosing(self.store.notices(CHANNEL)) as told:
            async for heard in told:
                if not heard:
                    look = partial(self._changed, since)
                    since, issues = await until_stored(
                        look, self.store.clock, _log, "looking for changed ledgers later"
                    )
                    yield self._report(issues)
                else:
                    yield self._report([int(each) for each in heard])

    async def _changed(self, since: int) -> tuple[int, list[int]]:
        """Returns the issues changed by transactions still open at `since`, and from when to look next time."""
        rows = await self.store.read(
            f"select {self.store.horizon} as until, issue, version from installation"  # noqa: S608 - a constant
            " left join ledgers on archived = 0 and written >= :since",
            since=since,
        )
        changed = (row["issue"] for row in rows if self._seen.get(row["issue"]) != row["version"])
        return rows[0]["until"], [issue for issue in changed if issue is not None]

    def _report(self, issues: list[int]) -> list[int]:
        for issue in issues:
            self._wake(issue)
        return sorted(set(issues))

    def _wake(self, issue: int) -> None:
        for event, meant in self._waiting.items():
            if meant == issue:
                event.set()

    @asynccontextmanager
    async def woken(self, issue: int) -> AsyncIterator[asyncio.Event]:
        event = asyncio.Event()
        self._waiting[event] = issue
        try:
            yield event
        finally:
            del self._waiting[event]

    async def shelve(
        self, issue: int, is_over: Callable[[list[Raw]], bool], timeout: float = LOCK_TIMEOUT
    ) -> bool:
        def work(tx: Tx) -> bool:
            row = _locked(tx, issue)
            if row is None or row["archived"] or not is_over(_records(row, issue)):
                return False
            return tx.run("update ledgers set archived = 1 where issue = :issue", issue=issue) == 1

        return await self._locking(issue, work, timeout)

    async def _row(self, issue: int) -> Row | None:
        try:
            return await self.store.read_one(
                "select body, version from ledgers where issue = :issue", issue=issue
            )
        except StorageUnavailable as error:
            raise LedgersAway(None, issue, str(error)) from error


def _contents(row: Row, issue: int) -> IssueContents:
    try:
        return IssueContents([(f"issue-{issue}", _records(row, issue))], [])
    except LedgerUnreadable as error:
        return IssueContents([], [str(error)])


def hold(tx: Tx, issues: Sequence[int]) -> None:
    """Locks the issues before the transaction takes any other lock, so that bots never wait for one while holding one."""
    for issue in sorted(issues):
        tx.lock(issue, wait=True)


def rewrite(tx: Tx, issue: int, change: Callable[[Raw], bool]) -> None:
    """Lets `change` edit a row that is held, archived or not, and writes it if `change` returns True. Skips an unreadable
    row.
    """
    row = tx.one("select body from ledgers where issue = :issue", issue=issue)
    try:
        raw = _raw(issue, row)
    except LedgerUnreadable:
        return
    if row is None or not change(raw):
        return
    tx.run(
        f"update ledgers set body = :body, version = version + 1, written = {tx.stamp} where issue = :issue",  # noqa: S608
        issue=issue,
        body=encode(raw).decode(),
    )
    tx.notify(CHANNEL, str(issue))


def leave_out_numbers(tx: Tx, count: int) -> None:
    """Skips the next `count` numbers of each issue."""
    tx.run("update ledgers set highest = highest + :count", count=count)


def note_written(tx: Tx) -> None:
    """Marks all rows as written by this transaction: they come from another database, which numbered its own."""
    tx.run(f"update ledgers set written = {tx.stamp}")  # noqa: S608 - a constant


def fill(tx: Tx, books: Iterable[Book], archived: Collection[int]) -> None:
    """Writes the ledgers of issues that have none yet. `archived`: the issues whose ledgers are archived."""
    tx.many(
        "insert into ledgers (issue, body, highest, version, written, archived)"  # noqa: S608 - a constant
        f" values (:issue, :body, :highest, 1, {tx.stamp}, :archived)",
        [
            {
                "issue": book.issue,
                "body": encode(book.raw).decode(),
                "highest": book.numbered,
                "archived": int(book.issue in archived),
            }
            for book in books
        ],
    )


class LockedError(Exception):
    """Another bot holds a lock that this part of a transaction needs. The part is tried again."""


def _locked(tx: Tx, issue: int) -> Row | None:
    """Locks an issue. Returns its row, or None if there is none yet."""
    if not tx.lock(issue):
        raise LockedError
    return tx.one("select body, highest, version, archived from ledgers where issue = :issue", issue=issue)


def _write(tx: Tx, book: Book, content: bytes, before: Row | None) -> int:
    """Writes the row. Returns its new version."""
    version = 1 if before is None else int(before["version"]) + 1
    tx.run(
        "insert into ledgers (issue, body, highest, version, written, archived)"  # noqa: S608 - a constant
        f" values (:issue, :body, :highest, :version, {tx.stamp}, 0) on conflict (issue) do update"
        " set body = excluded.body, highest = excluded.highest, version = excluded.version, written = excluded.written,"
        " archived = 0",
        issue=book.issue,
        body=content.decode(),
        highest=max(book.numbered, before["highest"] if before else 0),
        version=version,
    )
    tx.notify(CHANNEL, str(book.issue))
    return version


def _raw(issue: int, row: Row | None) -> Raw:
    """Returns the row's ledger.

    Raises:
        LedgerUnreadable: another program wrote something else into the row.
    """
    if row is None:
        return {"issueNumber": issue, "clarifications": []}
    try:
        return decode(row["body"].encode(), issue)
    except ValueError as error:
        raise LedgerUnreadable(issue, Path(f"issue-{issue}.json"), str(error), None) from None


def _records(row: Row | None, issue: int) -> list[Raw]:
    items: list[Raw] = _raw(issue, row)["clarifications"]
    return items
