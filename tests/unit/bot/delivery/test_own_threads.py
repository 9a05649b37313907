"""What agents ask each other has a thread of its own, which is there with the first message of it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from bot.delivery.inflight import InFlight
from bot.delivery.lanes import Again, Done
from bot.delivery.memory import SqliteSlackMemory
from bot.delivery.messages import Fresh, Messages, Row
from bot.delivery.messenger import Messenger
from bot.delivery.pages import Drawn
from bot.delivery.rollups import Rollups
from bot.delivery.wishes import Wish, Wishes
from bot.storage.store import Store
from bot.views.render import Message, Renderer
from core.clarification import Clarification, escalated
from core.index import Index, summarize
from core.ledger import FileLedger
from tests.kit.builders import NOW, record
from tests.kit.clocks import ManualClock
from tests.unit.bot.audiences import audiences
from tests.unit.bot.delivery.test_messenger import Slack

RENDERER = Renderer()
ID, CARD, PAGE = "CLR-42-001", "card:CLR-42-001:1", "page:1:C0GOOD"
ASKED = Fresh(CARD, "card", "C0GOOD", ID, 1, "", ID, asker="engineer")


@dataclass
class World:
    store: Store
    ledger: FileLedger

    def __post_init__(self) -> None:
        self.messages, self.index = Messages(self.store), Index()
        self.rollups = Rollups(self.index, audiences())
        self.wishes = Wishes(
            self.ledger,
            self.messages,
            self.rollups,
            RENDERER,
            audiences(),
            clock=ManualClock(),
            draw=self.drawn,
        )

    async def drawn(self, row: Row) -> Drawn:
        return Drawn(Message("It is escalated", []), final=False, needed=True)

    async def sessions(self) -> list[tuple[str, str, str, int, str | None]]:
        rows = await self.store.read("select * from sessions order by session_id")
        return [(r["producer"], r["session_id"], r["agent_id"], r["issue"], r["thread_ts"]) for r in rows]

    async def wish(self, key: str) -> Wish:
        row = await self.messages.get(key)
        assert row is not None
        wish = await self.wishes.of(row)
        assert isinstance(wish, Wish)
        return wish

    def escalated(self) -> Clarification:
        made = record(producer=None, session_id=None, reply_token=None, agent_id="engineer", to="architect")
        return escalated(made, "stale", "Nobody answered.", NOW)


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    store, ledger = await Store.open(tmp_path / "clarify.db"), FileLedger(tmp_path)
    yield World(store, ledger)
    await store.close()
    ledger.close()


async def test_session_is_there_with_the_first_message_and_once(world: World) -> None:
    nudge = Fresh("nudge:x", "nudge", "C0GOOD", ID, 1, "", ID, body={}, wanted="n", asker="engineer")
    for _ in range(2):
        await world.messages.want([ASKED, nudge])
    assert await world.sessions() == [("", ID, "engineer", 42, None)]


async def test_thread_that_was_begun_is_kept_when_more_is_wanted(world: World) -> None:
    await world.messages.want([ASKED])
    row = await world.messages.get(CARD)
    assert row is not None
    await world.messages.landed(row, "C0GOOD", "1.1", "d", final=False, opens_thread=True)
    await world.messages.want([Fresh("card:CLR-42-001:2", "card", "C0GOOD", ID, 2, "", ID, asker="engineer")])
    assert await world.sessions() == [("", ID, "engineer", 42, "1.1")]
    memory = SqliteSlackMemory(world.store, InFlight())
    thread = await memory.thread_at("C0GOOD", "1.1")
    assert thread is not None
    assert (thread.producer, thread.session_id, thread.issue) == ("", ID, 42)
    assert await memory.open_threads() == [thread]


async def test_message_of_a_producers_session_makes_none(world: World) -> None:
    await world.messages.want([Fresh(CARD, "card", "C0GOOD", ID, 1, "planner", "sess_1")])
    assert await world.sessions() == []


async def test_page_waits_for_the_card_that_begins_its_thread(world: World) -> None:
    summary = summarize(world.escalated())
    world.index.put(summary)
    world.rollups.update(summary)
    await world.messages.want([Fresh(PAGE, "page", "C0GOOD", producer="", session_id=ID)])
    assert not (await world.wish(PAGE)).waits, "no card is to come"

    await world.messages.want([ASKED])
    assert not (await world.wish(PAGE)).waits, "the card waits for room, in a roll-up card"

    assert world.rollups.may_have_card(ID)
    assert (await world.wish(PAGE)).waits

    row = await world.messages.get(CARD)
    assert row is not None
    await world.messages.landed(row, "C0GOOD", "1.1", "d", final=False, opens_thread=True)
    wish = await world.wish(PAGE)
    assert (wish.waits, wish.thread_ts, wish.broadcast) == (False, "1.1", True)


async def test_page_is_posted_once_its_thread_has_begun(world: World) -> None:
    record = world.escalated()
    await world.ledger.transact(42, lambda book: book.put(record))
    world.index.put(summarize(record))
    world.rollups.update(summarize(record))
    await world.messages.want([ASKED, Fresh(PAGE, "page", "C0GOOD", producer="", session_id=ID)])
    world.rollups.may_have_card(ID)
    slack = Slack(ManualClock())

    async def never(row: Row, code: str) -> bool:
        raise AssertionError(code)

    async def landed(row: Row, wish: Wish) -> None:
        pass

    messenger = Messenger(
        gateway=slack,  # type: ignore[arg-type]
        messages=world.messages,
        wishes=world.wishes,
        clock=ManualClock(),
        unplaceable=never,
        landed=landed,
    )
    assert isinstance(await messenger.deliver(PAGE), Again)
    assert not slack.there
    assert isinstance(await messenger.deliver(CARD), Done)
    assert isinstance(await messenger.deliver(PAGE), Done)
    card, page = slack.there.values()
    assert (card.thread_ts, page.thread_ts) == (None, next(iter(slack.there))[1])


async def test_page_does_not_wait_for_a_card_that_cannot_be_shown(world: World) -> None:
    summary = summarize(world.escalated())
    world.index.put(summary)
    world.rollups.update(summary)
    await world.messages.want([ASKED, Fresh(PAGE, "page", "C0GOOD", producer="", session_id=ID)])
    world.rollups.may_have_card(ID)
    await world.messages.give_up(CARD, "is_archived")
    assert not (await world.wish(PAGE)).waits
