"""Reading above the end, the bar of a message, thread and traffic beside the chat and over it, a page without scripts."""

from __future__ import annotations

from itertools import pairwise

import pytest
from playwright.async_api import Locator, Page, ViewportSize, expect

from tests.browser.visitor import PHONE, Visit, serious_in_both_schemes
from workspace.seed import ADE, AGENTS, FOLAKE

pytestmark = [pytest.mark.ci, pytest.mark.asyncio(loop_scope="session")]
LAPTOP: ViewportSize = {"width": 1280, "height": 800}
COUNTED = """() => {  // how often the live region is written to from now on
  window.said = [];
  const region = document.getElementById("announcer");
  new MutationObserver(() => window.said.push(region.textContent)).observe(region, { childList: true });
}"""
COVERED = """(tools) => {  // the words of the message that its bar lies over
  const bar = tools.getBoundingClientRect(), found = [];
  const walker = document.createTreeWalker(tools.closest("article"), NodeFilter.SHOW_TEXT);
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    if (tools.contains(node) || !node.parentElement.checkVisibility({ visibilityProperty: true })) continue;
    const range = document.createRange();
    range.selectNodeContents(node);
    for (const { left, right, top, bottom } of range.getClientRects()) {
      if (left < bar.right && right > bar.left && top < bar.bottom - 1 && bottom > bar.top + 1) found.push(node.data);
    }
  }
  return found;
}"""


def said(page: Page, words: str) -> Locator:
    return page.locator("main article").filter(has_text=words)


def pill(page: Page) -> Locator:
    return page.locator("main .pill")


async def talk_of_forty(visit: Visit) -> Page:
    """A channel that is longer than the screen, read at its beginning."""
    for number in range(40):
        await visit.stage.workspace.post(FOLAKE, AGENTS, f"talk {number}.")
    page = await visit.page()
    await expect(said(page, "talk 39.")).to_be_in_viewport()
    await page.locator("#messages").evaluate("list => { list.scrollTop = 0; }")
    await expect(said(page, "talk 0.")).to_be_in_viewport()
    return page


async def test_pill_counts_what_came_below_and_leads_to_it(talk: Visit) -> None:
    page = await talk_of_forty(talk)
    await expect(pill(page)).to_be_hidden()
    await page.evaluate(COUNTED)
    await talk.stage.workspace.post(FOLAKE, AGENTS, "far below")
    await expect(pill(page)).to_have_text("1 new message")
    for number in range(40):
        await talk.stage.workspace.post(ADE, AGENTS, f"more {number}.")
    await expect(pill(page)).to_have_text("41 new messages")
    assert await page.locator("#messages").evaluate("list => list.scrollTop") == 0
    assert await serious_in_both_schemes(page) == []

    await page.get_by_label("Message #agents").focus()
    await page.keyboard.press("Shift+Tab")
    await expect(pill(page)).to_be_focused()
    await page.keyboard.press("Enter")
    await expect(said(page, "far below")).to_be_in_viewport()
    await expect(said(page, "far below")).to_be_focused()
    await expect(page.locator(".new")).to_have_count(1)
    await expect(said(page, "far below")).to_have_class("message continued new")
    await expect(said(page, "more 39.")).not_to_be_in_viewport()
    await expect(pill(page)).to_be_hidden()

    await talk.stage.workspace.post(FOLAKE, AGENTS, "the very last")
    await expect(pill(page)).to_have_text("1 new message")
    await page.locator("#messages").evaluate("list => { list.scrollTop = list.scrollHeight; }")
    await expect(pill(page)).to_be_hidden()  # read
    heard = await page.evaluate("window.said")
    assert heard[0] == "Folake: far below"
    assert heard[-1] == "Folake: the very last"
    assert len(heard) == len(set(heard))


async def test_reply_that_shows_twice_is_announced_once(talk: Visit) -> None:
    root = await talk.stage.workspace.post(FOLAKE, AGENTS, "What shall we call it?")
    page = await talk.page(thread=root.ts)
    await page.evaluate(COUNTED)
    await talk.stage.workspace.post(FOLAKE, AGENTS, "Kingfisher", root.ts, broadcast=True)
    replies = page.get_by_role("region", name="Replies")
    for place in (page.locator("main"), replies):
        await expect(place.locator("article").filter(has_text="Kingfisher")).to_be_visible()
    await talk.stage.workspace.post(FOLAKE, AGENTS, "then this")
    await expect(said(page, "then this")).to_be_visible()
    assert await page.evaluate("window.said") == ["Folake: Kingfisher", "Folake: then this"]


async def box(place: Locator) -> tuple[float, float]:
    """Where something begins and ends, from left to right."""
    found = await place.bounding_box()
    assert found is not None
    return found["x"], found["x"] + found["width"]


async def test_thread_and_traffic_stand_beside_the_chat_on_a_laptop(talk: Visit) -> None:
    root = await talk.stage.workspace.post(FOLAKE, AGENTS, "hello")
    for number in range(30):
        await talk.stage.workspace.post(ADE, AGENTS, f"talk {number}.")
    page = await talk.page(size=LAPTOP)
    side, traffic = page.locator("#side"), page.locator("#traffic")
    thread = page.get_by_role("complementary", name="Thread")
    await expect(side).to_be_visible()
    await said(page, "hello").get_by_role("link", name="Reply in thread").focus()
    await page.keyboard.press("Enter")
    await expect(page.get_by_label("Reply", exact=True)).to_be_focused()
    await expect(said(page, "hello")).to_be_in_viewport()  # what the thread is about, not the end of the chat
    places = [await box(place) for place in (page.locator("main"), thread, traffic)]
    assert all(right <= left for (_, right), (left, _) in pairwise(places))
    for (left, right), least in zip(places, (500, 360, 320), strict=True):
        assert right - left >= least

    await expect(side).to_be_hidden()  # its room is taken; it opens from the menu
    await page.get_by_role("button", name="Channels").click()
    await expect(side.get_by_role("link").first).to_be_focused()
    await page.keyboard.press("Escape")
    await expect(side).to_be_hidden()
    await page.get_by_role("button", name="Hide the traffic").click()
    await expect(side).to_be_visible()

    await page.get_by_role("link", name="Close the thread").focus()
    await page.keyboard.press("Enter")
    await expect(thread).to_have_count(0)
    await expect(page.locator(f'[id="mc{root.ts}"]')).to_be_focused()


async def test_thread_and_traffic_are_sheets_on_a_phone_with_a_way_back(talk: Visit) -> None:
    for number in range(30):
        await talk.stage.workspace.post(FOLAKE, AGENTS, f"talk {number}.")
    page = await talk.page(size=PHONE)
    chat, traffic = page.locator("main"), page.locator("#traffic")
    await page.get_by_role("button", name="Traffic", exact=True).click()
    await expect(page.get_by_role("button", name="Hide the traffic")).to_be_focused()
    assert await box(traffic) == (0, PHONE["width"])
    await expect(chat).to_be_hidden()
    await page.keyboard.press("Enter")
    await expect(chat).to_be_visible()
    await expect(page.get_by_role("button", name="Traffic", exact=True)).to_be_focused()

    opener = said(page, "talk 3.").get_by_role("link", name="Reply in thread")
    await opener.click()
    thread = page.get_by_role("complementary", name="Thread")
    await expect(page.get_by_label("Reply", exact=True)).to_be_focused()
    assert await box(thread) == (0, PHONE["width"])
    await expect(chat).to_be_hidden()
    await page.get_by_role("link", name="Close the thread").click()
    await expect(said(page, "talk 3.")).to_be_in_viewport()
    await expect(said(page, "talk 3.")).to_be_focused()


async def test_page_is_read_without_scripts(talk: Visit) -> None:
    root = await talk.stage.workspace.post(FOLAKE, AGENTS, "hello")
    await talk.stage.workspace.post(FOLAKE, AGENTS, "a reply", root.ts)
    browser = talk._window.browser
    assert browser is not None
    window = await browser.new_context(java_script_enabled=False, viewport=LAPTOP)
    page = await window.new_page()
    await page.goto(f"{talk.stage.workspace.url}?as={ADE}&channel={AGENTS}")
    await page.get_by_role("link", name="1 reply").click()
    await expect(page.get_by_role("complementary", name="Thread")).to_contain_text("a reply")
    await expect(page.locator("#side").get_by_role("link", name="random")).to_be_visible()
    await expect(page.get_by_text("new messages")).to_have_count(0)
    await page.get_by_role("link", name="Close the thread").click()
    await expect(said(page, "hello")).to_be_focused()
    await window.close()
