"""Ledgers: the clarifications of one issue in one JSON file, shared with other implementations.

The file format and its rules are the Clarification Protocol's (architecture §5): unknown fields are kept, records
are never removed, writes replace the file atomically. A file that does not parse under the lock is set aside.
"""

from __future__ import annotations

import asyncio
import os
import re
import time
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Protocol, TypeVar

from core.archive import Archive
from core.book import Book, Oddity, Raw, decode, digest, dump, encode, identity, oddity, parse
from core.clarification import Clarification
from core.errors import LedgersAway, LedgerUnreadable, LedgerUnwritable, LockTimeout, NotFound
from core.files import (
    NOT_REGULAR,
    folder_mode,
    is_odd,
    make_folder,
    read_regular,
    reason,
    replacing,
    set_aside,
    try_to_write,
)
from core.folder import FIRST_RESERVED, Folder
from core.locks import Held, Locks
from core.numbering import Numbers
from core.seal import Seals, speaks_for_a_person

_T = TypeVar("_T")
LOCK_TIMEOUT = 2.0
_NAMED = re.compile(r"issue-[0-9]+.*\.json")
__all__ = ["Book", "FileLedger", "Ledger", "Oddity", "Raw", "digest", "dump", "oddity", "parse"]


class Ledger(Protocol):
    async def read(self, issue: int) -> list[Raw]: ...
    async def transact(
        self,
        issue: int,
        decide: Callable[[Book], _T],
        timeout: float = LOCK_TIMEOUT,
        written: Callable[[], None] | None = None,
    ) -> _T: ...


class FileLedger:
    """Ledgers as files in `directory`. Blocking work happens in threads of its own.

    One that is in the `archive` is read there, and comes back before it is written. Our private folder in `directory`
    says that this is the right one: when it is gone, as on a disk that was unmounted, nothing is made anew, and every
    call raises LedgersAway until it is back.
    """

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
        """`mode`: of new ledgers; those that are there keep theirs. `expected`: ledgers were written there before, so that an empty folder cannot be the right one. `signs`:
        whether answers written here may speak for a person; `shell_consents`: whether consent given in the shell counts.
        """
        self.directory = directory
        self._mode = mode
        self._locks = Locks(directory, mode)
        if not expected:
            make_folder(directory, folder_mode(mode))
            make_folder(self._locks.private)
        self._numbers = Numbers(self._locks.private)
        self._seals = Seals(self._locks.private, shell=shell_consents) if signs else None
        self.shelf = Folder(directory, self._numbers)
        self.archive = Archive(directory, self._numbers, folder_mode(mode))
        self._pool = ThreadPoolExecutor(workers, thread_name_prefix="ledger")
        self._turns: weakref.WeakValueDictionary[int, asyncio.Lock] = weakref.WeakValueDictionary()
        self._seen: dict[int, tuple[int, int]] = {}

    async def transact(
        self,
        issue: int,
        decide: Callable[[Book], _T],
        timeout: float = LOCK_TIMEOUT,
        written: Callable[[], None] | None = None,
    ) -> _T:
        """Run `decide` on the records of `issue` under its lock, write what it put, return what it returned.

        `decide` runs in a worker thread; if it raises, nothing is written. Once it runs, it runs to its end,
        even if the caller is cancelled; `written` is called, in the event loop, when it went well.

        Raises:
            LedgersAway: the folder is not there, and `decide` did not run.
            LockTimeout: the lock was not had within `timeout` seconds, and `decide` will not run; or it was had and
                lost, as to a process that slept for longer than a marker counts, and nothing was written.
            LedgerUnreadable: the file does not parse and was set aside; a next call starts a new file.
            LedgerUnwritable: the disk refused; the file is as it was.
        """
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
        return await asyncio.shield(work)

    async def read(self, issue: int) -> list[Raw]:
        """The raw records of `issue` as last written, without its lock; none if there is no file.

        Raises:
            LedgerUnreadable, LockTimeout: it did not parse, and not under the lock either.
        """
        return await asyncio.get_running_loop().run_in_executor(self._pool, self.read_now, issue)

    async def shelve(
        self, issue: int, is_over: Callable[[list[Raw]], bool], timeout: float = LOCK_TIMEOUT
    ) -> bool:
        """Move a ledger to the archive if `is_over(records)`, as they are under its lock; whether it was moved.

        Raises:
            LockTimeout, LedgerUnreadable, LedgerUnwritable: as `transact`; it is where it was.
        """
        return await asyncio.get_running_loop().run_in_executor(
            self._pool, self._shelve, issue, is_over, timeout
        )

    async def find(self, clarification_id: str, issue: int) -> Clarification:
        """One record, read without the lock.

        Raises:
            NotFound: no such record.
        """
        for item in await self.read(issue):
            if identity(item) == clarification_id and (record := parse(item)):
                return record
        raise NotFound(clarification_id)

    async def vouches(self, record: Clarification) -> bool:
        """Whether a record's answer is by who it says; not: another writer put a person's name there."""
        if not speaks_for_a_person(record):
            return True
        return self._seals is not None and await asyncio.to_thread(self._seals.vouch, record)

    def issues(self) -> Iterator[int]:
        """The numbers of all live ledgers.

        Raises:
            LedgersAway: their folder is not there.
        """
        self._require()
        for issue, _ in self.shelf.ledgers():
            yield issue

    def claim(self, highest: int) -> None:
        """Take reserved numbers up to `highest` for given out by us. Blocking.

        Raises:
            LedgersAway: their folder is not there. OSError: the disk refused.
        """
        self._require()
        for shelf in (self.shelf, self.archive.shelf):
            shelf.claim(highest)

    def issue_of(self, name: str) -> int | None:
        """The issue of the live ledger of that name; None: it is none."""
        return self.shelf.issue_of(name)

    @property
    def private(self) -> Path:
        """Our own folder in that of the ledgers."""
        return self._locks.private

    def is_there(self) -> bool:
        """Whether the folder is there. One that came back without our private folder, as a copy does, is known by its
        ledgers. Blocking.
        """
        if self._locks.private.is_dir():
            return True
        try:
            folders = [each for each in (self.directory, self.archive.folder) if each.is_dir()]
            if not any(_NAMED.fullmatch(path.name) for each in folders for path in each.iterdir()):
                return False
            make_folder(self._locks.private)
        except OSError:
            return False
        return True

    def trouble(self, *, thorough: bool = False) -> str | None:
        """Why no ledger can be written now; None: nothing is known to be in the way. Blocking.

        `thorough` writes to the disk; else only what costs nothing is looked at.
        """
        if not self.is_there():
            return str(LedgersAway(self.directory))
        try:
            if not os.access(self.directory, os.W_OK | os.X_OK):
                read_only = os.statvfs(self.directory).f_flag & os.ST_RDONLY
                why = "the file system is read-only" if read_only else "this user may not write there"
                return f"The folder with the ledgers, {self.directory}, cannot be written: {why}."
            if thorough:
                try_to_write(self._locks.private)
        except OSError as error:
            return f"The folder with the ledgers, {self.directory}, cannot be written: {reason(error)}."
        return None

    async def news(self, issue: int) -> list[Raw] | None:
        """The raw records, or None if the file is as this process last wrote or read it here.

        Raises:
            LedgerUnreadable, LockTimeout: as `read`.
        """
        return await asyncio.get_running_loop().run_in_executor(self._pool, self.news_now, issue)

    def changed(self) -> list[int]:
        """The issues whose file is not as this process last wrote or read it. Blocking."""
        return [issue for issue in self.issues() if self._state(issue) != self._seen.get(issue)]

    def forget(self, issue: int) -> None:
        """Have `news` tell again."""
        self._seen.pop(issue, None)

    def path(self, issue: int) -> Path:
        return self.directory / f"issue-{issue}.json"

    def close(self) -> None:
        """Wait for what runs; take nothing more."""
        self._pool.shutdown(wait=True)
        self._locks.close()

    def _transact(self, issue: int, decide: Callable[[Book], _T], deadline: float, timeout: float) -> _T:
        left = deadline - time.monotonic()
        if left <= 0:
            raise LockTimeout(issue, timeout, "other work of this process")
        self._require(issue)
        with self._locks.hold(issue, left) as held:
            check = partial(_check, held, issue, timeout)
            before = self._state(issue)
            book = self._open(issue, check)
            result = decide(book)
            if book.changed:
                self._replace(issue, encode(book.raw), before, check)
                if before is None:
                    self.archive.drop(issue, book.raw)
                if book.numbered:
                    self._numbers.note(issue, book.numbered)
            return result

    def _shelve(self, issue: int, is_over: Callable[[list[Raw]], bool], timeout: float) -> bool:
        live = self.path(issue)
        self._require(issue)
        with self._locks.hold(issue, timeout) as held:
            if not live.exists():
                return False
            raw = self._open(issue, partial(_check, held, issue, timeout)).raw
            if not is_over(_records(raw)):
                return False
            _check(held, issue, timeout)
            self._numbers.note_all(issue, read_regular(live))
            try:
                self.archive.put(issue, live, raw)
            except OSError as error:
                raise LedgerUnwritable(issue, reason(error)) from error
            self.forget(issue)
            return True

    def read_now(self, issue: int) -> list[Raw]:
        """`read`, blocking."""
        try:
            return _records(decode(read_regular(self.path(issue)), issue))
        except FileNotFoundError:
            self._require(issue)
            kept = self._archived(issue)
            if kept is None and self.path(issue).exists():
                return self.read_now(issue)  # it came back just now
            return _records(kept or _empty(issue))
        except OSError as error:
            path = self.path(issue)
            raise LedgerUnreadable(issue, path, error.strerror or "cannot be read", None) from error
        except ValueError:
            # Torn by a writer that overwrites in place: under the lock it is whole, or set aside.
            book: Book = self._transact(issue, lambda book: book, _in(LOCK_TIMEOUT), LOCK_TIMEOUT)
            return _records(book.raw)

    def news_now(self, issue: int) -> list[Raw] | None:
        """`news`, blocking."""
        state = self._state(issue)
        if state is not None and self._seen.get(issue) == state:
            return None
        items = self.read_now(issue)
        if state is not None:
            self._seen[issue] = state
        return items

    def _require(self, issue: int = 0) -> None:
        if not self._locks.private.is_dir() and not self.is_there():
            raise LedgersAway(self.directory, issue)

    def _open(self, issue: int, check: Callable[[], None]) -> Book:
        path = self.path(issue)

        def highest() -> int:
            return self._numbers.highest(issue)

        try:
            content = read_regular(path)
        except FileNotFoundError:
            return Book(issue, self._archived(issue) or _empty(issue), highest, self._seals)
        except OSError as error:
            if is_odd(path):
                raise LedgerUnreadable(issue, path, NOT_REGULAR, set_aside(path)) from error
            raise LedgerUnreadable(issue, path, error.strerror or "cannot be read", None) from error
        try:
            return Book(issue, decode(content, issue), highest, self._seals)
        except ValueError as error:
            check()  # else it may be half of what its holder is writing
            self._numbers.note_all(issue, content)
            raise LedgerUnreadable(issue, path, str(error), set_aside(path)) from None

    def _archived(self, issue: int) -> Raw | None:
        try:
            return self.archive.read(issue)
        except OSError as error:
            path = self.archive.path(issue)
            raise LedgerUnreadable(issue, path, error.strerror or "cannot be read", None) from error

    def _state(self, issue: int) -> tuple[int, int] | None:
        try:
            return _state(self.path(issue))
        except FileNotFoundError:
            return None

    def _replace(
        self, issue: int, content: bytes, before: tuple[int, int] | None, check: Callable[[], None]
    ) -> None:
        try:
            if before is None and issue >= FIRST_RESERVED:
                self._numbers.give_out(issue)  # first: a kill must not leave a ledger that is nobody's
            with replacing(self.path(issue), content, self._locks.private, self._mode) as draft:
                check()  # as late as can be: writing and syncing the draft took time
                if before in {None, self._seen.get(issue)}:
                    # No news, from the moment that it is there; but news if somebody else had written before us.
                    self._seen[issue] = _state(draft)
        except OSError as error:
            raise LedgerUnwritable(issue, reason(error)) from error


def _check(held: Held, issue: int, timeout: float) -> None:
    if not held.is_there():
        raise LockTimeout(issue, timeout, "somebody who took it over while this process slept")


def _empty(issue: int) -> Raw:
    return {"issueNumber": issue, "clarifications": []}


def _records(raw: Raw) -> list[Raw]:
    items: list[Raw] = raw["clarifications"]
    return items


def _state(path: Path) -> tuple[int, int]:
    """What changes with every write of a file, in place or not."""
    found = path.lstat()
    return found.st_mtime_ns, found.st_ino


def _in(seconds: float) -> float:
    return time.monotonic() + seconds
