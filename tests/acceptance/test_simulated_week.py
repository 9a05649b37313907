from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog

from tests.acceptance import week_plan
from tests.acceptance.week_facts import Facts
from tests.acceptance.week_oracle import judge
from tests.acceptance.week_world import World
from tests.kit.simulated import run_simulated


@pytest.fixture
def folder() -> Iterator[Path]:
    """In memory where there is such a place: a week writes some ten thousand files."""
    memory = Path("/dev/shm")  # noqa: S108 - made by mkdtemp
    made = Path(tempfile.mkdtemp(prefix="week-", dir=memory if memory.is_dir() else None))
    yield made
    shutil.rmtree(made)
    structlog.reset_defaults()


@pytest.mark.timeout(1200)
@pytest.mark.parametrize(
    ("seed", "questions", "restarts"),
    [(2, 16, 8), *(pytest.param(seed, 60, 20, marks=pytest.mark.long) for seed in range(3, 9))],
)
def test_week_nobody_waits_unseen(
    folder: Path, monkeypatch: pytest.MonkeyPatch, seed: int, questions: int, restarts: int
) -> None:
    plan = week_plan.make(seed, questions, restarts)

    async def week() -> World:
        world = World(plan, folder, monkeypatch)
        await world.run()
        return world

    world = run_simulated(week)
    verdict = judge(Facts(world))

    print(verdict)  # noqa: T201 - the figures
    assert not world.current.faults
    assert not verdict.problems, "\n".join([f"{len(verdict.problems)} problems", *verdict.problems[:20]])
    assert verdict.figures["escalations"] > questions / 5
    assert verdict.figures["pages judged"] > questions / 5
    assert verdict.figures["accept by 2"] > 0
    assert verdict.figures["replaced"] > questions / 3
    assert verdict.figures["over and unseen"] > questions / 5
