"""From what producers told to what was decided: in order, session by session, whatever gets in the way."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from bot.ask.inbox import Inbox, Incoming, take
from bot.errors import StorageUnavailable
from bot.intake.intake import Intake
from bot.storage.ledger import DatabaseLedger
from bot.storage.store import Store
from core.clarification import Clarification
from core.index import Index
from core.router import Router
from core.workflow import Scopes
from tests.kit.builders import SLA
from tests.kit.clocks import ManualClock
from tests.kit.events import incoming, other, raw
from tests.kit.ledgers import held
from tests.unit.bot.audiences import audiences

ISSUE = 42
IN_42 = {"extensions": {"agentx": {"issue": ISSUE}}}


@dataclass
class Told:
    """Keeps what it is told; `troubles` are raised first."""

    events: list[str] = field(default_factory=list)
    paged: list[str] = field(default_factory=list)
    seen: list[Incoming] = field(default_factory=list)
    troubles: list[Exception] = field(default_factory=list)

    async def event(self, item: Incoming) -> None:
        if self.troubles:
            raise self.troubles.pop(0)
        self.events.append(item.event.event_id)

    async def not_processed(self, item: Incoming) -> None:
        self.paged.append(item.event.event_id)


@dataclass
class World:
    intake: Intake
    ledger: DatabaseLedger
    workflows: Path
    router: Router
    notices: Told
    clock: ManualClock
    store: Store
    inbox: Inbox

    async def put(self, event: dict[str, Any], **how: Any) -> None:
        await self.inbox.put(incoming(event, **how))

    async def worked_off(self) -> None:
        async with asyncio.timeout(60):
            await self.intake.drained()

    def workflow(self, text: str) -> None:
        self.workflows.mkdir(exist_ok=True)
        (self.workflows / "feature.toml").write_text(text)

    async def records(self, issue: int = ISSUE) -> list[tuple[str, str]]:
        return [(each.id, each.status) for each in (await self.ledger.read(issue)).records]


@pytest.fixture
async def world(ledger: DatabaseLedger, tmp_path: Path) -> AsyncIterator[World]:
    clock, index, store, notices = ManualClock(auto=True), Index(), ledger.store, Told()
    workflows = tmp_path / "workflows"

    def changed(record: Clarification) -> None:
        index.put(record)

    async def settled(clarifications: list[str], patience: float) -> None:
        assert patience > 0

    router, inbox = Router(ledger, clock, SLA, changed), Inbox(store)
    intake = Intake(
        inbox=inbox,
        router=router,
        scopes=Scopes(workflows),
        audiences=audiences(),
        index=index,
        notices=notices,  # type: ignore[arg-type]
        replies_settled=settled,
        seen=notices.seen.append,
        clock=clock,
    )
    task = asyncio.create_task(intake.run())
    yield World(intake, ledger, workflows, router, notices, clock, store, inbox)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await intake.close()
    assert not intake.failed.done()


async def test_log_says_once_what_became_of_an_event(world: World) -> None:
    with capture_logs() as logs:
        await world.put(raw(event_id="evt_asked", **IN_42))
        await world.worked_off()
        await world.put(other("session.started", event_id="evt_other"))
        await world.worked_off()
    assert [(line["event_id"], line.get("clarification"), line.get("how")) for line in logs] == [
        ("evt_asked", "CLR-42-001", "new"),
        ("evt_other", None, None),
    ]
    assert {line["event"] for line in logs} == {"event"}


@pytest.mark.parametrize(
    ("agentx", "to", "topic", "blocking"),
    [
        ({"to": "architect", "topic": "db", "blocking": False}, "architect", "db", False),
        ({"to": 7, "topic": ["x"], "blocking": "no"}, "human", "Deploy to production?", True),
    ],
)
async def test_extension_of_a_question(
    world: World, agentx: dict[str, Any], to: str, topic: str, blocking: bool
) -> None:
    await world.put(raw(extensions={"agentx": {"issue": ISSUE} | agentx}))
    await world.worked_off()
    found = await world.ledger.find("CLR-42-001")
    assert (found.to, found.topic, found.blocking) == (to, topic, blocking)


async def test_event_that_another_bot_stored_is_seen_when_it_is_read(world: World) -> None:
    world.inbox.heard()
    await world.worked_off()  # the look with which it begins is over
    await world.store.write(lambda tx: take(tx, incoming(other("session.errored"))))
    assert not world.notices.seen
    world.inbox.heard()
    await world.worked_off()
    assert [item.event.event_id for item in world.notices.seen] == ["evt_session.errored"]


async def test_events_of_two_bots_are_processed_in_the_order_in_which_they_were_stored(world: World) -> None:
    await world.put(other("session.started"))
    await world.worked_off()
    await world.store.write(lambda tx: take(tx, incoming(other("session.errored"))))
    await world.put(other("session.completed"))
    await world.worked_off()
    assert world.notices.events[1:] == ["evt_session.errored", "evt_session.completed"]


async def test_event_waits_for_what_is_not_there_now(world: World) -> None:
    world.notices.troubles = [StorageUnavailable(), StorageUnavailable("again")]
    await world.put(other("session.errored"))
    await world.worked_off()
    assert world.notices.events == ["evt_session.errored"]
    assert world.clock.slept == [0.5, 0.5]


async def test_fault_with_one_event_stops_no_other_and_pages(world: World) -> None:
    world.notices.troubles = [RuntimeError("a fault of ours")]
    with capture_logs() as logs:
        await world.put(other("session.errored"))
        await world.put(raw(**IN_42))
        await world.worked_off()
    assert world.notices.paged == ["evt_session.errored"]
    (fault,) = [line for line in logs if line["event"] == "cannot process an event"]
    assert (fault["event_id"], fault["type"]) == ("evt_session.errored", "agent.session.errored")
    assert await world.records() == [("CLR-42-001", "pending")]


async def test_locked_issue_holds_up_its_session_only(world: World) -> None:
    with held(f"issue {ISSUE}"):
        await world.put(raw(**IN_42))
        await world.put(
            raw(event_id="e2", reply_token="r2", session_id="sess_2", extensions={"agentx": {"issue": 43}})
        )
        while not await world.records(43):
            assert await world.records() == []
            await asyncio.sleep(0)
    await world.worked_off()
    assert await world.records() == [("CLR-42-001", "pending")]


async def test_events_of_a_session_keep_their_order(world: World) -> None:
    names = [f"evt_{n:03d}" for n in range(60)]
    for name in names:
        await world.put(other("session.errored", event_id=name))
    await world.worked_off()
    assert world.notices.events == names


def to(target: str, **more: Any) -> dict[str, Any]:
    return {"extensions": {"agentx": {"issue": ISSUE, "to": target, **more}}}


async def test_question_to_an_agent_gets_the_limits_of_its_workflow(world: World) -> None:
    world.workflow(
        '[[steps]]\nagent = "planner"\ncan_clarify = ["architect"]\n'
        "clarify_max_rounds = 2\nclarify_sla_minutes = 3\n"
    )
    await world.put(raw(**to("architect")))
    await world.worked_off()
    record = await world.ledger.find("CLR-42-001")
    assert (record.to, record.max_rounds, record.asked.held_back) == ("architect", 2, None)
    assert record.stale_after is not None
    assert record.stale_after <= record.created + timedelta(minutes=3)


ARCHITECT = '[[steps]]\nagent = "planner"\ncan_clarify = ["architect", "a b"]'
NO_ISSUE = "a whole number from 1 to 100000"


@pytest.mark.parametrize(
    ("workflow", "asked", "reason"),
    [
        ("", to("architect"), "no workflow allows it to ask anyone"),
        (ARCHITECT.replace("architect", "reviewer"), to("architect"), "its workflow allows only reviewer"),
        (ARCHITECT, to("architect") | {"question": "x" * 2001}, "question has 2001 characters"),
        (ARCHITECT, to(""), "The target (to) must be a role."),
        (ARCHITECT, to("architect", issue="none"), NO_ISSUE),
        (ARCHITECT, to("architect", issue=100_005), NO_ISSUE),
    ],
)
async def test_question_that_its_target_may_not_get_is_kept_for_people_with_the_reason(
    world: World, workflow: str, asked: dict[str, Any], reason: str
) -> None:
    world.workflow(workflow)
    await world.put(raw(**asked))
    await world.worked_off()
    issue = ISSUE if asked["extensions"]["agentx"]["issue"] == ISSUE else 100_001
    (record,) = (await world.ledger.read(issue)).records
    assert record.status == "pending"
    assert reason in (record.asked.held_back or "")
