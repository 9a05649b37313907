from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.unit.bot.paging.stage import World, said


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    made = await World(tmp_path).start()
    yield made
    await made.stop()


async def test_first_page_goes_at_once(world: World) -> None:
    await world.raised()
    await world.quiet()
    (page,) = world.slack.pages()
    assert "planner stopped 1" in page.text


async def test_escalated_question_is_paged_with_its_controls(world: World) -> None:
    record = await world.escalated()
    await world.quiet()
    (page,) = world.slack.pages()
    assert record.id in page.text
    for label in ("Yes", "No", "Take", "Hand to…", "Snooze", "Not mine"):
        assert f"'{label}'" in said(page)
