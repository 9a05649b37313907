"""Home tabs while everything changes: how often they are published, how soon they show the last of it."""

from __future__ import annotations

import asyncio
import time
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from bot.workspace.context import Call
from bot.workspace.seed import AGENTS, TEAM
from bot.workspace.state import User
from tests.bench.stage import Stage, bot, stage
from tests.bench.table import Row, median

_PUBLISH = "views.publish"
# A second at the bot: its calls take not always equally long to Slack.
_SECOND = 0.95


@dataclass(frozen=True, slots=True)
class Storm:
    """`viewers` look at their tabs while `changes` questions come in each of so many seconds.

    It is over when nothing was published for `quiet` seconds.
    """

    viewers: int
    seconds: int
    changes: int = 20
    quiet: float = 3.0


async def storms(folder: Path, storms: Sequence[Storm]) -> list[Row]:
    """One after the other, at the same bot."""
    rows = []
    async with stage(folder / "home") as on, bot(on):
        for number, storm in enumerate(storms):
            rows.append(await _storm(on, storm, f"h{number}"))
    return rows


async def _storm(on: Stage, storm: Storm, name: str) -> Row:
    viewers = [_viewer(on, f"U0{name.upper()}{number:02}") for number in range(storm.viewers)]
    before = len(on.workspace.calls)
    for user in viewers:
        await on.workspace.open_home(user)
    await on.workspace.wait_for(lambda: all(map(on.workspace.home, viewers)), 60)
    began = time.time()
    await _change(on, storm, name)
    ended = time.time()
    await _quiet(on, storm.quiet)
    published = [call for call in on.workspace.calls[before:] if call.method == _PUBLISH]
    for user in viewers:
        on.workspace.change_user(user, deleted=True)
    meanwhile = [call for call in published if began <= call.time <= ended]
    busiest = max(map(_most_in_a_second, _by_user(published).values()))
    behind = max(calls[-1].time for calls in _by_user(published).values()) - ended
    return Row(
        f"Home tabs, {storm.viewers} viewers, {storm.changes} changes/s: most publishes for one person in a second",
        busiest,
        "{:.0f}",
        f"{len(meanwhile) / (ended - began):.2f}/s in all, {_apart(meanwhile)}; "
        f"everybody has the last state {max(behind, 0.0):.1f} s after the last change",
        goal=1,
    )


def _viewer(on: Stage, user: str) -> str:
    on.workspace.add_user(User(user, user.lower(), user, TEAM))
    on.workspace.join(user, AGENTS)
    return user


async def _change(on: Stage, storm: Storm, name: str) -> None:
    """Questions, evenly spread, of agents with ten each."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    for number in range(storm.seconds * storm.changes):
        token = f"{name}-{number}"
        await on.ask(token, session=f"ses-{token}", agent=f"storm-{name}-{number // 10}")
        await asyncio.sleep(max(0.0, began + (number + 1) / storm.changes - loop.time()))


async def _quiet(on: Stage, seconds: float) -> None:
    def last() -> float:
        return max((call.time for call in on.workspace.calls if call.method == _PUBLISH), default=0.0)

    while (left := last() + seconds - time.time()) > 0:  # noqa: ASYNC110 - that nothing comes has no event
        await asyncio.sleep(left)


def _by_user(published: list[Call]) -> dict[str, list[Call]]:
    found: dict[str, list[Call]] = defaultdict(list)
    for call in published:
        found[str(call.args["user_id"])].append(call)
    return found


def _most_in_a_second(calls: list[Call]) -> int:
    times = [call.time for call in calls]
    return max(number + 1 - bisect_left(times, at - _SECOND) for number, at in enumerate(times))


def _apart(published: list[Call]) -> str:
    """How long one person waits from publish to publish."""
    gaps = [
        after.time - call.time for calls in _by_user(published).values() for call, after in pairwise(calls)
    ]
    return f"{median(gaps):.1f} s apart for one person" if gaps else "none twice for one person"
