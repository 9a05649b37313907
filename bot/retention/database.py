"""Backup, restore and forgetting for a bot that keeps everything in PostgreSQL. Blocking.

A backup is one snapshot; restoring and forgetting are one transaction each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

from bot.retention.backup import DATABASE, Manifest, Restored, leave_out
from bot.retention.rows import ALL, decoded, forgotten, from_files, to_files
from bot.storage import beside, tables
from bot.storage.tx import Tx
from core.records import Raw

_T = TypeVar("_T")


@dataclass(eq=False)
class InDatabase:
    """`bot.retention.backup.Kept` in PostgreSQL."""

    url: str

    def copy(self, to: Path) -> tuple[int | None, dict[int, int]]:
        with tables.snapshot(self.url) as found:
            version = found.to_file(to / DATABASE)
            numbers = to_files(found.rows(ALL), to)
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
                left += from_files(new.tx, folder, manifest)
        return Restored(manifest, f"the schema {name} of the database" if is_aside else None, left)

    def ledgers(self, issue: int | None = None) -> Iterator[tuple[int, str, list[Any] | None]]:
        with tables.snapshot(self.url) as found:
            which = "" if issue is None else f"where issue = {int(issue)}"
            yield from decoded(found.rows(f"select issue, body from ledgers {which} order by issue"))  # noqa: S608 - a number

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
        result = tables.change(self.url, partial(forgotten, issues, change, rows, is_done))
        if is_done(result):
            tables.vacuum(self.url)
        return result

    def set_aside(self, issues: Sequence[int]) -> list[str]:  # noqa: ARG002 - `Kept`'s signature
        return []
