"""Another implementation of the Clarification Protocol's files (architecture §5), written apart from ours.

As the reference implementation does it: marker by O_CREAT|O_EXCL, stale after 30 s, file overwritten in place.

    rival.py increment FOLDER ISSUE TIMES    add one to "counter" and append one record, TIMES times
    rival.py hold FOLDER ISSUE               take the marker, say "held", refresh it, let go at end of input
"""

import json
import os
import select
import sys
import time
from pathlib import Path
from typing import Any


def take(marker: Path) -> None:
    while True:
        try:
            handle = os.open(marker, os.O_CREAT | os.O_EXCL | os.O_WRONLY)
        except FileExistsError:
            try:
                if time.time() - marker.stat().st_mtime > 30:
                    marker.unlink()
                    continue
            except FileNotFoundError:
                continue
            time.sleep(0.001)
            continue
        stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        os.write(handle, json.dumps({"pid": os.getpid(), "timestamp": stamp, "agent": "rival"}).encode())
        os.close(handle)
        return


def increment(folder: Path, issue: int) -> None:
    marker, path = folder / f"issue-{issue}.json.lock", folder / f"issue-{issue}.json"
    take(marker)
    try:
        ledger: dict[str, Any] = (
            json.loads(path.read_text()) if path.exists() else {"issueNumber": issue, "clarifications": []}
        )
        ledger["counter"] = ledger.get("counter", 0) + 1
        stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        ledger["clarifications"].append(
            {
                "id": f"CLR-{issue}-{len(ledger['clarifications']) + 1:03d}",
                "issueNumber": issue,
                "from": "engineer",
                "to": "architect",
                "topic": "which database",
                "blocking": True,
                "status": "pending",
                "round": 1,
                "maxRounds": 5,
                "created": stamp,
                "thread": [
                    {"round": 1, "from": "engineer", "type": "question", "body": "Which?", "timestamp": stamp}
                ],
            }
        )
        text = json.dumps(ledger, indent=2)
        with path.open("w") as file:  # in place, and torn: as found in the wild
            half = len(text) // 2
            file.write(text[:half])
            file.flush()
            time.sleep(0.002)
            file.write(text[half:])
    finally:
        marker.unlink()


def hold(folder: Path, issue: int) -> None:
    marker = folder / f"issue-{issue}.json.lock"
    take(marker)
    print("held", flush=True)  # noqa: T201 - what the test waits for
    while not select.select([sys.stdin], [], [], 0.05)[0]:
        os.utime(marker)
    marker.unlink()


if __name__ == "__main__":
    command, place, number = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
    if command == "hold":
        hold(place, number)
    else:
        for _ in range(int(sys.argv[4])):
            increment(place, number)
