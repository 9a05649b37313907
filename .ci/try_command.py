"""Runs the README's first command in a fresh clone, opens the page that it prints, stops it as a person would.

python .ci/try_command.py FOLDER "COMMAND"
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
import urllib.request

LIMIT = 600.0  # seconds, most of them for the installation; CI does other things meanwhile


def main(folder: str, command: str) -> int:
    """Exit code 0 if the page was there and the command ended well after Ctrl-C."""
    process = subprocess.Popen(
        ["bash", "-euo", "pipefail", "-c", command],
        cwd=folder,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    watchdog = threading.Timer(LIMIT, os.killpg, (process.pid, signal.SIGKILL))
    watchdog.start()
    try:
        address = _address(process)
        if address is None:
            print(f"no address of a page was printed; exit code {process.wait()}")
            return 1
        with urllib.request.urlopen(address, timeout=10) as page:
            text = page.read().decode()
        print(f"{address}: {len(text)} characters")
        os.killpg(process.pid, signal.SIGINT)
        code = process.wait(timeout=20)
        print(f"exit code after Ctrl-C: {code}")
        return 0 if code in {0, 130} and "agents" in text else 1
    finally:
        watchdog.cancel()


def _address(process: subprocess.Popen[str]) -> str | None:
    started = time.monotonic()
    for line in process.stdout or ():
        print(f"{time.monotonic() - started:6.1f} s  {line.rstrip()}")
        if found := re.search(r"http://127\.0\.0\.1:\d+/", line):
            return found.group()
    return None


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
