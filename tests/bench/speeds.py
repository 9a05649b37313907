"""How soon a question is posted, a click is a reply, and a direct question is taken."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import aiohttp

from tests.bench.seeding import Seed
from tests.bench.stage import Stage, bot, stage
from tests.bench.table import Row, median, quantile
from workspace.seed import ADE, AGENTS

_POST = "chat.postMessage"


async def posted(folder: Path, questions: int) -> list[Row]:
    """One question at a time, each the first of its session."""

    async def ask(on: Stage, number: int) -> float:
        began = time.time()
        await on.ask(f"p{number}", session=f"ses-p{number}", agent=f"posts-{number // 20}")
        calls = on.workspace.calls
        await on.workspace.wait_for(lambda: calls[-1].method == _POST and calls[-1].time >= began, 10)
        return calls[-1].time - began

    async with stage(folder / "posts") as on, bot(on):
        seconds = await _one_by_one(lambda number: ask(on, number), questions)
    return [_row(f"event → {_POST} sent, median of {questions}", seconds, median(seconds), 8)]


async def replied(folder: Path, clicks: int, open: int) -> list[Row]:  # noqa: A002 - as a seed has it
    """From the click until the producer has accepted its reply; the next click follows at once."""

    async def click(on: Stage, token: str) -> float:
        await on.ask(token, session=f"ses-{token}", agent=f"clicked-{token[:-1]}")
        card = await on.card(token)
        began = time.perf_counter()
        reply = asyncio.create_task(on.producer.wait_for_reply(token, 10))
        outcome = await on.workspace.click(ADE, AGENTS, card.ts, label="Yes")
        if not outcome.ok:
            raise RuntimeError(f"a click was not acknowledged: {outcome.error}")
        await reply
        return time.perf_counter() - began

    async with stage(folder / "replies", past=Seed(open=open)) as on, bot(on):
        seconds = await _one_by_one(lambda number: click(on, f"r{number}"), clicks)
    what = f"click → reply at the producer, p99 of {clicks}, {open} open"
    return [_row(what, seconds, quantile(seconds, 0.99), 20)]


async def taken(folder: Path, questions: int) -> list[Row]:
    """From `POST /questions` to its 201."""

    async def ask(http: aiohttp.ClientSession, number: int) -> float:
        question = {"question": f"May I go on with step q{number}?", "kind": "yes_no", "agent": "asker"}
        began = time.perf_counter()
        async with http.post("/questions", json=question) as answer:
            if answer.status != 201:
                raise RuntimeError(f"a question was not taken: status {answer.status}")
        return time.perf_counter() - began

    more = '[[producers]]\nname = "asker"\nmax_open = 10000\n'
    async with (
        stage(folder / "questions") as on,
        bot(on, more=more) as running,
        aiohttp.ClientSession(running.url) as http,
    ):
        seconds = await _one_by_one(lambda number: ask(http, number), questions)
    return [_row(f"POST /questions → 201, median of {questions}", seconds, median(seconds), 7)]


async def _one_by_one(work: Callable[[int], Awaitable[float]], times: int) -> list[float]:
    """Seconds of each, after a few to warm up."""
    seconds = []
    for number in range(times + times // 5):
        seconds.append(await work(number))
        await asyncio.sleep(0.02)
    return seconds[times // 5 :]


def _row(what: str, seconds: list[float], measured: float, goal: float) -> Row:
    spread = f"median {median(seconds) * 1e3:.1f}, p99 {quantile(seconds, 0.99) * 1e3:.1f}, worst {max(seconds) * 1e3:.1f}"
    return Row(what, measured * 1e3, "{:.1f} ms", spread, goal=goal)
