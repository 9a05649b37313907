"""What agents ask each other has a thread of its own, which is there with the first message of it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from bot.delivery.lanes import Again, Done
from bot.delivery.messages import Fresh
from bot.storage.store import Store
from core.clarification import escalated
from tests.kit.builders import NOW, record
from tests.unit.bot.delivery.room import CHANNEL, Room

ID, CARD, PAGE = "CLR-42-001", "card:CLR-42-001:1", f"page:1:{CHANNEL}"
ASKED = Fresh(CARD, "card", CHANNEL, ID, 1, "", ID, asker="engineer")
PAGED = Fresh(PAGE, "page", CHANNEL, producer="", session_id=ID)
BETWEEN_AGENTS = record(producer=None, session_id=None, reply_token=None, agent_id="engineer", to="architect")


@pytest.fixture
async def world(store: Store, tmp_path: Path) -> AsyncIterator[Room]:
    """An agent asked another, and the question is escalated."""
    made = Room(store, tmp_path)
    asked = escalated(BETWEEN_AGENTS, "stale", "Nobody answered.", NOW)
    await made.put(asked)
    made.took(asked)
    yield made
    await made.close()


async def sessions(world: Room) -> list[tuple[str, str, str, int, str | None]]:
    rows = await world.store.read("select * from sessions order by session_id")
    return [(r["producer"], r["session_id"], r["agent_id"], r["issue"], r["thread_ts"]) for r in rows]


async def test_session_is_there_with_the_first_message_and_once(world: Room) -> None:
    nudge = Fresh("nudge:x", "nudge", CHANNEL, ID, 1, "", ID, body={}, wanted="n", asker="engineer")
    for _ in range(2):
        await world.messages.want([ASKED, nudge])
    assert await sessions(world) == [("", ID, "engineer", 42, None)]


async def test_thread_that_was_begun_is_kept_when_more_is_wanted(world: Room) -> None:
    await world.messages.want([ASKED])
    await world.messages.landed(await world.row(CARD), CHANNEL, "1.1", "d", final=False, opens_thread=True)
    await world.messages.want([Fresh("card:CLR-42-001:2", "card", CHANNEL, ID, 2, "", ID, asker="engineer")])
    assert await sessions(world) == [("", ID, "engineer", 42, "1.1")]
    thread = await world.messages.thread_at(CHANNEL, "1.1")
    assert thread is not None
    assert (thread.producer, thread.session_id, thread.issue) == ("", ID, 42)
    assert await world.messages.open_threads() == [thread]


async def test_message_of_a_producers_session_makes_none(world: Room) -> None:
    await world.messages.want([Fresh(CARD, "card", CHANNEL, ID, 1, "planner", "sess_1")])
    assert await sessions(world) == []


async def test_page_waits_for_the_card_that_begins_its_thread(world: Room) -> None:
    await world.messages.want([PAGED])
    assert not (await world.wanted(PAGE)).waits, "no card is to come"

    await world.messages.want([ASKED])
    assert not (await world.wanted(PAGE)).waits, "the card waits for room, in a roll-up card"

    assert world.rollups.may_have_card(ID)
    assert (await world.wanted(PAGE)).waits

    await world.messages.landed(await world.row(CARD), CHANNEL, "1.1", "d", final=False, opens_thread=True)
    page = await world.wanted(PAGE)
    assert (page.waits, page.thread_ts, page.broadcast) == (False, "1.1", True)


async def test_page_is_posted_once_its_thread_has_begun(world: Room) -> None:
    await world.messages.want([ASKED, PAGED])
    world.rollups.may_have_card(ID)
    assert isinstance(await world.deliver(PAGE), Again)
    assert not world.slack.there
    assert isinstance(await world.deliver(CARD), Done)
    assert isinstance(await world.deliver(PAGE), Done)
    card, page = world.slack.there.values()
    assert (card.thread_ts, page.thread_ts) == (None, next(iter(world.slack.there))[1])


async def test_page_does_not_wait_for_a_card_that_cannot_be_shown(world: Room) -> None:
    await world.messages.want([ASKED, PAGED])
    world.rollups.may_have_card(ID)
    await world.messages.give_up(CARD, "is_archived")
    assert not (await world.wanted(PAGE)).waits
