"""Journeys 1 and 2: a question becomes a card, a person answers, the agent gets one reply."""

from __future__ import annotations

from bot.workspace.seed import ADE, AGENTS, FOLAKE
from tests.scenario.harness import Scene, question, said


async def test_click_answers_and_reply_reaches_the_producer(stage: Scene) -> None:
    async with stage.bot():
        await stage.producer.emit(question("rpl_1", accepted_response_kinds=["yes_no"]))
        card = await stage.card("Shall I go on?")
        outcome = await stage.workspace.click(FOLAKE, AGENTS, card.ts, label="Yes")
        assert outcome.ok, outcome
        reply = await stage.producer.wait_for_reply("rpl_1", timeout=5)
        assert reply["response"] is True
        assert reply["decided_by"] == f"user:slack/T0LOCAL/{FOLAKE}"
        shown = await stage.card(f"<@{FOLAKE}>")
        assert "Yes" in said(shown)
        assert not [block for block in shown.blocks if block["type"] == "actions"]
    record = stage.ledger(100001)["clarifications"][0]
    assert record["status"] == "resolved"
    assert record["aaep"]["answeredBy"] == {"surface": "slack", "team": "T0LOCAL", "user": FOLAKE}


async def test_thread_reply_answers(stage: Scene) -> None:
    async with stage.bot():
        await stage.producer.emit(question("rpl_1", accepted_response_kinds=["numeric"]))
        card = await stage.card("Shall I go on?")
        await stage.workspace.post(ADE, AGENTS, "1,200.50", thread_ts=card.ts)
        reply = await stage.producer.wait_for_reply("rpl_1", timeout=5)
        assert reply["response"] == 1200.5


async def test_second_session_question_goes_into_the_thread_and_to_the_channel(stage: Scene) -> None:
    async with stage.bot():
        await stage.producer.emit(question("rpl_1", accepted_response_kinds=["yes_no"]))
        first = await stage.card("Shall I go on?")
        await stage.producer.emit(
            question("rpl_2", question="And then?", accepted_response_kinds=["freetext"])
        )
        second = await stage.card("And then?")
        assert second.thread_ts == first.ts
        assert second.subtype == "thread_broadcast"
