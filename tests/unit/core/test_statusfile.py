"""The agent-status file, against real files and another implementation in another process."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from core.agents import AgentState, StatusFile
from core.errors import StatusUnavailable
from core.locks import Locks
from tests.clocks import ManualClock, until

ROOT = Path(__file__).parents[3]
NOW = "2026-11-21T09:00:00.000Z"
WAITS = AgentState("blocked-clarification", 42, "CLR-42-001", waiting_on="architect")
ANSWERS = AgentState("clarifying", 42, "CLR-42-001", responding_to="engineer")
OVER = AgentState("working", ended=frozenset({"CLR-42-001"}))
BLOCKED = {
    "status": "blocked-clarification",
    "issue": 42,
    "lastActivity": NOW,
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
for _ in range(int(sys.argv[4]) if command == "add" else 0):
    take()
    add(lambda: time.sleep(0.001))
    marker.unlink()
"""
OURS = """
import asyncio, sys
from pathlib import Path
from core.clock import SystemClock
from core.locks import Locks
from core.agents import AgentState, StatusFile
async def work(path, name, times):
    file = StatusFile(path, SystemClock(), patience=60)
    for seq in range(1, times + 1):
        await file.update({name: AgentState("blocked-clarification", 42, f"CLR-42-{seq:03d}", "architect")})
    file.close()
asyncio.run(work(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])))
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "agent-status.json"


@pytest.fixture
def file(path: Path) -> Iterator[StatusFile]:
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


def said(path: Path) -> dict[str, Any]:
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


async def test_update_writes_the_protocols_fields(file: StatusFile, path: Path) -> None:
    await file.update({"engineer": WAITS, "architect": ANSWERS})
    assert said(path) == {
        "engineer": BLOCKED,
        "architect": {
            "status": "clarifying",
            "issue": 42,
            "lastActivity": NOW,
            "clarificationId": "CLR-42-001",
            "waitingOn": None,
            "respondingTo": "engineer",
        },
    }
    assert file.read() == said(path)
    assert [each.name for each in path.parent.iterdir() if each.is_file()] == [path.name]
    assert sorted(each.name for each in (path.parent / ".clarify").iterdir()) == [
        "agent-status.lock",
        "agent-status.marker",
    ]


async def test_update_keeps_agents_fields_and_mode_of_others(file: StatusFile, path: Path) -> None:
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
    await file.update({"engineer": WAITS, "qa": WAITS})
    assert said(path) == theirs | {"engineer": theirs["engineer"] | BLOCKED}
    assert list(said(path)) == list(theirs)
    assert mode(path) == 0o664


async def test_update_knows_an_agent_by_other_spellings(file: StatusFile, path: Path) -> None:
    put(path, json.dumps({"Product  Manager": {"status": "idle"}}).encode())
    await file.update({"product manager": WAITS})
    assert said(path) == {"Product  Manager": BLOCKED}


async def test_byte_order_mark_is_no_damage(file: StatusFile, path: Path) -> None:
    put(path, b"\xef\xbb\xbf" + json.dumps({"qa": {"status": "idle"}}).encode())
    await file.update({"engineer": WAITS})
    assert said(path) == {"qa": {"status": "idle"}, "engineer": BLOCKED}


@pytest.mark.parametrize(
    "changes", [{"engineer": WAITS}, {"architect": OVER}, {}], ids=["same", "gone", "none"]
)
async def test_update_without_news_writes_nothing_and_takes_no_lock(
    file: StatusFile, path: Path, changes: dict[str, AgentState]
) -> None:
    await file.update({"engineer": WAITS})
    before = state(path)
    path.with_name("agent-status.json.lock").write_text("{}")
    await file.update(changes)
    assert state(path) == before


async def test_nothing_to_say_makes_no_file(file: StatusFile, path: Path) -> None:
    await file.update({"engineer": OVER})
    assert list(path.parent.iterdir()) == []
    assert file.read() == {}


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
        (BLOCKED | {"status": "clarifying"}, WAITS, "blocked-clarification"),
    ],
)
async def test_change_takes_back_only_what_is_over(
    file: StatusFile, path: Path, entry: dict[str, Any], change: AgentState, status: object
) -> None:
    put(path, json.dumps({"engineer": entry | {"more": 1}}).encode())
    await file.update({"engineer": change})
    now = said(path)["engineer"]
    assert now["status"] == status
    assert (now["more"], now["issue"]) == (1, 42)
    if status == "working":
        assert (now["clarificationId"], now["waitingOn"], now["respondingTo"]) == (None, None, None)


async def test_torn_file_is_read_again_under_the_lock(file: StatusFile, path: Path) -> None:
    put(path, json.dumps({"qa": {"status": "idle", "long": "x" * 200}}).encode())
    with rival(path, "tear") as writer:
        with pytest.raises(ValueError, match=r"Unterminated|Expecting"):
            said(path)
        read = asyncio.create_task(asyncio.to_thread(file.read))
        write = asyncio.create_task(file.update({"engineer": WAITS}))
        await until((path.parent / ".clarify" / "agent-status.lock").exists)
        assert not read.done()
        assert not write.done()
        go_on(writer)
        assert {"qa", "reviewer"} <= set(await read)
        await write
    assert said(path)["engineer"] == BLOCKED
    assert said(path)["reviewer"] == {"status": "working", "count": 1}
    assert list(path.parent.glob("*.unreadable*")) == []


async def test_torn_file_that_says_it_already_is_not_written_again(file: StatusFile, path: Path) -> None:
    put(path, json.dumps({"engineer": BLOCKED}).encode())
    with rival(path, "tear") as writer:
        write = asyncio.create_task(file.update({"engineer": WAITS}))
        await until((path.parent / ".clarify" / "agent-status.lock").exists)
        inode, _ = state(path)
        go_on(writer)
        await write
    assert state(path)[0] == inode


@pytest.mark.parametrize(
    "content",
    [b"", b'{"engineer": {"sta', b"[]", b"null", b"\xff\xfe", b"[" * 100_000, b'"' + b"x" * 5000],
    ids=["empty", "cut", "list", "null", "bytes", "deep", "text"],
)
async def test_file_that_is_no_object_is_set_aside(
    file: StatusFile, path: Path, content: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    put(path, content)
    with caplog.at_level(logging.ERROR):
        await file.update({"engineer": WAITS})
    (aside,) = path.parent.glob("agent-status.json.unreadable-*")
    assert aside.read_bytes() == content
    assert said(path) == {"engineer": BLOCKED}
    assert aside.name in caplog.text


async def test_file_that_cannot_be_set_aside_stays(
    file: StatusFile, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(13, "Permission denied")

    put(path, b"[]")
    with monkeypatch.context() as broken:
        broken.setattr(Path, "rename", refuse)
        with pytest.raises(StatusUnavailable, match="no JSON object"):
            await file.update({"engineer": WAITS})
    assert got(path) == b"[]"


async def test_held_lock_is_not_waited_for_any_longer_than_asked(path: Path) -> None:
    file = StatusFile(path, ManualClock(), patience=0.1)
    with rival(path, "hold"), pytest.raises(StatusUnavailable, match=r"not had within 0\.1 s"):
        await file.update({"engineer": WAITS})
    assert got(path) is None
    await file.update({"engineer": WAITS})
    assert said(path) == {"engineer": BLOCKED}
    file.close()


@pytest.mark.parametrize("call", ["fsync", "replace", "link", "mkdir"])
async def test_refused_file_operation_leaves_the_file_as_it_was(
    file: StatusFile, path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    put(path, b"{}")

    def refuse(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as broken:
        broken.setattr(os, call, refuse)
        with pytest.raises(StatusUnavailable, match="disk is full"):
            await file.update({"engineer": WAITS})
    assert got(path) == b"{}"
    await file.update({"engineer": WAITS})
    assert said(path) == {"engineer": BLOCKED}
    assert sorted(each.name for each in (path.parent / ".clarify").iterdir()) == [
        "agent-status.lock",
        "agent-status.marker",
    ]


@pytest.mark.parametrize("content", [b"{}", b'{"half'], ids=["whole", "torn"])
async def test_process_that_lost_the_lock_touches_nothing(
    file: StatusFile, path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes
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
            await file.update({"engineer": WAITS})
    assert got(path) == content
    assert got(marker) == b'{"agent": "rival"}'


def test_processes_of_ours_and_of_others_lose_nothing(path: Path) -> None:
    times = 25
    workers = [
        started(OURS, path, "engineer", times),
        started(OURS, path, "designer", times),
        started(RIVAL, path, "add", "reviewer", times),
        started(RIVAL, path, "add", "tester", times),
    ]
    for worker in workers:
        worker.communicate(timeout=60)
        assert worker.returncode == 0
    entries = said(path)
    assert (entries["reviewer"]["count"], entries["tester"]["count"]) == (times, times)
    last = {entries[name]["clarificationId"] for name in ("engineer", "designer")}
    assert last == {f"CLR-42-{times:03d}"}
    assert list(path.parent.glob("*.unreadable*")) == []
