# ruff: noqa: S608 - names of tables and columns are ours alone
"""Reads, changes, copies and restores a SQLite storage from another process, whether a bot runs or not. Blocking."""

from __future__ import annotations

import fcntl
import hashlib
import shutil
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Self, TypeVar

from filelock import FileLock, Timeout

from bot.checks import CheckResult, right, wrong
from bot.errors import BackupError, StorageError, StorageInUseError, StorageMoved, StorageUnavailable
from bot.storage.schema import REMEDY, newest_version, require_usable, tables
from bot.storage.sqlite import migrate, require_current, tell_changed, version_of
from bot.storage.store import require_here
from bot.storage.tx import Tx
from core.files import make_folder, make_private, sync, why_not_creatable

_T = TypeVar("_T")
_LOOK_SECONDS, _BUSY_SECONDS = 2.0, 10.0


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
    ours = {*tables()} - {"integrations"}
    found = file.execute(
        "select name from sqlite_master where type = 'table' and name not like 'sqlite_%'"
        " order by name <> 'clarifications', name"
    )
    names = [str(row[0]) for row in found if row[0] in ours]
    return {name: [str(row[1]) for row in file.execute(f"pragma table_info({name})")] for name in names}


@dataclass(frozen=True, slots=True)
class InSqlite:
    """`bot.storage.outside.Kept` in SQLite's file."""

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
    require_usable(version, str(path))
    if version == newest_version():
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
        return wrong(subject, str(error), REMEDY)
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
