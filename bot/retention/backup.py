"""Backs up everything while the bot runs, and restores it: no question lost, no answer sent twice. Blocking.

A backup is a folder with the database as a SQLite file, whether the bot keeps it in SQLite or in PostgreSQL (`Kept`), so a
backup of one kind can be restored into the other. Ledger files are no part of it: they follow the database.

`manifest.json` describes the file. It is written last: a folder without it is not a backup.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from bot import integrations
from bot.ask import inbox, push
from bot.errors import BackupError, StorageUnavailable
from bot.oncall import incidents, pages, turns
from bot.retention.local import LocalFiles
from bot.show import messages
from bot.storage import ledger
from bot.storage.outside import Kept
from bot.storage.schema import refusal
from bot.storage.tx import Tx
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
