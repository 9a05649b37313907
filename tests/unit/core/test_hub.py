"""Agents that ask agents: a real database, real workflow files."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from bot.storage.ledger import DatabaseLedger
from core.clarification import Ask, Clarification, Decider, Question, answer_of
from core.clock import SystemClock
from core.errors import ClarifyError, ScopeViolation
from core.hub import Hub
from core.ledger import Contents
from core.router import Router
from core.transitions import MaxRoundsExceeded
from core.workflow import Scopes
from tests.kit.builders import NOW, SLA
from tests.kit.clocks import ManualClock
from tests.kit.ledgers import kept_ledger

ID = "CLR-42-001"
ARCHITECT = Decider("agent:architect", "shell")
PERSON = Decider("user:os/ade@host", "shell")
PATIENT = 60.0
LONG = 60.0  # how long for what is bound to come
WORKFLOW = """
[[steps]]
agent = "engineer"
can_clarify = ["architect"]
clarify_max_rounds = 2
clarify_sla_minutes = 7

[[steps]]
agent = "writer"
can_clarify = ["architect"]
clarify_blocking_allowed = false
"""
ASK = Ask("engineer", "Which database?", "architect", "storage", blocking=True, asked=Question())


@dataclass
class World:
    hub: Hub
    ledger: DatabaseLedger
    workflows: Path
    changed: list[Clarification]

    async def written(self) -> list[Contents]:
        return [each async for each in self.ledger.every()]


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    (tmp_path / "workflows").mkdir()
    (tmp_path / "workflows" / "feature.toml").write_text(WORKFLOW)
    async with kept_ledger(tmp_path) as ledger:
        clock, changed = ManualClock(NOW), list[Clarification]()
        router = Router(ledger, clock, SLA, changed.append, PATIENT)
        scopes = Scopes(tmp_path / "workflows")
        hub = Hub(router=router, ledger=ledger, scopes=scopes, clock=clock, via="http")
        yield World(hub, ledger, tmp_path / "workflows", changed)


async def to_last_round(world: World) -> None:
    await world.hub.request(42, ASK)
    await world.hub.answer(ID, "PostgreSQL", ARCHITECT)
    await world.hub.follow_up(ID, "Which version?")
    await world.hub.answer(ID, "17", ARCHITECT)


# asking


async def test_follow_up_keeps_the_rounds_it_began_with_and_takes_the_new_sla(world: World) -> None:
    await world.hub.request(42, ASK)
    await world.hub.answer(ID, "PostgreSQL", ARCHITECT)
    text = WORKFLOW.replace("clarify_max_rounds = 2", "clarify_max_rounds = 50").replace("= 7", "= 11")
    (world.workflows / "feature.toml").write_text(text)
    again = await world.hub.follow_up(ID, "Which version?")
    assert again.max_rounds == 2
    assert again.stale_after == NOW + timedelta(minutes=11)


async def test_question_after_the_last_round_is_answered_by_people_and_waited_for(world: World) -> None:
    await to_last_round(world)
    with pytest.raises(MaxRoundsExceeded):
        await world.hub.follow_up(ID, "And when?")
    waiting = asyncio.create_task(world.hub.wait(ID, LONG, round=2))
    await asyncio.sleep(0)
    with pytest.raises(TimeoutError):
        await world.hub.wait(ID, 0.1, round=2)
    await world.hub.answer(ID, "Tomorrow", PERSON)
    answer = answer_of(await waiting, 2)
    assert answer is not None
    assert answer.body == "Tomorrow", "not what round 2 was answered before"


# every error, by its code

Act = Callable[[World], Awaitable[object]]


async def closed(world: World) -> None:
    await world.hub.request(42, ASK)
    await world.hub.abandon(ID, PERSON)


async def answered(world: World) -> None:
    await world.hub.request(42, ASK)
    await world.hub.answer(ID, "PostgreSQL", ARCHITECT)


async def asked(world: World) -> None:
    await world.hub.request(42, ASK)


async def nothing(world: World) -> None:
    pass


def requested(issue: int = 42, **more: Any) -> Act:
    async def act(world: World) -> object:
        return await world.hub.request(issue, replace(ASK, **more))

    return act


ERRORS: dict[str, tuple[Callable[[World], Awaitable[None]], Act, str, str]] = {
    "who may not be asked": (
        nothing,
        requested(to="reviewer"),
        "SCOPE_VIOLATION",
        "its workflow allows only architect",
    ),
    "blocking": (nothing, requested(agent_id="writer"), "SCOPE_VIOLATION", "does not allow blocking"),
    "rounds, request": (to_last_round, requested(), "MAX_ROUNDS_EXCEEDED", "used all 2 rounds"),
    "unknown, follow-up": (nothing, lambda w: w.hub.follow_up(ID, "More?"), "NOT_FOUND", ID),
    "unknown, wait": (nothing, lambda w: w.hub.wait(ID), "NOT_FOUND", ID),
    "bad id, follow-up": (nothing, lambda w: w.hub.follow_up("42", "More?"), "BAD_INPUT", "'42'"),
    "topic": (nothing, requested(topic="x" * 201), "BAD_INPUT", "topic has 201 characters; at most 200"),
    "question": (nothing, requested(question="x" * 2001), "BAD_INPUT", "question has 2001 .* at most 2000"),
    "no question": (nothing, requested(question=" \n"), "BAD_INPUT", "question must not be empty"),
    "context": (
        nothing,
        requested(asked=Question(context="x" * 4097)),
        "BAD_INPUT",
        "context has 4097 .* at most 4096",
    ),
    "answer": (asked, lambda w: w.hub.answer(ID, "x" * 2001, PERSON), "BAD_INPUT", "answer has 2001 .* 2000"),
    "resolution of an answered one": (
        answered,
        lambda w: w.hub.resolve(ID, "x" * 2001, PERSON),
        "BAD_INPUT",
        "resolution has 2001 .* at most 2000",
    ),
    "reason to escalate": (
        asked,
        lambda w: w.hub.escalate(ID, PERSON, "x" * 2001),
        "BAD_INPUT",
        "reason has 2001",
    ),
    "requester": (nothing, requested(agent_id=""), "BAD_INPUT", "requester .* 1 to 80"),
    "target": (nothing, requested(to="a\nb"), "BAD_INPUT", "target .* one line"),
    "reserved issue": (nothing, requested(issue=100_001), "BAD_INPUT", "Issue 100001 is reserved"),
    "follow-up unanswered": (
        asked,
        lambda w: w.hub.follow_up(ID, "More?"),
        "ILLEGAL_TRANSITION",
        "once it is answered",
    ),
    "follow-up closed": (closed, lambda w: w.hub.follow_up(ID, "More?"), "CLOSED", "abandoned"),
    "answer closed": (closed, lambda w: w.hub.answer(ID, "x", PERSON), "CLOSED", "abandoned"),
    "answer answered": (
        answered,
        lambda w: w.hub.answer(ID, "x", PERSON),
        "ALREADY_ANSWERED",
        "no longer takes an answer",
    ),
}


@pytest.mark.parametrize("case", sorted(ERRORS))
async def test_every_error_has_its_code_and_changes_nothing(world: World, case: str) -> None:
    prepare, act, code, words = ERRORS[case]
    await prepare(world)
    before = await world.written()
    with pytest.raises(ClarifyError, match=words) as caught:
        await act(world)
    assert caught.value.code == code
    assert "xxx" not in str(caught.value), "nobody's words"
    if code != "MAX_ROUNDS_EXCEEDED":
        assert await world.written() == before


async def test_scope_holds_for_follow_ups_too_and_a_human_may_be_asked(world: World) -> None:
    await answered(world)
    (world.workflows / "feature.toml").write_text("")
    with pytest.raises(ScopeViolation, match="no workflow"):
        await world.hub.follow_up(ID, "Which version?")
    assert (await world.hub.request(42, replace(ASK, to="human"))).to == "human"


# waiting


SIMPLE_WORKFLOW = '[[steps]]\nagent = "engineer"\ncan_clarify = ["architect"]\n'


@asynccontextmanager
async def opened(folder: Path) -> AsyncIterator[Hub]:
    """A process of its own."""
    async with kept_ledger(folder) as ledger:
        clock = SystemClock()
        router = Router(ledger, clock, SLA, lambda _: None)
        yield Hub(router=router, ledger=ledger, scopes=Scopes(folder / "workflows"), clock=clock, via="http")


@pytest.fixture
async def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Hub]:
    """No notice of what others write comes here: it looks."""
    monkeypatch.setattr("core.hub._LOOK_EVERY", 0.05)
    (tmp_path / "workflows").mkdir()
    (tmp_path / "workflows" / "feature.toml").write_text(SIMPLE_WORKFLOW)
    async with opened(tmp_path) as made:
        yield made
