"""The monitor and the watch over the records at work: the real ones, on real rows, on a clock that is moved by hand."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from bot.monitoring import LedgerWatch, Monitoring
from bot.signing import Owing
from bot.storage.ledger import DatabaseLedger
from core.clarification import Answer, Clarification
from core.index import Index
from core.ledgerfiles import as_item
from core.monitor import Monitor
from core.records import dump
from core.router import Router
from core.transitions import Closed
from tests.kit import builders
from tests.kit.builders import ADE, SLA, ask
from tests.kit.clocks import START, ManualClock
from tests.kit.databases import records_in
from tests.kit.ledgers import change_record, held, write_records
from tests.kit.until import impatient, until

ORDER = ("architect", "engineer", "reviewer")
HOUR = START + timedelta(hours=1)


class World:
    """`written`: what we wrote; `seen`: what others wrote, as the watch tells it; `held`: what does not expire yet."""

    def __init__(self, ledger: DatabaseLedger, folder: Path, *, alarm: bool = True) -> None:
        self.ledger, self.folder = ledger, folder
        self.clock, self.index = ManualClock(), Index()
        self.written: list[Clarification] = []
        self.seen: list[tuple[str, str]] = []
        self.held: dict[str, datetime] = {}
        self.router = Router(
            self.ledger,
            self.clock,
            SLA,
            self._changed,
            may_be_answered=lambda each: self._held(each) is not None,
        )
        self.monitoring = Monitoring(
            monitor=Monitor(SLA, ORDER),
            router=self.router,
            ledger=self.ledger,
            clock=self.clock,
            held=self._held,
            alarm=alarm,
        )
        self.heard = asyncio.Event()
        self.watch = LedgerWatch(
            ledger=self.ledger,
            index=self.index,
            changed=self._seen,
            heard=self.heard.set,
            owing=Owing(ledger=self.ledger, router=self.router, clock=self.clock),
            clock=self.clock,
        )

    def _changed(self, record: Clarification) -> None:
        self.written.append(record)
        self.index.put(record)
        self.monitoring.record_changed(record)

    def _seen(self, record: Clarification) -> None:
        self.seen.append((record.id, record.status))
        self.index.put(record)

    def _held(self, clarification: str) -> datetime | None:
        until = self.held.get(clarification)
        return until if until is not None and until > self.clock.now() else None

    @asynccontextmanager
    async def running(self, *, watch: bool = False) -> AsyncIterator[World]:
        task = asyncio.create_task(self.watch.run() if watch else self.monitoring.run())
        await asyncio.sleep(0)
        yield self
        assert not task.done()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    async def open(self, issue: int, tag: str = "rpl_1", **more: Any) -> str:
        facts = {"expires_at": HOUR} | more
        question = ask(reply_token=tag, event_id=tag, asked_at=START, received_at=START, **facts)
        return (await self.router.open(issue, question)).record.id

    async def find(self, clarification: str = "CLR-42-001") -> Clarification:
        return await self.ledger.find(clarification)

    async def status(self, clarification: str = "CLR-42-001") -> str:
        return (await self.find(clarification)).status

    def statuses(self, clarification: str) -> list[str]:
        """Every state that was written of one, in order."""
        return [record.status for record in self.written if record.id == clarification]

    async def moved(self, minutes: float, condition: Callable[[], object]) -> None:
        """Let time pass, and what it made due be done."""
        await self.clock.advance(minutes * 60)
        await until(condition)

    @contextmanager
    def locked(self, clarification: str) -> Iterator[None]:
        """Another bot has a record's lock; we do not wait for it as long as in life."""
        with held(clarification), impatient(self.router, seconds=0.8):
            yield

    def change(self, change: Callable[[dict[str, Any]], None]) -> None:
        """Another process changes the first record."""
        change_record(self.folder, 42, change)


@pytest.fixture
def world(ledger: DatabaseLedger, tmp_path: Path) -> World:
    return World(ledger, tmp_path)


@pytest.fixture
async def running(world: World) -> AsyncIterator[World]:
    async with world.running() as made:
        yield made


@pytest.fixture
async def watching(world: World) -> AsyncIterator[World]:
    async with world.running(watch=True) as made:
        yield made


async def test_p10_end_of_what_may_have_been_answered_waits_until_that_is_known(running: World) -> None:
    world = running
    world.held.update({f"CLR-{issue}-001": START + timedelta(minutes=9) for issue in (42, 43)})
    for issue in (42, 43, 44):
        await world.open(issue, f"rpl_{issue}", expires_at=START + timedelta(minutes=4))
    await world.moved(5, lambda: world.statuses("CLR-44-001")[-1] == "abandoned")
    with pytest.raises(Closed) as late:
        await world.router.answer("CLR-42-001", lambda _: Answer("y", "y"), ADE, world.clock.now())
    assert late.value.record.is_open  # told that it is over, and not made so
    assert "abandoned" not in world.statuses("CLR-42-001") + world.statuses("CLR-43-001")
    del world.held["CLR-42-001"]
    world.monitoring.release()
    await until(lambda: world.statuses("CLR-42-001")[-1] == "abandoned")
    await world.clock.advance(60)
    assert "abandoned" not in world.statuses("CLR-43-001")
    await world.moved(4, lambda: world.statuses("CLR-43-001")[-1] == "abandoned")


class ReadMeanwhile(dict[str, datetime]):
    """Holds what is looked up once, and no longer by the next look."""

    def get(self, key: str, default: Any = None) -> Any:
        return self.pop(key, default)


async def test_p10_end_that_is_held_no_longer_once_that_was_decided_comes_at_once(running: World) -> None:
    running.held = ReadMeanwhile({"CLR-42-001": START + timedelta(minutes=9)})
    await running.open(42, expires_at=START + timedelta(minutes=4))
    await running.moved(5, lambda: running.statuses("CLR-42-001")[-1] == "abandoned")
    assert not running.held


async def test_late_start_nudges_and_escalates_at_once_in_this_order(running: World) -> None:
    await running.open(42, expires_at=START + timedelta(hours=4))
    await running.clock.advance(0)
    running.clock.jump(START + timedelta(hours=3, minutes=30))
    await running.moved(0.02, lambda: running.written[-1].status == "escalated")
    assert [(record.status, record.attention.nudges) for record in running.written] == [
        ("pending", 0),
        ("pending", 1),
        ("escalated", 1),
    ]


async def test_without_alarm_only_a_trigger_acts(ledger: DatabaseLedger, tmp_path: Path) -> None:
    async with World(ledger, tmp_path, alarm=False).running() as world:
        await world.open(42, expires_at=None)
        await world.clock.advance(3600)
        assert world.statuses("CLR-42-001") == ["pending"]
        world.monitoring.trigger()
        await until(lambda: world.written[-1].attention.nudges == 1)


async def test_locked_record_is_come_back_to_and_does_not_hold_up_others(world: World) -> None:
    await world.open(42, expires_at=START + timedelta(minutes=1))
    await world.open(43, "rpl_2", expires_at=START + timedelta(minutes=2))
    world.clock.jump(START + timedelta(minutes=3))
    with world.locked("CLR-42-001"):
        await world.monitoring.catch_up()
        assert [await world.status(f"CLR-{n}-001") for n in (42, 43)] == ["pending", "abandoned"]
    await world.clock.advance(2)
    await world.monitoring.catch_up()
    assert await world.status() == "abandoned"


async def test_circle_whose_record_is_locked_is_still_broken_later(world: World) -> None:
    await world.open(43, agent_id="reviewer", to="engineer", topic="port", expires_at=None)
    await world.open(42, "rpl_2", agent_id="engineer", to="reviewer", topic="names", expires_at=None)
    with world.locked("CLR-43-001"):
        await world.monitoring.catch_up()
        assert await world.status("CLR-43-001") == "pending"
    await world.clock.advance(2)
    await world.monitoring.catch_up()
    assert await world.status("CLR-43-001") == "escalated"
    assert await world.status("CLR-42-001") == "pending"  # the most upstream one goes on waiting


async def test_record_that_is_torn_does_not_stop_the_run(world: World) -> None:
    await world.open(42, expires_at=START + timedelta(minutes=1))
    await world.open(43, "rpl_2", expires_at=START + timedelta(minutes=1))
    await world.ledger.store.run("update clarifications set body = '{' where issue = 42")
    world.clock.jump(START + timedelta(minutes=3))
    await world.monitoring.catch_up()
    assert await world.status("CLR-43-001") == "abandoned"


async def test_record_that_is_put_back_is_attended_after_all(world: World) -> None:
    """Torn, gone, put back by somebody: nothing in it changed, so nobody notes it again."""
    await world.open(42, expires_at=START + timedelta(hours=4))
    run = world.ledger.store.run
    await run("update clarifications set body = '{' || body")
    world.clock.jump(START + timedelta(minutes=31))
    await world.monitoring.catch_up()
    await run("update clarifications set body = substr(body, 2), id = 'CLR-4200-001'")
    world.clock.jump(START + timedelta(minutes=33))
    await world.monitoring.catch_up()  # it is gone by now
    await run("update clarifications set id = 'CLR-42-001'")
    world.clock.jump(START + timedelta(minutes=35))
    await world.monitoring.catch_up()
    assert (await world.find()).attention.nudges == 1


async def test_fault_of_ours_with_one_finding_stops_nobody(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await world.open(42, expires_at=START + timedelta(minutes=1))
    await world.open(43, "rpl_2", expires_at=START + timedelta(minutes=1))
    apply_due = world.router.apply_due

    async def broken(clarification: str) -> object:
        if clarification == "CLR-42-001":
            raise ZeroDivisionError
        return await apply_due(clarification)

    monkeypatch.setattr(world.router, "apply_due", broken)
    world.clock.jump(START + timedelta(minutes=3))
    await world.monitoring.catch_up()
    assert await world.status("CLR-43-001") == "abandoned"


async def test_what_is_noted_late_never_acts_on_what_is_closed(world: World) -> None:
    await world.open(42, expires_at=START + timedelta(minutes=1))
    stale: Clarification = await world.find()
    await world.router.answer("CLR-42-001", lambda _: Answer("x", "x"), ADE, START)
    world.monitoring.record_changed(stale)
    world.clock.jump(START + timedelta(hours=1))
    await world.monitoring.catch_up()
    assert await world.status() == "answered"


def answer(raw: dict[str, Any]) -> None:
    entry = {
        "round": 1,
        "from": "architect",
        "type": "answer",
        "body": "fine",
        "timestamp": "2026-11-21T09:01:00Z",
    }
    raw["status"] = "answered"
    raw["thread"].append(entry)


async def test_watch_sees_another_processs_change_under_our_own_write(watching: World) -> None:
    await watching.open(42)
    watching.change(answer)
    await watching.open(42, "rpl_2", question="Other?")  # at once, on top
    await until(lambda: watching.seen == [("CLR-42-001", "answered")])


async def test_watch_tells_of_what_needs_nothing_any_more(watching: World) -> None:
    """Its card may show something else, and somebody may wait for it."""
    await asyncio.wait_for(watching.heard.wait(), 60)  # as it begins
    watching.heard.clear()
    over = builders.changed(builders.record(42, 9), status="abandoned", revision=7)
    write_records(watching.folder, 42, as_item(dump(over)))
    await asyncio.wait_for(watching.heard.wait(), 60)
    await until(lambda: watching.seen == [("CLR-42-009", "abandoned")])


async def test_watch_is_not_told_of_our_own_writes(watching: World) -> None:
    for number in range(5):
        await watching.open(42, f"rpl_{number}", question=f"{number}?")
    watching.change(lambda raw: raw.update(blocking=False))
    await until(lambda: watching.seen)
    assert watching.seen == [("CLR-42-001", "pending")]


async def test_watch_does_not_undo_what_we_wrote_while_it_read(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = await world.open(42)
    world.change(lambda raw: raw.update(blocking=False))
    news = world.ledger.news

    async def slow(clarification: str) -> Clarification | None:
        record = await news(clarification)
        await world.router.escalate(name, "by hand", "it is urgent")
        return record

    with monkeypatch.context() as patch:
        patch.setattr(world.ledger, "news", slow)
        assert await world.watch.look(name)
    found = world.index.get(name)
    assert (world.seen, found and found.status) == ([], "escalated")


async def test_watch_goes_on_after_a_record_that_cannot_be_read(watching: World) -> None:
    await watching.open(42)
    record = records_in(watching.folder / "clarify.db", 42)[0]
    write_records(
        watching.folder, 42, {"id": "CLR-42-002", "topic": "secret"}, record | {"status": "escalated"}
    )
    await until(lambda: watching.seen == [("CLR-42-001", "escalated")])


async def test_watch_begins_with_what_changed_before_it_did(world: World) -> None:
    name = await world.open(42)
    assert [each.id async for some in world.ledger.load() for each in some] == [name]
    world.change(lambda raw: raw.update(status="escalated"))
    async with world.running(watch=True):
        await until(lambda: world.seen == [(name, "escalated")])
