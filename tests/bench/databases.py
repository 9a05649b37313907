"""PostgreSQL beside SQLite and files: answers a second, and from a click to its reply, with a second bot that follows."""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path

from tests.bench import clicks, throughput
from tests.bench.seeding import Seed
from tests.bench.stage import ROOT, Stage, bot, configured, stage
from tests.bench.table import Row, median, quantile, spread
from tests.kit.databases import Server
from tests.kit.world import environment


async def decided(folder: Path, size: throughput.Size) -> list[Row]:
    """The same questions and clicks on either, in turn: one bot each, and two on the database."""
    rounds: dict[str, list[dict[str, float]]] = {"files": [], "database": [], "two": []}
    async with AsyncExitStack() as running:
        server = await running.enter_async_context(a_server())
        stages = {name: await running.enter_async_context(stage(folder / f"db-{name}")) for name in rounds}
        for name in ("database", "two"):
            stages[name] = replace(stages[name], database=server.new())
        for on in (*stages.values(), stages["two"]):
            await running.enter_async_context(bot(on))
        for number in range(size.rounds + 1):
            for name, on in stages.items():
                rounds[name].append(await throughput.one_round(on, f"d{number}", size.questions))
    for measured in rounds.values():
        del measured[0]
    return [
        _compared(f"{size.questions} answers decided on PostgreSQL, {who}", rounds[name], rounds["files"])
        for name, who in (("database", "one bot"), ("two", "two bots"))
    ]


def _compared(what: str, mine: list[dict[str, float]], files: list[dict[str, float]]) -> Row:
    ours, theirs = ([each["acknowledged"] for each in rounds] for rounds in (mine, files))
    ratios = [a / b for a, b in zip(ours, theirs, strict=True)]
    return Row(
        what,
        median(ratios),
        "{:.2f}×",
        f"{median(ours):.0f}/s (ratio {spread(ratios)})",
        f"{median(theirs):.0f}/s on SQLite and files",
    )


async def replies(folder: Path, size: clicks.Size) -> list[Row]:
    """As `clicks.replies`, with a second bot that takes every other click."""
    async with a_server() as server, stage(folder / "db-replies", past=Seed(open=size.open)) as files:
        on = replace(files, database=server.new())
        await _move(files, on)
        async with bot(on), bot(on):
            seconds: list[float] = []
            for number in range(size.rounds):
                seconds += await clicks.click_through(on, [f"r{number}-{n}" for n in range(size.clicks)])
    return [
        Row(
            f"click → reply at the producer on PostgreSQL, two bots, p99 of {len(seconds)}, {size.open} open",
            quantile(seconds, 0.99) * 1e3,
            "{:.1f} ms",
            f"median {median(seconds) * 1e3:.1f}, worst {max(seconds) * 1e3:.1f}",
            goal=60.0,
        )
    ]


async def _move(files: Stage, on: Stage) -> None:
    """From files to the database, as an operator does: a backup, restored."""
    backup = str(on.folder / "backup")
    for where, words in ((files, ("backup", backup)), (on, ("restore", backup))):
        command = (sys.executable, "-m", "bot.cli", *words, "--config", str(configured(where)))
        child = await asyncio.create_subprocess_exec(
            *command,
            cwd=ROOT,
            env={**os.environ, **environment(where.workspace), **where.environ},
            stdout=asyncio.subprocess.DEVNULL,
        )
        if await child.wait() != 0:
            raise RuntimeError(f"clarify {words[0]} failed")


@asynccontextmanager
async def a_server() -> AsyncIterator[Server]:
    """A PostgreSQL server of a measurement's own."""
    with tempfile.TemporaryDirectory(prefix="pg", ignore_cleanup_errors=True) as folder:
        server = await asyncio.to_thread(Server, Path(folder))
        try:
            yield server
        finally:
            await asyncio.to_thread(server.stop)
