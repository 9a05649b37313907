"""The folder of the ledger files: where it is, whose it is, and what of it is moved aside or erased. Blocking.

`.clarify/installation` in it says whose it is: the installation whose records its files hold. A folder without that file becomes
ours. In the folder of another installation, a record is left alone if it has a part of ours (`aaep`) and the bridge never wrote
it, nor read it as one of ours: only that installation can have written it. Such a record is not changed, opened, or reported as
tampering, and it keeps its id in the file, even if a record of ours has the same one, which then is in the database alone. All
else in such a folder is treated as in our own. A new, empty database takes over the folder that it finds.
"""

from __future__ import annotations

import json
from collections.abc import Container, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path

from bot.api import Configuration, Erased, Tx
from core.errors import LedgerUnwritable, LockTimeout
from core.files import is_odd, read_regular, replacing
from core.ledgeracts import named
from core.ledgerfiles import LedgerFiles, blanked, decode
from core.records import Raw, is_forgotten, parse, unpacked

_LOCK = 2.0  # seconds
_ID = "installation"


@dataclass(frozen=True, slots=True)
class FolderSettings:
    """What `[ledger]` and `[storage]` say of the folder."""

    folder: Path
    mode: int
    archive_after: timedelta
    storage: Path
    url_env: str | None

    def files(self, *, expected: bool = True) -> LedgerFiles:
        """Opens the folder. `expected`: it is to be there already."""
        return LedgerFiles(self.folder, mode=self.mode, expected=expected)


def folder_settings(configuration: Configuration) -> FolderSettings | None:
    """Returns the settings of the folder, or None if there are to be no files."""
    ledger, storage = configuration.ledger, configuration.storage
    if (folder := configuration.ledger_folder) is None:
        return None
    return FolderSettings(folder, ledger.mode, ledger.archive_after, storage.path, storage.url_env)


def owner_of(files: LedgerFiles) -> str:
    """Returns the id of the installation that owns the folder, or an empty string. Blocking.

    Raises:
        OSError: it cannot be read.
    """
    try:
        return read_regular(files.private / _ID).decode("ascii", "replace").strip()
    except FileNotFoundError:
        return ""


def own(files: LedgerFiles, installation: str) -> None:
    """Makes it the folder of this installation, whose cards are then found if the database is lost. Blocking.

    Raises:
        OSError: the disk refused.
    """
    with replacing(files.private / _ID, installation.encode(), files.private):
        pass


def of_others(items: Sequence[object], base: Mapping[str, object]) -> set[str]:
    """Returns the ids of what, in the folder of another installation, is that one's. `base`: what the bridge knows of, by id."""
    return {
        name
        for name, item in named(items)
        if isinstance(item, dict) and isinstance(item.get("aaep"), dict) and name not in base
    }


def without(raw: Raw, names: set[str]) -> Raw:
    """Returns a ledger without the records that have these ids."""
    return {
        **raw,
        "clarifications": [each for name, each in named(raw["clarifications"]) if name not in names],
    }


# Beside a bot that does not run


def first_file(settings: FolderSettings) -> Path | None:
    """Returns one of the files, or None if there are none."""
    with closing(settings.files()) as files:
        return next((path for _, path in files.everything()), None)


def move_aside(settings: FolderSettings, name: str) -> Path | None:
    """Moves all files into a new folder in the ledger folder, and makes that nobody's: the next bot takes it. Returns the new
    folder, or None if there were no files.

    Raises:
        LockTimeout: another program holds a ledger; other files may be moved already.
        OSError: the disk refused.
    """
    with closing(settings.files()) as files:
        moved = files.move_all(name)
        (files.private / _ID).unlink(missing_ok=True)
        return moved


@dataclass(frozen=True, slots=True)
class ForgottenRecords:
    """Forgotten records that files may still hold, by issue. `is_written`: the bridge wrote files of these issues."""

    names: Mapping[int, Container[str]]
    is_ours: bool
    is_written: bool


def forgotten_in(settings: FolderSettings, tx: Tx, ids: Sequence[str]) -> ForgottenRecords:
    """Returns which of the records are forgotten; in another installation's folder, those that the bridge knows from there."""
    with closing(settings.files()) as files:
        (ours,) = tx.rows("select id from installation")
        is_ours = not files.is_there() or owner_of(files) in {"", ours["id"]}
    names, is_written = dict[int, set[str]](), False
    for clarification in ids:
        row = tx.one(
            "select clarifications.issue as issue, body, base from clarifications"
            " left join ledgerfiles on ledgerfiles.issue = clarifications.issue where id = :id",
            id=clarification,
        )
        if row is None:
            continue
        is_written |= row["base"] is not None
        its = names.setdefault(row["issue"], set())
        record = parse(unpacked(row["body"]))
        if (
            record is not None
            and is_forgotten(record)
            and (is_ours or clarification in json.loads(row["base"] or "{}"))
        ):
            its.add(clarification)
    return ForgottenRecords(names, is_ours, is_written)


def erase(settings: FolderSettings, forgotten: ForgottenRecords, *, writes: bool) -> Erased:
    """Removes what forgotten records said from files, and deletes those that were set aside as unreadable, as they may contain
    anything. `writes`: no bot runs: beside one, which does it as its files follow, what another process writes is somebody's act.
    """
    with closing(settings.files()) as files:
        if not files.is_there():
            return Erased(stays=[str(files.directory)] if forgotten.is_written else [])
        left, deleted, aside = list[Path](), 0, list[Path]()
        for issue, names in forgotten.names.items():
            if writes:
                with suppress(LockTimeout, LedgerUnwritable):  # it is among those that are left
                    blank(files, issue, names)
            there = [*files.by_issue().get(issue, []), *files.drafts().get(issue, [])]
            left += [path for path in there if _may_contain(path, issue, names)]
            aside += files.set_aside(issue)
        if forgotten.is_ours:
            gone = [path for path in aside if not is_odd(path)]
            for path in gone:
                path.unlink(missing_ok=True)
            deleted, aside = len(gone), []
        return Erased(
            left=[str(path.relative_to(files.directory)) for path in left],
            stays=[str(path.relative_to(files.directory)) for path in aside],
            deleted=deleted,
        )


def blank(files: LedgerFiles, issue: int, names: Container[str]) -> None:
    """Removes what the records `names` said from the files of an issue, live and archived.

    Raises:
        LockTimeout: another program holds the ledger. LedgerUnwritable: the disk refused.
    """
    files.rewrite(issue, partial(_blank, names), _LOCK)


def _may_contain(path: Path, issue: int, names: Container[str]) -> bool:
    try:
        return _blank(names, decode(read_regular(path), issue))
    except (OSError, ValueError):
        return True


def _blank(names: Container[str], raw: Raw) -> bool:
    before = raw["clarifications"]
    raw["clarifications"] = [blanked(item) if name in names else item for name, item in named(before)]
    return bool(raw["clarifications"] != before)
