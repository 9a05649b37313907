"""A start with a long past: how soon clicks are taken, and how much memory it takes."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import psutil

from tests.bench.seeding import Seed
from tests.bench.stage import bot, stage
from tests.bench.table import Row, median, spread

_MEGABYTE = 1 << 20


async def sizes(folder: Path, pasts: Sequence[Seed], settles: float) -> list[Row]:
    """`start`, once for each past and without goals: what more open questions and a longer history cost."""
    rows = []
    for past in pasts:
        rows += await start(folder, 1, past, settles)
    return [replace(row, goal=None) for row in rows]


async def start(folder: Path, rounds: int, past: Seed, settles: float) -> list[Row]:
    """`clarify run` from its first instruction to its Socket Mode connection, several times on the same past.

    It has `settles` seconds before its memory is looked at.
    """
    seconds, processor, memory = [], [], []
    async with stage(folder / f"start-{past.open}-{past.decided}", past=past) as on:
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
