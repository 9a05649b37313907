"""Ledgers as the bot keeps them, in a database of their own, and writes of whoever is not the bot."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from bot.storage.ledger import DatabaseLedger
from bot.storage.store import Store
from tests.kit.databases import change_ledger_row

_FILE = "clarify.db"


@asynccontextmanager
async def kept_ledger(place: Path | str, *, shell_consents: bool = False) -> AsyncIterator[DatabaseLedger]:
    """The ledgers of SQLite's file in a folder, or of PostgreSQL at an address; made if missing. May be open several times,
    as in several processes.
    """
    store = await Store.open(place / _FILE if isinstance(place, Path) else place, beside=True)
    try:
        yield await DatabaseLedger.open(store, shell_consents=shell_consents)
    finally:
        await store.close()


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
