"""Producers of the minimal dialect: the real `aaep-minimal-producer`, and one that replays its buffer."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.kit.clocks import LeapClock
from tests.kit.minimal import MinimalProducer
from tests.kit.until import until
from tests.kit.world import World, config, controls, question, said, scene
from tests.scenario.test_producers import past_the_backlog
from tests.unit.bot.ask.parties import Agent
from workspace.seed import ADE, AGENTS, FOLAKE


@pytest.fixture
async def agent() -> AsyncIterator[Agent]:
    made = await Agent.start()
    yield made
    await made.kill()


@pytest.fixture
async def producer() -> AsyncIterator[MinimalProducer]:
    async with MinimalProducer(replays=True) as made:
        yield made


def asks(token: str, **fields: Any) -> dict[str, Any]:
    return question(token, **({"accepted_response_kinds": ["yes_no"]} | fields))


async def real_asks(stage: World, agent: Agent, token: str, **fields: Any) -> None:
    envelope = {
        "@context": "https://aaep-protocol.org/context/v1",
        "event_id": f"evt_{token}",
        "timestamp": stage.clock.now().isoformat(),
        "producer": {"agent_id": "planner-agent"},
    }
    async with httpx.AsyncClient() as client:
        (await client.post(f"{agent.url}/emit", json=envelope | asks(token, **fields))).raise_for_status()


@pytest.mark.parametrize("dialect", ["auto", "minimal"])
async def test_answer_to_the_real_minimal_producer_is_confirmed_by_its_next_event(
    stage: World, agent: Agent, dialect: str
) -> None:
    async with stage.bot(config(agent.url, dialect=dialect)):
        await real_asks(stage, agent, "rpl_1")
        card = await stage.card("Shall I go on?")
        await stage.workspace.click(FOLAKE, AGENTS, card.ts, label="Yes")
        shown = await stage.now_says(card, "the agent has resumed")
        assert f"<@{FOLAKE}>" in said(shown)
    assert stage.record()["status"] == "resolved"


async def test_p4_real_minimal_producer_that_restarts_still_gets_the_answer(
    stage: World, agent: Agent
) -> None:
    async with stage.bot(config(agent.url, dialect="minimal")):
        await real_asks(stage, agent, "rpl_1")
        card = await stage.card("Shall I go on?")
        await agent.kill()
        await stage.workspace.click(FOLAKE, AGENTS, card.ts, label="Yes")
        await stage.now_says(card, "Sending to the agent")
        again = await Agent.start(agent.port)
        await stage.now_says(card, "Delivered")
        await again.kill()


async def test_p2_replayed_backlog_with_answered_questions_changes_nothing(
    stage: World, producer: MinimalProducer
) -> None:
    async with stage.bot(config(producer.url)):
        await producer.emit(asks("rpl_1"), stage.clock.now().isoformat())
        card = await stage.card("Shall I go on?")
        await stage.workspace.click(FOLAKE, AGENTS, card.ts, label="Yes")
        await producer.reply("rpl_1")
        producer.cut()
        await producer.emit(
            asks("rpl_2", session="sess_two", question="Else?"), stage.clock.now().isoformat()
        )
        await stage.card("Else?")
    async with stage.bot(config(producer.url)):
        assert producer.connections >= 3
        await producer.emit(
            asks("rpl_3", session="sess_three", question="More?"), stage.clock.now().isoformat()
        )
        await stage.card("More?")
    assert len(stage.cards()) == 3
    assert len([reply for reply in producer.replies if reply["reply_token"] == "rpl_1"]) == 1


async def test_same_words_again_are_the_next_round_in_the_same_thread(
    stage: World, producer: MinimalProducer
) -> None:
    async with stage.bot(config(producer.url)):
        await producer.emit(asks("rpl_1"), stage.clock.now().isoformat())
        first = await stage.card("Shall I go on?")
        await stage.workspace.click(FOLAKE, AGENTS, first.ts, label="Yes")
        await stage.now_says(first, "Delivered")
        await producer.emit(asks("rpl_2"), stage.clock.now().isoformat())
        second = await stage.card("round 2")
        assert second.thread_ts == first.ts
        assert controls(second)[:2] == ["Yes", "No"]
        old = await stage.now_says(first, f"<@{FOLAKE}>")
        assert controls(old) == ["View full", "Verify"]
        await stage.workspace.post(ADE, AGENTS, "no", thread_ts=first.ts)
        assert (await producer.reply("rpl_2"))["response"] is False
        await stage.now_says(second, f"<@{ADE}>")
    record = stage.record()
    assert record["round"] == 2
    types = [entry["type"] for entry in record["thread"]]
    assert types == ["question", "answer", "question", "escalation", "answer"]  # said again: stuck
    assert len(stage.ledger(100001)["clarifications"]) == 1


async def test_same_words_again_are_the_next_round_also_once_the_ledger_is_full(
    stage: World, producer: MinimalProducer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bot.ask.inbox.MOST_QUESTIONS", 2)
    async with stage.bot(config(producer.url)):
        await producer.emit(asks("rpl_0"), stage.clock.now().isoformat())
        first = await stage.card("Shall I go on?")
        for number in (1, 2, 3):
            words = f"Step {number}?"
            await producer.emit(asks(f"rpl_{number}", question=words), stage.clock.now().isoformat())
            assert (await stage.card(words)).thread_ts == first.ts
        assert len(stage.issues()) == 2
        await stage.workspace.click(FOLAKE, AGENTS, first.ts, label="Yes")
        await stage.now_says(first, "Delivered")
        await producer.emit(asks("rpl_4"), stage.clock.now().isoformat())
        assert (await stage.card("round 2")).thread_ts == first.ts
    assert stage.record()["round"] == 2


async def test_replayed_old_question_is_old_also_after_a_clock_was_set(
    tmp_path: Path, producer: MinimalProducer
) -> None:
    clock = LeapClock(1)
    clock.ahead = timedelta(hours=-2)
    async with scene(tmp_path, clock=clock) as stage:
        before = (clock.now() - timedelta(hours=1)).isoformat()
        await producer.emit(asks("rpl_1", session="sess_old", question="Long ago?"), before)
        async with stage.bot(config(producer.url, dialect="minimal")) as bot:
            await stage.now_says(await stage.card("Long ago?"), "Expired")
            for token, ahead in (("rpl_2", -2), ("rpl_3", 0), ("rpl_4", -2)):
                clock.ahead = timedelta(hours=ahead)
                await past_the_backlog(bot)
                await producer.emit(asks(token, question=f"Is this {token}?"), clock.now().isoformat())
                card = await stage.card(f"Is this {token}?")
                assert controls(card) == ["Yes", "No", "Take"], said(card)
                connections = producer.connections
                producer.cut()
                await producer.emit(
                    asks(f"{token}_old", session="sess_old", question=f"Older than {token}?"),
                    (clock.now() - timedelta(hours=1)).isoformat(),
                )
                await until(lambda: producer.connections > connections)  # noqa: B023 - within its turn
                await stage.now_says(await stage.card(f"Older than {token}?"), "Expired")
