"""Actions on the page, by mouse and by keyboard alone: one that two people accept, one of whom changes it first; one that
its card does not show whole.
"""

from __future__ import annotations

import os
from pathlib import Path

import httpx
import pytest
from playwright.async_api import Page, expect

from tests.browser.visitor import BY_HAND, HANDS, Visit, card, serious, tab_to
from workspace.seed import ADE, FOLAKE

pytestmark = pytest.mark.asyncio(loop_scope="session")
MIGRATION = {
    "action": "Run the migration on the production database",
    "consequence": "Orders cannot be placed for about a minute.",
    "risk": "high",
    "irreversible": True,
    "approvals": 2,
    "editable": True,
    "arguments": {
        "command": "alembic upgrade head && systemctl restart shop",
        "sql": "ALTER TABLE orders\n  ADD COLUMN channel text NOT NULL DEFAULT 'web';",
        "file_path": "shop/models.py",
        "old_string": "class Order:\n    id: int\n    total: int",
        "new_string": "class Order:\n    id: int\n    total: int\n    channel: str",
        "workers": 4,
        "dry_run": False,
        "notify": {"channels": ["#shop", "#ops"], "before": {"minutes": 5}},
    },
}


async def picture(page: Page, name: str) -> None:
    """For whoever wants to look: CLARIFY_PICTURES names a folder."""
    if folder := os.environ.get("CLARIFY_PICTURES"):
        await page.screenshot(path=Path(folder, f"{name}.png"), full_page=True)


@BY_HAND
async def test_second_person_changes_it_and_the_first_accepts_again(visit: Visit, way: str) -> None:
    hand = HANDS[way]
    async with httpx.AsyncClient(base_url=visit.web, timeout=60) as http:
        asked = (await http.post("/questions", json=MIGRATION)).json()
        page, other = await visit.page(ADE), await visit.page(FOLAKE)
        shown = card(page, "Run the migration")
        await expect(shown.locator("pre", has_text="alembic upgrade head")).to_be_visible()
        await hand.press(page, shown.get_by_role("button", name="Accept"))
        await hand.press(page, page.get_by_role("dialog").get_by_role("button", name="Accept"))
        await expect(shown).to_contain_text("One more person must approve")
        await picture(page, "accepted-once")

        await hand.press(other, card(other, "Run the migration").get_by_role("button", name="Answer"))
        modal = other.get_by_role("dialog")
        await hand.tick(other, modal.get_by_label("Accept", exact=True))
        await hand.fill(other, modal.get_by_label("workers"), "2")
        dry = modal.get_by_role("group", name="dry_run")
        if hand is HANDS["keyboard"]:  # Tab leads to what is chosen, arrows to the others
            await tab_to(other, dry.get_by_label("No"))
            await other.keyboard.press("ArrowUp")
        else:
            await hand.tick(other, dry.get_by_label("Yes"))
        await picture(other, "changing")
        assert await serious(other) == []
        await hand.press(other, modal.get_by_role("button", name="Send answer"))
        await expect(shown).to_contain_text("workers: 4 → 2")
        await expect(shown).to_contain_text("dry_run: no → yes")
        await expect(shown).to_contain_text("1 of 2")
        await picture(page, "changed")
        await hand.press(page, shown.get_by_role("button", name="Accept"))
        await hand.press(page, page.get_by_role("dialog").get_by_role("button", name="Accept"))
        state = (await http.get(f"/questions/{asked['id']}", params={"wait": 30})).json()
        assert state["answer"]["arguments"] == MIGRATION["arguments"] | {"workers": 2, "dry_run": True}  # type: ignore[operator]
        assert [each.rpartition("/")[2] for each in state["approved_by"]] == [FOLAKE, ADE]
        await picture(page, "accepted")


@BY_HAND
async def test_what_a_card_leaves_out_is_read_before_it_is_accepted(visit: Visit, way: str) -> None:
    hand = HANDS[way]
    mail = "\n".join(f"Dear customer {n}," for n in range(60))
    asked = {"action": "Send the mail", "arguments": {"body": mail, "test": "no", "blank\u200b": None}}
    async with httpx.AsyncClient(base_url=visit.web, timeout=60) as http:
        asked = (await http.post("/questions", json=asked)).json()
        page = await visit.page(ADE)
        shown = card(page, "Send the mail")
        for told in ("Dear customer 0,", "more lines …"):
            await expect(shown).to_contain_text(told)
        for line in ('test: "no"', '"blank<U+200B>": (none)'):
            await expect(shown.get_by_role("listitem").filter(has_text=line)).to_be_visible()
        await expect(shown.get_by_text("Dear customer 30,")).to_be_hidden()
        await picture(page, "left-out")
        await hand.press(page, shown.get_by_role("button", name="Accept"))
        modal = page.get_by_role("dialog", name="Accept this?")
        await expect(modal).to_contain_text("Dear customer 30,")
        assert await serious(page) == []
        await picture(page, "accept-whole")
        await hand.press(page, modal.get_by_role("button", name="Accept"))
        state = (await http.get(f"/questions/{asked['id']}", params={"wait": 30})).json()
        assert state["answer"]["decision"] == "accept"
