"""Who is told of what is no card: against a real storage and real pages."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from bot.intake.notices import Notices
from bot.intake.telling import Teller
from core.errors import RecordUnreadable
from tests.unit.bot.judges import RENDERER
from tests.unit.bot.oncall.stage import World


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    made = await World(tmp_path).start()
    yield made
    await made.stop()


def notices(world: World) -> Notices:
    teller = Teller(
        settings=world.settings, incidents=world.incidents, delivery=world.delivery, renderer=RENDERER
    )
    return Notices(
        settings=world.settings,
        incidents=world.incidents,
        delivery=world.delivery,
        messages=world.messages,
        renderer=RENDERER,
        teller=teller,
    )


async def test_unreadable_records_of_the_database_have_an_incident_each(world: World) -> None:
    for name in ("CLR-300-001", "CLR-300-002", "CLR-300-001"):
        await notices(world).ledger_unreadable(RecordUnreadable(name, 300))
    rows = await world.store.read("select title, key from incidents order by id")
    assert [(row["title"], row["key"]) for row in rows] == [
        ("CLR-300-001 cannot be read", "ledger:CLR-300-001"),
        ("CLR-300-002 cannot be read", "ledger:CLR-300-002"),
    ]
