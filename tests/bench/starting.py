"""A start with a long past: how soon clicks are taken, and how much memory it takes."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import psutil

from tests.bench.seeding import Seed, seed
from tests.bench.stage import bot, stage
from tests.bench.table import Row, median, spread

_MEGABYTE = 1 << 20


async def start(folder: Path, rounds: int, past: Seed) -> list[Row]:
    """`clarify run` from its first instruction to its Socket Mode connection, several times on the same past."""
    seconds, memory = [], []
    async with stage(folder / "start") as on:
        await seed(on, past)
        for _ in range(rounds):
            began = time.perf_counter()
            async with bot(on) as pid:
                seconds.append(time.perf_counter() - began)
                await asyncio.sleep(2.0)
                memory.append(psutil.Process(pid).memory_info().rss / _MEGABYTE)
    size = f"{past.open:,} open, {past.archived:,} archived"
    return [
        Row(f"ready after start, {size}", median(seconds), "{:.2f} s", f"{spread(seconds)} s", goal=5.0),
        Row(
            f"memory with {past.open:,} open clarifications of {past.size / 1000:g} KB",
            max(memory),
            "{:.0f} MB",
            f"RSS, worst of {rounds} starts",
            goal=200.0,
        ),
    ]
