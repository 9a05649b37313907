"""Backup, restore and forgetting for a bot that keeps everything in PostgreSQL. Blocking.

A backup is one snapshot; restoring and forgetting are one transaction each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

from bot.retention.backup import (
    DATABASE,
    LEDGERS,
    NUMBERS_LEFT_OUT,
    File,
    Manifest,
    Restored,
    leave_out,
)
from bot.storage import beside, tables
from bot.storage.ledger import hold, rewrite
from bot.storage.tx import Tx
from core.archive import ARCHIVE, highest_in
from core.files import make_folder
from core.records import SEAL_KEY as KEY
from core.records import Raw, decode, encode, identity

_T = TypeVar("_T")


@dataclass(eq=False)
class InDatabase:
    """`bot.retention.backup.Kept` in PostgreSQL."""

    url: str

    def copy(self, to: Path) -> tuple[int | None, dict[int, int]]:
        numbers = {}
        make_folder(to / LEDGERS / ARCHIVE)
        with tables.snapshot(self.url) as found:
            version = found.to_file(to / DATABASE)
            for row in found.rows("select issue, body, highest, archived from ledgers order by issue"):
                folder = to / LEDGERS / ARCHIVE if row["archived"] else to / LEDGERS
                (folder / f"issue-{row['issue']}.json").write_bytes(row["body"].encode())
                numbers[row["issue"]] = row["highest"]
            key = found.tx.one("select value from keys where name = 'seal'")
            if key is not None:
                (to / KEY).write_bytes(key["value"])
        return version, numbers

    def put(self, folder: Path, manifest: Manifest, *, now: datetime, replace: bool, copy: bool) -> Restored:
        name = f"before_restore_{now:%Y%m%dt%H%M%S}"
        left: list[str] = []
        with TemporaryDirectory() as drafts:
            file = Path(drafts) / DATABASE
            if manifest.storage_version is not None:
                with beside.putting_back(folder / DATABASE, file, another=copy) as tx:
                    leave_out(tx, now, copy=copy)
            with tables.new_tables(self.url, name if replace else None) as (new, is_aside):
                if file.exists():
                    new.from_file(file)
                for issue, files in sorted(_by_issue(manifest.ledgers).items()):
                    left += _put_ledger(new.tx, folder, issue, files, manifest.numbers.get(issue, 0))
                if (folder / KEY).exists():  # backups of earlier releases have no key
                    sealing = (folder / KEY).read_bytes()
                    new.tx.run("insert into keys (name, value) values ('seal', :value)", value=sealing)
        return Restored(manifest, f"the schema {name} of the database" if is_aside else None, left)

    def ledgers(self, issue: int | None = None) -> Iterator[tuple[int, str, list[Any] | None]]:
        with tables.snapshot(self.url) as found:
            which = "" if issue is None else f"where issue = {int(issue)}"
            for row in found.rows(f"select issue, body from ledgers {which} order by issue"):  # noqa: S608 - a number
                name = f"issue-{row['issue']}"
                try:
                    yield row["issue"], name, decode(row["body"].encode(), row["issue"])["clarifications"]
                except ValueError:
                    yield row["issue"], name, None

    @contextmanager
    def read_only(self) -> Iterator[Tx | None]:
        with tables.snapshot(self.url) as found:
            yield found.tx

    def forget(
        self,
        issues: Sequence[int],
        change: Callable[[Raw], bool],
        rows: Callable[[Tx], _T],
        is_done: Callable[[_T], bool],
    ) -> _T | None:
        def work(tx: Tx) -> _T:
            hold(tx, issues)
            result = rows(tx)
            if is_done(result):  # otherwise nothing was changed
                for issue in issues:
                    rewrite(tx, issue, change)
                tx.tell("forgotten")
            return result

        result = tables.change(self.url, work)
        if is_done(result):
            tables.vacuum(self.url)
        return result

    def set_aside(self, issues: Sequence[int]) -> list[str]:  # noqa: ARG002 - `Kept`'s signature
        return []


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
        "insert into ledgers (issue, body, highest, version, written, archived)"
        " values (:issue, :body, :highest, 1, pg_current_xact_id()::text::bigint, :archived)",
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
