"""What people do with a page: take it, hand it over, put it off, answer right there; and who may."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest

from tests.kit.until import until
from tests.kit.world import controls, said
from tests.scenario.pagers import ALL, FIRST, SECOND, Night, asked_and_paged, night, step
from workspace.controls import find
from workspace.seed import ADE, AGENTS, EVA, FALLBACK, FOLAKE, GIO, ONCALL, PLATFORM
from workspace.state import Message


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncIterator[Night]:
    async with night(tmp_path) as made:
        yield made


async def test_take_stops_the_pages_and_everything_says_who_has_it(stage: Night) -> None:
    async with stage.bot(stage.config()) as bot:
        card, page = await asked_and_paged(stage)
        thread = await stage.live("is waiting", AGENTS)
        await stage.press(page, "Take")
        for message in (page, thread, card):
            await stage.becomes(message, f"Claimed by <@{ONCALL}>", without=["Snooze", "Not mine"])
        word = await stage.message(f"<@{ONCALL}> claimed {FIRST}.")
        assert word.thread_ts == card.ts

        await stage.later(bot, minutes=10)
        await stage.ask("rpl_2", session="sess_two", question="And now?", timeout_seconds=36_000)
        await stage.escalate(SECOND)
        await stage.live("And now?")  # what was due before it is there by now
        assert len(stage.about(FIRST)) == 1
        await stage.press(page, "Yes")
        assert (await stage.reply())["decided_by"].endswith(ONCALL)


async def test_hand_over_pages_the_new_person_at_once(stage: Night) -> None:
    async with stage.bot(stage.config()):
        card, page = await asked_and_paged(stage)
        await stage.press(page, "Hand to…")
        await stage.modal(ONCALL)
        for nobody in (GIO,):
            refused = await stage.workspace.submit_view(ONCALL, {"Hand to": nobody})
            assert "full member" in str(refused.errors)
        assert (await stage.workspace.submit_view(ONCALL, {"Hand to": ADE})).ok
        mine = await stage.live("Shall I go on?", ADE, wants=["Yes", *ALL])
        await stage.becomes(card, f"Handed to <@{ADE}>")
        word = await stage.message(f"<@{ONCALL}> handed {FIRST} to <@{ADE}>.")
        assert word.thread_ts == card.ts
        await stage.press(mine, "Take", ADE)
        await stage.becomes(card, f"Claimed by <@{ADE}>")
        await stage.press(mine, "Yes", ADE)
        assert (await stage.reply())["decided_by"].endswith(ADE)


@pytest.mark.either_database(always=True)
@pytest.mark.parametrize("while_down", [False, True])
async def test_page_whose_holder_is_gone_goes_to_the_next_step_at_once(
    stage: Night, while_down: bool
) -> None:
    config = stage.config(step("0s", "dm", every="5m"), step("2h", f"group:{PLATFORM}"), take_timeout="3h")
    async with stage.bot(config):
        card, page = await asked_and_paged(stage)
        await stage.press(page, "Take")
        await stage.becomes(card, f"Claimed by <@{ONCALL}>")
        if not while_down:
            stage.workspace.change_user(ONCALL, deleted=True)
            await paged_next(stage, card)
    if while_down:
        stage.workspace.change_user(ONCALL, deleted=True)
        async with stage.bot(config):
            await paged_next(stage, card)


async def paged_next(stage: Night, card: Message) -> None:
    await stage.live("Shall I go on?", ADE, wants=["Yes", *ALL])
    shown = await stage.becomes(card, "Escalated")
    assert f"Claimed by <@{ONCALL}>" not in said(shown)
    await stage.message(f"{FIRST} is unclaimed again: <@{ONCALL}>, who had it, can no longer answer.")


async def test_page_handed_to_someone_who_is_gone_comes_back_at_once(stage: Night) -> None:
    async with stage.bot(stage.config(step("0s", "dm"), take_timeout="3h")):
        card, page = await asked_and_paged(stage)
        await stage.press(page, "Hand to…")
        await stage.modal(ONCALL)
        assert (await stage.workspace.submit_view(ONCALL, {"Hand to": ADE})).ok
        await stage.live("Shall I go on?", ADE, wants=["Yes", *ALL])
        await stage.becomes(card, f"Handed to <@{ADE}>")
        stage.workspace.change_user(ADE, deleted=True)
        await stage.live("Shall I go on?", ONCALL, wants=["Yes", *ALL], but=[page.ts])
        await stage.message(f"{FIRST} is unclaimed again: <@{ADE}>")


async def test_page_is_not_handed_to_oneself_and_stays_snoozed(stage: Night) -> None:
    async with stage.bot(stage.config()):
        card, page = await asked_and_paged(stage)
        await stage.press(page, "Snooze")
        snoozed = await stage.becomes(page, "Snoozed until")
        await stage.press(snoozed, "Hand to…")
        await stage.modal(ONCALL)
        refused = await stage.workspace.submit_view(ONCALL, {"Hand to": ONCALL})
        assert "click Take" in str(refused.errors)
        assert (await stage.workspace.submit_view(ONCALL, {"Hand to": ADE})).ok
        await stage.becomes(card, f"Handed to <@{ADE}>")
        await stage.message(f"handed {FIRST} to <@{ADE}>")
    words = [each.text for each in stage.workspace.messages(AGENTS)]
    assert not any(f"handed {FIRST} to <@{ONCALL}>" in each for each in words)
    assert sum("handed" in each for each in words) == 1


async def test_snooze_is_quiet_for_ten_minutes_and_ends_by_itself(stage: Night) -> None:
    async with stage.bot(stage.config()) as bot:
        _, page = await asked_and_paged(stage)
        await stage.press(page, "Snooze")
        await stage.becomes(page, "Snoozed until", f"<@{ONCALL}>", without=["Snooze"])
        await stage.later(bot, minutes=6)
        await stage.ask("rpl_2", session="sess_two", question="And now?", timeout_seconds=36_000)
        await stage.escalate(SECOND)
        await stage.live("And now?")  # what was due before it is there by now
        assert len(stage.about(FIRST)) == 1
        await stage.later(bot, minutes=5)
        await stage.live(FIRST, but=[page.ts])


async def test_not_mine_brings_the_next_step_now(stage: Night) -> None:
    async with stage.bot(stage.config(step("0s", "dm"), step("30m", f"channel:{FALLBACK}"))):
        _, page = await asked_and_paged(stage)
        await stage.press(page, "Not mine")
        await stage.live("Shall I go on?", FALLBACK, wants=["Yes", *ALL])


async def test_answer_by_button_from_the_direct_message_closes_every_page(stage: Night) -> None:
    async with stage.bot(stage.config()):
        card, page = await asked_and_paged(stage)
        thread = await stage.live("is waiting", AGENTS)
        await stage.press(page, "Yes")
        reply = await stage.reply()
        assert (reply["response"], reply["decided_by"]) == (True, f"user:slack/T0LOCAL/{ONCALL}")
        await stage.becomes(page, f"by <@{ONCALL}>", "Answered: “Yes”", without=["Yes", *ALL])
        await stage.becomes(thread, "· answered", without=["Yes", *ALL])
        await stage.becomes(card, f"<@{ONCALL}>", without=["Yes", "No"])


async def test_page_closes_when_the_question_is_answered_in_its_channel(stage: Night) -> None:
    """The page in the thread leaves it to the card to say who answered, and never links to the message above it."""
    async with stage.bot(stage.config()):
        card, page = await asked_and_paged(stage)
        thread = await stage.live("is waiting", AGENTS)
        assert "Go to the question" in controls(page)
        assert "Go to the question" not in controls(thread)
        await stage.press(card, "No", FOLAKE)
        closed = await stage.becomes(thread, "· answered", without=["No", *ALL])
        assert controls(closed) == []
        in_thread = map(said, stage.workspace.thread(AGENTS, card.ts))
        assert [f"by <@{FOLAKE}>" in each for each in in_thread].count(True) == 1
        await stage.gone(page)


async def test_page_closes_when_the_time_runs_out_and_says_what_is_assumed(stage: Night) -> None:
    async with stage.bot(stage.config()) as bot:
        card, page = await asked_and_paged(stage, timeout_seconds=600, default_response="no")
        thread = await stage.live("is waiting", AGENTS)
        await stage.later(bot, minutes=11)
        await stage.becomes(thread, "closed", without=["No", *ALL])
        await stage.becomes(card, "“no”", "Expired")
        await stage.gone(page)


async def test_p12_page_that_the_person_acted_on_stays_and_says_how_it_ended(stage: Night) -> None:
    async with stage.bot(stage.config()):
        card, page = await asked_and_paged(stage)
        await stage.press(page, "Take")
        await stage.becomes(page, "Claimed by")
        await stage.press(card, "No", FOLAKE)
        await stage.becomes(page, f"by <@{FOLAKE}>", "Answered: “No”", without=["No", *ALL])


async def test_p12_page_with_replies_in_its_thread_stays_without_controls(stage: Night) -> None:
    async with stage.bot(stage.config()) as bot:
        _, page = await asked_and_paged(stage)
        await stage.workspace.post(ONCALL, page.channel, "note: I am on my way", page.ts)
        await stage.later(bot, minutes=6)
        again = await stage.live(FIRST, but=[page.ts])
        await stage.becomes(page, "Paged again below", without=["Yes", *ALL])
        await stage.workspace.post(ONCALL, page.channel, "yes", page.ts)
        assert (await stage.reply())["response"] is True
        await stage.becomes(again, f"by <@{ONCALL}>", "Answered: “Yes”", without=["Yes", *ALL])


async def test_p12_click_on_a_page_that_was_just_deleted_counts(stage: Night) -> None:
    async with stage.bot(stage.config()) as bot:
        _, page = await asked_and_paged(stage)
        button = find(page.blocks, "Yes")
        await stage.later(bot, minutes=6)
        await stage.live(FIRST, but=[page.ts])
        await stage.gone(page)
        assert (await stage.workspace.interactions.press(ONCALL, page, button)).ok
        assert (await stage.reply())["response"] is True


async def test_take_survives_a_restart(stage: Night) -> None:
    async with stage.bot(stage.config()) as bot:
        card, page = await asked_and_paged(stage)
        await stage.press(page, "Take")
        await stage.becomes(page, "Claimed by")
        await stage.later(bot, minutes=10)
    async with stage.bot(stage.config()) as bot:
        await stage.ask("rpl_2", session="sess_two", question="And now?", timeout_seconds=36_000)
        await stage.escalate(SECOND)
        await stage.live("And now?")
        assert len(stage.about(FIRST)) == 1
        await stage.later(bot, minutes=6)  # it was taken for fifteen
        await stage.live(FIRST, but=[page.ts])
        await stage.becomes(card, "Escalated")


@pytest.mark.parametrize("user", [ADE, FOLAKE], ids=["on call by an override", "answerer"])
async def test_p6_take_is_for_who_is_on_call_paged_or_an_answerer(stage: Night, user: str) -> None:
    async with stage.bot(stage.config(answerers=(FOLAKE,))) as bot:
        card, _ = await asked_and_paged(stage)
        thread = await stage.live("is waiting", AGENTS)
        for stranger in (GIO, ADE if user == FOLAKE else EVA):
            await stage.press(thread, "Take", stranger)
            told = await stage.whisper(stranger, "you are neither on call here")
            assert f"<@{ONCALL}>" in told.text
        assert "Claimed" not in said(stage.workspace.message(AGENTS, card.ts))
        assert stage.record()["aaep"].get("takenBy") is None
        if user == ADE:
            await bot.board.roster.hand("platform", ADE, stage.clock.now() + timedelta(hours=1), ADE)
        await stage.press(thread, "Take", user)
        await stage.becomes(thread, f"Claimed by <@{user}>")


async def test_p6_nothing_is_taken_while_slack_does_not_say_who_it_is(stage: Night) -> None:
    async with stage.bot(stage.config(answerers=(FOLAKE,))):
        await asked_and_paged(stage)
        thread = await stage.live("is waiting", AGENTS)
        stage.workspace.faults.add("users.info", "429:60")
        await stage.press(thread, "Take", ADE)
        await stage.whisper(ADE, "again")
        assert stage.record()["aaep"].get("takenBy") is None


async def test_button_of_a_page_that_changed_meanwhile_says_why_it_counts_for_nothing(stage: Night) -> None:
    async with stage.bot(stage.config()):
        card, page = await asked_and_paged(stage)
        thread = await stage.live("is waiting", AGENTS)
        snooze, take = find(page.blocks, "Snooze"), find(thread.blocks, "Take")
        await stage.press(thread, "Take", FOLAKE)
        await stage.becomes(page, f"Claimed by <@{FOLAKE}>")
        assert (await stage.workspace.interactions.press(ONCALL, page, snooze)).ok
        await stage.whisper(ONCALL, "Someone else has claimed this")
        await stage.press(card, "Yes", FOLAKE)
        await stage.becomes(thread, "· answered")
        assert (await stage.workspace.interactions.press(ADE, thread, take)).ok
        await stage.whisper(ADE, "already answered")


async def test_p12_page_that_was_clicked_while_it_was_drawn_stays(stage: Night) -> None:
    """Its message was read before the click, and what it is about after it."""
    async with stage.bot(stage.config()) as bot:
        card, page = await asked_and_paged(stage)
        before = await bot.board.messages.landed_at(page.channel, page.ts)
        await stage.press(page, "Take")
        await stage.becomes(page, "Claimed by")
        await stage.press(card, "No", FOLAKE)
        await stage.becomes(page, "Answered: “No”")
        await until(lambda: not [*bot.board.incidents])
        assert before is not None
        drawn = await bot.board.page_view.draw(before)
        assert drawn is not None
        assert (drawn.final, drawn.gone) == (True, False)


async def test_p6_who_is_paged_may_answer_though_not_among_the_answerers(stage: Night) -> None:
    async with stage.bot(stage.config(answerers=(FOLAKE,))):
        card = await stage.ask(timeout_seconds=36_000)
        await stage.press(card, "Yes", ONCALL)
        await stage.whisper(ONCALL, "You cannot answer this")
        await stage.escalate()
        page = await stage.live("Shall I go on?")
        await stage.press(card, "Yes", ADE)
        await stage.whisper(ADE, "You cannot answer this")
        await stage.press(page, "No")
        assert (await stage.reply())["decided_by"].endswith(ONCALL)
