"""Another implementation on the same folder: plain JSON, marker file, ledger overwritten in place (architecture §5)."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.unit.core.witness import OPEN, Raw, Witness

_ORPHANED = 31  # seconds
Edit = Callable[[Raw, str], None]


class OtherHand:
    """It waits for as long as it takes for a marker that somebody of the living removes."""

    def __init__(self, folder: Path, witness: Witness) -> None:
        self._folder = folder
        self._witness = witness

    def change(self, issue: int, edit: Edit, stamp: str, patience: float = 0.0) -> bool:
        """Under the marker; False: it is there, by somebody who may be dead, or the ledger is torn."""
        if issue in self._witness.torn or not self.take(issue, patience):
            return False
        try:
            ledger = self._read(issue)
            edit(ledger, stamp)
            text = json.dumps(ledger, indent=1)
            with self._path(issue).open("w") as file:
                file.write(text[: len(text) // 2])
                file.flush()
                file.write(text[len(text) // 2 :])
            self._witness.saw(issue, text.encode(), self, ours=False)
        finally:
            self.let_go(issue)
        return True

    def tear(self, issue: int, part: float) -> bool:
        """It dies in the midst of writing, and its marker gets old."""
        if issue in self._witness.torn or not self.take(issue, 0.0):
            return False
        text = json.dumps(self._read(issue), indent=1)
        self._path(issue).write_text(text[: int(len(text) * part)])
        self.get_old(issue)
        return True

    def take(self, issue: int, patience: float) -> bool:
        deadline = time.monotonic() + patience
        while True:
            try:
                handle = os.open(self.marker(issue), os.O_CREAT | os.O_EXCL | os.O_WRONLY)
            except FileExistsError:
                if time.monotonic() >= deadline:
                    return False
                time.sleep(0.001)
                continue
            os.write(handle, json.dumps({"pid": os.getpid(), "agent": "other"}).encode())
            os.close(handle)
            return True

    def let_go(self, issue: int) -> None:
        self.marker(issue).unlink()

    def get_old(self, issue: int) -> None:
        """As a marker is whose holder died long ago."""
        long_ago = time.time() - _ORPHANED
        os.utime(self.marker(issue), (long_ago, long_ago))

    def marker(self, issue: int) -> Path:
        return self._folder / f"issue-{issue}.json.lock"

    def _path(self, issue: int) -> Path:
        return self._folder / f"issue-{issue}.json"

    def _read(self, issue: int) -> Raw:
        try:
            found: Raw = json.loads(self._path(issue).read_text())
        except FileNotFoundError:
            return {"issueNumber": issue, "clarifications": []}
        return found


def _say(record: Raw, kind: str, who: str, body: str, stamp: str) -> None:
    entry = {"round": record["round"], "from": who, "type": kind, "body": body, "timestamp": stamp}
    record["thread"].append(entry | {"mood": {"of": who}})


def answer(record: Raw, stamp: str, body: str = "other says 7") -> None:
    if record["status"] in OPEN:
        escalated = record["status"] == "escalated"
        _say(record, "answer", "architect", body, stamp)
        record |= {"status": "resolved", "resolvedAt": stamp} if escalated else {"status": "answered"}


def resolve(record: Raw, stamp: str) -> None:
    if record["status"] in {*OPEN, "answered"}:
        _say(record, "resolution", "product", "yes", stamp)
        record |= {"status": "resolved", "resolvedAt": stamp}


def ask_further(record: Raw, stamp: str) -> None:
    if record["status"] == "answered" and record["round"] < record["maxRounds"]:
        record["round"] += 1
        _say(record, "question", record["from"], "And then what?", stamp)
        record["status"] = "pending"


def call_stale(record: Raw, stamp: str) -> None:
    if record["status"] == "pending":
        record["status"] = "stale"


def escalate(record: Raw, stamp: str) -> None:
    if record["status"] in {"pending", "stale"}:
        _say(record, "escalation", "watchdog", "nobody answers", stamp)
        record["status"] = "escalated"


def abandon(record: Raw, stamp: str) -> None:
    if record["status"] in OPEN:
        _say(record, "resolution", "watchdog", "no more", stamp)
        record |= {"status": "abandoned", "resolvedAt": stamp}


def annotate(record: Raw, stamp: str) -> None:
    """Fields that nobody else knows."""
    record["labels"] = [stamp, None, 2.5]
    record["thread"][-1]["seen"] = stamp
    if "aaep" in record:
        record["aaep"]["xOther"] = {"at": stamp}


ON_RECORD: dict[str, Callable[[Raw, str], None]] = {
    "answer": answer,
    "answer yes": lambda record, stamp: answer(record, stamp, "yes"),
    "resolve": resolve,
    "ask further": ask_further,
    "call stale": call_stale,
    "escalate": escalate,
    "abandon": abandon,
    "annotate": annotate,
}


def add(ledger: Raw, stamp: str) -> None:
    """A question of its own, numbered as others number: by the file's length."""
    issue, number = ledger["issueNumber"], len(ledger["clarifications"]) + 1
    named = f"CLR-{issue}-{number:03d}"
    if any(one.get("id") == named for one in ledger["clarifications"]):
        return
    question: dict[str, Any] = {"round": 1, "from": "architect", "type": "question", "timestamp": stamp}
    record = {"id": named, "issueNumber": issue, "from": "architect", "to": "engineer", "topic": "their own"}
    record |= {"blocking": True, "status": "pending", "round": 1, "maxRounds": 2, "created": stamp}
    ledger["clarifications"].append(record | {"thread": [question | {"body": f"Theirs, {number}?"}]})


def add_junk(ledger: Raw, stamp: str) -> None:
    ledger["clarifications"].append({"note": "no record", "at": stamp})


def annotate_ledger(ledger: Raw, stamp: str) -> None:
    ledger["counter"] = {"of": "others", "at": stamp}


ON_LEDGER: dict[str, Edit] = {"add": add, "add junk": add_junk, "annotate ledger": annotate_ledger}
EDITS = (*ON_RECORD, *ON_LEDGER)
