from __future__ import annotations

from collections.abc import AsyncIterator

import aiohttp
import pytest
from slack_sdk.web.async_client import AsyncWebClient

from tests.workspace.kit import FAST, App, over_http, over_socket, web_client
from workspace import Workspace


@pytest.fixture
async def ws() -> AsyncIterator[Workspace]:
    async with Workspace(options=FAST) as workspace:
        yield workspace


@pytest.fixture
def client(ws: Workspace) -> AsyncWebClient:
    return web_client(ws)


@pytest.fixture
async def http(ws: Workspace) -> AsyncIterator[aiohttp.ClientSession]:
    """A browser, or another process."""
    async with aiohttp.ClientSession(ws.url) as session:
        yield session


@pytest.fixture
async def app(ws: Workspace, request: pytest.FixtureRequest) -> AsyncIterator[App]:
    """The app beside the workspace: over Socket Mode, unless the test asks for `http`."""
    join = over_http if getattr(request, "param", "socket") == "http" else over_socket
    async with join(App(ws)) as joined:
        yield joined
