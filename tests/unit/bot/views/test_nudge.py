"""Nudges: what they say, and that each is said once. Real ledger, storage and templates."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings

from bot.delivery.messages import Fresh, Messages
from bot.delivery.nudges import Nudges
from bot.delivery.rollups import Rollups
from bot.delivery.wishes import Wish, Wishes
from bot.errors import StorageUnavailable
from bot.routing import Group
from bot.settings.model import ResponderSettings, RouteSettings
from bot.storage.store import Store
from bot.views.render import Message, Renderer
from core.clarification import Answer, Clarification, Decider, abandoned, answered, escalated, nudged
from core.errors import LockTimeout
from core.index import Index, summarize
from core.ledger import FileLedger
from core.records import Book
from tests.kit.clocks import ManualClock
from tests.kit.until import until
from tests.unit.bot.audiences import audiences
from tests.unit.bot.judges import judge_message, labels, shown
from tests.unit.bot.strategies import NOW, SLA, open_records, record_of

RENDERER = Renderer()
LATER = NOW + timedelta(minutes=2)
DECIDER = Decider("user:ade", "slack", "T1", "U0GOOD")


def said(record: Clarification, *answerers: str) -> Message:
    message = RENDERER.nudge(record, answerers)
    judge_message(message)
    return message


def test_nudge_says_what_is_asked_and_how_to_answer() -> None:
    record = record_of(default_response="65", accepted_response_kinds=["yes_no"])
    message = said(record, "U0GOOD")
    seen = shown(message.blocks)
    for words in (
        "retirement-planner still waits · CLR-42-001",
        "<@U0GOOD>",
        "Which retirement age should I plan for?",
        "Answer by <!date^1779632820^",
        "If nobody answers, the agent assumes “65”",
        "Answer on its card, or in this thread: reply with yes or no.",
    ):
        assert words in seen
    assert message.text.splitlines() == [
        "<@U0GOOD> retirement-planner still waits for an answer (CLR-42-001): Which retirement age should I plan for?",
        "Answer by 24 May 2026, 14:27 UTC.",
        "If nobody answers, the agent assumes “65”.",
        "Answer on its card, or in this thread: reply with yes or no.",
    ]
    assert labels(message.blocks) == []


@pytest.mark.parametrize(
    ("answerers", "called"),
    [
        (("members",), ""),
        (("members", "U0GOOD"), "<@U0GOOD>"),
        (("U0A", "S0B", "U0A"), "<@U0A> <!subteam^S0B>"),
        (tuple(f"U{n}" for n in range(30)), " ".join(f"<@U{n}>" for n in range(20))),
        ((), ""),
    ],
)
def test_nudge_calls_who_is_listed(answerers: tuple[str, ...], called: str) -> None:
    message = RENDERER.nudge(record_of(), answerers)
    live = [
        b["text"]["text"] for b in message.blocks if b["type"] == "section" and b["text"]["type"] == "mrkdwn"
    ]
    assert live == ([called] if called else [])
    assert message.text.startswith(f"{called} retirement-planner" if called else "retirement-planner")


def test_nudge_without_a_time_limit_says_so() -> None:
    message = said(record_of(timeout_seconds=None))
    assert "No time limit." in message.text
    assert "If nobody answers" not in message.text


def test_nudge_gives_the_beginning_of_a_long_question(largest: Clarification) -> None:
    message = said(largest, "U0GOOD")
    assert len(message.text) < 2000
    assert "…" in message.text
    assert message.more == ()


@given(open_records())
@settings(max_examples=15, suppress_health_check=[HealthCheck.too_slow], deadline=None)
def test_nudge_is_inert(record: Clarification) -> None:
    said(record, "U0GOOD", "members")


@pytest.mark.parametrize(
    ("count", "words"), [(1, "answers to 1 question."), (12, "answers to 12 questions.")]
)
def test_nudge_of_a_rollup_counts(count: int, words: str) -> None:
    message = RENDERER.rollup_nudge("<!here> planner", count, LATER, ("members", "U0GOOD"))
    judge_message(message)
    assert words in message.text
    assert "The first must be answered by 24 May 2026, 14:24 UTC." in message.text
    assert "common card" in shown(message.blocks)


@dataclass
class World:
    ledger: FileLedger
    store: Store
    clock: ManualClock
    told: list[Fresh] = field(default_factory=list)
    failing: list[Exception] = field(default_factory=list)
    answerers: tuple[str, ...] = ("U0GOOD",)

    def __post_init__(self) -> None:
        self.messages = Messages(self.store)
        self.audiences = audiences(
            route=RouteSettings(channel="C0GOOD", answerers=self.answerers),
            people={"architect": ("C0THEIRS", "U0THEIR"), "reviewer": ("C0GOOD", "U0REVIEW")},
            responders={"security": ResponderSettings(command=("true",))},
        )
        self.rollups = Rollups(Index(), self.audiences)
        self.nudges = self.started()

    def started(self) -> Nudges:
        return Nudges(
            records=self.ledger,
            messages=self.messages,
            rollups=self.rollups,
            renderer=RENDERER,
            audiences=self.audiences,
            notify=self.notify,
            clock=self.clock,
        )

    async def notify(self, fresh: Fresh) -> None:
        if self.failing:
            raise self.failing.pop()
        await self.messages.want([fresh])
        self.told.append(fresh)

    async def put(self, *records: Clarification) -> None:
        for record in records:
            await self.ledger.transact(record.issue_number, partial(_put, record))

    async def wish(self, key: str) -> Wish:
        row = await self.messages.get(key)
        assert row is not None
        wish = await Wishes(
            self.ledger, self.messages, self.rollups, RENDERER, self.audiences, clock=self.clock
        ).of(row)
        assert isinstance(wish, Wish)
        return wish

    async def session_thread(self, ts: str | None) -> None:
        await self.store.run(
            """insert into sessions (producer, session_id, agent_id, issue, channel, thread_ts)
               values ('p', 'sess_1', 'retirement-planner', 42, :channel, :ts)""",
            channel="C0GOOD" if ts else None,
            ts=ts,
        )

    @property
    def keys(self) -> list[str]:
        return [fresh.key for fresh in self.told]


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    store = await Store.open(tmp_path / "clarify.db")
    ledger = FileLedger(tmp_path)
    made = World(ledger, store, ManualClock(NOW, auto=True))
    running = asyncio.create_task(made.nudges.run())
    yield made
    running.cancel()
    with suppress(asyncio.CancelledError):
        await running
    await store.close()
    ledger.close()


def _put(record: Clarification, book: Book) -> None:
    book.put(record)


def again(record: Clarification) -> Clarification:
    return nudged(record, LATER, SLA)


def numbered(number: int) -> Clarification:
    return record_of().model_copy(update={"id": f"CLR-42-{number:03d}"})


async def settled(world: World, marker: int = 900) -> None:
    """All that was noted is worked off: a nudge of another clarification, noted last, is said."""
    last = again(numbered(marker))
    await world.put(last)
    world.nudges.note(last)
    await until(lambda: f"nudge:{last.id}:1:1" in world.keys)


async def test_nudges_goes_into_the_session_thread_and_the_channel(world: World) -> None:
    await world.session_thread("111.1")
    record = again(record_of())
    await world.put(record)
    world.nudges.note(record)
    await until(lambda: world.keys == ["nudge:CLR-42-001:1:1"])
    wish = await world.wish("nudge:CLR-42-001:1:1")
    assert (wish.channel, wish.thread_ts, wish.broadcast, wish.needed) == ("C0GOOD", "111.1", True, True)
    assert "<@U0GOOD>" in wish.message.text
    assert not wish.opens_thread


async def test_nudges_of_a_session_without_a_thread_opens_it(world: World) -> None:
    await world.session_thread(None)
    record = again(record_of())
    await world.put(record)
    world.nudges.note(record)
    await until(lambda: world.told)
    wish = await world.wish("nudge:CLR-42-001:1:1")
    assert (wish.thread_ts, wish.broadcast, wish.opens_thread) == (None, False, True)


async def test_nudges_says_each_once_also_after_a_restart(world: World) -> None:
    record = again(record_of())
    await world.put(record)
    for seen in (record, summarize(record), record):
        world.nudges.note(seen)
    await settled(world)
    restarted = world.started()
    running = asyncio.create_task(restarted.run())
    other = again(numbered(2))
    await world.put(other)
    restarted.note(summarize(record))
    restarted.note(summarize(other))
    await until(lambda: len(world.told) == 3)
    running.cancel()
    assert sorted(world.keys) == ["nudge:CLR-42-001:1:1", "nudge:CLR-42-002:1:1", "nudge:CLR-42-900:1:1"]


async def test_nudges_of_a_later_round_is_another(world: World) -> None:
    record = again(record_of())
    later = record.model_copy(update={"round": 2})
    await world.put(record)
    world.nudges.note(record)
    await until(lambda: len(world.told) == 1)
    await world.put(later)
    world.nudges.note(later)
    await until(lambda: world.keys == ["nudge:CLR-42-001:1:1", "nudge:CLR-42-001:2:1"])


@pytest.mark.parametrize(
    "record",
    [
        record_of(),
        answered(again(record_of()), Answer(response="65", label="65"), DECIDER, LATER),
        escalated(again(record_of()), "stale", "Why.", LATER),
        again(record_of().model_copy(update={"aaep": None, "to": "security"})),
    ],
    ids=["not nudged", "answered", "escalated", "foreign"],
)
async def test_nudges_says_nothing_of(world: World, record: Clarification) -> None:
    await world.put(record)
    world.nudges.note(record)
    world.nudges.note(summarize(record))
    await settled(world)
    assert world.keys == ["nudge:CLR-42-900:1:1"]


@pytest.mark.parametrize(
    ("to", "via", "said"),
    [
        ("architect", "shell", True),
        ("architect", None, True),
        ("nobody", "shell", True),
        ("human", "shell", True),
        ("security", "shell", False),
        ("security", None, False),
        ("nobody", None, True),
    ],
)
async def test_nudges_of_what_agents_ask_go_where_people_are_asked(
    world: World, to: str, via: str | None, said: bool
) -> None:
    asked = record_of().asked.model_copy(
        update={"producer": None, "session_id": None, "reply_token": None, "via": via}
    )
    record = again(record_of().model_copy(update={"to": to, "aaep": asked}))
    await world.put(record)
    world.nudges.note(record)
    await settled(world)
    assert ("nudge:CLR-42-001:1:1" in world.keys) is said
    if not said:
        return
    wish = await world.wish("nudge:CLR-42-001:1:1")
    there = ("C0THEIRS", "<@U0THEIR>") if to == "architect" else ("C0GOOD", "<@U0GOOD>")
    assert (wish.channel, wish.opens_thread) == (there[0], True)
    assert there[1] in wish.message.text
    session = await world.store.read_one("select * from sessions where producer = ''")
    assert session is not None
    assert session["session_id"] == "CLR-42-001"


async def test_nudges_looks_again_before_it_speaks(world: World) -> None:
    """Answered between the nudge and its message: nobody is called for nothing."""
    record = again(record_of())
    await world.put(answered(record, Answer(response="65", label="65"), DECIDER, LATER))
    world.nudges.note(record)
    await settled(world)
    assert world.keys == ["nudge:CLR-42-900:1:1"]


@pytest.mark.parametrize(
    ("left", "unwanted"), [(timedelta(minutes=1), False), (timedelta(seconds=4), True), (timedelta(0), True)]
)
async def test_nudge_that_comes_too_late_is_not_sent(world: World, left: timedelta, unwanted: bool) -> None:
    await world.session_thread("111.1")
    record = again(record_of())
    await world.put(record)
    world.nudges.note(record)
    await until(lambda: world.told)
    assert record.expires_at is not None
    world.clock.jump(record.expires_at - left)
    assert (await world.wish("nudge:CLR-42-001:1:1")).unwanted is unwanted


@pytest.mark.parametrize(
    ("after", "says"),
    [
        (answered(again(record_of()), Answer(response="65", label="Age 65"), DECIDER, LATER),
         ("Answered by <@U0GOOD>", "Answer: Age 65")),
        (abandoned(again(record_of()), "expired", LATER), ("Expired",)),
        (answered(again(record_of()), Answer(response="65", label="65"), DECIDER, LATER).model_copy(
            update={"round": 2, "status": "pending"}), ("Answered by", "Answer: 65")),
    ],
    ids=["answered", "expired", "another round"],
)  # fmt: skip
async def test_nudge_says_how_its_question_ended(
    world: World, after: Clarification, says: tuple[str, ...]
) -> None:
    await world.session_thread("111.1")
    record = again(record_of())
    await world.put(record)
    world.nudges.note(record)
    await until(lambda: world.told)
    row = await world.messages.get("nudge:CLR-42-001:1:1")
    assert row is not None
    waiting = await world.wish(row.key)
    assert not waiting.final
    await world.messages.landed(
        row, "C0GOOD", "111.2", waiting.digest, final=waiting.final, opens_thread=False
    )
    assert [each.key for each in await world.messages.nudges_of([record.id])] == [row.key]
    await world.put(after)
    wish = await world.wish(row.key)
    judge_message(wish.message)
    assert (wish.final, wish.needed) == (True, False)
    assert wish.digest != waiting.digest
    for words in says:
        assert words in shown(wish.message.blocks)
        assert words in wish.message.text
    for words in ("still waits", "Answer on"):
        assert words not in shown(wish.message.blocks)
        assert words not in wish.message.text


async def test_nudges_waits_for_the_storage(world: World) -> None:
    world.failing += [StorageUnavailable("full"), StorageUnavailable("full")]
    record = again(record_of())
    await world.put(record)
    world.nudges.note(record)
    await until(lambda: world.keys == ["nudge:CLR-42-001:1:1"])
    assert world.clock.slept == [0.5, 0.5]


async def test_nudges_goes_on_while_one_has_to_wait(world: World) -> None:
    """Somebody holds the torn ledger of the first for long: the second is said all the same."""
    first, second = again(record_of()), again(numbered(2))
    await world.put(first, second)
    world.failing.append(LockTimeout(42, 2.0, "somebody"))
    world.nudges.note(first)
    world.nudges.note(second)
    await until(lambda: len(world.keys) == 2)
    assert world.keys == ["nudge:CLR-42-002:1:1", "nudge:CLR-42-001:1:1"]


@pytest.mark.parametrize("trouble", ["broken", "gone"])
async def test_nudges_goes_on_after_one_that_fails(world: World, trouble: str) -> None:
    record = again(record_of())
    if trouble == "broken":
        await world.put(record)
        world.failing.append(ZeroDivisionError("a fault of ours"))
    world.nudges.note(record)
    await settled(world)
    assert world.keys == ["nudge:CLR-42-900:1:1"]


async def test_nudges_of_a_rollup_are_one_in_its_thread(world: World) -> None:
    """Forty questions of one agent, twenty with a card: each of those is nudged, the others together."""
    records = [again(numbered(n)) for n in range(1, 41)]
    index = Index()
    world.rollups = Rollups(index, world.audiences)
    world.nudges = world.started()
    for record in records:
        index.put(summarize(record))
        world.rollups.update(summarize(record))
    await world.put(*records)
    carded = [record for record in records if world.rollups.may_have_card(record.id)]
    await world.messages.want(
        [Fresh(f"card:{record.id}:1", "card", "C0GOOD", record.id, 1, "p", "sess_1") for record in records]
    )
    for record in carded:
        await world.messages.intend(f"card:{record.id}:1", "C0GOOD", None, 1.0)
    world.rollups.begin(Group("retirement-planner", "C0GOOD"), "rollup:retirement-planner:CLR-42-021")
    key = "rollup:retirement-planner:CLR-42-021"
    await world.messages.want(
        [Fresh(key, "rollup", "C0GOOD", body={"agent": "retirement-planner"}, wanted="r")]
    )
    row = await world.messages.get(key)
    assert row is not None
    await world.messages.landed(row, "C0GOOD", "222.2", "r", final=False, opens_thread=False)
    running = asyncio.create_task(world.nudges.run())
    for record in reversed(records):
        world.nudges.note(summarize(record))
    await until(lambda: len(world.told) == 21)
    running.cancel()
    assert world.keys[0] == f"nudge:{key}:1"
    assert sorted(world.keys[1:]) == [f"nudge:{record.id}:1:1" for record in carded]
    wish = await world.wish(f"nudge:{key}:1")
    assert (wish.channel, wish.thread_ts, wish.broadcast) == ("C0GOOD", "222.2", True)
    assert "20 questions" in wish.message.text
    assert [each.key for each in await world.messages.nudges_for(key)] == [f"nudge:{key}:1"]
    for record in records:
        world.rollups.update(summarize(abandoned(record, "cancelled", LATER)))
    over = await world.wish(f"nudge:{key}:1")
    judge_message(over.message)
    assert (over.final, over.unwanted, "still waits" in over.message.text) == (True, True, False)
    assert "None of these questions waits on the common card any more" in over.message.text


async def test_nudges_of_a_rollup_call_everybody_whose_answers_wait_there(world: World) -> None:
    """The people of a role share the agent's channel, so its roll-up card: they are called for what is theirs."""
    group, key = Group("retirement-planner", "C0GOOD"), "rollup:retirement-planner:CLR-42-021"
    theirs = {21: "reviewer", 23: "reviewer"}
    records = [again(numbered(n).model_copy(update={"to": theirs.get(n, "human")})) for n in range(1, 25)]
    world.rollups = Rollups(index := Index(), world.audiences)
    world.nudges = world.started()
    for record in records:
        index.put(summarize(record))
        world.rollups.update(summarize(record))
    for number in range(1, 21):
        assert world.rollups.may_have_card(f"CLR-42-{number:03d}")
    await world.put(*records)
    world.rollups.begin(group, key)
    await world.messages.want([Fresh(key, "rollup", "C0GOOD", body=group._asdict(), wanted="r")])
    running = asyncio.create_task(world.nudges.run())
    for record in records[20:]:
        world.nudges.note(summarize(record))
    await until(lambda: len(world.told) == 2)
    running.cancel()
    said = {fresh.key: (await world.wish(fresh.key)).message.text for fresh in world.told}
    reviewers, usual = said[f"nudge:{key}:1:U0REVIEW"], said[f"nudge:{key}:1"]
    assert ("<@U0REVIEW>" in reviewers, "2 questions" in reviewers) == (True, True)
    assert ("<@U0GOOD>" in usual, "2 questions" in usual) == (True, True)
