"""How soon a coding agent's hook has asked, which starts before each step of the agent; and how soon its MCP server answers."""

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
    """Processor time of `python3 clarify.py hook` until its request, and of `mcp` until its first answer, against a bare
    interpreter, in turn.
    """
    copy = str(shutil.copy(ROOT / "clarify.py", folder))
    runs = (partial(_until_asked, copy, folder), partial(_until_answered, copy), _bare)
    times = [[await asyncio.to_thread(processor_time, run) for run in runs] for _ in range(rounds)]
    *ours, baseline = zip(*times, strict=True)
    names = ("a hook → request", "`clarify.py mcp` → answer to `initialize`")
    return [
        Row(
            f"start of {name}, processor time above a bare interpreter",
            (median(each) - median(baseline)) * 1e3,
            "{:.0f} ms",
            ms(each),
            f"{ms(baseline)}: `python3 -c ''`",
            goal=60.0,
        )
        for name, each in zip(names, ours, strict=True)
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


def _until_answered(program: str) -> None:
    """Run an MCP server until it has answered its client's first message."""
    params = {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "x", "version": "1"},
    }
    message = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}
    ended = subprocess.run(
        [sys.executable, program, "mcp"],
        input=json.dumps(message).encode() + b"\n",
        stdout=subprocess.PIPE,
        check=True,
    )
    assert json.loads(ended.stdout)["result"]["serverInfo"]["name"] == "clarify"


def _bare() -> None:
    subprocess.run([sys.executable, "-c", ""], check=True)
