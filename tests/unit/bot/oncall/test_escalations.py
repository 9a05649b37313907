"""The incidents follow the ledgers, whoever writes them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from bot.views.codec import PagePress
from core.clarification import Decider, Holder
from tests.kit.builders import changed
from tests.kit.ledgers import write_records
from tests.kit.until import until
from tests.unit.bot.oncall.stage import ADE, ONCALL, World

DECIDER = Decider("user:slack/T1/U1", "slack", "T1", "U1")


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    made = await World(tmp_path).start()
    yield made
    await made.stop()


async def test_closed_while_the_bot_was_away_is_closed_on_start(world: World) -> None:
    record = await world.escalated()
    await world.paged(1)
    world.deaf = True
    await world.router.abandon(record.id, DECIDER)
    await world.restart()
    await until(lambda: world.about(record.id) is None)
    await world.pass_by(600)
    await world.paged(1)
    await until(lambda: not world.slack.standing())


async def test_taken_again_by_the_same_person_is_known(world: World) -> None:
    """By a command: the ledger's holder is the same, only newer."""
    record = await world.escalated()
    await world.paged(1)
    await world.router.take(record.id, Holder(user=ONCALL, team="T1", at=world.clock.now()))
    await world.pass_by(15 * 60 + 1)
    await world.paged(2)
    await world.router.take(record.id, Holder(user=ONCALL, team="T1", at=world.clock.now()))
    await world.pass_by(600)
    await world.paged(2)
    world.escalations.record_changed(await world.ledger.find(record.id))
    await world.quiet()
    assert (await world.log()).count("taken") == 2


async def test_escalation_whose_record_comes_back_is_paged_again(world: World) -> None:
    record = await world.escalated()
    await world.paged(1)
    await world.store.run("update clarifications set id = 'CLR-4200-001'")  # as if it were gone
    await world.restart()
    await world.quiet()
    assert world.about(record.id) is not None
    await world.actions.press(PagePress("take", 1), ADE)
    assert world.about(record.id) is None
    await world.store.run("update clarifications set id = :id", id=record.id)
    world.escalations.record_changed(await world.ledger.find(record.id))
    await until(lambda: world.about(record.id))
    await world.pass_by(61)
    assert len(world.slack.pages()) >= 2


async def test_late_news_of_an_escalation_that_is_over_pages_nobody(world: World) -> None:
    record = await world.escalated()
    await world.paged(1)
    await world.router.abandon(record.id, DECIDER)
    await until(lambda: world.about(record.id) is None)
    world.escalations.record_changed(record)
    await world.pass_by(61)
    await world.paged(1)


async def test_odd_words_of_other_implementations_stop_nobodys_pages(world: World) -> None:
    words = "half \ud800 a character"
    odd = await world.escalated(43, "rpl_odd")
    await world.quiet()
    named = {"topic": words, "from_": words, "agent_id": None}
    world.escalations.record_changed(changed(odd, id="CLR-44-001", issue_number=44, **named))
    await until(lambda: world.about("CLR-44-001"))
    assert not any(task.done() for task in world.tasks)


async def test_unreadable_record_keeps_its_page(world: World) -> None:
    record = await world.escalated()
    await world.paged(1)
    await world.stop()
    write_records(world.folder, 42, {"id": record.id})
    await world.start()
    await world.pass_by(301)
    await world.paged(2)
    assert world.about(record.id) is not None


async def test_fault_of_ours_with_one_record_stops_nobodys_pages(world: World) -> None:
    broken = changed(await world.escalated(), id="CLR-45-001", issue_number=45)
    object.__setattr__(broken, "topic", object())
    world.escalations.record_changed(broken)
    await world.quiet()
    assert not any(task.done() for task in world.tasks)
