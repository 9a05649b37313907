"""Counts what one quiet card and one quiet click cost. `python -m tests.bench.budget` prints where each operation comes from.

A card lasts from a producer's AAEP event until the card is posted and that is stored; a click until the answer is in the
ledger, the producer has its reply, the card says "Delivered" and that is stored. The bot is quiet before and after each. It
logs at its default level.
"""

from __future__ import annotations

import asyncio
import json
import math
import os
import shutil
import signal
import statistics
import sys
import tempfile
import time
import tomllib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from aiohttp import web

from bot.logs import configure_logging
from bot.workspace.seed import ADE, AGENTS
from tests.bench.counting import EXACT, HOPS, TURNS, Seen
from tests.bench.stage import Stage, bot, stage
from tests.bench.table import Row, spread
from tests.kit.databases import Server
from tests.kit.until import until

CARD, CLICK = "card", "click"
SWITCHES, CPU = "voluntary context switches", "CPU, ms"
MEDIANS = (HOPS, TURNS)
TOLERANCE = 0.1  # of a median
LIMITS = Path(__file__).with_name("budget.toml")
_WARM = 3
_PATIENCE = 30.0

Costs = dict[str, list[dict[str, float]]]
"""For a card and a click, how often each operation was done, each time."""


@dataclass(frozen=True, slots=True)
class _Counted:
    """A bot whose operations are counted."""

    on: Stage
    pid: int
    seen: Seen

    async def costs(self, work: Callable[[str], Awaitable[None]], token: str) -> dict[str, float]:
        """What `card` or `click` made the bot do, until it was quiet again."""
        await self.quiet()
        before = self._now()
        await work(token)
        await self.quiet()
        return {name: count - before[name] for name, count in self._now().items()}

    async def quiet(self) -> None:
        """Returns when the bot does nothing.

        Raises:
            RuntimeError: it still does something after half a minute.
        """
        try:
            await until(self.seen.is_waiting, _PATIENCE)
        except TimeoutError:
            raise RuntimeError(f"the bot is not quiet: {self.seen.pending} pending") from None

    def _now(self) -> dict[str, float]:
        # As clock_getcpuclockid(3) does: the clock of another process's CPU time.
        cpu = time.clock_gettime_ns(~self.pid << 3 | 2) / 1e6
        return {**self.seen.now(), SWITCHES: _switches(self.pid), CPU: cpu}

    async def card(self, token: str) -> None:
        """Have a question asked; returns when its card is there."""
        await self.on.ask(token, session=f"ses-{token}", agent=f"agent-{token[:-1]}")
        await self.on.card(token)

    async def click(self, token: str) -> None:
        """Answer it; returns when the card says that the producer has the answer."""
        card = await self.on.card(token)
        self._hold_reply()
        outcome = await self.on.workspace.click(ADE, AGENTS, card.ts, label="Yes")
        if not outcome.ok:
            raise RuntimeError(f"a click was not acknowledged: {outcome.error}")
        await self.on.workspace.wait_for(
            lambda: "Delivered" in self.on.workspace.message(AGENTS, card.ts).text, _PATIENCE
        )

    def _hold_reply(self) -> None:
        """Have the producer accept the next reply when the bot has nothing else to do: either may be first otherwise."""

        async def held(request: web.Request, handle: Callable[..., Awaitable[Any]]) -> Any:
            await until(lambda: self.seen.is_waiting(pending=1), _PATIENCE)
            return await handle(request)

        self.on.producer._faults["replies"].append(held)


def _switches(pid: int) -> int:
    """Returns how often the threads of a process went to sleep, which most futex calls that wait lead to."""
    found = 0
    for task in Path(f"/proc/{pid}/task").iterdir():
        status = (task / "status").read_text()
        found += int(status.partition("\nvoluntary_ctxt_switches:")[2].split(maxsplit=1)[0])
    return found


@asynccontextmanager
async def _counted(folder: Path, database: str | None, sites: str = "") -> AsyncIterator[_Counted]:
    async with stage(folder) as files:
        on = replace(files, database=database)
        seen = Seen(folder / "counts")
        program = ("-m", "tests.bench.counting", str(folder / "counts"), sites, str(folder / "ledgers"))
        async with bot(on, program=program, log="info") as running:
            counted = _Counted(on, running.pid, seen)
            for number in range(_WARM):
                await counted.card(f"warm-{number}")
                await counted.click(f"warm-{number}")
            yield counted


async def measured(folder: Path, times: int, database: str | None = None) -> Costs:
    """Costs of `times` cards and of a click on each. `database`: PostgreSQL's address, in place of SQLite and files."""
    costs: Costs = {CARD: [], CLICK: []}
    async with _counted(folder, database) as counted:
        for number in range(times):
            token = f"b-{number}"
            costs[CARD].append(await counted.costs(counted.card, token))
            costs[CLICK].append(await counted.costs(counted.click, token))
    return costs


def typical(costs: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Returns the most frequent count of each operation, or the median where it depends on timing.

    Background work, such as the cleanup of duplicates every few seconds, falls into one card or click now and then.
    """
    found = {}
    for name in costs[0]:
        each = [one[name] for one in costs]
        found[name] = statistics.mode(each) if name in EXACT else statistics.median(each)
    return found


def limits() -> dict[str, Any]:
    """Reads what a card and a click may cost, and what they may cost on PostgreSQL."""
    return tomllib.loads(LIMITS.read_text(encoding="utf-8"))


def problems(what: str, costs: Mapping[str, float], allowed: Mapping[str, float]) -> list[str]:
    """Names each operation of a card or a click that happens more often than allowed, or less often."""
    found = []
    for name, limit in allowed.items():
        count, room = costs[name], limit * TOLERANCE if name in MEDIANS else 0
        if count > limit + room:
            found.append(f"one {what}: {name} rose from {limit} to {count:g}")
        elif count < limit - room:
            found.append(f"one {what}: {name} fell from {limit} to {count:g}: lower it in {LIMITS.name}")
    return found


async def budget(folder: Path, times: int) -> list[Row]:
    """On files and SQLite."""
    rows = _rows(await measured(folder / "budget", times), limits(), "")
    async with _counted(folder / "budget-futex", None) as counted:
        for what, work in ((CARD, counted.card), (CLICK, counted.click)):
            calls = await _futex_calls(counted, work, times)
            rows.append(Row(f"one quiet {what}: futex calls", calls, "{:.0f}", f"mean of {times}, by perf"))
    return rows


async def _futex_calls(counted: _Counted, work: Callable[[str], Awaitable[None]], times: int) -> float:
    """Returns the mean number of futex calls of each `work`, by `perf`; NaN where perf is missing or not permitted."""
    if shutil.which("perf") is None:
        return math.nan
    told, tell = os.pipe()
    heard, hear = os.pipe()
    options = ("-x,", "-D", "-1", "--control", f"fd:{told},{hear}", "-e", "syscalls:sys_enter_futex")
    perf = await asyncio.create_subprocess_exec(
        *("perf", "stat", *options, "-p", str(counted.pid)),
        pass_fds=(told, hear),
        stderr=asyncio.subprocess.PIPE,
    )
    os.close(told)
    os.close(hear)

    async def have(command: str) -> None:
        os.write(tell, f"{command}\n".encode())
        await asyncio.to_thread(os.read, heard, 10)  # perf's "ack"; nothing where it has ended

    with suppress(BrokenPipeError):
        for number in range(times):
            await have("enable")
            await counted.costs(work, f"f-{number}")
            await have("disable")
    with suppress(ProcessLookupError):
        perf.send_signal(signal.SIGINT)
    _, said = await perf.communicate()
    os.close(tell)
    os.close(heard)
    count = said.decode().strip().rpartition("\n")[2].partition(",")[0]
    return int(count) / times if count.isdecimal() else math.nan


async def on_postgres(folder: Path, times: int) -> list[Row]:
    """The same on PostgreSQL, where ledgers are rows."""
    with tempfile.TemporaryDirectory(prefix="pg", ignore_cleanup_errors=True) as place:
        server = await asyncio.to_thread(Server, Path(place))
        try:
            costs = await measured(folder / "budget-postgres", times, server.new())
        finally:
            await asyncio.to_thread(server.stop)
    return _rows(costs, limits()["postgres"], " on PostgreSQL")


def _rows(costs: Costs, allowed: Mapping[str, Any], where: str) -> list[Row]:
    return [
        Row(
            f"one quiet {what}{where}: {name}",
            count,
            "{:.1f}" if name == CPU else "{:.0f}",
            spread([one[name] for one in costs[what]], "{:.1f}" if name == CPU else "{:.0f}"),
            goal=allowed[what][name] * (1 + TOLERANCE * (name in MEDIANS)) if name in allowed[what] else None,
        )
        for what in (CARD, CLICK)
        for name, count in typical(costs[what]).items()
    ]


async def sites(folder: Path) -> dict[str, list[str]]:
    """Lists the operations of one card and of one click in their order, with the functions that led to each."""
    file, found = folder / "sites", dict[str, list[str]]()
    await asyncio.to_thread(file.touch)
    async with _counted(folder / "walk", None, str(file)) as counted:
        for what, work in ((CARD, counted.card), (CLICK, counted.click)):
            await counted.quiet()
            before = file.stat().st_size
            await counted.costs(work, "w-0")
            found[what] = list(map(_said, file.read_text()[before:].splitlines()))
    return found


def _said(line: str) -> str:
    said = json.loads(line)
    return f"{said['operation']}: {', '.join(said['about'])} | {' < '.join(said['site'])}"


def main() -> None:
    configure_logging("warning")
    with tempfile.TemporaryDirectory(prefix="clarify-budget-") as folder:
        for what, lines in asyncio.run(sites(Path(folder))).items():
            sys.stdout.write("\n".join([f"One {what}:", *lines, "", ""]))


if __name__ == "__main__":
    main()
