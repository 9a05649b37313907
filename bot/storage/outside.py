"""Reads a storage of either kind from another process, whether a bot runs or not. Blocking."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bot.storage import beside
from bot.storage.tx import Tx


@contextmanager
def reading(path: Path, url: str | None) -> Iterator[Tx | None]:
    """Yields a transaction for queries on a storage of this version, whether a bot runs or not: in PostgreSQL at `url`, else
    in SQLite's file; None if there is no file yet.

    Raises:
        StorageUnavailable: it cannot be read, or no bot of this release has used it.
    """
    if url is not None:
        from bot.storage import tables  # noqa: PLC0415 - psycopg is an optional extra

        with tables.snapshot(url) as there:
            yield there.tx
    elif path.exists():
        with beside.read_only(path, current=True) as tx:
            yield tx
    else:
        yield None
