"""Promise P10, what was written while the bot was away: which replies count, and how Slack's history is read."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from bot.slack import conversation
from tests.kit.clocks import LeapClock
from tests.kit.until import until
from tests.kit.world import PATIENT, World, scene
from tests.scenario.test_mentions_and_direct_messages import paged
from tests.scenario.typist import direct
from workspace.seed import ADE, AGENTS, FOLAKE, GIO, ONCALL


async def test_p3_first_of_several_missed_replies_that_may_count_wins(stage: World) -> None:
    async with stage.bot():
        card = await stage.ask()
    for user, text in ((GIO, "yes"), (ADE, "note: hm"), (FOLAKE, "no"), (ADE, "yes")):
        await stage.workspace.post(user, AGENTS, text, thread_ts=card.ts)
    async with stage.bot():
        assert (await stage.reply())["response"] is False
        assert f"<@{FOLAKE}>" in (await stage.whisper(ADE, "already answered")).text
        await stage.whisper(GIO, "guest")
    async with stage.bot():  # none is handled a second time
        await stage.says("tool.completed")
    assert [len(stage.workspace.ephemerals(user)) for user in (ADE, GIO)] == [1, 1]


async def test_missed_reply_of_before_the_question_does_not_answer_it(stage: World) -> None:
    async with stage.bot():
        card = await stage.ask("rpl_1", question="First?")
        await stage.workspace.click(FOLAKE, AGENTS, card.ts, label="Yes")
        await stage.reply("rpl_1")
        stage.workspace.link.reject(1000)
        stage.workspace.link.cut()
        await stage.until(lambda: not stage.workspace.link.connections)
        await stage.workspace.post(ADE, AGENTS, "no", thread_ts=card.ts)
        await stage.ask("rpl_2", question="Second?")
        stage.workspace.link.reject(0)
        await stage.whisper(ADE, "already answered")
        await stage.workspace.post(ADE, AGENTS, "yes", thread_ts=card.ts)
        assert (await stage.reply("rpl_2"))["response"] is True


async def test_many_threads_are_read_only_where_something_moved(
    stage: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conversation, "FEW", 3)
    async with stage.bot():
        cards = [
            await stage.ask(f"rpl_{n}", session=f"sess_{n}", question=f"Question {n}?") for n in range(6)
        ]
    async with stage.bot() as bot:  # which reads them once, so that all is known up to now
        await bot.catch_up.done.wait()
    await stage.workspace.post(ADE, AGENTS, "yes", thread_ts=cards[2].ts)
    stage.workspace.calls.clear()
    async with stage.bot() as bot:
        assert (await stage.reply("rpl_2"))["response"] is True
        await bot.catch_up.done.wait()
    assert stage.calls("conversations.history") == 1
    assert stage.calls("conversations.replies") == 1


async def test_long_thread_is_read_on_where_slack_says_to_wait(
    stage: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conversation, "_PAGE", 2)
    async with stage.bot():
        card = await stage.ask()
    for text in ("note: a", "note: b", "note: c", "yes"):
        await stage.workspace.post(ADE, AGENTS, text, thread_ts=card.ts)
    stage.workspace.calls.clear()
    stage.workspace.faults.add("conversations.replies", "429:0.01", times=9)
    async with stage.bot():
        assert (await stage.reply())["response"] is True
    read = [
        call.args.get("cursor")
        for call in stage.workspace.calls
        if call.method == "conversations.replies" and not call.fault
    ]
    assert len(read) == len(set(read)), "no page twice"


async def test_mark_of_a_channel_does_not_pass_what_was_read_first(stage: World) -> None:
    """Between the first thread of a channel and the last can lie minutes, in which nobody listened to the first."""
    async with stage.bot():
        await stage.ask("rpl_1", session="sess_1", question="First?", timeout_seconds=300)
        second = await stage.ask("rpl_2", session="sess_2", question="Second?")
    stage.workspace.faults.add("conversations.replies", "429:0.5", times=1)

    async def written_while_the_first_is_read() -> float:
        await until(lambda: not stage.workspace.faults.pending())
        return float((await stage.workspace.post(ADE, AGENTS, "note: later", thread_ts=second.ts)).ts)

    writing = asyncio.create_task(written_while_the_first_is_read())
    async with stage.bot() as bot:
        await asyncio.wait_for(bot.catch_up.done.wait(), 60)
        mark = await bot.slack.app.backfill.memory.watermark(AGENTS)
    assert mark is not None
    assert float(mark) < await writing


async def test_channel_that_cannot_be_read_is_left_for_the_next_time(stage: World) -> None:
    async with stage.bot():
        card = await stage.ask()
    await stage.workspace.post(ADE, AGENTS, "yes", thread_ts=card.ts)
    stage.workspace.faults.add("conversations.replies", "refuse:not_in_channel", times=1)
    async with stage.bot() as bot:
        await asyncio.wait_for(bot.catch_up.done.wait(), 60)
        assert stage.record()["status"] == "pending"
    async with stage.bot():
        assert (await stage.reply())["response"] is True


@pytest.mark.parametrize("in_thread", [True, False])
async def test_answer_to_a_page_that_was_written_while_the_bot_was_down_counts(
    stage: World, in_thread: bool
) -> None:
    async with stage.bot():
        page = await paged(stage)
    await stage.workspace.post(ONCALL, direct(stage, ONCALL), "yes", thread_ts=page.ts if in_thread else None)
    async with stage.bot():
        assert (await stage.reply("rpl_1"))["response"] is True
        await stage.page("is answered")


async def test_missed_direct_message_of_before_the_page_answers_nothing(tmp_path: Path) -> None:
    """Slack delivers it again when the bot is back."""
    clock, options = LeapClock(), replace(PATIENT, retry_delays=(1.0,) * 120)
    async with scene(tmp_path, options, clock) as stage, stage.bot():
        first = await paged(stage, 1)
        await stage.workspace.click(FOLAKE, AGENTS, stage.cards()[0].ts, label="Yes")
        await stage.reply("rpl_1")
        stage.workspace.link.reject(1000)
        stage.workspace.link.cut()
        await stage.until(lambda: not stage.workspace.link.connections)
        await stage.workspace.post(ONCALL, first.channel, "yes")
        await stage.emit("rpl_2", session="sess_2", question="Question 2?")
        (bot,) = stage.bots[:1]
        await stage.until(lambda: "CLR-100001-001" in {each.id for each in bot.base.index})
        await bot.base.router.escalate("CLR-100001-001", "by hand", "Nobody knows.")
        await stage.page("Question 2?")
        clock.leap(timedelta(seconds=1))
        stage.workspace.link.reject(0)
        await stage.page("Unknown command")
        assert stage.record()["status"] == "escalated"
