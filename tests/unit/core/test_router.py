"""Every decision about a clarification, in a real database, with a clock that tests move."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from bot.storage.ledger import DatabaseLedger
from core import aaep
from core.answers import from_free_text, from_text
from core.clarification import Answer, Ask, Clarification, Holder, ReplyState
from core.errors import BadInput, LockTimeout
from core.ledger import OfIssue
from core.ledgerfiles import as_item
from core.monitor import DueCall
from core.records import PLAUSIBLE, dump
from core.router import Router
from core.transitions import AlreadyAnswered, Closed, Superseded
from tests.kit.builders import ADE, BEA, MINUTE, NOW, SLA, YES, ask, news, record
from tests.kit.clocks import ManualClock
from tests.kit.databases import Server, row_held
from tests.kit.ledgers import change_record, kept_ledger, write_records


def give(answer: Answer) -> Callable[[Clarification], Answer]:
    return lambda _: answer


@dataclass
class Hub:
    folder: Path
    ledger: DatabaseLedger
    router: Router
    clock: ManualClock
    changed: list[Clarification] = field(default_factory=list)

    async def get(self, clarification: str = "CLR-42-001") -> Clarification:
        return await self.ledger.find(clarification)

    def write(self, *items: object) -> None:
        """As another implementation writes them."""
        write_records(self.folder, 42, *items)

    def write_as_another(self, change: Callable[[dict[str, Any]], None]) -> None:
        change_record(self.folder, 42, change)


@pytest.fixture
async def hub(tmp_path: Path) -> AsyncIterator[Hub]:
    changed: list[Clarification] = []
    async with kept_ledger(tmp_path) as ledger:
        clock = ManualClock(NOW)
        yield Hub(tmp_path, ledger, Router(ledger, clock, SLA, changed.append), clock, changed)


async def test_open_knows_its_session_whatever_the_issue(hub: Hub) -> None:
    first = await hub.router.open(42, ask())
    again = await hub.router.open(43, ask(event_id="evt_2"))
    assert (again.how, again.record) == ("duplicate", first.record)
    await hub.router.answer("CLR-42-001", give(YES), ADE, NOW)
    await hub.router.settle_reply("CLR-42-001", "rpl_1", "delivered")
    further = await hub.router.open(43, ask(reply_token="rpl_2"))
    assert (further.how, further.record.id) == ("follow_up", "CLR-42-001")
    fresh = await hub.router.open(43, ask(reply_token="rpl_3", question="And staging?"))
    assert (fresh.how, fresh.record.id) == ("new", "CLR-43-001")
    await hub.router.session_went_on(news(aaep.CANCELLED))
    assert [(await hub.get(each)).status for each in ("CLR-42-001", "CLR-43-001")] == ["abandoned"] * 2


async def test_first_answer_wins(hub: Hub) -> None:
    await hub.router.open(42, ask())
    results = await asyncio.gather(
        *(
            hub.router.answer("CLR-42-001", give(Answer(str(n), str(n))), ADE if n % 2 else BEA, NOW)
            for n in range(8)
        ),
        return_exceptions=True,
    )
    won = [r for r in results if isinstance(r, Clarification)]
    lost = [r for r in results if isinstance(r, AlreadyAnswered)]
    assert (len(won), len(lost)) == (1, 7)
    assert all(one.record.given.response == won[0].given.response for one in lost)
    assert len(hub.changed) == 2


@pytest.mark.parametrize(
    ("given_after", "processed_after", "taken"),
    [(59, 59, True), (59, 61, True), (59.99, 600, True), (60, 60, False), (61, 61, False)],
)
async def test_answer_counts_from_when_it_was_given(
    hub: Hub, given_after: float, processed_after: float, taken: bool
) -> None:
    await hub.router.open(42, ask())
    hub.clock.jump(NOW + processed_after * MINUTE)
    at = NOW + given_after * MINUTE
    if taken:
        assert (await hub.router.answer("CLR-42-001", give(YES), ADE, at)).given.answered_at == at
        return
    with pytest.raises(Closed) as caught:
        await hub.router.answer("CLR-42-001", give(YES), ADE, at)
    assert caught.value.record.current.closed == "expired"
    assert (await hub.get()).status == "abandoned"
    assert hub.changed[-1].status == "abandoned", "the card is told"


async def test_answer_to_an_earlier_round_is_told_so(hub: Hub) -> None:
    await hub.router.open(42, ask())
    await hub.router.answer("CLR-42-001", give(YES), ADE, NOW)
    await hub.router.settle_reply("CLR-42-001", "rpl_1", "delivered")
    await hub.router.open(42, ask(reply_token="rpl_2"))
    with pytest.raises(Superseded):
        await hub.router.answer("CLR-42-001", give(YES), ADE, NOW, round=1)
    await hub.router.answer("CLR-42-001", give(YES), BEA, NOW, round=2)
    with pytest.raises(AlreadyAnswered):
        await hub.router.answer("CLR-42-001", give(YES), ADE, NOW, round=1)


async def test_answer_is_durable_when_it_returns_and_shown_though_the_caller_left(hub: Hub) -> None:
    await hub.router.open(42, ask())
    task = asyncio.create_task(hub.router.answer("CLR-42-001", give(YES), ADE, NOW))
    await asyncio.sleep(0)
    task.cancel()
    await hub.ledger.transact(OfIssue(42), lambda book: book.records)  # in its turn, after the answer
    assert (await hub.get()).status == "answered"
    assert hub.changed[-1].status == "answered"


# settle_reply


@pytest.mark.parametrize(
    ("steps", "reply", "status"),
    [
        ([("delivered", False)], "delivered", "answered"),
        ([("delivered", True)], "delivered", "resolved"),
        ([("delivered", False), ("confirmed", True)], "confirmed", "resolved"),
        ([("confirmed", True), ("refused", False)], "confirmed", "resolved"),
        ([("confirmed", True), ("unconfirmed", False)], "confirmed", "resolved"),
        ([("unconfirmed", False)], "unconfirmed", "answered"),
        ([("refused", False)], "refused", "answered"),
        ([("too_late", False)], "too_late", "answered"),
    ],
)
async def test_settle_reply_table(
    hub: Hub, steps: list[tuple[ReplyState, bool]], reply: str, status: str
) -> None:
    await hub.router.open(42, ask())
    await hub.router.answer("CLR-42-001", give(YES), ADE, NOW)
    for state, resolve in steps:
        await hub.router.settle_reply("CLR-42-001", "rpl_1", state, "a note", resolve=resolve)
    after = await hub.get()
    assert (after.delivery.reply, after.status) == (reply, status)


async def test_settle_reply_of_a_token_that_asks_again_changes_nothing(hub: Hub) -> None:
    await hub.router.open(42, ask())
    await hub.router.answer("CLR-42-001", give(YES), ADE, NOW)
    await hub.router.settle_reply("CLR-42-001", "rpl_1", "delivered")
    again = await hub.router.open(42, ask(question="Deploy it to production?", topic="Deploy to production?"))
    assert (again.how, again.record.status) == ("follow_up", "pending")
    await hub.router.settle_reply("CLR-42-001", "rpl_1", "confirmed", resolve=True)
    assert await hub.get() == again.record


@pytest.mark.parametrize(("state", "reply"), [("delivered", "confirmed"), ("unconfirmed", "confirmed"), ("refused", "refused"), ("too_late", "too_late")])  # fmt: skip
async def test_session_seen_going_on_while_sending_is_the_proof(
    hub: Hub, state: ReplyState, reply: str
) -> None:
    await hub.router.open(42, ask())
    await hub.router.answer("CLR-42-001", give(YES), ADE, NOW)
    await hub.router.session_went_on(news(at=NOW + MINUTE))
    assert (await hub.get()).delivery.reply == "sending", "it may have gone on because it timed out"
    await hub.router.settle_reply("CLR-42-001", "rpl_1", state, "a note")
    after = await hub.get()
    assert (after.delivery.reply, after.status) == (reply, "resolved" if reply == "confirmed" else "answered")


async def test_session_went_on_touches_its_session_only(hub: Hub) -> None:
    await hub.router.open(42, ask())
    await hub.router.open(42, ask(session_id="sess_2"))
    await hub.router.open(42, ask(producer="writer"))
    await hub.router.session_went_on(news(aaep.CANCELLED))
    assert [each.status for each in (await hub.ledger.read(42)).records] == [
        "abandoned",
        "pending",
        "pending",
    ]


async def test_number_of_others_that_leaves_no_room_is_replaced(hub: Hub) -> None:
    highest = record(seq=PLAUSIBLE).model_copy(update={"rounds": ()})
    beyond = record(seq=10**14).model_copy(update={"rounds": (), "topic": "another"})
    assert (await hub.router.take_in(highest)).id == highest.id
    assert (await hub.router.take_in(beyond)).id == f"CLR-42-{PLAUSIBLE + 1}"
    assert (await hub.router.open(42, ask())).record.id == f"CLR-42-{PLAUSIBLE + 2}"


async def test_foreign_records_in_the_ledger_are_left_alone(hub: Hub) -> None:
    foreign = await hub.router.take_in(record(seq=1).model_copy(update={"rounds": ()}))
    opened = await hub.router.open(42, ask())
    assert opened.record.id == "CLR-42-002"
    await hub.router.session_went_on(news(aaep.COMPLETED))
    assert await hub.get() == foreign
    answered_one = await hub.router.answer("CLR-42-001", lambda _: from_free_text("fine"), ADE, NOW)
    assert (answered_one.status, answered_one.delivery.reply) == ("answered", None)


# between agents


def request(**more: Any) -> Ask:
    """A question of one agent to another: no producer waits for its answer."""
    fields: dict[str, Any] = {"agent_id": "engineer", "to": "architect", "topic": "storage", "via": "http"}
    nobody = ("producer", "session_id", "event_id", "reply_token", "asked_at", "expires_at")
    return ask(**dict.fromkeys(nobody), **(fields | more))


async def test_follow_up_is_the_next_round_for_whoever_asked(hub: Hub) -> None:
    await hub.router.open(42, request(max_rounds=3))
    await hub.router.answer("CLR-42-001", give(YES), ADE, NOW)
    with pytest.raises(BadInput, match="another agent"):
        await hub.router.follow_up("CLR-42-001", request(agent_id="reviewer"))
    again = await hub.router.follow_up("CLR-42-001", request(agent_id=" Engineer", question="And then?"))
    assert (again.how, again.record.round, again.record.max_rounds) == ("follow_up", 2, 3)
    assert again.record == await hub.get() == hub.changed[-1]


async def test_follow_up_takes_the_place_of_no_reply(hub: Hub) -> None:
    await hub.router.open(42, ask())
    await hub.router.answer("CLR-42-001", give(YES), ADE, NOW)
    with pytest.raises(BadInput, match="Only that producer"):
        await hub.router.follow_up("CLR-42-001", request(agent_id="retirement-planner"))
    assert (await hub.get()).delivery.reply == "sending"


async def test_follow_up_of_what_another_implementation_asked(hub: Hub) -> None:
    await hub.router.open(42, request())
    await hub.router.answer("CLR-42-001", give(YES), ADE, NOW)
    hub.write_as_another(lambda raw: raw.pop("aaep"))
    again = await hub.router.follow_up("CLR-42-001", request(question="And then?"))
    assert (again.record.round, again.record.question) == (2, "And then?")


async def test_patience_is_how_long_a_ledger_may_be_held(postgres_server: Server) -> None:
    changed, clock, url = list[Clarification](), ManualClock(NOW), postgres_server.new()
    async with kept_ledger(url) as ledger:
        impatient = Router(ledger, clock, SLA, changed.append, patience=0.05)
        patient = Router(ledger, clock, SLA, changed.append, patience=60)
        with row_held(url, "issue 42"):
            with pytest.raises(LockTimeout, match=r"locked for 0\.1 s"):
                await impatient.open(42, request())
            waiting = asyncio.create_task(patient.open(42, request()))
            assert (await impatient.open(43, request())).record.id == "CLR-43-001"
        assert (await waiting).record.id == "CLR-42-001", "who gave up wrote nothing later"
    assert [each.id for each in changed] == ["CLR-43-001", "CLR-42-001"]


@pytest.mark.parametrize("human_in_between", [False, True])
async def test_open_of_one_topic_again_and_again_comes_to_its_last_round(
    hub: Hub, human_in_between: bool
) -> None:
    """Where the reply's acceptance resolves each, no single clarification ever would."""
    for number in (1, 2, 3):
        asked = ask(
            to="architect", topic="storage", max_rounds=2, reply_token=f"t{number}", event_id=f"e{number}"
        )
        record = (await hub.router.open(42, asked)).record
        if human_in_between and number == 2:
            await hub.router.escalate(record.id, "by hand")
        if number < 3:
            await hub.router.answer(record.id, lambda _: Answer("ok", "ok"), ADE, NOW)
            await hub.router.settle_reply(record.id, f"t{number}", "delivered", resolve=True)
    assert record.id == "CLR-42-003"
    if human_in_between:
        assert record.status == "pending"
        return
    assert (record.status, record.attention.escalated_for) == ("escalated", "rounds exhausted")
    assert "answered: “ok”" in record.thread[-1].body


ID = "CLR-42-001"


def yes(_: Clarification) -> Answer:
    return YES


def holder(user: str = "U1") -> Holder:
    return Holder(user=user, team="T1", at=NOW)


async def test_attend_does_what_is_due_once(hub: Hub) -> None:
    await hub.router.open(42, ask(expires_at=NOW + 200 * MINUTE))
    assert await hub.router.apply_due(ID) is None
    hub.clock.jump(NOW + 30 * MINUTE)
    assert await hub.router.apply_due(ID) == DueCall("nudge", NOW + 30 * MINUTE)
    assert await hub.router.apply_due(ID) is None
    found = await hub.get()
    assert (found.status, found.nudges, found.stale_after) == ("pending", 1, NOW + 60 * MINUTE)
    hub.clock.jump(NOW + 61 * MINUTE)
    assert await hub.router.apply_due(ID) == DueCall("escalate", NOW + 60 * MINUTE)
    found = await hub.get()
    assert (found.status, found.attention.escalated_for, found.thread[-1].type) == (
        "escalated",
        "stale",
        "escalation",
    )
    assert await hub.router.apply_due(ID) is None
    hub.clock.jump(NOW + 200 * MINUTE)
    assert await hub.router.apply_due(ID) == DueCall("expire", NOW + 200 * MINUTE)
    assert await hub.router.apply_due(ID) is None
    assert [one.status for one in hub.changed] == ["pending", "pending", "escalated", "abandoned"]
    assert hub.changed[-1].current.closed == "expired"


# escalate


async def test_escalate_again_changes_nothing(hub: Hub) -> None:
    await hub.router.open(42, ask())
    first = await hub.router.escalate(ID, "stuck")
    await hub.router.take(ID, holder())
    again = await hub.router.escalate(ID, "by hand", "words", BEA)
    assert (again.attention.escalated_for, again.revision) == ("stuck", first.revision + 1)
    assert again.attention.taken_by is not None
    assert again.attention.taken_by.user == holder().user
    assert len(hub.changed) == 3


async def test_escalate_only_while_the_reason_holds(hub: Hub) -> None:
    await hub.router.open(42, ask())
    seen: list[int] = []

    def second_round(found: Clarification) -> bool:
        seen.append(found.round)
        return found.round == 2

    assert (await hub.router.escalate(ID, "stuck", only=second_round)).status == "pending"
    assert (seen, len(hub.changed)) == ([1], 1)


# resolve and abandon by hand


async def test_resolve_of_an_answered_one_says_who_and_still_sends_the_reply(hub: Hub) -> None:
    await hub.router.open(42, ask())
    await hub.router.answer(ID, yes, ADE, NOW)
    after = await hub.router.resolve(ID, yes, "Done in person", BEA, NOW + MINUTE)
    assert (after.status, after.resolved_at, after.delivery.reply) == ("resolved", NOW + MINUTE, "sending")
    assert (after.thread[-1].type, after.thread[-1].from_, after.thread[-1].body) == (
        "resolution",
        BEA.decided_by,
        "Done in person",
    )
    assert after.given.response == "yes"
    await hub.router.settle_reply(ID, "rpl_1", "confirmed", resolve=True)
    assert (await hub.get()).delivery.reply == "confirmed"


@pytest.mark.parametrize("escalate", [False, True])
async def test_resolve_of_an_open_one_answers_the_producer(hub: Hub, escalate: bool) -> None:
    await hub.router.open(42, ask(kinds=("numeric",)))
    if escalate:
        await hub.router.escalate(ID, "stale")

    def read(found: Clarification) -> Answer:
        return from_text(found.asked, "12")

    after = await hub.router.resolve(ID, read, "12", ADE, NOW)
    assert (after.status, after.given.response) == ("resolved" if escalate else "answered", 12)
    assert (after.delivery.reply, after.thread[-1].type) == ("sending", "answer")


@pytest.mark.parametrize("status", ["pending", "stale", "escalated"])
async def test_resolve_of_an_open_one_without_a_producer_ends_it(hub: Hub, status: str) -> None:
    hub.write(as_item(dump(record().model_copy(update={"status": status, "rounds": ()}))))
    after = await hub.router.resolve(ID, yes, "Yes, go on", ADE, NOW)
    assert after == await hub.get()
    assert (after.status, after.resolved_at, after.delivery.reply) == ("resolved", NOW, None)
    assert [entry.type for entry in after.thread] == ["question", "answer", "resolution"]
    assert after.answer is not None


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
    assert caught.value.record.current.closed == "expired"
    assert hub.changed[-1] == caught.value.record
    with pytest.raises(Closed):
        await ACTS[act](hub.router, ID)


async def test_resolve_in_time_counts_though_it_arrives_late(hub: Hub) -> None:
    await hub.router.open(42, ask(expires_at=NOW + MINUTE))
    hub.clock.jump(NOW + 2 * MINUTE)
    assert (await hub.router.resolve(ID, yes, "Yes", ADE, NOW)).status == "answered"
