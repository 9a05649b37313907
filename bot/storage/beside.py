"""Reads, changes, copies and restores the storage from another process, whether a bot runs or not. Blocking.

What is specific to SQLite is only here and in `store`.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Self

from filelock import FileLock, Timeout

from bot.checks import CheckResult, right, wrong
from bot.errors import BackupError, StorageInUseError, StorageUnavailable
from bot.storage.sqlite import forget_signal, migrate, newest_version
from bot.storage.tx import Row, Tx
from core.files import make_folder, make_private, sync_folder

_LOOK_SECONDS, _BUSY_SECONDS = 2.0, 10.0
_WITH = ("", "-wal", "-shm")


@contextmanager
def read_only(path: Path, *, current: bool = False) -> Iterator[Tx]:
    """Queries of a storage that is there: nothing is written, nothing is locked. `current`: only of this version.

    Raises:
        StorageUnavailable: it cannot be read, or is another version's.
    """
    try:
        with closing(_read_only(path)) as db:
            if current:
                _require_current(db, path)
            yield Tx(db)
    except sqlite3.Error as error:
        raise StorageUnavailable(f"The storage could not be read: {error}.") from error


@contextmanager
def transaction(path: Path, *, current: bool = True) -> Iterator[Tx]:
    """One transaction, also while a bot holds the storage. What is deleted in it is overwritten.

    Raises:
        StorageUnavailable: nothing was changed: it cannot be used, or (if `current`) is another version's.
    """
    try:
        with closing(sqlite3.connect(path, timeout=_BUSY_SECONDS, isolation_level=None)) as db:
            db.row_factory = sqlite3.Row
            if current:
                _require_current(db, path)
            db.execute("pragma secure_delete = on")
            db.execute("begin immediate")
            yield Tx(db)
            db.execute("commit")  # closed before it, nothing was changed
    except sqlite3.Error as error:
        raise StorageUnavailable(f"{path} could not be changed: {error}.") from error


def notify(path: Path) -> None:
    """Tell a running bot that something was forgotten."""
    forget_signal(path).touch(mode=0o600)
    forget_signal(path).write_bytes(b"")


def empty_log(path: Path) -> bool:
    """Have SQLite's log, which still holds old pages, written back and cut; False: somebody reads, try again.

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
    """How many of the Slack app's connections were not the bot's, when Slack last reported them."""

    others: int
    at: datetime

    @classmethod
    def noted(cls, row: Row | None) -> Self | None:
        """From the row of `installation`."""
        return None if row is None else cls(row["others"], datetime.fromtimestamp(row["told_at"], UTC))


def connections(path: Path) -> SlackConnections | None:
    """What `Store.note_connections` kept last; None: nothing yet, or it cannot be read."""
    if not path.exists():
        return None
    try:
        with read_only(path) as tx:
            return SlackConnections.noted(tx.one(NOTED))
    except StorageUnavailable:
        return None  # `clarify check` says so on another line


def is_in_use(path: Path) -> bool:
    """Whether a bot runs on this storage: it holds a lock for as long as it lives. Blocking; creates nothing.

    Looked at through a shared lock, so that two that look do not take each other for a bot.
    """
    try:
        with Path(f"{path}.lock").open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False  # never started here, or not for us to see
    return False


@contextmanager
def exclusive(path: Path) -> Iterator[None]:
    """No bot runs on the storage meanwhile, which need not be there.

    Raises:
        StorageInUseError: one does.
    """
    make_folder(path.parent)
    lock = FileLock(f"{path}.lock", mode=0o600, thread_local=False)
    try:
        lock.acquire(timeout=0.2, poll_interval=0.01)
    except Timeout:
        raise StorageInUseError(f"{path} is in use by a clarify-bot: stop it first.") from None
    try:
        yield
    finally:
        lock.release()


def parts(path: Path) -> list[Path]:
    """The files of a storage that are there, the database itself last."""
    return [part for suffix in reversed(_WITH) if (part := Path(f"{path}{suffix}")).exists()]


def rename_to(path: Path, name: str) -> None:
    """Rename the storage's files, with `name` added, if there are any."""
    for part in parts(path):
        part.rename(f"{path}.{name}{part.name.removeprefix(path.name)}")


def copy(path: Path, to: Path) -> int:
    """Copy a snapshot of a storage, even while others write, into one file; returns its version.

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
            return int(target.execute("pragma user_version").fetchone()[0])
    except sqlite3.Error as error:
        raise BackupError(f"{path} could not be copied: {error}.") from error


@contextmanager
def putting_back(copied: Path, to: Path, *, another: bool) -> Iterator[Tx]:
    """Put a copied storage in its place, once what is done meanwhile is done: of this version, and packed, so that from
    then on it can give space back. With `another` it is another installation's.

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
            db.execute("begin")
            if another:
                db.execute(
                    "update installation set id = :id, others = 0, told_at = null",
                    {"id": secrets.token_hex(8)},
                )
            yield Tx(db)
            db.execute("commit")
            db.execute("pragma auto_vacuum = incremental")
            db.execute("vacuum")
        handle = os.open(draft, os.O_RDWR)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
        draft.rename(to)
        sync_folder(to.parent)
    except sqlite3.Error as error:
        raise BackupError(f"{copied} cannot be used: {error}.") from error
    finally:
        draft.unlink(missing_ok=True)


def _read_only(path: Path) -> sqlite3.Connection:
    """Without a log beside it nobody writes it now; opened as usual, SQLite would begin one and leave it there."""
    path = path.resolve()
    how = "mode=ro" if path.with_name(f"{path.name}-wal").exists() else "immutable=1"
    db = sqlite3.connect(f"{path.as_uri()}?{how}", uri=True, timeout=_LOOK_SECONDS)
    db.row_factory = sqlite3.Row
    return db


def _require_current(db: sqlite3.Connection, path: Path) -> None:
    version = db.execute("pragma user_version").fetchone()[0]
    if version != newest_version():
        raise StorageUnavailable(
            f"{path} is of version {version}: start the bot once, which brings it up to date."
        )


def check_storage(path: Path) -> CheckResult:
    """Try the lock that a running bot holds, then the file itself."""
    subject, is_there = "storage.path", path.exists()
    try:
        with exclusive(path):
            if is_there:
                with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=rw", uri=True)) as db:
                    db.execute("pragma schema_version").fetchone()
    except StorageInUseError:
        return wrong(subject, f"{path} is in use by another instance", "stop that instance first")
    except OSError as error:
        fix = "make it writable for this user"
        return wrong(subject, f"{path} cannot be locked: {error.strerror}", fix)
    except sqlite3.Error as error:
        return wrong(
            subject, f"{path} cannot be opened: {error}", "restore it from a backup, or move it away"
        )
    return right(subject, f"{path} {'is ready' if is_there else 'will be created'}")
