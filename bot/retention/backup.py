"""Backs up everything while the bot runs, and restores it: no question lost, no answer sent twice. Blocking.

A backup is a folder with the storage as a SQLite file and each ledger as a file, whatever database the bot keeps them in
(`Kept`). So a backup of one kind can be restored into the other.

`manifest.json` lists a backup's files. It is written last: a folder without it is not a backup.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, Protocol, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from bot.decisions import log
from bot.errors import BackupError
from bot.oncall import incidents, pages, swaps, turns
from bot.producers import inbox, push, questions
from bot.storage.sqlite import newest_version
from bot.storage.tx import Tx
from core.clarification import Moment
from core.files import make_folder, sync
from core.records import Raw

_T = TypeVar("_T")

NAME = "manifest.json"
DATABASE = "clarify.db"
LEDGERS = "ledgers"
_FORMAT = 1
_PATH = re.compile(r"clarify\.db|ledgers/(archive/)?issue-(\d{1,15})[^/]*")
# Numbers given out since the backup are on cards that are still in Slack. A click there must not answer another
# question or take another page, so a restore skips this many.
NUMBERS_LEFT_OUT, _ISSUES_LEFT_OUT, _PAGES_LEFT_OUT = 100, 1000, 1000


def _known(path: str) -> str:
    if not _PATH.fullmatch(path) or ".." in PurePosixPath(path).parts:
        raise ValueError("no file of a backup")
    return path


class File(BaseModel):
    """`path` is relative to the backup's folder."""

    model_config = ConfigDict(frozen=True)

    path: Annotated[str, AfterValidator(_known)]
    size: int
    sha256: str

    @property
    def issue(self) -> int | None:
        """The issue whose ledger this is, or None."""
        match = _PATH.fullmatch(self.path)
        return int(match[2]) if match and match[2] else None


class Manifest(BaseModel):
    """The contents of a backup. `storage_version`: None if there was no storage. `numbers`: the highest one used, by
    issue.
    """

    model_config = ConfigDict(frozen=True)

    format: int = Field(default=_FORMAT, ge=1, le=_FORMAT)
    made: Moment
    release: str
    storage_version: int | None = None
    numbers: dict[int, int] = Field(default_factory=dict)
    files: tuple[File, ...] = ()

    @property
    def ledgers(self) -> list[File]:
        return [file for file in self.files if file.issue is not None]


def described(folder: Path, path: Path) -> File:
    """Describes a file of the backup in `folder` as it is now. Blocking."""
    content = path.read_bytes()
    return File(
        path=path.relative_to(folder).as_posix(),
        size=len(content),
        sha256=hashlib.sha256(content).hexdigest(),
    )


def verified(folder: Path) -> Manifest:
    """Returns the manifest of a backup after comparing all its files with it. Blocking.

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
    for file in manifest.files:
        try:
            found = described(folder, folder / file.path)
        except OSError as error:
            raise BackupError(f"{folder / file.path} cannot be read: {error.strerror}.") from error
        if found != file:
            raise BackupError(f"{folder / file.path} is damaged: it differs from what was backed up.")
    return manifest


@dataclass(frozen=True, slots=True)
class Restored:
    """The outcome of a restore. `aside`: where the previous data is now, if there was any. `left`: files of the
    backup that hold data that could not be restored.
    """

    manifest: Manifest
    aside: str | None = None
    left: Sequence[str] = ()


class Kept(Protocol):
    """All that a bot keeps: ledgers and storage. Used from another process, whether a bot runs or not. Blocking."""

    def copy(self, to: Path) -> tuple[int | None, dict[int, int]]:
        """Copies everything into a backup's folder: `DATABASE`, `LEDGERS`.

        Returns:
            The storage's version, or None without a storage, and the highest number given out in each issue.

        Raises:
            BackupError, LockTimeout, StorageUnavailable: see there.
            OSError: the folder cannot be written.
        """

    def put(self, folder: Path, manifest: Manifest, *, now: datetime, replace: bool, copy: bool) -> Restored:
        """Replaces everything by the backup in `folder`; see `restore`."""

    def ledgers(self, issue: int | None = None) -> Iterator[tuple[int, str, list[Any] | None]]:
        """Yields each ledger, archived or not: its issue, its name and its clarifications, or None if it is
        unreadable.
        """

    def read_only(self) -> AbstractContextManager[Tx | None]:
        """Yields a transaction for queries on the storage, or None if there is no storage.

        Raises:
            StorageUnavailable: it cannot be read.
        """

    def forget(
        self,
        issues: Sequence[int],
        change: Callable[[Raw], bool],
        rows: Callable[[Tx], _T],
        is_done: Callable[[_T], bool],
    ) -> _T | None:
        """Lets `change` edit the ledgers of these issues and `rows` the storage. Returns what `rows` returned, or
        None without a storage. Repeat the call if the result is not `is_done`, or an error is raised.

        Raises:
            LockTimeout, LedgerUnwritable, StorageUnavailable: repeating the call does the rest.
        """

    def set_aside(self, issues: Sequence[int]) -> list[str]:
        """Returns the names of quarantined ledger files of these issues, which may contain anything."""


def backup(kept: Kept, folder: Path, *, now: datetime, release: str) -> Manifest:
    """Copies everything into `folder`, which must be empty or missing.

    Raises:
        BackupError: it is not empty, or cannot be written; nothing is left of it.
        LockTimeout: another process holds a ledger.
        StorageUnavailable: the database cannot be read.
    """
    if folder.exists() and any(folder.iterdir()):
        raise BackupError(f"{folder} is not empty. A backup needs an empty folder.")
    draft = folder.with_name(f"{folder.name}.partial-{os.getpid()}")
    try:
        make_folder(draft)
        version, numbers = kept.copy(draft)
        manifest = _described(draft, version, numbers, now, release)
        if folder.exists():
            folder.rmdir()
        draft.rename(folder)
        sync(folder.parent)
    except OSError as error:
        raise BackupError(f"{folder} cannot be written: {error.strerror or error}.") from error
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return manifest


def _described(
    draft: Path, version: int | None, numbers: dict[int, int], now: datetime, release: str
) -> Manifest:
    files = sorted(path for path in draft.rglob("*") if path.is_file())
    for path in files:
        path.chmod(0o600)
        sync(path)
    manifest = Manifest(
        made=now,
        release=release,
        storage_version=version,
        numbers=numbers,
        files=tuple(described(draft, path) for path in files),
    )
    (draft / NAME).write_text(manifest.model_dump_json(indent=2), encoding="utf-8")
    (draft / NAME).chmod(0o600)
    sync(draft / NAME)
    sync(draft)
    return manifest


def restore(folder: Path, kept: Kept, *, now: datetime, replace: bool, copy: bool = False) -> Restored:
    """Verifies the backup in `folder` and restores it, into files or a database, whichever it came from.

    The installation stays the same, so buttons in Slack keep working. With `copy` it becomes another installation
    beside the first, and ignores clicks on the first one's buttons.

    Raises:
        BackupError: it is not a backup, is damaged, or is from a newer release; or data exists and `replace` is False.
        StorageInUseError: a bot runs on the storage.
        LockTimeout, LedgerUnwritable: see there.
    """
    manifest = verified(folder)
    if (manifest.storage_version or 0) > newest_version():
        raise BackupError(f"{folder} was made by a newer clarify-bot ({manifest.release}).")
    try:
        return kept.put(folder, manifest, now=now, replace=replace, copy=copy)
    except OSError as error:
        raise BackupError(f"Not restored: {error.filename or folder}: {error.strerror}.") from error


def leave_out(tx: Tx, now: datetime, *, copy: bool) -> None:
    """Skips the numbers that were given out since the backup was made. `copy`: the first installation goes on."""
    inbox.leave_out_issues(tx, _ISSUES_LEFT_OUT)
    incidents.leave_out(tx, _PAGES_LEFT_OUT, f"restored:{now.isoformat()}", now)
    pages.leave_out(tx, _PAGES_LEFT_OUT, now)
    turns.begin_anew(tx)
    swaps.leave_out(tx, _PAGES_LEFT_OUT)
    push.begin_anew(tx, now.isoformat())
    log.compare_again(tx)
    if copy:
        questions.leave_callbacks_out(tx)
