"""`/clarify oncall ask`: somebody is asked to be on call, and accepts or declines by a button."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from copy import deepcopy
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path

import pytest

from bot.people.access import Person
from bot.views import inert
from bot.views.codec import SwapPress
from bot.views.reaction import Tell
from bot.workspace.seed import ADE, EVA, FOLAKE, GIO, ONCALL, TEAM
from bot.workspace.state import Message
from tests.kit.world import controls, said
from tests.scenario.pagers import Night, asked_and_paged, night, step
from tests.scenario.typist import command, words

BOTH = ["Accept", "Decline"]
ASKS = "asks you to be on call for platform from"


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncIterator[Night]:
    async with night(tmp_path) as made:
        yield made


def text(stage: Night) -> str:
    return stage.config(step("0s", "dm"), answerers=(FOLAKE,))


def begins(stage: Night, minutes: float = 61) -> datetime:
    return stage.clock.now() + timedelta(minutes=minutes)


async def says(stage: Night, text: str, user: str = ONCALL) -> str:
    """What a command answers to its author."""
    return words(await command(stage, text, user))


async def ask(stage: Night, at: datetime, whom: str = ADE, user: str = ONCALL) -> str:
    return await says(stage, f"oncall ask <@{whom}|x> from {at:%Y-%m-%dT%H:%M} for 2h", user)


async def asked(stage: Night, user: str = ADE, but: tuple[str, ...] = ()) -> Message:
    return await stage.live(ASKS, user, wants=BOTH, but=but)


def heard_more(stage: Night, before: int) -> bool:
    return len(stage.workspace.ephemerals(ADE)) > before


async def hears(stage: Night, user: str, part: str) -> Message:
    found: Message = await stage.until(
        lambda: next((each for each in stage.pages(user) if part in each.text), None), 20
    )
    return found


@pytest.mark.either_database
async def test_accepted_request_is_an_override_that_is_listed_and_holds_when_its_time_comes(
    stage: Night,
) -> None:
    async with stage.bot(text(stage)) as bot:
        at = begins(stage)
        told = await ask(stage, at)
        assert f"<@{ADE}> is asked to be on call for platform from" in told
        assert "read in the policy's time zone, UTC." in told
        card = await asked(stage)
        for part in (f"<@{ONCALL}> {ASKS}", f"{at:%H:%M} UTC", "Click Accept", "or Decline", "lapses when"):
            assert part in card.text
        assert "No overrides" in await says(stage, "oncall swaps")
        await stage.press(card, "Accept", ADE)
        await stage.becomes(card, "You accepted: you are on call for platform from", without=BOTH)
        heard = await hears(stage, ONCALL, f"<@{ADE}> accepted: they are on call for platform from")
        assert "“/clarify oncall cancel 1” cancels that." in heard.text
        swaps = await says(stage, "oncall swaps")
        assert f"1. platform: <@{ADE}> from" in swaps
        assert f", by <@{ONCALL}>" in swaps
        await stage.later(bot, minutes=62)
        await asked_and_paged(stage, ADE)
        assert not [each for each in stage.pages() if "Shall I go on?" in said(each)]


async def test_accepted_request_can_be_cancelled(stage: Night) -> None:
    async with stage.bot(text(stage)):
        await ask(stage, begins(stage))
        await stage.press(await asked(stage), "Accept", ADE)
        await hears(stage, ONCALL, "accepted")
        assert "Override cancelled" in await says(stage, "oncall cancel 1")


async def test_declined_request_changes_nothing_and_the_asker_hears_it(stage: Night) -> None:
    async with stage.bot(text(stage)):
        await ask(stage, begins(stage))
        card = await asked(stage)
        await stage.press(card, "Decline", ADE)
        await stage.becomes(card, "You declined to be on call for platform from", without=BOTH)
        await hears(stage, ONCALL, f"<@{ADE}> declined to be on call for platform from")
        assert "No overrides" in await says(stage, "oncall swaps")


async def test_request_without_an_answer_lapses_when_its_time_begins_also_over_a_restart(
    stage: Night,
) -> None:
    async with stage.bot(text(stage)) as bot:
        await ask(stage, begins(stage))
        card = await asked(stage)
        await bot.board.messages.in_flight.settled()
    stage.clock.leap(timedelta(minutes=62))
    async with stage.bot(text(stage)):
        await stage.becomes(card, "The request has lapsed", without=BOTH)
        await hears(stage, ONCALL, f"<@{ADE}> did not answer your request")
        assert "No overrides" in await says(stage, "oncall swaps")
    async with stage.bot(text(stage)):
        await says(stage, "oncall swaps")
    assert sum("did not answer" in each.text for each in stage.pages()) == 1


@pytest.mark.either_database
async def test_clicks_that_come_twice_or_late_are_told_what_came_of_it(stage: Night) -> None:
    async with stage.bot(text(stage)) as bot:
        await ask(stage, begins(stage))
        card = deepcopy(await asked(stage))
        first, second = await asyncio.gather(
            *(stage.workspace.click_as_seen(ADE, card, label) for label in BOTH)
        )
        assert first.ok
        assert second.ok
        shown = await stage.becomes(card, "You", without=BOTH)
        accepted = "You accepted" in shown.text
        for label in BOTH:
            before = len(stage.workspace.ephemerals(ADE))
            assert (await stage.workspace.click_as_seen(ADE, card, label)).ok
            await stage.until(partial(heard_more, stage, before))
            assert inert.utc_dates(stage.workspace.ephemerals(ADE)[-1].text) == shown.text
        assert ("1. platform" in await says(stage, "oncall swaps")) == accepted
        await hears(stage, ONCALL, f"<@{ADE}>")
        answers = [each.text for each in stage.pages() if f"<@{ADE}>" in each.text]
        assert len(answers) == 1
        assert ("accepted" in answers[0]) == accepted

        await ask(stage, begins(stage, 300))
        late = deepcopy(await asked(stage, but=(card.ts,)))
        await stage.later(bot, minutes=301)
        await stage.becomes(late, "The request has lapsed", without=BOTH)
        assert (await stage.workspace.click_as_seen(ADE, late, "Accept")).ok
        await stage.whisper(ADE, "The request has lapsed. Nothing was changed.")


async def test_click_after_the_time_began_accepts_nothing_though_the_request_has_not_lapsed_yet(
    stage: Night,
) -> None:
    async with stage.bot(text(stage)):
        await ask(stage, begins(stage))
        card = await asked(stage)
        stage.clock.ahead = timedelta(minutes=62)  # the bot's timer does not notice
        await stage.press(card, "Accept", ADE)
        await stage.whisper(ADE, "The request has lapsed. Nothing was changed.")
        await hears(stage, ONCALL, f"<@{ADE}> did not answer your request")
        assert "No overrides" in await says(stage, "oncall swaps")


async def test_p6_request_of_somebody_who_may_not_hand_over_any_more_is_not_accepted(stage: Night) -> None:
    async with stage.bot(text(stage)):
        await ask(stage, begins(stage), ADE, FOLAKE)
        card = await asked(stage)
    async with stage.bot(stage.config(step("0s", "dm"), answerers=(ONCALL,))):
        await stage.press(card, "Accept", ADE)
        await stage.whisper(ADE, f"<@{FOLAKE}> may not change who is on call for platform any more.")
        assert "No overrides" in await says(stage, "oncall swaps")
        await stage.press(card, "Decline", ADE)
        await hears(stage, FOLAKE, f"<@{ADE}> declined")


async def test_click_of_somebody_else_answers_nothing(stage: Night) -> None:
    async with stage.bot(text(stage)) as bot:
        await ask(stage, begins(stage))
        card = await asked(stage)
        reaction = await bot.slack.commands.commands.turns.answer(
            SwapPress("accept", 1), Person(TEAM, FOLAKE)
        )
        assert reaction == Tell(f"Only <@{ADE}> can answer this.")
        assert set(BOTH) <= {*controls(stage.workspace.message(card.channel, card.ts))}
        assert "No overrides" in await says(stage, "oncall swaps")


async def test_asking_again_repeats_nothing_and_asking_another_person_withdraws_the_first(
    stage: Night,
) -> None:
    async with stage.bot(text(stage)):
        at = begins(stage)
        await ask(stage, at)
        card = await asked(stage)
        assert f"You have already asked <@{ADE}>" in await ask(stage, at)
        assert f"Your earlier request to <@{ADE}> is withdrawn." in await ask(stage, at, FOLAKE)
        await stage.becomes(card, f"<@{ONCALL}> withdrew the request", without=BOTH)
        await stage.press(await asked(stage, FOLAKE), "Accept", FOLAKE)
        assert f"1. platform: <@{FOLAKE}> from" in await says(stage, "oncall swaps")
        assert sum(ASKS in each.text for each in stage.pages(ADE)) == 0


async def test_p6_who_may_not_hand_over_may_not_ask_and_guests_are_not_asked(stage: Night) -> None:
    async with stage.bot(text(stage)):
        at = begins(stage)
        assert "These people can" in await ask(stage, at, ADE, EVA)
        assert "cannot be on call" in await ask(stage, at, GIO)
        assert "That's you." in await ask(stage, at, ONCALL)
        assert "is over" in await ask(stage, begins(stage, -120))
        assert not stage.pages(ADE)
        assert not stage.pages(GIO)
