"""Questions of every kind, answered on the page by mouse and by keyboard alone, with the whole bot beside it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from playwright.async_api import Page, expect

from tests.browser.visitor import BY_HAND, HANDS, Hand, Visit, card
from tests.kit.world import question
from workspace.seed import ADE, AGENTS, FOLAKE, ONCALL

pytestmark = pytest.mark.asyncio(loop_scope="session")
REGIONS = [{"value": "eu-1", "label": "Europe"}, {"value": "us-1", "label": "America"}]
CONSENT = {
    "type": "aaep:agent.awaiting.confirmation",
    "session_id": "sess_c",
    "urgency": "critical",
    "action": "Drop the table of orders",
    "consequence": "All 40,000 orders are gone.",
    "reply_token": "rpl_c",
    "timeout_seconds": 600,
    "default_decision": "reject",
    "risk_level": "high",
    "irreversible": True,
}
MANY = [{"value": f"c{number:02d}", "label": f"Change {number:02d}"} for number in range(1, 13)]


async def ask(visit: Visit, number: int, words: str, **fields: Any) -> str:
    """Have the agent ask, each in a session of its own; the question's token."""
    token = f"rpl_{number}"
    await visit.stage.producer.emit(
        question(token, session=f"sess_{number}", question=words, timeout_seconds=3000, **fields)
    )
    return token


async def answered(visit: Visit, page: Page, token: str, words: str, response: Any) -> None:
    """The agent has the answer, and the card says so and has no controls left."""
    reply = await visit.stage.reply(token)
    assert (reply.get("response", reply.get("decision")), reply["decided_by"]) == (
        response,
        f"user:slack/T0LOCAL/{ADE}",
    )
    await expect(card(page, words)).to_have_count(0)


async def in_modal(page: Page, hand: Hand, words: str) -> None:
    await hand.press(page, card(page, words).get_by_role("button", name="Answer"))
    await expect(page.locator("dialog#modal")).to_be_visible()


@BY_HAND
async def test_every_kind_of_question_is_answered(visit: Visit, way: str) -> None:
    hand, page = HANDS[way], await visit.page()
    modal = page.locator("dialog#modal")

    token = await ask(visit, 1, "Shall I go on?", accepted_response_kinds=["yes_no"])
    await hand.press(page, card(page, "Shall I go on?").get_by_role("button", name="Yes", exact=True))
    await answered(visit, page, token, "Shall I go on?", True)

    token = await ask(visit, 2, "Which region?", accepted_response_kinds=["multiple_choice"], choices=REGIONS)
    await hand.press(page, card(page, "Which region?").get_by_role("button", name="America"))
    await answered(visit, page, token, "Which region?", "us-1")

    token = await ask(
        visit, 3, "Which change first?", accepted_response_kinds=["multiple_choice"], choices=MANY
    )
    await hand.choose(page, card(page, "Which change first?").get_by_role("combobox"), "Change 11")
    await answered(visit, page, token, "Which change first?", "c11")

    token = await ask(visit, 4, "How many percent?", accepted_response_kinds=["numeric"])
    await in_modal(page, hand, "How many percent?")
    await hand.fill(page, modal.get_by_role("textbox"), "twelve")
    await hand.press(page, modal.get_by_role("button", name="Send"))
    await expect(modal.get_by_role("alert")).to_contain_text("number")
    await hand.fill(page, modal.get_by_role("textbox"), "12.5")
    await hand.press(page, modal.get_by_role("button", name="Send"))
    await answered(visit, page, token, "How many percent?", 12.5)
    await expect(modal).to_be_hidden()

    token = await ask(
        visit,
        6,
        "Which of them?",
        accepted_response_kinds=["multiple_choice"],
        choices=MANY[:4],
        multi_select=True,
    )
    await in_modal(page, hand, "Which of them?")
    await hand.tick(page, modal.get_by_role("checkbox", name="Change 02"))
    await hand.tick(page, modal.get_by_role("checkbox", name="Change 04"))
    await hand.press(page, modal.get_by_role("button", name="Send"))
    await answered(visit, page, token, "Which of them?", "Change 02, Change 04")

    token = await ask(visit, 5, "What shall we call it?", accepted_response_kinds=["freetext"])
    await in_modal(page, hand, "What shall we call it?")
    await hand.fill(page, modal.get_by_role("textbox"), "Kingfisher, of course")
    await hand.press(page, modal.get_by_role("button", name="Send"))
    await answered(visit, page, token, "What shall we call it?", "Kingfisher, of course")


@BY_HAND
async def test_confirmation_is_asked_once_more_before_it_is_accepted(visit: Visit, way: str) -> None:
    hand, page, words = HANDS[way], await visit.page(), "Drop the table of orders"
    await visit.stage.producer.emit(CONSENT)
    accept = card(page, words).get_by_role("button", name="Accept")
    again = page.locator("dialog#ask")
    await hand.press(page, accept)
    await expect(again).to_contain_text(words)
    await page.keyboard.press("Escape")
    await expect(again).to_be_hidden()
    await expect(accept).to_be_focused()
    assert not visit.stage.producer.replies

    await hand.press(page, accept)
    await hand.press(page, again.locator("#ask-confirm"))
    await answered(visit, page, "rpl_c", words, "accept")


@pytest.mark.ci
async def test_what_one_is_doing_survives_a_redrawn_card(visit: Visit) -> None:
    """A card that is drawn anew while its confirm dialog is open, or its menu, loses neither."""
    page, stage, words = await visit.page(), visit.stage, "Drop the table of orders"
    await stage.producer.emit(CONSENT)
    accept = card(page, words).get_by_role("button", name="Accept")
    await accept.click()
    again = page.locator("dialog#ask")
    await expect(again).to_be_visible()
    before = stage.workspace.messages(AGENTS)[0].blocks
    await stage.workspace.command(FOLAKE, AGENTS, "/clarify", "escalate CLR-100001-001 it is late")
    await stage.workspace.wait_for(lambda: stage.workspace.messages(AGENTS)[0].blocks != before)
    await stage.workspace.post(FOLAKE, AGENTS, "meanwhile")
    await expect(page.locator("main article").filter(has_text="meanwhile")).to_be_attached()
    await again.locator("#ask-confirm").click()
    assert (await stage.reply("rpl_c"))["decision"] == "accept"
    await expect(accept).to_have_count(0)


@pytest.mark.ci
async def test_press_that_comes_too_late_says_so_where_it_was_made(visit: Visit) -> None:
    page, other, stage = await visit.page(), await visit.page(), visit.stage
    await stage.producer.emit(CONSENT)
    await card(page, "Drop the table").get_by_role("button", name="Accept").click()
    await stage.workspace.click(FOLAKE, AGENTS, stage.workspace.messages(AGENTS)[0].ts, label="Reject")
    await stage.reply("rpl_c")
    await expect(card(other, "Drop the table")).to_have_count(0)
    await page.locator("#ask-confirm").click()
    notice = page.get_by_role("alert")
    await expect(notice).to_contain_text("This control no longer exists.")
    await expect(card(page, "Drop the table")).to_have_count(0)
    await expect(other.get_by_role("alert")).to_be_hidden()


async def test_answer_too_long_for_the_field_is_refused_there_and_never_cut(visit: Visit) -> None:
    page, hand, words = await visit.page(), HANDS["mouse"], "What shall we call it?"
    modal, field = page.locator("dialog#modal"), page.locator("dialog#modal").get_by_role("textbox")
    token = await ask(visit, 1, words, accepted_response_kinds=["freetext"])
    await in_modal(page, hand, words)
    await expect(modal).to_contain_text("Up to 3,000 characters; for a longer answer, reply in the thread.")
    await field.focus()
    await page.keyboard.insert_text("x" * 3001)  # as pasted
    await modal.get_by_role("button", name="Send").click()
    await expect(modal.get_by_role("alert")).to_contain_text("3000 characters")
    await expect(field).to_have_value("x" * 3001)
    assert not visit.stage.producer.replies
    await field.focus()
    await page.keyboard.press("Control+End")
    await page.keyboard.press("Backspace")
    await modal.get_by_role("button", name="Send").click()
    assert (await visit.stage.reply(token))["response"] == "x" * 3000


@pytest.mark.ci
async def test_talk_typed_into_the_thread_answers_nothing(visit: Visit) -> None:
    hand = HANDS["keyboard"]
    shown = await visit.stage.ask(question="Shall I go on?", timeout_seconds=3000)
    page = await visit.page(thread=shown.ts)
    thread = page.get_by_role("complementary", name="Thread")
    await expect(thread).to_contain_text("Start with note: to comment without answering.")
    typed = ("note: yes, but let me look", "(no, not yet)", "@folake yes?")
    for words in (*typed, "yes"):
        await hand.fill(page, page.get_by_label("Reply", exact=True), words)
        await hand.press(page, thread.get_by_role("button", name="Send"))
        await expect(thread.locator("article").filter(has_text=words.lstrip("@")).last).to_be_visible()
    await answered(visit, page, "rpl_1", "Shall I go on?", True)
    assert len(visit.stage.producer.replies) == 1
    assert not visit.stage.workspace.ephemerals(ADE)
    assert not visit.stage.workspace.errors(ADE)


@pytest.mark.ci
async def test_page_to_on_call_is_taken(visit: Visit) -> None:
    hand, page = HANDS["keyboard"], await visit.page(ONCALL)
    shown = await visit.stage.ask(question="The gate is red. Ship anyway?", timeout_seconds=3000)
    await hand.fill(page, page.get_by_label("Message #agents"), "/clarify escalate CLR-100001-001 it is late")
    await hand.press(page, page.locator("main").get_by_role("button", name="Send"))
    await expect(page.locator("main").get_by_text("Only visible to you")).to_be_visible()
    direct = page.get_by_role("navigation", name="Channels").get_by_role("link", name="clarify", exact=False)
    await expect(direct.filter(has_text="unread")).to_have_count(1)
    await hand.press(page, direct.filter(has_text="unread"))
    paged = card(page, "The gate is red. Ship anyway?")
    await hand.press(page, paged.get_by_role("button", name="Take", exact=True))
    await expect(page.locator("main article").filter(has_text="The gate is red").last).to_contain_text("Noor")
    await visit.stage.now_says(shown, ONCALL)


@pytest.mark.ci
async def test_home_is_read_and_answered_from(visit: Visit) -> None:
    hand, page = HANDS["keyboard"], await visit.page(FOLAKE)
    await visit.stage.ask(
        question="What shall we call it?", timeout_seconds=3000, accepted_response_kinds=["freetext"]
    )
    await hand.press(page, page.get_by_role("link", name="clarify home"))
    home = page.get_by_role("region", name="Home")
    for heading in ("My inbox", "Claimed by me", "On call", "Recent decisions"):
        await expect(home.get_by_role("heading", name=heading)).to_be_visible()
    await expect(home).to_contain_text("What shall we call it?")
    await hand.press(page, home.get_by_role("button", name="Answer CLR-"))
    modal = page.locator("dialog#modal")
    await expect(modal).to_contain_text("What shall we call it?")
    await page.keyboard.press("Escape")
    await expect(modal).to_be_hidden()
    await expect(home.get_by_role("button", name="Answer CLR-")).to_be_focused()


@pytest.mark.ci
async def test_decision_is_found_again_from_the_home(visit: Visit) -> None:
    page = await visit.page(FOLAKE)
    shown = await visit.stage.ask(question="Rotate the keys?", accepted_response_kinds=["yes_no"])
    await visit.stage.workspace.click(FOLAKE, AGENTS, shown.ts, label="Yes")
    await visit.stage.reply()
    (bot,) = visit.stage.bots
    while await bot.store.read("select seq from decision_texts") == []:  # noqa: ASYNC110 - in the database
        await asyncio.sleep(0.02)  # the log follows
    await HANDS["keyboard"].press(page, page.get_by_role("link", name="clarify home"))
    box = page.get_by_role("region", name="Home").get_by_label("Search decisions in your channels")
    await box.fill("keys since 1h")
    await box.press("Enter")
    modal = page.locator("dialog#modal")
    await expect(modal).to_contain_text("Rotate the keys?")
    await expect(modal.get_by_role("link", name="CLR-")).to_be_visible()
    await page.keyboard.press("Escape")
    await expect(modal).to_be_hidden()
    await box.fill("nowhere")
    await box.press("Enter")
    await expect(modal).to_contain_text("Nothing found for “nowhere”")
