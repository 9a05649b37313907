"""Backup, restore, moving and forgetting for a bot on SQLite. Blocking."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from bot.errors import BackupError, StorageUnavailable
from bot.storage import beside
from bot.storage.beside import Columns, Contents
from bot.storage.sqlite import tell_changed
from bot.storage.tx import Tx

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class InSqlite:
    """`bot.retention.backup.Kept` in SQLite's file."""

    database: Path

    def copy(self, to: Path) -> int:
        self._require()
        return beside.copy(self.database, to)

    def _require(self) -> None:
        if not self.database.exists():
            raise BackupError(f"{self.database} is not there: no bot has used it yet.")

    @property
    def name(self) -> str:
        return str(self.database.resolve())

    def put(
        self,
        copied: Path,
        prepare: Callable[[Tx], None],
        *,
        aside: str | None = None,
        drop: bool = False,
        emptied: Callable[[], None] = lambda: None,
    ) -> str | None:
        with beside.exclusive(self.database):
            there = [] if drop else beside.parts(self.database)  # dropped: no bot has opened it
            if there and aside is None:
                raise BackupError(f"{there[0]} already exists. To move it aside, add --replace.")
            emptied()
            if there:
                beside.rename_to(self.database, str(aside))
            with beside.putting_back(copied, self.database) as tx:
                prepare(tx)
                tx.renumber()
        return f"files with {aside} in their names" if there else None

    @contextmanager
    def held(self, to: Path) -> Iterator[Tx]:
        self._require()
        with beside.exclusive(self.database), beside.transaction(self.database) as tx:
            beside.copy(self.database, to)
            yield tx

    def contents(self, wanted: Columns) -> Mapping[str, Contents]:
        return beside.contents(self.database, wanted)

    def unfinished(self) -> str | None:
        if not self.database.exists():
            return None
        with suppress(StorageUnavailable), self.read_only() as tx:  # else it is something else, which stays
            row = tx.one("select id from installation where moved_from is not null")
            return None if row is None else str(row["id"])
        return None

    def read_only(self) -> AbstractContextManager[Tx]:
        return beside.read_only(self.database, current=True)

    def change(self, work: Callable[[Tx], _T]) -> _T:
        with beside.transaction(self.database) as tx:
            result = work(tx)
        tell_changed(self.database)
        return result

    def purge(self) -> None:
        if not beside.empty_log(self.database):
            raise StorageUnavailable(
                f"It was deleted, but {self.database}-wal still holds it while another process reads the database. "
                "Run the same command again."
            )
