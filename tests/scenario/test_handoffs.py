"""What an agent hands over: a card in its thread, a page, and whoever takes it closes the loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.kit.world import controls, said
from tests.scenario.pagers import ALL, Night, night, step
from workspace.seed import ADE, AGENTS, FOLAKE, GIO, ONCALL
from workspace.state import Message

REASON = "The tax situation is unusual"
PACKED = {
    "user_request_summary": "Retirement planning",
    "tools_invoked": ["fetch_balance", "calculate_projection"],
    "open": {"question": "Which contribution?", "asked_at": None},
}


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncIterator[Night]:
    async with night(tmp_path) as made:
        yield made


async def hand_over(stage: Night, reason: str = REASON, **fields: Any) -> Message:
    """Have the agent hand over; the card in the agents' channel, once it can be taken."""
    sent = {
        "urgency": "critical",
        "target_kind": "human",
        "target_uri": "queue://customers/advisor",
        "urgency_for_handoff": "low",
        "packaged_context": PACKED,
    }
    await stage.says("handoff.requested", **(sent | {"reason": reason} | fields))
    return await stage.live(reason, AGENTS, wants=["Take", "Hand to…"])


async def test_p1_handoff_has_a_card_with_all_it_says_and_a_page_whatever_its_urgency(stage: Night) -> None:
    async with stage.bot(stage.config()):
        card = await hand_over(stage)
        page = await stage.live(REASON, wants=ALL)
        for words in ("Planner needs someone to take over", REASON, "queue://customers/advisor", "low"):
            for shown in (card.text, str(card.blocks), page.text, str(page.blocks)):
                assert words in shown, words
        for line in (
            "user_request_summary: Retirement planning",
            "tools_invoked:\n  - fetch_balance\n  - calculate_projection",
            "open:\n  question: Which contribution?\n  asked_at: (none)",
        ):
            for message in (card, page):
                assert line in message.text.replace("│ ", "")
        assert card.thread_ts is None
        linked = await stage.becomes(page, "Go to the message")
        assert stage.workspace.permalink(AGENTS, card.ts) in said(linked)


async def test_handoff_of_a_session_with_a_thread_stands_in_it_and_in_the_channel(stage: Night) -> None:
    async with stage.bot(stage.config()):
        question = await stage.ask(timeout_seconds=36_000)
        card = await hand_over(stage)
        assert (card.thread_ts, card.broadcast) == (question.ts, True)


@pytest.mark.either_database
async def test_p12_handoff_is_one_message_and_mentions_whoever_is_paged(stage: Night) -> None:
    async with stage.bot(stage.config(step("0s", "thread", "dm", every="5m"))) as bot:
        card = await hand_over(stage)
        assert f"For <@{ONCALL}>" in card.text
        assert card.edited is None, "the mention notifies: it was there when the card was posted"
        direct = await stage.live(REASON, wants=ALL)
        assert [each.ts for each in stage.workspace.messages(AGENTS)] == [card.ts]
        earlier: list[str] = []
        for minutes in (6, 12):
            await stage.later(bot, minutes=6)
            again = await stage.live(REASON, but=[direct.ts])
            await stage.gone(direct)
            direct = again
            mention = await stage.live("Go to the message", AGENTS, wants=ALL, but=earlier)
            earlier.append(mention.ts)
            assert (mention.thread_ts, mention.broadcast) == (card.ts, False), minutes
            assert "Retirement planning" not in said(mention)
            await stage.until(lambda: len(stage.workspace.thread(AGENTS, card.ts)) == 2)
        await stage.press(mention, "Take", FOLAKE)
        await stage.becomes(card, f"Claimed by <@{FOLAKE}>", without=ALL)
        await stage.gone(direct)


async def test_question_after_a_handoff_goes_into_its_thread(stage: Night) -> None:
    async with stage.bot(stage.config()):
        card = await hand_over(stage)
        assert (await stage.ask(timeout_seconds=36_000)).thread_ts == card.ts


@pytest.mark.parametrize(("where", "who"), [("card", FOLAKE), ("page", ONCALL)])
async def test_take_closes_the_loop_wherever_it_is_pressed(stage: Night, where: str, who: str) -> None:
    async with stage.bot(stage.config()) as bot:
        card = await hand_over(stage)
        page = await stage.live(REASON, wants=ALL)
        await stage.press({"card": card, "page": page}[where], "Take", who)
        for message in (card, page) if where == "page" else (card,):
            taken = await stage.becomes(message, f"Claimed by <@{who}>", without=ALL)
            assert f"Claimed by <@{who}>" in taken.text
            assert "Unclaimed" not in said(taken)
        if where == "card":
            await stage.gone(page)
        word = await stage.message(f"<@{who}> claimed “Planner needs someone to take over”.")
        assert word.thread_ts == card.ts
        await stage.later(bot, minutes=60)
        await stage.ask(timeout_seconds=36_000)  # what was due before it is there by now
        assert len(stage.pages()) == (where == "page")


async def test_of_two_who_take_it_at_once_one_has_it_and_the_other_is_told(stage: Night) -> None:
    async with stage.bot(stage.config()):
        card = await hand_over(stage)
        page = await stage.live(REASON, wants=ALL)
        for bot in stage.bots:
            await (
                bot.board.messages.in_flight.settled()
            )  # the card's place is stored: its thread can hear of it
        await asyncio.gather(stage.press(card, "Take", FOLAKE), stage.press(page, "Take", ONCALL))
        taken = await stage.becomes(card, "Claimed by", without=ALL)
        winner, other = (FOLAKE, ONCALL) if f"Claimed by <@{FOLAKE}>" in taken.text else (ONCALL, FOLAKE)
        await stage.whisper(winner, "You claimed “Planner needs someone to take over”")
        await stage.whisper(other, f"<@{winner}> claimed this already")
        # It says who claimed it, or was deleted before the other one's click on it arrived.
        await stage.until(lambda: all("Take" not in controls(each) for each in stage.pages()))
        await stage.message(f"<@{winner}> claimed “Planner")
        assert len([m for m in stage.workspace.thread(AGENTS, card.ts) if "claimed" in m.text]) == 1


async def test_handoff_that_is_handed_on_pages_that_person_until_they_take_it(stage: Night) -> None:
    async with stage.bot(stage.config()):
        card = await hand_over(stage)
        await stage.press(card, "Hand to…", FOLAKE)
        await stage.modal(FOLAKE)
        assert (await stage.workspace.submit_view(FOLAKE, {"Hand to": ADE})).ok
        mine = await stage.live(REASON, ADE, wants=ALL)
        await stage.becomes(card, f"Handed to <@{ADE}>")
        word = await stage.message(f"<@{FOLAKE}> handed “Planner")
        assert word.thread_ts == card.ts
        await stage.press(mine, "Take", ADE)
        await stage.becomes(card, f"Claimed by <@{ADE}>", without=ALL)


async def test_p6_guest_who_presses_take_on_the_card_is_told_no(stage: Night) -> None:
    async with stage.bot(stage.config(answerers=(FOLAKE,))):
        card = await hand_over(stage)
        for stranger in (GIO, ADE):
            await stage.press(card, "Take", stranger)
            told = await stage.whisper(stranger, "you are neither on call here")
            assert f"<@{FOLAKE}>" in told.text
        assert "Take" in controls(stage.workspace.message(AGENTS, card.ts))


async def test_p8_long_context_is_whole_in_the_thread(stage: Night) -> None:
    async with stage.bot(stage.config()):
        packed = {f"note {n}": "so it goes " * 20 for n in range(60)} | {"last": "the very end"}
        card = await hand_over(stage, packaged_context=packed)
        assert "The full text" in card.text
        rest = await stage.message('note 30: "so it goes')  # the card has its beginning and its end
        assert rest.thread_ts == card.ts


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"target_kind": "specialist_agent"}, "needs a specialist agent to take over"),
        ({"target_kind": "escalation_queue"}, "clarify-bot does not forward this"),
        ({"target_kind": None, "packaged_context": "odd", "target_uri": 7}, "needs someone to take over"),
        ({"reason": None, "summary_normal": REASON}, REASON),
    ],
)
async def test_p1_handoff_to_others_or_broken_is_shown_and_paged(
    stage: Night, fields: dict[str, Any], words: str
) -> None:
    async with stage.bot(stage.config()):
        sent = {"urgency": "critical", "reason": REASON} | fields
        await stage.says("handoff.requested", **sent)
        assert words in said(await stage.live(REASON, AGENTS))
        await stage.live(REASON, wants=ALL)


async def test_question_of_a_right_to_left_language_is_kept_as_it_was_and_shown_in_isolates(
    stage: Night,
) -> None:
    async with stage.bot(stage.config()):
        card = await stage.ask(
            question="API של הלקוח?", timeout_seconds=36_000, localization_hints={"text_direction": "rtl"}
        )
        assert "\u2067API של הלקוח?\u2069" in card.text
        assert stage.record()["thread"][0]["body"] == "API של הלקוח?"
