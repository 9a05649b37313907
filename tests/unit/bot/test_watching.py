"""The watch over the ledgers, on real files."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from bot.errors import StorageUnavailable
from bot.monitoring import LedgerWatch
from core.clarification import Clarification, parse_id
from core.errors import LedgerUnreadable
from core.index import Index, Summary, scan, summarize
from core.ledger import FileLedger
from core.records import Oddity
from core.router import Router
from tests.kit.builders import SLA, ask
from tests.kit.clocks import START, ManualClock
from tests.kit.files import replace_text
from tests.kit.until import until


@dataclass
class Told:
    """Stands for those who are told of changes, and for the notifier: keeps what it is told."""

    noted: list[Summary] = field(default_factory=list)
    unreadable: list[str] = field(default_factory=list)
    odd: list[Oddity] = field(default_factory=list)
    troubles: list[Exception] = field(default_factory=list)
    index: Index = field(default_factory=Index)

    def note(self, summary: Summary, record: Clarification) -> None:
        assert summarize(record) == summary
        self.noted.append(summary)
        self.index.put(summary)

    async def ledger_unreadable(self, error: LedgerUnreadable, agent_id: str | None = None) -> None:
        if self.troubles:
            raise self.troubles.pop()
        assert error.aside is not None
        self.unreadable.append(error.aside.name)

    async def record_unreadable(self, odd: Oddity) -> None:
        if self.troubles:
            raise self.troubles.pop()
        self.odd.append(odd)


@dataclass
class World:
    ledger: FileLedger
    router: Router
    watch: LedgerWatch
    told: Told
    clock: ManualClock

    @property
    def noted(self) -> list[tuple[str, str]]:
        return [(summary.id, summary.status) for summary in self.told.noted]

    def change(self, change: Callable[[dict[str, Any]], None]) -> None:
        """Another process changes the first record, in place."""
        path = self.ledger.path(42)
        raw = json.loads(path.read_text())
        change(raw["clarifications"][0])
        replace_text(path, json.dumps(raw))

    async def status(self, clarification: str = "CLR-42-001") -> str:
        return (await self.ledger.find(clarification, parse_id(clarification)[0])).status


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    clock, told, ledger = ManualClock(), Told(), FileLedger(tmp_path)

    def changed(record: Clarification) -> None:
        told.index.put(summarize(record))

    router = Router(ledger, clock, SLA, changed)
    watch = LedgerWatch(
        ledger=ledger, index=told.index, router=router, changed=told.note, notices=told, clock=clock  # type: ignore[arg-type]
    )  # fmt: skip
    yield World(ledger, router, watch, told, clock)
    ledger.close()


@pytest.fixture
async def watching(world: World) -> AsyncIterator[World]:
    task = asyncio.create_task(world.watch.run())
    await asyncio.sleep(0)
    yield world
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


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


def minutes(count: float) -> dict[str, Any]:
    return {"expires_at": START + timedelta(minutes=count), "asked_at": START}


async def test_watch_notices_what_another_process_wrote(watching: World) -> None:
    await watching.router.open(42, ask(**minutes(60)))
    watching.change(lambda raw: raw.update(status="escalated"))
    await until(lambda: watching.noted == [("CLR-42-001", "escalated")])


async def test_watch_takes_over_another_processs_answer(watching: World) -> None:
    await watching.router.open(42, ask(**minutes(60)))
    watching.change(answer)
    await until(lambda: any(s.reply == "sending" for s in watching.told.index))
    found = await watching.ledger.find("CLR-42-001", 42)
    assert (found.asked.response, found.asked.decided_by) == ("fine", "agent:architect")


async def test_watch_sees_another_processs_change_under_our_own_write(watching: World) -> None:
    await watching.router.open(42, ask(**minutes(60)))
    watching.change(answer)
    await watching.router.open(
        42, ask(reply_token="rpl_2", question="Other?", **minutes(60))
    )  # at once, on top
    await until(lambda: any(s.reply == "sending" for s in watching.told.index))


async def test_watch_is_not_told_of_our_own_writes(watching: World) -> None:
    for number in range(5):
        await watching.router.open(42, ask(reply_token=f"rpl_{number}", question=f"{number}?", **minutes(60)))
    (watching.ledger.directory / "issue-42.json").touch()
    watching.change(lambda raw: raw.update(blocking=False))
    await until(lambda: watching.noted)
    assert watching.noted == [("CLR-42-001", "pending")]


async def test_watch_tries_an_answer_again_that_could_not_be_taken_over(watching: World) -> None:
    await watching.router.open(42, ask(**minutes(60)))
    marker = watching.ledger.directory / "issue-42.json.lock"
    marker.write_text('{"agent": "rival"}')
    watching.change(answer)
    await until(lambda: watching.clock.sleeping)  # its lock was not had
    marker.unlink()
    await watching.clock.advance(2)
    await until(lambda: any(s.reply == "sending" for s in watching.told.index))


async def test_watch_begins_with_what_changed_before_it_did(world: World) -> None:
    await world.router.open(42, ask(**minutes(60)))
    found = scan(world.ledger)
    assert [summary.id for summary in found.summaries] == ["CLR-42-001"]
    world.change(lambda raw: raw.update(status="escalated"))
    task = asyncio.create_task(world.watch.run())
    await until(lambda: world.noted == [("CLR-42-001", "escalated")])
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_watch_pages_once_for_each_ledger_set_aside_by_whomever(watching: World) -> None:
    await watching.router.open(42, ask(**minutes(60)))
    watching.told.troubles = [StorageUnavailable()]
    watching.ledger.path(42).write_text("{")
    with suppress(LedgerUnreadable):  # unless the watch was there before it
        await FileLedger(watching.ledger.directory).read(42)  # another part, another process
    await until(lambda: watching.clock.sleeping or watching.told.unreadable)
    await watching.clock.advance(2)
    await until(lambda: watching.told.unreadable)
    (aside,) = watching.ledger.directory.glob("issue-42.json.unreadable-*")
    assert set(watching.told.unreadable) == {aside.name}


ODD = {"id": "CLR-42-002", "from": "rival", "status": "wondering", "topic": "secret"}


async def test_watch_tells_of_records_that_cannot_be_read_and_goes_on(watching: World) -> None:
    await watching.router.open(42, ask(**minutes(60)))
    raw = json.loads(watching.ledger.path(42).read_text())
    raw["clarifications"][0]["status"] = "escalated"
    raw["clarifications"][:0] = [ODD, "junk"]
    watching.told.troubles = [StorageUnavailable()]
    replace_text(watching.ledger.path(42), json.dumps(raw))
    await until(lambda: watching.clock.sleeping)
    await watching.clock.advance(2)
    await until(lambda: watching.noted == [("CLR-42-001", "escalated")])
    assert [(odd.issue, odd.name, odd.agent_id) for odd in watching.told.odd] == [
        (42, "CLR-42-002", "rival"),
        (42, "record 2", None),
    ]
    assert "status" in watching.told.odd[0].fields


async def test_watch_tells_of_records_that_could_not_be_read_at_the_start(world: World) -> None:
    replace_text(world.ledger.path(42), json.dumps({"clarifications": [ODD]}))
    assert scan(world.ledger).summaries == []
    task = asyncio.create_task(world.watch.run())
    await until(lambda: world.told.odd)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert [odd.name for odd in world.told.odd] == ["CLR-42-002"]


def test_scan_reads_on_after_a_ledger_that_cannot_be_read(tmp_path: Path) -> None:
    ledger = FileLedger(tmp_path)
    ledger.path(7).write_text("{")
    ledger.path(100_003).write_text('{"clarifications": [{"id": "junk"}]}')
    found = scan(ledger, 100_003)
    assert ([type(trouble) for trouble in found.troubles], found.highest_issue) == (
        [LedgerUnreadable],
        100_003,
    )
    assert found.summaries == []
    ledger.close()
