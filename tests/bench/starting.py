"""A start with a long past: how soon clicks are taken, how much memory it takes; what the imports alone cost, and the start of a hook."""

from __future__ import annotations

import asyncio
import json
import resource
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil

from tests.bench.seeding import Seed
from tests.bench.stage import ROOT, bot, stage
from tests.bench.table import Row, median, ms, spread

_MEGABYTE = 1 << 20
_LIBRARIES = "import slack_bolt, aiohttp, pydantic"


async def imports(_folder: Path, rounds: int) -> list[Row]:
    """Processor time of `import bot.app`, against the libraries alone, in turn."""
    pairs = [
        (
            await asyncio.to_thread(_processor, "import bot.app"),
            await asyncio.to_thread(_processor, _LIBRARIES),
        )
        for _ in range(rounds)
    ]
    ratios = [mine / theirs for mine, theirs in pairs]
    ours, baseline = zip(*pairs, strict=True)
    return [
        Row(
            "`import bot.app`, processor time",
            median(ratios),
            "{:.2f}×",
            f"{ms(ours)} (ratio {spread(ratios)})",
            f"{ms(baseline)}: `{_LIBRARIES}`",
            goal=2.0,
        )
    ]


async def hooks(folder: Path, rounds: int) -> list[Row]:
    """From the start of `python3 clarify.py hook` to its request, against a bare interpreter from start to end, in turn."""
    copy = str(shutil.copy(ROOT / "clarify.py", folder))
    pairs = [
        (await asyncio.to_thread(_until_asked, copy, folder), await asyncio.to_thread(_bare))
        for _ in range(rounds)
    ]
    ours, baseline = zip(*pairs, strict=True)
    return [
        Row(
            "start of a hook → request, above a bare interpreter",
            (median(ours) - median(baseline)) * 1e3,
            "{:.0f} ms",
            ms(ours),
            f"{ms(baseline)}: `python3 -c ''`",
            goal=60.0,
        )
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


def _bare() -> float:
    """Seconds that an interpreter takes to do nothing."""
    began = time.perf_counter()
    subprocess.run([sys.executable, "-c", ""], check=True)
    return time.perf_counter() - began


def _processor(code: str) -> float:
    """Seconds that a Python process takes of a processor for this."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


async def start(folder: Path, rounds: int, past: Seed, settles: float) -> list[Row]:
    """`clarify run` from its first instruction to its Socket Mode connection, several times on the same past.

    It has `settles` seconds before its memory is looked at.
    """
    seconds, memory = [], []
    async with stage(folder / "start", past=past) as on:
        for _ in range(rounds):
            async with bot(on) as running:
                seconds.append(running.seconds)
                await asyncio.sleep(settles)
                memory.append(psutil.Process(running.pid).memory_info().rss / _MEGABYTE)
    size = f"{past.open:,} open, {past.archived:,} archived"
    return [
        Row(f"ready after start, {size}", median(seconds), "{:.2f} s", f"{spread(seconds)} s", goal=3.5),
        Row(
            f"memory with {past.open:,} open clarifications of {past.size / 1000:g} KB",
            max(memory),
            "{:.0f} MB",
            f"RSS, worst of {rounds} starts",
            goal=200.0,
        ),
    ]
