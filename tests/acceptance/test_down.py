"""Down is not deaf (promise P10): what happened while no process was there is caught up with, in the right order."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

from bot.workspace.seed import ADE, AGENTS, FOLAKE
from bot.workspace.state import Message
from tests.acceptance.lives import Life
from tests.acceptance.matters import Matter, Try, check_all
from tests.acceptance.world import World, has_controls, question
from tests.kit.world import said


async def asked(world: World, token: str, **fields: object) -> Message:
    """A question is asked; its card, once it is there."""
    await world.agent.ask(question(token, f"sess_{token}", **fields))
    card: Message = await world.until(lambda: world.card_saying(f"with {token}?"))
    return card


async def killed(life: Life) -> None:
    life.kill()
    await life.killed()


async def test_reply_written_while_down_comes_before_a_newer_click(world: World) -> None:
    async with Life.of(world) as life:
        card = await asked(world, "rpl-1")
        await killed(life)
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
        await killed(life)
    for number in range(5):
        await world.agent.ask(question(f"rpl-{number}", f"sess_{number}"))
    await world.agent.ask({"type": "aaep:agent.session.cancelled", "session_id": "sess_4"})
    async with Life.of(world):
        await world.until(lambda: len(world.cards()) == 5)
        cancelled = await world.until(lambda: world.card_saying("with rpl-4?"))
        await world.until(lambda: not has_controls(cancelled))
    assert len(world.cards()) == 5
    assert all(has_controls(card) for card in world.cards() if card is not cancelled)


async def test_question_after_a_kill_before_the_first_event_is_not_lost(world: World) -> None:
    async with Life.of(world) as life:
        await world.agent.wait_for_subscriber(20)  # type: ignore[union-attr]
        await killed(life)
    await world.agent.ask(question("rpl-1", "sess_1"))
    async with Life.of(world):
        await world.until(lambda: world.card_saying("with rpl-1?"))


async def test_expiry_while_down_is_shown(world: World) -> None:
    async with Life.of(world) as life:
        card = await asked(world, "rpl-1", timeout_seconds=2, default_response="wait")
        until = datetime.fromtimestamp(float(card.ts) + 2.2, UTC)
        await killed(life)
    await asyncio.sleep((until - datetime.now(UTC)).total_seconds())  # the question's own time has to pass
    async with Life.of(world):
        await world.until(lambda: "Expired; the agent was told to assume" in said(card))
        assert not has_controls(card)
    assert world.agent.tries == []


async def test_answer_given_while_the_agent_is_down_arrives_after_a_restart(world: World) -> None:
    async with Life.of(world) as life:
        card = await asked(world, "rpl-1")
        matter = Matter(world, "rpl-1", "sess_rpl-1")
        await world.agent.down()  # type: ignore[union-attr]
        outcome = await world.workspace.click(FOLAKE, AGENTS, card.ts, label="Yes")
        assert outcome.ok
        await killed(life)
    async with Life.of(world):
        await world.until(lambda: "Sending" in said(card))
        await world.agent.up()  # type: ignore[union-attr]
        await world.until(lambda: world.agent.honoured("rpl-1"))
        await matter.confirm()
        matter.tries.append(Try(FOLAKE, True, ok=True))
        check_all(world, [matter])
