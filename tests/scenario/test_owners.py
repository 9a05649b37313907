"""A question's owner: somebody says "mine" on its card, before others begin, and is the only one who is reminded."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.kit.world import controls, said
from tests.scenario.pagers import FIRST, Night, night
from tests.scenario.typist import command, words
from workspace.seed import ADE, AGENTS, FOLAKE, GIO, ONCALL
from workspace.state import Message


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncIterator[Night]:
    async with night(tmp_path) as made:
        yield made


def whispers(stage: Night, user: str) -> str:
    return "\n".join(each.text for each in stage.workspace.ephemerals(user))


async def press(stage: Night, card: Message, label: str, user: str, says: str) -> None:
    """Press a button of a card, and wait for what the person alone is told."""
    outcome = await stage.workspace.click(user, card.channel, card.ts, label=label)
    assert outcome.ok, outcome
    await stage.until(lambda: says in whispers(stage, user))


async def test_card_says_who_took_it_and_they_alone_are_reminded(stage: Night) -> None:
    async with stage.bot(stage.config(answerers=(ADE, FOLAKE))) as bot:
        card = await stage.ask(timeout_seconds=3600)
        assert controls(card) == ["Yes", "No", "Take"]
        await press(stage, card, "Take", ADE, f"You claimed {FIRST}: reminders go to you alone.")
        shown = await stage.becomes(card, f"Claimed by <@{ADE}>")
        assert controls(shown) == ["Yes", "No", "Take over", "Release"]
        assert f"\nClaimed by <@{ADE}>.\n" in shown.text, "read aloud, too"
        mine = words(await command(stage, "mine", ADE))
        assert FIRST in mine
        assert f"Claimed by <@{ADE}>" in mine

        await stage.later(bot, minutes=31)
        nudge = await stage.message("still waiting")
        assert nudge.text.startswith(f"Planner is still waiting · {FIRST}.\n<@{ADE}>\n")
        assert "click Release on its card: everyone is reminded then" in nudge.text
        assert f"<@{FOLAKE}>" not in nudge.text
        assert (nudge.thread_ts, nudge.broadcast) == (card.ts, False)
        assert not stage.pages()

        await stage.later(bot, minutes=15)  # escalation waits no longer than ever
        await stage.live("No answer, even after a reminder")
        passed_on = await stage.becomes(card, "Escalated")
        assert f"Claimed by <@{ADE}>" not in said(passed_on)


async def test_who_left_is_not_reminded_but_everybody_else(stage: Night) -> None:
    async with stage.bot(stage.config(answerers=(ADE, FOLAKE))) as bot:
        card = await stage.ask(timeout_seconds=3600)
        await press(stage, card, "Take", ADE, "You claimed")
        await stage.becomes(card, f"Claimed by <@{ADE}>")
        stage.workspace.change_user(ADE, deleted=True)
        await stage.later(bot, minutes=31)
        nudge = await stage.message("still waiting")
        assert nudge.text.startswith(f"Planner is still waiting · {FIRST}.\n<@{ADE}> <@{FOLAKE}>\n")
        assert (nudge.thread_ts, nudge.broadcast) == (card.ts, False)


@pytest.mark.either_database
@pytest.mark.parametrize("how", ["deactivated", "left the channel"])
async def test_what_someone_holds_who_is_gone_is_unclaimed_again(stage: Night, how: str) -> None:
    async with stage.bot(stage.config(answerers=(ADE, FOLAKE) if how == "deactivated" else ("members",))):
        card = await stage.ask(timeout_seconds=3600)
        await press(stage, card, "Take", ADE, "You claimed")
        await stage.becomes(card, f"Claimed by <@{ADE}>")
        if how == "deactivated":
            stage.workspace.change_user(ADE, deleted=True)
        else:
            stage.workspace.leave(ADE, AGENTS)
        word = await unclaimed(stage, card)
        assert word.text.startswith(f"<@{FOLAKE}> {FIRST}" if how == "deactivated" else FIRST)


async def test_who_was_deactivated_while_the_bot_was_down_holds_nothing(stage: Night) -> None:
    async with stage.bot(stage.config()):
        card = await stage.ask(timeout_seconds=3600)
        await press(stage, card, "Take", ADE, "You claimed")
        await stage.becomes(card, f"Claimed by <@{ADE}>")
    stage.workspace.change_user(ADE, deleted=True)
    async with stage.bot(stage.config()):
        await unclaimed(stage, card)


async def test_who_was_deactivated_while_slack_could_not_tell_holds_nothing(stage: Night) -> None:
    async with stage.bot(stage.config()):
        card = await stage.ask(timeout_seconds=3600)
        await press(stage, card, "Take", ADE, "You claimed")
        await stage.becomes(card, f"Claimed by <@{ADE}>")
        stage.workspace.context.state.users[ADE].deleted = True  # the event is lost
        stage.workspace.link.reject(2)
        stage.workspace.link.cut()
        await unclaimed(stage, card)


async def unclaimed(stage: Night, card: Message) -> Message:
    """What the thread says once the question that ADE held is unclaimed again."""
    word = await stage.message(f"{FIRST} is unclaimed again: <@{ADE}>, who had it, can no longer answer.")
    assert word.thread_ts == card.ts
    shown = await stage.becomes(card, "Shall I go on?", without=["Take over", "Release"])
    assert f"Claimed by <@{ADE}>" not in said(shown)
    return word


async def test_one_takes_over_from_another_and_lets_go(stage: Night) -> None:
    config = stage.config(answerers=(ADE, FOLAKE))
    async with stage.bot(config):
        card = await stage.ask(timeout_seconds=3600)
        await press(stage, card, "Take", ADE, "You claimed")
        shown = await stage.becomes(card, f"Claimed by <@{ADE}>")
        await press(stage, shown, "Release", FOLAKE, f"<@{ADE}> has claimed {FIRST}. Nothing was changed")
        await press(stage, shown, "Take over", GIO, "a guest")
        await press(stage, shown, "Take over", FOLAKE, f"You claimed {FIRST}")
        await stage.becomes(card, f"Claimed by <@{FOLAKE}>")
    async with stage.bot(config):
        shown = await stage.becomes(card, f"Claimed by <@{FOLAKE}>")
        await press(stage, shown, "Release", FOLAKE, f"{FIRST} is unclaimed now")
        free = await stage.becomes(card, without=["Release"])
        assert controls(free) == ["Yes", "No", "Take"]
        assert "Claimed by" not in said(free)
        await press(stage, free, "Take", ADE, "You claimed")
        await stage.becomes(card, f"Claimed by <@{ADE}>")
        await stage.press(card, "Yes", FOLAKE)
        assert (await stage.reply())["response"] is True
        done = await stage.becomes(card, f"by <@{FOLAKE}>")
        assert controls(done) == ["Verify"]


async def test_who_loses_it_is_told_once_and_alone(stage: Night) -> None:
    config = stage.config(answerers=(ADE, FOLAKE))
    async with stage.bot(config):
        card = await stage.ask(timeout_seconds=3600)
        await press(stage, card, "Take", ADE, "You claimed")
        shown = await stage.becomes(card, f"Claimed by <@{ADE}>")
        await press(stage, shown, "Take over", ADE, "You claimed")
        await press(stage, shown, "Take over", FOLAKE, f"You claimed {FIRST}")
        word = await stage.page(f"<@{FOLAKE}> took {FIRST} over from you", ADE)
        assert word.text.splitlines() == [
            f"Taken over · {FIRST}.",
            f"<@{FOLAKE}> took {FIRST} over from you.",
            "“Shall I go on?”",
            "You won't be reminded of it any more. You can still answer it, or take it back, on its card.",
        ]
        (link,) = (each for block in word.blocks for each in block.get("elements", ()) if each.get("url"))
        assert link["text"]["text"] == "Go to the question"
        assert card.ts.replace(".", "") in link["url"]
        shown = await stage.becomes(card, f"Claimed by <@{FOLAKE}>")
    async with stage.bot(config):
        await press(stage, shown, "Take over", ADE, f"You claimed {FIRST}")
        await stage.page(f"<@{ADE}> took {FIRST} over from you", FOLAKE)
        assert [len(stage.workspace.direct(each)) for each in (ADE, FOLAKE)] == [1, 1]
        everywhere = "\n".join(each.text for each in stage.workspace.messages(card.channel))
        assert "over from you" not in everywhere


async def test_of_two_who_take_it_at_once_one_has_it_and_the_other_is_told(stage: Night) -> None:
    async with stage.bot(stage.config(answerers=(ADE, FOLAKE))):
        card = await stage.ask(timeout_seconds=3600)
        clicks = (stage.workspace.click(user, card.channel, card.ts, label="Take") for user in (ADE, FOLAKE))
        assert all(outcome.ok for outcome in await asyncio.gather(*clicks))
        shown = await stage.becomes(card, "Claimed by")
        first, second = (ADE, FOLAKE) if f"<@{ADE}>" in said(shown) else (FOLAKE, ADE)
        await stage.until(lambda: f"You claimed {FIRST}" in whispers(stage, first))
        await stage.until(lambda: f"<@{first}> has claimed {FIRST}" in whispers(stage, second))


async def test_escalated_question_is_taken_on_its_card_as_on_its_page(stage: Night) -> None:
    async with stage.bot(stage.config(answerers=(ADE, FOLAKE))):
        card = await stage.ask(timeout_seconds=36_000)
        await stage.escalate()
        page = await stage.live("Shall I go on?")
        shown = await stage.becomes(card, "Escalated")
        await press(stage, shown, "Take", ADE, "Its pages stop")
        await stage.becomes(page, f"<@{ADE}>")
        shown = await stage.becomes(card, f"Claimed by <@{ADE}>")
        assert controls(shown) == ["Yes", "No", "Take over"]
        assert not stage.pages(ADE)
        assert stage.pages(ONCALL)
