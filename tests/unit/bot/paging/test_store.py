"""What is written down of pages, and read back after a restart."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest

from bot.delivery.inflight import InFlight
from bot.delivery.messages import Messages
from bot.delivery.pageplaces import PagePlaces
from bot.delivery.store import Store
from bot.paging.board import Board, Open
from bot.paging.gate import Gate
from bot.paging.model import Destination, FreshIncident, Incident, Sending, kind_of
from bot.paging.sending import merged
from bot.paging.shown import Shown
from bot.paging.store import Batch, IncidentStore
from core.escalation import Began, Closed, Failed, Handed, Happening, NotMine, Sent, Snoozed, Taken
from tests.clocks import START

GROUP = ("errored", "platform")
DM, POST = (
    Destination("slack", "U0ONCALL"),
    Destination("slack", "C0BOSSES", ("planner", "s1"), ("U0ONCALL",)),
)


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    opened = await Store.open(tmp_path / "clarify.db")
    yield opened
    await opened.close()


def fresh(key: str = "errored:1", clarification: str | None = None) -> FreshIncident:
    return FreshIncident(key, "errored", "t", "r", policy="platform", clarification=clarification)


async def begun(
    incidents: IncidentStore, key: str = "errored:1", clarification: str | None = None
) -> Incident:
    incident = await incidents.begin(fresh(key, clarification), START)
    assert incident is not None
    return incident


def batch(*incidents: Incident, to: tuple[Destination, ...] = (DM, POST)) -> Batch:
    return Batch("errored", "platform", 0, tuple(each.id for each in incidents), to)


async def test_incident_is_kept_once_also_when_it_is_closed(store: Store) -> None:
    incidents = IncidentStore(store)
    first = await begun(incidents)
    assert await incidents.begin(fresh(), START) is None
    assert await incidents.open() == [first]
    await incidents.log([(first.id, Closed(START))])
    assert await incidents.begin(fresh(), START) is None
    assert await incidents.open() == []


async def test_history_is_read_back_as_it_was_written(store: Store) -> None:
    incidents = IncidentStore(store)
    incident = await begun(incidents)
    at = START + timedelta(seconds=1, microseconds=123)
    history: list[Happening] = [
        Sent(at, 0),
        Failed(at, 0),
        Sent(at, -1),
        Taken(at, "U1"),
        Handed(at, "U2", "U1"),
        Snoozed(at, at + timedelta(minutes=10), "U2"),
        NotMine(at, "U2"),
        Closed(at),
    ]
    await incidents.log([(incident.id, each) for each in history])
    assert await incidents.histories([incident.id]) == {incident.id: [Began(START), *history]}


async def test_entry_of_another_release_keeps_nobody_from_starting(store: Store) -> None:
    incidents = IncidentStore(store)
    incident = await begun(incidents)
    await store.execute("insert into incident_log (incident, at, what) values (1, 0, 'teleported')")
    assert await incidents.histories([incident.id]) == {incident.id: [Began(START)]}


async def test_page_is_written_with_its_messages_and_who_it_reaches(store: Store) -> None:
    incidents, messages = IncidentStore(store), Messages(store)
    incident = await begun(incidents)
    sendings = await incidents.send(batch(incident), START)
    assert [each.message for each in sendings] == ["page:1:U0ONCALL", "page:1:C0BOSSES"]
    row = await messages.get("page:1:C0BOSSES")
    assert row is not None
    assert (row.kind, row.body, row.producer, row.session_id) == ("page", None, "planner", "s1")
    assert await incidents.paged() == {incident.id: {"U0ONCALL"}}
    assert (await incidents.histories([incident.id]))[incident.id][-1] == Sent(START, 0)
    assert [each.message for each in await incidents.owed()] == ["page:1:C0BOSSES", "page:1:U0ONCALL"]
    assert await incidents.pages_since(START) == [(GROUP, {incident.id}, START)]
    assert await incidents.pages_since(START + timedelta(seconds=1)) == []


async def test_page_with_nobody_to_send_to_failed(store: Store) -> None:
    incidents = IncidentStore(store)
    incident = await begun(incidents)
    assert await incidents.send(batch(incident, to=()), START) == ()
    assert (await incidents.histories([incident.id]))[incident.id] == [Began(START), Failed(START, 0)]
    assert await incidents.page(1) is None


@pytest.mark.parametrize(
    ("states", "failures"),
    [
        ([("U0ONCALL", "sent"), ("C0BOSSES", "sent")], 0),
        ([("U0ONCALL", "failed"), ("C0BOSSES", "sent")], 1),
        ([("U0ONCALL", "failed"), ("C0BOSSES", "failed")], 1),
        ([("U0ONCALL", "late"), ("U0ONCALL", "failed")], 1),
        ([("U0ONCALL", "late"), ("U0ONCALL", "sent")], 1),
        ([("U0ONCALL", "sent"), ("U0ONCALL", "late")], 0),
        ([("U0ONCALL", "dropped"), ("U0ONCALL", "failed")], 0),
        ([("U0ONCALL", "sent"), ("U0ONCALL", "failed")], 1),
    ],
)
async def test_failure_is_written_once_a_page(
    store: Store, states: list[tuple[str, str]], failures: int
) -> None:
    incidents = IncidentStore(store)
    one, other, over = [await begun(incidents, f"errored:{n}") for n in range(3)]
    await incidents.log([(over.id, Closed(START))])
    await incidents.send(batch(one, other, over), START)
    told = []
    for target, state in states:
        told.append(await incidents.settle(Sending(1, 0, Destination("slack", target)), state, None, START))
    assert [each for each in told if each is not None] == [(0, (one.id, other.id))] * failures
    for incident in (one, other):
        history = (await incidents.histories([incident.id]))[incident.id]
        assert sum(isinstance(each, Failed) for each in history) == failures


async def test_page_is_covered_by_newer_ones_about_all_that_is_open_of_it(store: Store) -> None:
    incidents, shown = IncidentStore(store), Shown(store)
    one, other = [await begun(incidents, f"errored:{n}") for n in range(2)]
    await incidents.send(batch(one, other, to=(DM,)), START)
    await incidents.send(batch(one, to=(DM,)), START)
    assert not await shown.is_covered("page:1:U0ONCALL", posted=False)
    await incidents.send(batch(other, to=(DM,)), START)
    assert await shown.is_covered("page:1:U0ONCALL", posted=False)
    assert not await shown.is_covered("page:1:U0ONCALL", posted=True), "the newer ones are not there yet"
    await store.execute("update messages set channel = 'D1', ts = key where key <> 'page:1:U0ONCALL'")
    assert await shown.is_covered("page:1:U0ONCALL", posted=True)
    assert not await shown.is_covered("page:3:U0ONCALL", posted=False)


async def test_reply_in_a_pages_thread_finds_its_question(store: Store) -> None:
    incidents, places = IncidentStore(store), PagePlaces(store, InFlight())
    incident = await begun(incidents, clarification="CLR-42-001")
    await incidents.send(batch(incident, to=(DM,)), START)
    await store.execute("update messages set channel = 'D1', ts = '1.1'")
    assert await places.clarifications_at("D1", "1.1") == ("CLR-42-001",)
    assert await places.clarifications_at("D1", "1.2") == ()


@pytest.mark.parametrize(
    ("key", "kind"),
    [
        ("refused:CLR-42-001:1", "refused"),
        ("unplaceable:card:CLR-42-001:1:C1:is_archived", "unplaceable"),
        ("ledger:issue-1.json", "ledger"),
        ("planner:too large", "trouble"),
        ("", "trouble"),
    ],
)
def test_kind_by_key(key: str, kind: str) -> None:
    assert kind_of(key) == kind


def test_places_are_merged() -> None:
    threads = [Destination("slack", "C1", ("p", str(n)), (f"U{n}",)) for n in range(2)]
    assert merged([*threads, DM, DM]) == (Destination("slack", "C1", None, ("U0", "U1")), DM)
    assert merged(threads[:1] * 2) == (threads[0],)


def test_gate_opens_at_once_then_later_and_later_while_the_storm_lasts() -> None:
    gate, at = Gate(), START
    waits = []
    for number in range(7):
        at = gate.opens(GROUP, (number,), None, at)
        waits.append((at - START).total_seconds())
        gate.passed(GROUP, (number,), at)
    assert waits == [0, 5, 15, 35, 55, 75, 95]
    calm = at + timedelta(minutes=5)
    assert gate.opens(GROUP, (8,), None, calm) == calm
    gate.passed(GROUP, (8,), calm)
    assert gate.opens(GROUP, (9,), None, calm) == calm + timedelta(seconds=5)
    assert gate.opens(("ledger", None), (9,), None, calm) == calm


def test_gate_is_not_shut_by_what_is_paged_again() -> None:
    gate, at = Gate(), START
    for _ in range(20):
        assert gate.opens(GROUP, (1,), None, at) == at
        gate.passed(GROUP, (1,), at)
        at += timedelta(seconds=2)


def test_gate_lets_the_first_three_that_have_to_be_decided_through() -> None:
    gate = Gate()
    for number in range(3):
        assert gate.opens(("escalated", None), (number,), None, START) == START
        gate.passed(("escalated", None), (number,), START)
    assert gate.opens(("escalated", None), (3,), None, START) == START + timedelta(seconds=5)


def test_gate_waits_a_quarter_of_the_time_left_at_most_and_not_for_a_clock_set_back() -> None:
    gate = Gate()
    gate.passed(GROUP, (1,), START)
    assert gate.opens(GROUP, (2,), START + timedelta(seconds=8), START) == START + timedelta(seconds=2)
    assert gate.opens(GROUP, (2,), START - timedelta(hours=1), START) == START
    early = START - timedelta(hours=1)
    assert gate.opens(GROUP, (2,), None, early) == early


async def test_board_gives_what_is_due_once_by_its_latest_time(store: Store) -> None:
    board, incidents = Board(), IncidentStore(store)
    one, other = [Open(await begun(incidents, f"errored:{n}"), []) for n in range(2)]
    for each in (one, other):
        board.put(each)
        board.schedule(each, START)
    board.schedule(other, START + timedelta(seconds=9))
    assert board.take_due(START) == [one]
    assert board.take_due(START) == []
    assert board.next_due() == START + timedelta(seconds=9)
    board.remove(other.incident.id)
    assert board.next_due() is None
    assert board.named("errored:0") is one
