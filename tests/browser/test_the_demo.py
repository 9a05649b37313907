"""`clarify demo` on its page: the release captain's whole story, and what the page offers to copy for agents of one's own."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shlex
import shutil
import sys
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from unittest.mock import ANY

import pytest
import pytest_asyncio
from mcp import Client, StdioServerParameters
from playwright.async_api import BrowserContext, Locator, Page, expect

from bot.workspace.seed import ADE, FOLAKE
from tests.browser.visitor import PATIENCE, WIDE, card, serious, serious_in_both_schemes, tab_to
from tests.kit.processes import clarify

pytestmark = pytest.mark.asyncio(loop_scope="session")


@pytest_asyncio.fixture(loop_scope="session")
async def page(window: BrowserContext, tmp_path: Path) -> AsyncIterator[Page]:
    """The page of a demo; what its script complains of fails the test."""
    kept = {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")}
    demo = await clarify("demo", "--keep-folder", str(tmp_path / "demo"), env=kept, stderr=DEVNULL)
    complaints: list[str] = []
    try:
        assert demo.stdout is not None
        said = (await demo.stdout.readuntil(b"Open this page:") + await demo.stdout.readline()).decode()
        page = await window.new_page()
        page.set_default_timeout(PATIENCE)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("console", lambda said: complaints.append(said.text) if said.type == "error" else None)
        await page.set_viewport_size(WIDE)
        await page.goto(said.split()[-1])
        await expect(card(page, "Prepare its announcement?")).to_be_visible()  # the bot is there
        yield page
        await page.close()
        await window.clear_cookies()
    finally:
        demo.terminate()
        await demo.wait()
    assert complaints == []


async def opened(page: Page, words: str) -> Locator:
    """The modal of a question."""
    await card(page, words).get_by_role("button", name="Answer").click()
    modal = page.get_by_role("dialog", name="Answer")
    await expect(modal).to_be_visible()
    return modal


async def accepted(page: Page) -> None:
    """Accept what its card does not show whole."""
    await card(page, "Email the announcement").get_by_role("button", name="Accept").click()
    await page.get_by_role("dialog", name="Accept this?").get_by_role("button", name="Accept").click()


async def test_captain_asks_in_every_way_until_two_people_let_it_mail(page: Page) -> None:
    await card(page, "Prepare its announcement?").get_by_role("button", name="Yes").click()
    await card(page, "Which change should come first?").locator("select").select_option(index=3)

    modal = await opened(page, "What should we call this release?")
    await modal.get_by_label("Your answer").fill("Sturdy Heron")
    await modal.get_by_role("button", name="Send answer").click()

    modal = await opened(page, "Send a test email")
    await modal.get_by_label("Accept", exact=True).check()
    await modal.get_by_label("subject").fill("Heron is here")
    await modal.get_by_label("links").fill('{"notes": null')
    await modal.get_by_role("button", name="Send answer").click()
    await expect(modal.get_by_role("alert")).to_contain_text("This is not JSON.")
    await modal.get_by_label("links").fill('{"notes": null, "survey": "https://shop.example/survey"}')
    await modal.get_by_role("button", name="Send answer").click()
    over = page.locator("main article").filter(has_text="Send a test email")
    await expect(over).to_contain_text("subject: The shop 4.1 “Sturdy Heron” is here → Heron is here")
    await expect(over).to_contain_text("links › survey: (none) → https://shop.example/survey")

    modal = await opened(page, "When should it go out, and to whom?")
    await modal.get_by_label("When").fill("2026-12-01T08:30")
    await modal.get_by_label("Replies go to").fill("shop@shop.example")
    await modal.get_by_role("button", name="Send answer").click()
    await expect(modal.get_by_role("alert")).to_have_text("Please complete this required field.")
    await modal.get_by_label("German").check()
    await modal.get_by_role("button", name="Send answer").click()

    mail = card(page, "Email the announcement")
    await expect(mail.get_by_role("row", name="at 2026-12-01T08:30:00Z")).to_be_visible()
    await expect(mail.get_by_role("row", name="subject Heron is here")).to_be_visible()
    await expect(mail).to_contain_text("Needs 2 approvals")
    await expect(mail).not_to_contain_text("SHOP-2190")
    await mail.get_by_role("button", name="View full").click()
    await expect(page.get_by_role("dialog", name="Full text")).to_contain_text("SHOP-2190")
    assert await serious(page) == []
    await page.keyboard.press("Escape")

    await accepted(page)
    await expect(mail).to_contain_text("One more person must approve")
    await accepted(page)
    told = page.get_by_role("dialog", name="Not answered")
    await expect(told).to_contain_text("counts once: one more person must approve")
    await page.keyboard.press("Escape")
    await page.get_by_label("Acting as").select_option(ADE)
    await accepted(page)
    over = page.locator("main article").filter(has_text="Email the announcement")
    await expect(over).to_contain_text("the agent has resumed")
    await expect(over).to_contain_text("Approved by @Folake and @Ade")

    panel = page.get_by_role("complementary", name="Traffic")
    for title, words in (
        ("MCP ask_human", "What should we call"),
        ("POST /questions", "When should it go out"),
    ):
        line = panel.locator(".wire.agent").filter(has_text=title).filter(has_text=words)
        await expect(line).to_be_visible()
    await proven(page, over)


async def proven(page: Page, over: Locator) -> None:
    """What its agent got is signed, and its card says that this is genuine."""
    panel = page.get_by_role("complementary", name="Traffic")
    heard = panel.locator(".wire.agent").filter(has_text="answered").last
    await expect(heard).to_contain_text("Accept")
    await heard.locator("summary").click()
    for words in ('"typ": "clarify-decision+jwt"', '"arguments_sha256":', '"signature":'):
        await expect(heard.locator("pre")).to_contain_text(words)
    await over.get_by_role("button", name="Verify").click()
    window = page.get_by_role("dialog", name="Verify")
    await expect(window).to_contain_text("Verified. The signature is good")
    await expect(window).to_contain_text("Approved by @Folake and @Ade")
    assert await serious_in_both_schemes(page) == []


async def test_agents_of_visitors_are_connected_with_the_keyboard_and_what_is_copied_works(
    page: Page, window: BrowserContext
) -> None:
    await window.grant_permissions(["clipboard-read", "clipboard-write"])
    opener = page.get_by_role("button", name="Connect an agent")
    await tab_to(page, opener)
    await page.keyboard.press("Enter")
    dialog = page.get_by_role("dialog", name="Connect an agent")
    await expect(dialog.get_by_role("button", name="Close")).to_be_focused()
    assert await serious_in_both_schemes(page) == []
    copied = []
    for place in range(6):
        button, text = dialog.get_by_role("button").nth(1 + place), dialog.locator("pre").nth(place)
        await tab_to(page, button)
        await page.keyboard.press("Enter")
        await expect(button).to_have_text("Copied")
        await expect(dialog.get_by_role("status")).to_have_text("Copied")
        await expect(dialog.get_by_role("button", name="Copied")).to_have_count(1)
        copied.append(await page.evaluate("navigator.clipboard.readText()"))
        assert copied[place] == await text.inner_text()
    await page.keyboard.press("Escape")
    await expect(opener).to_be_focused()

    add, serve, program, in_a_shell, before, called_back = copied
    assert add.startswith("claude mcp add --transport http clarify http://127.0.0.1:")
    await decided(page, "Over HTTP?", "A", tool(add.split()[-1], "Over HTTP?"))
    command, *words = shlex.split(serve)
    await decided(
        page, "Over stdio?", "B", tool(StdioServerParameters(command=command, args=words), "Over stdio?")
    )
    said = await decided(page, "Which colour?", "Green", output(sys.executable, "-c", program))
    assert said == f"Green user:slack/T0LOCAL/{FOLAKE}\n"
    if shutil.which("curl"):
        said = await decided(page, "Which database?", "SQLite", output("bash", "-c", in_a_shell))
        assert json.loads(said)["answer"] == "SQLite"
        listed = json.loads(await output("bash", "-c", before))["questions"]
        assert listed[0]["asked"] == {"kind": "choice", "question": "Which database?", "choices": ANY}
    said = await decided(page, "Which logo?", "Round", output(sys.executable, "-c", called_back))
    assert said == f"Round user:slack/T0LOCAL/{FOLAKE}\n"
    heard = page.get_by_role("complementary", name="Traffic").locator(".wire.agent")
    for title, words_of_it in (("MCP ask_human", "Over HTTP?"), ("POST /questions", "Which colour?")):
        await expect(heard.filter(has_text=title).filter(has_text=words_of_it)).to_be_visible()
    await expect(heard.filter(has_text=re.compile("answered.*Green"))).to_be_visible()


async def decided(page: Page, question: str, label: str, asking: Any) -> Any:
    """What the asker says once its question is answered on the page."""
    asker = asyncio.ensure_future(asking)
    await card(page, question).get_by_role("button", name=label, exact=True).click()
    return await asker


async def tool(server: str | StdioServerParameters, question: str) -> None:
    async with Client(server) as client:
        result = await client.call_tool("ask_human", {"question": question, "choices": ["A", "B"]})
    assert result.structured_content is not None
    assert result.structured_content["status"] == "answered"


async def output(*command: str) -> str:
    process = await asyncio.create_subprocess_exec(*command, stdout=PIPE, stderr=DEVNULL)
    out, _ = await process.communicate()
    return out.decode()


async def test_connecting_fits_a_phone(page: Page) -> None:
    await page.set_viewport_size({"width": 375, "height": 740})
    await page.get_by_role("button", name="Connect an agent").click()
    dialog = page.get_by_role("dialog", name="Connect an agent")
    await expect(dialog).to_be_visible()
    assert await serious_in_both_schemes(page) == []
    assert await page.evaluate("document.documentElement.scrollWidth") <= 375
    inside = dialog.locator("*")
    assert (
        await inside.evaluate_all(
            "all => all.filter(one => one.scrollWidth > one.clientWidth && getComputedStyle(one).overflowX !== 'visible').length"
        )
        == 0
    )
    await expect(dialog.get_by_role("button", name="Copy").last).to_be_visible()
