"""A start with a long past: how soon clicks are taken, and how much memory it takes."""

from __future__ import annotations

import asyncio
from pathlib import Path

import psutil

from tests.bench.seeding import Seed
from tests.bench.stage import bot, stage
from tests.bench.table import Row, median, spread

_MEGABYTE = 1 << 20


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
