"""The agents' tree and queue, and what the status file says of them: in a real file, beside a real rival for its lock."""

from __future__ import annotations

import asyncio
import json
import logging
import os
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core import transitions
from core.agents import (
    AgentNode,
    BlockedOn,
    SessionFact,
    StatusFile,
    going_on,
    ready_queue,
    tree,
)
from core.clarification import Answer, Clarification, Decider
from core.locks import Locks
from core.summary import Seen
from tests.kit.builders import NOW, SLA, changed, record
from tests.kit.clocks import ManualClock
from tests.kit.until import until

MINUTE = timedelta(minutes=1)


def session(
    agent: str, number: int = 1, *, ended: bool = False, minutes: int = 0, **more: Any
) -> SessionFact:
    fact = SessionFact("planner", f"sess_{agent}_{number}", agent, None, 42, ended, NOW + minutes * MINUTE)
    return replace(fact, **more)


def wait(seq: int, asker: str, target: str, minutes: int = 0, **more: Any) -> Clarification:
    """Asked `minutes` after NOW, in the first session of the asker."""
    found = record(seq=seq, agent_id=asker, to=target, session_id=f"sess_{asker}_1")
    return changed(found, asked_last=NOW + minutes * MINUTE, **more)


def shape(nodes: Sequence[AgentNode]) -> str:
    """The agents in their order, each as deep as it stands."""
    return " ".join(f"{'>' * node.depth}{node.agent}" for node in nodes)


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
    summaries: list[Clarification], sessions: list[SessionFact], expected: dict[str, str]
) -> None:
    found = {node.agent: node.status for node in tree(summaries, sessions)}
    assert found == expected


def test_tree_says_on_whom_since_when() -> None:
    summaries = [
        wait(2, "engineer", "human", 9, issue_number=43, status="escalated"),
        wait(1, "engineer", "architect", 3),
    ]
    architect, engineer = tree(summaries, [session("engineer", agent_name="Edna", minutes=4)])
    assert (engineer.under, engineer.depth, architect.under) == ("architect", 1, None)
    assert architect.asked == ("CLR-42-001",)
    assert engineer.name == "Edna"
    assert engineer.since == NOW + 3 * MINUTE
    assert engineer.waits == (
        BlockedOn("CLR-42-001", "architect", NOW + 3 * MINUTE, escalated=False),
        BlockedOn("CLR-42-002", "human", NOW + 9 * MINUTE, escalated=True),
    )
    assert engineer.issues == (42, 43)
    assert engineer.last_event_at == NOW + 4 * MINUTE


@pytest.mark.parametrize(
    ("waits", "expected"),
    [
        ([("c", "b"), ("b", "a"), ("d", "a")], "a >b >>c >d"),
        ([("c", "a"), ("c", "b")], "a >c b"),  # under the one it waits for longest
        ([("a", "b"), ("b", "a")], "a >b"),
        ([("b", "c"), ("c", "a"), ("a", "b"), ("d", "c")], "a >c >>b >>d"),
        ([("a", "a")], "a"),
        ([("a", "human"), ("b", "human")], "a b"),
    ],
)
def test_tree_nests_who_waits_for_whom(waits: list[tuple[str, str]], expected: str) -> None:
    summaries = [wait(seq, asker, target, seq) for seq, (asker, target) in enumerate(waits, 1)]
    assert shape(tree(summaries, [])) == expected


def test_tree_order_is_by_urgency() -> None:
    summaries = [
        wait(1, "late", "human", 5),
        wait(2, "early", "human", 1),
        wait(3, "x", "asked", blocking=False),
    ]
    sessions = [session("gone", ended=True), session("busy")]
    assert shape(tree(summaries, sessions)) == "early late asked busy gone x"


_AGENT = st.sampled_from("abcdefg")


@settings(deadline=None)
@given(st.lists(st.tuples(_AGENT, _AGENT), max_size=20))
def test_tree_shows_each_agent_once(waits: list[tuple[str, str]]) -> None:
    rows = tree([wait(seq, asker, target, seq) for seq, (asker, target) in enumerate(waits, 1)], [])
    seen = [node.agent for node in rows]
    assert sorted(seen) == sorted({agent for edge in waits for agent in edge})


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
        wait(3, "engineer", "human", 2, issue_number=43, **foreign),
    ]
    queue = ready_queue(summaries, [])
    assert [(item.agent, item.issue, item.session_id, item.blocked_by) for item in queue] == [
        ("engineer", 42, None, ("CLR-42-001", "CLR-42-002")),
        ("engineer", 43, None, ("CLR-42-003",)),
    ]


LATER = NOW + timedelta(minutes=5)
ARCHITECT = Decider("agent:architect", "responder")


class Agents(StatusFile):
    """A status file of clarifications that are given one by one. Knows how often it was replaced."""

    def __init__(
        self, path: Path, clock: ManualClock, *, people: Sequence[str] = (), patience: float = 30.0
    ) -> None:
        self.given: dict[str, Seen] = {}
        super().__init__(path, lambda: list(self.given.values()), people, clock, patience=patience)

    def record_changed(self, summary: Seen) -> None:
        self.given[summary.id] = summary
        super().record_changed(summary)


Deed = Callable[[Agents], None]


def inode(path: Path) -> tuple[int, int]:
    return (path.stat().st_ino, path.stat().st_mtime_ns) if path.exists() else (0, 0)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "agent-status.json"


@pytest.fixture
def agents(path: Path, clock: ManualClock) -> Iterator[Agents]:
    made = Agents(path, clock, people=["Security", "human"])
    yield made
    made.close()


@asynccontextmanager
async def running(agents: Agents) -> AsyncIterator[asyncio.Task[None]]:
    task = asyncio.create_task(agents.run())
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
    return lambda agents: agents.record_changed(of)


def begun(of: Clarification) -> Deed:
    return lambda agents: agents.working(of, True)


def ended(of: Clarification) -> Deed:
    return lambda agents: agents.working(of, False)


def said(agents: Agents) -> dict[str, tuple[Any, ...]]:
    keys = ("status", "clarificationId", "waitingOn", "respondingTo")
    entries = json.loads(agents.path.read_bytes()) if agents.path.exists() else {}
    return {agent: tuple(entry[key] for key in keys) for agent, entry in entries.items()}


A = asked()
A_GOES_ON = asked(blocking=False)
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
                        ([note(answered(A))], {}),
                ([note(A), begun(A)], {"engineer": WAITS, "architect": ("clarifying", "CLR-42-001", None, "engineer")}),
        ([note(A), begun(A), note(answered(A)), ended(A)], {}),
        ([note(PEOPLE)], {
            "engineer": ("blocked-clarification", "CLR-42-004", "security", None),
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
        ([note(asked(2, " ENGINEER")), note(A)], {"engineer": WAITS}),
    ],
)  # fmt: skip
async def test_settle_writes_what_was_noted(
    agents: Agents, deeds: list[Deed], expected: dict[str, Any]
) -> None:
    for deed in deeds:
        deed(agents)
    await agents.settle()
    assert said(agents) == expected
    assert agents.path.exists() == bool(expected)


@pytest.mark.parametrize(
    ("deeds", "after", "expected"),
    [
        ([note(A)], [note(answered(A))], {"engineer": FREE}),
                ([note(A), begun(A)], [ended(A), note(answered(A))], {"engineer": FREE, "architect": FREE}),
                ([note(A), note(asked(2))], [note(answered(A))], {
            "engineer": ("blocked-clarification", "CLR-42-002", "architect", None),
        }),
        ([note(BACK), note(A_GOES_ON), begun(A)], [ended(A)], {
            "architect": ("blocked-clarification", "CLR-42-003", "engineer", None),
        }),
        ([note(BACK), note(A_GOES_ON), begun(A)], [note(answered(BACK))], {
            "architect": ("clarifying", "CLR-42-001", None, "engineer"),
        }),
                ([note(PEOPLE)], [note(PEOPLE.model_copy(update={"to": "architect"}))], {
            "engineer": ("blocked-clarification", "CLR-42-004", "architect", None),
            "security": FREE,
        }),
    ],
)  # fmt: skip
async def test_what_ends_is_taken_back(
    agents: Agents, deeds: list[Deed], after: list[Deed], expected: dict[str, Any]
) -> None:
    for deed in deeds:
        deed(agents)
    await agents.settle()
    for deed in after:
        deed(agents)
    await agents.settle()
    assert said(agents) == expected


async def test_process_takes_back_what_another_of_ours_wrote(agents: Agents, clock: ManualClock) -> None:
    agents.record_changed(A)
    agents.working(A, True)
    agents.record_changed(B)
    await agents.settle()
    shell = Agents(agents.path, clock)
    for each in (answered(A), B):
        shell.record_changed(each)
    await shell.settle()
    waits = ("blocked-clarification", "CLR-42-002", "architect", None)
    assert said(agents) == {"engineer": FREE, "designer": waits, "architect": FREE}
    shell.close()


async def test_run_writes_the_first_change_at_once_and_the_next_after_a_pause(
    agents: Agents, clock: ManualClock
) -> None:
    agents.record_changed(A)
    async with running(agents):
        await until(lambda: clock.sleeping)
        assert said(agents) == {"engineer": WAITS}
        agents.record_changed(answered(A))
        await clock.advance(0.1)
        assert said(agents) == {"engineer": WAITS}
        await clock.advance(0.2)
        await until(lambda: said(agents) == {"engineer": FREE})


async def test_run_writes_nothing_when_nothing_changes(agents: Agents, clock: ManualClock) -> None:
    agents.record_changed(A)
    async with running(agents):
        await until(lambda: clock.sleeping)
        before = inode(agents.path)
        for seq in range(1000):
            agents.record_changed(transitions.nudged(A, LATER + timedelta(seconds=seq), SLA))
        await clock.advance(1.0)
        await until(lambda: len(clock.slept) == 2)
    assert inode(agents.path) == before


async def test_run_tries_again_later_when_the_lock_is_held(
    path: Path, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    agents = Agents(path, clock, patience=0.01)
    agents.record_changed(A)
    with caplog.at_level(logging.WARNING):
        async with running(agents):
            with another_writes(path):
                for tries, pause in enumerate([1.0, 2.0, 4.0], 1):
                    await until(lambda tries=tries: len(clock.slept) == tries)  # type: ignore[misc]
                    assert clock.slept[-1] == pause
                    await clock.advance(pause)
                await until(lambda: len(clock.slept) == 4)
            await clock.advance(60.0)
            await until(lambda: said(agents) == {"engineer": WAITS})
    assert caplog.text.count("agent-status.json") == 1
    assert "could not be locked within 0.0 s" in caplog.text
    agents.close()


async def test_what_a_cancelled_run_owed_is_settled(agents: Agents) -> None:
    agents.record_changed(A)
    async with running(agents) as task:
        await asyncio.sleep(0)
        task.cancel()
    await agents.settle()
    assert said(agents) == {"engineer": WAITS}


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
        (A, ("clarifying", A.id), "clarifying"),
        (escalated(A), ("blocked-clarification", A.id), "blocked-clarification"),
        (answered(A), ("clarifying", A.id), "working"),
        (abandoned(A), ("blocked-clarification", A.id), "working"),
        (abandoned(A), ("done", A.id), "done"),
        (abandoned(A), ("blocked-clarification", "CLR-42-099"), "working"),
        (abandoned(A), ("blocked-clarification", "question 1"), "blocked-clarification"),
        (abandoned(A), ("blocked-clarification", 1), "blocked-clarification"),
    ],
)
async def test_start_takes_back_only_what_is_over(
    agents: Agents, clock: ManualClock, written: Clarification, says: tuple[str, object], after: str
) -> None:
    status, clarification = says
    agents.given[written.id] = changed(written, blocking=False)
    before = {"someone": entry(status, clarification), "qa": "idle", "version": 1}
    agents.path.write_text(json.dumps(before))
    async with running(agents):
        await until(lambda: clock.sleeping)
    now = in_file(agents.path)
    assert now["someone"]["status"] == after
    assert (now["qa"], now["version"]) == ("idle", 1)
    if after == status:
        assert now == before


async def test_start_checks_again_when_the_file_could_not_be_read(agents: Agents, clock: ManualClock) -> None:
    agents.path.mkdir()
    async with running(agents):
        await until(lambda: clock.sleeping)
        agents.path.rmdir()
        agents.path.write_text(json.dumps({"engineer": entry("clarifying", A.id)}))
        await clock.advance(1.0)
        await until(lambda: said(agents) == {"engineer": FREE})


AT = "2026-11-21T09:00:00.000Z"
BLOCKED = {
    "status": "blocked-clarification",
    "issue": 42,
    "lastActivity": AT,
    "clarificationId": "CLR-42-001",
    "waitingOn": "architect",
    "respondingTo": None,
}


@contextmanager
def another_writes(path: Path) -> Iterator[None]:
    """Another implementation has the file: its marker is there until the block ends."""
    marker = path.with_name(f"{path.name}.lock")
    marker.write_text("{}")
    yield
    marker.unlink()


def in_file(path: Path) -> dict[str, Any]:
    entries: dict[str, Any] = json.loads(path.read_bytes())
    return entries


def put(path: Path, content: bytes, mode: int = 0o644) -> None:
    path.write_bytes(content)
    path.chmod(mode)


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


async def test_update_keeps_agents_fields_and_mode_of_others(agents: Agents) -> None:
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
    put(agents.path, json.dumps(theirs).encode(), 0o664)
    agents.record_changed(A)
    agents.record_changed(asked(2, "qa"))
    await agents.settle()
    assert in_file(agents.path) == theirs | {"engineer": theirs["engineer"] | BLOCKED}
    assert list(in_file(agents.path)) == list(theirs)
    assert mode(agents.path) == 0o664


async def test_update_knows_an_agent_by_other_spellings(agents: Agents) -> None:
    put(agents.path, json.dumps({"Product  Manager": {"status": "idle"}}).encode())
    agents.record_changed(asked(asker="product manager"))
    await agents.settle()
    assert in_file(agents.path) == {"Product  Manager": BLOCKED}


async def test_torn_file_is_read_again_under_the_lock(agents: Agents) -> None:
    path, whole = agents.path, json.dumps({"qa": {"status": "idle", "long": "x" * 200}}).encode()
    put(path, whole[:100])
    agents.record_changed(A)
    with another_writes(path):
        write = asyncio.create_task(agents.settle())
        await until((path.parent / ".clarify" / "agent-status.lock").exists)
        assert not write.done()
        put(path, whole)
    await write
    assert in_file(path) == json.loads(whole) | {"engineer": BLOCKED}
    assert list(path.parent.glob("*.unreadable*")) == []


@pytest.mark.parametrize(
    "content",
    [b'{"engineer": {"sta', b"[]", b"[" * 100_000],
    ids=["cut", "list", "deep"],
)
async def test_file_that_is_no_object_is_set_aside(
    agents: Agents, content: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    path = agents.path
    put(path, content)
    agents.record_changed(A)
    with caplog.at_level(logging.ERROR):
        await agents.settle()
    (aside,) = path.parent.glob("agent-status.json.unreadable-*")
    assert aside.read_bytes() == content
    assert in_file(path) == {"engineer": BLOCKED}
    assert aside.name in caplog.text


@pytest.mark.parametrize("call", ["replace", "mkdir"])
async def test_refused_file_operation_leaves_the_file_as_it_was(
    agents: Agents, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, call: str
) -> None:
    put(agents.path, b"{}")
    agents.record_changed(A)

    def refuse(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as broken:
        broken.setattr(os, call, refuse)
        await agents.settle()
    assert "disk is full" in caplog.text
    assert agents.path.read_bytes() == b"{}"
    await agents.settle()
    assert in_file(agents.path) == {"engineer": BLOCKED}
    assert sorted(each.name for each in (agents.path.parent / ".clarify").iterdir()) == [
        "agent-status.lock",
        "agent-status.marker",
    ]


@pytest.mark.parametrize("content", [b"{}", b'{"half'], ids=["whole", "torn"])
async def test_process_that_lost_the_lock_touches_nothing(
    agents: Agents, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, content: bytes
) -> None:
    path = agents.path
    put(path, content)
    agents.record_changed(A)
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
        await agents.settle()
    assert "lost" in caplog.text
    assert path.read_bytes() == content
    assert marker.read_bytes() == b'{"agent": "rival"}'


@pytest.mark.parametrize(
    ("direct", "waits", "heard", "over", "stays"),
    [
        (True, False, -10, None, False),
        (True, False, -9, None, True),
        (True, False, -60, -9, True),
        (True, False, -60, -10, False),
        (True, True, -60, -30, True),
        (False, False, -60, -30, True),
    ],
)
def test_direct_session_goes_ten_minutes_after_its_last_answer_was_taken(
    *, direct: bool, waits: bool, heard: int, over: int | None, stays: bool
) -> None:
    fact = replace(session("captain", minutes=heard), is_direct=direct)
    key = (fact.producer, fact.session_id)
    ended = {} if over is None else {key: NOW + over * MINUTE}
    assert going_on([fact], lambda _: waits, ended, NOW) == ([fact] if stays else [])
