"""What the keeper makes of what is noted: in a real file, beside a real rival for its lock."""

from __future__ import annotations

import asyncio
import json
import logging
import threading
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from core import clarification as transitions
from core.agents import AgentState, StatusFile, StatusKeeper
from core.clarification import Answer, Clarification, Decider
from core.index import summarize
from core.ledger import FileLedger
from core.locks import Locks
from core.records import Book
from tests.clocks import ManualClock, until
from tests.unit.core.records import NOW, SLA, record

LATER = NOW + timedelta(minutes=5)
ARCHITECT = Decider("agent:architect", "responder")
Deed = Callable[[StatusKeeper], None]


class Counted(StatusFile):
    """Knows how often it was asked to write, and how often it was replaced."""

    def __init__(self, path: Path, clock: ManualClock, patience: float = 2.0) -> None:
        super().__init__(path, clock, patience)
        self.asked = 0
        self.written = 0

    async def update(self, changes: Mapping[str, AgentState]) -> None:
        before = inode(self.path)
        self.asked += 1
        await super().update(changes)
        self.written += inode(self.path) != before


def inode(path: Path) -> tuple[int, int]:
    return (path.stat().st_ino, path.stat().st_mtime_ns) if path.exists() else (0, 0)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def file(tmp_path: Path, clock: ManualClock) -> Iterator[Counted]:
    made = Counted(tmp_path / "agent-status.json", clock, patience=30.0)
    yield made
    made.close()


@pytest.fixture
def keeper(file: Counted, clock: ManualClock) -> StatusKeeper:
    return StatusKeeper(file, ["Security", "human"], clock)


@asynccontextmanager
async def running(keeper: StatusKeeper) -> AsyncIterator[asyncio.Task[None]]:
    task = asyncio.create_task(keeper.run())
    yield task
    task.cancel()
    await asyncio.wait([task])
    if not task.cancelled():
        task.result()


def asked(seq: int = 1, asker: str = "engineer", target: str = "architect", **more: Any) -> Clarification:
    return record(42, seq, agent_id=asker, to=target, **more)


def answered(of: Clarification) -> Clarification:
    return transitions.answered(of, Answer("yes", "Yes"), ARCHITECT, LATER)


def escalated(of: Clarification) -> Clarification:
    return transitions.escalated(of, "agent failed", "words", LATER)


def abandoned(of: Clarification) -> Clarification:
    return transitions.abandoned(of, "by hand", LATER)


def note(of: Clarification) -> Deed:
    return lambda keeper: keeper.note(summarize(of))


def begun(of: Clarification) -> Deed:
    return lambda keeper: keeper.working(summarize(of), True)


def ended(of: Clarification) -> Deed:
    return lambda keeper: keeper.working(summarize(of), False)


def said(file: StatusFile) -> dict[str, tuple[Any, ...]]:
    keys = ("status", "clarificationId", "waitingOn", "respondingTo")
    return {agent: tuple(entry[key] for key in keys) for agent, entry in file.read().items()}


A = asked()
B = asked(2, "designer")
BACK = asked(3, "architect", "engineer")
PEOPLE = asked(4, target="security")
WAITS = ("blocked-clarification", "CLR-42-001", "architect", None)
FREE = ("working", None, None, None)


@pytest.mark.parametrize(
    ("deeds", "expected"),
    [
        ([note(A)], {"engineer": WAITS}),
        ([note(asked(blocking=False))], {}),
        ([note(asked(target="human"))], {}),
        ([note(asked(target="Human "))], {}),
        ([note(asked(asker="human"))], {}),
        ([note(answered(A))], {}),
        ([note(A), note(escalated(A))], {"engineer": WAITS}),
        ([note(A), begun(A)], {"engineer": WAITS, "architect": ("clarifying", "CLR-42-001", None, "engineer")}),
        ([note(A), begun(A), note(answered(A)), ended(A)], {}),
        ([note(PEOPLE)], {
            "engineer": ("blocked-clarification", "CLR-42-004", "security", None),
            "security": ("clarifying", "CLR-42-004", None, "engineer"),
        }),
        ([note(asked(4, target="security", blocking=False))], {
            "security": ("clarifying", "CLR-42-004", None, "engineer"),
        }),
        ([note(BACK), note(A), begun(A)], {
            "engineer": WAITS,
            "architect": ("blocked-clarification", "CLR-42-003", "engineer", "engineer"),
        }),
        ([note(A), begun(A), note(B), begun(B)], {
            "engineer": WAITS,
            "designer": ("blocked-clarification", "CLR-42-002", "architect", None),
            "architect": ("clarifying", "CLR-42-001", None, "engineer"),
        }),
        ([note(asked(2)), note(A)], {"engineer": WAITS}),
    ],
)  # fmt: skip
async def test_settle_writes_what_was_noted(
    keeper: StatusKeeper, file: Counted, deeds: list[Deed], expected: dict[str, Any]
) -> None:
    for deed in deeds:
        deed(keeper)
    await keeper.settle()
    assert said(file) == expected
    assert file.written == bool(expected)


@pytest.mark.parametrize(
    ("deeds", "after", "expected"),
    [
        ([note(A)], [note(answered(A))], {"engineer": FREE}),
        ([note(A)], [note(abandoned(A))], {"engineer": FREE}),
        ([note(A), begun(A)], [ended(A), note(answered(A))], {"engineer": FREE, "architect": FREE}),
        ([note(A), begun(A)], [ended(A), note(escalated(A))], {"engineer": WAITS, "architect": FREE}),
        ([note(A), note(asked(2))], [note(answered(A))], {
            "engineer": ("blocked-clarification", "CLR-42-002", "architect", None),
        }),
        ([note(BACK), begun(A)], [ended(A)], {
            "architect": ("blocked-clarification", "CLR-42-003", "engineer", None),
        }),
        ([note(BACK), begun(A)], [note(answered(BACK))], {
            "architect": ("clarifying", "CLR-42-001", None, "engineer"),
        }),
        ([note(PEOPLE)], [note(escalated(PEOPLE))], {
            "engineer": ("blocked-clarification", "CLR-42-004", "security", None),
            "security": FREE,
        }),
        ([note(PEOPLE)], [note(PEOPLE.model_copy(update={"to": "architect"}))], {
            "engineer": ("blocked-clarification", "CLR-42-004", "architect", None),
            "security": FREE,
        }),
    ],
)  # fmt: skip
async def test_what_ends_is_taken_back(
    keeper: StatusKeeper, file: Counted, deeds: list[Deed], after: list[Deed], expected: dict[str, Any]
) -> None:
    for deed in deeds:
        deed(keeper)
    await keeper.settle()
    for deed in after:
        deed(keeper)
    await keeper.settle()
    assert said(file) == expected
    assert file.written == 2


async def test_process_takes_back_what_another_of_ours_wrote(
    keeper: StatusKeeper, file: Counted, clock: ManualClock
) -> None:
    keeper.note(summarize(A))
    keeper.working(summarize(A), True)
    keeper.note(summarize(B))
    await keeper.settle()
    shell = StatusKeeper(file, [], clock)
    shell.note(summarize(answered(A)))
    await shell.settle()
    waits = ("blocked-clarification", "CLR-42-002", "architect", None)
    assert said(file) == {"engineer": FREE, "designer": waits, "architect": FREE}


async def test_statuses_of_others_are_not_taken_back(keeper: StatusKeeper, file: Counted) -> None:
    keeper.note(summarize(A))
    await keeper.settle()
    entries = file.read()
    file.path.write_text(json.dumps({"engineer": entries["engineer"] | {"status": "stuck"}}))
    keeper.note(summarize(answered(A)))
    await keeper.settle()
    assert file.read()["engineer"] == entries["engineer"] | {"status": "stuck"}


async def test_run_writes_ten_thousand_notes_in_a_few_turns(
    keeper: StatusKeeper, file: Counted, clock: ManualClock
) -> None:
    one, done = summarize(A), summarize(answered(A))
    many = [replace(one, id=f"CLR-42-{seq:05d}", from_=f"agent {seq % 50}") for seq in range(5000)]
    over = [replace(done, id=each.id, from_=each.from_) for each in many]
    async with running(keeper):
        for summaries, status in ((many, "blocked-clarification"), (over, "working")):
            for position, summary in enumerate(summaries):
                keeper.note(summary)
                if position % 500 == 0:
                    await clock.advance(0.01)  # whoever is awake has a turn
            while Counter(entry[0] for entry in said(file).values()) != {status: 50}:
                await clock.advance(0.25)
                await asyncio.sleep(0.002)
    assert file.written <= file.asked <= 6


async def test_run_writes_the_first_change_at_once_and_the_next_after_a_pause(
    keeper: StatusKeeper, file: Counted, clock: ManualClock
) -> None:
    keeper.note(summarize(A))
    async with running(keeper):
        await until(lambda: clock.sleeping)
        assert said(file) == {"engineer": WAITS}
        keeper.note(summarize(answered(A)))
        await clock.advance(0.1)
        assert file.asked == 1
        await clock.advance(0.2)
        await until(lambda: file.asked == 2 and clock.sleeping)
        assert said(file) == {"engineer": FREE}


async def test_run_asks_for_nothing_when_nothing_changes(
    keeper: StatusKeeper, file: Counted, clock: ManualClock
) -> None:
    keeper.note(summarize(A))
    async with running(keeper):
        await until(lambda: clock.sleeping)
        for seq in range(1000):
            keeper.note(summarize(transitions.nudged(A, LATER + timedelta(seconds=seq), SLA)))
        await clock.advance(3600)
        assert clock.sleeping == 0
    assert (file.asked, file.written) == (1, 1)


async def test_questions_to_people_cost_no_look_at_the_file(
    keeper: StatusKeeper, file: Counted, clock: ManualClock
) -> None:
    async with running(keeper):
        await until(lambda: clock.sleeping)
        looks = file.asked
        for each in (asked(target="human"), answered(asked(target="Human"))):
            keeper.note(summarize(each))
            await clock.advance(1)
        await clock.advance(3600)
        assert clock.sleeping == 0
    assert file.asked == looks


async def test_run_tries_again_later_when_the_lock_is_held(
    tmp_path: Path, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    file = Counted(tmp_path / "agent-status.json", clock, patience=0.01)
    keeper = StatusKeeper(file, [], clock)
    held, release = threading.Event(), threading.Event()
    holder = threading.Thread(target=hold, args=(tmp_path, held, release))
    holder.start()
    await asyncio.to_thread(held.wait)
    keeper.note(summarize(A))
    with caplog.at_level(logging.WARNING):
        async with running(keeper):
            for tries, pause in enumerate([1.0, 2.0, 4.0], 1):
                await until(lambda tries=tries: len(clock.slept) == tries)  # type: ignore[misc]
                assert clock.slept[-1] == pause
                await clock.advance(pause)
            await until(lambda: len(clock.slept) == 4)
            release.set()
            holder.join()
            await clock.advance(60.0)
            await until(lambda: len(clock.slept) == 5)
            assert said(file) == {"engineer": WAITS}
    assert caplog.text.count("agent-status.json") == 1
    file.close()


async def test_settle_under_a_held_lock_returns_and_owes_it(
    tmp_path: Path, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    file = Counted(tmp_path / "agent-status.json", clock, patience=0.01)
    keeper = StatusKeeper(file, [], clock)
    held, release = threading.Event(), threading.Event()
    holder = threading.Thread(target=hold, args=(tmp_path, held, release))
    holder.start()
    await asyncio.to_thread(held.wait)
    keeper.note(summarize(A))
    await keeper.settle()
    assert "not written" in caplog.text
    release.set()
    holder.join()
    await keeper.settle()
    assert said(file) == {"engineer": WAITS}
    file.close()


def hold(folder: Path, held: threading.Event, release: threading.Event) -> None:
    locks = Locks(folder)
    locks.private.mkdir(exist_ok=True)
    with locks.hold_file("agent-status", 0, 5.0):
        held.set()
        release.wait(30)
    locks.close()


async def test_what_a_cancelled_run_owed_is_settled(file: Counted, keeper: StatusKeeper) -> None:
    keeper.note(summarize(A))
    async with running(keeper) as task:
        await asyncio.sleep(0)
        task.cancel()
    await keeper.settle()
    assert said(file) == {"engineer": WAITS}


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[FileLedger]:
    folder = tmp_path / "clarifications"
    folder.mkdir()
    made = FileLedger(folder)
    yield made
    made.close()


def entry(status: str, clarification: object) -> dict[str, Any]:
    return {
        "status": status,
        "issue": 42,
        "clarificationId": clarification,
        "waitingOn": "x",
        "respondingTo": "y",
    }


@pytest.mark.parametrize(
    ("written", "says", "after"),
    [
        (A, ("blocked-clarification", A.id), "blocked-clarification"),
        (A, ("clarifying", A.id), "clarifying"),
        (escalated(A), ("blocked-clarification", A.id), "blocked-clarification"),
        (escalated(A), ("clarifying", A.id), "working"),
        (answered(A), ("blocked-clarification", A.id), "working"),
        (answered(A), ("clarifying", A.id), "working"),
        (abandoned(A), ("blocked-clarification", A.id), "working"),
        (abandoned(A), ("done", A.id), "done"),
        (abandoned(A), ("blocked-clarification", "CLR-42-099"), "blocked-clarification"),
        (abandoned(A), ("blocked-clarification", "CLR-7-001"), "blocked-clarification"),
        (abandoned(A), ("blocked-clarification", "question 1"), "blocked-clarification"),
        (abandoned(A), ("blocked-clarification", None), "blocked-clarification"),
        (abandoned(A), ("blocked-clarification", 1), "blocked-clarification"),
    ],
)
async def test_start_takes_back_only_what_the_ledger_says_is_over(
    file: Counted, ledger: FileLedger, written: Clarification, says: tuple[str, object], after: str
) -> None:
    status, clarification = says
    clock = ManualClock()

    def put(book: Book) -> None:
        book.put(written)

    await ledger.transact(42, put)
    before = {"someone": entry(status, clarification), "qa": "idle", "version": 1}
    file.path.write_text(json.dumps(before))
    async with running(StatusKeeper(file, [], clock, ledger)):
        await until(lambda: clock.sleeping)
    now = file.read()
    assert now["someone"]["status"] == after
    assert (now["qa"], now["version"]) == ("idle", 1)
    if after == status:
        assert now == before


async def test_start_checks_again_when_the_file_could_not_be_read(
    tmp_path: Path, clock: ManualClock, ledger: FileLedger
) -> None:
    def put(book: Book) -> None:
        book.put(answered(A))

    await ledger.transact(42, put)
    file = Counted(tmp_path / "agent-status.json", clock)
    file.path.mkdir()
    async with running(StatusKeeper(file, [], clock, ledger)):
        await until(lambda: clock.sleeping)
        file.path.rmdir()
        file.path.write_text(json.dumps({"engineer": entry("clarifying", A.id)}))
        await clock.advance(1.0)
        await until(lambda: clock.sleeping)
        assert said(file) == {"engineer": FREE}
    file.close()


def test_summaries_of_one_agent_by_any_spelling_are_one(file: Counted, keeper: StatusKeeper) -> None:
    keeper.note(summarize(A))
    keeper.note(summarize(asked(2, " ENGINEER")))
    asyncio.run(keeper.settle())
    assert said(file) == {"engineer": WAITS}
