"""One browser and one window per worker; one bot, workspace and producer per test, all on the session's event loop."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import BrowserContext, async_playwright

from tests.browser.chromium import HOW_TO, chromium, launch
from tests.browser.visitor import Visit
from tests.kit.world import scene, url_of


@pytest_asyncio.fixture(loop_scope="session", scope="session")
async def window() -> AsyncIterator[BrowserContext]:
    """One for all: each of its own would cost a process, and a second, a page."""
    async with async_playwright() as playwright:
        path = chromium(playwright)
        if path is None:
            pytest.skip(HOW_TO)
        browser = await launch(playwright, path)
        yield await browser.new_context(reduced_motion="reduce", device_scale_factor=1)
        await browser.close()


@pytest_asyncio.fixture(loop_scope="session")
async def visit(window: BrowserContext, tmp_path: Path) -> AsyncIterator[Visit]:
    """The bot beside a workspace and a producer, and a window to look at the workspace in."""
    async with scene(tmp_path) as stage, stage.bot() as bot:
        made = Visit(stage, window, url_of(bot))
        yield made
        await made.close()


@pytest_asyncio.fixture(loop_scope="session")
async def talk(window: BrowserContext, tmp_path: Path) -> AsyncIterator[Visit]:
    """As `visit`, without a bot: for what people have among themselves."""
    async with scene(tmp_path) as stage:
        made = Visit(stage, window)
        yield made
        await made.close()
