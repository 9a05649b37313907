"""Ledgers as the bot keeps them, in a database of their own."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from bot.storage.ledger import DatabaseLedger
from bot.storage.store import Store


@asynccontextmanager
async def kept_ledger(place: Path | str, *, shell_consents: bool = False) -> AsyncIterator[DatabaseLedger]:
    """The ledgers of SQLite's file in a folder, or of PostgreSQL at an address; made if missing. May be open several times,
    as in several processes.
    """
    store = await Store.open(place / "clarify.db" if isinstance(place, Path) else place, beside=True)
    try:
        yield await DatabaseLedger.open(store, shell_consents=shell_consents)
    finally:
        await store.close()
