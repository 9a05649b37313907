"""Backup, restore and forgetting for a bot on SQLite. Blocking."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TypeVar

from bot.errors import BackupError, StorageUnavailable
from bot.retention.backup import aside_name
from bot.storage import beside
from bot.storage.sqlite import tell_changed
from bot.storage.tx import Tx

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class InSqlite:
    """`bot.retention.backup.Kept` in SQLite's file."""

    database: Path

    def copy(self, to: Path) -> int:
        if not self.database.exists():
            raise BackupError(f"{self.database} is not there: no bot has used it yet.")
        return beside.copy(self.database, to)

    def put(
        self,
        copied: Path,
        now: datetime,
        prepare: Callable[[Tx], None],
        *,
        replace: bool,
        emptied: Callable[[], None],
    ) -> str | None:
        name = aside_name(now)
        with beside.exclusive(self.database):
            there = beside.parts(self.database)
            if there and not replace:
                raise BackupError(f"{there[0]} already exists. To move it aside, add --replace.")
            emptied()
            beside.rename_to(self.database, name)
            with beside.putting_back(copied, self.database) as tx:
                prepare(tx)
        return f"files with {name} in their names" if there else None

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
