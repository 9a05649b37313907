"""Ledgers as the bot keeps them, in a database of their own, and writes of whoever is not the bot."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

from bot.storage.ledger import DatabaseLedger
from bot.storage.store import Store
from bot.storage.tx import Tx
from tests.kit.databases import change_ledger_row, make_tables

_FILE = "clarify.db"


@asynccontextmanager
async def kept_ledger(place: Path | str) -> AsyncIterator[DatabaseLedger]:
    """The ledgers of SQLite's file in a folder, or of PostgreSQL at an address; made if missing. May be open several times,
    as in several processes.
    """
    if isinstance(place, Path):
        make_tables(place := place / _FILE)
    store = await Store.open(place, beside=True)
    try:
        yield DatabaseLedger(store)
    finally:
        await store.close()


@contextmanager
def issue_held(issue: int) -> Iterator[None]:
    """Another bot has one issue's lock. With SQLite, where one bot has all, it is as if there were one."""
    with patch.object(Tx, "lock", lambda _tx, number, **_: number != issue):
        yield


def write_records(folder: Path, issue: int, *items: object) -> None:
    """Make these all that a ledger holds, behind the back of whoever has it open."""
    ledger = {"issueNumber": issue, "clarifications": list(items)}
    change_ledger_row(folder / _FILE, issue, lambda _: ledger)


def change_record(folder: Path, issue: int, change: Callable[[dict[str, Any]], object]) -> None:
    """Have `change` edit the first record of a ledger, in the same way."""

    def changed(ledger: Any) -> Any:
        change(ledger["clarifications"][0])
        return ledger

    change_ledger_row(folder / _FILE, issue, changed)
