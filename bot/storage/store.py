"""The SQLite file: one writer with group commit, one reader, migrations, one instance per file.

WAL with synchronous=FULL: once `write` returns, its data is on disk. The waiting work of all callers goes into one
transaction, each part in its own savepoint, so that many small durable writes cost one sync. It runs in the connection's
thread in one go, as the waiting reads do in theirs, since switching threads costs more than most statements.

Statements use the SQL that SQLite and PostgreSQL share, with named parameters: `where id = :id`, and `in :ids` for a
list.
"""

from __future__ import annotations

import asyncio
import re
import sqlite3
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache, partial
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any, TypeVar

import aiosqlite
from filelock import FileLock, Timeout
from structlog.typing import FilteringBoundLogger

from bot.errors import StorageError, StorageInUseError, StorageUnavailable
from core.clock import Clock
from core.files import make_private

_T = TypeVar("_T")
LONGEST_LIST = 512
_BATCH = 256
_BUSY_MS = 2000
_RETRY = 0.5  # seconds
_PATIENCE = 2.0  # seconds
_PAGES_AT_ONCE = 128  # of 4 KiB, given back to the file system in one go
_LIST = re.compile(r"\bin :(\w+)")

Row = sqlite3.Row
"""A row of a query: its columns are read by name."""


class Tx:
    """A transaction. Blocking: use it only in the function given to `write`, in the connection's thread."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db

    def run(self, sql: str, **values: object) -> int:
        """One statement; returns the number of rows that it changed."""
        return self._db.execute(*bound(sql, values)).rowcount

    def rows(self, sql: str, **values: object) -> list[Row]:
        """The rows of a query, or of what a statement returns."""
        return self._db.execute(*bound(sql, values)).fetchall()

    def one(self, sql: str, **values: object) -> Row | None:
        """The first of them."""
        return next(iter(self.rows(sql, **values)), None)

    def many(self, sql: str, rows: Iterable[Mapping[str, object]]) -> int:
        """One statement for each of `rows`; returns the number of rows that all of them changed."""
        return self._db.executemany(sql, rows).rowcount


Work = Callable[[Tx], _T]


def bound(sql: str, values: Mapping[str, object]) -> tuple[str, Mapping[str, object]]:
    """A statement as the driver takes it: each list has become as many parameters as it has values.

    They are padded to a power of two, so that there are few forms of one statement. An empty list holds nothing.
    """
    names = _lists(sql)
    if not names:
        return sql, values
    sizes, flat = [], dict(values)
    for name in names:
        items: Any = flat.pop(name)
        padded = _padded(list(items))
        sizes.append(len(padded))
        flat.update({f"{name}_{place}": item for place, item in enumerate(padded)})
    return _expanded(sql, tuple(sizes)), flat


def batches(items: Iterable[_T], size: int = LONGEST_LIST) -> Iterable[list[_T]]:
    """`items` in lists that one statement takes."""
    left = list(items)
    return (left[at : at + size] for at in range(0, len(left), size))


@lru_cache(maxsize=1024)
def _lists(sql: str) -> Sequence[str]:
    return tuple(dict.fromkeys(_LIST.findall(sql)))


@lru_cache(maxsize=1024)
def _expanded(sql: str, sizes: tuple[int, ...]) -> str:
    size = dict(zip(_lists(sql), sizes, strict=True))
    return _LIST.sub(lambda m: f"in ({', '.join(f':{m[1]}_{place}' for place in range(size[m[1]]))})", sql)


def _padded(items: list[object]) -> list[object]:
    if len(items) > LONGEST_LIST:
        raise ValueError(f"{len(items)} values for one list: `batches` makes lists that a statement takes")
    last = items[-1] if items else None  # nothing is in (null)
    return items + [last] * ((1 << max(0, len(items) - 1).bit_length()) - len(items))


class Store:
    """The open storage. Open it with `Store.open`; `write` and `read` raise StorageUnavailable if nothing was done.

    `installation`: tells this bot from others on the same Slack app; it is as old as the storage.
    """

    def __init__(self, writer: _Connection, reader: _Connection, lock: FileLock, installation: str) -> None:
        self.installation = installation
        self._writer = writer
        self._reader = reader
        self._lock = lock
        self._queue: asyncio.Queue[tuple[Work[Any], asyncio.Future[Any]]] = asyncio.Queue()
        self._task = asyncio.create_task(self._commit_batches(), name="storage")
        self._unread: list[tuple[tuple[str, Mapping[str, object]], asyncio.Future[list[Row]]]] = []
        self._reading: asyncio.Task[None] | None = None

    @classmethod
    async def open(cls, path: Path) -> Store:
        """Open or create the storage, bring it to the newest version.

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
                store = cls(writer, await _connect(path, undo), lock, str(rows[0]["id"]))
            except OSError as error:
                raise StorageError(f"{path} cannot be used as storage: {error.strerror}.") from error
            except sqlite3.Error as error:
                raise StorageError(
                    f"{path} cannot be used as storage: {error}.{_what_to_do(error)}"
                ) from error
            undo.pop_all()
        return store

    async def write(self, work: Work[_T]) -> _T:
        """Run `work` in a transaction; when this returns, its effect is durable.

        `work` runs in the connection's thread. An exception of it undoes what it did, and only that.
        """
        done: asyncio.Future[_T] = asyncio.get_running_loop().create_future()
        self._queue.put_nowait((work, done))
        return await asyncio.shield(done)

    async def run(self, sql: str, **values: object) -> int:
        """One statement as a transaction; returns the number of rows it changed."""
        return await self.write(lambda tx: tx.run(sql, **values))

    async def read(self, sql: str, **values: object) -> list[Row]:
        """The rows of a query, as last committed."""
        found: asyncio.Future[list[Row]] = asyncio.get_running_loop().create_future()
        self._unread.append((bound(sql, values), found))
        if self._reading is None:
            self._reading = asyncio.create_task(self._read_batches(), name="storage reads")
        try:
            return await found
        except sqlite3.Error as error:
            raise StorageUnavailable(
                f"The storage could not be read: {error}.{_what_to_do(error)}"
            ) from error

    async def read_one(self, sql: str, **values: object) -> Row | None:
        """The first of them."""
        return next(iter(await self.read(sql, **values)), None)

    async def trouble(self) -> str | None:
        """Why it cannot be read, None if it can."""
        try:
            async with asyncio.timeout(_PATIENCE):
                await self.read("select id from installation")
        except TimeoutError:
            return f"it does not answer within {_PATIENCE:g} s"
        except StorageUnavailable as error:
            return str(error)
        return None

    async def note_connections(self, others: int, at: datetime) -> None:
        """Keep how many connections of the Slack app are not ours, for `clarify check`."""
        await self.run(
            "update installation set others = :others, told_at = :at", others=others, at=at.timestamp()
        )

    async def give_back(self) -> None:
        """Make the file smaller, a little at a time; only one that was begun so can be."""
        mode = await self.read_one("pragma auto_vacuum")
        while mode is not None and mode["auto_vacuum"] == 2:
            before = await self._free()
            if before:
                await self.write(lambda tx: tx.rows(f"pragma incremental_vacuum({_PAGES_AT_ONCE})"))
            if not before or await self._free() >= before:
                return

    async def _free(self) -> int:
        row = await self.read_one("pragma freelist_count")
        return 0 if row is None else int(row["freelist_count"])

    async def close(self) -> None:
        """Finish what was asked for, close, let another instance in."""
        await self._queue.join()
        self._task.cancel()
        with suppress(asyncio.CancelledError):
            await self._task
        if self._reading is not None:
            await self._reading
        await self._writer.close()
        await self._reader.close()
        self._lock.release()

    async def _read_batches(self) -> None:
        """Work off the queries that wait, and those that come meanwhile."""
        while batch := self._unread[:_BATCH]:
            del self._unread[:_BATCH]
            results: list[list[Row] | Exception]
            try:
                results = await self._reader.run(partial(_fetch_all, [query for query, _ in batch]))
            except Exception as error:  # noqa: BLE001 - of the connection: handed to all who wait
                results = [error] * len(batch)
            for (_, found), result in zip(batch, results, strict=True):
                if found.done():
                    continue
                if isinstance(result, Exception):
                    found.set_exception(result)
                else:
                    found.set_result(result)
        self._reading = None

    async def _commit_batches(self) -> None:
        while True:
            batch = [await self._queue.get()]
            while not self._queue.empty() and len(batch) < _BATCH:
                batch.append(self._queue.get_nowait())
            commit = asyncio.ensure_future(self._commit(batch))
            try:
                await asyncio.shield(commit)
            except asyncio.CancelledError:
                await commit
                raise

    async def _commit(self, batch: list[tuple[Work[Any], asyncio.Future[Any]]]) -> None:
        results: list[tuple[object, Exception | None]]
        try:
            results = await self._writer.run(partial(_run_all, [work for work, _ in batch]))
            await self._writer.execute("commit")
        except sqlite3.Error as error:
            with suppress(sqlite3.Error):
                await self._writer.execute("rollback")
            results = [(None, StorageUnavailable(f"Nothing was stored: {error}.{_what_to_do(error)}"))] * len(
                batch
            )
        for (_, done), (result, problem) in zip(batch, results, strict=True):
            self._queue.task_done()
            if done.cancelled():
                continue
            if problem is None:
                done.set_result(result)
            else:
                done.set_exception(problem)


async def until_stored(
    work: Callable[[], Awaitable[_T]], clock: Clock, log: FilteringBoundLogger, otherwise: str
) -> _T:
    """The result of `work`, retried while the storage is unavailable; each failure is logged as `otherwise`."""
    while True:
        try:
            return await work()
        except StorageUnavailable as error:
            log.warning(otherwise, reason=str(error))
            await clock.sleep(_RETRY)


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


def _run_all(works: list[Work[Any]], db: sqlite3.Connection) -> list[tuple[object, Exception | None]]:
    """Each work's result, or its exception. Begins a transaction and leaves it open."""
    db.execute("begin immediate")
    tx = Tx(db)
    return [_run(work, tx, db) for work in works]


def _fetch_all(
    queries: list[tuple[str, Mapping[str, object]]], db: sqlite3.Connection
) -> list[list[Row] | Exception]:
    """Each query's rows, or its exception."""
    return [_fetched(query, db) for query in queries]


def _fetched(query: tuple[str, Mapping[str, object]], db: sqlite3.Connection) -> list[Row] | Exception:
    try:
        return db.execute(*query).fetchall()
    except Exception as error:  # noqa: BLE001 - handed to the caller whose query it was
        return error


def _run(work: Work[Any], tx: Tx, db: sqlite3.Connection) -> tuple[object, Exception | None]:
    db.execute("savepoint part")
    try:
        result = work(tx)
    except sqlite3.OperationalError:
        raise  # the disk or a lock: the whole transaction is at stake
    except Exception as error:  # noqa: BLE001 - handed to the caller whose work it was
        db.execute("rollback to part")
        db.execute("release part")
        return None, error
    db.execute("release part")
    return result, None


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


@dataclass(frozen=True, slots=True)
class Sweep:
    """Which rows of one table are deleted once nobody needs them (`bot.retention.upkeep`): said by the table's owner.

    Row ids are part of names elsewhere (`notice:17`, `page:3:…`), and SQLite reuses the highest id once its row is gone.
    So the row with the highest id stays.

    `find` takes `:after` (the name of the last row seen, at first `first`), `:horizon` and `:most`; it selects `name`,
    and the columns that show whether something open needs the row: `clarification`, `producer` and `session_id`, or ids
    anywhere in `said`. `delete` (several statements, in their order) takes `:names`. `timeless`: rows without a time of
    their own are noted when they are first found over, and go once that was before the horizon.
    """

    table: str
    find: str
    delete: Sequence[str]
    timeless: bool = False
    first: object = ""


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
