"""MCP's tasks: how soon one is created, how soon its listener hears of a click, and what 1,000 that are polled cost."""

from __future__ import annotations

import asyncio
import itertools
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import psutil

from tests.bench.stage import Running, Stage, bot, stage
from tests.bench.table import Row, median, quantile
from workspace.seed import ADE, AGENTS

Json = dict[str, Any]
_VERSION = "2026-07-28"
_META = {
    "io.modelcontextprotocol/protocolVersion": _VERSION,
    "io.modelcontextprotocol/clientInfo": {"name": "bench", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {"extensions": {"io.modelcontextprotocol/tasks": {}}},
}
_numbers = itertools.count(1)


async def tasks(folder: Path, times: int, polled: int, seconds: float) -> list[Row]:
    """`times` are created, listened to and clicked, one after the other. `seconds`: how long `polled` are polled at least."""
    async with _asking(folder / "tasks") as (on, _, http):
        created, notified = [], []
        for number in range(times + times // 5):  # the first ones warm up
            asked, heard = await _one(on, http, f"t{number}")
            created.append(asked)
            notified.append(heard)
    async with _asking(folder / "polled") as (on, running, http):
        share, interval, each = await _polled(on, running, http, polled, seconds)
    warm = times // 5
    return [
        _row(f"tools/call → task, median of {times}", created[warm:], 30),
        _row(f"click → notifications/tasks, median of {times}", notified[warm:], 40),
        Row(
            f"{polled} waiting tasks, polled as told",
            share * 100,
            "{:.1f}% of a core",
            f"every {interval:.0f} s; tasks/get median {median(each) * 1e3:.1f} ms, p99 {quantile(each, 0.99) * 1e3:.1f}",
            goal=10,
        ),
    ]


@asynccontextmanager
async def _asking(folder: Path) -> AsyncIterator[tuple[Stage, Running, aiohttp.ClientSession]]:
    more = '[[producers]]\nname = "asker"\nmax_open = 10000\n'
    async with (
        stage(folder) as on,
        bot(on, more=more) as running,
        aiohttp.ClientSession(running.url) as http,
    ):
        yield on, running, http


async def _one(on: Stage, http: aiohttp.ClientSession, token: str) -> tuple[float, float]:
    began = time.perf_counter()
    task = await _created(http, token)
    asked = time.perf_counter() - began
    card = await on.card(token)
    request = _request("subscriptions/listen", None, {"notifications": {"taskIds": [task["taskId"]]}})
    async with http.post("/mcp", **request) as stream:
        await anext(aiter(stream.content))  # it is listened to
        clicked = time.perf_counter()
        clicking = asyncio.create_task(on.workspace.click(ADE, AGENTS, card.ts, label="Yes"))
        async for line in stream.content:
            if b'"status":"completed"' in line.replace(b" ", b""):
                break
        heard = time.perf_counter() - clicked
    outcome = await clicking
    if not outcome.ok:
        raise RuntimeError(f"a click was not acknowledged: {outcome.error}")
    return asked, heard


async def _polled(
    on: Stage, running: Running, http: aiohttp.ClientSession, count: int, seconds: float
) -> tuple[float, float, list[float]]:
    """Returns the bot's share of a core, the interval that it told in seconds, and how long each poll took."""
    ids = [(await _created(http, f"p{number}"))["taskId"] for number in range(count)]
    interval = (await _sent(http, "tasks/get", ids[0], {"taskId": ids[0]}))["pollIntervalMs"] / 1000
    rounds = max(1, round(seconds / interval))
    process, took = psutil.Process(running.pid), []

    async def poll(task_id: str, at: float) -> None:
        await asyncio.sleep(at)
        began = time.perf_counter()
        await _sent(http, "tasks/get", task_id, {"taskId": task_id})
        took.append(time.perf_counter() - began)

    calls = on.workspace.calls
    while any(call.method.startswith("chat.") and call.time > time.time() - 3 for call in calls[-50:]):  # noqa: ASYNC110
        await asyncio.sleep(0.2)  # until all cards are posted
    before, began = process.cpu_times(), time.perf_counter()
    for _ in range(rounds):
        await asyncio.gather(*(poll(each, n * interval / count) for n, each in enumerate(ids)))
    after, wall = process.cpu_times(), time.perf_counter() - began
    used = (after.user + after.system) - (before.user + before.system)
    return used / max(wall, interval * rounds), interval, took


async def _created(http: aiohttp.ClientSession, token: str) -> Json:
    arguments = {"question": f"May I go on with step {token}?", "kind": "yes_no", "agent": "asker"}
    arguments |= {"session": f"ses-{token}"}
    found = await _sent(http, "tools/call", "ask_human", {"name": "ask_human", "arguments": arguments})
    if found.get("resultType") != "task":
        raise RuntimeError(f"a question is no task: {found}")
    return found


async def _sent(http: aiohttp.ClientSession, method: str, name: str, params: Json) -> Json:
    async with http.post("/mcp", **_request(method, name, params)) as answer:
        text = await answer.text()
    lines = [line[5:] for line in text.splitlines() if line.startswith("data:")]
    found: Json = json.loads(lines[-1] if lines else text)["result"]
    return found


def _request(method: str, name: str | None, params: Json) -> Json:
    headers = {
        "Accept": "application/json, text/event-stream",
        "MCP-Protocol-Version": _VERSION,
        "Mcp-Method": method,
    }
    headers |= {} if name is None else {"Mcp-Name": name}
    params = {**params, "_meta": _META}
    body = {"jsonrpc": "2.0", "id": next(_numbers), "method": method, "params": params}
    return {"json": body, "headers": headers}


def _row(what: str, seconds: list[float], goal: float) -> Row:
    spread = f"p99 {quantile(seconds, 0.99) * 1e3:.1f}, worst {max(seconds) * 1e3:.1f}"
    return Row(what, median(seconds) * 1e3, "{:.1f} ms", spread, goal=goal)
