"""How soon a coding agent's hook has asked: it starts before each step of the agent."""

from __future__ import annotations

import asyncio
import json
import shutil
import socket
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path

from tests.bench.stage import ROOT
from tests.bench.starting import processor_time
from tests.bench.table import Row, median, ms


async def started(folder: Path, rounds: int) -> list[Row]:
    """Processor time of `python3 clarify.py hook` until its request, against a bare interpreter, in turn."""
    copy = str(shutil.copy(ROOT / "clarify.py", folder))
    pairs = [
        (
            await asyncio.to_thread(processor_time, partial(_until_asked, copy, folder)),
            await asyncio.to_thread(processor_time, _bare),
        )
        for _ in range(rounds)
    ]
    ours, baseline = zip(*pairs, strict=True)
    return [
        Row(
            "start of a hook → request, processor time above a bare interpreter",
            (median(ours) - median(baseline)) * 1e3,
            "{:.0f} ms",
            ms(ours),
            f"{ms(baseline)}: `python3 -c ''`",
            goal=60.0,
        )
    ]


def _until_asked(program: str, folder: Path) -> None:
    """Run a hook until its first request arrives."""
    event = {"hook_event_name": "PreToolUse", "session_id": "s", "tool_name": "Bash", "tool_input": {}}
    with socket.create_server(("127.0.0.1", 0)) as server, tempfile.TemporaryFile() as given:
        given.write(json.dumps(event).encode())
        given.seek(0)
        url = f"http://127.0.0.1:{server.getsockname()[1]}"
        with subprocess.Popen(
            [sys.executable, program, "hook", "claude-code"],
            env={"CLARIFY_URL": url, "XDG_RUNTIME_DIR": str(folder)},
            stdin=given,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        ) as hook:
            connection, _ = server.accept()
            with connection:
                assert connection.recv(1) == b"G"
                hook.kill()


def _bare() -> None:
    subprocess.run([sys.executable, "-c", ""], check=True)
