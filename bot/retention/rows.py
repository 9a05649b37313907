"""Backup, restore and forgetting of ledgers that are rows of the storage, in SQLite and PostgreSQL. Blocking.

Restoring and forgetting are one transaction each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path, PurePosixPath
from typing import Any, TypeVar

from bot.errors import BackupError, StorageUnavailable
from bot.retention.backup import (
    DATABASE,
    LEDGERS,
    NUMBERS_LEFT_OUT,
    File,
    Manifest,
    Restored,
    leave_out,
)
from bot.storage import beside
from bot.storage.ledger import hold, rewrite
from bot.storage.sqlite import tell_changed
from bot.storage.tx import Row, Tx
from core.archive import ARCHIVE, highest_in
from core.files import make_folder
from core.records import Raw, decode, encode, identity

_T = TypeVar("_T")
ALL = "select issue, body, highest, archived from ledgers order by issue"


@dataclass(eq=False)
class InStorage:
    """`bot.retention.backup.Kept` in SQLite's file alone, which need not exist."""

    database: Path

    def copy(self, to: Path) -> tuple[int | None, dict[int, int]]:
        make_folder(to / LEDGERS / ARCHIVE)
        if not self.database.exists():
            return None, {}
        version = beside.copy(self.database, to / DATABASE)
        with beside.transaction(to / DATABASE, current=False) as tx:
            numbers = to_files(tx.rows(ALL), to)
            tx.run("delete from ledgers")
        return version, numbers

    def put(self, folder: Path, manifest: Manifest, *, now: datetime, replace: bool, copy: bool) -> Restored:
        name = f"before-restore-{now:%Y%m%dT%H%M%S}"
        left: list[str] = []
        with beside.exclusive(self.database):
            there = beside.parts(self.database)
            if there and not replace:
                raise BackupError(f"{there[0]} already exists. To move it aside, add --replace.")
            beside.rename_to(self.database, name)
            if manifest.storage_version is not None:
                with beside.putting_back(folder / DATABASE, self.database, another=copy) as tx:
                    leave_out(tx, now, copy=copy)
                    left = from_files(tx, folder, manifest)
        return Restored(manifest, f"files with {name} in their names" if there else None, left)

    def ledgers(self, issue: int | None = None) -> Iterator[tuple[int, str, list[Any] | None]]:
        with self.read_only() as tx:
            if tx is not None:
                which = "where issue = :issue" if issue is not None else ""
                yield from decoded(
                    tx.rows(f"select issue, body from ledgers {which} order by issue", issue=issue)  # noqa: S608
                )

    @contextmanager
    def read_only(self) -> Iterator[Tx | None]:
        if not self.database.exists():
            yield None
            return
        with beside.read_only(self.database, current=True) as tx:
            yield tx

    def forget(
        self,
        issues: Sequence[int],
        change: Callable[[Raw], bool],
        rows: Callable[[Tx], _T],
        is_done: Callable[[_T], bool],
    ) -> _T | None:
        if not self.database.exists():
            return None
        with beside.transaction(self.database) as tx:
            result = forgotten(issues, change, rows, is_done, tx)
        emptied = beside.empty_log(self.database)
        tell_changed(self.database)
        if not emptied and is_done(result):
            raise StorageUnavailable(still_in_the_log(self.database))
        return result

    def set_aside(self, issues: Sequence[int]) -> list[str]:  # noqa: ARG002 - `Kept`'s signature
        return []


def still_in_the_log(database: Path) -> str:
    """Returns the message for what was deleted while another process kept SQLite's log in use."""
    return (
        f"It was deleted, but {database}-wal still holds it while another process reads the database. "
        "Run the same command again."
    )


def forgotten(
    issues: Sequence[int],
    change: Callable[[Raw], bool],
    rows: Callable[[Tx], _T],
    is_done: Callable[[_T], bool],
    tx: Tx,
) -> _T:
    """Forgets in one transaction: `rows` first, then `change` in each ledger."""
    hold(tx, issues)
    result = rows(tx)
    if is_done(result):  # otherwise nothing was changed
        for issue in issues:
            rewrite(tx, issue, change)
        tx.tell("forgotten")
    return result


def to_files(rows: Iterable[Row], to: Path) -> dict[int, int]:
    """Writes the ledgers of `ALL` into a backup. Returns the highest number of each issue."""
    numbers = {}
    make_folder(to / LEDGERS / ARCHIVE)
    for row in rows:
        folder = to / LEDGERS / ARCHIVE if row["archived"] else to / LEDGERS
        (folder / f"issue-{row['issue']}.json").write_bytes(row["body"].encode())
        numbers[row["issue"]] = row["highest"]
    return numbers


def from_files(tx: Tx, folder: Path, manifest: Manifest) -> list[str]:
    """Stores a backup's ledgers. Returns the files, or parts of files, that do not fit."""
    left: list[str] = []
    for issue, files in sorted(_by_issue(manifest.ledgers).items()):
        left += _put_ledger(tx, folder, issue, files, manifest.numbers.get(issue, 0))
    return left


def decoded(rows: Iterable[Row]) -> Iterator[tuple[int, str, list[Any] | None]]:
    """Yields the issue, name and records of each ledger; None if it cannot be read."""
    for row in rows:
        name = f"issue-{row['issue']}"
        try:
            yield row["issue"], name, decode(row["body"].encode(), row["issue"])["clarifications"]
        except ValueError:
            yield row["issue"], name, None


def _by_issue(files: Iterable[File]) -> dict[int, list[File]]:
    found: dict[int, list[File]] = {}
    for file in files:
        found.setdefault(file.issue or 0, []).append(file)
    return found


def _put_ledger(tx: Tx, folder: Path, issue: int, files: Sequence[File], highest: int) -> list[str]:
    """Stores a backup's ledger files of one issue in one row. Returns the files, or parts of files, that do not fit.
    `highest`: the last number given out to a clarification.
    """
    contents = [
        (PurePosixPath(file.path), (folder / file.path).read_bytes())
        for file in sorted(files, key=_live_first)
    ]
    body, left = _joined(issue, contents)
    given_out = max(highest, *(highest_in(issue, content) for _, content in contents))
    tx.run(
        "insert into ledgers (issue, body, highest, version, written, archived)"  # noqa: S608 - a constant
        f" values (:issue, :body, :highest, 1, {tx.stamp}, :archived)",
        issue=issue,
        body=body.decode(),
        highest=given_out + NUMBERS_LEFT_OUT,
        archived=all(_is_archived(path) for path, _ in contents),
    )
    return left


def _live_first(file: File) -> tuple[bool, bool, str]:
    path = PurePosixPath(file.path)
    return _is_archived(path), path.name != f"issue-{file.issue}.json", path.name


def _is_archived(path: PurePosixPath) -> bool:
    return path.parent.name == ARCHIVE


def _joined(issue: int, files: Sequence[tuple[PurePosixPath, bytes]]) -> tuple[bytes, list[str]]:
    """Joins the files of an issue into one ledger. Usually there is one file, which stays unchanged. If another
    program began a new file for an archived issue, the archived clarifications that it lacks are added.
    """
    whole: Raw | None = None
    body, left = encode({"issueNumber": issue, "clarifications": []}), []
    for path, content in files:
        try:
            raw = decode(content)
        except ValueError:
            left.append(str(path))
            continue
        if whole is None:
            whole, body = raw, content if _is_utf8(content) else encode(raw)
            continue
        items = whole["clarifications"]
        more = [item for item in raw["clarifications"] if item not in items]
        taken = {identity(item) for item in items}
        items += (new := [item for item in more if identity(item) not in taken])
        if new:
            body = encode(whole)
        if len(new) < len(more):
            left.append(f"{path} (in part)")
    return body, left


def _is_utf8(content: bytes) -> bool:
    try:
        content.decode()
    except UnicodeDecodeError:
        return False
    return True
