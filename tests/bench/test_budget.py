from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.bench.budget import CARD, Costs, limits, measured, problems, typical, walked
from tests.kit.databases import Server


def _problems(costs: Costs, allowed: Mapping[str, Any]) -> list[str]:
    return [each for what in costs for each in problems(what, typical(costs[what]), allowed[what])]


async def test_a_quiet_card_and_click_cost_what_they_may(tmp_path: Path) -> None:
    assert _problems(await measured(tmp_path / "files", times=50), limits()) == []


async def test_a_question_that_is_asked_directly_costs_what_it_may(tmp_path: Path) -> None:
    assert _problems(await measured(tmp_path / "files", 50, direct=True), limits()["direct"]) == []


@pytest.mark.ci
@pytest.mark.parametrize("direct", [False, True])
async def test_a_card_and_a_click_take_as_many_functions_as_they_may(tmp_path: Path, *, direct: bool) -> None:
    allowed = limits()["functions"]
    costs = await walked(tmp_path / "walk", times=9, direct=direct)
    assert _problems(costs, allowed["direct"] if direct else allowed) == []


@pytest.mark.ci
async def test_a_quiet_card_and_click_commit_as_often_as_they_may_on_postgres(
    tmp_path: Path, postgres_server: Server
) -> None:
    costs = await measured(tmp_path / "postgres", 10, postgres_server.new())
    postgres_server.drop()
    assert _problems(costs, limits()["postgres"]) == []


@pytest.mark.parametrize(
    ("name", "count", "says"),
    [
        ("database commits", 4, None),
        ("database commits", 5, "one card: database commits rose from 4 to 5"),
        ("database commits", 3, "one card: database commits fell from 4 to 3: lower it in budget.toml"),
        ("thread hops", 44, None),
        ("thread hops", 45, "one card: thread hops rose from 40 to 45"),
        ("thread hops", 36, None),
        ("thread hops", 35, "one card: thread hops fell from 40 to 35: lower it in budget.toml"),
    ],
)
def test_a_rise_and_a_fall_are_told_by_name(name: str, count: int, says: str | None) -> None:
    allowed = {"database commits": 4, "thread hops": 40}
    assert problems(CARD, {**allowed, name: count}, allowed) == ([says] if says else [])


def test_what_happens_now_and_then_is_not_of_each_card() -> None:
    costs = [{"database commits": commits, "event-loop turns": turns} for commits, turns in _WINDOWS]
    assert typical(costs) == {"database commits": 4, "event-loop turns": 80}


_WINDOWS = [(4, 75), (4, 78), (5, 80), (4, 82), (4, 101)]
