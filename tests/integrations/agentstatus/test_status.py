"""The status file: a real one, beside a real rival for its lock."""

from __future__ import annotations

import asyncio
import json
import logging
import os
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from bot.integrations.agentstatus.status import StatusFile
from core import transitions
from core.clarification import Answer, Clarification, Decider
from core.locks import Locks
from core.summary import Seen
from tests.kit.builders import NOW, SLA, changed, record
from tests.kit.clocks import ManualClock
from tests.kit.until import until

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
    made._locks.close()


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
    await shell.close()


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
    await agents.close()


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
