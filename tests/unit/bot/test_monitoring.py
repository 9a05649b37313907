"""The monitor at work: the real monitor, router and ledgers, on a clock that is moved by hand."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from bot.monitoring import Monitoring
from core.clarification import Answer, Clarification, Closed, parse_id
from core.index import Summary, summarize
from core.ledger import FileLedger
from core.monitor import Monitor
from core.router import Router
from tests.kit.builders import ADE, SLA, ask, record
from tests.kit.clocks import START, ManualClock
from tests.kit.files import replace_text
from tests.kit.until import until

ORDER = ("architect", "engineer", "reviewer")


@dataclass
class World:
    ledger: FileLedger
    router: Router
    monitoring: Monitoring
    clock: ManualClock
    written: list[Clarification] = field(default_factory=list)

    async def open(self, issue: int, tag: str = "rpl_1", **more: Any) -> str:
        question = ask(reply_token=tag, event_id=tag, asked_at=START, received_at=START, **more)
        return (await self.router.open(issue, question)).record.id

    async def find(self, clarification: str = "CLR-42-001") -> Clarification:
        return await self.ledger.find(clarification, parse_id(clarification)[0])

    async def status(self, clarification: str = "CLR-42-001") -> str:
        return (await self.find(clarification)).status

    def statuses(self, clarification: str) -> list[str]:
        """Every state that was written of one, in order."""
        return [record.status for record in self.written if record.id == clarification]

    async def moved(self, minutes: float, condition: Callable[[], object]) -> None:
        """Let time pass, and what it made due be done."""
        await self.clock.advance(minutes * 60)
        await until(condition)


def world_of(folder: Path, *, alarm: bool = True) -> World:
    clock, ledger = ManualClock(), FileLedger(folder)
    written: list[Clarification] = []

    def changed(record: Clarification) -> None:
        written.append(record)
        monitoring.note(summarize(record))

    router = Router(ledger, clock, SLA, changed)
    monitoring = Monitoring(
        monitor=Monitor(SLA, ORDER), router=router, ledger=ledger, clock=clock, alarm=alarm
    )
    return World(ledger, router, monitoring, clock, written)


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    made = world_of(tmp_path)
    yield made
    made.ledger.close()


async def _run(world: World) -> AsyncIterator[World]:
    task = asyncio.create_task(world.monitoring.run())
    yield world
    assert not task.done()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    world.ledger.close()


@pytest.fixture
async def running(tmp_path: Path) -> AsyncIterator[World]:
    async for world in _run(world_of(tmp_path)):
        yield world


@pytest.fixture
async def without_alarm(tmp_path: Path) -> AsyncIterator[World]:
    async for world in _run(world_of(tmp_path, alarm=False)):
        yield world


async def test_alarm_nudges_then_escalates_then_closes(running: World) -> None:
    await running.open(42, expires_at=START + timedelta(hours=4))
    await running.clock.advance(29.9 * 60)
    assert running.statuses("CLR-42-001") == ["pending"]
    await running.moved(0.2, lambda: len(running.written) == 2)
    assert (running.written[-1].status, running.written[-1].asked.nudges) == ("pending", 1)
    await running.moved(30, lambda: len(running.written) == 3)
    assert (running.written[-1].status, running.written[-1].asked.escalated_for) == ("escalated", "stale")
    await running.moved(180, lambda: len(running.written) == 4)
    assert running.statuses("CLR-42-001")[-1] == "abandoned"


async def test_alarm_comes_at_half_and_three_quarters_of_a_short_time(running: World) -> None:
    await running.open(42, expires_at=START + timedelta(minutes=4))
    await running.moved(2.01, lambda: running.written[-1].asked.nudges == 1)
    await running.moved(1.01, lambda: running.written[-1].status == "escalated")
    await running.moved(1.01, lambda: running.written[-1].status == "abandoned")


async def test_p10_end_of_what_may_have_been_answered_waits_until_that_is_known(tmp_path: Path) -> None:
    clock, ledger = ManualClock(), FileLedger(tmp_path)
    held = {"CLR-42-001": START + timedelta(minutes=9), "CLR-43-001": START + timedelta(minutes=9)}

    def holds(clarification: str) -> datetime | None:
        until = held.get(clarification)
        return until if until is not None and until > clock.now() else None

    written: list[Clarification] = []

    def changed(record: Clarification) -> None:
        written.append(record)
        monitoring.note(summarize(record))

    router = Router(ledger, clock, SLA, changed, may_be_answered=lambda each: holds(each) is not None)
    monitoring = Monitoring(
        monitor=Monitor(SLA, ORDER), router=router, ledger=ledger, clock=clock, held=holds
    )
    running = _run(World(ledger, router, monitoring, clock, written))
    world = await anext(running)
    for issue, minutes in ((42, 4), (43, 4), (44, 4)):
        await world.open(issue, f"rpl_{issue}", expires_at=START + timedelta(minutes=minutes))
    await world.moved(5, lambda: world.statuses("CLR-44-001")[-1] == "abandoned")
    with pytest.raises(Closed) as late:
        await router.answer("CLR-42-001", lambda _: Answer("y", "y"), ADE, clock.now())
    assert late.value.record.is_open  # told that it is over, and not made so
    assert "abandoned" not in world.statuses("CLR-42-001") + world.statuses("CLR-43-001")
    del held["CLR-42-001"]
    monitoring.release()
    await until(lambda: world.statuses("CLR-42-001")[-1] == "abandoned")
    await world.clock.advance(60)
    assert "abandoned" not in world.statuses("CLR-43-001")
    await world.moved(4, lambda: world.statuses("CLR-43-001")[-1] == "abandoned")
    assert await anext(running, None) is None


async def test_late_start_nudges_and_escalates_at_once_in_this_order(running: World) -> None:
    await running.open(42, expires_at=START + timedelta(hours=4))
    await running.clock.advance(0)
    running.clock.jump(START + timedelta(hours=3, minutes=30))
    await running.moved(0.02, lambda: running.written[-1].status == "escalated")
    assert [(record.status, record.asked.nudges) for record in running.written] == [
        ("pending", 0),
        ("pending", 1),
        ("escalated", 1),
    ]


async def test_alarm_leaves_answered_ones(running: World) -> None:
    await running.open(42, expires_at=START + timedelta(minutes=10))
    await running.router.answer("CLR-42-001", lambda _: Answer("x", "x"), ADE, START)
    await running.clock.advance(3600)
    await running.monitoring.catch_up()
    assert running.statuses("CLR-42-001") == ["pending", "answered"]


async def test_without_alarm_only_a_trigger_acts(without_alarm: World) -> None:
    await without_alarm.open(42, expires_at=None)
    await without_alarm.clock.advance(3600)
    assert without_alarm.statuses("CLR-42-001") == ["pending"]
    without_alarm.monitoring.trigger()
    await until(lambda: without_alarm.written[-1].asked.nudges == 1)


async def test_locked_ledger_is_come_back_to_and_does_not_hold_up_others(world: World) -> None:
    await world.open(42, expires_at=START + timedelta(minutes=1))
    await world.open(43, "rpl_2", expires_at=START + timedelta(minutes=2))
    world.clock.jump(START + timedelta(minutes=3))
    marker = world.ledger.directory / "issue-42.json.lock"
    marker.write_text('{"agent": "rival"}')
    await world.monitoring.catch_up()
    assert [await world.status(f"CLR-{n}-001") for n in (42, 43)] == ["pending", "abandoned"]
    marker.unlink()
    await world.clock.advance(2)
    await world.monitoring.catch_up()
    assert await world.status() == "abandoned"


async def test_circle_whose_ledger_is_locked_is_still_broken_later(world: World) -> None:
    await world.open(43, agent_id="reviewer", to="engineer", topic="port", expires_at=None)
    marker = world.ledger.directory / "issue-43.json.lock"
    marker.write_text('{"agent": "rival"}')
    await world.open(42, "rpl_2", agent_id="engineer", to="reviewer", topic="names", expires_at=None)
    await world.monitoring.catch_up()
    assert await world.status("CLR-43-001") == "pending"
    marker.unlink()
    await world.clock.advance(2)
    await world.monitoring.catch_up()
    assert await world.status("CLR-43-001") == "escalated"
    assert await world.status("CLR-42-001") == "pending"  # the most upstream one goes on waiting


async def test_circle_across_issues_is_broken_but_for_the_most_upstream(running: World) -> None:
    for issue, (asks, asked) in enumerate(
        [("reviewer", "engineer"), ("engineer", "architect"), ("architect", "reviewer")], start=41
    ):
        await running.open(issue, f"rpl_{issue}", agent_id=asks, to=asked, expires_at=None)
    await until(lambda: [r.id for r in running.written if r.status == "escalated"] != [])
    await until(lambda: len([r for r in running.written if r.status == "escalated"]) == 2)
    assert [await running.status(f"CLR-{n}-001") for n in (41, 42, 43)] == [
        "escalated",
        "escalated",
        "pending",
    ]
    words = (await running.find("CLR-41-001")).thread[-1].body
    assert "CLR-42-001" in words or "CLR-43-001" in words


async def test_same_question_after_an_answer_is_stuck(running: World) -> None:
    await running.open(42, topic="deploy", expires_at=None)
    await running.router.answer("CLR-42-001", lambda _: Answer("x", "x"), ADE, START)
    await running.router.settle_reply("CLR-42-001", "rpl_1", "delivered")
    await running.open(42, "rpl_2", topic="deploy", expires_at=None)
    await until(lambda: running.written[-1].status == "escalated")
    found = await running.find()
    assert (found.round, found.asked.escalated_for) == (2, "stuck")


async def test_ledger_that_is_torn_does_not_stop_the_run(world: World) -> None:
    await world.open(42, expires_at=START + timedelta(minutes=1))
    await world.open(43, "rpl_2", expires_at=START + timedelta(minutes=1))
    world.ledger.path(42).write_text("{")
    world.clock.jump(START + timedelta(minutes=3))
    await world.monitoring.catch_up()
    assert await world.status("CLR-43-001") == "abandoned"


async def test_ledger_that_is_put_back_is_attended_after_all(world: World) -> None:
    """Set aside as torn, repaired by somebody, put back: nothing in it changed, so nobody notes it again."""
    await world.open(42, expires_at=START + timedelta(hours=4))
    whole = world.ledger.path(42).read_bytes()
    world.ledger.path(42).write_text("{")
    world.clock.jump(START + timedelta(minutes=31))
    await world.monitoring.catch_up()
    world.clock.jump(START + timedelta(minutes=33))
    await world.monitoring.catch_up()  # it is gone by now
    world.ledger.path(42).write_bytes(whole)
    world.clock.jump(START + timedelta(minutes=35))
    await world.monitoring.catch_up()
    assert (await world.find()).asked.nudges == 1


async def test_fault_of_ours_with_one_finding_stops_nobody(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await world.open(42, expires_at=START + timedelta(minutes=1))
    await world.open(43, "rpl_2", expires_at=START + timedelta(minutes=1))
    attend = world.router.attend

    async def broken(clarification: str) -> object:
        if clarification == "CLR-42-001":
            raise ZeroDivisionError
        return await attend(clarification)

    monkeypatch.setattr(world.router, "attend", broken)
    world.clock.jump(START + timedelta(minutes=3))
    await world.monitoring.catch_up()
    assert await world.status("CLR-43-001") == "abandoned"


async def test_many_topics_to_compare_leave_the_others_their_turns(world: World) -> None:
    for issue in range(40):
        asks, asked = ("engineer", "architect") if issue % 2 else ("architect", "engineer")
        more = {"agent_id": asks, "to": asked, "topic": "which port", "expires_at": None}
        world.monitoring.note(summarize(record(issue, 1, **more)))
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    task = asyncio.create_task(others())
    found = await world.monitoring._suspects()
    task.cancel()
    assert sorted(each.clarification for each in found) == sorted(f"CLR-{n}-001" for n in range(40))
    assert {len(each.others) for each in found} == {8}
    assert turns >= 5


async def test_foreign_record_is_nudged_and_escalated_too(running: World) -> None:
    stamp = START.isoformat().replace("+00:00", "Z")
    question = {"round": 1, "from": "engineer", "type": "question", "body": "Which port?", "timestamp": stamp}
    raw = {
        "id": "CLR-7-001", "issueNumber": 7, "from": "engineer", "to": "architect", "topic": "port",
        "blocking": True, "status": "pending", "round": 1, "maxRounds": 5, "created": stamp,
        "staleAfter": stamp, "resolvedAt": None, "thread": [question],
    }  # fmt: skip
    replace_text(running.ledger.path(7), json.dumps({"issueNumber": 7, "clarifications": [raw]}))
    record = await running.ledger.find("CLR-7-001", 7)
    running.monitoring.note(summarize(record))
    await until(lambda: running.written and running.written[-1].asked.nudges == 1)
    await running.moved(30.1, lambda: running.written[-1].status == "escalated")


async def test_what_is_noted_late_never_acts_on_what_is_closed(world: World) -> None:
    await world.open(42, expires_at=START + timedelta(minutes=1))
    stale: Summary = summarize(await world.find())
    await world.router.answer("CLR-42-001", lambda _: Answer("x", "x"), ADE, START)
    world.monitoring.note(replace(stale))
    world.clock.jump(START + timedelta(hours=1))
    await world.monitoring.catch_up()
    assert await world.status() == "answered"
