# ruff: noqa: S608 - names of tables and columns are ours alone
"""SQLite: one file, one writer, one instance per file; and the same file for processes beside it, which read, change, copy and
restore it, whether a bot runs or not.

WAL with synchronous=FULL: once `commit` returns, its data is on disk. A batch runs in one visit to the connection's
thread, since switching threads costs more than most statements. Indexed look-ups run on the event loop. What other processes
use (`InSqlite` and below) blocks.
"""

from __future__ import annotations

import asyncio
import fcntl
import hashlib
import shutil
import sqlite3
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing, closing, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Self, TypeVar

import aiosqlite
from filelock import FileLock, Timeout
from watchfiles import awatch

from bot.checks import CheckResult, right, wrong
from bot.errors import (
    BackupError,
    StorageBusy,
    StorageError,
    StorageInUseError,
    StorageMoved,
    StorageUnavailable,
)
from bot.storage import schema
from bot.storage.store import Store, require_here
from bot.storage.tx import News, Outcome, Query, Row, Tx, Work
from core.clock import Clock, SystemClock
from core.files import DEBOUNCE, STEP, make_folder, make_private, sync, why_not_creatable

_T = TypeVar("_T")
_BUSY_MS = 1000  # a write may wait behind one that waits as long; Slack allows three seconds
_MAKING = 2.0  # seconds
_LOOK_EVERY = 30.0  # seconds between looks for what other processes wrote, should they not have said so
_PAGES_AT_ONCE = 128  # of 4 KiB, returned to the file system at once
_LOOK_SECONDS, _BUSY_SECONDS = 2.0, 10.0


@dataclass(kw_only=True, eq=False)
class SQLite(Store):
    """An open file. A statement that fails affects its own part; trouble with the disk or a lock affects the whole
    batch.
    """

    writer: _SqliteConnection
    reader: _SqliteConnection
    glances: sqlite3.Connection
    lock: FileLock | None
    path: Path
    installation: str
    secret: bytes
    clock: Clock = field(default_factory=SystemClock)

    def __post_init__(self) -> None:
        super().__init__()

    @classmethod
    async def open(cls, path: Path, *, beside: bool) -> Self:
        async with AsyncExitStack() as undo:
            try:
                lock = _locked(path, beside=beside)
                if lock is not None:
                    undo.callback(lock.release)
                make_private(path)
                writer = await _connect(path, undo)
                await writer.run(partial(require_current if lock is None else migrate, path=path))
                if lock is not None and beside:
                    lock.release()  # a bot may start on the new file
                rows = list(
                    await writer.execute_fetchall("select id, secret, moved_to, moved_from from installation")
                )
                require_here(str(path), rows[0])
                reader = await _connect(path, undo)
                glances = sqlite3.connect(path, timeout=0, isolation_level=None)
                glances.row_factory = sqlite3.Row
                opened = cls(
                    writer=writer,
                    reader=reader,
                    glances=glances,
                    lock=None if beside else lock,
                    path=path,
                    installation=str(rows[0]["id"]),
                    secret=bytes(rows[0]["secret"]),
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
            beside = self.path if self.lock is None else None
            results, wrote = await self.writer.run(partial(_run_all, works, beside))
        except StorageMoved as error:
            raise StorageUnavailable(f"Nothing was stored: {error}") from error
        except sqlite3.Error as error:
            kind = (
                StorageBusy
                if getattr(error, "sqlite_errorcode", 0) == sqlite3.SQLITE_BUSY
                else StorageUnavailable
            )
            raise kind(f"Nothing was stored: {error}.{_what_to_do(error)}") from error
        if wrote and self.lock is None:
            tell_changed(self.path)
        return results

    async def fetch(self, queries: Sequence[Query]) -> list[list[Row] | Exception]:
        return await self.reader.run(partial(_fetch_all, queries))

    def glance(self, query: Query) -> list[Row] | None:
        """Returns None if it fails, or if another process has locked the file."""
        try:
            return self.glances.execute(*query).fetchall()
        except sqlite3.Error:
            return None

    async def give_back(self) -> None:
        """Shrinks the file bit by bit. Works only if the file was created with incremental vacuum."""
        mode = await self._pragma("auto_vacuum")
        while mode == 2:
            before = await self._pragma("freelist_count")
            if before:
                await self.commit([_give_back_some])
            if not before or await self._pragma("freelist_count") >= before:
                return

    async def _pragma(self, name: str) -> int:
        rows = await self.reader.execute_fetchall(f"pragma {name}")
        return int(next(iter(rows))[0])

    async def notices(self, channel: str) -> AsyncGenerator[list[str] | None]:  # noqa: ARG002 - there is one signal
        """Another process says only that it wrote something; without a word, look twice a minute."""
        async with aclosing(self._changes(_LOOK_EVERY)) as changes:
            while True:
                change = asyncio.ensure_future(anext(changes))
                try:
                    await asyncio.sleep(0)  # its first step: from here on the system queues events
                    yield None
                    await change
                finally:
                    change.cancel()
                    await asyncio.wait([change])

    async def news(self) -> AsyncGenerator[list[News] | None]:
        """There is no other bot, but another process may have forgotten something."""
        async for _ in self._changes():
            yield [("forgotten", "")]

    async def _changes(self, look_every: float | None = None) -> AsyncGenerator[None]:
        signal = changed_signal(self.path)
        signal.touch(mode=0o600)
        async for _ in awatch(
            signal,
            watch_filter=None,
            step=STEP,
            debounce=DEBOUNCE,
            rust_timeout=5000 if look_every is None else int(look_every * 1000),
            yield_on_timeout=look_every is not None,
        ):
            yield

    async def close(self) -> None:
        await super().close()
        self.glances.close()
        await self.writer.close()
        await self.reader.close()
        if self.lock is not None:
            self.lock.release()


def _locked(path: Path, *, beside: bool) -> FileLock | None:
    """Returns the lock of the one instance that a file may have; None if there is a file to use `beside` it."""
    if beside and _is_made(path):
        return None
    lock = FileLock(f"{path}.lock", mode=0o600, thread_local=False)
    try:
        # `InSqlite.is_in_use` holds it for a moment, and whoever makes the file a little longer.
        lock.acquire(timeout=_MAKING if beside else 0.2, poll_interval=0.01)
    except Timeout:
        if beside and _is_made(path):
            return None
        raise StorageInUseError(
            f"{path} is in use by another clarify-bot; one instance per storage."
        ) from None
    except OSError as error:
        raise StorageError(f"{path}.lock cannot be opened: {error.strerror}.") from error
    return lock


def _is_made(path: Path) -> bool:
    """Returns whether a file exists, and some release has made its tables."""
    if not path.exists():
        return False
    with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)) as db:
        return bool(version_of(db))


def changed_signal(path: Path) -> Path:
    """Returns the file that another process touches to tell the bot that it wrote to the storage."""
    return Path(f"{path}.changed")


def tell_changed(path: Path) -> None:
    """Tells a running bot that this process wrote to the storage."""
    changed_signal(path).touch(mode=0o600)
    changed_signal(path).write_bytes(b"")


def _what_to_do(error: sqlite3.Error) -> str:
    """Returns how to recover from a broken file; empty for other errors."""
    if getattr(error, "sqlite_errorcode", None) not in {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}:
        return ""
    return (
        " Stop the bot and restore a backup (clarify restore). Without one, move the file away, with its -wal and -shm, and "
        "start the bot: it begins a new one and takes in the ledger files, if there are any."
    )


class _SqliteConnection(aiosqlite.Connection):
    """A connection that can also run several statements in one visit to its thread."""

    async def run(self, work: Callable[[sqlite3.Connection], _T]) -> _T:
        result: _T = await self._execute(work, self._conn)  # type: ignore[no-untyped-call]  # aiosqlite leaves it bare
        return result

    async def ended(self) -> None:
        """Waits until its thread has ended."""
        await asyncio.to_thread(self._thread.join)


def _give_back_some(tx: Tx) -> None:
    for _ in range(_PAGES_AT_ONCE):  # the driver takes one step of a pragma, which gives back one page
        tx.run("pragma incremental_vacuum(1)")


def _run_all(
    works: Sequence[Work[Any]], beside: Path | None, db: sqlite3.Connection
) -> tuple[list[Outcome], bool]:
    """Runs a transaction in one visit to the thread. If it fails, nothing is changed. Returns whether it changed rows.

    `beside`: the file, if this process does not hold its lock.

    Raises:
        StorageMoved: the file moved to another database since it was opened.
    """
    before = db.total_changes
    try:
        db.execute("begin immediate")
        if beside is not None:
            require_here(str(beside), db.execute("select moved_to, moved_from from installation").fetchone())
        tx = Tx(db)
        results = [tx.part(work) for work in works]
        _commit(db)
    except BaseException:
        with suppress(sqlite3.Error):
            db.execute("rollback")
        raise
    return results, db.total_changes > before


def _commit(db: sqlite3.Connection) -> None:
    db.execute("commit")


def _fetch_all(queries: Sequence[Query], db: sqlite3.Connection) -> list[list[Row] | Exception]:
    return [_fetched(query, db) for query in queries]


def _fetched(query: Query, db: sqlite3.Connection) -> list[Row] | Exception:
    try:
        return db.execute(*query).fetchall()
    except sqlite3.Error as error:
        return StorageUnavailable(f"The storage could not be read: {error}.{_what_to_do(error)}")
    except Exception as error:  # noqa: BLE001 - passed to the caller
        return error


async def _connect(path: Path, undo: AsyncExitStack) -> _SqliteConnection:
    """Opens a connection. Its thread would keep the process alive: `undo` ends it if opening fails later."""
    connection = _SqliteConnection(partial(sqlite3.connect, path, isolation_level=None), iter_chunk_size=64)
    try:
        await connection
    except sqlite3.Error:
        await connection.ended()  # it ends anyway, but would report to an event loop that is closed by then
        raise
    undo.push_async_callback(connection.close)
    connection.row_factory = sqlite3.Row
    await connection.execute(f"pragma busy_timeout = {_BUSY_MS}")
    await connection.execute("pragma auto_vacuum = incremental")  # only affects a new file
    await connection.execute("pragma journal_mode = wal")
    await connection.execute("pragma synchronous = full")
    await connection.execute("pragma foreign_keys = on")
    await connection.execute(
        "pragma secure_delete = on"
    )  # not every build of SQLite overwrites what is deleted
    return connection


def require_current(db: sqlite3.Connection, path: Path) -> None:
    """Raises StorageUnavailable if the storage has another version than this release's."""
    schema.require_current(version_of(db), str(path))


def migrate(db: sqlite3.Connection, path: Path, wanted: Mapping[str, int] | None = None) -> None:
    """Makes the tables of the storage at `path`, or brings them to this release's version, in one transaction: no other process
    sees half of it. `wanted`: the versions for the tables of integrations, in place of the newest.

    Raises:
        StorageError: it is of a version that this release cannot use.
    """
    version, newest, tx = version_of(db), schema.newest_version(), Tx(db)
    schema.require_usable(version, str(path))
    behind = list(schema.behind(schema.versions(tx) if version else {}, wanted))
    if version < newest or behind:
        sql = "\n".join([schema.for_sqlite(version), *(each.sql for each in behind)])
        db.executescript(f"begin immediate;\n{sql}")
        if not version:
            schema.make_installation(tx)
        schema.note(tx, behind)
        db.execute(f"pragma user_version = {newest}")
        db.execute("commit")


def version_of(db: sqlite3.Connection) -> int:
    """Returns the version of a storage; 0: it has no tables yet."""
    return int(db.execute("pragma user_version").fetchone()[0])


@contextmanager
def transaction(path: Path) -> Iterator[Tx]:
    """Yields one transaction, even while a bot holds the storage. Deleted data is overwritten with zeros.

    Raises:
        StorageUnavailable: it cannot be used, or has another version. Nothing was changed.
    """
    try:
        with closing(sqlite3.connect(path, timeout=_BUSY_SECONDS, isolation_level=None)) as db:
            db.row_factory = sqlite3.Row
            require_current(db, path)
            db.execute("pragma secure_delete = on")
            db.execute("pragma foreign_keys = on")
            db.execute("begin immediate")
            yield Tx(db)
            db.execute("commit")  # without it, closing undoes everything
    except sqlite3.Error as error:
        raise StorageUnavailable(f"{path} could not be changed: {error}.") from error


@contextmanager
def exclusive(path: Path) -> Iterator[None]:
    """Keeps bots off the storage, which need not exist.

    Raises:
        StorageInUseError: a bot is running on it.
    """
    make_folder(path.parent)
    lock = FileLock(f"{path}.lock", mode=0o600, thread_local=False)
    try:
        lock.acquire(timeout=0.2, poll_interval=0.01)
    except Timeout:
        raise StorageInUseError(
            f"{path} is in use by a clarify-bot: stop it first, with Ctrl-C or SIGTERM."
        ) from None
    try:
        yield
    finally:
        lock.release()


class TableDigest(NamedTuple):
    """The rows of a table, to compare them with those of another database: how many, and a digest."""

    rows: int
    digest: int

    @classmethod
    def of(cls, rows: Iterable[Sequence[object]]) -> Self:
        """The order of the rows does not matter. NUL counts as what PostgreSQL has in its place."""
        count = total = 0
        for row in rows:
            alike = [each.replace("\x00", "\ufffd") if isinstance(each, str) else each for each in row]
            digest = hashlib.blake2b(repr(alike).encode("utf-8", "surrogatepass"), digest_size=16).digest()
            count, total = count + 1, (total + int.from_bytes(digest)) % (1 << 128)
        return cls(count, total)


Columns = Mapping[str, Sequence[str]]
"""By table."""


def columns(file: sqlite3.Connection) -> Columns:
    """Returns the tables of this release in SQLite's file, with their columns: first the one that others refer to. Those of an
    integration that is not installed here are left out. So are the versions of integrations' tables, which say what each
    database has.
    """
    ours = {*schema.tables()} - {"integrations"}
    found = file.execute(
        "select name from sqlite_master where type = 'table' and name not like 'sqlite_%'"
        " order by name <> 'clarifications', name"
    )
    names = [str(row[0]) for row in found if row[0] in ours]
    return {name: [str(row[1]) for row in file.execute(f"pragma table_info({name})")] for name in names}


@dataclass(frozen=True, slots=True)
class InSqlite:
    """`bot.storage.opening.Kept` in SQLite's file."""

    database: Path

    @property
    def name(self) -> str:
        return str(self.database.resolve())

    def is_in_use(self) -> bool:
        """By the lock that a bot holds. Creates nothing. Takes a shared lock, so that two processes that check at once do not
        mistake each other for a bot.
        """
        try:
            with Path(f"{self.database}.lock").open("rb") as file:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        except OSError:
            return False  # a bot never started here, or we may not read the file
        return False

    def copy(self, to: Path) -> int:
        self._require()
        make_private(to)
        source = f"{self.database.resolve().as_uri()}?mode=rw"
        try:
            with (
                closing(sqlite3.connect(source, uri=True, timeout=_BUSY_SECONDS)) as there,
                closing(sqlite3.connect(to, isolation_level=None)) as target,
            ):
                there.backup(target)
                target.execute("pragma journal_mode = delete")
                problem = target.execute("pragma quick_check").fetchone()[0]
                if problem != "ok":
                    raise BackupError(f"{self.database} is damaged: {problem}.")
                return version_of(target)
        except sqlite3.Error as error:
            raise BackupError(f"{self.database} could not be copied: {error}.") from error

    def _require(self) -> None:
        if not self.database.exists():
            raise BackupError(f"{self.database} is not there: no bot has used it yet.")

    def put(
        self,
        copied: Path,
        prepare: Callable[[Tx], None],
        *,
        aside: str | None = None,
        drop: bool = False,
        emptied: Callable[[], None] = lambda: None,
    ) -> str | None:
        with exclusive(self.database):
            # Dropped: no bot has opened it. The database itself is the last.
            there = [] if drop else [each for each in self._files() if each.exists()]
            if there and aside is None:
                raise BackupError(f"{there[0]} already exists. To move it aside, add --replace.")
            emptied()
            for each in there:
                each.rename(f"{self.database}.{aside}{each.name.removeprefix(self.database.name)}")
            with putting_back(copied, self.database) as tx:
                prepare(tx)
                tx.renumber()
        return f"files with {aside} in their names" if there else None

    def _files(self) -> list[Path]:
        return [Path(f"{self.database}{suffix}") for suffix in ("-shm", "-wal", "")]

    @contextmanager
    def held(self, to: Path) -> Iterator[Tx]:
        self._require()
        with exclusive(self.database), transaction(self.database) as tx:
            self.copy(to)
            yield tx

    def contents(self, wanted: Columns) -> Mapping[str, TableDigest]:
        with self._open() as db:
            db.row_factory = None
            db.execute("begin")
            return {
                table: TableDigest.of(db.execute(f"select {', '.join(names)} from {table}"))
                for table, names in wanted.items()
            }

    def columns(self) -> Columns:
        """Returns its tables with their columns.

        Raises:
            StorageUnavailable: it cannot be read.
        """
        with self._open() as db:
            return columns(db)

    def unfinished(self) -> str | None:
        if not self.database.exists():
            return None
        with suppress(StorageUnavailable), self.read_only() as tx:  # else it is something else, which stays
            row = tx.one("select id from installation where moved_from is not null")
            return None if row is None else str(row["id"])
        return None

    @contextmanager
    def read_only(self) -> Iterator[Tx]:
        with self._open() as db:
            require_current(db, self.database)
            yield Tx(db)

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        """Opens it without creating a log. If there is none, no one is writing; a normal open would leave one behind."""
        path = self.database.resolve()
        how = "" if path.with_name(f"{path.name}-wal").exists() else "&immutable=1"
        uri = f"{path.as_uri()}?mode=ro{how}"
        try:
            with closing(sqlite3.connect(uri, uri=True, timeout=_LOOK_SECONDS)) as db:
                db.row_factory = sqlite3.Row
                yield db
        except sqlite3.Error as error:
            raise StorageUnavailable(f"The storage could not be read: {error}.") from error

    def change(self, work: Callable[[Tx], _T]) -> _T:
        if not self.database.exists():
            raise StorageUnavailable(f"{self.database} is not there: no bot has used it yet.")
        with transaction(self.database) as tx:
            result = work(tx)
        tell_changed(self.database)
        return result

    def purge(self) -> None:
        """Writes back and truncates SQLite's log, which still holds old pages."""
        try:
            with closing(sqlite3.connect(self.database, timeout=_BUSY_SECONDS)) as db:
                is_read = db.execute("pragma wal_checkpoint(truncate)").fetchone()[0]
        except sqlite3.Error as error:
            raise StorageUnavailable(f"{self.database} could not be changed: {error}.") from error
        if is_read:
            raise StorageUnavailable(
                f"It was deleted, but {self.database}-wal still holds it while another process reads the database. "
                "Run the same command again."
            )


@contextmanager
def putting_back(copied: Path, to: Path) -> Iterator[Tx]:
    """Yields a transaction on a copied storage, upgraded to this version, then moves it into place.

    It is packed, so that it can return disk space later.

    Raises:
        BackupError: it cannot be used.
    """
    draft = Path(f"{to}.restoring")
    try:
        make_private(draft)
        shutil.copyfile(copied, draft)
        with closing(sqlite3.connect(draft, isolation_level=None)) as db:
            db.row_factory = sqlite3.Row
            migrate(db, draft)
            db.execute("pragma foreign_keys = on")
            db.execute("begin")
            yield Tx(db)
            db.execute("commit")
            db.execute("pragma auto_vacuum = incremental")
            db.execute("vacuum")
        sync(draft)
        draft.rename(to)
        sync(to.parent)
    except sqlite3.Error as error:
        raise BackupError(f"{copied} cannot be used: {error}.") from error
    finally:
        draft.unlink(missing_ok=True)


def _require_here(db: sqlite3.Connection, path: Path) -> None:
    """Raises StorageError if this release cannot use a storage, and StorageMoved if it moved to another database."""
    version = version_of(db)
    schema.require_usable(version, str(path))
    if version == schema.newest_version():
        require_here(str(path), db.execute("select moved_to, moved_from from installation").fetchone())


def check_storage(path: Path) -> CheckResult:
    """Checks the lock that a running bot holds, then the file itself. Creates nothing."""
    is_there = path.exists() or InSqlite(path).is_in_use()
    return _check_file(path) if is_there else _check_place(path)


def _check_file(path: Path) -> CheckResult:
    subject = "storage.path"
    try:
        with (
            exclusive(path),
            closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=rw", uri=True)) as db,
        ):
            db.row_factory = sqlite3.Row
            _require_here(db, path)
    except StorageMoved as error:
        return wrong(subject, str(error), "name the database that it moved to")
    except StorageInUseError:
        return wrong(subject, f"{path} is in use by another instance", "stop that instance first")
    except StorageError as error:
        return wrong(subject, str(error), schema.REMEDY)
    except OSError as error:
        fix = "make it writable for this user"
        return wrong(subject, f"{path} cannot be locked: {error.strerror}", fix)
    except sqlite3.Error as error:
        return wrong(
            subject, f"{path} cannot be opened: {error}", "restore it from a backup, or move it away"
        )
    return right(subject, f"{path} is ready")


def _check_place(path: Path) -> CheckResult:
    why = why_not_creatable(path)
    if why is not None:
        return wrong("storage.path", f"{path} cannot be created: {why}", "choose another, or mount its disk")
    return right("storage.path", f"{path} will be created")
