from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from bot.storage.ledger import DatabaseLedger
from bot.storage.store import Store
from tests.kit.databases import open_store
from tests.unit.bot.slack.kit import Bot, settings
from workspace import Workspace

Start = Callable[..., Awaitable[Bot]]


@pytest.fixture
async def built(ws: Workspace, tmp_path: Path) -> AsyncIterator[Start]:
    """Builds a bot that is not connected."""
    bots: list[Bot] = []
    stores: list[Store] = []

    async def build(
        answerers: str = '["members"]', more: str = "", mode: str = "socket", **parts: Any
    ) -> Bot:
        stores.append(await open_store(tmp_path / "clarify.db"))
        configured = settings(tmp_path, answerers, more, mode, ws.api_url)
        bots.append(Bot(ws, configured, DatabaseLedger(stores[-1]), **parts))
        await bots[-1].people.me()
        return bots[-1]

    yield build
    for bot in bots:
        await bot.stop()
    for store in stores:
        await store.close()


@pytest.fixture
async def start(built: Start) -> Start:
    async def begin(answerers: str = '["members"]', more: str = "", **ports: Any) -> Bot:
        bot = await built(answerers, more, **ports)
        await bot.start()
        return bot

    return begin


@pytest.fixture
async def bot(start: Start) -> Bot:
    """A bot that is connected; members of the channel may answer."""
    return await start()
