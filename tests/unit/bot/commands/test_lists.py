from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from bot.commands.grammar import List
from bot.commands.lists import Access, Lists
from bot.delivery.messages import Permalinks
from bot.oncall.roster import Roster
from bot.people.access import AccessControl, Person, Refusal
from bot.settings.model import RouteSettings
from bot.slackapi import Place
from bot.storage.ledger import DatabaseLedger
from bot.views.blockkit import Draft
from core.agents import SessionFact
from core.clarification import Clarification, Holder, round_with, taken
from core.index import Index
from core.ledger import Contents
from tests.kit.clocks import ManualClock
from tests.unit.bot.slack.kit import settings
from tests.unit.bot.strategies import record_of

ADE = Person("T1", "U0ADE")
HERE = Place("C0AGENTS")


def rows(answer: Draft) -> list[str]:
    """The questions of a list, by their ids."""
    return [line.partition(".")[0] for line in answer.text.splitlines() if line.startswith("CLR-")]


class Gate(AccessControl):
    """Lets everybody answer; counts how often it is asked."""

    def __init__(self) -> None:
        self.asked = 0

    async def refusal_on(self, person: Person, route: RouteSettings) -> Refusal | None:
        self.asked += 1
        return None


class Ledgers(DatabaseLedger):
    def __init__(self, records: Sequence[Clarification], unreadable: Sequence[str]) -> None:
        self.by_id = {record.id: record for record in records}
        self.unreadable = unreadable
        self.tampered: set[str] = set()

    def recent(self, clarification_id: str, revision: int) -> Clarification | None:
        return None

    async def find(self, clarification_id: str) -> Clarification:
        return self.by_id[clarification_id]

    async def every(self, *, issue: int | None = None, **_: object) -> AsyncGenerator[Contents]:
        records = [each for each in self.by_id.values() if each.issue_number == issue]
        yield Contents(records, [*self.unreadable])

    async def is_tampered(self, record: Clarification) -> bool:
        return record.id in self.tampered


class Nobody(Roster, Permalinks):
    """A roster that names nobody, and links to nothing."""

    def __init__(self) -> None:
        pass

    async def on_call(self, policy_name: str) -> tuple[str, ...]:
        return ()

    async def links(self, clarification_ids: Sequence[str]) -> dict[str, str]:
        return {}


async def no_sessions() -> Sequence[SessionFact]:
    return ()


def lists(
    folder: Path,
    records: Sequence[Clarification],
    gate: Gate,
    clock: ManualClock,
    unreadable: Sequence[str] = (),
) -> Lists:
    index = Index()
    for record in records:
        index.put(record)
    return Lists(
        index=index,
        ledger=Ledgers(records, unreadable),
        access=Access(gate, Nobody(), lambda _: frozenset(), settings(folder)),
        permalinks=Nobody(),
        sessions=no_sessions,
        clock=clock,
    )


async def test_most_urgent_come_first_in_mine_after_what_one_took_and_those_of_others_last(
    tmp_path: Path,
) -> None:
    clock = ManualClock(record_of().created)
    base = record_of()

    def at(n: int, hours: int | None, **more: Any) -> Clarification:
        ends = base.created + timedelta(hours=hours) if hours is not None else None
        asked = round_with(base.current, expires_at=ends)
        return base.model_copy(update={"id": f"CLR-{n}-001", "issue_number": n, "rounds": (asked,), **more})

    records = [at(1, None), at(2, 5), at(3, 1), at(4, 0, rounds=(), to="architect")]
    answer = await lists(tmp_path, records, Gate(), clock).show(List("waiting"), ADE, HERE)

    assert rows(answer) == [
        "CLR-3-001",
        "CLR-2-001",
        "CLR-1-001",
        "CLR-4-001",
    ]
    assert "3 for you, 1 more in this channel" in answer.text
    mine = await lists(tmp_path, records, Gate(), clock).show(List("mine"), ADE, HERE)
    assert "Waiting for you: 3" in mine.text

    held = [taken(each, Holder(user=ADE.user, at=clock.now())) for each in records[:2]]
    desk = lists(tmp_path, [*held, *records[2:]], Gate(), clock)
    assert rows(await desk.show(List("mine"), ADE, HERE)) == ["CLR-2-001", "CLR-1-001", "CLR-3-001"]
    assert rows(await desk.show(List("waiting"), ADE, HERE)) == rows(answer)


@pytest.mark.parametrize("count", [0, 1])
async def test_issue_says_how_many_records_cannot_be_read(tmp_path: Path, count: int) -> None:
    record = record_of()
    unreadable = ["CLR-42-009", "CLR-42-010"]
    desk = lists(tmp_path, [record][:count], Gate(), ManualClock(record.created), unreadable)
    answer = await desk.show(List("issue", 42), ADE, HERE)
    assert "2 more cannot be read" in answer.text
    assert len(rows(answer)) == count
