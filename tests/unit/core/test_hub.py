"""Agents that ask agents from Python: real ledgers, real workflow files, other processes where it matters."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import textwrap
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from core import hub as hub_module
from core.clarification import (
    Clarification,
    Closed,
    Decider,
    MaxRoundsExceeded,
    Superseded,
    answer_of,
)
from core.errors import ClarifyError, LedgerUnreadable, NotFound, ScopeViolation
from core.hub import Hub, Request
from core.ledger import FileLedger
from core.router import Router
from core.workflow import Scopes
from tests.kit.builders import NOW, SLA
from tests.kit.clocks import ManualClock
from tests.kit.files import replace_text
from tests.kit.until import until
from tests.unit.core.holding import rival_holds

ID = "CLR-42-001"
ARCHITECT = Decider("agent:architect", "python")
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
REQUEST = Request(42, "engineer", "architect", "storage", "Which database?")


@dataclass
class World:
    hub: Hub
    ledger: FileLedger
    clock: ManualClock
    workflows: Path
    changed: list[Clarification]

    def raw(self, issue: int = 42) -> dict[str, Any]:
        content: dict[str, Any] = json.loads(self.ledger.files.path(issue).read_text())
        return content


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    for name in ("ledgers", "workflows"):
        (tmp_path / name).mkdir()
    (tmp_path / "workflows" / "feature.toml").write_text(WORKFLOW)
    ledger, clock = FileLedger(tmp_path / "ledgers"), ManualClock(NOW)
    changed: list[Clarification] = []
    router = Router(ledger, clock, SLA, changed.append, PATIENT)
    scopes = Scopes(tmp_path / "workflows")
    hub = Hub(router=router, ledger=ledger, scopes=scopes, clock=clock)
    yield World(hub, ledger, clock, tmp_path / "workflows", changed)
    ledger.close()


async def to_last_round(world: World) -> None:
    await world.hub.request(REQUEST)
    await world.hub.answer(ID, "PostgreSQL", ARCHITECT)
    await world.hub.follow_up(ID, "Which version?")
    await world.hub.answer(ID, "17", ARCHITECT)


# asking


def test_example_in_the_documentation_runs(tmp_path: Path) -> None:
    documented = (hub_module.__doc__ or "").split("A whole program:\n\n")[1].split("\nWhat can go wrong")[0]
    program = tmp_path / "program.py"
    program.write_text(textwrap.dedent(documented))
    run = subprocess.run(
        [sys.executable, "-W", "error", program],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert run.stderr == ""
    assert run.stdout.splitlines() == [f"{ID} round 1 PostgreSQL", f"{ID} round 2 17"]


async def test_request_is_written_with_the_limits_of_its_workflow(world: World) -> None:
    record = await world.hub.request(replace(REQUEST, from_=" engineer ", context="see ADR 7"))
    assert record == await world.hub.find(ID)
    assert (record.from_, record.to, record.topic, record.blocking) == (
        "engineer",
        "architect",
        "storage",
        True,
    )
    assert (record.status, record.round, record.max_rounds) == ("pending", 1, 2)
    assert record.stale_after == NOW + timedelta(minutes=7)
    assert (record.asked.via, record.asked.context, record.asked.reply_token) == ("python", "see ADR 7", None)
    assert world.changed == [record]


async def test_follow_up_keeps_the_rounds_it_began_with_and_takes_the_new_sla(world: World) -> None:
    await world.hub.request(REQUEST)
    await world.hub.answer(ID, "PostgreSQL", ARCHITECT)
    text = WORKFLOW.replace("clarify_max_rounds = 2", "clarify_max_rounds = 50").replace("= 7", "= 11")
    (world.workflows / "feature.toml").write_text(text)
    again = await world.hub.follow_up(ID, "Which version?")
    assert again.max_rounds == 2
    assert again.stale_after == NOW + timedelta(minutes=11)


# rounds: the reference implementation waits here for the lock that it holds itself


@pytest.mark.parametrize(
    "ask_further",
    [
        lambda hub: hub.follow_up(ID, "And when?"),
        lambda hub: hub.request(replace(REQUEST, question="And when?")),
    ],
)
async def test_question_after_the_last_round_goes_to_people_and_is_no_hang(
    world: World, ask_further: Callable[[Hub], Awaitable[object]]
) -> None:
    await to_last_round(world)
    async with asyncio.timeout(LONG):
        with pytest.raises(MaxRoundsExceeded) as caught:
            await ask_further(world.hub)
    record = caught.value.record
    assert record == await world.hub.find(ID)
    assert (record.status, record.round, record.asked.escalated_for) == ("escalated", 2, "rounds exhausted")
    question, escalation = record.thread[-2:]
    assert (question.type, question.body, escalation.type) == ("question", "And when?", "escalation")
    assert "Rounds exhausted: a follow-up was asked after 2 rounds." in escalation.body
    assert "Topic: “storage”" in escalation.body
    after = await world.hub.answer(ID, "Tomorrow", PERSON)
    assert after.status == "resolved", "nobody holds the lock"


async def test_question_about_what_people_have_is_asked_no_further(world: World) -> None:
    await to_last_round(world)
    with pytest.raises(MaxRoundsExceeded):
        await world.hub.request(REQUEST)
    before = world.raw()
    with pytest.raises(MaxRoundsExceeded, match="CLR-42-001"):
        await world.hub.request(REQUEST)
    with pytest.raises(MaxRoundsExceeded, match="CLR-42-001"):
        await world.hub.follow_up("CLR-42-001", "And now?")
    assert world.raw() == before
    await world.hub.request(replace(REQUEST, topic="another matter"))


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
    await world.hub.request(REQUEST)
    await world.hub.abandon(ID, PERSON)


async def answered(world: World) -> None:
    await world.hub.request(REQUEST)
    await world.hub.answer(ID, "PostgreSQL", ARCHITECT)


async def asked(world: World) -> None:
    await world.hub.request(REQUEST)


async def nothing(world: World) -> None:
    pass


def requested(**more: Any) -> Act:
    async def act(world: World) -> object:
        return await world.hub.request(replace(REQUEST, **more))

    return act


ERRORS: dict[str, tuple[Callable[[World], Awaitable[None]], Act, str, str]] = {
    "who may not be asked": (
        nothing,
        requested(to="reviewer"),
        "SCOPE_VIOLATION",
        "its workflow allows only architect",
    ),
    "blocking": (nothing, requested(from_="writer"), "SCOPE_VIOLATION", "does not allow blocking"),
    "rounds, request": (to_last_round, requested(), "MAX_ROUNDS_EXCEEDED", "used all 2 rounds"),
    "unknown, follow-up": (nothing, lambda w: w.hub.follow_up(ID, "More?"), "NOT_FOUND", ID),
    "unknown, wait": (nothing, lambda w: w.hub.wait(ID), "NOT_FOUND", ID),
    "bad id, follow-up": (nothing, lambda w: w.hub.follow_up("42", "More?"), "BAD_INPUT", "'42'"),
    "topic": (nothing, requested(topic="x" * 201), "BAD_INPUT", "topic has 201 characters; at most 200"),
    "question": (nothing, requested(question="x" * 2001), "BAD_INPUT", "question has 2001 .* at most 2000"),
    "no question": (nothing, requested(question=" \n"), "BAD_INPUT", "question must not be empty"),
    "context": (nothing, requested(context="x" * 4097), "BAD_INPUT", "context has 4097 .* at most 4096"),
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
    "requester": (nothing, requested(from_=""), "BAD_INPUT", "requester .* 1 to 80"),
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
    before = [path.read_bytes() for path in sorted(world.ledger.files.directory.glob("issue-*.json"))]
    with pytest.raises(ClarifyError, match=words) as caught:
        await act(world)
    assert caught.value.code == code
    assert "xxx" not in str(caught.value), "nobody's words"
    if code != "MAX_ROUNDS_EXCEEDED":
        assert before == [
            path.read_bytes() for path in sorted(world.ledger.files.directory.glob("issue-*.json"))
        ]


async def test_scope_holds_for_follow_ups_too_and_a_human_may_be_asked(world: World) -> None:
    await answered(world)
    (world.workflows / "feature.toml").write_text("")
    with pytest.raises(ScopeViolation, match="no workflow"):
        await world.hub.follow_up(ID, "Which version?")
    assert (await world.hub.request(replace(REQUEST, to="human"))).to == "human"


# late answers: the reference implementation turns back what was over


# one locked or torn ledger


SIMPLE_WORKFLOW = '[[steps]]\nagent = "engineer"\ncan_clarify = ["architect"]\n'


@pytest.fixture
async def hub(tmp_path: Path) -> AsyncIterator[Hub]:
    (tmp_path / "workflows").mkdir()
    (tmp_path / "workflows" / "feature.toml").write_text(SIMPLE_WORKFLOW)
    async with Hub.at(tmp_path / "ledgers", tmp_path / "workflows") as made:
        yield made


@pytest.fixture
async def other(hub: Hub, tmp_path: Path) -> AsyncIterator[Hub]:
    """The same ledgers, opened apart."""
    async with Hub.at(tmp_path / "ledgers", tmp_path / "workflows") as made:
        yield made


def files(hub: Hub) -> FileLedger:
    assert isinstance(hub.ledger, FileLedger)
    return hub.ledger


def path(hub: Hub) -> Path:
    return files(hub).files.path(42)


def write_as_another(hub: Hub, change: Callable[[dict[str, Any]], None]) -> None:
    raw = json.loads(path(hub).read_text())
    change(raw["clarifications"][0])
    replace_text(path(hub), json.dumps(raw))


def entry(kind: str, body: str, by: str = "architect", round: int = 1) -> dict[str, Any]:  # noqa: A002
    return {"round": round, "from": by, "type": kind, "body": body, "timestamp": "2026-05-24T14:22:00Z"}


async def begun(hub: Hub, **more: Any) -> asyncio.Task[str | None]:
    """Somebody waits; what they are told."""

    async def waits() -> str | None:
        answer = answer_of(await hub.wait(ID, LONG, **more), more.get("round"))
        return answer.body if answer else None

    task = asyncio.create_task(waits())
    await until(lambda: files(hub)._folder._waiting)
    return task


async def test_wait_is_woken_by_a_write_of_another(
    hub: Hub, other: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("core.hub._LOOK_EVERY", 1000.0)
    await hub.request(REQUEST)
    task = await begun(hub)
    await other.request(REQUEST)  # another clarification of the same ledger
    await other.answer(ID, "PostgreSQL", ARCHITECT)
    assert await task == "PostgreSQL"


@pytest.mark.parametrize("lost", ["never told", "cannot be watched"])
async def test_lost_notice_only_delays(
    hub: Hub, other: Hub, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, lost: str
) -> None:
    async def awatch(*_: object, **__: object) -> AsyncIterator[set[tuple[int, str]]]:
        if lost == "cannot be watched":
            raise OSError("no space left for watches")
        await asyncio.Event().wait()
        yield set()

    monkeypatch.setattr("core.files.awatch", awatch)
    monkeypatch.setattr("core.hub._LOOK_EVERY", 0.05)
    await hub.request(REQUEST)
    task = await begun(hub)
    await other.answer(ID, "PostgreSQL", ARCHITECT)
    assert await task == "PostgreSQL"
    assert ("cannot watch the ledger folder" in caplog.text) == (lost == "cannot be watched")


@pytest.mark.parametrize(
    ("status", "entries", "told"),
    [
        ("answered", [entry("answer", "PostgreSQL")], "PostgreSQL"),
        ("resolved", [entry("answer", "PostgreSQL")], "PostgreSQL"),
        ("resolved", [entry("answer", "PostgreSQL"), entry("resolution", "Done")], "PostgreSQL"),
        ("resolved", [entry("resolution", "Take PostgreSQL", "human")], "Take PostgreSQL"),
    ],
)
async def test_wait_takes_what_another_implementation_writes(
    hub: Hub, status: str, entries: list[dict[str, Any]], told: str
) -> None:
    await hub.request(REQUEST)
    task = await begun(hub)
    write_as_another(
        hub, lambda record: record.update(status=status, thread=[*record["thread"], *entries], revision=1)
    )
    assert await task == told


async def test_resolved_elsewhere_without_a_word_is_closed(hub: Hub) -> None:
    await hub.request(REQUEST)
    write_as_another(hub, lambda record: record.update(status="resolved"))
    with pytest.raises(Closed):
        await hub.wait(ID, LONG)


async def test_answer_that_was_escalated_again_is_none_yet(hub: Hub) -> None:
    """Another implementation may pass on what was answered: people have the word then."""
    await hub.request(REQUEST)
    thread = [entry("answer", "Ask somebody else"), entry("escalation", "Rounds exhausted")]
    write_as_another(
        hub, lambda record: record.update(status="escalated", thread=[*record["thread"], *thread])
    )
    assert answer_of(await hub.find(ID)) is None
    with pytest.raises(TimeoutError):
        await hub.wait(ID, 0)
    await hub.answer(ID, "PostgreSQL", PERSON)
    assert (await hub.wait(ID, 0)).status == "resolved"


async def test_wait_for_a_round(hub: Hub) -> None:
    await hub.request(REQUEST)
    await hub.answer(ID, "PostgreSQL", ARCHITECT)
    task = await begun(hub, round=2)
    await hub.follow_up(ID, "Which version?")
    assert answer_of(await hub.wait(ID, LONG, round=1), 1) == (await hub.find(ID)).thread[1], "it is over"
    with pytest.raises(TimeoutError):
        await hub.wait(ID, 0.05)
    await hub.answer(ID, "17", ARCHITECT)
    assert await task == "17"
    assert answer_of(await hub.find(ID)) == (await hub.find(ID)).thread[3]
    assert answer_of(await hub.find(ID), 3) is None
    await hub.resolve(ID, "Thanks", PERSON)
    with pytest.raises(Closed):
        await hub.wait(ID, LONG, round=3)


async def test_round_that_another_implementation_left_behind_is_not_waited_for(hub: Hub) -> None:
    await hub.request(REQUEST)
    task = await begun(hub, round=1)
    question = entry("question", "Or rather: which cloud?", "engineer", 2)
    write_as_another(hub, lambda record: record.update(round=2, thread=[*record["thread"], question]))
    with pytest.raises(Superseded):
        await task


async def test_cancelled_wait_leaves_the_others_waiting(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("core.hub._LOOK_EVERY", 1000.0)
    await hub.request(REQUEST)
    first, second = await begun(hub), await begun(hub)
    await until(lambda: len(files(hub)._folder._waiting) == 2)
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
    await hub.answer(ID, "PostgreSQL", ARCHITECT)
    assert await second == "PostgreSQL"
    assert files(hub)._folder._watcher is None


async def test_wait_that_is_cancelled_while_the_watch_ends_is_cancelled(
    hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    ending, go_on = asyncio.Event(), asyncio.Event()

    async def awatch(*_: object, **__: object) -> AsyncIterator[set[tuple[int, str]]]:
        try:
            await asyncio.Event().wait()
            yield set()
        finally:
            ending.set()
            await go_on.wait()

    monkeypatch.setattr("core.files.awatch", awatch)
    await hub.request(REQUEST)
    await hub.answer(ID, "PostgreSQL", ARCHITECT)
    task = asyncio.create_task(hub.wait(ID, LONG))
    await ending.wait()
    task.cancel()
    go_on.set()
    await asyncio.wait([task])
    assert task.cancelled()
    assert files(hub)._folder._waiting == {}


async def test_wait_does_not_act_on_a_torn_ledger(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("core.ledger.LOCK_TIMEOUT", 0.1)
    monkeypatch.setattr("core.hub._LOOK_EVERY", 0.05)
    await hub.request(REQUEST)
    before = path(hub).read_bytes()
    looks: list[object] = []
    find = FileLedger.find

    async def counted(self: FileLedger, clarification_id: str, issue: int) -> Any:
        looks.append(clarification_id)
        return await find(self, clarification_id, issue)

    monkeypatch.setattr(FileLedger, "find", counted)
    with rival_holds(path(hub).parent):
        path(hub).write_bytes(before[:100])
        task = await begun(hub)
        await until(lambda: len(looks) >= 3)
        assert not task.done()
        path(hub).write_bytes(before)
    await hub.answer(ID, "PostgreSQL", ARCHITECT)
    assert await task == "PostgreSQL"


async def test_wait_tells_of_a_ledger_that_was_lost(hub: Hub) -> None:
    await hub.request(REQUEST)
    task = await begun(hub)
    await asyncio.sleep(0)
    path(hub).write_bytes(b"{")
    with pytest.raises((LedgerUnreadable, NotFound)):
        await task
    assert list(path(hub).parent.glob("*unreadable*"))
