"""Reads and changes a storage of either kind from another process, whether a bot runs or not. Blocking."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TypeVar

from bot.errors import StorageUnavailable
from bot.storage import beside
from bot.storage.store import require_here
from bot.storage.tx import Tx

_T = TypeVar("_T")


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


def changed(path: Path, url: str | None, work: Callable[[Tx], _T]) -> _T:
    """Runs `work` in one transaction on a storage of this version: see `reading`. On PostgreSQL it may run again.

    Raises:
        StorageUnavailable: nothing was changed, or there is no storage of this version.
        StorageMoved: it moved to another one; nothing was changed.
    """
    if url is not None:
        from bot.storage import tables  # noqa: PLC0415 - psycopg is an optional extra

        return tables.change(url, partial(here, "The database", work))
    if not path.exists():
        raise StorageUnavailable(f"{path} is not there: no bot has used it yet.")
    with beside.transaction(path) as tx:
        return here(str(path), work, tx)


def here(name: str, work: Callable[[Tx], _T], tx: Tx) -> _T:
    """Runs `work`, unless the storage moved.

    Raises:
        StorageMoved: it did.
    """
    if (row := tx.one("select moved_to, moved_from from installation")) is not None:
        require_here(name, row)
    return work(tx)
