"""Whose ledger folder it is: the installation whose records its files hold, as `.clarify/installation` there says.

A folder without that file becomes ours. In the folder of another installation, a record is left alone if it has a part of
ours (`aaep`) and the bridge never wrote it, nor read it as one of ours: only that installation can have written it. Such a
record is not changed, opened, or reported as tampering, and it keeps its id in the file, even if a record of ours has the
same one, which then is in the database alone. All else in such a folder is treated as in our own. A new, empty database
takes over the folder that it finds.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path

from bot.checks import CheckResult, right, wrong
from bot.errors import StorageUnavailable
from bot.integrations.ledgerfiles.acts import named
from bot.storage.outside import reading
from core.files import read_regular, replacing
from core.ledgerfiles import LedgerFiles
from core.records import Raw

NOT_EMPTY = (
    "select 1 from inbox union all select 1 from messages union all select 1 from sessions"
    " union all select 1 from clarifications limit 1"
)
_ID = "installation"


def owner_of(files: LedgerFiles) -> str:
    """Returns the id of the installation whose folder it is; empty: nobody's yet. Blocking.

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


def disown(files: LedgerFiles) -> None:
    """Makes it nobody's folder: the next bot takes it. Blocking."""
    (files.private / _ID).unlink(missing_ok=True)


def of_others(items: Sequence[object], base: Mapping[str, object]) -> set[str]:
    """Returns the ids of what, in the folder of another installation, is that one's. `base`: what the bridge knows of, by id."""
    return {
        name
        for name, item in named(items)
        if isinstance(item, dict) and isinstance(item.get("aaep"), dict) and name not in base
    }


def check_owner(folder: Path, mode: int, storage: Path, database_url: str | None) -> Iterator[CheckResult]:
    """Reports whose folder it is, if it is not that of the database, which is at `storage` or `database_url`. Blocking."""
    subject = "ledger.directory"
    try:
        with (
            closing(LedgerFiles(folder, mode=mode, expected=True)) as files,
            reading(storage, database_url) as tx,
        ):
            owner = owner_of(files)
            ours = tx.one("select id from installation") if tx is not None else None
            is_new = tx is None or tx.one(NOT_EMPTY) is None
    except (OSError, StorageUnavailable):
        return  # the lines about the folder and the storage say so
    if not owner or (ours is not None and owner == ours["id"]):
        return
    text = f"{folder} belongs to another installation of clarify-bot ({owner})"
    if is_new:
        yield right(subject, f"{text}; the first start on this new database takes its ledgers in")
    else:
        fix = "give each installation a folder of its own: change [ledger] directory"
        yield wrong(subject, f"{text}; its records are left alone", fix)


def without(raw: Raw, names: set[str]) -> Raw:
    """Returns a ledger without the records that have these ids."""
    return {
        **raw,
        "clarifications": [each for name, each in named(raw["clarifications"]) if name not in names],
    }
