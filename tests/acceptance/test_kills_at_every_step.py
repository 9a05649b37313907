"""SIGKILL at each step of "question, card, click, acknowledgement, reply, card updated" (promises P1 to P4)."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterable, Mapping, Sequence
from itertools import count
from pathlib import Path

import pytest

from tests.acceptance.dying import NEVER, SIDE_BY_SIDE, Doomed
from tests.acceptance.exchanges import Door, Exchange, FiledExchange, PagedExchange, check_all
from tests.acceptance.world import World, a_world
from workspace import Options

IMPATIENT = Options(ack_timeout=1.5)


def made(world: World, token: str, how: str, seed: str, ways: tuple[str, ...] = ()) -> Exchange:
    """An exchange of a dialect, or of another of `KINDS`."""
    kind, door = KINDS.get(how, (Exchange, world.agent.dialect))
    return kind(world, token, door, random.Random(seed), ways=ways)  # noqa: S311


async def whole(exchange: Exchange) -> None:
    await exchange.play()
    await exchange.end()


async def sweep(world: World, steps: Iterable[int | Sequence[str]], how: str) -> int:
    """Kill at each of `steps`, by their number or by the path to them, which is that of a click: nobody types. Returns how many
    kills there were until a step was not met.
    """
    async with Doomed.at(world, NEVER) as life:
        await world.get_acquainted()
    exchanges: list[Exchange] = []
    work: asyncio.Task[None] | None = None
    for number, step in enumerate(steps):
        async with Doomed.at(world, step) as life:
            if work is not None:
                assert not await life.died_before(work)
            ways = () if isinstance(step, int) else ("click",)
            exchange = made(world, f"rpl-{number}", how, f"{world.folder.name} {step}", ways)
            exchanges.append(exchange)
            life.arm()
            work = asyncio.create_task(whole(exchange))
            if await life.died_before(work):
                exchange.look_at_disk()
                continue
            if await life.survived():
                check_all(world, exchanges)
                return len(exchanges) - 1
    raise AssertionError


STEPS = {"commit", "acknowledgement", "Slack chat.postMessage", "Slack chat.update"}
STEPS |= {"link marker", "replace ledger", "unlink marker"}
REPLY = {"standard": "producer POST /aaep/v1/replies", "minimal": "producer POST /messages"}
# A tenth fewer than there are today: each commit, write and call of the way is a step.
FEWEST = {"standard": 45, "minimal": 41, "direct": 39, "mcp": 39, "paged": 100}
# How an agent asks, or what becomes of its question, where that is another exchange.
KINDS: dict[str, tuple[type[Exchange], Door]] = {
    "direct": (Exchange, "http"),
    "mcp": (Exchange, "mcp"),
    "paged": (PagedExchange, "standard"),
    "filed": (FiledExchange, "standard"),
}

# What must not be lost or done twice: the step that it is, and what it follows.
WRITTEN = r"commit .*(?<!\+)\bclarifications.*"
ASKED = {
    "record written": (r"commit (?=.*\+clarifications)(?=.*\+messages).*", "taken in"),
    "intent written": (r"commit .*(?<!\+)\bmessages.*", "record written"),
    "posted": ("Slack chat.postMessage", "intent written"),
    "landed": (r"commit .*\bmessages.*", "posted"),
    "click taken": (WRITTEN, "posted"),  # which may land later
    "acknowledged": ("acknowledgement", "click taken"),
    "shown": ("Slack chat.update", "reply taken"),
    "shown, stored": (r"commit .*\bmessages.*", "shown"),
}
EDGES = {
    "standard": {
        "taken in": (r"commit .*\+inbox.*", None),
        **ASKED,
        "reply sent": (REPLY["standard"], "click taken"),
        "reply taken": (WRITTEN, "reply sent"),
    },
    "direct": {
        **ASKED,
        "record written": (r"commit (?=.*\+clarifications)(?=.*\+messages)(?=.*\+questions).*", None),
        "reply taken": (WRITTEN, "click taken"),
    },
    "paged": {
        "taken in": (r"commit .*\+inbox.*", None),
        "incident written": (r"commit .*\+incidents.*", "taken in"),
        "page written": (r"commit (?=.*\+messages)(?=.*\+incident_log).*", "incident written"),
        "page posted": ("Slack chat.postMessage", "page written"),
        "page landed": (r"commit .*\bmessages.*", "page posted"),
    },
    "filed": {
        "taken in": (r"commit .*\+inbox.*", None),
        "record written": (r"commit .*\+clarifications.*", "taken in"),
        "marker taken": ("link marker", "record written"),
        "its contents stored": (r"commit .*\+ledgerfiles.*", "marker taken"),
        "file replaced": ("replace ledger", "its contents stored"),
        "marker left": ("unlink marker", "file replaced"),
        "archived": ("link archived ledger", "marker left"),
        "live file gone": ("unlink ledger", "archived"),
    },
}
# A finished file goes to the archive at once.
MORE = {"filed": ("[ledger]\n", '[ledger]\narchive_after = "0s"\n')}


def path(edges: Mapping[str, tuple[str, str | None]], when: str, edge: str) -> list[str]:
    """The steps that lead to the moment before or after an edge."""
    step, follows = edges[edge]
    return [*(path(edges, "after", follows) if follows else ()), f"{when} {step}"]


@pytest.mark.needs("ledgerfiles")
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "way", ["standard", *(pytest.param(way, marks=pytest.mark.ci) for way in ("direct", "paged", "filed"))]
)
async def test_kill_before_and_after_each_edge(tmp_path: Path, way: str) -> None:
    edges = EDGES[way]
    moments = {f"{when} {edge}": path(edges, when, edge) for edge in edges for when in ("before", "after")}

    async def one(number: int) -> list[str]:
        """Those that were not met."""
        mine = list(moments)[number::SIDE_BY_SIDE]
        folder = tmp_path / str(number)
        await asyncio.to_thread(folder.mkdir)
        async with a_world(folder, "standard", IMPATIENT) as world:
            world.file.write_text(world.file.read_text().replace(*MORE.get(way, ("", ""))))
            kills = await sweep(world, [*(moments[each] for each in mine), NEVER], way)
            return mine[kills:]

    async with asyncio.TaskGroup() as group:
        sweeps = [group.create_task(one(number)) for number in range(SIDE_BY_SIDE)]
    assert [each.result() for each in sweeps] == [[]] * SIDE_BY_SIDE


@pytest.mark.needs("ledgerfiles")
@pytest.mark.parametrize("dialect", [*REPLY, "paged"])
async def test_steps_that_a_kill_meets(tmp_path: Path, dialect: str) -> None:
    """Another database driver or HTTP client would take steps away, and the sweep below would not notice."""
    how = dialect
    dialect, steps = (dialect, STEPS) if dialect in REPLY else ("standard", {*STEPS, "Slack chat.delete"})
    async with a_world(tmp_path, dialect, IMPATIENT) as world:
        async with Doomed.at(world, NEVER, all=True) as life:
            await world.get_acquainted()
            life.arm()
            work = asyncio.create_task(whole(made(world, "rpl-1", how, "1")))
            assert not await life.died_before(work)
            assert await life.survived()
        met = (world.folder / "epitaph.txt").read_text().splitlines()
        for step in steps | {REPLY[dialect]}:
            for when in ("before", "after"):
                assert any(each.startswith(f"{when} {step}") for each in met), f"{when} {step}"


@pytest.mark.needs("ledgerfiles")
@pytest.mark.timeout(1200)
@pytest.mark.parametrize(
    ("dialect", "every"),
    [
        ("minimal", 12),
        pytest.param("mcp", 12, marks=pytest.mark.ci),
        pytest.param("paged", 24, marks=pytest.mark.ci),
        pytest.param("standard", 1, marks=pytest.mark.long),
        pytest.param("minimal", 1, marks=pytest.mark.long),
        pytest.param("direct", 1, marks=pytest.mark.long),
        pytest.param("mcp", 1, marks=pytest.mark.long),
        pytest.param("paged", 1, marks=pytest.mark.long),
    ],
)
async def test_kill_at_every_step_from_question_to_updated_card(
    tmp_path: Path, dialect: str, every: int
) -> None:
    """At each n-th step: both dialects take the same steps but for the reply, which a direct asker fetches. A question
    that is paged takes more: its page is posted, and deleted once it is answered elsewhere.
    """

    async def one(number: int) -> int:
        folder = tmp_path / str(number)
        await asyncio.to_thread(folder.mkdir)
        async with a_world(folder, "standard" if dialect in KINDS else dialect, IMPATIENT) as world:
            return await sweep(world, count(number, SIDE_BY_SIDE * every), dialect)

    async with asyncio.TaskGroup() as group:
        sweeps = [group.create_task(one(number)) for number in range(1, SIDE_BY_SIDE + 1)]
    kills = sum(each.result() for each in sweeps)
    print(f"{kills} kills, {dialect}")  # noqa: T201
    firsts = range(1, SIDE_BY_SIDE + 1)
    assert kills >= sum(len(range(each, FEWEST[dialect] + 1, SIDE_BY_SIDE * every)) for each in firsts)
