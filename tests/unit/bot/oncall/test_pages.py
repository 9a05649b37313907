"""What is written down of pages, and where their messages stand."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest

from bot.delivery.messages import Messages
from bot.delivery.messenger import MessageOutcome
from bot.oncall.incidents import Incident, Incidents
from bot.oncall.pages import Batch, Destination, Item, PagePlace, Pages, Sending
from bot.storage.store import Store
from core.escalation import Failed, NewIncident
from tests.kit.clocks import START, ManualClock

GROUP = ("errored", "platform")
DM, POST = (
    Destination("slack", "U0ONCALL"),
    Destination("slack", "C0BOSSES", ("planner", "s1"), ("U0ONCALL",)),
)


class World:
    def __init__(self, store: Store) -> None:
        self.store, self.clock = store, ManualClock()
        self.incidents = Incidents(store, self.clock, lambda _: "platform")
        self.messages = Messages(store)
        self.pages = Pages(store, self.incidents, self.messages.in_flight, self.clock)

    async def raised(self, key: str = "errored:1", clarification: str | None = None) -> Incident:
        incident = await self.incidents.raise_(NewIncident(key, "r", "t", clarification=clarification))
        assert incident is not None
        return incident

    async def sent(self, *incidents: Incident, to: tuple[Destination, ...] = (DM, POST)) -> list[Sending]:
        """A page that was written down and handed to delivery."""
        sendings = await self.pages.send(Batch(GROUP, 0, tuple(Item(each.id, 0) for each in incidents), to))
        for each in sendings:
            self.pages.watch(each)
        return list(sendings)

    async def became(self, target: str, outcome: MessageOutcome, page: int = 1) -> None:
        row = await self.messages.get(f"page:{page}:{target}")
        assert row is not None
        await self.pages.on_outcome(row, outcome)

    async def failures(self, incident: Incident) -> int:
        history = (await self.incidents.histories([incident.id]))[incident.id]
        return sum(isinstance(each, Failed) for each in history)

    async def state(self, target: str) -> str:
        row = await self.store.read_one(
            "select state from page_sendings where target = :target", target=target
        )
        assert row is not None
        return str(row["state"])


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    store = await Store.open(tmp_path / "clarify.db")
    yield World(store)
    await store.close()


@pytest.mark.parametrize(
    ("outcome", "seconds", "state"),
    [
        (None, 14, "wanted"),
        (None, 15, "late"),
        ("tried", 2, "late"),
        ("sent", 0, "sent"),
        ("failed", 0, "failed"),
        ("dropped", 0, "dropped"),
    ],
)
async def test_message_has_fifteen_seconds_and_two_once_it_stumbled(
    world: World, outcome: MessageOutcome | None, seconds: int, state: str
) -> None:
    incident = await world.raised()
    await world.sent(incident, to=(DM,))
    assert world.pages.next_look() == START + timedelta(seconds=15)
    if outcome is not None:
        await world.became("U0ONCALL", outcome)
    await world.clock.advance(seconds)
    await world.pages.look()
    assert await world.state("U0ONCALL") == state
    assert await world.failures(incident) == (state in {"late", "failed"})
    assert (world.pages.next_look() is None) is (state != "wanted")


async def test_page_is_covered_by_newer_ones_about_all_that_is_open_of_it(world: World) -> None:
    one, other = [await world.raised(f"errored:{n}") for n in range(2)]
    await world.sent(one, other, to=(DM,))
    await world.sent(one, to=(DM,))
    assert not await world.pages.is_covered("page:1:U0ONCALL", posted=False)
    await world.sent(other, to=(DM,))
    assert await world.pages.is_covered("page:1:U0ONCALL", posted=False)
    assert not await world.pages.is_covered("page:1:U0ONCALL", posted=True), (
        "the newer ones are not there yet"
    )
    await world.store.run("update messages set channel = 'D1', ts = key where key <> 'page:1:U0ONCALL'")
    assert await world.pages.is_covered("page:1:U0ONCALL", posted=True)
    assert not await world.pages.is_covered("page:3:U0ONCALL", posted=False)
    assert [each.key for each in await world.pages.older("page:3:U0ONCALL")] == ["page:1:U0ONCALL"]


CARD, OTHER_CARD = (f"unplaceable:card:CLR-1-001:1:{channel}:is_archived" for channel in ("C1", "C2"))
REMINDER, TOLD = "unplaceable:nudge:CLR-1-001:1:1:C1:is_archived", "unplaceable:lost:CLR-1-001:U1:x"
ESCALATED = "escalated:CLR-1-001:1:x"


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
async def test_p12_one_page_about_a_question_whatever_the_trouble_with_its_card(
    world: World, first: str, then: str, covered: tuple[bool, bool]
) -> None:
    for key in (first, then):
        await world.sent(await world.raised(key, "CLR-2-001" if "CLR-2" in key else "CLR-1-001"), to=(DM,))
    await world.store.run("update messages set channel = 'D1', ts = key")
    found = [await world.pages.is_covered(f"page:{n}:U0ONCALL", posted=True) for n in (1, 2)]
    assert tuple(found) == covered


async def test_page_that_is_not_there_yet_is_not_left_to_one_whose_failure_would_not_count_for_it(
    world: World,
) -> None:
    one, other = [await world.raised(f"errored:{n}") for n in range(2)]
    await world.sent(one, to=(DM,))
    await world.pages.send(Batch(GROUP, 0, (Item(other.id, 0), Item(one.id, None)), (DM,)))
    assert not await world.pages.is_covered("page:1:U0ONCALL", posted=False)
    await world.sent(one, to=(DM,))
    assert await world.pages.is_covered("page:1:U0ONCALL", posted=False)


async def test_open_pages_are_those_of_questions_that_wait_and_begin_threads(world: World) -> None:
    of = [await world.raised(f"e:{about}", about) for about in ("CLR-1-001", "CLR-2-001", None)]
    await world.sent(*of, to=(DM,))
    assert await world.pages.open_pages() == []  # it is not there yet
    await world.store.run("update messages set channel = 'D1', ts = '1.1'")
    await world.incidents.take([of[1].id], "U1")
    assert await world.pages.open_pages() == [PagePlace("D1", "1.1", "CLR-1-001")]
    await world.store.run("update messages set thread_ts = '1.0'")
    assert await world.pages.open_pages() == []


async def test_message_can_only_mean_pages_that_its_author_got_before(world: World) -> None:
    await world.sent(await world.raised("e:1", "CLR-1-001"), to=(DM,))
    user = DM.target

    async def before(ts: str, who: str = user, *, in_doubt: bool = True) -> set[str]:
        return await world.pages.paged_before(who, ts, in_doubt=in_doubt)

    assert await before("2.0") == set()  # it is not there yet
    await world.store.run("update messages set channel = 'D1', intent_at = 1")
    assert await before("2.0") == {"CLR-1-001"}  # it may be there
    assert await before("2.0", in_doubt=False) == set()
    await world.store.run("update messages set ts = '10.000000', intent_at = null")
    assert await before("9.0") == set()
    assert await before("10.000001", in_doubt=False) == {"CLR-1-001"}
    assert await before("10.000001", "U0OTHER") == set()
    await world.store.run("update messages set failed = 'deleted'")  # a newer page stands for it
    assert await before("10.000001") == {"CLR-1-001"}


async def test_restart_knows_whom_it_reached_and_what_is_owed(world: World) -> None:
    await world.sent(await world.raised(clarification="CLR-42-001"))
    await world.store.run("update messages set channel = 'D1', ts = '1.1' where target = 'U0ONCALL'")
    again = World(world.store)
    await again.incidents.restore()
    assert [each.message for each in await again.pages.restore()] == ["page:1:C0BOSSES"]
    assert again.incidents.paged("CLR-42-001") == {"U0ONCALL"}
    assert await world.state("U0ONCALL") == "sent"
