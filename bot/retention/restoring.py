"""A backup is put in the place of what is there, which is moved aside, not deleted. Blocking."""

from __future__ import annotations

import hashlib
import os
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import datetime
from pathlib import Path

from filelock import FileLock, Timeout

from bot.errors import BackupError, StorageInUseError
from bot.retention.manifest import DATABASE, LEDGERS, Manifest, verified
from bot.storage.store import newest_version
from core.files import make_folder, make_private, replacing, sync_folder
from core.ledger import FileLedger
from core.records import SEAL_KEY as KEY

_WITH = ("", "-wal", "-shm")
# Numbers given out since the backup stand on cards that are still in Slack: a click there must not answer another
# question, nor take another page. So many are left out.
_ISSUES_LEFT_OUT, _NUMBERS_LEFT_OUT, _PAGES_LEFT_OUT = 1000, 100, 1000


def restore(
    folder: Path, upkeep: FileLedger, database: Path, *, now: datetime, replace: bool, copy: bool = False
) -> Manifest:
    """Verify the backup in `folder`, then have the ledgers and the storage be as they were.

    It stays the same installation: buttons in Slack go on working. With `copy` it becomes another one beside the first,
    and buttons that the first posted decide nothing here.

    The storage comes last: killed before, the same call (with `replace`) does it again.

    Raises:
        BackupError: it is none, is damaged, or of a newer release; or there is something and `replace` was not said.
        StorageInUseError: a bot runs on the storage. LockTimeout, LedgerUnwritable: as they say.
    """
    manifest = verified(folder)
    if (manifest.storage_version or 0) > newest_version():
        raise BackupError(f"{folder} was made by a newer clarify-bot ({manifest.release}).")
    with _alone(database):
        there = [*(path for paths in upkeep.files().values() for path in paths), *_parts(database)]
        if there and not replace:
            raise BackupError(
                f"{there[0]} is there already: with --replace it is moved aside, with all others."
            )
        try:
            _move_aside(upkeep, database, f"before-restore-{now:%Y%m%dT%H%M%S}")
            _put_ledgers(folder, upkeep, manifest)
            _put_key(folder / KEY, upkeep.private / KEY)
            if manifest.storage_version is not None:
                _put_storage(folder / DATABASE, database, now, copy=copy)
        except OSError as error:
            raise BackupError(f"Not restored: {error.filename or folder}: {error.strerror}.") from error
    return manifest


@contextmanager
def _alone(database: Path) -> Iterator[None]:
    make_folder(database.parent)
    lock = FileLock(f"{database}.lock", mode=0o600, thread_local=False)
    try:
        lock.acquire(timeout=0.2, poll_interval=0.01)
    except Timeout:
        raise StorageInUseError(f"{database} is in use by a clarify-bot: stop it first.") from None
    try:
        yield
    finally:
        lock.release()


def _parts(database: Path) -> list[Path]:
    return [path for suffix in _WITH if (path := Path(f"{database}{suffix}")).exists()]


def _move_aside(upkeep: FileLedger, database: Path, name: str) -> None:
    for issue, paths in upkeep.files().items():
        for path in paths:
            upkeep.move(issue, path, upkeep.directory / name / path.relative_to(upkeep.directory))
    for suffix in reversed(_WITH):
        path = Path(f"{database}{suffix}")
        if path.exists():
            path.rename(f"{database}.{name}{suffix}")


def _put_ledgers(folder: Path, upkeep: FileLedger, manifest: Manifest) -> None:
    for file in manifest.ledgers:
        source = folder / file.path
        target = upkeep.directory / Path(file.path).relative_to(LEDGERS)
        upkeep.put(file.issue or 0, target, source.read_bytes())
    for issue, number in manifest.numbers.items():
        with upkeep.held(issue):
            given_out = max(number, upkeep.numbers.highest(issue))
            upkeep.numbers.note(issue, given_out + _NUMBERS_LEFT_OUT)


def _put_key(source: Path, key: Path) -> None:
    if source.exists():  # backups of earlier releases have none
        with replacing(key, source.read_bytes(), key.parent):
            pass


def _put_storage(source: Path, database: Path, now: datetime, *, copy: bool) -> None:
    """Packed on the way, so that from then on it can give space back."""
    draft = Path(f"{database}.restoring")
    try:
        make_private(draft)
        shutil.copyfile(source, draft)
        with closing(sqlite3.connect(draft, isolation_level=None)) as db:
            db.execute("update counters set value = value + ? where name = 'issue'", (_ISSUES_LEFT_OUT,))
            _leave_out_pages(db, now)
            _begin_streams_anew(db, now)
            if copy:
                _become_another(db)
            db.execute("pragma auto_vacuum = incremental")
            db.execute("vacuum")
        handle = os.open(draft, os.O_RDWR)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
        draft.rename(database)
        sync_folder(database.parent)
    except sqlite3.Error as error:
        raise BackupError(f"{source} cannot be used: {error}.") from error
    finally:
        draft.unlink(missing_ok=True)


def _leave_out_pages(db: sqlite3.Connection, now: datetime) -> None:
    """Rows that are over already take the numbers before those that are given out next."""
    numbers = {"left_out": _PAGES_LEFT_OUT, "now": now.timestamp(), "key": f"restored:{now.isoformat()}"}
    for table, statement in _PLACES.items():
        if db.execute("select 1 from sqlite_master where name = ?", (table,)).fetchone():
            db.execute(statement, numbers)


def _begin_streams_anew(db: sqlite3.Connection, now: datetime) -> None:
    """Numbers of replies are given out again: who says which it had last must not be taken to have had those."""
    if not db.execute("select 1 from sqlite_master where name = 'pushing'").fetchone():
        return  # of a release before there were any
    for producer, epoch in db.execute("select producer, epoch from pushing").fetchall():
        fresh = hashlib.blake2b(f"{epoch} {now.isoformat()}".encode(), digest_size=6).hexdigest()
        db.execute("update pushing set epoch = ? where producer = ?", (fresh, producer))


def _become_another(db: sqlite3.Connection) -> None:
    if not db.execute("select 1 from sqlite_master where name = 'installation'").fetchone():
        return  # of a release without the id: the next start makes one
    db.execute("update installation set id = lower(hex(randomblob(8))), others = 0, told_at = null")


_PLACES = {
    "incidents": """
      insert into incidents (id, key, kind, title, reason, body, began_at, closed_at)
      select coalesce(max(id), 0) + :left_out, :key, 'restored', '', '', '', :now, :now from incidents""",
    "pages": """
      insert into pages (id, kind, step, at)
      select coalesce(max(id), 0) + :left_out, 'restored', 0, :now from pages""",
}
