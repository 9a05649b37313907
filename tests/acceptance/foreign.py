"""Another implementation of the Clarification Protocol's files (architecture §5.2), which shares no code with ours.

It does as the reference does: the marker is created exclusively, tried for at 0, 200, 400, 800 and 1600 ms; one that
is older than 30 s by its mtime is deleted; the ledger is read, changed and overwritten in place.

    foreign.py write FOLDER ISSUE NAME COUNT PACE   add a record and answer one of others, COUNT times; PACE times as slow
    foreign.py hold FOLDER ISSUE NAME SECONDS       say "held", keep the marker for so long, then add a record
    foreign.py die FOLDER ISSUE NAME PART           say "held" having written PART (0 to 1) of the ledger; wait for death

Says as JSON what it did: {"records": {id: topic}, "answers": {id: body}, "timeouts": n}.
"""

import json
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

BACKOFF = (0.0, 0.2, 0.4, 0.8, 1.6)
ORPHANED = 30.0
Json = dict[str, Any]


class LockTimeout(Exception):
    """The marker was there at every attempt."""


class Foreigner:
    """`tears`: how long the ledger stays half written, seconds."""

    def __init__(self, folder: Path, issue: int, name: str, pace: float = 1.0, tears: float = 0.002) -> None:
        self.path = folder / f"issue-{issue}.json"
        self.marker = folder / f"issue-{issue}.json.lock"
        self.issue = issue
        self.name = name
        self.pace = pace
        self.tears = tears
        self.did: Json = {"records": {}, "answers": {}, "timeouts": 0}

    @contextmanager
    def locked(self) -> Iterator[None]:
        self.take()
        try:
            yield
        finally:
            self.marker.unlink(missing_ok=True)

    def take(self) -> None:
        for wait in BACKOFF:
            time.sleep(wait * self.pace)
            if self.create() or (self.is_orphaned() and self.create()):
                return
        raise LockTimeout

    def create(self) -> bool:
        try:
            handle = os.open(self.marker, os.O_CREAT | os.O_EXCL | os.O_WRONLY)
        except FileExistsError:
            return False
        with os.fdopen(handle, "w") as file:
            json.dump({"pid": os.getpid(), "timestamp": stamp(), "agent": self.name}, file)
        return True

    def is_orphaned(self) -> bool:
        try:
            if time.time() - self.marker.stat().st_mtime <= ORPHANED:
                return False
            self.marker.unlink()
        except FileNotFoundError:
            return True
        return True

    def read(self) -> Json:
        try:
            found: Json = json.loads(self.path.read_text())
        except FileNotFoundError:
            return {"issueNumber": self.issue, "clarifications": []}
        return found

    def overwrite(self, ledger: Json, part: float = 0.5) -> None:
        text = json.dumps(ledger, indent=2)
        cut = int(len(text) * part)
        with self.path.open("w") as file:
            file.write(text[:cut])
            file.flush()
            time.sleep(self.tears)
            file.write(text[cut:])

    def update(self) -> None:
        """Read, add a record, answer somebody's, overwrite: the marker is held."""
        ledger = self.read()
        ledger["toldBy"] = {**ledger.get("toldBy", {}), self.name: len(self.did["records"]) + 1}
        record = self.record(len(ledger["clarifications"]) + 1)
        asked = next((one for one in ledger["clarifications"] if self.may_answer(one)), None)
        ledger["clarifications"].append(record)
        if asked is not None:
            self.answer(asked)
        self.overwrite(ledger)
        self.did["records"][record["id"]] = record["topic"]
        if asked is not None:
            self.did["answers"][asked["id"]] = asked["thread"][-1]["body"]

    def record(self, number: int) -> Json:
        topic = f"{self.name} asks {len(self.did['records'])}"
        question = {"round": 1, "from": self.name, "type": "question", "body": topic, "timestamp": stamp()}
        return {
            "id": f"CLR-{self.issue}-{number:03d}",
            "issueNumber": self.issue,
            "from": self.name,
            "to": "engineer",
            "topic": topic,
            "blocking": True,
            "status": "pending",
            "round": 1,
            "maxRounds": 5,
            "created": stamp(),
            "staleAfter": None,
            "resolvedAt": None,
            "thread": [question | {"mood": {"of": self.name}}],
            "labels": [self.name, None, 2.5],
        }

    @staticmethod
    def may_answer(record: Json) -> bool:
        return bool(record["status"] == "pending" and record["to"] == "architect")

    def answer(self, record: Json) -> None:
        body = f"{self.name} answers {record['id']}"
        entry = {"round": record["round"], "from": "architect", "type": "answer", "body": body}
        record["thread"].append(entry | {"timestamp": stamp()})
        record["status"] = "answered"

    def write(self, count: int) -> None:
        while len(self.did["records"]) < count:
            try:
                with self.locked():
                    self.update()
            except LockTimeout:
                self.did["timeouts"] += 1

    def hold(self, seconds: float) -> None:
        with self.locked():
            say("held")
            time.sleep(seconds)
            self.update()

    def die(self, part: float) -> None:
        self.take()
        if part < 1.0:
            text = json.dumps(self.read(), indent=2)
            self.path.write_text(text[: int(len(text) * part)])
        say("held")
        sys.stdin.read()


def stamp() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime())


def say(word: object) -> None:
    sys.stdout.write(f"{word}\n")
    sys.stdout.flush()


def main(command: str, folder: str, issue: str, name: str, *amounts: str) -> None:
    amount, pace = [*amounts, "1"][:2]
    foreigner = Foreigner(Path(folder), int(issue), name, float(pace))
    if command == "write":
        foreigner.write(int(amount))
    elif command == "hold":
        foreigner.hold(float(amount))
    else:
        foreigner.die(float(amount))
    say(json.dumps(foreigner.did))


if __name__ == "__main__":
    main(*sys.argv[1:])
