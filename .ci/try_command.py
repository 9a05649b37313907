"""Runs a command that starts the demo, opens the page that it prints, asks a question and answers it, stops it as a person would.

python .ci/try_command.py FOLDER "COMMAND"
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from typing import Any

LIMIT = 600.0  # seconds, most of them for the installation; CI does other things meanwhile
QUESTION = "Does the installed bot answer?"
CHANNEL, PERSON = "C0AGENTS", "U0ADE"  # of the demo's workspace


def main(folder: str, command: str) -> int:
    """Exit code 0 if the page was there, the question was answered, and the command ended well after Ctrl-C."""
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
        page, bot = _addresses(process)
        if page is None:
            print(f"no address of a page was printed; exit code {process.wait()}")
            return 1
        with urllib.request.urlopen(page, timeout=10) as response:
            text = response.read().decode()
        print(f"{page}: {len(text)} characters")
        answer = _answered(page, bot)
        print(f"{QUESTION} {answer}")
        os.killpg(process.pid, signal.SIGINT)
        code = process.wait(timeout=20)
        print(f"exit code after Ctrl-C: {code}")
        return 0 if code in {0, 130} and "agents" in text and answer is True else 1
    finally:
        watchdog.cancel()


def _addresses(process: subprocess.Popen[str]) -> tuple[str | None, str]:
    """The addresses of the page and of the bot, which the demo prints if it is not the usual one."""
    started = time.monotonic()
    page, bot = None, "http://127.0.0.1:8787"
    for line in process.stdout or ():
        print(f"{time.monotonic() - started:6.1f} s  {line.rstrip()}")
        if found := re.search(r"CLARIFY_URL=(\S+)", line):
            bot = found[1]
        elif page is None and (found := re.search(r"http://127\.0\.0\.1:\d+/", line)):
            page = found.group()
        if "bot is connected" in line:
            break
    return page, bot


def _answered(page: str, bot: str) -> Any:
    """Asks a question as an agent does, clicks Yes as a person does, and returns the agent's answer."""
    with ThreadPoolExecutor() as agent:
        asked = agent.submit(_call, f"{bot}/questions?wait=55", {"question": QUESTION, "kind": "yes_no"})
        end = time.monotonic() + 50
        while time.monotonic() < end:
            messages = _call(f"{page}control/messages?channel={CHANNEL}")["messages"]
            cards = [each["ts"] for each in messages if QUESTION in json.dumps(each)]
            if cards:
                click = {"user": PERSON, "channel": CHANNEL, "ts": cards[0], "label": "Yes"}
                print(f"click: {_call(f'{page}control/click', click)}")
                break
            time.sleep(0.2)
        return asked.result().get("answer")


def _call(url: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as response:
        found: dict[str, Any] = json.load(response)
    return found


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
