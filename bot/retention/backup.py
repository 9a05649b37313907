"""Backs up everything while the bot runs, and restores it: no question lost, no answer sent twice. Blocking.

A backup is a folder with the storage as one file of SQLite, each ledger as a file, and the key of the seals, whether all
this was kept in files or in a database (`Kept`): so what one kind had can be restored into the other.

`manifest.json` lists what a backup holds. It is written last: a folder without it is no backup.
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

from bot.errors import BackupError
from bot.oncall import incidents, pages
from bot.producers import inbox, push
from bot.storage.sqlite import newest_version
from bot.storage.tx import Tx
from core.clarification import Moment
from core.files import make_folder, sync_folder
from core.records import Raw

_T = TypeVar("_T")

NAME = "manifest.json"
DATABASE = "clarify.db"
LEDGERS = "ledgers"
_FORMAT = 1
_PATH = re.compile(r"clarify\.db|seal\.key|ledgers/(archive/)?issue-(\d{1,15})[^/]*")
# Numbers given out since the backup are on cards that are still in Slack: a click there must not answer another
# question, nor take another page. So many are left out.
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
        """Of a ledger."""
        match = _PATH.fullmatch(self.path)
        return int(match[2]) if match and match[2] else None


class Manifest(BaseModel):
    """`storage_version`: None where there was no storage. `numbers`: the highest given out, by issue."""

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
    """A file of the backup in `folder` as it is now. Blocking."""
    content = path.read_bytes()
    return File(
        path=path.relative_to(folder).as_posix(),
        size=len(content),
        sha256=hashlib.sha256(content).hexdigest(),
    )


def verified(folder: Path) -> Manifest:
    """The manifest of a backup all of whose files are as they were. Blocking.

    Raises:
        BackupError: it is none, of a newer release, or damaged; says which file.
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
    """What came of a restore. `aside`: where is now what was there before; None: nothing was. `left`: files of the backup
    that hold nothing that could be put in place.
    """

    manifest: Manifest
    aside: str | None = None
    left: Sequence[str] = ()


class Kept(Protocol):
    """All that a bot keeps, ledgers and storage, from another process, whether a bot runs or not. Blocking."""

    def copy(self, to: Path) -> tuple[int | None, dict[int, int]]:
        """Copy it into a backup's folder: `DATABASE`, `LEDGERS`, `KEY`.

        Returns:
            The storage's version, None where there is none; and the highest number given out in each issue.

        Raises:
            BackupError, LockTimeout, StorageUnavailable: as they say. OSError: the disk refused.
        """

    def put(self, folder: Path, manifest: Manifest, *, now: datetime, replace: bool, copy: bool) -> Restored:
        """Have it be as the backup in `folder` has it; see `restore`."""

    def ledgers(self, issue: int | None = None) -> Iterator[tuple[int, str, list[Any] | None]]:
        """What is kept of each issue, archived or not, with its name; None: it cannot be read."""

    def read_only(self) -> AbstractContextManager[Tx | None]:
        """Queries of the storage; None: there is none.

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
        """Let `change` edit each ledger of these issues, and `rows` the storage; what `rows` returned, None where there is
        no storage. It may have to be given again where that is not `is_done`, or was not had.

        Raises:
            LockTimeout, LedgerUnwritable, StorageUnavailable: as they say; the same call does the rest.
        """

    def set_aside(self, issues: Sequence[int]) -> list[str]:
        """The names of files that did not parse as ledgers of these issues, and may hold anything."""


def backup(kept: Kept, folder: Path, *, now: datetime, release: str) -> Manifest:
    """Copy all that is kept into `folder`, which is not there yet, or empty.

    Raises:
        BackupError: it is there already, or the disk refused; nothing is left of it.
        LockTimeout: somebody else holds a ledger. StorageUnavailable: the database cannot be read.
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
        sync_folder(folder.parent)
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
        _sync(path)
    manifest = Manifest(
        made=now,
        release=release,
        storage_version=version,
        numbers=numbers,
        files=tuple(described(draft, path) for path in files),
    )
    (draft / NAME).write_text(manifest.model_dump_json(indent=2), encoding="utf-8")
    (draft / NAME).chmod(0o600)
    _sync(draft / NAME)
    sync_folder(draft)
    return manifest


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def restore(folder: Path, kept: Kept, *, now: datetime, replace: bool, copy: bool = False) -> Restored:
    """Verify the backup in `folder`, then have all be as it was, whichever kind it was of.

    It stays the same installation: buttons in Slack go on working. With `copy` it becomes another one beside the first,
    and buttons that the first posted decide nothing here.

    Raises:
        BackupError: it is none, is damaged, or of a newer release; or there is something and `replace` was not said.
        StorageInUseError: a bot runs on the storage. LockTimeout, LedgerUnwritable: as they say.
    """
    manifest = verified(folder)
    if (manifest.storage_version or 0) > newest_version():
        raise BackupError(f"{folder} was made by a newer clarify-bot ({manifest.release}).")
    try:
        return kept.put(folder, manifest, now=now, replace=replace, copy=copy)
    except OSError as error:
        raise BackupError(f"Not restored: {error.filename or folder}: {error.strerror}.") from error


def leave_out(tx: Tx, now: datetime) -> None:
    """Go on as after a gap: what was given out since the backup was made is not given out again."""
    inbox.leave_out_issues(tx, _ISSUES_LEFT_OUT)
    incidents.leave_out(tx, _PAGES_LEFT_OUT, f"restored:{now.isoformat()}", now)
    pages.leave_out(tx, _PAGES_LEFT_OUT, now)
    push.begin_anew(tx, now.isoformat())
