"""Agents that ask directly: from a question to its card, from a click to the caller, what waiting and what MCP cost."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import httpx
import psutil
from mcp import Client, StdioServerParameters

from bot.workspace.seed import ADE, AGENTS
from tests.bench.stage import Stage, bot, stage
from tests.bench.table import Row, median, ms
from tests.kit.until import until

_POST = "chat.postMessage"
_MOST = """
[[producers]]
name = "asker"
max_open = 10000
"""


async def asked(folder: Path, rounds: int, waiting: int) -> list[Row]:
    """`rounds` questions one by one, then `waiting` callers at once, each with a question of its own."""
    posted, picked = list[float](), list[float]()
    async with stage(folder / "questions") as on, bot(on, more=_MOST) as running:
        limits = httpx.Limits(max_connections=None)
        async with httpx.AsyncClient(base_url=running.url, timeout=60, limits=limits) as http:
            for number in range(-rounds // 5, rounds):
                card, click = await _one(on, http, number)
                if number >= 0:
                    posted.append(card)
                    picked.append(click)
            process = psutil.Process(running.pid)
            few = httpx.Limits(max_connections=8)  # or these would have cost what is measured
            async with httpx.AsyncClient(base_url=running.url, timeout=60, limits=few) as eight:
                ids = await asyncio.gather(
                    *(_ask(eight, f"w{number}", f"asker-{number // 8}") for number in range(waiting))
                )
            await on.workspace.wait_for(
                lambda: sum(call.method == _POST for call in on.workspace.calls) >= rounds + waiting, 120
            )
            before, threads = process.memory_info().rss, process.num_threads()
            polls = [asyncio.create_task(http.get(f"/questions/{each}", params={"wait": 50})) for each in ids]
            await until(lambda: len(process.net_connections()) >= waiting, 60)
            await asyncio.sleep(1.0)
            grown, more = process.memory_info().rss - before, process.num_threads() - threads
            for poll in polls:
                poll.cancel()
            await asyncio.gather(*polls, return_exceptions=True)
    return [
        Row(
            f"POST /questions → card posted, median of {rounds}",
            median(posted) * 1e3,
            "{:.1f} ms",
            ms(posted),
            goal=25.0,
        ),
        Row(
            f"click → waiting caller has the answer, median of {rounds}",
            median(picked) * 1e3,
            "{:.1f} ms",
            ms(picked),
            goal=30.0,
        ),
        Row(
            f"{waiting} callers wait at once: more memory",
            grown / 1e6,
            "{:.0f} MB",
            f"{more} more threads",
            goal=60.0,
        ),
    ]


async def _ask(http: httpx.AsyncClient, words: str, agent: str = "asker") -> str:
    answer = await http.post(
        "/questions", json={"question": f"May I go on with step {words}?", "kind": "yes_no", "agent": agent}
    )
    answer.raise_for_status()
    found: str = answer.json()["id"]
    return found


async def _one(on: Stage, http: httpx.AsyncClient, number: int) -> tuple[float, float]:
    """Seconds from asking to the card's post, and from the click to the caller."""
    began, calls = time.time(), on.workspace.calls
    known = await _ask(http, f"q{number}")
    post = await on.workspace.wait_for(
        lambda: next((each for each in calls[-9:] if each.method == _POST and each.time >= began), None), 10
    )
    if post is None:
        raise RuntimeError("the question has no card")
    posted = post.time - began
    card = await on.card(f"q{number}")
    poll = asyncio.create_task(http.get(f"/questions/{known}", params={"wait": 30}))
    await asyncio.sleep(0.1)
    began = time.perf_counter()
    await on.workspace.click(ADE, AGENTS, card.ts, label="Yes")
    state = (await poll).json()
    took = time.perf_counter() - began
    if state["answer"] is not True:
        raise RuntimeError(f"expected an answer, got {state['status']}")
    return posted, took


async def by_mcp(folder: Path, rounds: int) -> list[Row]:
    """The same look at a question over HTTP, with the official MCP client over HTTP, and over stdio, in turn."""
    async with stage(folder / "mcp") as on, bot(on) as running:
        mine = StdioServerParameters(
            command=sys.executable, args=["-m", "bot.cli", "mcp"], env={"CLARIFY_URL": running.url}
        )
        async with (
            httpx.AsyncClient(base_url=running.url, timeout=60) as http,
            Client(f"{running.url}/mcp") as client,
            Client(mine) as other,
        ):
            known = await _ask(http, "one")
            await on.card("one")

            async def plain() -> object:
                return (await http.get(f"/questions/{known}")).json()

            async def tool(by: Client) -> object:
                answer = await by.call_tool("wait_for_answer", {"id": known, "wait": 0})
                return answer.structured_content

            ways: list[Callable[[], Awaitable[object]]] = [plain, lambda: tool(client), lambda: tool(other)]
            took: list[list[float]] = [[], [], []]
            for number in range(-rounds // 5, rounds):
                for way, times in zip(ways, took, strict=True):
                    began = time.perf_counter()
                    if not await way():
                        raise RuntimeError("there is no state")
                    if number >= 0:
                        times.append(time.perf_counter() - began)
    over = [[there - here for there, here in zip(each, took[0], strict=True)] for each in took[1:]]
    return [
        Row(
            f"a tool's call over what HTTP takes, median of {rounds} pairs",
            median(over[0]) * 1e3,
            "{:.1f} ms",
            ms(took[1]),
            ms(took[0]),
            goal=15.0,
        ),
        Row(
            f"the same through clarify mcp, median of {rounds} pairs",
            median(over[1]) * 1e3,
            "{:.1f} ms",
            ms(took[2]),
            ms(took[0]),
        ),
    ]
