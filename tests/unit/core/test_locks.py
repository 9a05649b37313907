"""The lock of a ledger, against real processes and real files."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import pytest

from core import locks as locks_module
from core.errors import LockTimeout
from core.locks import AGENT, Locks

QUICK = 0.2  # how long a test waits for a lock that it must not get. Seconds.


@pytest.fixture
def locks(tmp_path: Path) -> Iterator[Locks]:
    made = Locks(tmp_path)
    made.private.mkdir()
    yield made
    made.close()


def marker(folder: Path, issue: int = 7) -> Path:
    return folder / f"issue-{issue}.json.lock"


def put_marker(folder: Path, agent: str | None, age: float = 0.0) -> Path:
    """A marker of another process; None: empty, as a kill between creating and writing leaves it."""
    path = marker(folder)
    content = {"pid": 1, "timestamp": "2026-05-24T14:22:00Z", "agent": agent}
    path.write_text("" if agent is None else json.dumps(content))
    then = time.time() - age
    os.utime(path, (then, then))
    return path


def test_marker_says_who_holds_it_and_goes_when_let_go(locks: Locks, tmp_path: Path) -> None:
    with locks.hold(7, 10.0):
        held = json.loads(marker(tmp_path).read_text())
        assert (held["pid"], held["agent"]) == (os.getpid(), AGENT)
        assert held["timestamp"].endswith("Z")
    assert not marker(tmp_path).exists()
    assert list(locks.private.glob("*.json.lock.*")) == []


@pytest.mark.parametrize(
    ("agent", "age", "free"),
    [
        ("rival", 0.0, False),
        ("rival", 29.0, False),
        ("rival", 31.0, True),
        (None, 0.0, False),
        (None, 31.0, True),
        (AGENT, 0.0, True),  # nobody of ours can live: the kernel lock was free
        (AGENT, 31.0, True),
    ],
    ids=[
        "foreign, fresh",
        "foreign, nearly old",
        "foreign, old",
        "empty, fresh",
        "empty, old",
        "own, fresh",
        "own, old",
    ],
)
def test_hold_takes_over_only_markers_of_the_dead(
    locks: Locks, tmp_path: Path, agent: str | None, age: float, free: bool
) -> None:
    left = put_marker(tmp_path, agent, age)
    before = left.read_text()
    if not free:
        with pytest.raises(LockTimeout), locks.hold(7, QUICK):
            pytest.fail("robbed")
        assert left.read_text() == before
        return
    at_once = SimpleNamespace(monotonic=time.monotonic, time=time.time)  # sleeps are an error
    with mock.patch.object(locks_module, "time", at_once), locks.hold(7, 10.0):
        assert json.loads(left.read_text())["pid"] == os.getpid()
    assert list(tmp_path.glob(".*orphan*")) == []


def test_own_marker_is_refreshed_while_held(
    locks: Locks, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(locks_module, "_REFRESH_EVERY", 0.01)
    with locks.hold(7, 10.0):
        old = time.time() - 29
        os.utime(marker(tmp_path), (old, old))
        deadline = time.monotonic() + 60
        while marker(tmp_path).stat().st_mtime < old + 28:
            assert time.monotonic() < deadline, "never refreshed"
            threading.Event().wait(0.005)


def test_only_the_own_marker_is_removed(locks: Locks, tmp_path: Path) -> None:
    """Robbed of its marker (say, after a long suspend), a holder leaves the robber's alone.

    File systems give a freed inode number to the next file, so that the number alone tells nothing.
    """
    with locks.hold(7, 10.0):
        marker(tmp_path).unlink()
        foreign = put_marker(tmp_path, "rival")
    assert json.loads(foreign.read_text())["agent"] == "rival"


def test_hold_waits_for_our_other_processes_whatever_their_marker_says(locks: Locks, tmp_path: Path) -> None:
    other = Locks(tmp_path)
    try:
        with other.hold(7, 10.0):
            marker(tmp_path).unlink()
            with pytest.raises(LockTimeout, match="another process of ours"), locks.hold(7, QUICK):
                pytest.fail("two at a time")
        with locks.hold(7, 10.0):
            assert marker(tmp_path).exists()
    finally:
        other.close()
