"""SIGKILL at each step of a page that repeats an earlier one: both may stand for as long as no process lives, and the
next start deletes the earlier one (P12).
"""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import pytest

from core.clock import SystemClock
from tests.acceptance.dying import NEVER, Doomed, Plan, install, killed_at_steps
from tests.acceptance.test_kills_at_every_step import IMPATIENT
from tests.acceptance.world import World, a_world
from workspace.seed import ADE, AGENTS, FOLAKE, ONCALL
from workspace.state import Message

EVERY = timedelta(minutes=1)
STEPS = f'steps = [{{after = "0s", notify = ["dm"], every = "{EVERY.seconds}s"}}]'


def a_repeat_later(plan: Plan) -> None:
    """In a process: it is so late that the page is repeated, and it dies as planned."""

    def now(_: SystemClock) -> datetime:
        return datetime.now(UTC) + EVERY

    SystemClock.now = now  # type: ignore[method-assign, assignment]
    install(plan)


async def killed(folder: Path, at: int) -> bool:
    """A process dies at step `at`, counted from the repeat's post, and another one goes on; False: it was over before."""
    async with a_world(folder, options=IMPATIENT) as world:
        text = world.file.read_text()
        world.file.write_text(text.replace(f'users = ["{ONCALL}"]', f'users = ["{ONCALL}"]\n{STEPS}'))
        card, page = await paged(world)
        died = await repeated(
            world, Plan(at, folder / "epitaph.txt", since="before Slack chat.postMessage"), page
        )
        if died:
            assert not await repeated(world, Plan(NEVER, folder / "epitaph.txt"), page)
        (again,) = pages(world)
        assert "Shall I go on" in again.text
        posts = [call for call in world.workspace.calls if call.method == "chat.postMessage"]
        assert sum(call.args["channel"] == page.channel for call in posts) == 2
        async with Doomed.of(world, first=partial(a_repeat_later, Plan(NEVER, folder / "epitaph.txt"))):
            assert pages(world) == [again]
            assert (await world.workspace.click(ADE, AGENTS, card.ts, label="Yes")).ok
            await world.until(lambda: not pages(world))
        return died


async def paged(world: World) -> tuple[Message, Message]:
    """A question and the first page about it; then the bot stops."""
    async with Doomed.of(world) as life:
        card = await world.asked("rpl-1", timeout_seconds=36_000)
        await world.workspace.command(FOLAKE, AGENTS, "/clarify", "escalate CLR-100001-001 it is urgent")
        (page,) = await world.until(lambda: pages(world))
        await world.until(lambda: world.rows("select 1 from messages where kind = 'page' and ts is not null"))
        assert await life.stop() == 0
    return card, page


async def repeated(world: World, plan: Plan, page: Message) -> bool:
    """A process repeats a page, which is deleted then; True: the process died before, as planned."""

    async def replaced() -> None:
        await world.until(lambda: len(pages(world)) == 1 and page not in pages(world))
        await world.until(
            lambda: world.workspace.link.connections
        )  # it takes clicks, and can be asked to stop

    life = await Doomed.begin(world, first=partial(a_repeat_later, plan))
    try:
        if await life.died_before(asyncio.create_task(replaced())):
            return True
        return not await life.survived()
    finally:
        await life.end()


def pages(world: World) -> list[Message]:
    """What stands in the direct messages of whoever is on call."""
    return world.workspace.direct(ONCALL)


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("every", [9, pytest.param(1, marks=pytest.mark.long)])
async def test_kill_at_every_step_of_a_repeat_leaves_one_page(tmp_path: Path, every: int) -> None:
    assert await killed_at_steps(tmp_path, every, killed) * every >= 12
