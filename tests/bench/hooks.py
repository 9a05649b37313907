"""How soon a coding agent's hook has asked, which starts before each step of the agent; and how soon its MCP server answers."""

from __future__ import annotations

import asyncio
import json
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.bench.stage import ROOT
from tests.bench.table import Row, median, ms


async def started(folder: Path, rounds: int) -> list[Row]:
    """From the start of `python3 clarify.py hook` to its request, and of `mcp` to its first answer, against a bare
    interpreter from start to end, in turn.
    """
    copy = str(shutil.copy(ROOT / "clarify.py", folder))
    times = [
        (
            await asyncio.to_thread(_until_asked, copy, folder),
            await asyncio.to_thread(_until_answered, copy),
            await asyncio.to_thread(_bare),
        )
        for _ in range(rounds)
    ]
    *ours, baseline = zip(*times, strict=True)
    names = ("start of a hook → request", "start of `clarify.py mcp` → answer to `initialize`")
    return [
        Row(
            f"{name}, above a bare interpreter",
            (median(each) - median(baseline)) * 1e3,
            "{:.0f} ms",
            ms(each),
            f"{ms(baseline)}: `python3 -c ''`",
            goal=60.0,
        )
        for name, each in zip(names, ours, strict=True)
    ]


def _until_asked(program: str, folder: Path) -> float:
    """Seconds until a hook has sent its first request."""
    event = {"hook_event_name": "PreToolUse", "session_id": "s", "tool_name": "Bash", "tool_input": {}}
    with socket.create_server(("127.0.0.1", 0)) as server, tempfile.TemporaryFile() as given:
        given.write(json.dumps(event).encode())
        given.seek(0)
        url = f"http://127.0.0.1:{server.getsockname()[1]}"
        began = time.perf_counter()
        with subprocess.Popen(
            [sys.executable, program, "hook", "claude-code"],
            env={"CLARIFY_URL": url, "XDG_RUNTIME_DIR": str(folder)},
            stdin=given,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        ) as hook:
            connection, _ = server.accept()
            with connection:
                connection.recv(1)
                seconds = time.perf_counter() - began
            hook.kill()
    return seconds


def _until_answered(program: str) -> float:
    """Seconds until an MCP server has answered its client's first message."""
    params = {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "bench", "version": "1"},
    }
    message = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}
    began = time.perf_counter()
    with subprocess.Popen(
        [sys.executable, program, "mcp"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0
    ) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        server.stdin.write(json.dumps(message).encode() + b"\n")
        answer = json.loads(server.stdout.readline())
        seconds = time.perf_counter() - began
    assert answer["result"]["serverInfo"]["name"] == "clarify"
    return seconds


def _bare() -> float:
    """Seconds that an interpreter takes to do nothing."""
    began = time.perf_counter()
    subprocess.run([sys.executable, "-c", ""], check=True)
    return time.perf_counter() - began
