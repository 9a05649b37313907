"""Pages at work, by a clock that stands still until it is moved: first at once, on and on until somebody takes it."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from bot.oncall.incidents import Incidents
from bot.oncall.pager import Windows, merged
from bot.oncall.pages import Destination
from bot.views.codec import PagePress
from core.clarification import Holder
from core.escalation import NewIncident
from tests.kit.clocks import START
from tests.kit.until import until
from tests.unit.bot.judges import labels
from tests.unit.bot.oncall.stage import ADE, AGENTS, BOSSES, DM, DM_SECOND, FALLBACK, ONCALL, SECOND, World

GROUP, HERE = ("errored", "platform"), Destination("slack", ONCALL)
CONTROLS = ["Take", "Hand to…", "Snooze", "Not mine"]


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    made = await World(tmp_path).start()
    yield made
    await made.stop()


async def test_taken_but_not_answered_is_paged_again(world: World) -> None:
    await world.escalated()
    await world.paged(1)
    await world.actions.press(PagePress("take", 1), ADE)
    await world.pass_by(15 * 60 + 1)
    await world.paged(2)
    await world.actions.press(PagePress("take", 2), ADE)
    await world.pass_by(600)
    await world.paged(2)


@pytest.mark.parametrize("how", ["refused", "nobody", "late", "broken", "outside"])
async def test_what_does_not_arrive_takes_the_next_step_at_once(world: World, how: str) -> None:
    if how == "refused":
        world.slack.refuses.add(DM)
    elif how == "nobody":
        world.places.nobody.add("dm")
    elif how == "late":
        world.slack.stuck.add(DM)
    elif how == "broken":
        world.slack.broken.add(DM)
    else:
        world.slack.refuses |= {DM, BOSSES}
        world.outside.refuses = True
    await world.raised()
    if how in {"late", "broken"}:
        await world.quiet()
        await world.pass_by(16 if how == "late" else 3)
    place = FALLBACK if how == "outside" else BOSSES
    await world.paged(1, place)
    await world.pass_by(60)
    assert len(world.slack.pages(place)) == 1
    assert "failed" in await world.log()


async def test_storm_is_few_pages_and_everything_is_in_one(world: World) -> None:
    await world.raised()
    await world.paged(1)
    for _ in range(199):
        await world.raised()
    await world.quiet()
    assert len(world.slack.pages()) == 1
    await world.pass_by(6)
    _, page = await world.paged(2)
    assert "Escalated: 200 waiting" in page.text
    assert "And 180 more" in page.text
    assert [label for label in labels(page.blocks) if label.startswith("Open")] == ["Open"] * 20
    assert len(world.slack.standing()) == 1
    rows = await world.store.read("select distinct incident from incident_log where page is not null")
    assert len(rows) == 200


async def test_all_pages_of_a_step_are_stored_together(world: World) -> None:
    """A kill between them would leave the step logged, and the direct messages without it."""
    world.places.to["dm"] = (
        Destination("slack", AGENTS, ("planner", "sess_4")),
        Destination("slack", ONCALL),
    )
    commits: list[set[str]] = []
    write = world.store.write

    async def counting(work: Any) -> Any:
        before = await world.store.read(
            "select target from messages where kind = 'page' order by page, target"
        )
        found = await write(work)
        after = await world.store.read(
            "select target from messages where kind = 'page' order by page, target"
        )
        if new := {row["target"] for row in after[len(before) :]}:
            commits.append(new)
        return found

    for issue in range(1, 4):
        await world.escalated(issue, f"rpl_{issue}", session_id=f"sess_{issue}")
        await world.quiet()
    world.store.write = counting  # type: ignore[method-assign]
    await world.escalated(4, "rpl_4", session_id="sess_4")
    await world.quiet()
    await world.pass_by(6)
    assert {AGENTS, ONCALL} in commits


async def test_alike_pages_wait_no_longer_than_a_quarter_of_the_time_left(world: World) -> None:
    for _ in range(2):
        await world.raised(expires_at=world.clock.now() + timedelta(seconds=8))
    await world.pass_by(2.1)
    await world.paged(2)


async def test_take_of_a_page_about_many_takes_all_of_it(world: World) -> None:
    for issue in range(1, 21):
        await world.escalated(issue, f"rpl_{issue}", session_id=f"sess_{issue}")
    await world.quiet()
    await world.pass_by(6)
    pages = world.slack.pages()
    assert len(pages) <= 6, "two alone, three of the next round alone, and all the others"
    named = int(re.findall(r"page:(\d+):", repr([page.metadata for page in pages]))[-1])
    for page in range(1, named + 1):
        await world.actions.press(PagePress("take", page), ADE)
    count = len(world.slack.pages())
    await world.pass_by(600)
    await world.paged(count)
    for issue in range(1, 21):
        record = await world.ledger.find(f"CLR-{issue}-001")
        assert record.attention.taken_by is not None


async def test_poisoned_incident_stops_nobody(world: World) -> None:
    world.places.broken.add("errored:planner:1")
    await world.raised()
    await world.raised()
    (page,) = await world.paged(1)
    assert "planner stopped 2" in page.text
    world.places.broken.clear()
    await world.pass_by(61)
    assert "planner stopped 1" in repr([draft.text for draft in await world.paged(2)])


async def test_outage_ends_with_one_page_not_with_all_that_were_missed(world: World) -> None:
    world.slack.down = True
    await world.raised()
    for _ in range(4):
        await world.pass_by(290)  # so that none is due in the moment in which the outage ends
    assert world.slack.pages() == []
    world.slack.down = False
    for _ in range(70):
        await world.clock.advance(1)
        await world.quiet()
        if world.slack.pages():
            break
    await world.paged(1)


@pytest.mark.parametrize("moment", ["begun", "sent", "posted", "taken", "handed", "outside"])
async def test_kill_loses_and_doubles_nothing(world: World, moment: str) -> None:
    """Killed between any two durable steps; built anew from the same files."""
    match moment:
        case "begun":
            await Incidents(world.store, world.clock, lambda _: "platform").raise_(
                NewIncident("errored:x", "why", "x stopped")
            )
        case "sent":
            world.slack.stuck.add(DM)
            await world.raised()
            await world.quiet()
            world.slack.stuck.clear()
        case "posted":
            world.slack.unknown.add(DM)
            await world.raised()
            await until(world.slack.pages)
        case "taken" | "handed":
            await world.escalated()
            await world.paged(1)
            user, write = (ONCALL, world.router.take) if moment == "taken" else (SECOND, world.router.hand)
            world.deaf = True  # killed before the pages were told
            await world.clock.advance(1)  # entries of one moment are taken for the same
            await write("CLR-42-001", Holder(user=user, team="T1", at=world.clock.now()))
        case _:
            world.places.nobody |= {"dm", "channel"}
            world.slack.refuses.add(FALLBACK)
            world.outside.held = asyncio.Event()
            await world.raised()
            await world.quiet()
    await world.restart()
    if moment == "outside":
        assert world.outside.held is not None
        world.outside.held.set()
        await until(lambda: world.outside.sent)
        await world.quiet()
        assert len(world.outside.sent) == 1
        return
    await until(world.slack.pages)
    await world.pass_by(12)
    await world.paged(1)
    if moment == "handed":
        await world.paged(1, DM_SECOND)
    if moment == "taken":
        await world.pass_by(600)
        await world.paged(1)


async def test_what_was_given_up_before_a_restart_is_no_page_of_the_next_cycle(world: World) -> None:
    """All the same it is still tried; but only a page of the cycle's own can fail, so that the next step goes."""
    world.slack.down = world.outside.refuses = True
    await world.raised()
    for _ in range(4):
        await world.quiet()
        await world.pass_by(16)
    world.outside.refuses = False
    await world.stop()
    await world.clock.advance(15 * 60)
    await world.start()
    for _ in range(4):
        await world.quiet()
        await world.pass_by(16)
    assert len(world.outside.sent) == 1


def test_places_are_merged() -> None:
    threads = [Destination("slack", "C1", ("p", str(n)), (f"U{n}",)) for n in range(2)]
    assert merged([*threads, HERE, HERE]) == (Destination("slack", "C1", None, ("U0", "U1")), HERE)
    assert merged(threads[:1] * 2) == (threads[0],)


def test_window_opens_at_once_then_later_and_later_while_the_storm_lasts() -> None:
    windows, at = Windows(), START
    waits = []
    for number in range(7):
        at = windows.opens(GROUP, (number,), None, at)
        waits.append((at - START).total_seconds())
        windows.passed(GROUP, (number,), at)
    assert waits == [0, 5, 15, 35, 55, 75, 95]
    calm = at + timedelta(minutes=5)
    assert windows.opens(GROUP, (8,), None, calm) == calm
    windows.passed(GROUP, (8,), calm)
    assert windows.opens(GROUP, (9,), None, calm) == calm + timedelta(seconds=5)
    assert windows.opens(("ledger", None), (9,), None, calm) == calm


def test_window_is_not_shut_by_what_is_paged_again() -> None:
    windows, at = Windows(), START
    for _ in range(20):
        assert windows.opens(GROUP, (1,), None, at) == at
        windows.passed(GROUP, (1,), at)
        at += timedelta(seconds=2)


def test_window_lets_the_first_three_that_have_to_be_decided_through() -> None:
    windows = Windows()
    for number in range(3):
        assert windows.opens(("escalated", None), (number,), None, START) == START
        windows.passed(("escalated", None), (number,), START)
    assert windows.opens(("escalated", None), (3,), None, START) == START + timedelta(seconds=5)


def test_window_waits_a_quarter_of_the_time_left_at_most_and_not_for_a_clock_set_back() -> None:
    windows = Windows()
    windows.passed(GROUP, (1,), START)
    assert windows.opens(GROUP, (2,), START + timedelta(seconds=8), START) == START + timedelta(seconds=2)
    assert windows.opens(GROUP, (2,), START - timedelta(hours=1), START) == START
    early = START - timedelta(hours=1)
    assert windows.opens(GROUP, (2,), None, early) == early
