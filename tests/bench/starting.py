"""A start with a long past: how soon clicks are taken, how much memory it takes; and what the imports alone cost."""

from __future__ import annotations

import asyncio
import resource
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import psutil

from tests.bench.seeding import Seed
from tests.bench.stage import ROOT, bot, stage
from tests.bench.table import Row, median, ms, spread

_MEGABYTE = 1 << 20
_LIBRARIES = "import slack_sdk.web.async_client, aiohttp, pydantic"


async def imports(_folder: Path, rounds: int) -> list[Row]:
    """Processor time of `import bot.app`, against the libraries alone, in turn."""
    pairs = [
        (
            await asyncio.to_thread(processor_time, partial(_python, "import bot.app")),
            await asyncio.to_thread(processor_time, partial(_python, _LIBRARIES)),
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


def processor_time(work: Callable[[], None]) -> float:
    """Seconds of a processor that the processes which this starts and waits for take."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    work()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def _python(code: str) -> None:
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)


async def start(folder: Path, rounds: int, past: Seed, settles: float) -> list[Row]:
    """`clarify run` from its first instruction to its Socket Mode connection, several times on the same past.

    It has `settles` seconds before its memory is looked at.
    """
    seconds, processor, memory = [], [], []
    async with stage(folder / "start", past=past) as on:
        for _ in range(rounds):
            async with bot(on) as running:
                seconds.append(running.seconds)
                used = psutil.Process(running.pid).cpu_times()
                processor.append(used.user + used.system)
                await asyncio.sleep(settles)
                memory.append(psutil.Process(running.pid).memory_info().rss / _MEGABYTE)
    size = f"{past.open:,} open, {past.decided:,} decided"
    return [
        Row(
            f"ready after start, {size}",
            median(seconds),
            "{:.2f} s",
            f"{spread(seconds)} s; processor time {median(processor):.2f} s",
            goal=2.0,
        ),
        Row(
            f"memory with {past.open:,} open clarifications of {past.size / 1000:g} KB",
            max(memory),
            "{:.0f} MB",
            f"RSS, worst of {rounds} starts",
            goal=150.0,
        ),
    ]
