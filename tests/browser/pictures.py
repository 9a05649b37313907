"""Takes the pictures of the documentation: `python -m tests.browser.pictures docs/pictures`.

A story is played with the whole bot; nothing in the pictures is made up.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
from pathlib import Path

import httpx
from playwright.async_api import Page, ViewportSize, async_playwright

from bot.app import Bot
from tests.browser.chromium import HOW_TO, chromium, launch
from tests.browser.gallery import ACTS, APPROVALS, hang
from tests.browser.visitor import PHONE, WIDE, Visit, card
from tests.kit.world import World, scene, url_of
from workspace.seed import ADE, AGENTS, FOLAKE, ONCALL

SHOP = "sess_shop"
CARD: ViewportSize = {"width": 860, "height": 640}
MAIL = APPROVALS["editable"] | {"agent": "Mailer"}
CHOICES = [
    {"value": "staging", "label": "Staging"},
    {"value": "canary", "label": "Canary"},
    {"value": "production", "label": "Production"},
]


async def story(stage: World) -> None:
    """A release: a question, talk, an answer, what a tool did, a second question."""
    shown = await stage.ask(
        "rpl_1",
        session=SHOP,
        question="All 412 tests of 4.1 passed. Start the release?",
        context="The last release was nine days ago. No other deployment is running.",
        timeout_seconds=3000,
        default_response="no",
    )
    await stage.workspace.post(
        ADE, AGENTS, "note: checkout changed a lot, but the numbers look good", shown.ts
    )
    await stage.workspace.click(FOLAKE, AGENTS, shown.ts, label="Yes")
    await stage.reply("rpl_1")
    await stage.says(
        "tool.completed",
        session=SHOP,
        tool="deployer",
        tool_call_id="c1",
        status="success",
        duration_ms=4200,
        summary_normal="Built 4.1 and put it on the test stage",
    )
    await stage.ask(
        "rpl_2",
        session=SHOP,
        question="Where should 4.1 go first?",
        timeout_seconds=3000,
        accepted_response_kinds=["multiple_choice", "freetext"],
        choices=CHOICES,
        default_response="staging",
    )


async def consent(stage: World) -> None:
    await stage.producer.emit(
        {
            "type": "aaep:agent.awaiting.confirmation",
            "session_id": "sess_mail",
            "urgency": "critical",
            "action": "Email the announcement of 4.1 to 1,204 customers.",
            "consequence": "The emails cannot be recalled.",
            "reply_token": "rpl_3",
            "timeout_seconds": 1800,
            "default_decision": "reject",
            "risk_level": "high",
            "irreversible": True,
        }
    )
    await stage.card("Email the announcement")


async def approval(stage: World, bot: Bot) -> None:
    """An action for two people, of whom one has changed an argument."""
    async with httpx.AsyncClient(base_url=url_of(bot), timeout=60, trust_env=False) as http:
        await http.post("/questions", json=MAIL)
    shown = await stage.card("Send the newsletter")
    await stage.workspace.click(ADE, AGENTS, shown.ts, label="Answer…")
    await stage.modal(ADE)
    entered = {"Your decision": "Accept", "recipients": "1204"}
    await stage.workspace.submit_view(ADE, entered)
    await stage.now_says(shown, "1 of 2")


async def take(folder: Path) -> None:
    """All pictures, into `folder`."""
    with tempfile.TemporaryDirectory() as place:
        async with async_playwright() as playwright, scene(Path(place)) as stage, stage.bot() as bot:
            path = chromium(playwright)
            if path is None:
                raise SystemExit(HOW_TO)
            browser = await launch(playwright, path)
            visit = Visit(stage, await browser.new_context(device_scale_factor=1))
            stage.producer._watch = stage.workspace.traffic.aaep
            await pictures(stage, bot, visit, folder)
            await visit.close()
            await browser.close()


async def pictures(stage: World, bot: Bot, visit: Visit, folder: Path) -> None:
    """`folder/*.png`: the workspace, a card, an approval, a page to on-call, App Home, a modal, the confirm dialog, a phone."""
    await story(stage)
    for scheme in ("light", "dark"):
        page = await visit.page(FOLAKE, scheme=scheme, size=WIDE)
        await card(page, "Where should 4.1 go first?").wait_for()
        await save(page, folder / f"workspace-{scheme}.png")
    page = await visit.page(FOLAKE, size=PHONE)
    await save(page, folder / "phone.png")

    page = await visit.page(FOLAKE, size=CARD)
    shown = card(page, "Where should 4.1 go first?")
    await shown.screenshot(path=folder / "card.png")
    await shown.get_by_role("button", name="Answer").click()
    await page.locator("dialog#modal textarea").wait_for()
    await save(page, folder / "modal.png")
    await stage.workspace.close_view(FOLAKE)

    await consent(stage)
    page = await visit.page(FOLAKE, scheme="dark", size=CARD)
    await card(page, "Email the announcement").get_by_role("button", name="Accept").click()
    await save(page, folder / "confirm.png")

    await stage.workspace.command(
        FOLAKE, AGENTS, "/clarify", "escalate CLR-100001-002 nobody is at their desk"
    )
    await stage.page("Where should 4.1 go first?")
    direct = stage.workspace.state.direct_message(ONCALL)
    page = await visit.page(ONCALL, size=CARD, channel=direct.id if direct else "")
    await card(page, "Where should 4.1 go first?").screenshot(path=folder / "page-to-on-call.png")

    page = await visit.page(FOLAKE, size={"width": 1180, "height": 610}, home="1")
    await page.get_by_role("heading", name="My inbox").wait_for()
    await save(page, folder / "app-home.png")
    await page.goto(
        "about:blank"
    )  # the picture left an empty style on its field, which the next update may not copy

    await approval(stage, bot)
    page = await visit.page(FOLAKE, size={"width": 860, "height": 900})
    await card(page, "Send the newsletter").screenshot(path=folder / "approval.png")


async def save(page: Page, file: Path) -> None:
    await page.wait_for_timeout(300)  # fonts and the last of the traffic; no test depends on it
    await page.screenshot(path=file)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument(
        "--gallery", action="store_true", help="take every kind instead, at each size and in each scheme"
    )
    parser.add_argument("acts", nargs="*", choices=[[], *ACTS], help="of the gallery; without any, all")
    asked = parser.parse_args()
    asked.folder.mkdir(parents=True, exist_ok=True)
    asyncio.run(hang(asked.folder, asked.acts) if asked.gallery else take(asked.folder))


if __name__ == "__main__":
    main()
