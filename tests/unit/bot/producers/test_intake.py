from __future__ import annotations

import asyncio
import json
from datetime import timedelta
from typing import Any

import pytest
from structlog.testing import capture_logs

from bot.ports import Trouble
from bot.producers.backlog import Arrival, Backlog
from bot.producers.intake import Counters, Intake
from bot.producers.offset import ClockOffset
from bot.producers.stream import Frame, Oversize
from core.workflow import Speaker
from tests.unit.bot.producers.parties import NOW, Box, ManualClock, event, question, seeded, until

SECRET = "Deploy to production?"


class Desk:
    """An intake with what it writes to."""

    def __init__(self) -> None:
        self.box, self.clock, self.backlog = Box(), ManualClock(), Backlog()
        self.counters, self.offset = Counters(), ClockOffset()
        self.troubles: list[Trouble] = []
        self.intake = Intake(
            Speaker("planner"),
            self.backlog,
            inbox=self.box,
            clock=self.clock,
            rng=seeded(1),
            tell_trouble=self.tell,
            offset=self.offset,
            counters=self.counters,
        )

    async def tell(self, trouble: Trouble) -> None:
        self.troubles.append(trouble)

    async def take(self, data: object, **fields: Any) -> None:
        await self.intake.take(arrival(data, **fields))


def arrival(
    data: object, *, live: bool = False, resumable: bool = False, filtered: bool = False, **fields: Any
) -> Arrival:
    text = data if isinstance(data, str) else json.dumps(data)
    values: dict[str, Any] = {"id": "evt_9", "size": len(text), "skimmed": 0, **fields}
    return Arrival(Frame(text, **values), NOW + timedelta(seconds=3), 3.0, live, filtered, resumable)


async def test_intake_stores_an_event_with_its_cursor() -> None:
    desk = Desk()
    await desk.take(question(question=SECRET), live=True)
    [incoming] = desk.box.got
    assert (incoming.producer, incoming.cursor, incoming.live) == ("planner", "evt_9", True)
    assert incoming.event.question is not None
    assert incoming.event.question.text == SECRET
    assert incoming.received_at == NOW + timedelta(seconds=3)
    assert desk.offset.offset == timedelta(seconds=3)


async def test_intake_drops_what_the_skim_could_not_prove() -> None:
    desk = Desk()
    await desk.take(event("agent.output.streaming", chunk="critical", type_="x"))
    await desk.take(event("agent.progress.updated", urgency="critical"))
    assert desk.counters.skimmed == 1
    assert [one.event.type for one in desk.box.got] == ["agent.progress.updated"]


@pytest.mark.parametrize(
    ("data", "paged"),
    [
        ("ping", False),
        ("[1, 2]", False),
        ("{}", False),
        ('{"type": 5}', False),
        ("[" * 100_000, False),
        (
            '{"type": "aaep:agent.awaiting.clarification", "session_id": "sess_1", "producer": {"agent_id": "a"',
            True,
        ),
        ('[{"type": "aaep:agent.handoff.requested"}]', True),
        ('{"urgency": "critical"}', True),
    ],
)
async def test_intake_survives_what_is_no_event(data: str, paged: bool) -> None:
    desk = Desk()
    with capture_logs() as logs:
        await desk.take(data)
        await desk.take(event(n=2))
    assert desk.counters.unreadable == 1
    assert len(desk.troubles) == paged
    assert desk.box.ids() == ["evt_0000000000000002"]
    assert not any(data in str(line) for line in logs if len(data) > 4)


async def test_intake_pages_with_what_could_be_read() -> None:
    desk = Desk()
    await desk.take(
        '{"type": "aaep:agent.awaiting.clarification", "session_id": "sess_1", "agent_id": "a", "question": "Q'
    )
    await desk.intake.take(
        Arrival(Oversize('{"type": "x:y", "session_id": "sess_2", "question": "Q', 0), NOW, 0.0, live=False)
    )
    first, second = desk.troubles
    assert (first.key, first.session_id, first.agent_id) == ("unreadable:sess_1", "sess_1", "a")
    assert (second.key, second.session_id, second.agent_id) == ("oversize:sess_2", "sess_2", None)
    assert "x:y" in second.summary
    assert desk.counters.oversize == 1


@pytest.mark.parametrize(("resumable", "pages"), [(True, 0), (False, 1)])
async def test_intake_pages_for_a_torn_question_only_where_it_is_lost(resumable: bool, pages: int) -> None:
    desk = Desk()
    await desk.take(json.dumps(question())[:-9], torn=True, id=None, resumable=resumable)
    assert len(desk.troubles) == pages


async def test_intake_waits_with_the_storage_and_loses_nothing() -> None:
    desk = Desk()
    desk.box.unavailable = 4
    for n in (1, 2, 3):
        desk.backlog.add(arrival(question(n), id=f"evt_{n}"))
    run = asyncio.create_task(desk.intake.run())
    await until(lambda: len(desk.backlog) == 0, lambda: desk.clock.advance(1))
    run.cancel()
    assert [one.cursor for one in desk.box.got] == ["evt_1", "evt_2", "evt_3"]
    assert len(desk.clock.slept) == 4


async def test_intake_pages_for_one_event_that_cannot_be_stored_and_goes_on() -> None:
    desk = Desk()
    desk.box.chokes_on = "evt_0000000000000001"
    with capture_logs() as logs:
        await desk.take(question(1))
        await desk.take(question(2))
    assert desk.box.ids() == ["evt_0000000000000002"]
    assert [one.key for one in desk.troubles] == ["failed:sess_2c91a7b4d23f1e88"]
    assert SECRET not in str(logs)
    assert "KeyError" in str(logs)


async def test_intake_stores_what_waits_together_but_for_what_cannot_be_stored() -> None:
    desk = Desk()
    desk.box.chokes_on = "evt_0000000000000002"
    await desk.intake.take(*(arrival(question(n)) for n in (1, 2, 3)))
    assert desk.box.ids() == ["evt_0000000000000001", "evt_0000000000000003"]
    assert len(desk.troubles) == 1


async def test_intake_notes_what_was_not_utf8() -> None:
    desk = Desk()
    await desk.take(question(question="caf\ufffd"), replaced=True)
    assert desk.box.got[0].event.problems == ("not UTF-8",)
    assert desk.counters.not_utf8 == 1


async def test_intake_counts_gaps_and_not_where_events_are_filtered() -> None:
    desk = Desk()
    for number in (0, 1, 5):
        await desk.take(event(n=number, sequence_number=number))
        await desk.take(event(n=number, session_id="sess_b", sequence_number=number), filtered=True)
    assert desk.counters.missing == 3


async def test_intake_warns_of_each_kind_of_problem_once() -> None:
    desk = Desk()
    with capture_logs() as logs:
        for n in range(5):
            await desk.take({**event(n=n), "timestamp": "yesterday"})
            await desk.take("ping")
    assert [line["log_level"] for line in logs].count("warning") == 2
    assert desk.offset.offset == timedelta(0)
