"""Takes the pictures of the documentation: `python -m tests.browser.pictures docs/pictures`.

A story is played with the whole bot; nothing in the pictures is made up.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import tempfile
from asyncio.subprocess import DEVNULL
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import httpx
from playwright.async_api import Page, ViewportSize, async_playwright

from bot.app import Bot
from bot.people.check import samples
from tests.browser.chromium import HOW_TO, chromium, launch
from tests.browser.visitor import PHONE, WIDE, Scheme, Visit, card
from tests.kit.processes import clarify
from tests.kit.world import World, scene, url_of
from workspace import Workspace
from workspace.seed import ADE, AGENTS, BOT_ID, BOT_USER, FOLAKE, ONCALL
from workspace.state import Message

SHOP = "sess_shop"
CARD: ViewportSize = {"width": 860, "height": 640}
MAIL = {
    "agent": "Mailer",
    "action": "Send the newsletter",
    "consequence": "Mail cannot be called back.",
    "risk": "high",
    "approvals": 2,
    "editable": True,
    "arguments": {"list": "customers", "subject": "June: what is new in 4.1", "recipients": 12040},
}
SCHEMES: tuple[Scheme, ...] = ("light", "dark")
WIDTHS = (1280, 390)
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
            await demo(await browser.new_page(), folder)
            await browser.close()


async def demo(page: Page, folder: Path) -> None:
    """`folder/workspace-*.png`: the first minute of `clarify demo`, up to the first approval."""
    kept = {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")}
    process = await clarify("demo", env=kept, stderr=DEVNULL)
    try:
        assert process.stdout is not None
        said = (await process.stdout.readuntil(b"Open this page:") + await process.stdout.readline()).decode()
        await page.set_viewport_size(WIDE)
        await page.emulate_media(color_scheme="light", reduced_motion="reduce")
        await page.goto(said.split()[-1])
        await card(page, "Prepare its announcement?").get_by_role("button", name="Yes").click()
        await card(page, "Which change should come first?").locator("select").select_option(index=3)
        await card(page, "What should we call this release?").get_by_role("button", name="Wagtail").click()
        await card(page, "Send a test email").wait_for()
        await page.mouse.move(0, 0)  # over no message
        for scheme in SCHEMES:
            await page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
            await save(page, folder / f"workspace-{scheme}.png")
    finally:
        process.terminate()
        await process.wait()


async def pictures(stage: World, bot: Bot, visit: Visit, folder: Path) -> None:
    """`folder/*.png`: a card, an approval, a page to on-call, App Home, a modal, the confirm dialog, a phone."""
    await story(stage)
    page = await visit.page(FOLAKE, size=PHONE)
    await card(page, "Where should 4.1 go first?").wait_for()
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


async def hang(folder: Path, sizes: Sequence[tuple[int, Scheme]]) -> None:
    """Each sample at each width and in each scheme; and in `aloud.txt` its words, as a screen reader says them."""
    with tempfile.TemporaryDirectory() as place:
        async with async_playwright() as playwright, scene(Path(place)) as stage:
            path = chromium(playwright)
            if path is None:
                raise SystemExit(HOW_TO)
            browser = await launch(playwright, path)
            visit = Visit(stage, await browser.new_context(device_scale_factor=1))
            aloud: dict[str, str] = {}
            for width, scheme in sizes:
                size: ViewportSize = {"width": width, "height": 4000}  # no message is cut by the window
                page = await visit.page(FOLAKE, scheme=scheme, size=size, apart=True)
                for name, made in samples():
                    where, what = shown(stage.workspace, name, made)
                    await page.goto(f"{stage.workspace.url}?{urlencode(where)}")
                    file = folder / f"{name}-{width}-{scheme}.png"
                    await page.locator(what).screenshot(path=file, animations="disabled")
                    aloud[name] = await page.locator(what).inner_text()
                    stage.workspace.board.close_views(FOLAKE)
            await visit.close()
            await browser.close()
    (folder / "aloud.txt").write_text("".join(f"## {name}\n{words}\n\n" for name, words in aloud.items()))


def shown(slack: Workspace, name: str, made: dict[str, Any]) -> tuple[dict[str, str], str]:
    """Has a message or a view in the local Slack; the page that shows it, and where on it."""
    where = {"as": FOLAKE, "channel": AGENTS}
    if made.get("type") == "home":
        slack.board.publish_home(FOLAKE, made)
        return where | {"home": "1"}, "form.home"
    if made.get("type") == "modal":
        slack.board.open_view(FOLAKE, made)
        return where, "dialog#modal[open]"
    said = Message(AGENTS, "", BOT_USER, name, made["blocks"], bot_id=BOT_ID)
    return where, f'[id="mc{slack.board.post(slack.channel(AGENTS), said).ts}"]'


async def save(page: Page, file: Path) -> None:
    await page.wait_for_timeout(300)  # fonts and the last of the traffic; no test depends on it
    await page.screenshot(path=file)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument(
        "--gallery", action="store_true", help="take every kind instead, at each size and in each scheme"
    )
    asked = parser.parse_args()
    asked.folder.mkdir(parents=True, exist_ok=True)
    sizes = [*product(WIDTHS, SCHEMES)]
    asyncio.run(hang(asked.folder, sizes) if asked.gallery else take(asked.folder))


if __name__ == "__main__":
    main()
