from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from bot.delivery.store import Store
from bot.webhooks.model import Endpoint
from tests.clocks import ManualClock
from tests.unit.bot.webhooks.receiver import SECRET, Receiver, World, receiving


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    async with receiving() as made:
        yield made


@pytest.fixture
async def world(tmp_path: Path, receiver: Receiver) -> AsyncIterator[World]:
    folder = tmp_path / "ledgers"
    folder.mkdir()
    store = await Store.open(tmp_path / "clarify.db")
    made = World(folder, ManualClock(), store, Endpoint.of(receiver.url, SECRET))
    yield made
    await made.close()
