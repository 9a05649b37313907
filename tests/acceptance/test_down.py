"""Nothing is lost during downtime (promise P10): the bot catches up with what happened while it was down, in the right order."""

from __future__ import annotations

import random

import pytest

from tests.acceptance.exchanges import Exchange, check_all
from tests.acceptance.world import World, has_controls, question
from tests.kit.lives import Life
from tests.kit.world import said
from workspace.seed import ADE, AGENTS, FOLAKE


async def test_reply_written_while_down_comes_before_a_newer_click(world: World) -> None:
    async with Life.of(world) as life:
        card = await world.asked("rpl-1")
        await life.killed()
    await world.workspace.post(ADE, AGENTS, "no", thread_ts=card.ts)
    async with Life.of(world):
        if has_controls(world.workspace.message(AGENTS, card.ts)):
            await world.workspace.click(FOLAKE, AGENTS, card.ts, label="Yes")
        await world.until(lambda: world.agent.honoured("rpl-1"))
    record = world.record("rpl-1")
    assert record is not None
    assert (record["aaep"]["response"], record["aaep"]["answeredBy"]["user"]) == (False, ADE)
    assert [reply["response"] for reply in world.agent.tries] == [False]


async def test_events_of_the_outage_are_fetched_in_order(world: World) -> None:
    async with Life.of(world) as life:
        await world.get_acquainted()
        await life.killed()
    for number in range(5):
        await world.agent.emit(question(f"rpl-{number}", f"sess_{number}"))
    await world.agent.emit({"type": "aaep:agent.session.cancelled", "session_id": "sess_4"})
    async with Life.of(world):
        await world.until(lambda: len(world.cards()) == 5)
        cancelled = await world.until(lambda: world.card_saying("with rpl-4?"))
        await world.until(lambda: not has_controls(cancelled))
    assert len(world.cards()) == 5
    assert all(has_controls(card) for card in world.cards() if card is not cancelled)


async def test_question_after_a_kill_before_the_first_event_is_not_lost(world: World) -> None:
    async with Life.of(world) as life:
        await world.agent.wait_for_subscriber(20)  # type: ignore[union-attr]
        await life.killed()
    await world.agent.emit(question("rpl-1", "sess_1"))
    async with Life.of(world):
        await world.until(lambda: world.card_saying("with rpl-1?"))


@pytest.mark.needs("ledgerfiles")
async def test_answer_given_while_the_agent_is_down_arrives_after_a_restart(world: World) -> None:
    async with Life.of(world) as life:
        card = await world.asked("rpl-1")
        exchange = Exchange(world, "rpl-1", "standard", random.Random(1))  # noqa: S311
        await world.agent.down()  # type: ignore[union-attr]
        act = await world.people.answer(FOLAKE, "click", card, response=True, typed="yes")
        assert act is not None
        assert act.ok
        exchange.acts.append(act)
        await life.killed()
    async with Life.of(world):
        await world.until(lambda: "Sending" in said(card))
        await world.agent.up()  # type: ignore[union-attr]
        await world.until(lambda: world.agent.honoured("rpl-1"))
        await exchange.end()
        await world.until(lambda: world.in_files() == world.records())
        check_all(world, [exchange])
