from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator, Sequence
from datetime import timedelta
from pathlib import Path

from bot.audience import Audience
from bot.home.facts import AgentLine, DutyLine, ReadyLine
from bot.home.gathering import Answers, Gathering, Questions, answered
from bot.home.sources import duties_of, fleet_of
from bot.oncall.roster import OnDuty
from core.agents import SessionFact
from core.clarification import Answer, Clarification
from core.clarification import answered as with_answer
from core.clock import SystemClock
from core.index import Index, Summary, summarize
from core.ledger import FileLedger
from core.router import Router
from tests.clocks import START
from tests.unit.bot.home.parties import summary
from tests.unit.core.records import ADE, NOW, ask, record


def given(seq: int = 1, label: str = "yes", after: int = 1) -> Clarification:
    return with_answer(record(seq=seq), Answer(label, label), ADE, NOW + timedelta(minutes=after))


def test_answers_keep_the_newest_and_notice_what_is_new() -> None:
    answers = Answers()
    assert answers.note(record()) is False
    assert all(answers.note(given(seq, after=seq)) for seq in range(1, 101))
    assert answers.note(given(100, after=100)) is False
    assert answers.note(given(1, after=1)) is False  # older than all that are kept

    newest = answers.newest()
    assert [each.clarification for each in newest[:2]] == ["CLR-42-100", "CLR-42-099"]
    assert len(newest) == 80


def test_answer_says_who_gave_it_to_what() -> None:
    found = answered(given(label="blue"))

    assert found is not None
    assert (found.clarification, found.round, found.agent) == ("CLR-42-001", 1, "retirement-planner")
    assert (found.question, found.answer) == ("Deploy to production?", "blue")
    assert (found.user, found.by, found.at) == ("U1", "user:slack/T1/U1", NOW + timedelta(minutes=1))


async def test_answers_are_restored_from_the_ledgers_written_last(tmp_path: Path) -> None:
    ledger = FileLedger(tmp_path)
    router = Router(ledger, SystemClock(), timedelta(minutes=30), lambda _: None)
    for issue in range(1, 6):
        opened = await router.open(issue, ask(reply_token=f"t{issue}", event_id=f"e{issue}", expires_at=None))
        await router.answer(opened.record.id, lambda _: Answer("yes", "yes"), ADE, opened.record.created)
    (tmp_path / "issue-9.json").write_text("no ledger")
    os.utime(ledger.path(1), (1, 1))
    answers = Answers()

    await answers.restore(ledger)

    ledger.close()
    assert sorted(each.clarification for each in answers.newest()) == [
        f"CLR-{issue}-001" for issue in range(1, 6)
    ]


class Counted:
    def __init__(self, ledger: FileLedger) -> None:
        self.ledger = ledger
        self.asked: list[str] = []

    async def find(self, clarification_id: str, issue: int) -> Clarification:
        self.asked.append(clarification_id)
        return await self.ledger.find(clarification_id, issue)


async def test_questions_are_read_once_for_each_change_and_left_out_where_they_cannot_be(
    tmp_path: Path,
) -> None:
    ledger = FileLedger(tmp_path)
    opened = await Router(ledger, SystemClock(), timedelta(minutes=30), lambda _: None).open(42, ask())
    known = summarize(opened.record)
    records = Counted(ledger)
    questions = Questions(records)

    found = [await questions.words([known, summary(9)]) for _ in range(2)]
    await questions.words([summary(1, id=known.id, digest="another")])

    ledger.close()
    assert found == [{known.id: "Deploy to production?"}] * 2
    assert records.asked.count(known.id) == 2


async def no_duties() -> list[DutyLine]:
    return []


async def no_sessions() -> list[SessionFact]:
    return []


async def test_snapshot_holds_what_people_can_answer_by_time_left_and_whom_it_was_paged_to() -> None:
    known = [
        summary(1, status="answered"),
        summary(2, producer=None, from_="engineer", agent_id=None),
        summary(3),
        summary(4, expires_at=START, status="escalated"),
    ]
    gathering = Gathering(
        index=known,
        answers=Answers(),
        fleet=fleet_of(no_sessions),
        duties=no_duties,
        paged=lambda clarification: frozenset({f"U0{clarification[-1]}"}),
        shows=lambda each: each.producer is not None,
    )

    snapshot = await gathering.snapshot(7)

    assert snapshot.number == 7
    assert [each.id[-1] for each in snapshot.questions] == ["4", "3"]
    assert snapshot.paged == {"CLR-42-004": {"U04"}}
    assert snapshot.audiences == {Audience("planner"), Audience("engineer")}
    assert [each.name for each in snapshot.fleet.agents] == ["engineer", "planner"]
    assert {
        each.audience for each in snapshot.fleet.agents
    } <= snapshot.audiences  # it is asked who may see them


async def test_fleet_is_flattened_with_those_that_wait_below_whom_they_wait_for() -> None:
    async def sessions() -> Sequence[SessionFact]:
        return [SessionFact("p", "s9", "reviewer", "Rae", 1, ended=False, last_event_at=None)]

    known = [
        summary(1, from_="engineer", to="architect", agent_id="engineer", asked_last=START),
        summary(2, from_="tester", to="engineer", agent_id="tester", session_id="s2", asked_last=START),
        summary(3, from_="writer", agent_id="writer", session_id="s3", asked_last=START),
    ]

    fleet = await fleet_of(sessions)(known)

    lines = {line.name: line for line in fleet.agents}
    assert [(line.name, line.depth) for line in fleet.agents if line.name in {"architect", "engineer"}] == [
        ("architect", 0),
        ("engineer", 1),
    ]
    assert lines["tester"] == AgentLine("tester", "blocked", 2, ("engineer",), START, ("CLR-42-002",))
    assert lines["writer"].on == ("human",)
    assert lines["architect"].clarifications == ("CLR-42-001",)
    assert lines["Rae"].status == "working"
    assert ReadyLine("Rae", "s9", id="reviewer") in fleet.ready
    assert ReadyLine("tester", "s2", ("CLR-42-002",)) in fleet.ready


async def who(policy: str) -> OnDuty:
    return OnDuty((f"U0{policy}",), "named", START)


async def test_duties_come_in_the_order_of_the_configuration() -> None:
    assert await duties_of(who, ["B", "A"])() == [
        DutyLine("B", ("U0B",), "named", START),
        DutyLine("A", ("U0A",), "named", START),
    ]


def many(count: int) -> Index:
    index = Index()
    for n in range(count):
        agent = f"agent-{n % 300}"
        escalated: Summary = summary(
            1,
            id=f"CLR-{n}-001",
            issue=n,
            from_=agent,
            agent_id=agent,
            session_id=f"s{n}",
            status="escalated" if n % 10 == 0 else "pending",
            expires_at=START + timedelta(seconds=n * 37 % 100_000),
            asked_last=START + timedelta(seconds=n * 7919 % 100_003),
        )
        index.put(escalated)
    return index


async def test_snapshot_of_ten_thousand_lets_others_have_their_turn() -> None:
    count = 10_000
    known = many(count)
    turns = 0
    while_listed: set[int] = set()
    while_paged: set[int] = set()

    class Watched:
        def __iter__(self) -> Iterator[Summary]:
            for each in known:
                while_listed.add(turns)
                yield each

    def paged(_: str) -> frozenset[str]:
        while_paged.add(turns)
        return frozenset({"U0ADE"})

    gathering = Gathering(
        index=Watched(),
        answers=Answers(),
        fleet=fleet_of(no_sessions),
        duties=no_duties,
        paged=paged,
        shows=lambda _: True,
    )

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    ticking = asyncio.create_task(others())
    snapshot = await gathering.snapshot(1)
    ticking.cancel()

    assert len(snapshot.questions) == count
    assert len(snapshot.paged) == count // 10
    assert len(while_listed) >= count // 500
    assert len(while_paged) >= count // 500
