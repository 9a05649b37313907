"""Backs up everything while the bot runs, restores it, and moves it into another database: no question lost, no answer sent twice.
Blocking.

A backup is a folder with the database as a SQLite file, whether the bot keeps it in SQLite or in PostgreSQL (`Kept`), so a
backup of one kind can be restored into the other. Ledger files are no part of it: they follow the database.
`manifest.json` describes the file. It is written last: a folder without it is not a backup.

After a move the bot continues in the other database as if it had only been restarted. Unlike a restore, nothing has happened
since: numbers continue, messages and ledger files stay as they are. No moment of it leaves two databases that a bot starts
on, whenever it is interrupted:

1. The target gets the rows, marked as incomplete (`moved_from`): no bot starts on it.
2. The source is marked as moved (`moved_to`): no bot and no command starts on it any more.
3. The target loses its mark.

The source takes no writes meanwhile. The same call again continues an interrupted move: before 2 from the beginning, after it
with 3.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from tempfile import TemporaryDirectory

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from bot import integrations
from bot.ask import inbox, push
from bot.errors import BackupError, StorageUnavailable
from bot.oncall import incidents, pages, turns
from bot.retention.forget import LocalFiles
from bot.show import messages
from bot.storage import ledger
from bot.storage.opening import Kept
from bot.storage.schema import refusal
from bot.storage.sqlite import Columns, InSqlite
from bot.storage.store import require_here
from bot.storage.tx import NUMBERED, Row, Tx
from core.clarification import Moment
from core.files import make_folder, sync

NAME = "manifest.json"
DATABASE = "clarify.db"
_FORMAT = 1
# Numbers given out since the backup are on cards that are still in Slack. A click there must not answer another
# question or take another page, so a restore skips this many.
_NUMBERS_LEFT_OUT, _ISSUES_LEFT_OUT, _PAGES_LEFT_OUT = 100, 1000, 1000


class Manifest(BaseModel):
    """Describes a backup: when and by which release it was made, and its `DATABASE`."""

    model_config = ConfigDict(frozen=True)

    format: int = Field(default=_FORMAT, ge=1, le=_FORMAT)
    made: Moment
    release: str
    storage_version: int
    size: int
    sha256: str


def verified(folder: Path) -> Manifest:
    """Returns the manifest of a backup after comparing the database with it. Blocking.

    Raises:
        BackupError: it is not a backup, is from a newer release, or is damaged; names the file.
    """
    try:
        manifest = Manifest.model_validate_json((folder / NAME).read_bytes())
    except FileNotFoundError:
        raise BackupError(f"{folder} is not a backup: it has no {NAME}.") from None
    except OSError as error:
        raise BackupError(f"{folder / NAME} cannot be read: {error.strerror}.") from error
    except ValidationError as error:
        fields = ", ".join(sorted({".".join(map(str, each["loc"])) or "JSON" for each in error.errors()}))
        raise BackupError(
            f"{folder / NAME} is not a manifest that this release can read (see {fields})."
        ) from None
    if (why := refusal(manifest.storage_version)) is not None:
        raise BackupError(f"{folder} {why}")
    try:
        found = _digest(folder / DATABASE)
    except OSError as error:
        raise BackupError(f"{folder / DATABASE} cannot be read: {error.strerror}.") from error
    if found != manifest.sha256:
        raise BackupError(f"{folder / DATABASE} is damaged: it differs from what was backed up.")
    return manifest


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@dataclass(frozen=True, slots=True)
class Restored:
    """The outcome of a restore. `aside`: where the previous database is now, and `files` the ledger files, if any."""

    manifest: Manifest
    aside: str | None
    files: Path | None


def backup(kept: Kept, folder: Path, *, now: datetime, release: str) -> Manifest:
    """Copies everything into `folder`, which must be empty or missing.

    Raises:
        BackupError: it is not empty, or cannot be written; nothing is left of it.
        StorageUnavailable: the database cannot be read.
    """
    if folder.exists() and any(folder.iterdir()):
        raise BackupError(f"{folder} is not empty. A backup needs an empty folder.")
    draft = folder.with_name(f"{folder.name}.partial-{os.getpid()}")
    try:
        make_folder(draft)
        manifest = _described(draft, kept.copy(draft / DATABASE), now, release)
        if folder.exists():
            folder.rmdir()
        draft.rename(folder)
        sync(folder.parent)
    except OSError as error:
        raise BackupError(f"{folder} cannot be written: {error.strerror or error}.") from error
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return manifest


def _described(draft: Path, version: int, now: datetime, release: str) -> Manifest:
    database = draft / DATABASE
    sync(database)
    manifest = Manifest(
        made=now,
        release=release,
        storage_version=version,
        size=database.stat().st_size,
        sha256=_digest(database),
    )
    (draft / NAME).write_text(manifest.model_dump_json(indent=2), encoding="utf-8")
    (draft / NAME).chmod(0o600)
    sync(draft / NAME)
    sync(draft)
    return manifest


def restore(
    folder: Path, kept: Kept, local: Sequence[LocalFiles], *, now: datetime, replace: bool
) -> Restored:
    """Verifies the backup in `folder` and restores it, into SQLite or PostgreSQL, whichever it came from.

    The installation stays the same, so buttons in Slack keep working. Files of the newer state (`local`) are moved aside first:
    beside the older database, our own newer entries there would count as other programs'.

    Raises:
        BackupError: it is not a backup, is damaged, or is from a newer release; or data exists and `replace` is False.
        StorageInUseError: a bot runs on the database.
        LockTimeout: another program holds a ledger file.
    """
    manifest = verified(folder)
    for each in () if replace else local:
        if (there := each.first()) is not None:
            raise BackupError(
                f"{there} already exists. To move it and the other ledger files aside, add --replace."
            )
    moved = list[Path]()

    def emptied() -> None:
        name = aside_name("restore", now)
        moved.extend(found for each in local if (found := each.move_aside(name)) is not None)

    numbers = _numbers(kept)

    def prepare(tx: Tx) -> None:
        ledger.fill(tx, (), numbers)
        leave_out(tx, now)

    try:
        aside = kept.put(
            folder / DATABASE, prepare, aside=aside_name("restore", now) if replace else None, emptied=emptied
        )
    except OSError as error:
        raise BackupError(f"Not restored: {error.filename or folder}: {error.strerror}.") from error
    return Restored(manifest, aside, moved[0] if moved else None)


def _numbers(kept: Kept) -> dict[int, int]:
    """Returns the highest number that the previous database gave out, by issue; none if it cannot be read."""
    try:
        with kept.read_only() as tx:
            return {row["issue"]: row["highest"] for row in tx.rows("select issue, highest from issues")}
    except StorageUnavailable:
        return {}


def aside_name(what: str, now: datetime) -> str:
    """Returns the name under which a command moves aside what was there before."""
    return f"before-{what}-{now:%Y%m%dT%H%M%S}"


def leave_out(tx: Tx, now: datetime) -> None:
    """Skips the numbers that were given out since the backup was made; has messages and ledger files written anew. The bot may
    start on it, even if it had moved to another database when it was backed up.
    """
    ledger.leave_out_numbers(tx, _NUMBERS_LEFT_OUT)
    inbox.skip_numbers(tx, "issue", _ISSUES_LEFT_OUT, inbox.FIRST_RESERVED_ISSUE)
    incidents.leave_out(tx, _PAGES_LEFT_OUT, f"restored:{now.isoformat()}", now)
    pages.leave_out(tx, _PAGES_LEFT_OUT)
    turns.begin_anew(tx)
    push.begin_anew(tx, now.isoformat())
    messages.show_again(tx)
    for each in integrations.installed():
        if each.tables is not None and each.tables.leave_out is not None:
            each.tables.leave_out(tx)
    tx.run("update installation set moved_to = null, moved_from = null")


@dataclass(frozen=True, slots=True)
class Moved:
    """How many rows were moved, by table. `aside`: where the target's previous contents are now, if it had any."""

    rows: Mapping[str, int]
    aside: str | None


def move(source: Kept, target: Kept, *, now: datetime, replace: bool) -> Moved:
    """Copies everything from `source` to `target`, compares it, and has bots start on `target` alone.

    Raises:
        BackupError: the target holds data and `replace` is False, or is the source itself; or something cannot be copied.
        StorageMoved: the source has moved to another database already.
        StorageInUseError: a bot runs on one of them.
        StorageUnavailable: one of them cannot be used. Unless it says otherwise, the same call may be repeated.
    """
    if source.name == target.name:
        raise BackupError(f"{source.name} is the database that is in use already.")
    with TemporaryDirectory() as folder:
        draft = Path(folder) / DATABASE
        with source.held(draft) as tx:
            compared, installation = _look(InSqlite(draft))
            is_unfinished = target.unfinished() == installation["id"]
            aside = None
            if installation["moved_to"] != target.name or not is_unfinished:
                require_here(source.name, installation)

                def prepare(new: Tx) -> None:
                    new.run("update installation set moved_from = :name", name=source.name)

                keep = aside_name("move", now) if replace else None
                aside = target.put(draft, prepare, aside=keep, drop=is_unfinished)
            rows = _compared(source, target, compared)
            tx.run("update installation set moved_to = :name", name=target.name)
        target.change(lambda new: new.run("update installation set moved_from = null"))
    return Moved(rows, aside)


def _look(copied: InSqlite) -> tuple[Columns, Row]:
    """Returns what the move must not change, and the installation."""
    own = {("installation", "moved_to"), ("installation", "moved_from"), *NUMBERED.items()}
    compared = {
        table: [name for name in names if (table, name) not in own]
        for table, names in copied.columns().items()
    }
    with copied.read_only() as tx:
        (row,) = tx.rows("select id, moved_to, moved_from from installation")
    return compared, row


def _compared(source: Kept, target: Kept, wanted: Columns) -> Mapping[str, int]:
    """Returns how many rows each table has.

    Raises:
        BackupError: a table differs.
    """
    before, after = source.contents(wanted), target.contents(wanted)
    for table, of in before.items():
        if of != after[table]:
            raise BackupError(
                f"The table {table} in {target.name} differs from the original. {source.name} is unchanged; run the command again."
            )
    return {table: of.rows for table, of in before.items()}
