"""Ledgers: the clarifications of each issue. `Ledger` is the port, `FileLedger` keeps them in files.

The files are shared with other implementations of the Clarification Protocol (`core.ledgerfiles`, `core.archive`).
"""

from __future__ import annotations

import asyncio
import heapq
import logging
import threading
import time
import weakref
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, aclosing
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeVar

from watchfiles import watch

from core.archive import FIRST_RESERVED
from core.clarification import Clarification
from core.clock import Clock
from core.errors import (
    ClarifyError,
    LedgersAway,
    LedgerUnreadable,
    LedgerUnwritable,
    LockTimeout,
    NotFound,
)
from core.files import DEBOUNCE, STEP, Changes, read_regular, reason
from core.ledgerfiles import Check, LedgerFiles, State, archived_name, state_of
from core.records import (
    Book,
    OwnRecords,
    Raw,
    Seals,
    Signer,
    decode,
    encode,
    identity,
    speaks_for_a_person,
    unsigned_rounds,
)

_T = TypeVar("_T")
_log = logging.getLogger("clarify.ledger")

LOCK_TIMEOUT = 2.0  # seconds
_RETRY = 1.0  # seconds
_AT_ONCE = 200  # ledgers read in one visit to a thread
_STILL_THERE = 2000  # milliseconds


class Written(NamedTuple):
    """The issues whose ledgers may have changed, and the ledgers that were quarantined because they did not parse."""

    issues: list[int]
    set_aside: list[LedgerUnreadable]


class Loaded(NamedTuple):
    """The highest issue number, archived or not, and why some ledgers could not be read."""

    highest: int
    troubles: list[ClarifyError]


class IssueContents(NamedTuple):
    """Everything stored of one issue. `parts`: the name and records of each of its files, the live one first; `problems`: in
    words, what cannot be read.
    """

    parts: list[tuple[str, list[Any]]]
    problems: list[str]


Take = Callable[[list[Raw]], bool]


class History(Protocol):
    """What else is known of decisions, besides the ledgers."""

    async def known(self, records: Sequence[Clarification]) -> Callable[[Clarification], bool]:
        """Returns a test of these records, and of later versions of them: whether one lacks what was decided, or has another
        receipt. The test is as of now, so an older version may fail it.
        """


class Ledger(Protocol):
    """The records of issues, each changed under its lock. Archived ledgers can be read; they are restored before they are
    written. `seals` checks records, blocking; `own`: what this process wrote; `receipts` signs receipts (None: there is no
    key in this process); `history`: what else shows that a record was changed, if anything.
    """

    seals: Seals
    own: OwnRecords
    receipts: Signer | None = None
    history: History | None = None

    async def transact(
        self,
        issue: int,
        decide: Callable[[Book], _T],
        timeout: float = LOCK_TIMEOUT,
        written: Callable[[], None] | None = None,
    ) -> _T:
        """Run `decide` on the records of `issue` under its lock, write what it put, return what it returned.

        `decide` runs in a worker thread; if it raises, nothing is written. Once started, it finishes even if the caller is
        cancelled; `written` is called in the event loop if it succeeded.

        Raises:
            LedgersAway: the ledgers are missing; `decide` did not run.
            LockTimeout: not locked within `timeout` seconds, and `decide` will not run; or the lock was lost, as after a
                long suspend, and nothing was written.
            LedgerUnreadable: the ledger does not parse and was quarantined; the next call starts a new one.
            LedgerUnwritable: the disk refused; the ledger is unchanged.
        """

    async def read(self, issue: int) -> list[Raw]:
        """The raw records of `issue` as last written, without its lock; none if there is no ledger.

        Raises:
            LedgerUnreadable, LockTimeout: it did not parse, even under the lock.
        """

    async def find(self, clarification_id: str, issue: int) -> Clarification:
        """One record, read without the lock.

        Raises:
            NotFound: no such record.
        """
        for item in await self.read(issue):
            if identity(item) == clarification_id and (record := self.own.parse(issue, item)):
                return record
        raise NotFound(clarification_id)

    async def load(self, last_issue: int, take: Take) -> Loaded:
        """On start, call `take` with the records of every live ledger, in a worker thread. It returns whether `changes` must
        report the ledger again.

        `last_issue`: the last reserved number that was given out, according to the storage.
        """

    async def live(self) -> list[int]:
        """The issues of all ledgers that are not archived, sorted.

        Raises:
            LedgersAway: they are missing.
        """

    async def latest(self, most: int) -> list[int]:
        """The issues whose live ledgers were written last, the latest first; raises LedgersAway."""

    def every(self, *, issue: int | None = None, archived: bool = True) -> AsyncGenerator[IssueContents]:
        """Each issue once, sorted, or only `issue`; includes ledgers that are archived meanwhile.

        Raises:
            LedgersAway: they are missing.
        """

    async def news(self, issue: int) -> list[Raw] | None:
        """The raw records, or None if the ledger is unchanged since this process last wrote it or called `news`.

        Raises:
            LedgerUnreadable, LockTimeout: as `read`.
        """

    def forget(self, issue: int) -> None:
        """Have `news` report it again."""

    def changes(self, clock: Clock) -> AsyncGenerator[Written]:
        """What other processes write while it is iterated, beginning with what they wrote before."""

    def woken(self, issue: int) -> AbstractAsyncContextManager[asyncio.Event]:
        """An event that is set whenever any process writes the ledger. Notices can be lost, so look regularly too."""

    async def shelve(
        self, issue: int, is_over: Callable[[list[Raw]], bool], timeout: float = LOCK_TIMEOUT
    ) -> bool:
        """Archive a ledger if `is_over(records)` under its lock; returns whether it was archived.

        Raises:
            LockTimeout, LedgerUnreadable, LedgerUnwritable: as `transact`; it was not archived.
        """

    async def verify_answer(self, record: Clarification) -> bool:
        """Whether a record's answer comes from the person it names; False: another program put the name there."""
        return not speaks_for_a_person(record) or await self._checked(self.seals.verify_answer, record)

    async def verify_holder(self, record: Clarification) -> bool:
        """Whether it has a holder that we wrote; False if it has none, or only another program says so."""
        return await self._checked(self.seals.verify_holder, record)

    async def verify_question(self, record: Clarification) -> bool | None:
        """Whether a record's question, the address of its reply and its decision are as we wrote them; None: unknown."""
        return await self._checked(self.seals.verify_question, record)

    async def is_tampered(self, record: Clarification) -> bool:
        """Whether another program changed a record after it was settled: then no one may get it as an answer."""
        return record.id in await self.tampered_among([record])

    async def tampered_among(self, records: Sequence[Clarification]) -> frozenset[str]:
        """Returns the ids of records that another program changed after they were settled."""
        others = [each for each in records if not self.seals.is_verified(each)]
        if not others:
            return frozenset()
        if len(others) == 1:
            found = {each.id for each in others if await self._checked(self.seals.is_tampered, each)}
        else:
            found = await asyncio.to_thread(
                lambda: {each.id for each in others if self.seals.is_tampered(each)}
            )
        if self.history is None:
            return frozenset(found)
        settled = [each for each in others if each.id not in found and not each.is_open]
        if not settled:
            return frozenset(found)
        contradicts = await self.history.known(settled)
        for record in filter(contradicts, settled):
            try:  # what was read before the last change is only old
                now = await self.find(record.id, record.issue_number)
            except ClarifyError:  # it is archived
                now = record
            if contradicts(now):
                found.add(record.id)
        return frozenset(found)

    async def is_behind(self, record: Clarification) -> bool:
        """Whether a record lacks what people did, as far as that is known."""
        return self.history is not None and (await self.history.known([record]))(record)

    async def owes_receipt(self, record: Clarification) -> bool:
        """Whether a round of a record ended without a receipt, and this process can sign it."""
        receipts = self.receipts
        rounds = [then for _, then in unsigned_rounds(record)]
        if not record.is_open and record.asked.receipt is None:
            rounds.append(record)
        if (
            receipts is None
            or not rounds
            or not await asyncio.to_thread(lambda: any(map(receipts.owes, rounds)))
        ):
            return False
        # One that had a receipt, which another program removed, gets no other.
        return not (await self.is_behind(record) or await self.is_tampered(record))

    async def _checked(self, check: Callable[[Clarification], _T], record: Clarification) -> _T:
        """Run a check of seals, in a thread if the key must be read first or there is much to check."""
        is_quick = self.seals.is_ready and not record.asked.arguments and record.asked.receipt is None
        if self.seals.is_verified(record) or is_quick:
            return check(record)
        return await asyncio.to_thread(check, record)

    async def are_there(self) -> bool:
        """Whether the ledgers can be reached."""

    async def trouble(self, *, thorough: bool = False) -> str | None:
        """Why no ledger can be written now; None if no reason is known. `thorough` tries to write."""

    def close(self) -> None:
        """Finish the running work and accept no more. Blocking."""


class FileLedger(Ledger):
    """Ledgers in `files`, with blocking work in a thread pool. While the folder is missing, every call raises LedgersAway."""

    def __init__(
        self,
        directory: Path,
        workers: int = 16,
        *,
        mode: int = 0o600,
        expected: bool = False,
        signs: bool = True,
        shell_consents: bool = False,
    ) -> None:
        """`mode`, `expected`: as of `LedgerFiles`. `signs`: whether answers written here may speak for a person;
        `shell_consents`: whether consent given in the shell counts.
        """
        self.files = LedgerFiles(directory, mode=mode, expected=expected)
        self.seals = Seals(self.files.private, shell=shell_consents, signs=signs)
        self.own = OwnRecords()
        self._pool = ThreadPoolExecutor(workers, thread_name_prefix="ledger")
        self._turns: weakref.WeakValueDictionary[int, asyncio.Lock] = weakref.WeakValueDictionary()
        self._seen: dict[int, State] = {}
        self._folder = Changes(directory)

    async def transact(
        self,
        issue: int,
        decide: Callable[[Book], _T],
        timeout: float = LOCK_TIMEOUT,
        written: Callable[[], None] | None = None,
    ) -> _T:
        deadline = time.monotonic() + timeout
        turn = self._turns.setdefault(issue, asyncio.Lock())
        try:
            async with asyncio.timeout(timeout):
                await turn.acquire()
        except TimeoutError:
            raise LockTimeout(issue, timeout, "this process") from None
        work = asyncio.get_running_loop().run_in_executor(
            self._pool, self._transact, issue, decide, deadline, timeout
        )
        work.add_done_callback(lambda _: turn.release())
        if written is not None:
            tell = written
            work.add_done_callback(lambda done: None if done.cancelled() or done.exception() else tell())
        try:
            return await asyncio.shield(work)
        finally:
            if not work.done():
                work.add_done_callback(partial(ended, issue))

    def _transact(self, issue: int, decide: Callable[[Book], _T], deadline: float, timeout: float) -> _T:
        left = deadline - time.monotonic()
        if left <= 0:
            raise LockTimeout(issue, timeout, "other work of this process")
        self.files.require(issue)
        with self.files.hold(issue, timeout, left) as check:
            before = self.files.state(issue)
            numbers = self.files.numbers
            book = Book(
                issue,
                self.files.open(issue, check),
                partial(numbers.highest, issue),
                self.seals,
                partial(self.own.parse, issue),
                receipts=self.receipts,
            )
            result = decide(book)
            if book.changed:
                content = encode(book.raw)
                self._replace(issue, content, before, check)
                self.own.note(issue, book.written, len(content))
                if before is None:
                    self.files.archive.drop(issue, book.raw)
                if book.numbered:
                    numbers.note(issue, book.numbered)
            return result

    def _replace(self, issue: int, content: bytes, before: State | None, check: Check) -> None:
        if before is None and issue >= FIRST_RESERVED:
            try:
                self.files.numbers.give_out(
                    issue
                )  # first: after a kill, a ledger without it would be ignored
            except OSError as error:
                raise LedgerUnwritable(issue, reason(error)) from error
        with self.files.replacing(issue, self.files.path(issue), content) as draft:
            check()  # as late as possible: writing and syncing the draft took time
            if before in {None, self._seen.get(issue)}:
                # Our own write is no news, unless another process had written before us.
                self._seen[issue] = state_of(draft)

    async def read(self, issue: int) -> list[Raw]:
        return await self._run(self.read_now, issue)

    def read_now(self, issue: int) -> list[Raw]:
        """`read`, blocking."""
        try:
            return _records(self.files.read(issue))
        except ValueError:
            # Another process is overwriting it in place: read it under the lock, where it parses or is quarantined.
            deadline = time.monotonic() + LOCK_TIMEOUT
            book: Book = self._transact(issue, lambda book: book, deadline, LOCK_TIMEOUT)
            return _records(book.raw)

    async def _run(self, work: Callable[..., _T], *args: Any) -> _T:
        return await asyncio.get_running_loop().run_in_executor(self._pool, work, *args)

    async def news(self, issue: int) -> list[Raw] | None:
        return await self._run(self._news, issue)

    def _news(self, issue: int) -> list[Raw] | None:
        state = self.files.state(issue)
        if state is not None and self._seen.get(issue) == state:
            return None
        self.own.forget(issue)
        items = self.read_now(issue)
        if state is not None:
            self._seen[issue] = state
        return items

    def _is_news(self, issue: int) -> bool:
        return self.files.state(issue) != self._seen.get(issue)

    def forget(self, issue: int) -> None:
        self._seen.pop(issue, None)
        self.own.forget(issue)

    async def load(self, last_issue: int, take: Take) -> Loaded:
        return await asyncio.to_thread(self.load_now, last_issue, take)

    def load_now(self, last_issue: int, take: Take) -> Loaded:
        """`load`, blocking."""
        troubles: list[ClarifyError] = []
        try:
            self.files.claim(last_issue)
        except OSError as error:
            troubles.append(LedgerUnwritable(last_issue, reason(error)))
        except LedgersAway as error:
            return Loaded(0, [error])
        issues = list(self.files.issues())
        for issue in issues:
            try:
                self.forget(issue)
                if take(self._news(issue) or []):
                    self.forget(issue)
            except ClarifyError as error:
                troubles.append(error)
        return Loaded(max([*issues, *self.files.archive.issues()], default=0), troubles)

    async def shelve(
        self, issue: int, is_over: Callable[[list[Raw]], bool], timeout: float = LOCK_TIMEOUT
    ) -> bool:
        shelved = await self._run(self.files.shelve, issue, is_over, timeout)
        if shelved:
            self.forget(issue)
        return shelved

    async def live(self) -> list[int]:
        return await asyncio.to_thread(lambda: sorted(self.files.issues()))

    async def latest(self, most: int) -> list[int]:
        return await asyncio.to_thread(self._latest, most)

    def _latest(self, most: int) -> list[int]:
        states = ((self.files.state(issue), issue) for issue in self.files.issues())
        written = ((state[0], issue) for state, issue in states if state is not None)  # else archived now
        return [issue for _, issue in heapq.nlargest(most, written)]

    async def every(
        self, *, issue: int | None = None, archived: bool = True
    ) -> AsyncGenerator[IssueContents]:
        there, old, problems = await asyncio.to_thread(self.files.everywhere, archived=archived)
        if problems:
            yield IssueContents([], problems)
        numbers = sorted(there | old.keys()) if issue is None else [issue]
        for at in range(0, len(numbers), _AT_ONCE):
            some = numbers[at : at + _AT_ONCE]
            for kept in await asyncio.to_thread(self._read_wholes, some, old, archived=archived):
                yield kept

    def _read_wholes(
        self, issues: Sequence[int], old: Mapping[int, Sequence[Path]], *, archived: bool
    ) -> list[IssueContents]:
        return [self._read_whole(each, old.get(each, ()), archived=archived) for each in issues]

    def _read_whole(self, issue: int, old: Sequence[Path], *, archived: bool) -> IssueContents:
        kept = IssueContents([], [])
        try:
            kept.parts.append((self.files.path(issue).name, self.read_now(issue)))
        except ClarifyError as error:
            kept.problems.append(str(error))
        usual = self.files.archive.path(issue)  # it may have been archived since the folder was listed
        for path in sorted({*old, usual}) if archived else ():
            name = archived_name(path)
            try:
                kept.parts.append((name, _records(decode(read_regular(path), issue))))
            except FileNotFoundError:
                continue
            except (OSError, ValueError) as error:
                why = (error.strerror if isinstance(error, OSError) else None) or str(error)
                kept.problems.append(f"The archived ledger {name} cannot be read ({why}).")
        return kept

    async def are_there(self) -> bool:
        return await asyncio.to_thread(self.files.is_there)

    async def trouble(self, *, thorough: bool = False) -> str | None:
        return await asyncio.to_thread(self.files.trouble, thorough=thorough)

    def woken(self, issue: int) -> AbstractAsyncContextManager[asyncio.Event]:
        return self._folder.of(self.files.path(issue).name)

    async def changes(self, clock: Clock) -> AsyncGenerator[Written]:
        while True:
            while (watched := await asyncio.to_thread(self.files.identity)) is None:
                await clock.sleep(_RETRY)
            async with aclosing(self._changes_while(watched)) as changes:
                async for written in changes:
                    yield written
            _log.warning("the ledger folder is missing or was replaced")

    async def _changes_while(self, watched: tuple[int, int]) -> AsyncGenerator[Written]:
        """Ends when the folder at the path is not the `watched` one any more: a new folder gives no events."""
        loop = asyncio.get_running_loop()
        found: asyncio.Queue[Written | Exception | None] = asyncio.Queue()

        def tell(what: Written | Exception | None) -> None:
            loop.call_soon_threadsafe(found.put_nowait, what)

        stop = _Stop()
        thread = threading.Thread(
            target=self._watch, args=(watched, stop, tell), name="ledger watch", daemon=True
        )
        thread.start()
        try:
            await asyncio.to_thread(stop.asked.wait)  # from here on the system queues events
            yield await asyncio.to_thread(self._changed_until_now)
            while isinstance(what := await found.get(), Written):
                yield what
            if what is not None:
                raise what
        except (FileNotFoundError, LedgersAway):
            return
        finally:
            stop.set()
            await asyncio.to_thread(thread.join)

    def _watch(
        self, watched: tuple[int, int], stop: _Stop, tell: Callable[[Written | Exception | None], None]
    ) -> None:
        """Calls `tell` with what others write into the folder, until `stop`; with None at the end if the folder was replaced,
        or with the error. Skips our own writes. Blocking.
        """
        events = watch(
            self.files.directory,
            recursive=False,
            step=STEP,
            debounce=DEBOUNCE,
            rust_timeout=_STILL_THERE,
            yield_on_timeout=True,
            stop_event=stop,
            raise_interrupt=False,
        )
        end: Exception | None = None
        try:
            for changes in events:
                names = {Path(path).name for _, path in changes}
                if not names and self.files.identity() != watched:
                    break
                issues = {self.files.listing.issue_of(name) for name in names}
                news = sorted(issue for issue in issues if issue is not None and self._is_news(issue))
                if any(written := Written(news, self.files.quarantined(names))):
                    tell(written)
        except Exception as error:  # noqa: BLE001 - raised in `_changes_while`
            end = error
        finally:
            stop.asked.set()
        if not stop.is_set():
            tell(end)

    def _changed_until_now(self) -> Written:
        names = (path.name for path in self.files.directory.iterdir())
        return Written(self.changed(), self.files.quarantined(names))

    def changed(self) -> list[int]:
        """The issues whose file changed since this process last wrote or read it. Blocking."""
        return [issue for issue in self.files.issues() if self._is_news(issue)]

    def close(self) -> None:
        self._pool.shutdown(wait=True)
        self.files.close()


class _Stop(threading.Event):
    """Ends a watch. `asked` is set when the watch first checks it, and so has begun."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = threading.Event()

    def is_set(self) -> bool:
        self.asked.set()
        return super().is_set()


def ended(issue: int, change: asyncio.Future[Any]) -> None:
    """Log that a change failed whose caller is gone; without the error's message, which may quote answers."""
    if not change.cancelled() and (error := change.exception()) is not None:
        _log.warning("issue %d: abandoned transaction failed: %s", issue, type(error).__name__)


def _records(raw: Raw) -> list[Raw]:
    items: list[Raw] = raw["clarifications"]
    return items
