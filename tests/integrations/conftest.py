from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from bot.storage.ledger import DatabaseLedger
from bot.storage.store import Store
from tests.kit.databases import open_store


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    opened = await open_store(tmp_path / "clarify.db")
    yield opened
    await opened.close()


@pytest.fixture
async def ledger(store: Store) -> DatabaseLedger:
    return DatabaseLedger(store)
