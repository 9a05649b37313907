"""A form with a field of each kind, filled in on the page, by mouse and by keyboard alone."""

from __future__ import annotations

import httpx
import pytest
from playwright.async_api import Locator, Page, expect

from tests.browser.visitor import BY_HAND, HANDS, PHONE, Hand, Visit, card, serious, tab_to
from workspace.seed import ADE

pytestmark = pytest.mark.asyncio(loop_scope="session")
RELEASE = {
    "properties": {
        "name": {"type": "string", "title": "Name", "maxLength": 60, "default": "Kingfisher"},
        "tracker": {"type": "string", "format": "uri", "title": "Tracker"},
        "owner": {"type": "string", "format": "email", "title": "Owner"},
        "day": {"type": "string", "format": "date", "title": "Day", "default": "2026-12-01"},
        "start": {"type": "string", "format": "date-time", "title": "Start"},
        "replicas": {"type": "integer", "title": "Replicas", "minimum": 1, "maximum": 9},
        "canary": {"type": "boolean", "title": "Canary first", "default": True},
        "cluster": {"enum": [f"cluster {n:02d}" for n in range(1, 13)], "title": "Cluster"},
        "checks": {"type": "array", "title": "Checks", "items": {"enum": ["smoke", "load"]}, "minItems": 1},
    },
    "required": ["name", "canary", "checks"],
}
ANSWER = {
    "name": "Kingfisher",
    "tracker": "https://example.org/4.1",
    "owner": "ann@example.org",
    "day": "2026-12-01",
    "start": "2026-12-01T08:30:00Z",
    "replicas": 3,
    "canary": True,
    "cluster": "cluster 07",
    "checks": ["load"],
}


async def choose(page: Page, hand: Hand, menu: Locator, label: str) -> None:
    """In a modal a menu need not be opened: what is typed chooses."""
    if hand is HANDS["mouse"]:
        await hand.choose(page, menu, label)
        return
    await tab_to(page, menu)
    await page.keyboard.type(label)


async def set_moment(page: Page, hand: Hand, field: Locator) -> None:
    if hand is HANDS["mouse"]:
        await field.fill("2026-12-01T08:30")
        return
    await tab_to(page, field)
    await page.keyboard.type("12012026")
    await page.keyboard.press("ArrowRight")
    await page.keyboard.type("0830A")


@BY_HAND
async def test_form_is_filled_in_and_corrected(visit: Visit, way: str) -> None:
    hand = HANDS[way]
    async with httpx.AsyncClient(base_url=visit.web, timeout=60) as http:
        asked = (await http.post("/questions", json={"question": "How?", "schema": RELEASE})).json()
        page = await visit.page(ADE)
        shown = card(page, "How?")
        await expect(shown).to_contain_text("Replicas (a whole number from 1 to 9; optional)")
        await hand.press(page, shown.get_by_role("button", name="Answer"))
        modal = page.get_by_role("dialog")
        await hand.fill(page, modal.get_by_label("Tracker"), "example.org")
        await hand.fill(page, modal.get_by_label("Owner"), "ann@example.org")
        await set_moment(page, hand, modal.get_by_label("Start"))
        await hand.fill(page, modal.get_by_label("Replicas"), "3")
        await choose(page, hand, modal.get_by_label("Cluster"), "cluster 07")
        await hand.tick(page, modal.get_by_role("checkbox", name="load"))
        assert await serious(page) == []
        await hand.press(page, modal.get_by_role("button", name="Send answer"))
        await expect(modal.get_by_role("alert")).to_have_text(
            "Expected a web address or another URI, like https://example.org."
        )
        assert await serious(page) == []
        await hand.fill(page, modal.get_by_label("Tracker"), "https://example.org/4.1")
        await hand.press(page, modal.get_by_role("button", name="Send answer"))
        over = page.locator("main article").filter(has_text="Start: Dec 1, 2026 at 08:30")
        await expect(over).to_be_visible()
        state = (await http.get(f"/questions/{asked['id']}", params={"wait": 30})).json()
        assert state["answer"] == ANSWER


async def test_form_fits_a_phone(visit: Visit) -> None:
    async with httpx.AsyncClient(base_url=visit.web, timeout=60) as http:
        await http.post("/questions", json={"question": "How?", "schema": RELEASE})
        page = await visit.page(ADE, size=PHONE)
        await card(page, "How?").get_by_role("button", name="Answer").click()
        await expect(page.get_by_label("Start")).to_be_visible()
        assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth")
