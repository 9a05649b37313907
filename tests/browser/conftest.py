"""One browser per worker; one bot, workspace and producer per test, all on the session's event loop."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import Browser, async_playwright

from tests.browser.chromium import HOW_TO, chromium, launch
from tests.browser.visitor import Visit
from tests.kit.world import scene


@pytest_asyncio.fixture(loop_scope="session", scope="session")
async def browser() -> AsyncIterator[Browser]:
    async with async_playwright() as playwright:
        path = chromium(playwright)
        if path is None:
            pytest.skip(HOW_TO)
        started = await launch(playwright, path)
        yield started
        await started.close()


@pytest_asyncio.fixture(loop_scope="session")
async def visit(browser: Browser, tmp_path: Path) -> AsyncIterator[Visit]:
    """The bot beside a workspace and a producer, and a browser to look at the workspace with."""
    async with scene(tmp_path) as stage, stage.bot():
        made = Visit(stage, browser)
        yield made
        await made.close()
