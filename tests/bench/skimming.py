"""Streams of output that nobody is shown: the bot's subscription against a bare httpx-sse loop."""

from __future__ import annotations

import asyncio
import random
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import httpx
import psutil
from httpx_sse import EventSource

from bot.producers.inbox import Arrived, Inbox, Incoming
from bot.producers.producers import Producers
from bot.producers.receiver import Trouble
from bot.settings.model import ProducerSettings
from bot.storage.store import Store
from bot.telemetry import Telemetry
from core.clock import SystemClock
from tests.bench.stage import process
from tests.bench.table import Row, median, spread
from tests.kit.served import reserved_port

_MEGABYTE = 1 << 20


async def skimmed(_folder: Path, rounds: int, events: int) -> list[Row]:
    """The same stream, read to its end by either, in turn."""
    ours, bare, grown = [], [], []
    memory = psutil.Process().memory_info
    with reserved_port() as port:
        async with process([sys.executable, "-m", "tests.bench.streaming", str(port), str(events)], {}):
            url = f"http://127.0.0.1:{port}"
            await _listens(url)
            for number in range(-1, rounds):
                theirs = await _bare(url, events)
                before = memory().rss
                mine = await _ours(url, events)
                if number >= 0:
                    ours.append(events / mine)
                    bare.append(events / theirs)
                    grown.append((memory().rss - before) / _MEGABYTE)
    ratios = [mine / theirs for mine, theirs in zip(ours, bare, strict=True)]
    return [
        Row(
            f"output.streaming skimmed, {events} events, against bare httpx-sse",
            median(ratios),
            "{:.2f}×",
            f"{median(ours):.0f}/s (ratio {spread(ratios)})",
            f"{median(bare):.0f}/s ({spread(bare, '{:.0f}')})",
            goal=0.5,
            better="more",
        ),
        Row("… memory grown meanwhile", max(grown), "{:.1f} MB", f"worst of {rounds} rounds", goal=5.0),
    ]


async def _bare(url: str, events: int) -> float:
    seen, began = 0, time.perf_counter()
    async with httpx.AsyncClient(timeout=None) as client, client.stream("GET", f"{url}/events") as response:  # noqa: S113 - the stream may be quiet
        async for _ in EventSource(response).aiter_sse():
            seen += 1
            if seen > events:
                break
    return time.perf_counter() - began


class _Last(Inbox):
    """An inbox that waits for the one event that is kept, the last."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.came = asyncio.Event()

    async def put(self, *incoming: Incoming) -> list[Arrived]:
        self.came.set()
        return ["new" for _ in incoming]


async def _ours(url: str, events: int) -> float:
    async def report_trouble(trouble: Trouble) -> None:
        raise RuntimeError(trouble.summary)

    with TemporaryDirectory() as folder:
        store = await Store.open(Path(folder) / "clarify.db")
        inbox, clock = _Last(store), SystemClock()
        producers = Producers(
            [ProducerSettings(name="streaming", url=url, dialect="minimal")],
            token_of=lambda _: None,
            inbox=inbox,
            store=store,
            clock=clock,
            rng=random.Random(1),  # noqa: S311 - jitter
            report_trouble=report_trouble,
            telemetry=Telemetry(clock),
        )
        began = time.perf_counter()
        await producers.start()
        await asyncio.wait_for(inbox.came.wait(), 120)
        took = time.perf_counter() - began
        if (skimmed := producers.status()["streaming"]["skimmed"]) != events:
            raise RuntimeError(f"{skimmed} events were skimmed, expected {events}")
        await producers.stop(())
        await store.close()
        return took


async def _listens(url: str) -> None:
    async with asyncio.timeout(30), httpx.AsyncClient() as client:
        while True:
            try:
                await client.get(f"{url}/healthz")
            except httpx.TransportError:
                await asyncio.sleep(0.05)
            else:
                return
