"""Promise P10 where Slack lets the history be read once a minute only: clicks do not wait for it, timers do."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path
from typing import Any

from tests.kit.clocks import LeapClock
from tests.kit.world import World, said, scene
from workspace.seed import ADE, AGENTS, FOLAKE
from workspace.state import Message

ALWAYS = 1000


def refuse_history(stage: World) -> None:
    """What apps sold outside of Slack's Marketplace are told, from now on."""
    for method in ("conversations.replies", "conversations.history"):
        stage.workspace.faults.add(method, "429:60", ALWAYS)


async def asked_then_away(stage: World, reply: str = "no", **fields: Any) -> Message:
    """A question; then a reply to it while the bot is away, and a history that cannot be read."""
    async with stage.bot():
        card = await stage.ask(**fields)
    await stage.workspace.post(ADE, AGENTS, reply, thread_ts=card.ts)
    refuse_history(stage)
    return card


async def test_p10_clicks_are_taken_while_the_history_cannot_be_read(tmp_path: Path) -> None:
    clock = LeapClock(10)
    async with scene(tmp_path, clock=clock) as stage:
        card = await asked_then_away(stage)
        began = clock.seconds()
        async with stage.bot():
            assert clock.seconds() - began < 30  # of which twenty are for a busy machine
            assert (await stage.workspace.click(FOLAKE, AGENTS, card.ts, label="Yes")).ok
            assert (await stage.reply())["response"] is True


async def test_p10_reply_found_after_the_click_is_told_to_its_author_and_shown(tmp_path: Path) -> None:
    clock = LeapClock(20)
    async with scene(tmp_path, clock=clock) as stage:
        card = await asked_then_away(stage)
        async with stage.bot():
            await stage.workspace.click(FOLAKE, AGENTS, card.ts, label="Yes")
            await stage.reply()
            stage.workspace.faults.clear()
            told = await stage.whisper(ADE, "written in time")
            assert "“No”" in told.text
            assert f"<@{FOLAKE}>" in told.text
            shown = await stage.message("in time")
            assert shown.thread_ts == card.ts
            assert f"<@{ADE}> replied “No”" in shown.text
        async with stage.bot():  # and only once
            await stage.says("tool.completed")
        assert len([m for m in stage.workspace.thread(AGENTS, card.ts) if "in time" in m.text]) == 1
        assert stage.record()["aaep"]["response"] is True


async def test_p10_talk_and_late_replies_found_after_the_click_are_not_made_answers(tmp_path: Path) -> None:
    clock = LeapClock(20)
    async with scene(tmp_path, clock=clock) as stage:
        card = await asked_then_away(stage, "let me look first")
        async with stage.bot() as bot:
            await stage.workspace.click(FOLAKE, AGENTS, card.ts, label="Yes")
            await stage.reply()
            stage.workspace.faults.clear()
            await asyncio.wait_for(bot.catch_up.done.wait(), 60)
        assert not [m for m in stage.workspace.thread(AGENTS, card.ts) if "in time" in m.text]
        assert not stage.workspace.ephemerals(ADE)


async def test_p10_question_does_not_expire_before_its_thread_was_read(tmp_path: Path) -> None:
    clock = LeapClock(20)
    async with scene(tmp_path, clock=clock) as stage:
        card = await asked_then_away(stage, timeout_seconds=60)
        clock.leap(timedelta(seconds=60))  # it is over
        async with stage.bot():
            await clock.pass_by(40)
            assert stage.record()["status"] in {"pending", "stale", "escalated"}
            await stage.workspace.click(FOLAKE, AGENTS, card.ts, label="Yes")
            assert "still being collected" in (await stage.whisper(FOLAKE, "it expired")).text
            assert stage.record()["status"] in {"pending", "stale", "escalated"}
            stage.workspace.faults.clear()
            await stage.now_says(card, f"<@{ADE}>")
        assert stage.record()["aaep"]["response"] is False


async def test_p10_question_expires_after_five_minutes_though_its_thread_cannot_be_read(
    tmp_path: Path,
) -> None:
    clock = LeapClock(20)
    async with scene(tmp_path, clock=clock) as stage:
        card = await asked_then_away(stage, timeout_seconds=60)
        clock.leap(timedelta(seconds=60))
        began = clock.seconds()
        async with stage.bot():
            await clock.pass_by(260)
            assert "Expired" not in said(stage.workspace.message(card.channel, card.ts))
            await stage.now_says(card, "Expired")
            assert clock.seconds() - began > 290
            stage.workspace.faults.clear()
            assert "it expired" in (await stage.whisper(ADE, "written in time")).text


async def test_p10_question_that_nobody_answered_expires_as_soon_as_its_thread_was_read(
    tmp_path: Path,
) -> None:
    clock = LeapClock()
    async with scene(tmp_path, clock=clock) as stage:
        async with stage.bot():
            card = await stage.ask()
        clock.leap(timedelta(seconds=601))
        async with stage.bot():
            await stage.now_says(card, "Expired", timeout=20)


async def test_p10_threads_with_open_questions_are_read_first(stage: World) -> None:
    async with stage.bot():
        later = await stage.ask("rpl_1", session="sess_1", question="Later?", timeout_seconds=3600)
        soon = await stage.ask("rpl_2", session="sess_2", question="Soon?", timeout_seconds=600)
        done = await stage.ask("rpl_3", session="sess_3", question="Done?", timeout_seconds=300)
        await stage.workspace.click(FOLAKE, AGENTS, done.ts, label="Yes")
        await stage.reply("rpl_3")
    stage.workspace.calls.clear()
    async with stage.bot():
        pass
    read = [call.args["ts"] for call in stage.workspace.calls if call.method == "conversations.replies"]
    assert read[:2] == [soon.ts, later.ts]
