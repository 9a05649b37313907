"""What the page is like to read: axe on every view, focus, the live region, the traffic beside the chat."""

from __future__ import annotations

import pytest
from playwright.async_api import ViewportSize, expect
from slack_sdk.web.async_client import AsyncWebClient

from tests.browser.visitor import PHONE, WIDE, Visit, card, serious_in_both_schemes, tab_to
from tests.kit.world import question
from workspace.seed import ADE, AGENTS, BOT_TOKEN, FOLAKE, ONCALL

pytestmark = pytest.mark.asyncio(loop_scope="session")
WORDS = "What shall we call it?"
FREE = ["freetext"]
ON_TOP = """(button) => {  // all of it, as a mouse finds it
  const { left, right, top, bottom } = button.getBoundingClientRect();
  return [top + 2, bottom - 2].every((y) => button.contains(document.elementFromPoint((left + right) / 2, y)));
}"""
OUTSIDE = """() => [...document.querySelectorAll("article .blocks")].flatMap((card) => {
  const { right } = card.getBoundingClientRect();
  const out = (each) => each.checkVisibility() && !each.closest(".wide table") && each.getBoundingClientRect().right > right + 1;
  return [...card.querySelectorAll("*")].filter(out).map((each) => each.outerHTML.slice(0, 80));
})"""


async def a_day(visit: Visit) -> str:
    """A question, talk about it, a reply to the channel, and a page to on-call; the root's ts."""
    stage = visit.stage
    shown = await stage.ask(question=WORDS, timeout_seconds=3000, accepted_response_kinds=FREE)
    await stage.workspace.post(
        FOLAKE, AGENTS, "note: @platform what do you think? `4.1`", shown.ts, broadcast=True
    )
    await stage.workspace.command(FOLAKE, AGENTS, "/clarify", "escalate CLR-100001-001 it is late")
    await stage.page(WORDS)
    return shown.ts


@pytest.mark.ci
async def test_axe_finds_nothing_serious_on_any_view(visit: Visit) -> None:
    root = await a_day(visit)
    page = await visit.page(FOLAKE, size=WIDE, thread=root)
    await expect(page.locator("main").get_by_text("Only visible to you")).to_be_visible()
    await expect(page.locator(".wire").first).to_be_visible()
    found = {"channel, ephemeral, thread, traffic": await serious_in_both_schemes(page)}

    await card(page, WORDS).first.get_by_role("button", name="Answer").click()
    await page.locator("dialog#modal").get_by_role("button", name="Send").click()
    await expect(page.locator("dialog#modal").get_by_role("alert").first).to_be_visible()
    found["modal with an error"] = await serious_in_both_schemes(page)

    phone = await visit.page(FOLAKE, size=PHONE, home="1")
    await expect(phone.get_by_role("heading", name="My inbox")).to_be_visible()
    found["Home on a phone"] = await serious_in_both_schemes(phone)

    direct = visit.stage.workspace.state.direct_message(ONCALL)
    assert direct is not None
    page = await visit.page(ONCALL, channel=direct.id)
    await expect(card(page, WORDS)).to_be_visible()
    found["a page in the direct messages"] = await serious_in_both_schemes(page)
    assert {view: what for view, what in found.items() if what} == {}


@pytest.mark.ci
async def test_phone_shows_one_thing_at_a_time_and_scrolls_nowhere_sideways(visit: Visit) -> None:
    root = await a_day(visit)
    page = await visit.page(FOLAKE, size=PHONE)
    side, traffic = page.locator("#side"), page.locator("#traffic")
    for hidden in (side, traffic):
        await expect(hidden).to_be_hidden()
    assert await page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]

    await page.get_by_role("button", name="Channels").click()
    await expect(side.get_by_role("link").first).to_be_focused()
    await page.keyboard.press("Escape")
    await expect(side).to_be_hidden()
    await expect(page.get_by_role("button", name="Channels")).to_be_focused()

    await page.get_by_role("button", name="Traffic", exact=True).click()
    await expect(traffic).to_be_visible()
    await page.get_by_role("button", name="Hide the traffic").click()
    await expect(traffic).to_be_hidden()

    page = await visit.page(FOLAKE, size=PHONE, thread=root)
    await expect(page.get_by_role("complementary", name="Thread")).to_be_visible()
    assert await page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]


@pytest.mark.ci
async def test_focus_and_an_open_menu_survive_what_others_do(visit: Visit) -> None:
    stage = visit.stage
    shown = await stage.ask(question=WORDS, timeout_seconds=3000, accepted_response_kinds=FREE)
    page = await visit.page()
    answer = card(page, WORDS).get_by_role("button", name="Answer")
    await answer.focus()
    await stage.workspace.post(FOLAKE, AGENTS, "meanwhile")
    await expect(page.locator("main article").filter(has_text="meanwhile")).to_be_visible()
    await expect(answer).to_be_focused()
    await expect(page.get_by_role("status").last).to_have_text("Folake: meanwhile")

    menu = page.locator("main article").filter(has_text="meanwhile").locator(".menu")
    await menu.locator("summary").focus()
    await page.keyboard.press("Enter")
    await page.keyboard.press("ArrowDown")
    await expect(menu.get_by_role("button", name="Use as answer")).to_be_focused()
    await stage.workspace.post(FOLAKE, AGENTS, "and again")
    await expect(page.locator("main article").filter(has_text="and again")).to_be_visible()
    await expect(menu.get_by_role("button", name="Use as answer")).to_be_focused()
    await page.keyboard.press("Escape")
    await expect(menu.locator("summary")).to_be_focused()

    await answer.focus()
    await stage.workspace.post(ADE, AGENTS, "Kingfisher", shown.ts)
    await stage.reply()
    await expect(page.locator(f'[id="mc{shown.ts}"]')).to_be_focused()


@pytest.mark.ci
async def test_message_of_a_thread_is_used_as_answer_from_its_menu(visit: Visit) -> None:
    shown = await visit.stage.ask(question=WORDS, timeout_seconds=3000, accepted_response_kinds=FREE)
    await visit.stage.workspace.post(FOLAKE, AGENTS, "note: Kingfisher it is", shown.ts)
    page = await visit.page(thread=shown.ts)
    talk = (
        page.get_by_role("complementary", name="Thread")
        .locator("article")
        .filter(has_text="Kingfisher it is")
    )
    await talk.hover()
    await talk.locator(".menu summary").click()
    await talk.get_by_role("button", name="Use as answer").click()
    assert (await visit.stage.reply())["response"] == "Kingfisher it is"


@pytest.mark.parametrize("width", [1280, 1100, 390])
async def test_nothing_of_a_card_leaves_it(visit: Visit, width: int) -> None:
    choices = [{"value": f"v{n}", "label": f"Choice {n}, {'in many words ' * 6}"} for n in range(8)]
    shown = await visit.stage.ask(
        question=WORDS, timeout_seconds=3000, accepted_response_kinds=["multiple_choice"], choices=choices
    )
    await visit.stage.workspace.post(FOLAKE, AGENTS, "note: hm", shown.ts)
    page = await visit.page(thread=shown.ts, size={"width": width, "height": 800})
    await expect(page.get_by_role("complementary", name="Thread").locator("select")).to_be_visible()
    assert await page.evaluate(OUTSIDE) == []


@pytest.mark.ci
@pytest.mark.parametrize(
    "asked", ["\n".join(f"Point {n} of 60." for n in range(60)), "so many words " * 200 + "Point 59 of 60."]
)
async def test_long_question_leaves_its_buttons_on_the_screen(visit: Visit, asked: str) -> None:
    page = await visit.page()
    await visit.stage.producer.emit(
        question("rpl_1", question=f"First of all:\n{asked}", accepted_response_kinds=["yes_no"])
    )
    long = card(page, "First of all:")
    await expect(long).to_contain_text("more characters")
    await expect(long).to_contain_text("Point 59 of 60.")  # its end says what to decide
    view = long.get_by_role("button", name="View full")
    for button in (long.get_by_role("button", name="Yes", exact=True), view):
        await expect(button).to_be_visible()
    box = await long.bounding_box()
    assert box is not None
    assert box["height"] < 500
    (shown,) = visit.stage.cards()
    assert "Point 59 of 60." in shown.text
    await view.click()
    await expect(page.locator("dialog#modal")).to_contain_text("Point 59 of 60.")


@pytest.mark.ci
async def test_traffic_shows_what_is_sent_and_no_token(visit: Visit) -> None:
    stage = visit.stage
    stage.producer._watch = stage.workspace.traffic.aaep
    page = await visit.page(scheme="dark", size=WIDE)
    await stage.emit("rpl_hush", question=WORDS)
    await card(page, WORDS).get_by_role("button", name="Yes").click()
    panel = page.get_by_role("complementary", name="Traffic")
    for words in ("awaiting.clarification", "chat.postMessage", "click", "clarification.reply"):
        await expect(panel.locator(".wire").filter(has_text=words).first).to_be_visible()
    event = panel.locator(".wire.agent").filter(has_text="awaiting.clarification")
    await event.locator("summary").click()
    await expect(event.locator("pre")).to_contain_text('"reply_token": "•••"')
    for secret in ("rpl_hush", "xoxb-", "xapp-"):
        assert secret not in await page.content()

    await panel.get_by_role("radio", name="Agent").check()
    await expect(panel.locator(".wire.slack").first).to_be_hidden()
    await page.get_by_role("button", name="Traffic", exact=True).click()
    await expect(panel).to_be_hidden()
    await page.reload()
    await expect(panel).to_be_hidden()
    await expect(page.get_by_role("button", name="Traffic", exact=True)).to_have_attribute(
        "aria-pressed", "false"
    )


@pytest.mark.parametrize("size", [WIDE, pytest.param(PHONE, marks=pytest.mark.ci)], ids=["wide", "phone"])
async def test_container_folds_with_the_keyboard_and_its_table_scrolls_inside_itself(
    talk: Visit, size: ViewportSize
) -> None:
    def cells(*texts: str) -> list[dict[str, str]]:
        return [{"type": "raw_text", "text": text} for text in texts]

    rows = [cells(*[f"Column {n} of twenty" for n in range(20)]), cells(*[f"value {n}" for n in range(20)])]
    table = {"type": "table", "block_id": "t", "rows": rows}
    folded = {
        "type": "container",
        "block_id": "c",
        "title": {"type": "plain_text", "text": "Arguments"},
        "is_collapsible": True,
        "default_collapsed": True,
        "child_blocks": [table],
    }
    below = {"type": "section", "text": {"type": "plain_text", "text": "Unclaimed"}}
    slack = AsyncWebClient(BOT_TOKEN, base_url=talk.stage.workspace.api_url)
    sent = await slack.chat_postMessage(channel=AGENTS, text="x", blocks=[folded, below])
    page = await talk.page(size=size)
    grid = page.get_by_role("region", name="Table")
    await expect(page.get_by_text("Unclaimed")).to_be_visible()
    await expect(grid).to_be_hidden()
    await tab_to(page, page.locator("summary").filter(has_text="Arguments"))
    await page.keyboard.press("Enter")
    await expect(grid).to_be_visible()
    assert await grid.evaluate("each => each.scrollWidth > each.clientWidth")
    await tab_to(page, grid)
    await page.keyboard.press("ArrowRight")
    await page.wait_for_function("each => each.scrollLeft > 0", arg=await grid.element_handle())
    assert await page.evaluate(OUTSIDE) == []
    assert await serious_in_both_schemes(page) == []

    below["text"] = {"type": "plain_text", "text": "Claimed"}
    await slack.chat_update(channel=AGENTS, ts=str(sent["ts"]), text="x", blocks=[folded, below])
    await expect(page.get_by_text("Claimed", exact=True)).to_be_visible()
    await expect(grid).to_be_visible()
