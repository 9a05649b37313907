"""`clarify demo` on its page: the release captain's whole story, and what the page offers to copy for agents of one's own."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shlex
import shutil
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from unittest.mock import ANY

import httpx
import pytest
import pytest_asyncio
from mcp import Client, StdioServerParameters
from playwright.async_api import BrowserContext, Locator, Page, expect

from tests.browser.visitor import PATIENCE, WIDE, card, serious, serious_in_both_schemes, tab_to
from tests.kit.processes import clarify
from tests.scenario.test_mcp_tasks import Agent, Http
from workspace.seed import ADE, FOLAKE

pytestmark = [pytest.mark.ci, pytest.mark.asyncio(loop_scope="session")]
WAYS = [
    "Claude Code",
    "MCP over stdio",
    "Shell",
    "Python",
    "HTTP",
    "After a restart",
    "Called back instead of waiting",
]


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


async def accepted(page: Page, action: str = "Email the announcement") -> None:
    """Accept what the page asks about once more."""
    await card(page, action).get_by_role("button", name="Accept").click()
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
    await expect(mail).to_contain_text("at: 2026-12-01T08:30:00Z")
    await expect(mail).to_contain_text("subject: Heron is here")
    await expect(mail).to_contain_text("Needs 2 approvals")
    await expect(mail).not_to_contain_text("SHOP-2190")
    await mail.get_by_role("button", name="View full").click()
    await expect(page.get_by_role("dialog", name="Full text")).to_contain_text("SHOP-2190")
    assert await serious(page) == []
    await page.keyboard.press("Escape")

    await accepted(page)
    await expect(mail).to_contain_text("One more person must approve")
    await mail.get_by_role("button", name="Accept").click()
    told = page.locator("main article").filter(has_text="Only visible to you")
    await expect(told.last).to_contain_text("counts once: one more person must approve")
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
    await over.locator(".overflow summary").click()
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
    copied = {}
    for place, way in enumerate(WAYS, 1):
        button, text = dialog.get_by_role("button").nth(place), dialog.locator("pre").nth(place - 1)
        await expect(button).to_have_accessible_name(f"Copy {way}")
        await tab_to(page, button)
        await page.keyboard.press("Enter")
        await expect(button).to_have_text("Copied")
        await expect(dialog.get_by_role("status")).to_have_text("Copied")
        await expect(dialog.get_by_role("button", name="Copied")).to_have_count(1)
        copied[way] = await page.evaluate("navigator.clipboard.readText()")
        assert copied[way] == await text.inner_text()
    await expect(dialog.get_by_role("button", name="Copy")).to_have_count(len(WAYS) - 1)
    reference = await dialog.get_by_role("link").get_attribute("href")
    await page.keyboard.press("Escape")
    await expect(opener).to_be_focused()

    assert copied["Claude Code"].startswith("claude mcp add --transport http clarify http://127.0.0.1:")
    address = copied["Claude Code"].split()[-1]
    await decided(page, "Over HTTP?", "A", tool(address, "Over HTTP?"))
    async with httpx.AsyncClient(base_url=address.removesuffix("/mcp")) as http:
        await asked_as_a_task(page, Agent(Http(http)))
        shown = await http.get(str(reference))
        assert (shown.status_code, "/questions" in shown.text) == (200, True)
    command, *words = shlex.split(copied["MCP over stdio"])
    await decided(
        page, "Over stdio?", "B", tool(StdioServerParameters(command=command, args=words), "Over stdio?")
    )
    assert await accepted_in(page, "Deploy 4.2", output(copied["Shell"])) == "Deploying\n"
    said = await decided(page, "Which colour?", "Green", output(copied["Python"]))
    assert said == f"Green user:slack/T0LOCAL/{FOLAKE}\n"
    if shutil.which("curl"):
        said = await decided(page, "Which database?", "SQLite", output(copied["HTTP"]))
        assert json.loads(said)["answer"] == "SQLite"
        (last, *before) = json.loads(await output(copied["After a restart"]))["questions"]
        assert len(before) == 5  # its own only, not the release captain's
        assert last["asked"] == {"kind": "choice", "question": "Which database?", "choices": ANY}
        assert last["answer"] == "SQLite"
    said = await decided(page, "Which logo?", "Round", output(copied["Called back instead of waiting"]))
    assert said == f"Round user:slack/T0LOCAL/{FOLAKE}\n"
    heard = page.get_by_role("complementary", name="Traffic").locator(".wire.agent")
    for title, words_of_it in (("MCP ask_human", "Over HTTP?"), ("POST /questions", "Which colour?")):
        await expect(heard.filter(has_text=title).filter(has_text=words_of_it)).to_be_visible()
    await expect(heard.filter(has_text=re.compile("answered.*Green"))).to_be_visible()


async def asked_as_a_task(page: Page, agent: Agent) -> None:
    """A client that knows tasks gets one at once, and its result once a person has answered."""
    task = await agent.call("ask_human", question="As a task?", choices=["A", "B"])
    assert (task["resultType"], task["status"]) == ("task", "working")
    over = page.locator("main article").filter(has_text="As a task?")
    await over.get_by_role("button", name="A", exact=True).click()
    await expect(over.get_by_role("button", name="A", exact=True)).to_have_count(0)
    done = await agent.task(task["taskId"])
    assert (done["status"], done["result"]["structuredContent"]["answer"]) == ("completed", "A")


async def accepted_in(page: Page, action: str, asking: Any) -> Any:
    asker = asyncio.ensure_future(asking)
    await accepted(page, action)
    return await asker


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


async def output(command: str) -> str:
    """What a terminal shows of a command, pasted as it stands."""
    process = await asyncio.create_subprocess_exec("bash", "-c", command, stdout=PIPE, stderr=DEVNULL)
    out, _ = await process.communicate()
    return out.decode()


@pytest.mark.parametrize("width", [320, 390])
async def test_connecting_fits_a_phone(page: Page, width: int) -> None:
    await page.set_viewport_size({"width": width, "height": 740})
    await page.get_by_role("button", name="Connect an agent").click()
    dialog = page.get_by_role("dialog", name="Connect an agent")
    await expect(dialog).to_be_visible()
    assert await serious_in_both_schemes(page) == []
    assert await page.evaluate("document.documentElement.scrollWidth") <= width
    inside = dialog.locator("*")
    assert (
        await inside.evaluate_all(
            "all => all.filter(one => one.scrollWidth > one.clientWidth && getComputedStyle(one).overflowX !== 'visible').length"
        )
        == 0
    )
    await expect(dialog.get_by_role("button", name="Copy").last).to_be_visible()
