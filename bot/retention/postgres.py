"""Backup, restore and forgetting for bots on PostgreSQL. Blocking.

A backup is one snapshot; restoring is one transaction.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeVar

from bot.retention.backup import DATABASE, aside_name
from bot.storage import beside, ledger, tables
from bot.storage.tx import Tx

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class InPostgres:
    """`bot.retention.backup.Kept` in PostgreSQL."""

    url: str

    def copy(self, to: Path) -> int:
        with tables.snapshot(self.url) as found:
            return found.to_file(to)

    def put(
        self,
        copied: Path,
        now: datetime,
        prepare: Callable[[Tx], None],
        *,
        replace: bool,
        emptied: Callable[[], None],
    ) -> str | None:
        name = aside_name(now).replace("-", "_").lower()
        with TemporaryDirectory() as drafts:
            file = Path(drafts) / DATABASE
            with beside.putting_back(copied, file) as tx:
                prepare(tx)
            with tables.new_tables(self.url, name if replace else None) as (new, is_aside):
                new.from_file(file)
                ledger.note_written(new.tx)
                emptied()
        return f"the schema {name} of the database" if is_aside else None

    @contextmanager
    def read_only(self) -> Iterator[Tx]:
        with tables.snapshot(self.url) as found:
            yield found.tx

    def change(self, work: Callable[[Tx], _T]) -> _T:
        return tables.change(self.url, work)

    def purge(self) -> None:
        tables.vacuum(self.url)
