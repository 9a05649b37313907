"""What is written down of pages, and where their messages stand."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from bot.oncall import pages
from bot.oncall.incidents import Incident, Incidents, kind_of
from bot.oncall.pages import Batch, Destination, Item, Pages, Sending, covers
from bot.show import messages
from bot.show.messages import DELETED, Fresh, MessageRow, Messages
from bot.show.messenger import MessageOutcome
from bot.storage.opening import open_storage
from bot.storage.store import Store
from bot.storage.tx import Row, Tx
from core.escalation import Began, Failed, NewIncident, Paged
from tests.kit.clocks import START, ManualClock
from tests.kit.databases import Server

DM, POST = (
    Destination("slack", "U0ONCALL"),
    Destination("slack", "C0BOSSES", ("planner", "s1"), ("U0ONCALL",)),
)


class World:
    def __init__(self, store: Store) -> None:
        self.store, self.clock = store, ManualClock()
        self.incidents = Incidents(store, self.clock, lambda _: "platform")
        self.messages = Messages(store)
        self.pages = Pages(store, self.incidents, self.messages, self.clock)

    async def raised(self, key: str = "errored:1", clarification: str | None = None) -> Incident:
        incident = await self.incidents.raise_(NewIncident(key, "r", "t", clarification=clarification))
        assert incident is not None
        return incident

    async def sent(self, *incidents: Incident, to: tuple[Destination, ...] = (DM, POST)) -> list[Sending]:
        """A page that was written down and handed to delivery."""
        sendings = await self.pages.send(Batch(tuple(Item(each.id, 0) for each in incidents), to))
        for each in sendings:
            self.pages.watch(each)
        return list(sendings)

    async def became(self, target: str, outcome: MessageOutcome, page: int = 1) -> None:
        row = await self.messages.get(f"page:{page}:{target}")
        assert row is not None
        await self.pages.on_outcome(row, outcome)

    async def failures(self, incident: Incident) -> int:
        (read,) = await self.incidents.all([incident.id])
        return sum(isinstance(each, Failed) for each in read.history)


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    store = await open_storage(tmp_path / "clarify.db")
    yield World(store)
    await store.close()


@pytest.mark.parametrize(
    ("outcome", "seconds", "fails"),
    [
        (None, 14, False),
        (None, 15, True),
        ("tried", 1, False),
        ("tried", 2, True),
        ("sent", 15, False),
        ("failed", 0, True),
        ("dropped", 15, False),
    ],
)
async def test_message_has_fifteen_seconds_and_two_once_it_stumbled(
    world: World, outcome: MessageOutcome | None, seconds: int, fails: bool
) -> None:
    incident = await world.raised()
    await world.sent(incident, to=(DM,))
    assert world.pages.next_look() == START + timedelta(seconds=15)
    if outcome is not None:
        await world.became("U0ONCALL", outcome)
    await world.clock.advance(seconds)
    await world.pages.look()
    assert await world.failures(incident) == fails
    assert (world.pages.next_look() is None) is (fails or seconds == 15)


async def test_page_that_fails_in_two_places_fails_once(world: World) -> None:
    incident = await world.raised()
    await world.sent(incident)
    await world.became("U0ONCALL", "failed")
    await world.became("C0BOSSES", "failed")
    assert await world.failures(incident) == 1


async def test_page_that_lands_as_its_time_ends_did_not_fail(world: World) -> None:
    incident = await world.raised()
    await world.sent(incident, to=(DM,))
    await world.clock.advance(15)
    await world.store.run("update messages set channel = 'D1', ts = '1.1'")
    await world.pages.look()
    assert await world.failures(incident) == 0


async def test_page_waits_for_no_incident_that_another_bot_closes(postgres_server: Server) -> None:
    """Else each of two bots could wait for the other."""
    url, closing, stored = postgres_server.new(), threading.Event(), threading.Event()
    world, other = World(await open_storage(url)), await open_storage(url)
    one, two = [await world.raised(f"errored:{n}") for n in range(2)]

    def close(tx: Tx) -> None:
        tx.run("update incidents set closed_at = 1 where id in :ids", ids=[one.id, two.id])
        closing.set()
        assert stored.wait(60)

    closes = asyncio.create_task(other.write(close))
    try:
        assert await asyncio.to_thread(closing.wait, 60)
        items = (Item(two.id, 0), Item(one.id, None))
        async with asyncio.timeout(30):
            await world.pages.send(Batch(items, (DM,)), Batch((Item(two.id, 0),), ()))
            assert await world.incidents.all([two.id]) == [two]
    finally:
        stored.set()
        await closes
    await world.store.close()
    await other.close()


async def test_entry_that_cannot_be_read_keeps_nothing_from_starting(world: World) -> None:
    """Of a newer release, or broken."""
    incident = await world.raised()
    sql = "insert into incident_log (incident, entry) values (:id, :entry)"
    for entry in ('{"what": "sung", "at": 1}', '{"what": "closed"}', "{", "[]"):
        await world.store.run(sql, id=incident.id, entry=entry)
    await world.sent(incident, to=(DM,))
    await world.incidents.load()
    (known,) = world.incidents
    assert [type(each) for each in known.history] == [Began, Paged]
    await world.store.run("update incident_log set entry = '{'")
    await world.incidents.load()
    (known,) = world.incidents
    assert known.history == [Began(incident.began_at)]


async def test_handoff_that_is_forgotten_as_it_is_paged_is_not_brought_back(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    incident = await world.raised("handoff:planner:h1")
    card = Fresh("notice:planner:h1", "handoff", "C0BOSSES", body={"handoff": "a secret"})
    await world.messages.want([card])
    read = pages._card

    def forgotten_after(tx: Tx, about: Incident) -> Row | None:
        row = read(tx, about)
        messages.forget(tx, [card.key])
        return row

    monkeypatch.setattr(pages, "_card", forgotten_after)
    (sending,) = await world.sent(incident, to=(POST,))
    row = await world.messages.get(card.key)
    assert row is not None
    assert (row.body, row.page, row.failed) == (None, None, "forgotten")
    assert sending.key == "page:1:C0BOSSES"
    assert await world.messages.get(sending.key) is not None


def an_incident(
    number: int, key: str = "errored:1", about: str | None = None, *, over: bool = False
) -> Incident:
    began = START if over else None
    kind = kind_of(key)
    return Incident(number, key, kind, None, None, about, "t", "r", "b", None, START, began)


def a_page(
    number: int,
    *items: tuple[int, int | None],
    there: bool = True,
    failed: str | None = None,
    seen: bool = False,
) -> MessageRow:
    body = {"page": {"at": 0.0, "note": "", "items": items, "mentions": []}}
    ts = f"{number}.0" if there else None
    target = "U0ONCALL"
    return MessageRow(
        f"page:{number}:{target}", "page", target, page=number, body=body, ts=ts, failed=failed, seen=seen
    )


CARD, OTHER_CARD = (f"unplaceable:card:CLR-1-001:1:{channel}:is_archived" for channel in ("C1", "C2"))
REMINDER, TOLD = "unplaceable:nudge:CLR-1-001:1:1:C1:is_archived", "unplaceable:lost:CLR-1-001:U1:x"
ESCALATED = "escalated:CLR-1-001:1:x"
MINE, LATER = a_page(1, (1, 0)), a_page(2, (1, 1))


@pytest.mark.parametrize(
    ("mine", "others", "covered"),
    [
        (MINE, [], False),
        (MINE, [LATER], True),
        (LATER, [MINE], False),
        (MINE, [a_page(2, (2, 0))], False),
        (MINE, [a_page(2, (2, 0), (1, None))], True),
        (a_page(1, (1, 0), (2, 0)), [LATER], False),
        (a_page(1, (1, 0), (2, 0)), [LATER, a_page(3, (2, 0))], True),
        (a_page(1, (1, 0), (9, 0)), [LATER], True),  # the other one of it is over
        (
            a_page(1, (9, 0)),
            [a_page(2, (9, 0))],
            False,
        ),  # all of it is over: it says so, as nobody saw the other one
        (a_page(1, (9, 0)), [a_page(2, (9, 0), seen=True)], True),
        (a_page(2, (9, 0)), [a_page(1, (9, 0), seen=True)], False),
        (a_page(1, (9, 0)), [a_page(2, (9, 0), seen=True, there=False)], False),
        (a_page(1, (9, 0)), [a_page(2, (9, 0), seen=True, failed=DELETED)], False),
        (
            a_page(1, (9, 0)),
            [a_page(2, (9, 0), (1, 0), seen=True)],
            False,
        ),  # a list, which it disappears from
        # One that is there stays until another one is.
        (MINE, [a_page(2, (1, 0), there=False)], False),
        (a_page(1, (1, 0), there=False), [a_page(2, (1, 0), there=False)], True),
        # Unless the failure of the other one would not count as a failure of its step.
        (a_page(1, (1, 0), there=False), [a_page(2, (2, 0), (1, None), there=False)], False),
        (a_page(1, (1, 0), there=False), [a_page(2, (2, 0), (1, None))], True),
        (MINE, [a_page(2, (1, 0), failed=DELETED)], True),  # a newer one stands for that
        (MINE, [a_page(2, (1, 0), failed="forgotten")], False),
        (a_page(1, (1, 0), there=False), [a_page(2, (1, 0), there=False, failed="channel_not_found")], False),
    ],
)
def test_p12_page_is_covered(mine: MessageRow, others: list[MessageRow], covered: bool) -> None:
    incidents = [an_incident(1), an_incident(2, "errored:2"), an_incident(9, over=True)]
    assert covers(mine, [mine, *others], incidents) is covered


@pytest.mark.parametrize(
    ("first", "then", "covered"),
    [
        (CARD, ESCALATED, (True, False)),
        (ESCALATED, CARD, (False, True)),
        (CARD, OTHER_CARD, (True, False)),
        (REMINDER, ESCALATED, (True, False)),
        (CARD, REMINDER, (True, False)),
        (TOLD, ESCALATED, (False, False)),
        (ESCALATED, "escalated:CLR-2-001:1:x", (False, False)),
        (CARD, "escalated:CLR-2-001:1:x", (False, False)),
    ],
)
def test_p12_one_page_about_a_question_whatever_the_trouble_with_its_card(
    first: str, then: str, covered: tuple[bool, bool]
) -> None:
    about = [
        an_incident(n, key, key.split(":")[-3 if key.startswith("escalated") else 2])
        for n, key in enumerate((first, then), 1)
    ]
    pages = [a_page(1, (1, 0)), a_page(2, (2, 0))]
    assert tuple(covers(each, pages, about) for each in pages) == covered


def test_p12_closed_incident_about_a_question_stands_for_no_other() -> None:
    about = [an_incident(1, CARD, "CLR-1-001"), an_incident(2, ESCALATED, "CLR-1-001", over=True)]
    assert not covers(MINE, [MINE, a_page(2, (2, 0))], about)


async def test_all_pages_of_a_step_are_stored_together(world: World) -> None:
    """A kill between them would leave the step logged, and the direct messages without it."""
    commits, write = list[int](), world.store.write

    async def counting(work: Any) -> Any:
        found = await write(work)
        commits.append(len(await world.store.read("select key from messages")))
        return found

    items = [Item((await world.raised(f"errored:{number}")).id, 0) for number in range(3)]
    world.store.write = counting  # type: ignore[method-assign]
    await world.pages.send(*(Batch((item,), (DM, POST)) for item in items))
    assert commits == [6]


async def test_p12_newer_list_that_is_still_needed_does_not_stand_for_an_older_page(world: World) -> None:
    """What it says of the older page's question goes from it once that is over, as long as it lists others."""
    over, other = await world.raised("e:1", "CLR-1-001"), await world.raised("e:2", "CLR-2-001")
    await world.sent(over, to=(DM,))
    await world.sent(over, other, to=(DM,))
    await world.store.run("update messages set channel = 'D1', ts = page || '.1', seen = 1")
    await world.store.run("update incidents set closed_at = 1 where id = :id", id=over.id)
    row = await world.messages.get(f"page:1:{DM.target}")
    assert row is not None
    assert not await world.pages.is_covered(row)
    await world.store.run("update incidents set closed_at = 1 where id = :id", id=other.id)
    assert await world.pages.is_covered(row)
