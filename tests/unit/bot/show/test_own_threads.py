"""What agents ask each other has a thread of its own, which is there with the first message of it, whenever the bot dies."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from bot.show.messages import Fresh
from bot.storage.ledger import DatabaseLedger
from core.clarification import Answer, Clarification
from core.records import parse
from core.transitions import escalated
from tests.kit.builders import ADE, NOW, ask, record
from tests.kit.clocks import START, ManualClock
from tests.kit.databases import open_store
from tests.kit.until import until
from tests.unit.bot.audiences import audiences
from tests.unit.bot.show.room import CHANNEL, Room

THERE = "C0ARCHITECTS"
ID, CARD, PAGE = "CLR-42-001", "card:CLR-42-001:1", f"page:1:{CHANNEL}"
ASKED = Fresh(CARD, "card", CHANNEL, ID, 1, "", ID, asker="engineer")
PAGED = Fresh(PAGE, "page", CHANNEL, producer="", session_id=ID)
BETWEEN_AGENTS = record(producer=None, session_id=None, reply_token=None, agent_id="engineer", to="architect")


@pytest.fixture
async def world(ledger: DatabaseLedger, tmp_path: Path) -> AsyncIterator[Room]:
    """An agent asked another, and the question is escalated."""
    made = Room(ledger, tmp_path)
    asked = escalated(BETWEEN_AGENTS, "stale", "Nobody answered.", NOW)
    await made.put(asked)
    made.took(asked)
    yield made
    await made.close()


async def sessions(world: Room) -> list[tuple[str, str, str, int, str | None]]:
    rows = await world.store.read("select * from sessions order by session_id")
    return [(r["producer"], r["session_id"], r["agent_id"], r["issue"], r["thread_ts"]) for r in rows]


async def test_thread_that_was_begun_is_kept_when_more_is_wanted(world: Room) -> None:
    await world.messages.want([ASKED])
    await world.messages.landed(await world.row(CARD), CHANNEL, "1.1", "d", final=False, opens_thread=True)
    await world.messages.want([Fresh("card:CLR-42-001:2", "card", CHANNEL, ID, 2, "", ID, asker="engineer")])
    assert await sessions(world) == [("", ID, "engineer", 42, "1.1")]
    thread = await world.messages.thread_at(CHANNEL, "1.1")
    assert thread is not None
    assert (thread.producer, thread.session_id, thread.issue) == ("", ID, 42)
    assert await world.messages.open_threads() == [thread]


async def test_page_waits_for_the_card_that_begins_its_thread(world: Room) -> None:
    await world.messages.want([PAGED])
    assert not (await world.wanted(PAGE)).waits, "no card is to come"

    await world.messages.want([ASKED])
    assert not (await world.wanted(PAGE)).waits, "the card waits for room, in a roll-up card"

    assert world.rollups.claim_card(ID)
    assert (await world.wanted(PAGE)).waits

    await world.messages.landed(await world.row(CARD), CHANNEL, "1.1", "d", final=False, opens_thread=True)
    page = await world.wanted(PAGE)
    assert (page.waits, page.thread_ts, page.broadcast) == (False, "1.1", False)


async def test_page_does_not_wait_for_a_card_that_cannot_be_shown(world: Room) -> None:
    await world.messages.want([ASKED, PAGED])
    world.rollups.claim_card(ID)
    await world.messages.give_up(await world.row(CARD), "is_archived", 0.0)
    assert not (await world.wanted(PAGE)).waits


class Life:
    """Everything halts for good at step `at`: a write or a post that begins, or a post that ended."""

    def __init__(self, at: int) -> None:
        self._left = at
        self.is_over = False

    def threatens(self, call: Callable[..., Awaitable[Any]], *, after: bool = False) -> Callable[..., Any]:
        async def doomed(*arguments: Any) -> Any:
            await self._step()
            result = await call(*arguments)
            if after:
                await self._step()
            return result

        return doomed

    async def _step(self) -> None:
        self._left -= 1
        if self._left <= 0:
            self.is_over = True
            await asyncio.Event().wait()


async def asked(room: Room, question: str) -> Clarification:
    of_producers = ("producer", "session_id", "reply_token", "event_id", "expires_at")
    asking = ask(
        **dict.fromkeys(of_producers),
        agent_id="engineer",
        to="architect",
        topic="storage",
        question=question,
        via="shell",
    )
    written = (await room.router.open(42, asking)).record
    room.delivery.record_changed(written)
    return written


async def lived(room: Room, life: Life) -> None:
    """A question was asked; until the life is over, or the question's thread is there."""
    await asked(room, "Which database?")
    write, post = room.store.write, room.slack.post
    room.store.write = life.threatens(write)  # type: ignore[method-assign]
    room.slack.post = life.threatens(post, after=True)  # type: ignore[method-assign]
    running = asyncio.create_task(room.delivery.run())
    while not life.is_over and not await room.messages.thread_of("", ID):  # noqa: ASYNC110 - nobody tells of a row
        await asyncio.sleep(0)
    room.store.write, room.slack.post = write, post  # type: ignore[method-assign]
    for task in (running, *(each for each in asyncio.all_tasks() if each.get_name().startswith("lane "))):
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_killed_at_any_step_shows_one_card_and_goes_on_in_its_thread(tmp_path: Path) -> None:
    for at in range(1, 100):
        folder, life = tmp_path / str(at), Life(at)
        folder.mkdir()
        store, clock = await open_store(folder / "clarify.db"), ManualClock(auto=True)
        people = audiences(people={"architect": (THERE,)})
        first = Room(DatabaseLedger(store), folder, audiences=people, clock=clock)
        again = DatabaseLedger(store)
        second = Room(again, folder, audiences=people, clock=clock, slack=first.slack)
        try:
            await lived(first, life)
            await goes_on(second)
        finally:
            await second.close()
            await store.close()
        if not life.is_over:
            assert at > 4, "there is less to survive than there was"
            return
    raise AssertionError("a card takes more than fifty writes")


async def goes_on(room: Room) -> None:
    """After a start there is one card, which begins the thread of all rounds."""
    for item in (await room.ledger.read(42)).records:
        if (found := parse(item)) is not None:
            room.took(found)
    await room.delivery.load()
    running = asyncio.create_task(room.delivery.run())
    while (thread := await room.messages.thread_of("", ID)) is None:  # noqa: ASYNC110 - as above
        await asyncio.sleep(0)
    ((where, card),) = room.slack.there.items()
    assert (where, card.thread_ts) == ((thread.channel, thread.ts), None)
    answered = await room.router.answer(ID, lambda _: Answer("SQLite", "SQLite"), ADE, START)
    room.delivery.record_changed(answered)
    await until(lambda: "SQLite" in room.slack.there[where].text)
    await asked(room, "Which version?")
    await until(lambda: len(room.slack.there) == 2)
    second = list(room.slack.there.values())[-1]
    assert (second.thread_ts, second.broadcast) == (thread.ts, True)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
