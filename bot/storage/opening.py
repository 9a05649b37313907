"""Opens the storage of either kind."""

from __future__ import annotations

from pathlib import Path

from bot.storage.sqlite import SQLite
from bot.storage.store import Store


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
