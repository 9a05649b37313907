"""What a backup holds: `manifest.json`, written last, so that a folder without it is none."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path, PurePosixPath
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from bot.errors import BackupError
from core.clarification import Moment

NAME = "manifest.json"
DATABASE = "clarify.db"
LEDGERS = "ledgers"
_FORMAT = 1
_PATH = re.compile(r"clarify\.db|seal\.key|ledgers/(archive/)?issue-(\d{1,15})[^/]*")


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
        raise BackupError(f"{folder} is no backup: it has no {NAME}.") from None
    except OSError as error:
        raise BackupError(f"{folder / NAME} cannot be read: {error.strerror}.") from error
    except ValidationError as error:
        fields = ", ".join(sorted({".".join(map(str, each["loc"])) or "JSON" for each in error.errors()}))
        raise BackupError(
            f"{folder / NAME} is not a manifest that this release knows (see {fields})."
        ) from None
    for file in manifest.files:
        try:
            found = described(folder, folder / file.path)
        except OSError as error:
            raise BackupError(f"{folder / file.path} cannot be read: {error.strerror}.") from error
        if found != file:
            raise BackupError(f"{folder / file.path} is damaged: it is not what was backed up.")
    return manifest
