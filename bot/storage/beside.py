# ruff: noqa: S608 - names of tables and columns are ours alone
"""Reads, changes, copies and restores a SQLite storage from another process, whether a bot runs or not. Blocking."""

from __future__ import annotations

import fcntl
import hashlib
import shutil
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple, Self

from filelock import FileLock, Timeout

from bot.checks import CheckResult, right, wrong
from bot.errors import BackupError, StorageError, StorageInUseError, StorageMoved, StorageUnavailable
from bot.storage.schema import REMEDY, newest_version, require_usable
from bot.storage.sqlite import migrate, require_current, version_of
from bot.storage.store import require_here
from bot.storage.tx import Row, Tx
from core.files import make_folder, make_private, sync

_LOOK_SECONDS, _BUSY_SECONDS = 2.0, 10.0
_WITH = ("", "-wal", "-shm")


@contextmanager
def read_only(path: Path, *, current: bool = False) -> Iterator[Tx]:
    """Yields a transaction for queries on an existing storage. Writes and locks nothing.

    `current`: refuse a storage of another version.

    Raises:
        StorageUnavailable: it cannot be read, or has another version.
    """
    try:
        with closing(_read_only(path)) as db:
            if current:
                require_current(db, path)
            yield Tx(db)
    except sqlite3.Error as error:
        raise StorageUnavailable(f"The storage could not be read: {error}.") from error


@contextmanager
def transaction(path: Path, *, current: bool = True) -> Iterator[Tx]:
    """Yields one transaction, even while a bot holds the storage. Deleted data is overwritten with zeros.

    `current`: refuse a storage of another version.

    Raises:
        StorageUnavailable: it cannot be used, or has another version. Nothing was changed.
    """
    try:
        with closing(sqlite3.connect(path, timeout=_BUSY_SECONDS, isolation_level=None)) as db:
            db.row_factory = sqlite3.Row
            if current:
                require_current(db, path)
            db.execute("pragma secure_delete = on")
            db.execute("pragma foreign_keys = on")
            db.execute("begin immediate")
            yield Tx(db)
            db.execute("commit")  # without it, closing undoes everything
    except sqlite3.Error as error:
        raise StorageUnavailable(f"{path} could not be changed: {error}.") from error


def empty_log(path: Path) -> bool:
    """Writes back and truncates SQLite's log, which still holds old pages. Returns False while another process reads:
    try again.

    Raises:
        StorageUnavailable: it cannot be used.
    """
    try:
        with closing(sqlite3.connect(path, timeout=_BUSY_SECONDS)) as db:
            return not db.execute("pragma wal_checkpoint(truncate)").fetchone()[0]
    except sqlite3.Error as error:
        raise StorageUnavailable(f"{path} could not be changed: {error}.") from error


NOTED = "select others, told_at from installation where told_at is not null"


@dataclass(frozen=True, slots=True)
class SlackConnections:
    """How many connections of the Slack app were not the bot's, when Slack last reported them."""

    others: int
    at: datetime

    @classmethod
    def noted(cls, row: Row | None) -> Self | None:
        """Reads them from the row of `installation`."""
        return None if row is None else cls(row["others"], datetime.fromtimestamp(row["told_at"], UTC))


def connections(path: Path) -> SlackConnections | None:
    """Returns what `Store.note_connections` stored last, or None if there is nothing or it cannot be read."""
    if not path.exists():
        return None
    try:
        with read_only(path) as tx:
            return SlackConnections.noted(tx.one(NOTED))
    except StorageUnavailable:
        return None  # another line of `clarify check` reports it


def is_in_use(path: Path) -> bool:
    """Returns whether a bot runs on this storage, by the lock that it holds. Blocking; creates nothing. Takes a
    shared lock, so that two processes that check at once do not mistake each other for a bot.
    """
    try:
        with Path(f"{path}.lock").open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False  # a bot never started here, or we may not read the file
    return False


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


def parts(path: Path) -> list[Path]:
    """Returns the storage's files that exist, the database itself last."""
    return [part for suffix in reversed(_WITH) if (part := Path(f"{path}{suffix}")).exists()]


def rename_to(path: Path, name: str) -> None:
    """Renames the storage's files, if any, by adding `name`."""
    for part in parts(path):
        part.rename(f"{path}.{name}{part.name.removeprefix(path.name)}")


def copy(path: Path, to: Path) -> int:
    """Copies a snapshot of a storage into one file, even while others write. Returns its version.

    Raises:
        BackupError: it is damaged, or cannot be read.
    """
    make_private(to)
    try:
        with (
            closing(
                sqlite3.connect(f"{path.resolve().as_uri()}?mode=rw", uri=True, timeout=_BUSY_SECONDS)
            ) as source,
            closing(sqlite3.connect(to, isolation_level=None)) as target,
        ):
            source.backup(target)
            target.execute("pragma journal_mode = delete")
            problem = target.execute("pragma quick_check").fetchone()[0]
            if problem != "ok":
                raise BackupError(f"{path} is damaged: {problem}.")
            return version_of(target)
    except sqlite3.Error as error:
        raise BackupError(f"{path} could not be copied: {error}.") from error


class Contents(NamedTuple):
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
    """Returns SQLite's tables, which PostgreSQL has, too, with their columns: first the one that others refer to."""
    tables = file.execute(
        "select name from sqlite_master where type = 'table' and name not like 'sqlite_%'"
        " order by name <> 'clarifications', name"
    )
    names = [str(row[0]) for row in tables]
    return {name: [str(row[1]) for row in file.execute(f"pragma table_info({name})")] for name in names}


def columns_in(path: Path) -> Columns:
    """Returns the tables of a storage with their columns.

    Raises:
        StorageUnavailable: it cannot be read.
    """
    try:
        with closing(_read_only(path)) as db:
            return columns(db)
    except sqlite3.Error as error:
        raise StorageUnavailable(f"The storage could not be read: {error}.") from error


def contents(path: Path, wanted: Columns) -> Mapping[str, Contents]:
    """Returns what is in the columns of a storage, as of one moment.

    Raises:
        StorageUnavailable: it cannot be read.
    """
    try:
        with closing(_read_only(path)) as db:
            db.row_factory = None
            db.execute("begin")
            return {
                table: Contents.of(db.execute(f"select {', '.join(names)} from {table}"))
                for table, names in wanted.items()
            }
    except sqlite3.Error as error:
        raise StorageUnavailable(f"The storage could not be read: {error}.") from error


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


def _read_only(path: Path) -> sqlite3.Connection:
    """Opens a storage without creating a log. If there is none, no one is writing; a normal open would leave one
    behind.
    """
    path = path.resolve()
    how = "" if path.with_name(f"{path.name}-wal").exists() else "&immutable=1"
    db = sqlite3.connect(f"{path.as_uri()}?mode=ro{how}", uri=True, timeout=_LOOK_SECONDS)
    db.row_factory = sqlite3.Row
    return db


def _require_here(db: sqlite3.Connection, path: Path) -> None:
    """Raises StorageError if this release cannot use a storage, and StorageMoved if it moved to another database."""
    version = version_of(db)
    require_usable(version, str(path))
    if version == newest_version():
        require_here(str(path), db.execute("select moved_to, moved_from from installation").fetchone())


def check_storage(path: Path) -> CheckResult:
    """Checks the lock that a running bot holds, then the file itself."""
    subject, is_there = "storage.path", path.exists()
    try:
        with exclusive(path):
            if is_there:
                with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=rw", uri=True)) as db:
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
    return right(subject, f"{path} {'is ready' if is_there else 'will be created'}")
