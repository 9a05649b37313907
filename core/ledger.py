"""Ledgers: the clarifications of one issue in one JSON file, shared with other implementations.

The file format and its rules are the Clarification Protocol's (architecture §5): unknown fields are kept, records
are never removed, writes replace the file atomically. A file that does not parse under the lock is renamed.

Ledgers that nobody needs any more are moved to `archive/`. Writing a record to an archived ledger first brings the whole
file back, since other implementations number records by the list's length. A file is always in at least one of the two
places; if it is in both, the live one counts.

Other programs write in the folder, too: files that are not ledgers are neither opened nor changed. A ledger is a regular
file with a valid issue number. Symlinks are ignored: replacing one would break it, and it may point to a file its
creator may not read. Numbers from 100001 up are ours: such a file counts only if we gave out its number, so that nobody
else changes which number comes next. The highest record number ever given out in an issue is kept beside its ledger, as
cards carry these numbers even if the file is gone.
"""

from __future__ import annotations

import asyncio
import heapq
import logging
import os
import re
import threading
import time
import weakref
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, aclosing, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeVar

from watchfiles import watch

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
from core.files import (
    DEBOUNCE,
    NOT_REGULAR,
    STEP,
    Changes,
    folder_mode,
    is_odd,
    make_folder,
    quarantine,
    read_regular,
    reason,
    replacing,
    sync_folder,
    try_to_write,
)
from core.locks import Held, Locks
from core.records import (
    Book,
    OwnRecords,
    Raw,
    Seals,
    decode,
    encode,
    identity,
    speaks_for_a_person,
)

_T = TypeVar("_T")
_log = logging.getLogger("clarify.ledger")

LOCK_TIMEOUT = 2.0  # seconds
PATIENCE = 10.0  # seconds for whole files, which are moved and rewritten by hand: a person waits at a prompt
_NAMED = re.compile(r"issue-[0-9]+.*\.json")
_RETRY = 1.0  # seconds
_AT_ONCE = 200  # ledgers read in one visit to a thread
_STILL_THERE = 2000  # milliseconds
_QUARANTINED = re.compile(r"issue-([0-9]{1,9})\.json\.unreadable-.+")
ARCHIVE = "archive"
FIRST_RESERVED = 100_001
HIGHEST = 999_999_999
_LIVE = re.compile(r"issue-([0-9]+)\.json")
_ARCHIVED = re.compile(r"issue-([0-9]+)(?:[._-].*)?\.json")
_NUMBERED = re.compile(r"issue-([1-9][0-9]{0,8})\.seq")
_MOST_LOGGED = 1000  # ignored names, so that each is logged once
_NOT_OURS = f"numbers from {FIRST_RESERVED} up are reserved for sessions without an issue, and clarify-bot did not assign this one"


class Written(NamedTuple):
    """The issues whose ledgers may have been changed, and those whose file was set aside since it did not parse."""

    issues: list[int]
    set_aside: list[LedgerUnreadable]


class Loaded(NamedTuple):
    """The highest issue number, archived or not, and why some ledgers could not be read."""

    highest: int
    troubles: list[ClarifyError]


class Kept(NamedTuple):
    """All that is kept of one issue. `parts`: the records of each of its files, the live one first, by name; `problems`: in
    words, what cannot be read.
    """

    parts: list[tuple[str, list[Any]]]
    problems: list[str]


Take = Callable[[list[Raw]], bool]


class Ledger(Protocol):
    """The records of issues: decided one issue at a time, under its lock. Archived ones are read, too, and come back before
    they are written.
    """

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
            LedgersAway: the ledgers are not there, and `decide` did not run.
            LockTimeout: the lock was not had within `timeout` seconds, and `decide` will not run; or it was had and
                lost, as to a process that slept for longer than a marker counts, and nothing was written.
            LedgerUnreadable: the ledger does not parse and was quarantined; the next call starts a new one.
            LedgerUnwritable: the disk refused; the ledger is as it was.
        """

    async def read(self, issue: int) -> list[Raw]:
        """The raw records of `issue` as last written, without its lock; none if there is no ledger.

        Raises:
            LedgerUnreadable, LockTimeout: it did not parse, and not under the lock either.
        """

    async def find(self, clarification_id: str, issue: int) -> Clarification:
        """One record, read without the lock.

        Raises:
            NotFound: no such record.
        """

    async def load(self, last_issue: int, take: Take) -> Loaded:
        """Have `take` look at the records of every live ledger, as on a start. It is called in a worker thread, and says
        whether the ledger needs to be looked at again (`changes`).

        `last_issue`: the reserved number that the storage knows to be given out last.
        """

    async def live(self) -> list[int]:
        """The issues of all ledgers that are not archived, in their order.

        Raises:
            LedgersAway: they are not there.
        """

    async def archived(self) -> list[int]:
        """The issues of all that are."""

    async def latest(self, most: int) -> list[int]:
        """The issues whose live ledgers were written last, the latest first; raises as `live` does."""

    def every(self, *, issue: int | None = None, archived: bool = True) -> AsyncGenerator[Kept]:
        """Each issue once, in the order of their numbers, or only `issue`; what moves to the archive meanwhile is not missed.

        Raises:
            LedgersAway: they are not there.
        """

    async def news(self, issue: int) -> list[Raw] | None:
        """The raw records, or None if the ledger is as this process last wrote or read it here.

        Raises:
            LedgerUnreadable, LockTimeout: as `read`.
        """

    def forget(self, issue: int) -> None:
        """Have `news` report it again."""

    def changes(self, clock: Clock) -> AsyncGenerator[Written]:
        """What other processes write, as long as it is iterated; first, what they wrote until then."""

    def woken(self, issue: int) -> AbstractAsyncContextManager[asyncio.Event]:
        """An event that is set whenever the ledger is written, by whomever. Notices can be lost: so look now and then, too."""

    async def shelve(
        self, issue: int, is_over: Callable[[list[Raw]], bool], timeout: float = LOCK_TIMEOUT
    ) -> bool:
        """Archive a ledger if `is_over(records)`, as they are under its lock; whether it was archived.

        Raises:
            LockTimeout, LedgerUnreadable, LedgerUnwritable: as `transact`; it is where it was.
        """

    async def verify_answer(self, record: Clarification) -> bool:
        """Whether a record's answer is by whom it names; False: another program put a person's name there."""

    async def is_held(self, record: Clarification) -> bool:
        """Whether we wrote who has claimed it, or was offered it; False if nobody has, or only another program says so."""

    async def verify_question(self, record: Clarification) -> bool | None:
        """Whether what a record asks, where a reply to it is owed, and what was decided is what we wrote; None: that cannot
        be known.
        """

    def verify_question_now(self, record: Clarification) -> bool | None:
        """`verify_question`, blocking."""

    async def is_tampered(self, record: Clarification) -> bool:
        """Whether another program changed a record after it was settled: then it is handed out to nobody."""

    def is_tampered_now(self, record: Clarification) -> bool:
        """`is_tampered`, blocking."""

    async def are_there(self) -> bool:
        """Whether the ledgers can be had at all."""

    async def trouble(self, *, thorough: bool = False) -> str | None:
        """Why no ledger can be written now; None: nothing is known to be in the way.

        `thorough` tries to write; else only what costs nothing is looked at.
        """

    def close(self) -> None:
        """Wait for what runs; take nothing more. Blocking."""


class FileLedger:
    """Ledgers as files in `directory`. Blocking work happens in threads of its own.

    A ledger in the `archive` is read there, and comes back before it is written. Our private folder in `directory` shows
    that this is the right directory: while it is missing, as on an unmounted disk, nothing is created, and every call
    raises LedgersAway.
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
        """`mode`: of new ledgers; those that are there keep theirs. `expected`: ledgers were written there before, so that
        an empty folder cannot be the right one. `signs`: whether answers written here may speak for a person;
        `shell_consents`: whether consent given in the shell counts.
        """
        self.directory = directory
        self._mode = mode
        self._locks = Locks(directory, mode)
        if not expected:
            make_folder(directory, folder_mode(mode))
            make_folder(self._locks.private)
        self.numbers = Numbers(self._locks.private)
        self._seals = Seals(self._locks.private, shell=shell_consents, signs=signs)
        self.listing = Folder(directory, self.numbers)
        self.archive = Archive(directory, self.numbers, folder_mode(mode))
        self._own = OwnRecords()
        self._pool = ThreadPoolExecutor(workers, thread_name_prefix="ledger")
        self._turns: weakref.WeakValueDictionary[int, asyncio.Lock] = weakref.WeakValueDictionary()
        self._seen: dict[int, tuple[int, int]] = {}
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
                work.add_done_callback(partial(ended, issue))  # it goes on all the same

    async def read(self, issue: int) -> list[Raw]:
        return await asyncio.get_running_loop().run_in_executor(self._pool, self.read_now, issue)

    async def shelve(
        self, issue: int, is_over: Callable[[list[Raw]], bool], timeout: float = LOCK_TIMEOUT
    ) -> bool:
        return await asyncio.get_running_loop().run_in_executor(
            self._pool, self._shelve, issue, is_over, timeout
        )

    async def find(self, clarification_id: str, issue: int) -> Clarification:
        for item in await self.read(issue):
            if identity(item) == clarification_id and (record := self._own.parse(issue, item)):
                return record
        raise NotFound(clarification_id)

    async def verify_answer(self, record: Clarification) -> bool:
        return not speaks_for_a_person(record) or await asyncio.to_thread(self._seals.verify_answer, record)

    async def is_held(self, record: Clarification) -> bool:
        return await asyncio.to_thread(self._seals.is_held, record)

    async def verify_question(self, record: Clarification) -> bool | None:
        if self._seals.at_hand and not record.asked.arguments:
            return self.verify_question_now(record)
        return await asyncio.to_thread(self.verify_question_now, record)

    def verify_question_now(self, record: Clarification) -> bool | None:
        """`verify_question`, blocking."""
        return self._seals.verify_question(record)

    async def is_tampered(self, record: Clarification) -> bool:
        if self._seals.is_known(record):
            return False
        return await asyncio.to_thread(self.is_tampered_now, record)

    def is_tampered_now(self, record: Clarification) -> bool:
        """`is_tampered`, blocking."""
        return self._seals.is_tampered(record)

    def issues(self) -> Iterator[int]:
        """`live`, blocking.

        Raises:
            LedgersAway: their folder is not there.
        """
        self._require()
        yield from self.listing.issues()

    async def live(self) -> list[int]:
        return await asyncio.to_thread(lambda: sorted(self.issues()))

    async def archived(self) -> list[int]:
        return await asyncio.to_thread(lambda: sorted(set(self.archive.issues())))

    async def latest(self, most: int) -> list[int]:
        return await asyncio.to_thread(self._latest, most)

    def _latest(self, most: int) -> list[int]:
        states = ((self._state(issue), issue) for issue in self.issues())
        written = ((state[0], issue) for state, issue in states if state is not None)  # else archived now
        return [issue for _, issue in heapq.nlargest(most, written)]

    async def every(self, *, issue: int | None = None, archived: bool = True) -> AsyncGenerator[Kept]:
        there, old, problems = await asyncio.to_thread(self._everywhere, archived=archived)
        if problems:
            yield Kept([], problems)
        numbers = sorted(there | old.keys()) if issue is None else [issue]
        for at in range(0, len(numbers), _AT_ONCE):
            some = numbers[at : at + _AT_ONCE]
            for kept in await asyncio.to_thread(self._read_wholes, some, old, archived=archived):
                yield kept

    def _everywhere(self, *, archived: bool) -> tuple[set[int], dict[int, list[Path]], list[str]]:
        """The issues that have a live ledger, the archived files of each issue, and in words what cannot be listed."""
        live: set[int] = set()
        old: dict[int, list[Path]] = {}
        problems: list[str] = []
        try:
            live = set(self.issues())
        except OSError as error:
            problems.append(f"The folder {self.directory} cannot be read ({error.strerror}).")
        try:
            for issue, path in self.archive.listing.ledgers() if archived else ():
                old.setdefault(issue, []).append(path)
        except FileNotFoundError:
            pass  # nothing was archived yet
        except OSError as error:
            problems.append(f"The folder {self.archive.folder} cannot be read ({error.strerror}).")
        return live, old, problems

    def _read_wholes(
        self, issues: Sequence[int], old: Mapping[int, Sequence[Path]], *, archived: bool
    ) -> list[Kept]:
        return [self._read_whole(each, old.get(each, ()), archived=archived) for each in issues]

    def _read_whole(self, issue: int, old: Sequence[Path], *, archived: bool) -> Kept:
        kept = Kept([], [])
        try:
            kept.parts.append((self.path(issue).name, self.read_now(issue)))
        except ClarifyError as error:
            kept.problems.append(str(error))
        usual = self.archive.path(issue)  # it may have moved there since the folder was listed
        for path in sorted({*old, usual}) if archived else ():
            name = f"{ARCHIVE}/{path.name}"
            try:
                kept.parts.append((name, _records(decode(read_regular(path), issue))))
            except FileNotFoundError:
                continue
            except (OSError, ValueError) as error:
                why = (error.strerror if isinstance(error, OSError) else None) or str(error)
                kept.problems.append(f"The archived ledger {name} cannot be read ({why}).")
        return kept

    def claim(self, highest: int) -> None:
        """Take reserved numbers up to `highest` for given out by us. Blocking.

        Raises:
            LedgersAway: their folder is not there. OSError: the disk refused.
        """
        self._require()
        for listing in (self.listing, self.archive.listing):
            listing.claim(highest)

    @property
    def private(self) -> Path:
        """Our own folder in that of the ledgers."""
        return self._locks.private

    async def are_there(self) -> bool:
        return await asyncio.to_thread(self.is_there)

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

    async def trouble(self, *, thorough: bool = False) -> str | None:
        return await asyncio.to_thread(self.trouble_now, thorough=thorough)

    def trouble_now(self, *, thorough: bool = False) -> str | None:
        """`trouble`, blocking."""
        if not self.is_there():
            return str(LedgersAway(self.directory))
        try:
            if not os.access(self.directory, os.W_OK | os.X_OK):
                read_only = os.statvfs(self.directory).f_flag & os.ST_RDONLY
                why = "the file system is read-only" if read_only else "this user has no write permission"
                return f"The folder with the ledgers, {self.directory}, cannot be written: {why}."
            if thorough:
                try_to_write(self._locks.private)
        except OSError as error:
            return f"The folder with the ledgers, {self.directory}, cannot be written: {reason(error)}."
        return None

    async def news(self, issue: int) -> list[Raw] | None:
        return await asyncio.get_running_loop().run_in_executor(self._pool, self.news_now, issue)

    def changed(self) -> list[int]:
        """The issues whose file is not as this process last wrote or read it. Blocking."""
        return [issue for issue in self.issues() if self._is_news(issue)]

    def _is_news(self, issue: int) -> bool:
        return self._state(issue) != self._seen.get(issue)

    def forget(self, issue: int) -> None:
        self._seen.pop(issue, None)
        self._own.forget(issue)

    async def load(self, last_issue: int, take: Take) -> Loaded:
        return await asyncio.to_thread(self.load_now, last_issue, take)

    def load_now(self, last_issue: int, take: Take) -> Loaded:
        """`load`, blocking."""
        troubles: list[ClarifyError] = []
        try:
            self.claim(last_issue)
        except OSError as error:
            troubles.append(LedgerUnwritable(last_issue, reason(error)))
        except LedgersAway as error:
            return Loaded(0, [error])
        issues = list(self.issues())
        for issue in issues:
            try:
                self.forget(issue)
                if take(self.news_now(issue) or []):
                    self.forget(issue)
            except ClarifyError as error:
                troubles.append(error)
        return Loaded(max([*issues, *self.archive.issues()], default=0), troubles)

    def woken(self, issue: int) -> AbstractAsyncContextManager[asyncio.Event]:
        return self._folder.of(self.path(issue).name)

    async def changes(self, clock: Clock) -> AsyncGenerator[Written]:
        while True:
            while (watched := await asyncio.to_thread(self._identity)) is None:
                await clock.sleep(_RETRY)
            async with aclosing(self._changes_while(watched)) as changes:
                async for written in changes:
                    yield written
            _log.warning("the ledger folder is missing or was replaced")

    def _identity(self) -> tuple[int, int] | None:
        """The folder's device and inode; None: it is not there."""
        try:
            state = self.directory.stat()
        except OSError:
            return None
        return (state.st_dev, state.st_ino) if self.is_there() else None

    async def _changes_while(self, watched: tuple[int, int]) -> AsyncGenerator[Written]:
        """Ends when the folder is no longer the `watched` one: a new folder at its path gives no events."""
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
            await asyncio.to_thread(stop.asked.wait)  # from there on the system keeps what happens
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
        """Tells what others write into the folder, until it is told to stop, the folder is another one (None), or it cannot
        be watched (why). What we wrote ourselves wakes nobody. Blocking.
        """
        events = watch(
            self.directory,
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
                if not names and self._identity() != watched:
                    break
                issues = {self.listing.issue_of(name) for name in names}
                news = sorted(issue for issue in issues if issue is not None and self._is_news(issue))
                if any(written := Written(news, self._set_aside(names))):
                    tell(written)
        except Exception as error:  # noqa: BLE001 - raised where the changes are waited for
            end = error
        finally:
            stop.asked.set()
        if not stop.is_set():
            tell(end)

    def _changed_until_now(self) -> Written:
        return Written(self.changed(), self._set_aside(path.name for path in self.directory.iterdir()))

    def _set_aside(self, names: Iterable[str]) -> list[LedgerUnreadable]:
        """Whichever process quarantined them."""
        return [
            LedgerUnreadable(
                issue := int(match[1]), self.path(issue), "found set aside", self.directory / name
            )
            for name in sorted(names)
            if (match := _QUARANTINED.fullmatch(name))
        ]

    def files(self) -> dict[int, list[Path]]:
        """All ledgers by issue: the live file first, then the archived ones. Blocking."""
        found: dict[int, list[Path]] = {}
        for issue, path in sorted(self.listing.ledgers()):
            found.setdefault(issue, []).append(path)
        for issue, path in sorted(self.archive.files()):
            found.setdefault(issue, []).append(path)
        return found

    def rewrite(self, issue: int, change: Callable[[Raw], bool]) -> list[Path]:
        """Let `change` edit what each file of an issue holds, live and archived; those that it says it did are written.
        Blocking.

        Returns:
            The files that cannot be read, and are as they were.

        Raises:
            LockTimeout: somebody else holds the ledger. LedgerUnwritable: the disk refused. Files before it are done.
        """
        unreadable = []
        with self.held(issue) as check:
            for path in self.files().get(issue, []):
                try:
                    raw = decode(read_regular(path), issue)
                except ValueError:
                    unreadable.append(path)
                    continue
                if change(raw):
                    self._write(issue, path, encode(raw), check)
        return unreadable

    def put(self, issue: int, path: Path, content: bytes) -> None:
        """Have a file of an issue, in this folder or its archive, hold `content`. Blocking.

        Raises:
            LockTimeout, LedgerUnwritable: as `rewrite`.
        """
        with self.held(issue) as check:
            make_folder(path.parent, folder_mode(self._mode))
            self._write(issue, path, content, check)
            self.numbers.note_all(issue, content)

    def move(self, issue: int, path: Path, to: Path) -> None:
        """Move a file of an issue out of the way; `to` is on the same file system. Blocking."""
        with self.held(issue) as check:
            check()
            make_folder(to.parent)
            path.rename(to)
            sync_folder(path.parent)

    @contextmanager
    def held(self, issue: int, timeout: float = PATIENCE) -> Iterator[Callable[[], None]]:
        """Hold a ledger. What is yielded raises LockTimeout once it is not held any more. Blocking."""
        with self._locks.hold(issue, timeout) as held:
            yield partial(_check, held, issue, timeout)

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
        with self._locks.hold(issue, timeout, left) as held:
            check = partial(_check, held, issue, timeout)
            before = self._state(issue)
            book = self._open(issue, check)
            result = decide(book)
            if book.changed:
                content = encode(book.raw)
                self._replace(issue, content, before, check)
                self._own.note(issue, book.written, len(content))
                if before is None:
                    self.archive.drop(issue, book.raw)
                if book.numbered:
                    self.numbers.note(issue, book.numbered)
            return result

    def _shelve(self, issue: int, is_over: Callable[[list[Raw]], bool], timeout: float) -> bool:
        live = self.path(issue)
        self._require(issue)
        with self.held(issue, timeout) as check:
            if not live.exists():
                return False
            raw = self._open(issue, check).raw
            if not is_over(_records(raw)):
                return False
            check()
            self.numbers.note_all(issue, read_regular(live))
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
            # Torn by a writer that overwrites in place: under the lock it is whole, or quarantined.
            book: Book = self._transact(issue, lambda book: book, _in(LOCK_TIMEOUT), LOCK_TIMEOUT)
            return _records(book.raw)

    def news_now(self, issue: int) -> list[Raw] | None:
        """`news`, blocking."""
        state = self._state(issue)
        if state is not None and self._seen.get(issue) == state:
            return None
        self._own.forget(issue)
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
            return self.numbers.highest(issue)

        parsed = partial(self._own.parse, issue)

        try:
            content = read_regular(path)
        except FileNotFoundError:
            return Book(issue, self._archived(issue) or _empty(issue), highest, self._seals, parsed)
        except OSError as error:
            if is_odd(path):
                raise LedgerUnreadable(issue, path, NOT_REGULAR, quarantine(path)) from error
            raise LedgerUnreadable(issue, path, error.strerror or "cannot be read", None) from error
        try:
            return Book(issue, decode(content, issue), highest, self._seals, parsed)
        except ValueError as error:
            check()  # else it may be half of what its holder is writing
            self.numbers.note_all(issue, content)
            raise LedgerUnreadable(issue, path, str(error), quarantine(path)) from None

    def _archived(self, issue: int) -> Raw | None:
        try:
            return self.archive.read(issue)
        except OSError as error:
            path = self.archive.path(issue)
            raise LedgerUnreadable(issue, path, error.strerror or "cannot be read", None) from error

    def _state(self, issue: int) -> tuple[int, int] | None:
        try:
            return _state(f"{self.directory}/issue-{issue}.json")
        except FileNotFoundError:
            return None

    def _write(self, issue: int, path: Path, content: bytes, check: Callable[[], None]) -> None:
        try:
            with replacing(path, content, self._locks.private, self._mode):
                check()
        except OSError as error:
            raise LedgerUnwritable(issue, reason(error)) from error

    def _replace(
        self, issue: int, content: bytes, before: tuple[int, int] | None, check: Callable[[], None]
    ) -> None:
        try:
            if before is None and issue >= FIRST_RESERVED:
                self.numbers.give_out(issue)  # first: a kill must not leave a ledger that is nobody's
            with replacing(self.path(issue), content, self._locks.private, self._mode) as draft:
                check()  # as late as can be: writing and syncing the draft took time
                if before in {None, self._seen.get(issue)}:
                    # No news, from the moment that it is there; but news if somebody else had written before us.
                    self._seen[issue] = _state(draft)
        except OSError as error:
            raise LedgerUnwritable(issue, reason(error)) from error


class _Stop(threading.Event):
    """Ends a watch. `asked` is set once it was asked for: the watch has begun."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = threading.Event()

    def is_set(self) -> bool:
        self.asked.set()
        return super().is_set()


def ended(issue: int, change: asyncio.Future[Any]) -> None:
    """Log why a change was not made whose caller is gone, or was told that it is in doubt; an error's words may be of
    answers.
    """
    if not change.cancelled() and (error := change.exception()) is not None:
        _log.warning("issue %d: abandoned transaction failed: %s", issue, type(error).__name__)


def _check(held: Held, issue: int, timeout: float) -> None:
    if not held.is_there():
        raise LockTimeout(issue, timeout, "someone who took it over while this process slept")


def _empty(issue: int) -> Raw:
    return {"issueNumber": issue, "clarifications": []}


def _records(raw: Raw) -> list[Raw]:
    items: list[Raw] = raw["clarifications"]
    return items


def _state(path: str | Path) -> tuple[int, int]:
    """What changes with every write of a file, in place or not."""
    found = os.stat(path, follow_symlinks=False)  # noqa: PTH116 - of ten thousand in a row, a Path costs more than this
    return found.st_mtime_ns, found.st_ino


def _in(seconds: float) -> float:
    return time.monotonic() + seconds


class Archive:
    """The folder `archive/` in the ledgers' folder. Blocking. Hold the issue's lock when you call what changes files."""

    def __init__(self, ledgers: Path, numbers: Numbers, mode: int = 0o700) -> None:
        self.folder = ledgers / ARCHIVE
        self._mode = mode
        self.listing = Folder(self.folder, numbers, archived=True)

    def path(self, issue: int) -> Path:
        """Where an archived ledger is as a rule, and comes back from."""
        return self.folder / f"issue-{issue}.json"

    def files(self) -> Iterator[tuple[int, Path]]:
        """Every archived file with its issue; of one issue there may be several, where others began anew."""
        with self._readable():
            yield from self.listing.ledgers()

    def issues(self) -> Iterator[int]:
        """The issue of every archived file."""
        with self._readable():
            yield from self.listing.issues()

    @contextmanager
    def _readable(self) -> Iterator[None]:
        """While it is listed: without its folder it is empty; one that cannot be read is logged."""
        try:
            yield
        except FileNotFoundError:
            return
        except OSError as error:
            _log.error("cannot read the archive %s: %s", self.folder, error.strerror)

    def read(self, issue: int) -> Raw | None:
        """An archived ledger; None: there is none that could come back.

        Raises:
            OSError: it is there and cannot be read.
        """
        try:
            return decode(read_regular(self.path(issue)), issue)
        except FileNotFoundError:
            return None
        except ValueError:
            return None  # it stays where it is, for people to look into; numbers go on from the recorded one

    def put(self, issue: int, live: Path, raw: Raw) -> Path:
        """Move the ledger `live`, which holds `raw`, here. What is here of the same issue is not lost.

        Raises:
            OSError: the disk refused; the file is in its old place, or in both.
        """
        make_folder(self.folder, self._mode)
        target = self.path(issue)
        if target.exists() and not _holds(raw, self.read(issue)):
            target = self._beside(issue)
        if not target.exists():
            os.link(live, target)
            sync_folder(self.folder)
        if target.samefile(live):
            live.unlink()  # to rename it would do nothing
        else:
            live.replace(target)  # an earlier state of the same, left by a kill
        sync_folder(live.parent)
        return target

    def drop(self, issue: int, live: Raw) -> None:
        """Remove an archived ledger that came back, as its records are in the live file (`live`). Where the disk
        refuses it stays: the live one counts.
        """
        try:
            if _holds(live, self.read(issue)):
                self.path(issue).unlink(missing_ok=True)
        except OSError as error:
            _log.warning(
                "%s was restored but stays in the archive: %s", self.path(issue).name, error.strerror
            )

    def _beside(self, issue: int) -> Path:
        number = 2
        while (path := self.folder / f"issue-{issue}.{number}.json").exists():
            number += 1
        return path


def _holds(raw: Raw, other: Raw | None) -> bool:
    """Whether every record of `other` is in `raw` too. The id alone does not show it: ids may have been reused."""
    return other is not None and _names(other) <= _names(raw)


def _names(raw: Raw) -> set[tuple[str, str]]:
    return {
        (identity(item), str(item.get("created")) if isinstance(item, dict) else "")
        for item in raw["clarifications"]
    }


class Ignored(NamedTuple):
    """A file that has a ledger's name but is not one, and why; `reserved`: its number, if that is the reason."""

    path: Path
    why: str
    reserved: int = 0


def issue_in(name: str) -> int | None:
    """The issue number in the name of a live or archived ledger. Only a `Folder` knows whether the file is a ledger."""
    match = _ARCHIVED.fullmatch(name)
    return int(match[1]) if match else None


class Folder:
    """A folder of ledger files, live or archived; archived names may carry a suffix."""

    def __init__(self, path: Path, numbers: Numbers, *, archived: bool = False) -> None:
        self.path = path
        self._numbers = numbers
        self._name = _ARCHIVED if archived else _LIVE
        self._logged: set[str] = set()

    def ledgers(self) -> Iterator[tuple[int, Path]]:
        """Each ledger with its issue. What is ignored is logged once.

        Raises:
            OSError: the folder cannot be read.
        """
        for issue, name in self._found():
            yield issue, self.path / name

    def issues(self) -> Iterator[int]:
        """The issue of each ledger; raises and logs as `ledgers` does."""
        for issue, _ in self._found():
            yield issue

    def ignored(self) -> list[Ignored]:
        """Files that are named like a ledger but are ignored.

        Raises:
            OSError: the folder cannot be read.
        """
        return sorted(found for _, found in self._looked_at() if isinstance(found, Ignored))

    def issue_of(self, name: str) -> int | None:
        """The issue of the ledger of that name, even if it is gone; None: it is not a ledger."""
        match = self._name.fullmatch(name)
        if match is None:
            return None
        found = self._judged(match, is_file=not is_odd(self.path / name))
        if isinstance(found, Ignored):
            self._log_ignored(found)
            return None
        return found

    def _found(self) -> Iterator[tuple[int, str]]:
        for name, found in self._looked_at():
            if isinstance(found, Ignored):
                self._log_ignored(found)
            else:
                yield found, name

    def _looked_at(self) -> Iterator[tuple[str, int | Ignored]]:
        for match, entry in self._named():
            yield entry.name, self._judged(match, is_file=entry.is_file(follow_symlinks=False))

    def _named(self) -> Iterator[tuple[re.Match[str], os.DirEntry[str]]]:
        """Whatever has the name of a ledger."""
        self._numbers.learn()
        with os.scandir(self.path) as found:
            entries = list(found)  # the caller may stop half way
        for entry in entries:
            if match := self._name.fullmatch(entry.name):
                yield match, entry

    def _judged(self, match: re.Match[str], *, is_file: bool) -> int | Ignored:
        """The issue of a ledger of that name."""
        digits, issue = match[1], 0
        if not is_file:
            why = f"it is {NOT_REGULAR}"
        elif digits.startswith("0"):
            why = "issues are numbered from 1, without leading zeros"
        elif len(digits) > len(str(HIGHEST)):
            why = f"its number is higher than {HIGHEST}"
        else:
            issue = int(digits)
            if issue < FIRST_RESERVED or self._numbers.is_given_out(issue):
                return issue
            why = _NOT_OURS
        return Ignored(self.path / match.string, why, issue)

    def _log_ignored(self, ignored: Ignored) -> None:
        name = ignored.path.name
        if name not in self._logged and len(self._logged) < _MOST_LOGGED:
            self._logged.add(name)
            _log.warning("%s is ignored: %s", ignored.path, ignored.why)

    def claim(self, highest: int) -> None:
        """Count the reserved numbers up to `highest` as given out: earlier releases kept no record of it beside the ledgers.

        Raises:
            OSError: the folder cannot be read, or the disk refused.
        """
        for match, _ in self._named() if self.path.exists() else ():
            if len(match[1]) > len(str(HIGHEST)):
                continue
            issue = int(match[1])
            if FIRST_RESERVED <= issue <= highest and not self._numbers.is_given_out(issue):
                self._numbers.give_out(issue)


class Numbers:
    """Remembers which numbers were given out, in `folder`, which is private to us."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._given_out: set[int] = set()
        self._learned = False

    def path(self, issue: int) -> Path:
        return self._folder / f"issue-{issue}.seq"

    def highest(self, issue: int) -> int:
        """0 if none is recorded."""
        try:
            return int(self.path(issue).read_bytes())
        except (FileNotFoundError, ValueError):
            return 0

    def learn(self) -> None:
        """Read, once, which ones were given out until now: before thousands are asked for one by one.

        Where the folder cannot be read nothing is learned; a number that is asked for then says why.
        """
        if self._learned:
            return
        with suppress(OSError), os.scandir(self._folder) as found:
            matches = (_NUMBERED.fullmatch(entry.name) for entry in found)
            self._given_out.update(int(match[1]) for match in matches if match is not None)
            self._learned = True

    def is_given_out(self, issue: int) -> bool:
        """Whether we ever wrote a ledger of that issue."""
        if issue not in self._given_out and self.path(issue).exists():
            self._given_out.add(issue)
        return issue in self._given_out

    def give_out(self, issue: int) -> None:
        """Keep that the ledger of an issue is ours, before it is there.

        Raises:
            OSError: the disk refused.
        """
        os.close(os.open(self.path(issue), os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o600))

    def note(self, issue: int, number: int) -> None:
        """Keep a number that was given out: it stays known if the ledger is cut to nothing."""
        try:
            handle = os.open(self.path(issue), os.O_CREAT | os.O_WRONLY, 0o600)
            try:
                os.pwrite(handle, b"%012d" % number, 0)  # always as long: a kill leaves the old or the new
            finally:
                os.close(handle)
        except OSError as error:
            _log.warning("cannot store number %d of issue %d: %s", number, issue, error.strerror)

    def note_all(self, issue: int, content: bytes) -> None:
        """Record the highest number that some bytes contain, if it is higher than the recorded one."""
        self.note(issue, max(self.highest(issue), highest_in(issue, content)))


def highest_in(issue: int, content: bytes) -> int:
    """The highest number of an issue's records that some bytes name; 0: none."""
    return max(map(int, re.findall(rb"CLR-%d-([0-9]{1,9})(?![0-9])" % issue, content)), default=0)
