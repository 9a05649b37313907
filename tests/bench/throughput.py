"""Many questions at once, then a press on each: how many a second are shown, acknowledged and replied to."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.bench.stage import Stage, bot, connected, process, stage
from tests.bench.table import Row, median, spread
from workspace.seed import ADE, AGENTS

PATIENCE = 60.0
GOALS = {"shown": 0.35, "acknowledged": 0.5, "replied": 0.55}


@dataclass(frozen=True, slots=True)
class Size:
    """`rounds` of `questions` each, by the bot and by the naive one in turn; the first round only warms up."""

    rounds: int
    questions: int


async def throughput(folder: Path, size: Size) -> list[Row]:
    """Both on a workspace of their own, without pacing."""
    ours: list[dict[str, float]] = []
    naive: list[dict[str, float]] = []
    async with (
        stage(folder / "throughput") as one,
        stage(folder / "naive") as other,
        bot(one),
        _naive(other),
    ):
        for number in range(size.rounds + 1):
            naive.append(await one_round(other, f"t{number}", size.questions))
            ours.append(await one_round(one, f"t{number}", size.questions))
    del ours[0], naive[0]
    late = Row(
        f"{size.questions} clicks at once: acknowledged after Slack's three seconds, and recorded all the same",
        median([each["late"] for each in ours]),
        "{:.0f}",
        f"{min(each['late'] for each in ours):.0f} … {max(each['late'] for each in ours):.0f}",
        f"{median([each['late'] for each in naive]):.0f}",
    )
    return [*(_row(what, goal, ours, naive, size) for what, goal in GOALS.items()), late]


@asynccontextmanager
async def _naive(on: Stage) -> AsyncIterator[None]:
    command = [sys.executable, "-m", "tests.bench.naive", on.producer.url, on.workspace.api_url]
    async with process(command, {}):
        await connected(on.workspace)
        await on.producer.wait_for_subscriber(30)
        yield


async def one_round(on: Stage, name: str, questions: int) -> dict[str, float]:
    """How many a second, by what was waited for."""
    messages = on.workspace.channel(AGENTS).messages
    before, replies = len(messages), len(on.producer.replies)
    tokens = [f"{name}-{n}" for n in range(questions)]
    began = time.perf_counter()
    for number, token in enumerate(tokens):
        await on.ask(token, session=f"ses-{token}", agent=f"agent-{name}-{number // 10}")
    await on.workspace.wait_for(lambda: len(messages) - before >= questions, PATIENCE)
    shown = time.perf_counter()
    cards = list(messages)[before:]
    await asyncio.sleep(0.5)
    pressed = time.perf_counter()
    clicks = [asyncio.create_task(on.workspace.click(ADE, AGENTS, ts, label="Yes")) for ts in cards]
    refused = [outcome.error for outcome in await asyncio.gather(*clicks) if not outcome.ok]
    if set(refused) - {"timeout"}:
        raise RuntimeError(f"clicks were refused: {refused[:3]}")
    acknowledged = time.perf_counter()
    await on.producer.wait_for_reply(tokens[-1], PATIENCE)
    while len(on.producer.replies) - replies < questions:  # noqa: ASYNC110 - it tells of tokens, one by one
        await asyncio.sleep(0.002)
    replied = time.perf_counter()
    return {
        "shown": questions / (shown - began),
        "acknowledged": (questions - len(refused)) / (acknowledged - pressed),
        "replied": questions / (replied - pressed),
        "late": len(refused),
    }


def _row(
    what: str, goal: float, ours: list[dict[str, float]], naive: list[dict[str, float]], size: Size
) -> Row:
    mine, theirs = ([each[what] for each in rounds] for rounds in (ours, naive))
    ratios = [a / b for a, b in zip(mine, theirs, strict=True)]
    return Row(
        f"{size.questions} questions, a click on each, unpaced: {what}",
        median(ratios),
        "{:.2f}×",
        f"{median(mine):.0f}/s (ratio {spread(ratios)})",
        f"{median(theirs):.0f}/s, a bot in memory that keeps nothing",
        goal,
        "more",
    )
