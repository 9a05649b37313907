"""`/docs` of the bot's HTTP server in a browser: requests are read about and tried, by somebody without a token."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import BrowserContext, Locator, Page, expect

from tests.browser.visitor import PATIENCE, serious
from tests.kit.world import World, config, scene, url_of

pytestmark = pytest.mark.asyncio(loop_scope="session")
PUSHES = '\n[[producers]]\nname = "mailer"\n'


@pytest_asyncio.fixture(loop_scope="session")
async def stage(tmp_path: Path) -> AsyncIterator[World]:
    async with scene(tmp_path) as made:
        yield made


async def opened(page: Page, method: str, path: str) -> Locator:
    """The form of one operation."""
    found = page.locator(f'form[data-method="{method}"][data-path="{path}"]')
    await page.locator("details").filter(has=found).locator("summary").click()
    return found


async def test_requests_are_tried_on_the_page_and_reach_people(window: BrowserContext, stage: World) -> None:
    asked: list[str] = []
    complaints: list[str] = []
    async with stage.bot(config(stage.producer.url, more=PUSHES)) as bot:
        page = await window.new_page()
        page.set_default_timeout(PATIENCE)
        page.on("request", lambda request: asked.append(request.url))
        page.on("console", lambda said: complaints.append(said.text) if said.type == "error" else None)
        await page.goto(f"{url_of(bot)}/docs")

        ask = await opened(page, "POST", "/clarifications")
        await ask.get_by_role("button", name="Send").click()
        await expect(ask.locator("pre")).to_contain_text(re.compile(r"201 Created[\s\S]*CLR-42-001"))
        await stage.card("Which database?")

        look = await opened(page, "GET", "/clarifications/{clarification_id}")
        await look.get_by_label("clarification_id").fill("CLR-42-001")
        await look.get_by_role("button", name="Send").click()
        await expect(look.locator("pre")).to_contain_text('"status": "pending"')

        push = await opened(page, "POST", "/aaep/v1/messages")
        for status in ("accepted", "duplicate"):
            await push.get_by_role("button", name="Send").click()
            await expect(push.locator("pre")).to_contain_text(f'"status": "{status}"')

        stream = await opened(page, "GET", "/aaep/v1/events")
        await stream.get_by_role("button", name="Send").click()
        await expect(stream.locator("pre")).to_contain_text(": connected")
        await stream.get_by_role("button", name="Stop").click()
        await expect(stream.get_by_role("button", name="Stop")).to_be_hidden()

        assert await serious(page) == []
        await page.close()
    assert complaints == []
    server = asked[0].removesuffix("docs")
    assert all(url.startswith(server) for url in asked)
