"""Responders at work: a real database and a real router, agents that tests speak for, a clock that tests move."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from bot.storage.ledger import DatabaseLedger
from core.answers import from_text
from core.clarification import Ask, Choice, Clarification
from core.errors import AgentError, LedgerUnwritable, LockTimeout
from core.hub import RETRY_AFTER, Dispatcher, Inquiry
from core.ledger import OfIssue
from core.ledgerfiles import as_item
from core.records import dump
from core.router import Router
from core.transitions import opened
from core.workflow import Scopes
from tests.kit.builders import ADE, NOW, SLA, ask, changed, record
from tests.kit.clocks import ManualClock
from tests.kit.ledgers import kept_ledger, write_records
from tests.kit.until import until

FAILED = AgentError("architect (command) ended with exit code 3")
Said = str | Exception


def question(**more: Any) -> Ask:
    """What the engineer asks the architect."""
    fields: dict[str, Any] = {
        "agent_id": "engineer", "to": "architect", "topic": "routes", "via": "shell", "producer": None,
        "session_id": None, "reply_token": None, "event_id": None, "expires_at": None, "asked_at": None,
    }  # fmt: skip
    return ask(**(fields | more))


class Agent:
    """A responder that tests speak for: `say` ends the oldest question that waits."""

    def __init__(self, *script: Said) -> None:
        self.asked: list[Inquiry] = []
        self.stopped: list[str] = []
        self.waiting: dict[str, asyncio.Future[str]] = {}
        self.most = 0
        self._script = list(script)

    async def answer(self, inquiry: Inquiry) -> str:
        self.asked.append(inquiry)
        if self._script:
            said = self._script.pop(0)
            if isinstance(said, Exception):
                raise said
            return said
        assert inquiry.record.id not in self.waiting, "two at a time for one record"
        self.waiting[inquiry.record.id] = asyncio.get_running_loop().create_future()
        self.most = max(self.most, len(self.waiting))
        try:
            return await self.waiting[inquiry.record.id]
        except asyncio.CancelledError:
            self.stopped.append(inquiry.record.id)
            raise
        finally:
            del self.waiting[inquiry.record.id]

    def say(self, said: Said, clarification: str | None = None) -> None:
        turn = self.waiting[clarification or next(iter(self.waiting))]
        if isinstance(said, Exception):
            turn.set_exception(said)
        else:
            turn.set_result(said)


@dataclass
class Desk:
    """The dispatcher, fed with what the router writes, as the bot feeds it."""

    ledger: DatabaseLedger
    router: Router
    clock: ManualClock
    dispatcher: Dispatcher
    working: list[tuple[str, bool]]
    written: list[Clarification] = field(default_factory=list)

    async def ask(self, issue: int = 42, to: str = "architect", **more: Any) -> Clarification:
        return (await self.router.open(issue, question(to=to, **more))).record

    async def get(self, clarification: str = "CLR-42-001") -> Clarification:
        return await self.ledger.find(clarification)

    async def answer(self, text: str, clarification: str = "CLR-42-001") -> Clarification:
        return await self.router.answer(
            clarification, lambda record: from_text(record.asked, text), ADE, self.clock.now()
        )

    async def until(self, status: str, clarification: str = "CLR-42-001") -> Clarification:
        await until(lambda: any(r.id == clarification and r.status == status for r in self.written))
        return await self.get(clarification)

    async def settled(self) -> None:
        """What the ledger was asked to do is done, and whoever waited for it ran on."""
        for _ in range(20):
            await self.ledger.transact(OfIssue(42), lambda _: None)
            await asyncio.sleep(0)


@asynccontextmanager
async def desk(
    folder: Path,
    agents: dict[str, Any],
    *,
    seen: Callable[[DatabaseLedger], Any] = lambda ledger: ledger,
    **more: Any,
) -> AsyncIterator[Desk]:
    """`seen`: what the dispatcher has in place of the ledger."""
    clock, working = ManualClock(NOW), list[tuple[str, bool]]()

    def changed(record: Clarification) -> None:
        found.written.append(record)
        found.dispatcher.record_changed(record)

    async with kept_ledger(folder) as ledger:
        router = Router(ledger, clock, SLA, changed)
        told: dict[str, Any] = {"working": lambda summary, begun: working.append((summary.id, begun))}
        dispatcher = Dispatcher(
            responders=agents, router=router, ledger=seen(ledger), clock=clock, **(told | more)
        )
        found = Desk(ledger, router, clock, dispatcher, working)
        run = asyncio.create_task(dispatcher.run())
        try:
            yield found
        finally:
            run.cancel()
            with suppress(asyncio.CancelledError):
                await run


async def test_dispatch_the_answer_is_the_roles(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    architect = Agent("  JSON over HTTP\n")
    async with desk(tmp_path, {"Architect": architect}) as at:
        await at.ask(question="Which wire format?", context="Two candidates.")
        record = await at.until("answered")
    assert record.answer is not None
    # As it is configured, however whoever asks spells it: who decided is a name that stays.
    assert (record.to, record.answer.from_, record.answer.body) == (
        "architect",
        "Architect",
        "JSON over HTTP",
    )
    assert record.given.decided_by == "agent:Architect"
    assert record.given.answered_by is not None
    assert record.given.answered_by.surface == "responder"
    assert architect.asked == [Inquiry(at.written[0])]
    assert caplog.messages == ["CLR-42-001: answered by Architect"], "its own answer is no reason to stop it"
    assert at.working == [("CLR-42-001", True), ("CLR-42-001", False)]


@pytest.mark.parametrize(
    ("failure", "told"),
    [(FAILED, str(FAILED)), (KeyError("a bug"), "architect could not be asked (KeyError)")],
)
async def test_dispatch_one_failure_is_asked_again_after_30_s(
    tmp_path: Path, failure: Exception, told: str
) -> None:
    architect = Agent(failure, "JSON")
    async with desk(tmp_path, {"architect": architect}) as at:
        await at.ask()
        await until(lambda: at.clock.sleeping)
        await at.clock.advance(RETRY_AFTER - 1)
        assert len(architect.asked) == 1
        await at.clock.advance(1)
        assert (await at.until("answered")).status == "answered"
    again = architect.asked[1]
    assert (again.attempt, again.last_error) == (2, told)
    assert at.working == [("CLR-42-001", True), ("CLR-42-001", False)]
    assert at.clock.slept == [30.0]


async def test_dispatch_two_failures_are_passed_on_to_people(tmp_path: Path) -> None:
    architect = Agent(FAILED, FAILED, "too late")
    async with desk(tmp_path, {"architect": architect}) as at:
        await at.ask(topic="wire format")
        await until(lambda: at.clock.sleeping)
        await at.clock.advance(30)
        record = await at.until("escalated")
        await at.settled()
    assert record.attention.escalated_for == "agent failed"
    words = record.thread[-1].body.splitlines()
    assert words[0] == "AGENT_ERROR: architect (command) ended with exit code 3, even when asked twice."
    assert words[1] == "Topic: “wire format”"
    assert len(architect.asked) == 2


@pytest.mark.parametrize(
    ("kinds", "said", "hint"),
    [
        (("yes_no",), "perhaps", "Reply with yes or no."),
        (("freetext",), "x" * 2001, "2000"),
    ],
)
async def test_dispatch_an_answer_that_does_not_fit_is_a_failure(
    tmp_path: Path, kinds: Any, said: str, hint: str, caplog: pytest.LogCaptureFixture
) -> None:
    architect = Agent(said, said)
    with caplog.at_level(logging.DEBUG):
        async with desk(tmp_path, {"architect": architect}) as at:
            await at.ask(kinds=kinds)
            await until(lambda: at.clock.sleeping)
            await at.clock.advance(30)
            record = await at.until("escalated")
    first = record.thread[-1].body.splitlines()[0]
    assert first.startswith("AGENT_ERROR: architect gave an invalid answer (")
    assert first.endswith(", even when asked twice.")
    assert hint in first
    assert hint in str(architect.asked[1].last_error)
    assert not said or said not in caplog.text


async def _escalate(at: Desk) -> None:
    await at.router.escalate("CLR-42-001", "by hand", by=ADE)


async def _abandon(at: Desk) -> None:
    await at.router.abandon("CLR-42-001", ADE)


async def _answer(at: Desk) -> None:
    await at.answer("by a person")


async def _hold_back(at: Desk) -> None:
    at.dispatcher.record_changed(changed(await at.get(), held_back="no"))


@pytest.mark.parametrize("happens", [_escalate, _abandon, _answer, _hold_back])
@pytest.mark.parametrize("when", ["asked", "between"])
async def test_dispatch_what_is_settled_by_others_stops_the_responder(
    tmp_path: Path, happens: Callable[[Desk], Any], when: str
) -> None:
    architect = Agent(*([FAILED] if when == "between" else []))
    async with desk(tmp_path, {"architect": architect}) as at:
        await at.ask()
        await until(lambda: at.clock.sleeping if when == "between" else architect.waiting)
        await happens(at)
        before = await at.get()
        await until(lambda: at.working[-1] == ("CLR-42-001", False))
        await at.clock.advance(60)
        await at.settled()
        assert await at.get() == before
    assert architect.stopped == (["CLR-42-001"] if when == "asked" else [])
    assert len(architect.asked) == 1


async def _asked_again_elsewhere(at: Desk) -> Clarification:
    """Another process answers round 1 and asks round 2: we are not told."""
    other = Router(at.ledger, at.clock, SLA, lambda _: None)
    await other.answer("CLR-42-001", lambda r: from_text(r.asked, "by a person"), ADE, NOW)
    return (await other.open(42, question(question="Which version of it?"))).record


@pytest.mark.parametrize("told", ["of both", "of the last"])
async def test_dispatch_asked_again_meanwhile_the_next_round_is_asked_alone(
    tmp_path: Path, told: str
) -> None:
    architect = Agent()
    async with desk(tmp_path, {"architect": architect}) as at:
        first = await at.ask(question="Which format?")
        await until(lambda: architect.waiting)
        second = await _asked_again_elsewhere(at)
        if told == "of both":  # before its work had any turn
            at.dispatcher.record_changed(changed(first, status="answered"))
        at.dispatcher.record_changed(second)
        await until(lambda: len(architect.asked) == 2)
        assert architect.stopped == ["CLR-42-001"]
        architect.say("2")
        record = await at.until("answered")
    assert [inquiry.record.round for inquiry in architect.asked] == [1, 2]
    assert [(entry.round, entry.body) for entry in record.thread if entry.type == "answer"] == [
        (1, "by a person"), (2, "2"),
    ]  # fmt: skip
    assert [entry["body"] for entry in architect.asked[1].as_json()["thread"]] == [
        "Which format?", "by a person", "Which version of it?",
    ]  # fmt: skip


async def test_dispatch_a_late_answer_counts_for_no_other_round(tmp_path: Path) -> None:
    """Also where nobody told us of the next round: another process asked it."""
    architect = Agent()
    async with desk(tmp_path, {"architect": architect}) as at:
        await at.ask(question="Which format?")
        await until(lambda: architect.waiting)
        assert (await _asked_again_elsewhere(at)).round == 2
        architect.say("JSON")
        await until(lambda: at.working[-1] == ("CLR-42-001", False))
        assert (await at.get()).answer is None
        at.dispatcher.record_changed(await at.get())
        await until(lambda: architect.waiting)
        assert architect.asked[-1].record.question == "Which version of it?"


async def test_dispatch_a_nudge_asks_again_where_nobody_works_on_it(tmp_path: Path) -> None:
    architect = Agent()
    broken = Broken()
    async with desk(tmp_path, {"architect": architect}, seen=broken.of) as at:
        record = await at.ask()
        await until(lambda: broken.asked)
        await at.settled()
        broken.works = True
        at.dispatcher.record_changed(record)
        await at.settled()
        assert not architect.asked, "nothing new is known of it"
        await at.clock.advance(SLA.total_seconds())
        await at.router.apply_due("CLR-42-001")
        await until(lambda: architect.waiting)
        await at.router.apply_due("CLR-42-001")
        at.dispatcher.record_changed(await at.get())
        await at.settled()
        assert len(architect.asked) == 1, "a nudge while somebody works on it changes nothing"


class Broken:
    """Records that cannot be read because of a fault of our own, until `works`."""

    def __init__(self) -> None:
        self.works, self.asked = False, 0

    def of(self, ledger: DatabaseLedger) -> Broken:
        self._ledger = ledger
        return self

    async def find(self, clarification_id: str) -> Clarification:
        self.asked += 1
        if not self.works:
            raise ZeroDivisionError
        return await self._ledger.find(clarification_id)


async def test_dispatch_a_fault_in_one_does_not_stop_others(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    architect = Agent("JSON", "YAML")
    async with desk(tmp_path, {"architect": architect}) as at:
        at.dispatcher.record_changed(
            changed(await at.ask(7), id="CLR-9-001", issue_number=9)
        )  # has no ledger
        await at.ask()
        await at.until("answered", "CLR-7-001")
        await at.until("answered")
    assert "CLR-9-001: cannot read the ledger for a responder" in caplog.text


async def test_dispatch_a_busy_ledger_costs_no_second_question(tmp_path: Path) -> None:
    architect = Agent()
    async with desk(tmp_path, {"architect": architect}) as at:
        await at.ask()
        await until(lambda: architect.waiting)
        refusals: list[Exception] = [
            LockTimeout(42, 2.0, "another"), LedgerUnwritable(42, "the disk is full"), LockTimeout(42, 2.0, "x"),
        ]  # fmt: skip
        transact = at.ledger.transact

        async def refused(*args: Any, **more: Any) -> Any:
            if refusals:
                raise refusals.pop()
            return await transact(*args, **more)

        at.ledger.transact = refused  # type: ignore[method-assign]
        architect.say("JSON")
        for seconds in (1, 2, 4):
            await until(lambda: at.clock.sleeping)
            await at.clock.advance(seconds)
        record = await at.until("answered")
    assert at.clock.slept == [1, 2, 4]
    assert record.given.answered_at == NOW, "when it was given, not when it could be written"
    assert len(architect.asked) == 1


async def test_dispatch_so_many_of_a_role_at_once_and_a_slow_role_delays_no_other(tmp_path: Path) -> None:
    slow, quick = Agent(), Agent(*["yes"] * 3)
    async with desk(tmp_path, {"slow": slow, "quick": quick}, at_once=2) as at:
        for issue in range(1, 7):
            await at.ask(issue, to="slow")
        await until(lambda: len(slow.waiting) == 2)
        for issue in range(11, 14):
            await at.ask(issue, to="quick")
            await at.until("answered", f"CLR-{issue}-001")
        for _ in range(6):
            await until(lambda: slow.waiting)
            slow.say("done")
            await at.settled()
        for issue in range(1, 7):
            await at.until("answered", f"CLR-{issue}-001")
    assert slow.most == 2


async def test_dispatch_one_that_waits_its_turn_and_is_answered_is_never_asked(tmp_path: Path) -> None:
    architect = Agent()
    async with desk(tmp_path, {"architect": architect}, at_once=1) as at:
        for issue in (1, 2, 3):
            await at.ask(issue)
        await until(lambda: architect.waiting)
        await at.answer("by a person", "CLR-2-001")
        architect.say("JSON", "CLR-1-001")
        await until(lambda: "CLR-3-001" in architect.waiting)
        assert [inquiry.record.issue_number for inquiry in architect.asked] == [1, 3]
        assert ("CLR-2-001", True) not in at.working


async def test_dispatch_what_is_not_for_a_responder_of_ours_is_left_alone(tmp_path: Path) -> None:
    architect = Agent()
    async with desk(tmp_path, {"architect": architect}) as at:
        await at.ask(1, to="reviewer")
        await at.ask(2, to="human")
        await at.ask(3, held_back="engineer may not ask architect")
        await at.ask(4, expires_at=NOW)
        last = await at.ask(5, to=" ARCHITECT ")
        await until(lambda: architect.waiting)
        await at.settled()
        assert [inquiry.record.issue_number for inquiry in architect.asked] == [5]
        architect.say("JSON")
        await at.until("answered", last.id)


async def test_dispatch_another_implementations_record_is_answered_too(tmp_path: Path) -> None:
    architect = Agent("JSON")
    async with desk(tmp_path, {"architect": architect}) as at:
        await at.ask()
        architect.asked.clear()
        ours = as_item(dump(await at.get()))
        foreign = ours | {
            "id": "CLR-42-002", "to": "architect\n", "status": "stale", "aaep": None, "thread": [],
        }  # fmt: skip
        write_records(tmp_path, 42, ours, foreign)
        architect._script.append("YAML")
        at.dispatcher.record_changed(Clarification.model_validate(foreign))
        record = await at.until("answered", "CLR-42-002")
    assert record.answer is not None
    assert record.answer.from_ == "architect"


async def test_dispatch_stopped_stops_all_and_begins_again_with_what_is_noted(tmp_path: Path) -> None:
    architect = Agent()
    async with desk(tmp_path, {"architect": architect}) as at:
        await at.ask()
        await at.ask(43)
        await until(lambda: len(architect.waiting) == 2)
    assert sorted(architect.stopped) == ["CLR-42-001", "CLR-43-001"]
    assert sorted(at.working[2:]) == [("CLR-42-001", False), ("CLR-43-001", False)]
    async with desk(tmp_path, {"architect": Agent("JSON")}) as later:
        later.dispatcher.record_changed(await later.get())
        await later.until("answered")


def write_as_another(folder: Path) -> None:
    """Another implementation asks: it writes no `aaep`."""
    record = dump(opened(42, 1, question(), NOW, SLA))
    del record["rounds"]
    write_records(folder, 42, record)


@pytest.mark.parametrize("allowed", [True, False])
async def test_dispatch_of_what_others_ask_heeds_the_workflows(tmp_path: Path, allowed: bool) -> None:
    (tmp_path / "workflows").mkdir()
    role = "architect" if allowed else "reviewer"
    (tmp_path / "workflows" / "a.toml").write_text(f'[[steps]]\nagent = "engineer"\ncan_clarify = ["{role}"]')
    architect = Agent("JSON")
    async with desk(tmp_path, {"architect": architect}, scopes=Scopes(tmp_path / "workflows")) as at:
        write_as_another(tmp_path)
        at.dispatcher.record_changed(await at.get())
        if allowed:
            await at.until("answered")
            return
        await until(lambda: at.written)
        record = await at.get()
    assert record.asked.held_back == "engineer may not ask architect: its workflow allows only reviewer."
    assert (record.status, architect.asked) == ("pending", [])


def test_inquiry_tells_all_of_the_round() -> None:
    first = record(
        question="Which format?", to="architect", topic="wire format", context="Two candidates.",
        kinds=("multiple_choice",), choices=(Choice("json", "JSON"), Choice("yaml", "YAML")),
    )  # fmt: skip
    told = Inquiry(first, attempt=2, last_error="Reply with the number of a choice (1).").as_json()
    assert json.loads(json.dumps(told)) == {
        "clarificationId": "CLR-42-001",
        "issueNumber": 42,
        "from": "retirement-planner",
        "to": "architect",
        "topic": "wire format",
        "question": "Which format?",
        "blocking": True,
        "round": 1,
        "maxRounds": 5,
        "context": "Two candidates.",
        "acceptedResponseKinds": ["multiple_choice"],
        "choices": [{"value": "json", "label": "JSON"}, {"value": "yaml", "label": "YAML"}],
        "thread": [
            {
                "round": 1,
                "from": "retirement-planner",
                "type": "question",
                "body": "Which format?",
                "timestamp": "2026-05-24T14:22:00.000Z",
            }
        ],
        "answerBy": "2026-05-24T15:22:00.000Z",
        "attempt": 2,
        "lastError": "Reply with the number of a choice (1).",
    }
