"""Backup, restore, moving and forgetting for bots on PostgreSQL. Blocking.

A backup is one snapshot; restoring is one transaction.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeVar

from bot.retention.backup import DATABASE
from bot.storage import beside, tables
from bot.storage.beside import Columns, Contents
from bot.storage.tx import Tx

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class InPostgres:
    """`bot.retention.backup.Kept` in PostgreSQL."""

    url: str

    def copy(self, to: Path) -> int:
        with tables.snapshot(self.url) as found:
            return found.to_file(to)

    @property
    def name(self) -> str:
        return tables.name_of(self.url)

    def put(
        self,
        copied: Path,
        prepare: Callable[[Tx], None],
        *,
        aside: str | None = None,
        drop: bool = False,
        emptied: Callable[[], None] = lambda: None,
    ) -> str | None:
        schema = None if aside is None else aside.replace("-", "_").lower()
        with TemporaryDirectory() as drafts:
            file = Path(drafts) / DATABASE
            with beside.putting_back(copied, file) as tx:
                prepare(tx)
            with tables.new_tables(self.url, schema, drop=drop) as (new, is_aside):
                new.from_file(file)
                new.tx.renumber()
                emptied()
        return f"the schema {schema} of the database" if is_aside else None

    @contextmanager
    def held(self, to: Path) -> Iterator[Tx]:
        with tables.held(self.url) as found:
            found.to_file(to)
            yield found.tx

    def contents(self, wanted: Columns) -> Mapping[str, Contents]:
        with tables.snapshot(self.url) as found:
            return found.contents(wanted)

    def unfinished(self) -> str | None:
        return tables.unfinished(self.url)

    @contextmanager
    def read_only(self) -> Iterator[Tx]:
        with tables.snapshot(self.url) as found:
            yield found.tx

    def change(self, work: Callable[[Tx], _T]) -> _T:
        return tables.change(self.url, work)

    def purge(self) -> None:
        tables.vacuum(self.url)
