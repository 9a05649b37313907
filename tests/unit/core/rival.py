"""Another implementation of the Clarification Protocol's files (architecture §5), written apart from ours.

As the reference implementation does it: marker by O_CREAT|O_EXCL, stale after 30 s.

    rival.py FOLDER ISSUE    take the marker, say "held", refresh it, let go at end of input
"""

import json
import os
import select
import sys
import time
from pathlib import Path


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


def hold(folder: Path, issue: int) -> None:
    marker = folder / f"issue-{issue}.json.lock"
    take(marker)
    print("held", flush=True)  # noqa: T201 - what the test waits for
    while not select.select([sys.stdin], [], [], 0.05)[0]:
        os.utime(marker)
    marker.unlink()


if __name__ == "__main__":
    hold(Path(sys.argv[1]), int(sys.argv[2]))
