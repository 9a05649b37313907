"""Whose question is it, where does it go, what belongs together: producers, sessions, issues, routes, rounds."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.kit.clocks import LeapClock
from tests.kit.world import World, config, controls, said, scene
from workspace.demo.producer import DemoProducer
from workspace.seed import ADE, AGENTS, EVA, FOLAKE, RANDOM

WORDS: dict[str, Any] = {"accepted_response_kinds": ["freetext"]}


async def test_p2_two_producers_with_the_same_ids_are_two_questions(stage: World) -> None:
    async with DemoProducer("other-agent", agent_name="Other") as other:
        second = f'\n[[producers]]\nname = "other"\nurl = "{other.url}"\n'
        async with stage.bot(config(stage.producer.url, more=second)):
            event = await stage.emit("rpl_1")
            mine = await stage.card("Planner asks")
            await other.emit({**event, "producer": {"agent_id": "other-agent", "agent_name": "Other"}})
            theirs = await stage.card("Other asks")
            assert theirs.thread_ts is None
            await stage.workspace.click(FOLAKE, AGENTS, mine.ts, label="Yes")
            await stage.workspace.click(FOLAKE, AGENTS, theirs.ts, label="No")
            assert (await stage.reply("rpl_1"))["response"] is True
            assert (await other.wait_for_reply("rpl_1", timeout=10))["response"] is False


async def test_issue_named_by_the_agent_is_its_ledger(stage: World) -> None:
    async with stage.bot():
        card = await stage.ask(
            extensions={"agentx": {"issue": 42, "topic": "Rollout", "to": "release-manager"}}
        )
        assert "CLR-42-001" in said(card)
        await stage.workspace.click(FOLAKE, AGENTS, card.ts, label="Yes")
        await stage.reply()
    record = stage.record(42)
    assert (record["topic"], record["to"], record["from"]) == ("Rollout", "release-manager", "planner-agent")


async def test_same_words_after_the_answer_was_taken_are_a_new_question_in_the_thread(stage: World) -> None:
    async with stage.bot():
        first = await stage.ask("rpl_1")
        await stage.workspace.click(FOLAKE, AGENTS, first.ts, label="Yes")
        await stage.now_says(first, "Delivered")
        await stage.emit("rpl_2")
        second = await stage.card("CLR-100001-002")
        assert second.thread_ts == first.ts
        await stage.workspace.click(FOLAKE, AGENTS, second.ts, label="No")
        assert (await stage.reply("rpl_2"))["response"] is False


async def test_other_words_on_the_same_topic_while_answered_are_the_next_round(stage: World) -> None:
    topic = {"agentx": {"topic": "Rollout"}}
    async with stage.bot():
        first = await stage.ask("rpl_1", extensions=topic)
        stage.producer.lose_next_response()
        await stage.workspace.click(FOLAKE, AGENTS, first.ts, label="Yes")
        await stage.now_says(first, "Sent, but not confirmed")
        await stage.emit("rpl_2", question="Really?", extensions=topic, **WORDS)
        again = await stage.card("Really?")
        assert again.thread_ts == first.ts


async def test_routes_choose_channel_answerers_and_detail_by_agent(stage: World) -> None:
    stage.workspace.join("U0BOT", RANDOM)
    route = f'\n[[routes]]\nagent = "planner-*"\nchannel = "{RANDOM}"\nanswerers = ["{EVA}"]\nverbosity = "terse"\n'
    stage.workspace.join(EVA, RANDOM)
    async with stage.bot(config(stage.producer.url, more=route)):
        await stage.emit("rpl_1", context="Much to read", default_response="no")
        card = await stage.card("Shall I go on?", RANDOM)
        assert "Much to read" not in str(card.blocks)
        assert "View full" in controls(card)
        await stage.workspace.click(FOLAKE, RANDOM, card.ts, label="Yes")
        assert f"<@{EVA}>" in (await stage.whisper(FOLAKE, "You cannot answer this")).text
        await stage.workspace.click(EVA, RANDOM, card.ts, label="Yes")
        await stage.reply()


async def test_reply_that_is_also_sent_to_the_channel_is_an_answer_and_one_outside_the_thread_is_none(
    stage: World,
) -> None:
    async with stage.bot():
        card = await stage.ask(**WORDS)
        await stage.workspace.post(ADE, AGENTS, "beside it")
        await stage.workspace.post(ADE, AGENTS, "aloud", thread_ts=card.ts, broadcast=True)
        assert (await stage.reply())["response"] == "aloud"


async def test_p8_long_answer_is_shown_with_a_way_to_read_it_whole(stage: World) -> None:
    long = " ".join(f"because{n:04d}" for n in range(1200))
    async with stage.bot():
        card = await stage.ask(**WORDS)
        await stage.workspace.post(ADE, AGENTS, long, thread_ts=card.ts)
        assert (await stage.reply())["response"] == long
        shown = await stage.now_says(card, "Delivered")
        assert "because0000" in said(shown)
        await stage.workspace.click(FOLAKE, AGENTS, card.ts, label="View full")
        assert "because1199" in str((await stage.modal(FOLAKE)).payload)


async def test_answer_that_an_agent_cannot_take_is_refused_with_a_hint(stage: World) -> None:
    async with stage.bot():
        card = await stage.ask(**WORDS)
        await stage.workspace.post(ADE, AGENTS, "x" * 17000, thread_ts=card.ts)
        assert "16384" in (await stage.whisper(ADE, "17000 characters")).text
        assert stage.record()["status"] == "pending"


async def test_click_after_the_time_ran_out_says_what_is_assumed(tmp_path: Path) -> None:
    clock = LeapClock(1)
    async with scene(tmp_path, clock=clock) as stage, stage.bot():
        card = await stage.ask(default_response="Wait till Monday")
        stage.workspace.faults.add("chat.update", "delay:2")
        clock.ahead += timedelta(hours=1)  # the alarm notices only later
        assert (await stage.workspace.click(FOLAKE, AGENTS, card.ts, label="Yes")).ok
        assert "“Wait till Monday”" in (await stage.whisper(FOLAKE, "it expired")).text
        assert stage.record()["status"] == "abandoned"
    assert not stage.producer.replies


async def test_modal_that_slack_does_not_open_is_said(stage: World) -> None:
    async with stage.bot():
        card = await stage.ask(**WORDS)
        stage.workspace.faults.add("views.open", "refuse:expired_trigger_id")
        await stage.workspace.click(FOLAKE, AGENTS, card.ts, label="Answer…")
        await stage.whisper(FOLAKE, "click the button again")
        await stage.workspace.click(FOLAKE, AGENTS, card.ts, label="Answer…")
        await stage.modal(FOLAKE)


async def test_session_with_several_ledgers_is_one_thread_and_its_end_is_the_end_of_all(
    stage: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bot.ask.inbox.MOST_QUESTIONS", 2)
    async with stage.bot():
        card = await stage.ask("rpl_0", question="Which database?", timeout_seconds=3000)
        for number in range(1, 4):
            other = await stage.ask(f"rpl_{number}", question=f"Step {number}?", timeout_seconds=3000)
            assert other.thread_ts == card.ts
        assert stage.issues() == [100001, 100002]
        await stage.says("session.completed")
        await stage.until(lambda: not any(map(controls, stage.cards())))
        for issue in stage.issues():
            assert {each["status"] for each in stage.ledger(issue)["clarifications"]} == {"abandoned"}
