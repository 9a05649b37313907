"""Backs up everything while the bot runs, and restores it: no question lost, no answer sent twice. Blocking.

The storage is copied first, in one snapshot, then each ledger under its lock. So a copied ledger may have a question
that the copied storage lacks: it is added there as processed, as otherwise the question would be asked again when its
producer repeats it. In the opposite order, the storage could count a question as processed that is in no ledger.

`manifest.json` lists what a backup holds. It is written last: a folder without it is no backup.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import datetime
from pathlib import Path, PurePosixPath
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from bot.errors import BackupError
from bot.oncall import incidents, pages
from bot.producers import inbox, push
from bot.storage import beside
from bot.storage.sqlite import newest_version
from core.clarification import US, Clarification, Moment
from core.files import is_odd, make_folder, read_regular, replacing, sync_folder
from core.ledger import ARCHIVE, FileLedger, issue_in
from core.records import FORGOTTEN, decode, parse
from core.records import SEAL_KEY as KEY

NAME = "manifest.json"
DATABASE = "clarify.db"
LEDGERS = "ledgers"
_FORMAT = 1
_PATH = re.compile(r"clarify\.db|seal\.key|ledgers/(archive/)?issue-(\d{1,15})[^/]*")
# Numbers given out since the backup are on cards that are still in Slack: a click there must not answer another
# question, nor take another page. So many are left out.
_ISSUES_LEFT_OUT, _NUMBERS_LEFT_OUT, _PAGES_LEFT_OUT = 1000, 100, 1000


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


def backup(ledger: FileLedger, database: Path, folder: Path, *, now: datetime, release: str) -> Manifest:
    """Copy the ledgers and the storage into `folder`, which is not there yet, or empty.

    Raises:
        BackupError: it is there already, or the disk refused; nothing is left of it.
        LockTimeout: somebody else holds a ledger.
    """
    if folder.exists() and any(folder.iterdir()):
        raise BackupError(f"{folder} is not empty: a backup has a folder of its own.")
    draft = folder.with_name(f"{folder.name}.partial-{os.getpid()}")
    try:
        make_folder(draft)
        manifest = _copy(ledger, database, draft, now, release)
        if folder.exists():
            folder.rmdir()
        draft.rename(folder)
        sync_folder(folder.parent)
    except OSError as error:
        raise BackupError(f"{folder} cannot be written: {error.strerror or error}.") from error
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return manifest


def _copy(ledger: FileLedger, database: Path, draft: Path, now: datetime, release: str) -> Manifest:
    version = None
    if database.exists():
        version = beside.copy(database, draft / DATABASE)
        with beside.looking(draft / DATABASE) as tx:
            ledger.claim(inbox.last_issue(tx))
    numbers = dict(_copy_ledgers(ledger, draft / LEDGERS))
    _copy_key(ledger, draft / KEY)
    if version is not None:
        known = (each for record in _records(draft / LEDGERS) for each in _known_events(record))
        with beside.changing(draft / DATABASE, current=False) as tx:
            inbox.note_known(tx, known, max(numbers, default=0))
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


def _copy_key(ledger: FileLedger, to: Path) -> None:
    """Copy the key of the seals: without it, unsent answers would count as another program's."""
    with suppress(FileNotFoundError), replacing(to, read_regular(ledger.private / KEY), to.parent):
        pass


def _copy_ledgers(ledger: FileLedger, to: Path) -> Iterator[tuple[int, int]]:
    """Each issue under its lock, so that a file that moves between the two folders is there once; yields the highest
    number given out in each.
    """
    make_folder(to / ARCHIVE)
    issues, done = set(ledger.files()), set()
    while issues:
        for issue in sorted(issues):
            with ledger.held(issue):
                for path in (*ledger.files().get(issue, ()), *_quarantined(ledger.directory, issue)):
                    shutil.copyfile(path, to / path.relative_to(ledger.directory))
                yield issue, ledger.numbers.highest(issue)
        done |= issues
        issues = set(ledger.files()) - done  # new ones


def _quarantined(directory: Path, issue: int) -> list[Path]:
    return sorted(path for path in directory.glob(f"issue-{issue}.json.unreadable-*") if not is_odd(path))


def _records(ledgers: Path) -> Iterator[Clarification]:
    for path in (*ledgers.glob("issue-*.json"), *(ledgers / ARCHIVE).glob("issue-*.json")):
        try:
            items = decode(path.read_bytes(), issue_in(path.name))["clarifications"]
        except ValueError:
            continue  # it is in the backup as it is
        yield from (record for item in items if (record := parse(item)) is not None)


def _known_events(record: Clarification) -> Iterator[inbox.KnownEvent]:
    """The events that asked the questions of a record's rounds."""
    asked = record.asked.model_dump(mode="json", by_alias=True)
    words = [entry.body for entry in record.thread if entry.type == "question" and entry.from_ != US]
    rounds: list[Mapping[str, Any]] = [*asked.get("earlier", ()), asked]
    for number, each in enumerate(rounds):
        named = (each.get("producer"), each.get("eventId"), each.get("sessionId"))
        if not all(isinstance(name, str) for name in named):
            continue
        question = words[number] if len(words) == len(rounds) else FORGOTTEN
        yield inbox.KnownEvent(
            inbox.Session(
                each["producer"],
                each["sessionId"],
                each.get("agentId") or record.from_,
                each.get("agentName"),
                record.issue_number,
            ),
            each["eventId"],
            token=each.get("replyToken"),
            question=None if question == FORGOTTEN else question,
            at=record.created,
        )


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def restore(
    folder: Path, ledger: FileLedger, database: Path, *, now: datetime, replace: bool, copy: bool = False
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
    with beside.alone(database):
        there = [*(path for paths in ledger.files().values() for path in paths), *beside.parts(database)]
        if there and not replace:
            raise BackupError(
                f"{there[0]} is there already: with --replace it is moved aside, with all others."
            )
        try:
            _rename_ledgers(ledger, f"before-restore-{now:%Y%m%dT%H%M%S}")
            beside.rename_to(database, f"before-restore-{now:%Y%m%dT%H%M%S}")
            _put_ledgers(folder, ledger, manifest)
            _put_key(folder / KEY, ledger.private / KEY)
            if manifest.storage_version is not None:
                with beside.putting_back(folder / DATABASE, database, another=copy) as tx:
                    inbox.leave_out_issues(tx, _ISSUES_LEFT_OUT)
                    incidents.leave_out(tx, _PAGES_LEFT_OUT, f"restored:{now.isoformat()}", now)
                    pages.leave_out(tx, _PAGES_LEFT_OUT, now)
                    push.begin_anew(tx, now.isoformat())
        except OSError as error:
            raise BackupError(f"Not restored: {error.filename or folder}: {error.strerror}.") from error
    return manifest


def _rename_ledgers(ledger: FileLedger, name: str) -> None:
    for issue, paths in ledger.files().items():
        for path in paths:
            ledger.move(issue, path, ledger.directory / name / path.relative_to(ledger.directory))


def _put_ledgers(folder: Path, ledger: FileLedger, manifest: Manifest) -> None:
    for file in manifest.ledgers:
        source = folder / file.path
        target = ledger.directory / Path(file.path).relative_to(LEDGERS)
        ledger.put(file.issue or 0, target, source.read_bytes())
    for issue, number in manifest.numbers.items():
        with ledger.held(issue):
            given_out = max(number, ledger.numbers.highest(issue))
            ledger.numbers.note(issue, given_out + _NUMBERS_LEFT_OUT)


def _put_key(source: Path, key: Path) -> None:
    if source.exists():  # backups of earlier releases have none
        with replacing(key, source.read_bytes(), key.parent):
            pass
