from __future__ import annotations

from bot.github.plan import ACTIVE, STALE
from tests.unit.bot.github.world import World


async def test_mirror_posts_each_entry_once_in_order(world: World) -> None:
    await world.start()
    record = await world.ask()
    await world.shows(1)
    await world.answer(record)
    first, second = await world.shows(2)

    assert "**Question** from `engineer` to `architect`" in first
    assert "Which database?" in first
    assert "**Answer** by `user:slack/T1/U1`" in second
    assert "Postgres" in second


async def test_mirror_sets_and_removes_labels(world: World) -> None:
    await world.start()
    record = await world.ask()
    await world.shows(1)
    assert world.github.labels[42] == {ACTIVE}
    record = await world.escalate(record)
    await world.shows(2)
    assert world.github.labels[42] == {ACTIVE, STALE}
    assert world.github.known_labels[ACTIVE]["color"] == "1d76db"
    assert world.github.known_labels[STALE]["description"]
    await world.answer(record)
    await world.shows(3)

    assert world.github.labels[42] == set()
