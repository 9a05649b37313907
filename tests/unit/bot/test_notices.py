"""Who is told of what is no card: against a real storage and real pages."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from bot.intake.notices import Notices
from core.errors import RecordUnreadable
from core.ledgerformat import InvalidRecord, why_invalid
from tests.unit.bot.judges import RENDERER
from tests.unit.bot.oncall.stage import World, said

ODD = {"id": "CLR-300-002", "from": "rival", "status": "pending", "topic": "s3cret", "thread": None}


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    made = await World(tmp_path).start()
    yield made
    await made.stop()


def notices(world: World) -> Notices:
    return Notices(
        settings=world.settings,
        incidents=world.incidents,
        delivery=world.delivery,
        messages=world.messages,
        renderer=RENDERER,
    )


def odd(**more: Any) -> InvalidRecord:
    found = why_invalid(300, 2, ODD | more)
    assert found is not None
    return found


async def test_unreadable_records_of_the_database_have_an_incident_each(world: World) -> None:
    for name in ("CLR-300-001", "CLR-300-002", "CLR-300-001"):
        await notices(world).ledger_unreadable(RecordUnreadable(name, 300))
    rows = await world.store.read("select title, key from incidents order by id")
    assert [(row["title"], row["key"]) for row in rows] == [
        ("CLR-300-001 cannot be read", "ledger:CLR-300-001"),
        ("CLR-300-002 cannot be read", "ledger:CLR-300-002"),
    ]


async def test_record_unreadable_is_paged_once_and_logged_once_per_content(world: World) -> None:
    first = notices(world)
    with capture_logs() as logs:
        for each in (odd(), odd(), odd(topic="other")):
            await first.record_unreadable(each)
    await notices(world).record_unreadable(odd())
    (page,) = await world.paged(1)
    for part in ("issue-300.json", "CLR-300-002", "thread"):
        assert part in page.text
    named = [line for line in logs if line["event"] == "cannot read a ledger record"]
    assert [(line["file"], line["id"]) for line in named] == [("issue-300.json", "CLR-300-002")] * 2
    assert "s3cret" not in said(page) + repr(logs)


async def test_record_unreadable_of_another_id_has_its_own_incident(world: World) -> None:
    for each in (odd(), odd(id="CLR-300-003")):
        await notices(world).record_unreadable(each)
    rows = await world.store.read("select kind, key from incidents order by id")
    assert [(row["kind"], row["key"]) for row in rows] == [
        ("ledger", "ledger:issue-300.json:CLR-300-002"),
        ("ledger", "ledger:issue-300.json:CLR-300-003"),
    ]


async def test_record_unreadable_that_is_over_pages_nobody(world: World) -> None:
    await notices(world).record_unreadable(replace(odd(), is_over=True))
    await world.paged(0)
