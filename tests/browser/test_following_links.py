"""Addresses in agents' text on the page: what can be clicked, and where it leads."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.async_api import BrowserContext, expect

from tests.browser.visitor import Visit, card
from tests.kit.world import scene
from tests.scenario.test_links import BAD, ISSUE, PULL, TEXT, configured
from workspace.seed import FOLAKE

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_p8_links_on_the_page_show_where_they_lead(window: BrowserContext, tmp_path: Path) -> None:
    async with scene(tmp_path) as stage, stage.bot(configured(stage)):
        visit = Visit(stage, window)
        await stage.emit(
            question=TEXT,
            context=f"**{ISSUE}** [the pull request]({PULL})\n\n| where | what |\n|---|---|\n| {BAD[0]} | {ISSUE} |",
        )
        page = await visit.page(FOLAKE)
        shown = card(page, "Merge ")
        await expect(shown).to_contain_text(BAD[-1])
        external = shown.locator("a[target=_blank]")
        await expect(external.first).to_be_visible()
        found = [(await each.inner_text(), await each.get_attribute("href")) for each in await external.all()]
        assert found == [(each, each) for each in (PULL, ISSUE, PULL, ISSUE)]
        await visit.close()
