"""Counts what one quiet card and one quiet click cost. `python -m tests.bench.budget` prints where each operation comes from,
and each function of ours on the way.

A card lasts from a producer's AAEP event until the card is posted and that is stored; a click until the answer is in the
ledger, the producer has its reply, the card says "Delivered" and that is stored. Of a question that is asked directly, a card
lasts from `POST /questions`, a click until the card says who answered, and a fetch from `GET` of the answer until the card says
that the agent has resumed. The bot is quiet before and after each, and writes no ledger files, which follow later. It logs at its default level.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import sys
import tempfile
import time
import tomllib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import httpx
from aiohttp import web

from bot.logs import configure_logging
from tests.bench.counting import EXACT, FUNCTIONS, HOPS, TURNS, Seen
from tests.bench.stage import Stage, bot, stage
from tests.bench.table import Row, spread
from tests.kit.databases import Server
from tests.kit.until import until
from tests.kit.world import said
from workspace.seed import ADE, AGENTS

CARD, CLICK, FETCH = "card", "click", "fetch"
SWITCHES, CPU = "voluntary context switches", "CPU, ms"
MEDIANS = (HOPS, TURNS, FUNCTIONS)
DIRECTLY = " of a direct question"
TOLERANCE = 0.1  # of a median
LIMITS = Path(__file__).with_name("budget.toml")
_WARM = 3
_PATIENCE = 30.0

Costs = dict[str, list[dict[str, float]]]
"""For a card and a click, how often each operation was done, each time."""
Work = Callable[[str], Awaitable[None]]


@dataclass(frozen=True)
class _Counted:
    """A bot whose operations are counted, and written to the file `sites` if there is one."""

    on: Stage
    pid: int
    url: str
    seen: Seen
    sites: Path | None = None

    @property
    def works(self) -> dict[str, Work]:
        """What is counted, in its order."""
        return {CARD: self.card, CLICK: self.click}

    async def costs(self, work: Work, token: str) -> dict[str, float]:
        """What one of `works` made the bot do, until it was quiet again."""
        await self.quiet()
        before = self._now()
        await work(token)
        await self.quiet()
        return {name: count - before[name] for name, count in self._now().items()}

    async def walk(self, work: Work, token: str) -> list[Any]:
        """Each operation, and each function at its first call, in their order."""
        assert self.sites is not None
        await self.quiet()
        before = self.sites.stat().st_size
        self.seen.follow()
        await self.costs(work, token)
        return list(map(json.loads, self.sites.read_text()[before:].splitlines()))

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


@dataclass(frozen=True)
class _AskedDirectly(_Counted):
    """By an agent that asks over HTTP, with a connection for each request. `asked`: the question of each token."""

    asked: dict[str, str] = field(default_factory=dict)

    @property
    def works(self) -> dict[str, Work]:
        return {**super().works, FETCH: self.fetch}

    async def card(self, token: str) -> None:
        question = {
            "question": f"May I go on with step {token}?",
            "kind": "yes_no",
            "session": f"ses-{token}",
        }
        self.asked[token] = (await self._call("POST", "/questions", question))["id"]
        await self.on.card(token)

    async def click(self, token: str) -> None:
        card = await self.on.card(token)
        outcome = await self.on.workspace.click(ADE, AGENTS, card.ts, label="Yes")
        if not outcome.ok:
            raise RuntimeError(f"a click was not acknowledged: {outcome.error}")
        await self._says(token, f"<@{ADE}>")

    async def fetch(self, token: str) -> None:
        """Have the agent fetch the answer; returns when the card says that it has."""
        await self._call("GET", f"/questions/{self.asked[token]}")
        await self._says(token, "the agent has resumed")

    async def _call(self, method: str, path: str, body: object = None) -> Any:
        async with httpx.AsyncClient(base_url=self.url, timeout=_PATIENCE) as http:
            answer = await http.request(method, path, json=body)
            return answer.raise_for_status().json()

    async def _says(self, token: str, text: str) -> None:
        card = await self.on.card(token)
        await self.on.workspace.wait_for(
            lambda: text in said(self.on.workspace.message(AGENTS, card.ts)), _PATIENCE
        )


def _switches(pid: int) -> int:
    """Returns how often the threads of a process went to sleep."""
    found = 0
    for task in Path(f"/proc/{pid}/task").iterdir():
        status = (task / "status").read_text()
        found += int(status.partition("\nvoluntary_ctxt_switches:")[2].split(maxsplit=1)[0])
    return found


@asynccontextmanager
async def _counted(
    folder: Path, *, database: str | None = None, direct: bool = False, traced: bool = False
) -> AsyncIterator[_Counted]:
    async with stage(folder) as files:
        on = replace(files, database=database)
        seen, sites = Seen(folder / "counts"), folder / "sites" if traced else None
        program = (
            "-m",
            "tests.bench.counting",
            str(folder / "counts"),
            str(sites or ""),
        )
        async with bot(on, program=program, log="info", files=False) as running:
            counted = (_AskedDirectly if direct else _Counted)(on, running.pid, running.url, seen, sites)
            for number in range(_WARM):
                for work in counted.works.values():
                    await work(f"warm-{number}")
            yield counted


async def measured(folder: Path, times: int, database: str | None = None, *, direct: bool = False) -> Costs:
    """Costs of `times` cards and of a click on each. `database`: PostgreSQL's address, in place of SQLite.
    `direct`: of questions that are asked over HTTP; of fetching each answer, too.
    """
    costs: Costs = {}
    async with _counted(folder, database=database, direct=direct) as counted:
        for number in range(times):
            for what, work in counted.works.items():
                costs.setdefault(what, []).append(await counted.costs(work, f"b-{number}"))
    return costs


async def walked(folder: Path, times: int, *, direct: bool = False) -> Costs:
    """How many functions of ours take part in each, `times` times."""
    costs: Costs = {}
    async with _counted(folder, direct=direct, traced=True) as counted:
        for number in range(times):
            for what, work in counted.works.items():
                met = {each.get(FUNCTIONS) for each in await counted.walk(work, f"b-{number}")} - {None}
                costs.setdefault(what, []).append({FUNCTIONS: len(met)})
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
    allowed = limits()
    rows = _rows(await measured(folder / "budget", times), allowed, "")
    rows += _rows(await measured(folder / "budget-direct", times, direct=True), allowed["direct"], DIRECTLY)
    rows += _rows(await walked(folder / "walk", 5), allowed["functions"], "")
    rows += _rows(
        await walked(folder / "walk-direct", 5, direct=True), allowed["functions"]["direct"], DIRECTLY
    )
    return rows


async def on_postgres(folder: Path, times: int) -> list[Row]:
    """The same on PostgreSQL."""
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
        for what in costs
        for name, count in typical(costs[what]).items()
    ]


async def walks(folder: Path, *, direct: bool = False) -> AsyncIterator[str]:
    """Lists the operations of each, with the functions that led to it, and then all functions, in their order."""
    async with _counted(folder, direct=direct, traced=True) as counted:
        for what, work in counted.works.items():
            seen = await counted.walk(work, "w-0")
            functions = list(dict.fromkeys(each[FUNCTIONS] for each in seen if FUNCTIONS in each))
            files = {each.partition(":")[0] for each in functions}
            yield f"One {what}{DIRECTLY * direct}:"
            for each in seen:
                if FUNCTIONS not in each:
                    yield f"{each['operation']}: {', '.join(each['about'])} | {' < '.join(each['site'])}"
            yield f"{len(functions)} functions in {len(files)} files:"
            yield "\n".join([*functions, ""])


async def _print() -> None:
    with tempfile.TemporaryDirectory(prefix="clarify-budget-") as folder:
        for direct in (False, True):
            async for line in walks(Path(folder) / str(direct), direct=direct):
                sys.stdout.write(f"{line}\n")


def main() -> None:
    configure_logging("warning")
    asyncio.run(_print())


if __name__ == "__main__":
    main()
