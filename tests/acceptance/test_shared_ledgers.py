"""Ledgers that processes of ours and of another implementation write at once."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Self

import pytest

from core.errors import LockTimeout
from core.ledger import FileLedger

ROOT = Path(__file__).parents[2]
FOREIGN = Path(__file__).with_name("foreign.py")
ISSUE = 7
HELD = 2.2  # seconds that a live holder keeps the lock: longer than people wait for it
WAITS = 60.0  # how long a process may take on a machine that does much else
Json = dict[str, Any]


class Party:
    """A process that writes the ledger."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process

    def held(self) -> None:
        """Returns when it has the lock."""
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == "held\n"

    def did(self, told: str = "\n") -> Json:
        """What it did, at its end."""
        out, _ = self.process.communicate(told, timeout=WAITS)
        assert self.process.returncode == 0
        did: Json = json.loads(out)
        return did

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()


class Shared:
    """One folder of ledgers and those who write there."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = folder / f"issue-{ISSUE}.json"
        self.marker = folder / f"issue-{ISSUE}.json.lock"
        self._parties: list[Party] = []

    def ours(self, command: str, name: str, *more: str) -> Party:
        return self._start(["-m", "tests.acceptance.sharer"], command, name, *more)

    def foreign(self, command: str, name: str, *more: str) -> Party:
        return self._start(["-I", str(FOREIGN)], command, name, *more)

    def _start(self, program: Sequence[str], command: str, name: str, *more: str) -> Party:
        process = subprocess.Popen(
            [sys.executable, *program, command, str(self.folder), str(ISSUE), name, *more],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT,
        )  # fmt: skip
        party = Party(process)
        self._parties.append(party)
        return party

    def read(self) -> Json:
        ledger: Json = json.loads(self.path.read_text())
        return ledger

    def wait_for_ours(self) -> None:
        """Returns when a process of ours tries for the lock, or has it."""
        private, until = self.folder / ".clarify" / f"issue-{ISSUE}.lock", time.monotonic() + WAITS
        while time.monotonic() < until:
            with suppress(FileNotFoundError), private.open() as file:
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    return
            time.sleep(0.01)
        pytest.fail("none came")

    def age(self, seconds: float = 31.0) -> None:
        then = time.time() - seconds
        os.utime(self.marker, (then, then))

    def end(self) -> None:
        for party in self._parties:
            if party.process.poll() is None:
                party.kill()

    def holds_all(self, *told: Json) -> None:
        """Everything that anybody was told is done is there, once, and nothing else."""
        records = {record["id"]: record for record in self.read()["clarifications"]}
        assert len(records) == len(self.read()["clarifications"]), "an id was given twice"
        claimed = {identity: topic for did in told for identity, topic in did["records"].items()}
        assert {identity: record["topic"] for identity, record in records.items()} == claimed
        answers = {
            identity: [entry["body"] for entry in record["thread"] if entry["type"] == "answer"]
            for identity, record in records.items()
        }
        given = {identity: [body] for did in told for identity, body in did["answers"].items()}
        assert {identity: bodies for identity, bodies in answers.items() if bodies} == given
        self._keeps_unknown_fields(list(records.values()), told)
        assert not self.marker.exists()
        assert [path.name for path in self.folder.iterdir() if path.is_file()] == [self.path.name]

    def _keeps_unknown_fields(self, records: Sequence[Json], told: Sequence[Json]) -> None:
        for record in records:
            if record["to"] == "engineer":  # a foreigner asked
                name = record["from"]
                assert record["labels"] == [name, None, 2.5]
                assert record["thread"][0]["mood"] == {"of": name}
            else:
                assert record["aaep"]["via"] == "shell"
        counts = {next(iter(did["records"].values())).split()[0]: len(did["records"])
                  for did in told if "timeouts" in did}  # fmt: skip
        assert self.read().get("toldBy", {}) == counts


class Readers:
    """Read all the time; records never become fewer, and nothing is set aside."""

    def __init__(self, folder: Path, many: int) -> None:
        self.looks = 0
        self.errors: list[BaseException] = []
        self._ledger = FileLedger(folder)
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._look) for _ in range(many)]

    def _look(self) -> None:
        last = 0
        try:
            while not self._stop.is_set():
                try:
                    count = len(self._ledger.read_now(ISSUE))
                except LockTimeout:  # torn, and its writer stood still for 2 s: so does the machine at times
                    continue
                assert count >= last, "records went away"
                last = count
                self.looks += 1
        except BaseException as error:  # noqa: BLE001 - told to the test, which fails with it
            self.errors.append(error)

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()
        self._ledger.close()


@pytest.fixture
def shared(tmp_path: Path) -> Iterator[Shared]:
    folder = tmp_path / "ledgers"
    folder.mkdir()
    made = Shared(folder)
    yield made
    made.end()


@contextmanager
def read_all_the_while(shared: Shared) -> Iterator[None]:
    with Readers(shared.folder, 2) as readers:
        yield
    assert readers.errors == []
    assert readers.looks > 10


def test_processes_of_both_kinds_lose_nothing_and_readers_see_no_torn_file(shared: Shared) -> None:
    with read_all_the_while(shared):
        parties = [shared.ours("write", f"ours-{n}", "12") for n in range(3)]
        parties += [shared.foreign("write", f"foreign-{n}", "12", "0.05") for n in range(3)]
        told = [party.did() for party in parties]
    shared.holds_all(*told)


def test_foreign_holder_for_seconds_is_waited_for_and_never_robbed(shared: Shared) -> None:
    holder = shared.foreign("hold", "holder", str(HELD))
    holder.held()
    with read_all_the_while(shared):
        parties = [shared.ours("write", f"ours-{n}", "2") for n in range(2)]
        told = [holder.did(), *(party.did() for party in parties)]
    shared.holds_all(*told)
    assert shared.read()["clarifications"][0]["from"] == "holder", "somebody wrote while it held"


def test_our_holder_for_seconds_is_waited_for(shared: Shared) -> None:
    holder = shared.ours("hold", "holder")
    holder.held()
    parties = [shared.ours("write", "ours", "2"), shared.foreign("write", "foreign", "2", "0.5")]
    until = time.monotonic() + HELD
    while time.monotonic() < until:
        assert not shared.path.exists(), "somebody wrote while it held"
        time.sleep(0.05)
    told = [holder.did(), *(party.did() for party in parties)]
    shared.holds_all(*told)
    assert shared.read()["clarifications"][0]["from"] == "holder"


def test_killed_holder_of_ours_is_recovered_at_once(shared: Shared) -> None:
    first = shared.ours("write", "first", "1").did()
    holder = shared.ours("hold", "holder")
    holder.held()
    holder.kill()
    assert shared.marker.exists()
    told = [first, shared.ours("write", "ours", "2").did(), shared.foreign("write", "foreign", "2").did()]
    shared.holds_all(*told)


def test_killed_foreign_holder_is_recovered_when_its_marker_is_old(shared: Shared) -> None:
    first = shared.foreign("write", "first", "1").did()
    holder = shared.foreign("die", "holder", "1.0")
    holder.held()
    holder.kill()
    waiting = shared.ours("write", "ours", "2")
    shared.wait_for_ours()
    assert len(shared.read()["clarifications"]) == 1, "the marker is not old yet"
    shared.age()
    told = [first, waiting.did(), shared.foreign("write", "foreign", "2").did()]
    shared.holds_all(*told)
    assert not list(shared.folder.glob(".*orphan*"))


@pytest.mark.parametrize("content", [b"", b'{"agent": "somebody"}\xff'])
def test_marker_of_any_content_is_honoured_until_it_is_old(shared: Shared, content: bytes) -> None:
    shared.marker.write_bytes(content)
    waiting = [shared.ours("write", f"ours-{n}", "2") for n in range(2)]
    shared.wait_for_ours()
    assert shared.marker.read_bytes() == content
    assert not shared.path.exists()
    shared.age()
    shared.holds_all(*(party.did() for party in waiting))


def test_holder_that_slept_for_too_long_does_not_write_over_its_robber(shared: Shared) -> None:
    """A closed laptop: its marker grew old, another took the lock by the rules."""
    holder = shared.ours("hold", "sleeper")
    holder.held()
    holder.signal(signal.SIGSTOP)
    shared.age()
    told = shared.foreign("write", "robber", "1").did()
    holder.signal(signal.SIGCONT)
    assert holder.did() == {"error": "LOCK_TIMEOUT"}
    shared.holds_all(told)


def test_half_a_ledger_of_a_killed_foreigner_is_set_aside_and_nothing_written_over_it(
    shared: Shared,
) -> None:
    shared.foreign("write", "first", "2").did()
    holder = shared.foreign("die", "holder", "0.5")
    holder.held()
    holder.kill()
    torn = shared.path.read_bytes()
    shared.age()
    assert shared.ours("write", "ours", "1").did() == {"error": "LEDGER_UNREADABLE"}
    aside = next(shared.folder.glob("*.unreadable-*"))
    assert aside.read_bytes() == torn
    again = shared.ours("write", "ours", "1").did()
    assert not set(again["records"]) & {"CLR-7-001"}
