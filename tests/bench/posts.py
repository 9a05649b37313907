"""From a question to its card: one by one unpaced, and a flood at the channel's pace."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

from bot.workspace import Options
from bot.workspace.context import Call
from bot.workspace.faults import Tier
from tests.bench.stage import Stage, bot, stage
from tests.bench.table import Row, median, quantile

_POST = "chat.postMessage"


async def first_card(folder: Path, questions: int) -> list[Row]:
    """One question at a time, each the first of its session."""
    seconds = []
    async with stage(folder / "posts") as on, bot(on):
        for number in range(-questions // 5, questions):
            began = time.time()
            await on.ask(f"p{number}", session=f"ses-p{number}", agent=f"posts-{number // 20}")
            posted = await _next_post(on, began)
            if number >= 0:
                seconds.append(posted - began)
            await asyncio.sleep(0.02)
    return [
        Row(
            f"event → chat.postMessage sent, median of {questions}, unpaced",
            median(seconds) * 1e3,
            "{:.1f} ms",
            f"p99 {quantile(seconds, 0.99) * 1e3:.1f}, worst {max(seconds) * 1e3:.1f}",
            goal=20.0,
        )
    ]


async def paced(folder: Path, questions: int, pace: float) -> list[Row]:
    """All at once into one channel, of agents with ten open questions each; Slack refuses what comes too fast.

    Slack answers as slowly as the real one does; the pacing's own limit is `questions - 1` times its interval.
    """
    options = Options(rate_limits=True, tiers={"post": Tier(60 * pace, 4), "special": Tier(6000, 1000)})
    async with stage(folder / "paced", options=options) as on, bot(on, pace=pace):
        before = len(on.workspace.calls)
        on.workspace.faults.add(_POST, "delay:0.15", times=10 * questions)
        for number in range(questions):
            await on.ask(f"f{number}", session=f"ses-f{number}", agent=f"flood-{number // 10}")
        limit = (questions - 1) / pace
        await on.workspace.wait_for(lambda: len(_posts(on, before)) >= questions, 2 * limit + 30)
        posts = _posts(on, before)
        refused = sum(call.method == _POST and call.outcome != "ok" for call in on.workspace.calls[before:])
        on.workspace.faults.clear()
    took = posts[questions - 1].time - posts[0].time
    return [
        Row(
            f"{questions} questions into one channel paced at {pace:g}/s: time to the last card, "
            "against the pacing's limit",
            took / limit,
            "{:.3f}×",
            f"{took:.2f} s after the first; 0.15 s per call",
            f"{limit:.2f} s",
            goal=1.05,
        ),
        Row("… posts that were refused", refused, "{:.0f}", "", goal=5),
    ]


def _posts(on: Stage, before: int) -> list[Call]:
    return [call for call in on.workspace.calls[before:] if call.method == _POST and call.outcome == "ok"]


async def _next_post(on: Stage, began: float) -> float:
    """When the first post after `began` was there, in seconds since 1970."""
    calls = on.workspace.calls
    await on.workspace.wait_for(lambda: calls and calls[-1].method == _POST and calls[-1].time >= began, 10)
    return calls[-1].time
