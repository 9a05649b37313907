"""From a click: to its acknowledgement, to the reply at the producer."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from slack_sdk.web.async_client import AsyncWebClient

from bot.workspace import Workspace
from bot.workspace.seed import ADE, AGENTS, BOT_TOKEN
from tests.bench.seeding import Seed
from tests.bench.stage import Stage, bot, connected, process, stage
from tests.bench.table import Row, median, ms, quantile, spread

BARE = ("default", "own-socket", "durable")


@dataclass(frozen=True, slots=True)
class Size:
    """`rounds` of `clicks` each, after as many to warm up; `open` clarifications are open all the while."""

    rounds: int
    clicks: int
    open: int


async def acknowledgements(folder: Path, size: Size) -> list[Row]:
    """Clicks on the same card: at the bot, and at the bare listeners, in turn."""
    rounds: dict[str, list[list[float]]] = {kind: [] for kind in ("ours", *BARE)}
    async with AsyncExitStack() as stack:
        on = await stack.enter_async_context(stage(folder / "bot"))
        await stack.enter_async_context(bot(on))
        bare = await stack.enter_async_context(_bare(folder / "bare"))
        for number in range(-1, size.rounds):
            tokens = [f"a{number + 1}-{n}" for n in range(size.clicks)]
            ours, blocks = await _click_cards(on, tokens)
            rounds["ours"].append(ours)
            for kind, workspace in bare.items():
                rounds[kind].append(await _click_again(workspace, blocks, size.clicks))
    for measured in rounds.values():
        del measured[0]
    words = {
        "default": "click → ack, to a bare Bolt listener (default settings)",
        "own-socket": "click → ack, to a bare listener that runs before the ack, over our socket client",
        "durable": "click → ack, to a bare listener that makes one fsynced file replace before the ack",
    }
    return [
        _compared(words[kind], rounds["ours"], rounds[kind], 1.3 if kind == "default" else None)
        for kind in BARE
    ]


def _compared(what: str, ours: list[list[float]], bare: list[list[float]], goal: float | None) -> Row:
    ratios = [median(mine) / median(theirs) for mine, theirs in zip(ours, bare, strict=True)]
    return Row(
        what,
        median(ratios),
        "{:.2f}×",
        f"{ms(list(chain(*ours)))} (ratio {spread(ratios)})",
        ms(list(chain(*bare))),
        goal,
    )


async def _click_cards(on: Stage, tokens: list[str]) -> tuple[list[float], list[dict[str, object]]]:
    """Ask, wait for the cards and for quiet, then click them one by one."""
    for number, token in enumerate(tokens):
        await on.ask(token, session=f"ses-{token}", agent=f"agent-{number // 10}")
    cards = [await on.card(token) for token in tokens]
    blocks = list(cards[0].blocks)
    await asyncio.sleep(0.3)
    seconds = []
    for token, card in zip(tokens, cards, strict=True):
        outcome = await on.workspace.click(ADE, AGENTS, card.ts, label="Yes")
        if not outcome.ok or outcome.seconds is None:
            raise RuntimeError(f"a click was not acknowledged: {outcome.error}")
        seconds.append(outcome.seconds)
        await on.producer.wait_for_reply(token, 10)
        await _settled(on, card.ts)
    return seconds, blocks


async def _settled(on: Stage, ts: str) -> None:
    """Returns once the card has lost its controls and says that the reply was delivered: the bot is idle again."""
    await on.workspace.wait_for(
        lambda: not any(b["type"] == "actions" for b in on.workspace.message(AGENTS, ts).blocks), 10
    )
    await asyncio.sleep(0.02)


async def _click_again(workspace: Workspace, blocks: list[dict[str, object]], times: int) -> list[float]:
    web = AsyncWebClient(BOT_TOKEN, base_url=workspace.api_url)
    post = await web.chat_postMessage(channel=AGENTS, text="card", blocks=blocks)
    await asyncio.sleep(0.3)
    seconds = []
    for _ in range(times):
        outcome = await workspace.click(ADE, AGENTS, str(post["ts"]), label="Yes")
        if not outcome.ok or outcome.seconds is None:
            raise RuntimeError(f"a bare click was not acknowledged: {outcome.error}")
        seconds.append(outcome.seconds)
        await asyncio.sleep(0.02)
    return seconds


@asynccontextmanager
async def _bare(folder: Path) -> AsyncIterator[dict[str, Workspace]]:
    """A workspace for each of the bare listeners; these share a process, and are clicked in turn."""
    await asyncio.to_thread(folder.mkdir)
    async with AsyncExitStack() as stack:
        found = {kind: await stack.enter_async_context(Workspace()) for kind in BARE}
        urls = [f"{kind}={workspace.api_url}" for kind, workspace in found.items()]
        command = [sys.executable, "-m", "tests.bench.bare_bolt", str(folder), *urls]
        await stack.enter_async_context(process(command, {}))
        for workspace in found.values():
            await connected(workspace)
        yield found


async def replies(folder: Path, size: Size) -> list[Row]:
    """From the click until the producer has accepted its reply; the next click follows at once."""
    past = Seed(open=size.open)
    async with stage(folder / "replies", past=past) as on, bot(on):
        seconds: list[float] = []
        for number in range(size.rounds):
            seconds += await click_through(on, [f"r{number}-{n}" for n in range(size.clicks)])
    return [
        Row(
            f"click → reply at the producer, p99 of {len(seconds)}, {size.open} open",
            quantile(seconds, 0.99) * 1e3,
            "{:.1f} ms",
            f"median {median(seconds) * 1e3:.1f}, worst {max(seconds) * 1e3:.1f}",
            goal=50.0,
        )
    ]


async def click_through(on: Stage, tokens: list[str]) -> list[float]:
    """Ask, then click the cards one by one: the seconds until the producer has each reply."""
    for number, token in enumerate(tokens):
        await on.ask(token, session=f"ses-{token}", agent=f"clicked-{number // 10}")
    cards = [await on.card(token) for token in tokens]
    seconds = []
    for token, card in zip(tokens, cards, strict=True):
        began = time.perf_counter()
        reply = asyncio.create_task(on.producer.wait_for_reply(token, 10))
        outcome = await on.workspace.click(ADE, AGENTS, card.ts, label="Yes")
        if not outcome.ok:
            raise RuntimeError(f"a click was not acknowledged: {outcome.error}")
        await reply
        seconds.append(time.perf_counter() - began)
    return seconds
