"""Chasing, escalating, taking and closing by hand: on real ledger files, and in any order."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core import aaep
from core.answers import from_text
from core.clarification import TRANSITIONS, AlreadyAnswered, Answer, Clarification, Closed, Holder, NotOpen
from core.errors import AnswerRejected, BadInput, LockTimeout, NotFound, TooLong
from core.ledger import LOCK_TIMEOUT, FileLedger
from core.matching import SessionNews
from core.monitor import Call, due_call, next_call
from core.records import Book, Raw, decode, dump, encode, parse
from core.router import Router
from tests.clocks import ManualClock
from tests.unit.core.records import ADE, BEA, NOW, SLA, ask, record

_T = TypeVar("_T")
MINUTE = timedelta(minutes=1)
ID = "CLR-42-001"
YES = Answer("yes", "Yes")


def yes(_: Clarification) -> Answer:
    return YES


def holder(user: str = "U1") -> Holder:
    return Holder(user=user, team="T1", at=NOW)


@dataclass
class Hub:
    ledger: FileLedger
    router: Router
    clock: ManualClock
    changed: list[Clarification] = field(default_factory=list)

    async def get(self) -> Clarification:
        return await self.ledger.find(ID, 42)

    def write(self, *records: Clarification) -> None:
        """As another implementation writes them."""
        raw = {"issueNumber": 42, "clarifications": [dump(one) for one in records]}
        self.ledger.path(42).write_text(json.dumps(raw))


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[Hub]:
    changed: list[Clarification] = []
    ledger, clock = FileLedger(tmp_path), ManualClock(NOW)
    yield Hub(ledger, Router(ledger, clock, SLA, changed.append), clock, changed)
    ledger.close()


async def test_attend_does_what_is_due_once(hub: Hub) -> None:
    await hub.router.open(42, ask(expires_at=NOW + 200 * MINUTE))
    assert await hub.router.attend(ID) is None
    hub.clock.jump(NOW + 30 * MINUTE)
    assert await hub.router.attend(ID) == Call("nudge", NOW + 30 * MINUTE)
    assert await hub.router.attend(ID) is None
    found = await hub.get()
    assert (found.status, found.nudges, found.stale_after) == ("pending", 1, NOW + 60 * MINUTE)
    hub.clock.jump(NOW + 61 * MINUTE)
    assert await hub.router.attend(ID) == Call("escalate", NOW + 60 * MINUTE)
    found = await hub.get()
    assert (found.status, found.asked.escalated_for, found.thread[-1].type) == (
        "escalated",
        "stale",
        "escalation",
    )
    assert await hub.router.attend(ID) is None
    hub.clock.jump(NOW + 200 * MINUTE)
    assert await hub.router.attend(ID) == Call("expire", NOW + 200 * MINUTE)
    assert await hub.router.attend(ID) is None
    assert [one.status for one in hub.changed] == ["pending", "pending", "escalated", "abandoned"]
    assert hub.changed[-1].asked.closed == "expired"


async def test_attend_after_a_long_downtime_nudges_then_escalates(hub: Hub) -> None:
    await hub.router.open(42, ask(expires_at=NOW + 1000 * MINUTE))
    hub.clock.jump(NOW + 800 * MINUTE)
    calls = [await hub.router.attend(ID) for _ in range(3)]
    assert [call and call.kind for call in calls] == ["nudge", "escalate", None]


async def test_attend_by_many_at_once_does_it_once(hub: Hub) -> None:
    await hub.router.open(42, ask())
    hub.clock.jump(NOW + 30 * MINUTE)
    calls = await asyncio.gather(*(hub.router.attend(ID) for _ in range(8)))
    assert sorted(call.kind if call else "" for call in calls) == [""] * 7 + ["nudge"]


async def test_attend_decides_on_what_is_there_under_the_lock(hub: Hub) -> None:
    await hub.router.open(42, ask())
    await hub.router.answer(ID, yes, ADE, NOW)
    hub.clock.jump(NOW + 300 * MINUTE)
    assert await hub.router.attend(ID) is None
    assert (await hub.get()).status == "answered"
    with pytest.raises(NotFound):
        await hub.router.attend("CLR-42-009")


async def test_foreign_record_is_nudged_and_escalated_and_keeps_its_fields(hub: Hub) -> None:
    foreign = record().model_copy(update={"status": "stale", "aaep": None, "stale_after": NOW})
    raw = dump(foreign) | {"priority": "high"}
    hub.ledger.path(42).write_text(json.dumps({"issueNumber": 42, "clarifications": [raw, "junk"]}))
    assert (await hub.router.attend(ID)) == Call("nudge", NOW)
    found = await hub.get()
    assert (found.status, found.nudges, found.stale_after) == ("pending", 1, NOW + SLA)
    hub.clock.jump(NOW + SLA)
    await hub.router.attend(ID)
    await hub.router.take(ID, holder())
    items: list[Any] = list(await hub.ledger.read(42))
    assert items[1] == "junk"
    assert (items[0]["priority"], items[0]["status"]) == ("high", "escalated")
    assert items[0]["aaep"]["takenBy"]["user"] == "U1"


async def test_answer_that_did_not_fit_waits_as_a_new_question(hub: Hub) -> None:
    await hub.router.open(42, ask(kinds=("numeric",), expires_at=None))
    hub.clock.jump(NOW + SLA)
    await hub.router.attend(ID)
    found = await hub.get()
    entry = found.thread[0].model_copy(update={"type": "answer", "body": "soon", "from_": "architect"})
    hub.write(found.model_copy(update={"status": "answered", "thread": (*found.thread, entry)}))
    hub.clock.jump(NOW + 2 * SLA)
    await hub.router.adopt(ID)
    after = await hub.get()
    assert (after.status, after.nudges, after.asked.nudged_at) == ("pending", 0, None)
    assert next_call(after, SLA) == Call("nudge", NOW + 3 * SLA)


# escalate


async def test_escalate_by_hand_says_who(hub: Hub) -> None:
    await hub.router.open(42, ask())
    after = await hub.router.escalate(ID, "by hand", "Legal has to see this", ADE)
    assert after == await hub.get()
    assert (after.status, after.asked.escalated_for, after.asked.escalated_at) == (
        "escalated",
        "by hand",
        NOW,
    )
    assert (after.thread[-1].from_, after.thread[-1].body) == (ADE.decided_by, "Legal has to see this")


async def test_escalate_without_words_tells_all_that_is_needed(hub: Hub) -> None:
    await hub.router.open(42, ask())
    after = await hub.router.escalate(ID, "stuck")
    assert "Deploy to production?" in after.thread[-1].body
    assert after.thread[-1].from_ == "clarify-bot"


async def test_escalate_again_changes_nothing(hub: Hub) -> None:
    await hub.router.open(42, ask())
    first = await hub.router.escalate(ID, "stuck")
    await hub.router.take(ID, holder())
    again = await hub.router.escalate(ID, "by hand", "words", BEA)
    assert (again.asked.escalated_for, again.revision) == ("stuck", first.revision + 1)
    assert again.asked.taken_by == holder()
    assert len(hub.changed) == 3


async def test_escalate_only_while_the_reason_holds(hub: Hub) -> None:
    await hub.router.open(42, ask())
    seen: list[int] = []

    def second_round(found: Clarification) -> bool:
        seen.append(found.round)
        return found.round == 2

    assert (await hub.router.escalate(ID, "stuck", only=second_round)).status == "pending"
    assert (seen, len(hub.changed)) == ([1], 1)


async def test_escalated_one_is_resolved_by_its_answer(hub: Hub) -> None:
    await hub.router.open(42, ask())
    await hub.router.escalate(ID, "stale")
    await hub.router.take(ID, holder())
    after = await hub.router.answer(ID, yes, BEA, NOW)
    assert (after.status, after.asked.reply, after.asked.taken_by) == ("resolved", "sending", holder())


# take and hand


async def test_take_and_hand_over(hub: Hub) -> None:
    await hub.router.open(42, ask())
    await hub.router.escalate(ID, "stale")
    assert (await hub.router.take(ID, holder())).asked.taken_by == holder()
    offered = await hub.router.hand(ID, holder("U2"))
    assert (offered.asked.taken_by, offered.asked.handed_to) == (None, holder("U2"))
    assert (await hub.router.take(ID, holder("U2"))).asked.handed_to is None
    assert (await hub.get()).asked.taken_by == holder("U2")


# resolve and abandon by hand


async def test_resolve_of_an_answered_one_says_who_and_still_sends_the_reply(hub: Hub) -> None:
    await hub.router.open(42, ask())
    await hub.router.answer(ID, yes, ADE, NOW)
    after = await hub.router.resolve(ID, yes, "Done in person", BEA, NOW + MINUTE)
    assert (after.status, after.resolved_at, after.asked.reply) == ("resolved", NOW + MINUTE, "sending")
    assert (after.thread[-1].type, after.thread[-1].from_, after.thread[-1].body) == (
        "resolution",
        BEA.decided_by,
        "Done in person",
    )
    assert after.asked.response == "yes"
    await hub.router.settle_reply(ID, "rpl_1", "confirmed", resolve=True)
    assert (await hub.get()).asked.reply == "confirmed"


@pytest.mark.parametrize("escalate", [False, True])
async def test_resolve_of_an_open_one_answers_the_producer(hub: Hub, escalate: bool) -> None:
    await hub.router.open(42, ask(kinds=("numeric",)))
    if escalate:
        await hub.router.escalate(ID, "stale")

    def read(found: Clarification) -> Answer:
        return from_text(found.asked, "12")

    after = await hub.router.resolve(ID, read, "12", ADE, NOW)
    assert (after.status, after.asked.response) == ("resolved" if escalate else "answered", 12)
    assert (after.asked.reply, after.thread[-1].type) == ("sending", "answer")


@pytest.mark.parametrize("status", ["pending", "stale", "escalated"])
async def test_resolve_of_an_open_one_without_a_producer_ends_it(hub: Hub, status: str) -> None:
    hub.write(record().model_copy(update={"status": status, "aaep": None}))
    after = await hub.router.resolve(ID, yes, "Yes, go on", ADE, NOW)
    assert after == await hub.get()
    assert (after.status, after.resolved_at, after.asked.reply) == ("resolved", NOW, None)
    assert [entry.type for entry in after.thread] == ["question", "answer", "resolution"]
    assert after.answer is not None


async def test_resolve_with_what_does_not_fit_changes_nothing(hub: Hub) -> None:
    await hub.router.open(42, ask(kinds=("numeric",)))
    with pytest.raises(AnswerRejected):
        await hub.router.resolve(ID, lambda found: from_text(found.asked, "soon"), "soon", ADE, NOW)
    assert (await hub.get()).status == "pending"


@pytest.mark.parametrize("answered_before", [False, True])
async def test_resolution_between_agents_has_2000_characters_at_most(hub: Hub, answered_before: bool) -> None:
    hub.write(record().model_copy(update={"aaep": None}))
    if answered_before:
        await hub.router.answer(ID, yes, ADE, NOW)
    before = await hub.get()
    with pytest.raises(TooLong, match="resolution" if answered_before else "answer"):
        await hub.router.resolve(ID, yes, "x" * 2001, ADE, NOW)
    assert await hub.get() == before
    assert (await hub.router.resolve(ID, yes, "x" * 2000, ADE, NOW)).status == "resolved"


async def test_resolution_of_a_producers_question_may_be_longer(hub: Hub) -> None:
    await hub.router.open(42, ask())
    await hub.router.answer(ID, yes, ADE, NOW)
    assert (await hub.router.resolve(ID, yes, "x" * 2001, ADE, NOW)).thread[-1].body == "x" * 2001


async def test_abandon_by_hand_says_who(hub: Hub) -> None:
    await hub.router.open(42, ask())
    after = await hub.router.abandon(ID, BEA)
    assert (after.status, after.asked.closed, after.thread[-1].from_) == (
        "abandoned",
        "by hand",
        BEA.decided_by,
    )


Act = Callable[[Router, str], Any]
ACTS: dict[str, Act] = {
    "escalate": lambda router, name: router.escalate(name, "by hand", "words", ADE),
    "take": lambda router, name: router.take(name, holder()),
    "hand": lambda router, name: router.hand(name, holder("U2")),
    "resolve": lambda router, name: router.resolve(name, yes, "words", ADE, NOW + 2 * SLA),
    "abandon": lambda router, name: router.abandon(name, ADE),
}


@pytest.mark.parametrize("act", sorted(ACTS))
async def test_nothing_is_done_to_what_is_closed(hub: Hub, act: str) -> None:
    await hub.router.open(42, ask())
    await hub.router.answer(ID, yes, ADE, NOW)
    await hub.router.settle_reply(ID, "rpl_1", "confirmed", resolve=True)
    before = await hub.get()
    with pytest.raises(AlreadyAnswered) as caught:
        await ACTS[act](hub.router, ID)
    assert caught.value.record == before == await hub.get()


@pytest.mark.parametrize("act", sorted(ACTS))
async def test_what_has_run_out_is_abandoned_and_told_as_closed(hub: Hub, act: str) -> None:
    await hub.router.open(42, ask(expires_at=NOW + MINUTE))
    hub.clock.jump(NOW + MINUTE)
    with pytest.raises(Closed) as caught:
        await ACTS[act](hub.router, ID)
    assert caught.value.record.asked.closed == "expired"
    assert hub.changed[-1] == caught.value.record
    with pytest.raises(Closed):
        await ACTS[act](hub.router, ID)


async def test_resolve_in_time_counts_though_it_arrives_late(hub: Hub) -> None:
    await hub.router.open(42, ask(expires_at=NOW + MINUTE))
    hub.clock.jump(NOW + 2 * MINUTE)
    assert (await hub.router.resolve(ID, yes, "Yes", ADE, NOW)).status == "answered"


@pytest.mark.parametrize("act", ["escalate", "take", "hand", "abandon"])
async def test_an_answered_one_is_not_steered(hub: Hub, act: str) -> None:
    await hub.router.open(42, ask())
    await hub.router.answer(ID, yes, ADE, NOW)
    with pytest.raises(AlreadyAnswered):
        await ACTS[act](hub.router, ID)
    assert len(hub.changed) == 2


@pytest.mark.parametrize("act", sorted(ACTS))
@pytest.mark.parametrize(("name", "error"), [("CLR-42-002", NotFound), ("nonsense", BadInput)])
async def test_nothing_is_done_to_nothing(hub: Hub, act: str, name: str, error: type[Exception]) -> None:
    await hub.router.open(42, ask())
    with pytest.raises(error):
        await ACTS[act](hub.router, name)


async def test_locked_ledger_is_said_and_nothing_is_done_later(tmp_path: Path) -> None:
    class Busy:
        async def read(self, issue: int) -> list[Raw]:
            raise AssertionError

        async def transact(
            self, issue: int, decide: object, timeout: float = LOCK_TIMEOUT, written: object = None
        ) -> Any:
            raise LockTimeout(issue, timeout, "another")

    router = Router(Busy(), ManualClock(NOW), SLA, lambda _: None)
    for act in ACTS.values():
        with pytest.raises(LockTimeout):
            await act(router, ID)
    with pytest.raises(LockTimeout):
        await router.attend(ID)


# Any order of calls


class Memory:
    """A Ledger without a disk: what is written is read back from bytes, as from a file."""

    def __init__(self) -> None:
        self.content = encode({"issueNumber": 42, "clarifications": []})

    async def read(self, issue: int) -> list[Raw]:
        items: list[Raw] = decode(self.content)["clarifications"]
        return items

    async def transact(
        self,
        issue: int,
        decide: Callable[[Book], _T],
        timeout: float = LOCK_TIMEOUT,
        written: Callable[[], None] | None = None,
    ) -> _T:
        book = Book(issue, decode(self.content))
        result = decide(book)
        if book.changed:
            self.content = encode(book.raw)
        if written:
            written()
        return result


@dataclass
class World:
    router: Router
    clock: ManualClock
    asked: int = 1

    async def ask_again(self) -> None:
        self.asked += 1
        expires = self.clock.now() + 90 * MINUTE if self.asked % 2 else None
        await self.router.open(42, ask(reply_token=f"rpl_{self.asked}", expires_at=expires))

    async def settle(self, how: aaep.Response) -> None:
        for number in range(1, self.asked + 1):
            await self.router.settle_reply(
                ID, f"rpl_{number}", "confirmed" if how else "delivered", None, bool(how)
            )

    async def news(self, kind: str) -> None:
        now = self.clock.now()
        await self.router.session_went_on(42, SessionNews("planner", "sess_1", kind, now, now))


Step = Callable[[World], Any]
STEPS: dict[str, Step] = {
    "attend": lambda w: w.router.attend(ID),
    "escalate": lambda w: w.router.escalate(ID, "stuck"),
    "escalate by hand": lambda w: w.router.escalate(ID, "by hand", "words 𝔔\n", ADE),
    "take": lambda w: w.router.take(ID, Holder(user="U1", at=w.clock.now())),
    "hand": lambda w: w.router.hand(ID, Holder(user="U2", team="T1", at=w.clock.now())),
    "resolve": lambda w: w.router.resolve(ID, yes, "words", ADE, w.clock.now()),
    "abandon": lambda w: w.router.abandon(ID, ADE),
    "answer": lambda w: w.router.answer(ID, yes, BEA, w.clock.now()),
    "expire": lambda w: w.router.expire(ID),
    "ask again": lambda w: w.ask_again(),
    "delivered": lambda w: w.settle(how=False),
    "confirmed": lambda w: w.settle(how=True),
    "went on": lambda w: w.news(aaep.TOOL_COMPLETED),
    "ended": lambda w: w.news(aaep.COMPLETED),
}
# What ends a clarification comes less often, so that long lives are seen too.
LIVELY = sorted(set(STEPS) - {"abandon", "resolve", "ended", "confirmed"}) * 3 + sorted(STEPS)


def judge(before: dict[str, Clarification], items: list[Raw]) -> dict[str, Clarification]:
    """Each record is as it would be read again, and went only where the protocol lets it."""
    after: dict[str, Clarification] = {}
    for item in items:
        found = parse(item)
        assert found is not None
        assert dump(found) == item
        after[found.id] = found
        was = before.get(found.id)
        if was is None or was == found:
            continue
        assert found.revision > was.revision
        assert len(found.thread) >= len(was.thread)
        legal = TRANSITIONS[was.status] | {was.status}
        assert found.status in legal or any(found.status in TRANSITIONS[via] for via in legal)
        assert was.status not in {"resolved", "abandoned"} or found.status == was.status
        assert (found.status == "escalated") <= (found.asked.escalated_for is not None)
        assert not (found.asked.taken_by and found.asked.handed_to)
    return after


async def live(steps: list[tuple[str, int]]) -> None:
    ledger, clock = Memory(), ManualClock(NOW)
    changed: list[Clarification] = []
    world = World(Router(ledger, clock, SLA, changed.append), clock)
    await world.router.open(42, ask())
    records: dict[str, Clarification] = {}
    for name, seconds in steps:
        clock.jump(clock.now() + timedelta(seconds=seconds))
        with suppress(NotOpen):
            await STEPS[name](world)
        records = judge(records, await ledger.read(42))
        for told in {one.id: one for one in changed}.values():
            assert parse(dump(told)) == records[told.id], "what is told is what is written"
        if name == "attend":
            while await world.router.attend(ID):
                pass
            records = judge(records, await ledger.read(42))
            assert due_call(records[ID], SLA, clock.now()) is None


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from(LIVELY), st.sampled_from([0, 1, 60, 1800, 3600, -1800, -86_400, 86_400])),
        max_size=25,
    )
)
def test_any_order_of_calls_leaves_a_ledger_that_reads_as_it_was_written(
    steps: list[tuple[str, int]],
) -> None:
    asyncio.run(live(steps))


async def test_many_rounds_end_with_the_person_on_call() -> None:
    """The walk above, steered through all rounds."""
    rounds = [("answer", 1), ("delivered", 1), ("ask again", 1)] * 5
    await live([*rounds, ("attend", 1), ("take", 1), ("hand", 1), ("answer", 1)])
