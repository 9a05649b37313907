"""SQLite: one file, one writer, one instance per file.

WAL with synchronous=FULL: once `commit` returns, its data is on disk. What is asked for runs in the connection's thread in
one go, since switching threads costs more than most statements. What an index finds is read where it is asked for.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from functools import partial
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any, Self, TypeVar

import aiosqlite
from filelock import FileLock, Timeout
from watchfiles import awatch

from bot.errors import StorageError, StorageInUseError, StorageUnavailable
from bot.storage.database import Database
from bot.storage.tx import News, Outcome, Query, Row, Tx, Work
from core.clock import Clock, SystemClock
from core.files import DEBOUNCE, STEP, make_private

_T = TypeVar("_T")
_BUSY_MS = 2000
_PAGES_AT_ONCE = 128  # of 4 KiB, given back to the file system in one go


@dataclass(kw_only=True, eq=False)
class SQLite(Database):
    """An open file. A statement that it cannot do is a part's own exception; the disk's or a lock's is everybody's."""

    writer: _Connection
    reader: _Connection
    glances: sqlite3.Connection
    lock: FileLock
    path: Path
    installation: str
    clock: Clock = field(default_factory=SystemClock)

    @classmethod
    async def open(cls, path: Path) -> Self:
        """Open or create the file, bring it to the newest version.

        Raises:
            StorageInUseError: another instance holds it.
            StorageError: it cannot be opened, or was written by a newer version.
        """
        lock = FileLock(f"{path}.lock", mode=0o600, thread_local=False)
        try:
            lock.acquire(timeout=0.2, poll_interval=0.01)  # a shell that looks has it for a moment
        except Timeout:
            raise StorageInUseError(
                f"{path} is in use by another clarify-bot; one instance per storage."
            ) from None
        except OSError as error:
            raise StorageError(f"{path}.lock cannot be opened: {error.strerror}.") from error
        async with AsyncExitStack() as undo:
            undo.callback(lock.release)
            try:
                make_private(path)
                writer = await _connect(path, undo)
                await writer.run(partial(migrate, path=path))
                rows = list(await writer.execute_fetchall("select id from installation"))
                reader = await _connect(path, undo)
                glances = sqlite3.connect(path, timeout=0, isolation_level=None)
                glances.row_factory = sqlite3.Row
                opened = cls(
                    writer=writer,
                    reader=reader,
                    glances=glances,
                    lock=lock,
                    path=path,
                    installation=str(rows[0]["id"]),
                )
            except OSError as error:
                raise StorageError(f"{path} cannot be used as storage: {error.strerror}.") from error
            except sqlite3.Error as error:
                raise StorageError(
                    f"{path} cannot be used as storage: {error}.{_what_to_do(error)}"
                ) from error
            undo.pop_all()
        return opened

    async def commit(self, works: Sequence[Work[Any]]) -> list[Outcome]:
        try:
            return await self.writer.run(partial(_run_all, works))
        except sqlite3.Error as error:
            raise StorageUnavailable(f"Nothing was stored: {error}.{_what_to_do(error)}") from error

    async def fetch(self, queries: Sequence[Query]) -> list[list[Row] | Exception]:
        return await self.reader.run(partial(_fetch_all, queries))

    def glance(self, query: Query) -> list[Row] | None:
        """None where it fails, or another process has the file to itself."""
        try:
            return self.glances.execute(*query).fetchall()
        except sqlite3.Error:
            return None

    async def give_back(self) -> None:
        """Make the file smaller, a little at a time; only one that was begun so can be."""
        mode = await self._pragma("auto_vacuum")
        while mode == 2:
            before = await self._pragma("freelist_count")
            if before:
                await self.commit([lambda tx: tx.rows(f"pragma incremental_vacuum({_PAGES_AT_ONCE})")])
            if not before or await self._pragma("freelist_count") >= before:
                return

    async def _pragma(self, name: str) -> int:
        rows = await self.reader.execute_fetchall(f"pragma {name}")
        return int(next(iter(rows))[0])

    async def news(self) -> AsyncGenerator[list[News] | None]:
        """No other bot tells anything, as there is none; another process may have forgotten something."""
        forget_signal(self.path).touch(mode=0o600)
        async for _ in awatch(forget_signal(self.path), watch_filter=None, step=STEP, debounce=DEBOUNCE):
            yield [("forgotten", "")]

    async def close(self) -> None:
        """Close, let another instance in."""
        self.glances.close()
        await self.writer.close()
        await self.reader.close()
        self.lock.release()


def forget_signal(path: Path) -> Path:
    """The file that another process changes to signal the bot that something was forgotten."""
    return Path(f"{path}.forget")


def _what_to_do(error: sqlite3.Error) -> str:
    """The way out of a broken file; empty for other trouble."""
    if getattr(error, "sqlite_errorcode", None) not in {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}:
        return ""
    return (
        " Stop the bot and restore a backup (clarify restore). Without one, move the file away, with its -wal and -shm, and "
        "start the bot: it begins a new one and takes up what is open from the ledgers."
    )


class _Connection(aiosqlite.Connection):
    """A connection that also runs several statements in one visit to its thread."""

    async def run(self, work: Callable[[sqlite3.Connection], _T]) -> _T:
        result: _T = await self._execute(work, self._conn)  # type: ignore[no-untyped-call]  # aiosqlite leaves it bare
        return result

    async def ended(self) -> None:
        """Returns when its thread is over."""
        await asyncio.to_thread(self._thread.join)


def _run_all(works: Sequence[Work[Any]], db: sqlite3.Connection) -> list[Outcome]:
    """All of a transaction in one visit to the thread; one that fails leaves nothing behind."""
    try:
        db.execute("begin immediate")
        results = Tx(db).parts(works, sqlite3.OperationalError)
        _commit(db)
    except BaseException:
        with suppress(sqlite3.Error):
            db.execute("rollback")
        raise
    return results


def _commit(db: sqlite3.Connection) -> None:
    db.execute("commit")


def _fetch_all(queries: Sequence[Query], db: sqlite3.Connection) -> list[list[Row] | Exception]:
    return [_fetched(query, db) for query in queries]


def _fetched(query: Query, db: sqlite3.Connection) -> list[Row] | Exception:
    try:
        return db.execute(*query).fetchall()
    except sqlite3.Error as error:
        return StorageUnavailable(f"The storage could not be read: {error}.{_what_to_do(error)}")
    except Exception as error:  # noqa: BLE001 - handed to the caller whose query it was
        return error


async def _connect(path: Path, undo: AsyncExitStack) -> _Connection:
    """A connection is a thread, which would keep the process alive: `undo` ends it if opening fails later."""
    connection = _Connection(partial(sqlite3.connect, path, isolation_level=None), iter_chunk_size=64)
    try:
        await connection
    except sqlite3.Error:
        await (
            connection.ended()
        )  # which it does by itself, but would tell an event loop that is closed by then
        raise
    undo.push_async_callback(connection.close)
    connection.row_factory = sqlite3.Row
    await connection.execute(f"pragma busy_timeout = {_BUSY_MS}")
    await connection.execute(
        "pragma auto_vacuum = incremental"
    )  # of a new file; what is in use stays as it is
    await connection.execute("pragma journal_mode = wal")
    await connection.execute("pragma synchronous = full")
    return connection


def newest_version() -> int:
    """The version that a storage of this release has."""
    return len(_migrations())


def _migrations() -> list[Traversable]:
    folder = resources.files("bot.storage").joinpath("migrations")
    return sorted((f for f in folder.iterdir() if f.name.endswith(".sql")), key=lambda file: file.name)


def migrate(db: sqlite3.Connection, path: Path) -> None:
    """Bring the storage at `path` to this release's version.

    Raises:
        StorageError: a newer release wrote it.
    """
    files = _migrations()
    version = int(db.execute("pragma user_version").fetchone()[0])
    if version > len(files):
        raise StorageError(
            f"{path} has version {version}, written by a newer clarify-bot; this one knows {len(files)}."
        )
    for number, file in enumerate(files[version:], start=version + 1):
        script = file.read_text(encoding="utf-8")
        db.executescript(f"begin immediate;\n{script}\npragma user_version = {number};\ncommit;")
