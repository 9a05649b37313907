"""Ledgers: the clarifications of one issue in one JSON file, shared with other implementations.

The file format and its rules are the Clarification Protocol's (architecture §5): unknown fields are kept, records
are never removed, writes replace the file atomically. A file that does not parse under the lock is set aside.
"""

from __future__ import annotations

import asyncio
import errno
import hashlib
import json
import logging
import os
import re
import time
import uuid
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol, TypeVar

from pydantic import ValidationError

from core.clarification import Clarification
from core.errors import LedgerUnreadable, LedgerUnwritable, LockTimeout, NotFound
from core.locks import Locks

_log = logging.getLogger("clarify.ledger")
_T = TypeVar("_T")
_FILE = re.compile(r"issue-(\d+)\.json")
LOCK_TIMEOUT = 2.0
Raw = dict[str, Any]


class Book:
    """The records of one issue inside a transaction: read, decide, `put`; written when the decision returns."""

    def __init__(self, issue: int, raw: Raw, first_seq: int = 1) -> None:
        self.issue = issue
        self.raw = raw
        self.changed: list[Clarification] = []
        self._first_seq = first_seq

    @property
    def records(self) -> list[Clarification]:
        """Every record that can be read, in the order of the file."""
        return [record for item in self._items if (record := parse(item)) is not None]

    def get(self, clarification_id: str) -> Clarification:
        """One record.

        Raises:
            NotFound: no such record, or it cannot be read.
        """
        for item in self._items:
            if _id(item) == clarification_id and (record := parse(item)):
                return record
        raise NotFound(clarification_id)

    def put(self, record: Clarification) -> Clarification:
        """Add a record, or replace the one with its id."""
        dumped = dump(record)
        for position, item in enumerate(self._items):
            if _id(item) == record.id:
                self._items[position] = dumped
                break
        else:
            self._items.append(dumped)
        self.changed.append(record)
        return record

    def next_seq(self) -> int:
        """The number of the next record: by the file's length, as others number, and never one used before."""
        pattern = re.compile(rf"CLR-{self.issue}-(\d+)")
        used = [int(match.group(1)) for item in self._items if (match := pattern.fullmatch(_id(item)))]
        return max(len(self._items) + 1, self._first_seq, *(seq + 1 for seq in used))

    @property
    def _items(self) -> list[Any]:
        items: list[Any] = self.raw["clarifications"]
        return items


class Ledger(Protocol):
    async def read(self, issue: int) -> list[Raw]: ...
    async def transact(
        self, issue: int, decide: Callable[[Book], _T], timeout: float = LOCK_TIMEOUT
    ) -> _T: ...


class FileLedger:
    """Ledgers as files in `directory`, which exists. Blocking work happens in threads of its own."""

    def __init__(self, directory: Path, workers: int = 16) -> None:
        self.directory = directory
        self._locks = Locks(directory)
        self._locks.private.mkdir(parents=True, exist_ok=True)
        self._pool = ThreadPoolExecutor(workers, thread_name_prefix="ledger")
        self._turns: weakref.WeakValueDictionary[int, asyncio.Lock] = weakref.WeakValueDictionary()
        self._written: dict[int, tuple[int, int]] = {}

    async def transact(self, issue: int, decide: Callable[[Book], _T], timeout: float = LOCK_TIMEOUT) -> _T:
        """Run `decide` on the records of `issue` under its lock, write what it put, return what it returned.

        `decide` runs in a worker thread; if it raises, nothing is written. Once it runs, it runs to its end,
        even if the caller is cancelled.

        Raises:
            LockTimeout: the lock was not had within `timeout` seconds; `decide` will not run.
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
        return await asyncio.shield(work)

    async def read(self, issue: int) -> list[Raw]:
        """The raw records of `issue` as last written, without its lock; none if there is no file.

        Raises:
            LedgerUnreadable, LockTimeout: it did not parse, and not under the lock either.
        """
        return await asyncio.get_running_loop().run_in_executor(self._pool, self.read_now, issue)

    async def find(self, clarification_id: str, issue: int) -> Clarification:
        """One record, read without the lock.

        Raises:
            NotFound: no such record.
        """
        for item in await self.read(issue):
            if _id(item) == clarification_id and (record := parse(item)):
                return record
        raise NotFound(clarification_id)

    def issues(self) -> Iterator[int]:
        """The numbers of all live ledgers."""
        for entry in os.scandir(self.directory):
            if match := _FILE.fullmatch(entry.name):
                yield int(match.group(1))

    def is_own_write(self, issue: int) -> bool:
        """Whether the file is still as this process wrote it last."""
        try:
            stat = self.path(issue).stat()
        except FileNotFoundError:
            return False
        return self._written.get(issue) == (stat.st_ino, stat.st_mtime_ns)

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
        with self._locks.hold(issue, left):
            book = self._open(issue)
            result = decide(book)
            if book.changed:
                self._replace(issue, json.dumps(book.raw, ensure_ascii=False, indent=2).encode())
            return result

    def read_now(self, issue: int) -> list[Raw]:
        """`read`, blocking."""
        try:
            return _decode(self.path(issue).read_bytes())
        except FileNotFoundError:
            return []
        except ValueError:
            # Torn by a writer that overwrites in place: under the lock it is whole, or set aside.
            items: list[Raw] = self._transact(
                issue, lambda book: book.raw["clarifications"], _in(LOCK_TIMEOUT), LOCK_TIMEOUT
            )
            return items

    def _open(self, issue: int) -> Book:
        path = self.path(issue)
        try:
            content = path.read_bytes()
        except FileNotFoundError:
            return Book(issue, {"issueNumber": issue, "clarifications": []}, self._first_seq(issue))
        except OSError as error:
            raise LedgerUnreadable(issue, path, error.strerror or "cannot be read", None) from error
        try:
            _decode(content)
        except ValueError as error:
            aside = path.with_name(f"{path.name}.unreadable-{datetime.now(UTC):%Y%m%dT%H%M%S%f}")
            path.rename(aside)
            raise LedgerUnreadable(issue, path, str(error), aside) from None
        return Book(issue, json.loads(content))

    def _first_seq(self, issue: int) -> int:
        """After a file was set aside, its numbers are not given out again: cards carry them."""
        used = [0]
        for aside in self.directory.glob(f"issue-{issue}.json.unreadable-*"):
            used += map(int, re.findall(rb"CLR-%d-(\d+)" % issue, aside.read_bytes()))
        return max(used) + 1

    def _replace(self, issue: int, content: bytes) -> None:
        path = self.path(issue)
        draft = self._locks.private / f"{path.name}.{os.getpid()}.{uuid.uuid4().hex}"
        try:
            with draft.open("xb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            stat = draft.stat()
            draft.replace(path)
            _sync_folder(self.directory)
        except OSError as error:
            draft.unlink(missing_ok=True)
            raise LedgerUnwritable(issue, _reason(error)) from error
        self._written[issue] = (stat.st_ino, stat.st_mtime_ns)


def parse(item: object) -> Clarification | None:
    """A record, or None if it is not one: it is left in the file as it is, and named in the log."""
    try:
        return Clarification.model_validate(item)
    except ValidationError as error:
        name = item.get("id") if isinstance(item, dict) else None
        fields = sorted({".".join(map(str, problem["loc"])) for problem in error.errors()})
        _log.warning(
            "a ledger record cannot be read: id %r, fields %s", str(name)[:40], ", ".join(fields)[:200]
        )
        return None


def dump(record: Clarification) -> Raw:
    """A record as the ledger file holds it."""
    raw = record.model_dump(mode="json", by_alias=True)
    if raw.get("aaep") is not None:
        raw["aaep"] = {key: value for key, value in raw["aaep"].items() if value is not None}
    else:
        raw.pop("aaep", None)
    return raw


def digest(item: Raw) -> str:
    """What a record says, in few characters: equal if and only if nothing changed, whoever wrote it."""
    return hashlib.blake2b(json.dumps(item, sort_keys=True).encode(), digest_size=12).hexdigest()


def _id(item: object) -> str:
    return str(item.get("id")) if isinstance(item, dict) else ""


def _decode(content: bytes) -> list[Raw]:
    """The records of a ledger's bytes.

    Raises:
        ValueError: not a ledger; the message says why, without content.
    """
    try:
        raw = json.loads(content)
    except (ValueError, RecursionError):
        raise ValueError(f"{len(content)} bytes that are no JSON") from None
    if not isinstance(raw, dict) or not isinstance(raw.get("clarifications"), list):
        raise ValueError('expected an object with a list "clarifications"')  # noqa: TRY004 - one error for "no ledger"
    items: list[Raw] = raw["clarifications"]
    return items


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _reason(error: OSError) -> str:
    return "the disk is full" if error.errno == errno.ENOSPC else error.strerror or type(error).__name__


def _in(seconds: float) -> float:
    return time.monotonic() + seconds
