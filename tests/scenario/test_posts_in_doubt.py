"""Promise P10 where a restart leaves posts in doubt: clicks on other cards do not wait for them to be looked up."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from bot import replicas
from bot.people.access import Person, lookup_deadline
from bot.slack.conversation import MARGIN
from bot.slackapi import Place
from bot.views.codec import Press
from bot.views.phrases import Unrecorded
from core.clock import SystemClock
from tests.kit.clocks import LeapClock
from tests.kit.until import until
from tests.kit.world import World, scene
from tests.scenario.typist import FREE
from workspace.seed import ADE, AGENTS, FOLAKE, TEAM, USE_AS_ANSWER
from workspace.state import Message

ALWAYS = 10_000


class Unhurried(SystemClock):
    """Time does not end what clicks wait for."""

    async def sleep(self, seconds: float) -> None:
        if seconds == replicas._CATCH_UP:
            await asyncio.Event().wait()
        await super().sleep(seconds)


@asynccontextmanager
async def unhurried(folder: Path) -> AsyncIterator[World]:
    async with scene(folder, clock=Unhurried()) as stage:
        yield stage


def hold_look_ups(stage: World) -> None:
    """Slack does not tell what is in a channel; single threads can be read."""
    stage.workspace.faults.add("conversations.history", "refuse:internal_error", ALWAYS)


async def left_in_doubt(stage: World, **fields: Any) -> Message:
    """A card that Slack took without the bot knowing; it cannot be looked up until the faults are cleared."""
    hold_look_ups(stage)
    stage.workspace.faults.add("chat.postMessage", "accept_then_drop")
    return await stage.ask(question="In doubt?", session="sess_doubt", **fields)


async def test_p10_click_on_a_known_card_does_not_wait_for_the_look_up_of_another(tmp_path: Path) -> None:
    async with unhurried(tmp_path) as stage:
        async with stage.bot():
            known = await stage.ask("rpl_2")
            await left_in_doubt(stage)
        async with stage.bot() as bot:
            assert bot.unread.is_in_doubt
            assert (await stage.workspace.click(FOLAKE, AGENTS, known.ts, label="Yes")).ok
            assert (await stage.reply("rpl_2"))["response"] is True
            assert bot.unread.is_in_doubt


@pytest.mark.parametrize("by", ["click", "reply", "command"])
async def test_p10_missed_reply_to_a_card_in_doubt_comes_before_a_newer_answer(
    tmp_path: Path, by: str
) -> None:
    async with unhurried(tmp_path) as stage:
        async with stage.bot():
            card = await left_in_doubt(stage)
        await stage.workspace.post(ADE, AGENTS, "no", thread_ts=card.ts)
        stage.workspace.faults.add("conversations.replies", "delay:0.2")
        async with stage.bot():
            if by == "click":
                assert (await stage.workspace.click(FOLAKE, AGENTS, card.ts, label="Yes")).ok
            else:
                words = f"answer {stage.record()['id']} yes"
                answering = (
                    stage.workspace.post(FOLAKE, AGENTS, "yes", thread_ts=card.ts)
                    if by == "reply"
                    else stage.workspace.command(FOLAKE, AGENTS, "/clarify", words)
                )
                async with asyncio.TaskGroup() as group:
                    group.create_task(answering)
                    stage.workspace.faults.clear()
            assert (await stage.reply())["response"] is False
        assert stage.record()["aaep"]["answeredBy"]["user"] == ADE


async def test_p10_click_on_a_card_in_doubt_is_told_to_try_again_and_then_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with unhurried(tmp_path) as stage:
        async with stage.bot():
            card = await left_in_doubt(stage)
        stage.workspace.faults.add("conversations.replies", "refuse:internal_error", ALWAYS)
        async with stage.bot() as bot:
            monkeypatch.setattr("bot.people.access.LOOK_UPS", 0.2)
            assert (await stage.workspace.click(FOLAKE, AGENTS, card.ts, label="Yes")).ok
            await stage.whisper(FOLAKE, "still checking whether someone answered")
            assert stage.record()["status"] == "pending"
            stage.workspace.faults.clear()
            await until(lambda: not bot.unread.is_in_doubt)
            assert (await stage.workspace.click(FOLAKE, AGENTS, card.ts, label="Yes")).ok
            assert (await stage.reply())["response"] is True


async def test_p10_click_on_a_card_in_doubt_waits_seconds_at_most(tmp_path: Path) -> None:
    async with scene(tmp_path, clock=LeapClock(10)) as stage:
        async with stage.bot():
            card = await left_in_doubt(stage)
        stage.workspace.faults.add("conversations.replies", "refuse:internal_error", ALWAYS)
        async with stage.bot() as bot:
            await until(lambda: not bot.unread.is_in_doubt)
            assert (await stage.workspace.click(FOLAKE, AGENTS, card.ts, label="Yes")).ok
            assert (await stage.reply())["response"] is True


async def test_p10_question_does_not_expire_while_its_post_is_in_doubt(tmp_path: Path) -> None:
    clock = LeapClock(20)
    async with scene(tmp_path, clock=clock) as stage:
        async with stage.bot():
            card = await left_in_doubt(stage, timeout_seconds=60)
        await stage.workspace.post(ADE, AGENTS, "no", thread_ts=card.ts)
        clock.leap(timedelta(seconds=60))
        async with stage.bot():
            await clock.pass_by(40)
            assert stage.record()["status"] in {"pending", "stale", "escalated"}
            stage.workspace.faults.clear()
            await stage.now_says(card, f"<@{ADE}>")
        assert stage.record()["aaep"]["response"] is False


async def test_p10_thread_of_a_post_in_doubt_is_read_whole_though_its_channel_was_read_up_to_later(
    tmp_path: Path,
) -> None:
    async with unhurried(tmp_path) as stage:
        async with stage.bot() as bot:
            card = await left_in_doubt(stage)
            mark = f"{stage.clock.now().timestamp() + 2 * MARGIN:.6f}"
            await bot.slack.app.backfill.memory.set_watermark(AGENTS, mark)
        context = stage.workspace.context
        context.options = replace(context.options, retry_delays=())  # only the history tells of the reply
        await stage.workspace.post(ADE, AGENTS, "no", thread_ts=card.ts)
        async with stage.bot() as bot:
            stage.workspace.faults.clear()
            assert (await stage.reply())["response"] is False
            assert await bot.slack.app.backfill.memory.watermark(AGENTS) == mark


async def test_p10_modal_shortcut_and_asked_back_reply_wait_for_what_is_unread(
    stage: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The place of a card became known, and its thread is yet to be read."""
    async with stage.bot() as bot:
        card = await stage.ask(**FREE)
        note = await stage.workspace.post(ADE, AGENTS, "note: blue", thread_ts=card.ts)
        await stage.workspace.click(ADE, AGENTS, card.ts, label="Answer…")
        await stage.modal(ADE)
        record = stage.record()
        bot.unread.doubt({"card:1": frozenset({record["id"]})})
        monkeypatch.setattr("bot.people.access.LOOK_UPS", 0.05)

        outcome = await stage.workspace.submit_view(ADE, {"Your answer": "blue"})
        assert "still checking" in next(iter(outcome.errors.values()))
        assert (await stage.workspace.shortcut(ADE, USE_AS_ANSWER, note.ts, AGENTS)).ok
        await stage.whisper(ADE, "still checking")
        which = Press("which", record["id"], record["round"], "kept")
        person, place = Person(TEAM, ADE, lookup_deadline()), Place(AGENTS, card.ts)
        reaction = await bot.slack.app.handlers.answering.press(which, person, place)
        assert isinstance(reaction, Unrecorded)
        assert stage.record()["status"] == "pending"

        bot.unread.read(["card:1"])
        assert (await stage.workspace.submit_view(ADE, {"Your answer": "blue"})).ok
        assert (await stage.reply())["response"] == "blue"
