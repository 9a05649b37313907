from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest
from slack_sdk.web.async_client import AsyncWebClient

from bot.workspace import Workspace
from tests.unit.bot.workspace.kit import FAST, Bot, StartBot, connected, web_client


@pytest.fixture
async def ws() -> AsyncIterator[Workspace]:
    async with Workspace(options=FAST) as workspace:
        yield workspace


@pytest.fixture
def client(ws: Workspace) -> AsyncWebClient:
    return web_client(ws)


@pytest.fixture
async def start(ws: Workspace) -> AsyncIterator[StartBot]:
    async with AsyncExitStack() as stack:

        async def connect(bot: Bot) -> Bot:
            return await stack.enter_async_context(connected(bot))

        yield connect
