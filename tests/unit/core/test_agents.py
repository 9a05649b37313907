"""What the keeper makes of what is noted: in a real file, beside a real rival for its lock."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core import clarification
from core.agents import (
    AgentNode,
    AgentState,
    SessionFact,
    StatusFile,
    StatusKeeper,
    Waiting,
    ready_queue,
    tree,
)
from core.clarification import Answer, Clarification, Decider
from core.errors import StatusUnavailable
from core.index import Summary, summarize
from core.ledger import FileLedger
from core.locks import Locks
from core.records import Book
from tests.kit.builders import NOW, SLA, record
from tests.kit.clocks import ManualClock
from tests.kit.until import until

MINUTE = timedelta(minutes=1)


def session(
    agent: str, number: int = 1, *, ended: bool = False, minutes: int = 0, **more: Any
) -> SessionFact:
    fact = SessionFact("planner", f"sess_{agent}_{number}", agent, None, 42, ended, NOW + minutes * MINUTE)
    return replace(fact, **more)


def wait(seq: int, asker: str, target: str, minutes: int = 0, **more: Any) -> Summary:
    """Asked `minutes` after NOW, in the first session of the asker."""
    summary = summarize(record(seq=seq, agent_id=asker, to=target, session_id=f"sess_{asker}_1"))
    return replace(summary, asked_last=NOW + minutes * MINUTE, **more)


def shape(nodes: Sequence[AgentNode]) -> list[Any]:
    """Names, with what stands under them."""
    return [(node.agent, shape(node.waiters)) if node.waiters else node.agent for node in nodes]


@pytest.mark.parametrize(
    ("summaries", "sessions", "expected"),
    [
        ([], [session("engineer")], {"engineer": "working"}),
        ([], [session("engineer", ended=True)], {"engineer": "idle"}),
        ([], [session("engineer", 1, ended=True), session("engineer", 2)], {"engineer": "working"}),
        ([wait(1, "engineer", "human")], [session("engineer")], {"engineer": "blocked"}),
        ([wait(1, "engineer", "human", blocking=False)], [session("engineer")], {"engineer": "working"}),
        ([wait(1, "engineer", "human", status="answered")], [session("engineer")], {"engineer": "working"}),
        ([wait(1, "engineer", "human", status="escalated")], [session("engineer")], {"engineer": "blocked"}),
        (
            [wait(1, "engineer", "architect", blocking=False)],
            [],
            {"engineer": "idle", "architect": "clarifying"},
        ),
        (
            [wait(1, "engineer", "architect"), wait(2, "Architect", "human")],
            [session("engineer"), session("architect")],
            {"engineer": "blocked", "architect": "blocked"},
        ),
    ],
)
def test_tree_statuses(
    summaries: list[Summary], sessions: list[SessionFact], expected: dict[str, str]
) -> None:
    found: dict[str, str] = {}

    def collect(nodes: Sequence[AgentNode]) -> None:
        for node in nodes:
            found[node.agent] = node.status
            collect(node.waiters)

    collect(tree(summaries, sessions))
    assert found == expected


def test_tree_says_on_whom_since_when() -> None:
    summaries = [
        wait(2, "engineer", "human", 9, issue=43, status="escalated"),
        wait(1, "engineer", "architect", 3),
    ]
    (architect,) = tree(summaries, [session("engineer", agent_name="Edna", minutes=4)])
    (engineer,) = architect.waiters
    assert architect.asked == ("CLR-42-001",)
    assert engineer.name == "Edna"
    assert engineer.since == NOW + 3 * MINUTE
    assert engineer.waits == (
        Waiting("CLR-42-001", "architect", NOW + 3 * MINUTE, escalated=False),
        Waiting("CLR-42-002", "human", NOW + 9 * MINUTE, escalated=True),
    )
    assert engineer.issues == (42, 43)
    assert engineer.last_event_at == NOW + 4 * MINUTE


@pytest.mark.parametrize(
    ("waits", "expected"),
    [
        ([("c", "b"), ("b", "a"), ("d", "a")], [("a", [("b", ["c"]), "d"])]),
        ([("c", "a"), ("c", "b")], [("a", ["c"]), "b"]),  # under the one it waits for longest
        ([("a", "b"), ("b", "a")], [("a", ["b"])]),
        ([("b", "c"), ("c", "a"), ("a", "b"), ("d", "c")], [("a", [("c", ["b", "d"])])]),
        ([("a", "a")], ["a"]),
        ([("a", "human"), ("b", "human")], ["a", "b"]),
    ],
)
def test_tree_nests_who_waits_for_whom(waits: list[tuple[str, str]], expected: list[Any]) -> None:
    summaries = [wait(seq, asker, target, seq) for seq, (asker, target) in enumerate(waits, 1)]
    assert shape(tree(summaries, [])) == expected


def test_tree_order_is_by_urgency() -> None:
    summaries = [
        wait(1, "late", "human", 5),
        wait(2, "early", "human", 1),
        wait(3, "x", "asked", blocking=False),
    ]
    sessions = [session("gone", ended=True), session("busy")]
    assert shape(tree(summaries, sessions)) == ["early", "late", "asked", "busy", "gone", "x"]


_AGENT = st.sampled_from("abcdefg")


@settings(deadline=None)
@given(st.lists(st.tuples(_AGENT, _AGENT), max_size=20))
def test_tree_shows_each_agent_once(waits: list[tuple[str, str]]) -> None:
    seen: list[str] = []

    def walk(nodes: Sequence[AgentNode]) -> None:
        for node in nodes:
            seen.append(node.agent)
            walk(node.waiters)

    walk(tree([wait(seq, asker, target, seq) for seq, (asker, target) in enumerate(waits, 1)], []))
    assert sorted(seen) == sorted({agent for edge in waits for agent in edge})


def test_tree_long_chain_is_built() -> None:
    chain = [wait(number + 1, f"a{number + 1}", f"a{number}") for number in range(1100)]
    (node,) = tree(chain, [])
    depth = 1
    while node.waiters:
        (node,) = node.waiters
        depth += 1
    assert depth == 1101


def test_ready_queue_those_that_can_go_on_first() -> None:
    summaries = [
        wait(1, "late", "human", 5),
        wait(2, "early", "architect", 1),
        wait(3, "early", "human", 2),
        wait(4, "free", "human", blocking=False),
        wait(5, "told", "human", status="answered"),
    ]
    sessions = [
        session("late"),
        session("early"),
        session("free", minutes=1),
        session("told", minutes=2),
        session("gone", ended=True),
    ]
    queue = ready_queue(summaries, sessions)
    assert [(item.agent, item.blocked_by) for item in queue] == [
        ("told", ()),
        ("free", ()),
        ("early", ("CLR-42-002", "CLR-42-003")),
        ("late", ("CLR-42-001",)),
    ]
    assert queue[2].since == NOW + MINUTE
    assert queue[0].since is None


def test_ready_queue_agents_without_a_session() -> None:
    foreign: dict[str, Any] = {"producer": None, "session_id": None}
    summaries = [
        wait(1, "engineer", "architect", **foreign),
        wait(2, "Engineer", "human", 1, **foreign),
        wait(3, "engineer", "human", 2, issue=43, **foreign),
    ]
    queue = ready_queue(summaries, [])
    assert [(item.agent, item.issue, item.session_id, item.blocked_by) for item in queue] == [
        ("engineer", 42, None, ("CLR-42-001", "CLR-42-002")),
        ("engineer", 43, None, ("CLR-42-003",)),
    ]


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
    return clarification.answered(of, Answer("yes", "Yes"), ARCHITECT, LATER)


def escalated(of: Clarification) -> Clarification:
    return clarification.escalated(of, "agent failed", "words", LATER)


def abandoned(of: Clarification) -> Clarification:
    return clarification.abandoned(of, "by hand", LATER)


def note(of: Clarification) -> Deed:
    return lambda keeper: keeper.record_changed(summarize(of))


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
    keeper.record_changed(summarize(A))
    keeper.working(summarize(A), True)
    keeper.record_changed(summarize(B))
    await keeper.settle()
    shell = StatusKeeper(file, [], clock)
    shell.record_changed(summarize(answered(A)))
    await shell.settle()
    waits = ("blocked-clarification", "CLR-42-002", "architect", None)
    assert said(file) == {"engineer": FREE, "designer": waits, "architect": FREE}


async def test_run_writes_the_first_change_at_once_and_the_next_after_a_pause(
    keeper: StatusKeeper, file: Counted, clock: ManualClock
) -> None:
    keeper.record_changed(summarize(A))
    async with running(keeper):
        await until(lambda: clock.sleeping)
        assert said(file) == {"engineer": WAITS}
        keeper.record_changed(summarize(answered(A)))
        await clock.advance(0.1)
        assert file.asked == 1
        await clock.advance(0.2)
        await until(lambda: file.asked == 2 and clock.sleeping)
        assert said(file) == {"engineer": FREE}


async def test_run_asks_for_nothing_when_nothing_changes(
    keeper: StatusKeeper, file: Counted, clock: ManualClock
) -> None:
    keeper.record_changed(summarize(A))
    async with running(keeper):
        await until(lambda: clock.sleeping)
        for seq in range(1000):
            keeper.record_changed(summarize(clarification.nudged(A, LATER + timedelta(seconds=seq), SLA)))
        await clock.advance(3600)
        assert clock.sleeping == 0
    assert (file.asked, file.written) == (1, 1)


async def test_run_tries_again_later_when_the_lock_is_held(
    tmp_path: Path, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    file = Counted(tmp_path / "agent-status.json", clock, patience=0.01)
    keeper = StatusKeeper(file, [], clock)
    held, release = threading.Event(), threading.Event()
    holder = threading.Thread(target=hold, args=(tmp_path, held, release))
    holder.start()
    await asyncio.to_thread(held.wait)
    keeper.record_changed(summarize(A))
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


def hold(folder: Path, held: threading.Event, release: threading.Event) -> None:
    locks = Locks(folder)
    locks.private.mkdir(exist_ok=True)
    with locks.hold_file("agent-status", 0, 5.0):
        held.set()
        release.wait(30)
    locks.close()


async def test_what_a_cancelled_run_owed_is_settled(file: Counted, keeper: StatusKeeper) -> None:
    keeper.record_changed(summarize(A))
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
    keeper.record_changed(summarize(A))
    keeper.record_changed(summarize(asked(2, " ENGINEER")))
    asyncio.run(keeper.settle())
    assert said(file) == {"engineer": WAITS}


ROOT = Path(__file__).parents[3]
AT = "2026-11-21T09:00:00.000Z"
WAITING = AgentState("blocked-clarification", 42, "CLR-42-001", waiting_on="architect")
ANSWERS = AgentState("clarifying", 42, "CLR-42-001", responding_to="engineer")
OVER = AgentState("working", ended=frozenset({"CLR-42-001"}))
BLOCKED = {
    "status": "blocked-clarification",
    "issue": 42,
    "lastActivity": AT,
    "clarificationId": "CLR-42-001",
    "waitingOn": "architect",
    "respondingTo": None,
}
# As the reference implementation does it: an exclusive marker, the file overwritten in place.
RIVAL = """
import json, os, sys, time
from pathlib import Path
path, command, name = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
marker = Path(str(path) + ".lock")
def take():
    while True:
        try:
            os.close(os.open(marker, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
            return
        except FileExistsError:
            time.sleep(0.001)
def add(pause):
    said = json.loads(path.read_text()) if path.exists() else {}
    entry = said.setdefault(name, {"status": "working", "count": 0})
    entry["count"] += 1
    text = json.dumps(said)
    with path.open("w") as file:
        file.write(text[: len(text) // 2])
        file.flush()
        pause()
        file.write(text[len(text) // 2 :])
def halfway():
    print("torn", flush=True)
    sys.stdin.readline()
take()
if command == "tear":
    add(halfway)
elif command == "hold":
    print("held", flush=True)
    sys.stdin.readline()
marker.unlink()
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "agent-status.json"


@pytest.fixture
def shared(path: Path) -> Iterator[StatusFile]:
    made = StatusFile(path, ManualClock(), patience=30.0)
    yield made
    made.close()


def started(code: str, *arguments: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", code, *map(str, arguments)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT,
    )  # fmt: skip


@contextmanager
def rival(path: Path, command: str) -> Iterator[subprocess.Popen[str]]:
    """Another implementation that holds the marker until the block ends, or until it reads a line."""
    process = started(RIVAL, path, command, "reviewer")
    try:
        assert process.stdout is not None
        assert process.stdout.readline() in {"held\n", "torn\n"}
        yield process
    finally:
        process.communicate(timeout=30)


def go_on(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()


def in_file(path: Path) -> dict[str, Any]:
    entries: dict[str, Any] = json.loads(path.read_bytes())
    return entries


def put(path: Path, content: bytes, mode: int = 0o644) -> None:
    path.write_bytes(content)
    path.chmod(mode)


def got(path: Path) -> bytes | None:
    return path.read_bytes() if path.exists() else None


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


def state(path: Path) -> tuple[int, int]:
    return path.stat().st_ino, path.stat().st_mtime_ns


async def test_update_writes_the_protocols_fields(shared: StatusFile, path: Path) -> None:
    await shared.update({"engineer": WAITING, "architect": ANSWERS})
    assert in_file(path) == {
        "engineer": BLOCKED,
        "architect": {
            "status": "clarifying",
            "issue": 42,
            "lastActivity": AT,
            "clarificationId": "CLR-42-001",
            "waitingOn": None,
            "respondingTo": "engineer",
        },
    }
    assert shared.read() == in_file(path)
    assert [each.name for each in path.parent.iterdir() if each.is_file()] == [path.name]
    assert sorted(each.name for each in (path.parent / ".clarify").iterdir()) == [
        "agent-status.lock",
        "agent-status.marker",
    ]


async def test_update_keeps_agents_fields_and_mode_of_others(shared: StatusFile, path: Path) -> None:
    deep: Any = "end"
    for _ in range(400):
        deep = [deep]
    theirs = {
        "version": 3,
        "reviewer": {"status": "done", "issue": 7, "mood": ["fine", None, 1.5]},
        "notes": deep,
        "engineer": {"status": "working", "issue": 41, "branch": "über", "half": "\ud83d"},
        "qa": "idle",
    }
    put(path, json.dumps(theirs).encode(), 0o664)
    await shared.update({"engineer": WAITING, "qa": WAITING})
    assert in_file(path) == theirs | {"engineer": theirs["engineer"] | BLOCKED}
    assert list(in_file(path)) == list(theirs)
    assert mode(path) == 0o664


async def test_update_knows_an_agent_by_other_spellings(shared: StatusFile, path: Path) -> None:
    put(path, json.dumps({"Product  Manager": {"status": "idle"}}).encode())
    await shared.update({"product manager": WAITING})
    assert in_file(path) == {"Product  Manager": BLOCKED}


async def test_byte_order_mark_is_no_damage(shared: StatusFile, path: Path) -> None:
    put(path, b"\xef\xbb\xbf" + json.dumps({"qa": {"status": "idle"}}).encode())
    await shared.update({"engineer": WAITING})
    assert in_file(path) == {"qa": {"status": "idle"}, "engineer": BLOCKED}


@pytest.mark.parametrize(
    "changes", [{"engineer": WAITING}, {"architect": OVER}, {}], ids=["same", "gone", "none"]
)
async def test_update_without_news_writes_nothing_and_takes_no_lock(
    shared: StatusFile, path: Path, changes: dict[str, AgentState]
) -> None:
    await shared.update({"engineer": WAITING})
    before = state(path)
    path.with_name("agent-status.json.lock").write_text("{}")
    await shared.update(changes)
    assert state(path) == before


async def test_nothing_to_say_makes_no_file(shared: StatusFile, path: Path) -> None:
    await shared.update({"engineer": OVER})
    assert list(path.parent.iterdir()) == []
    assert shared.read() == {}


@pytest.mark.parametrize(
    ("entry", "change", "status"),
    [
        (BLOCKED, OVER, "working"),
        (BLOCKED | {"status": "clarifying"}, OVER, "working"),
        (BLOCKED | {"clarificationId": "CLR-42-002"}, OVER, "blocked-clarification"),
        (BLOCKED | {"clarificationId": None}, OVER, "blocked-clarification"),
        (BLOCKED | {"clarificationId": ["CLR-42-001"]}, OVER, "blocked-clarification"),
        (BLOCKED | {"status": "done"}, OVER, "done"),
        (BLOCKED | {"status": "stuck"}, OVER, "stuck"),
        (BLOCKED | {"status": ["idle"]}, OVER, ["idle"]),
        (BLOCKED | {"clarificationId": "CLR-42-002"}, ANSWERS, "blocked-clarification"),
        (BLOCKED | {"status": "done"}, ANSWERS, "clarifying"),
        (BLOCKED | {"status": "clarifying"}, WAITING, "blocked-clarification"),
    ],
)
async def test_change_takes_back_only_what_is_over(
    shared: StatusFile, path: Path, entry: dict[str, Any], change: AgentState, status: object
) -> None:
    put(path, json.dumps({"engineer": entry | {"more": 1}}).encode())
    await shared.update({"engineer": change})
    now = in_file(path)["engineer"]
    assert now["status"] == status
    assert (now["more"], now["issue"]) == (1, 42)
    if status == "working":
        assert (now["clarificationId"], now["waitingOn"], now["respondingTo"]) == (None, None, None)


async def test_torn_file_is_read_again_under_the_lock(shared: StatusFile, path: Path) -> None:
    put(path, json.dumps({"qa": {"status": "idle", "long": "x" * 200}}).encode())
    with rival(path, "tear") as writer:
        with pytest.raises(ValueError, match=r"Unterminated|Expecting"):
            in_file(path)
        read = asyncio.create_task(asyncio.to_thread(shared.read))
        write = asyncio.create_task(shared.update({"engineer": WAITING}))
        await until((path.parent / ".clarify" / "agent-status.lock").exists)
        assert not read.done()
        assert not write.done()
        go_on(writer)
        assert {"qa", "reviewer"} <= set(await read)
        await write
    assert in_file(path)["engineer"] == BLOCKED
    assert in_file(path)["reviewer"] == {"status": "working", "count": 1}
    assert list(path.parent.glob("*.unreadable*")) == []


@pytest.mark.parametrize(
    "content",
    [b"", b'{"engineer": {"sta', b"[]", b"null", b"\xff\xfe", b"[" * 100_000, b'"' + b"x" * 5000],
    ids=["empty", "cut", "list", "null", "bytes", "deep", "text"],
)
async def test_file_that_is_no_object_is_set_aside(
    shared: StatusFile, path: Path, content: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    put(path, content)
    with caplog.at_level(logging.ERROR):
        await shared.update({"engineer": WAITING})
    (aside,) = path.parent.glob("agent-status.json.unreadable-*")
    assert aside.read_bytes() == content
    assert in_file(path) == {"engineer": BLOCKED}
    assert aside.name in caplog.text


async def test_held_lock_is_not_waited_for_any_longer_than_asked(path: Path) -> None:
    shared = StatusFile(path, ManualClock(), patience=0.1)
    with rival(path, "hold"), pytest.raises(StatusUnavailable, match=r"not had within 0\.1 s"):
        await shared.update({"engineer": WAITING})
    assert got(path) is None
    await shared.update({"engineer": WAITING})
    assert in_file(path) == {"engineer": BLOCKED}
    shared.close()


@pytest.mark.parametrize("call", ["fsync", "replace", "link", "mkdir"])
async def test_refused_file_operation_leaves_the_file_as_it_was(
    shared: StatusFile, path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    put(path, b"{}")

    def refuse(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as broken:
        broken.setattr(os, call, refuse)
        with pytest.raises(StatusUnavailable, match="disk is full"):
            await shared.update({"engineer": WAITING})
    assert got(path) == b"{}"
    await shared.update({"engineer": WAITING})
    assert in_file(path) == {"engineer": BLOCKED}
    assert sorted(each.name for each in (path.parent / ".clarify").iterdir()) == [
        "agent-status.lock",
        "agent-status.marker",
    ]


@pytest.mark.parametrize("content", [b"{}", b'{"half'], ids=["whole", "torn"])
async def test_process_that_lost_the_lock_touches_nothing(
    shared: StatusFile, path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes
) -> None:
    put(path, content)
    marker, kept = path.with_name("agent-status.json.lock"), path.with_name("kept")
    hold_file = Locks.hold_file

    @contextmanager
    def robbed(*arguments: Any) -> Iterator[Any]:
        with hold_file(*arguments) as held:
            marker.rename(kept)  # its inode number stays taken
            marker.write_text('{"agent": "rival"}')
            yield held

    with monkeypatch.context() as broken:
        broken.setattr(Locks, "hold_file", robbed)
        with pytest.raises(StatusUnavailable, match="lost"):
            await shared.update({"engineer": WAITING})
    assert got(path) == content
    assert got(marker) == b'{"agent": "rival"}'
