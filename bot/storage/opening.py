"""Opens a storage of either kind: for a bot that runs on it, and for a process beside it that reads and changes it, whether a bot
runs or not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Protocol, TypeVar

from bot.errors import StorageUnavailable
from bot.storage.sqlite import Columns, InSqlite, SQLite, TableDigest
from bot.storage.store import Store, require_here
from bot.storage.tx import Tx


async def open_storage(place: Path | str, listen_url: str | None = None, *, beside: bool = False) -> Store:
    """Opens or creates the storage, with the tables of this release.

    Args:
        place: SQLite's file, or PostgreSQL's address (`postgresql://…`).
        listen_url: PostgreSQL's direct address, if `place` is a pooling proxy's.
        beside: SQLite's file may be in use by a bot, which hears of each write; an existing file is not migrated.

    Raises:
        StorageInUseError: another instance holds the file.
        StorageUnavailable: PostgreSQL cannot be reached now.
        StorageError: it cannot be opened, has moved, or is of a version that this release cannot use.
    """
    if isinstance(place, Path):
        return await SQLite.open(place, beside=beside)
    from bot.storage.postgres import PostgreSQL  # noqa: PLC0415 - psycopg is an optional extra

    return await PostgreSQL.open(place, listen_url)


_T = TypeVar("_T")


class Kept(Protocol):
    """The database of a bot, used from another process, whether a bot runs or not. Blocking."""

    @property
    def name(self) -> str:
        """What people call it, without secrets."""

    def copy(self, to: Path) -> int:
        """Copies it into a SQLite file, as of one moment. Returns its version.

        Raises:
            BackupError, StorageUnavailable: there is none, or it cannot be read.
            OSError: the file cannot be written.
        """

    def put(
        self,
        copied: Path,
        prepare: Callable[[Tx], None],
        *,
        aside: str | None = None,
        drop: bool = False,
        emptied: Callable[[], None] = lambda: None,
    ) -> str | None:
        """Puts a copy in its place, after `prepare`. Calls `emptied` when no bot uses it any more and it is about to change.

        `aside`: the name under which the previous one is kept; `drop`: it is not; neither: there must be none.

        Returns:
            Where the previous one is now, or None if there was none.

        Raises:
            BackupError, StorageInUseError: see `bot.retention.backup.restore`.
        """

    def held(self, to: Path) -> AbstractContextManager[Tx]:
        """Copies it into a SQLite file, and lets nobody else change it until the end, when what the transaction did is stored.

        Raises:
            BackupError, StorageUnavailable: there is none, or it cannot be used.
            StorageInUseError: a bot runs on it.
        """

    def contents(self, wanted: Columns) -> Mapping[str, TableDigest]:
        """Returns what it holds, as of one moment.

        Raises:
            StorageUnavailable: it cannot be read.
        """

    def unfinished(self) -> str | None:
        """Returns the installation that is being moved here (`bot.retention.backup`); None: none is.

        Raises:
            StorageUnavailable: it cannot be read.
        """

    def is_in_use(self) -> bool:
        """Returns whether a bot runs on it.

        Raises:
            StorageUnavailable: it cannot be reached.
        """

    def read_only(self) -> AbstractContextManager[Tx]:
        """Yields a transaction for queries. Writes and locks nothing.

        Raises:
            StorageUnavailable: it cannot be read, or no bot of this release has used it.
        """

    def change(self, work: Callable[[Tx], _T]) -> _T:
        """Runs `work` in one transaction, and tells running bots. On PostgreSQL it may run again.

        Raises:
            StorageUnavailable: nothing was changed, or the outcome is unknown.
        """

    def purge(self) -> None:
        """Removes from the disk what was deleted, as far as this process can.

        Raises:
            StorageUnavailable: repeating the call does the rest.
        """


def kept_at(path: Path, url: str | None) -> Kept:
    """Returns the database in PostgreSQL at `url`, else in SQLite's file."""
    if url is None:
        return InSqlite(path)
    from bot.storage.tables import InPostgres  # noqa: PLC0415 - psycopg is an optional extra

    return InPostgres(url)


@contextmanager
def reading(path: Path, url: str | None) -> Iterator[Tx | None]:
    """Yields a transaction for queries, as `Kept.read_only`; None if there is no file yet."""
    if url is None and not path.exists():
        yield None
    else:
        with kept_at(path, url).read_only() as tx:
            yield tx


def changed(path: Path, url: str | None, work: Callable[[Tx], _T]) -> _T:
    """Runs `work` as `Kept.change`, unless the storage moved.

    Raises:
        StorageUnavailable: nothing was changed, or there is no storage of this version.
        StorageMoved: it moved to another one; nothing was changed.
    """
    kept = kept_at(path, url)
    return kept.change(partial(here, kept.name, work))


def here(name: str, work: Callable[[Tx], _T], tx: Tx) -> _T:
    """Runs `work`, unless the storage moved.

    Raises:
        StorageMoved: it did.
    """
    if (row := tx.one("select moved_to, moved_from from installation")) is not None:
        require_here(name, row)
    return work(tx)


@dataclass(frozen=True, slots=True)
class SlackConnections:
    """How many connections of the Slack app were not the bot's, when Slack last reported them."""

    others: int
    at: datetime


def connections(path: Path, url: str | None) -> SlackConnections | None:
    """Returns what `Store.note_connections` stored last, or None if there is nothing or it cannot be read."""
    with suppress(StorageUnavailable), reading(path, url) as tx:  # another line of `clarify check` reports it
        row = tx and tx.one("select others, told_at from installation where told_at is not null")
        return SlackConnections(row["others"], datetime.fromtimestamp(row["told_at"], UTC)) if row else None
    return None
