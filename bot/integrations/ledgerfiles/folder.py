"""The folder of the ledger files: where it is, who owns it, and which files are moved aside or erased. Blocking.

`.clarify/installation` in the folder names its owner: the installation whose records are in the files. A folder without that file
becomes ours. In another installation's folder, the bridge leaves a record alone if the record has a part that only a bot writes
(`aaep`) and the bridge has never written it or read it as ours, because then it must come from that installation. The bridge does not
change or open such a record, or report it as tampered with. The record keeps its id in the file, even if one of our records has the same
id; ours is then only in the database. Everything else in such a folder is treated as in our own. A new, empty database takes over the
folder that it finds.
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
    """The settings in `[ledger]` and `[storage]` that concern the folder."""

    folder: Path
    mode: int
    archive_after: timedelta
    storage: Path
    url_env: str | None

    def files(self, *, expected: bool = True) -> LedgerFiles:
        """Opens the folder. `expected`: it should already exist."""
        return LedgerFiles(self.folder, mode=self.mode, expected=expected)


def folder_settings(configuration: Configuration) -> FolderSettings | None:
    """Returns the folder's settings, or None if ledger files are turned off."""
    ledger, storage = configuration.ledger, configuration.storage
    if (folder := configuration.ledger_folder) is None:
        return None
    return FolderSettings(folder, ledger.mode, ledger.archive_after, storage.path, storage.url_env)


def owner_of(files: LedgerFiles) -> str:
    """Returns the id of the installation that owns the folder, or an empty string if none does. Blocking.

    Raises:
        OSError: the id cannot be read.
    """
    try:
        return read_regular(files.private / _ID).decode("ascii", "replace").strip()
    except FileNotFoundError:
        return ""


def own(files: LedgerFiles, installation: str) -> None:
    """Makes this installation the folder's owner, so that its cards can be found if the database is lost. Blocking.

    Raises:
        OSError: it cannot be written.
    """
    with replacing(files.private / _ID, installation.encode(), files.private):
        pass


def of_others(items: Sequence[object], base: Mapping[str, object]) -> set[str]:
    """Returns the ids of the records in another installation's folder that belong to it. `base`: the records that the bridge knows."""
    return {
        name
        for name, item in named(items)
        if isinstance(item, dict) and isinstance(item.get("aaep"), dict) and name not in base
    }


def without(raw: Raw, names: set[str]) -> Raw:
    """Returns the ledger without the records that have these ids."""
    return {
        **raw,
        "clarifications": [each for name, each in named(raw["clarifications"]) if name not in names],
    }


# While no bot runs


def first_file(settings: FolderSettings) -> Path | None:
    """Returns one of the files, or None if there are none."""
    with closing(settings.files()) as files:
        return next((path for _, path in files.everything()), None)


def move_aside(settings: FolderSettings, name: str) -> Path | None:
    """Moves all files into a new folder inside the ledger folder, and leaves the ledger folder without an owner, so that the next bot
    takes it over. Returns the new folder, or None if there were no files.

    Raises:
        LockTimeout: another program holds a ledger; other files may already have been moved.
        OSError: a file cannot be moved.
    """
    with closing(settings.files()) as files:
        moved = files.move_all(name)
        (files.private / _ID).unlink(missing_ok=True)
        return moved


@dataclass(frozen=True, slots=True)
class ForgottenRecords:
    """Forgotten records that may still be in files, by issue. `is_written`: the bridge has written files of these issues."""

    names: Mapping[int, Container[str]]
    is_ours: bool
    is_written: bool


def forgotten_in(settings: FolderSettings, tx: Tx, ids: Sequence[str]) -> ForgottenRecords:
    """Returns which of the records are forgotten; in another installation's folder, only those that the bridge knows there."""
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
    """Removes the text of forgotten records from files, and deletes quarantined files, which may contain anything.

    `writes`: whether to change ledger files. Set it only if no bot is running: a running bot does this itself, and would take the
    changes of another process for those of another program.
    """
    with closing(settings.files()) as files:
        if not files.is_there():
            return Erased(stays=[str(files.directory)] if forgotten.is_written else [])
        left, deleted, aside = list[Path](), 0, list[Path]()
        for issue, names in forgotten.names.items():
            if writes:
                with suppress(LockTimeout, LedgerUnwritable):  # it is reported in `left`
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
    """Removes the text of the records `names` from the files of an issue, live and archived.

    Raises:
        LockTimeout: another program holds the ledger.
        LedgerUnwritable: the file cannot be written.
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
