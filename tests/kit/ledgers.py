"""Ledgers as the bot keeps them, in a database of their own, and writes of whoever is not the bot."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

from bot.storage.ledger import DatabaseLedger
from bot.storage.opening import open_storage
from bot.storage.tx import Tx
from tests.kit.databases import change_rows, make_tables

_FILE = "clarify.db"


@asynccontextmanager
async def kept_ledger(place: Path | str) -> AsyncIterator[DatabaseLedger]:
    """The ledgers of SQLite's file in a folder, or of PostgreSQL at an address; made if missing. May be open several times,
    as in several processes.
    """
    if isinstance(place, Path):
        make_tables(place := place / _FILE)
    store = await open_storage(place, beside=True)
    try:
        yield DatabaseLedger(store)
    finally:
        await store.close()


@contextmanager
def held(*names: str) -> Iterator[None]:
    """Another bot has these locks: of records, or `issue 42`. With SQLite, where one bot has all, it is as if there were one."""
    with patch.object(Tx, "lock", lambda _tx, name, **_: name not in names):
        yield


def write_records(folder: Path, issue: int, *items: Any) -> None:
    """Put these records into an issue, behind the back of whoever has it open."""
    change_rows(folder / _FILE, issue, lambda _: list(items))


def change_record(folder: Path, issue: int, change: Callable[[dict[str, Any]], object]) -> None:
    """Have `change` edit the first record of an issue, in the same way."""

    def changed(records: list[Any]) -> list[Any]:
        change(records[0])
        return records

    change_rows(folder / _FILE, issue, changed)
