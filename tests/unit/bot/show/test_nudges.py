"""Nudges: each is said once, where its people look. Real ledger, storage and templates."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

import pytest

from bot.errors import SlackUnreachableError
from bot.routing import Group
from bot.settings.model import ResponderSettings, RouteSettings
from bot.show.messages import Fresh, Permalinks
from bot.show.nudges import Nudges
from bot.storage.ledger import DatabaseLedger
from bot.views import inert
from core.clarification import Answer, Clarification, Decider, round_with
from core.errors import LockTimeout
from core.transitions import abandoned, answered, escalated, nudged
from tests.kit.clocks import ManualClock
from tests.kit.until import until
from tests.unit.bot.audiences import audiences
from tests.unit.bot.judges import RENDERER, judge_message
from tests.unit.bot.show.room import Room
from tests.unit.bot.strategies import NOW, SLA, record_of

LATER = NOW + timedelta(minutes=2)
DECIDER = Decider("user:ade", "slack", "T1", "U0GOOD")


class Stage(Room):
    """`told` are the nudges that were said, `failing` what comes of the next tries, `left` who was deactivated."""

    def __init__(self, ledger: DatabaseLedger, folder: Path) -> None:
        super().__init__(
            ledger,
            folder,
            audiences=audiences(
                route=RouteSettings(channel="C0GOOD", answerers=("U0GOOD",)),
                people={"architect": ("C0THEIRS", "U0THEIR"), "reviewer": ("C0GOOD", "U0REVIEW")},
                responders={"security": ResponderSettings(command=("true",))},
            ),
            clock=ManualClock(NOW, auto=True),
        )
        self.told: list[Fresh] = []
        self.left: set[str] = set()
        self.failing: list[Exception] = []
        self.nudges = self.started()

    def started(self) -> Nudges:
        return Nudges(
            index=self.index,
            ledger=self.ledger,
            messages=self.messages,
            rollups=self.rollups,
            renderer=RENDERER,
            audiences=self.audiences,
            notify=self.notify,
            permalinks=Permalinks(self.messages, self.nowhere),
            active=self.active,
            clock=self.clock,
        )

    async def nowhere(self, channel: str, ts: str) -> str:
        raise SlackUnreachableError(f"{channel} {ts}")

    async def active(self, users: Iterable[str]) -> Sequence[str]:
        return [each for each in users if each not in self.left]

    async def notify(self, fresh: Fresh) -> None:
        if self.failing:
            raise self.failing.pop()
        await self.messages.want([fresh])
        self.told.append(fresh)

    def note(self, record: Clarification) -> None:
        self.nudges.record_changed(record)

    @property
    def keys(self) -> list[str]:
        return [fresh.key for fresh in self.told]


@pytest.fixture
async def world(ledger: DatabaseLedger, tmp_path: Path) -> AsyncIterator[Stage]:
    made = Stage(ledger, tmp_path)
    running = asyncio.create_task(made.nudges.run())
    yield made
    running.cancel()
    with suppress(asyncio.CancelledError):
        await running
    await made.close()


def again(record: Clarification) -> Clarification:
    return nudged(record, LATER, SLA)


def numbered(number: int) -> Clarification:
    return record_of().model_copy(update={"id": f"CLR-42-{number:03d}"})


async def settled(world: Stage, marker: int = 900) -> None:
    """All that was noted is worked off: a nudge of another clarification, noted last, is said."""
    last = again(numbered(marker))
    await world.put(last)
    world.note(last)
    await until(lambda: f"nudge:{last.id}:1:1" in world.keys)


async def test_nudge_waits_for_its_card(world: Stage) -> None:
    """Slack was away: the card opens the thread, and the reminder is a reply to it."""
    await world.session("p")
    record = again(record_of())
    world.took(record)
    await world.put(record)
    await world.messages.want([Fresh("card:CLR-42-001:1", "card", "C0GOOD", record.id, 1, "p", "sess_1")])
    assert world.rollups.claim_card(record.id)
    world.note(record)
    await until(lambda: world.told)
    assert (await world.wanted("nudge:CLR-42-001:1:1")).waits
    card = await world.row("card:CLR-42-001:1")
    await world.messages.landed(card, "C0GOOD", "111.1", "shown", final=False, opens_thread=True)
    desired = await world.wanted("nudge:CLR-42-001:1:1")
    assert (desired.waits, desired.thread_ts, desired.opens_thread) == (False, "111.1", False)


async def test_nudge_of_a_question_that_lost_its_place_is_in_its_rollups_thread(world: Stage) -> None:
    """Its card was to come while Slack was away; by then the agent has too many."""
    await world.session("p")
    record, group = again(record_of()), Group("retirement-planner", "C0GOOD")
    world.took(record)
    await world.put(record)
    await world.messages.want([Fresh("card:CLR-42-001:1", "card", "C0GOOD", record.id, 1, "p", "sess_1")])
    world.note(record)
    await until(lambda: world.told)
    key = "rollup:retirement-planner:CLR-42-001"
    world.rollups.begin(group, key)
    await world.messages.want([Fresh(key, "rollup", "C0GOOD", body=group._asdict(), wanted="r")])
    assert (await world.wanted("nudge:CLR-42-001:1:1")).waits
    await world.messages.landed(await world.row(key), "C0GOOD", "222.2", "r", final=False, opens_thread=False)
    desired = await world.wanted("nudge:CLR-42-001:1:1")
    assert (desired.waits, desired.thread_ts, desired.opens_thread) == (False, "222.2", False)


async def test_nudges_says_each_once_also_after_a_restart(world: Stage) -> None:
    record = again(record_of())
    await world.put(record)
    for _ in range(3):
        world.note(record)
    await settled(world)
    restarted = world.started()
    running = asyncio.create_task(restarted.run())
    other = again(numbered(2))
    await world.put(other)
    restarted.record_changed(record)
    restarted.record_changed(other)
    await until(lambda: len(world.told) == 3)
    running.cancel()
    assert sorted(world.keys) == ["nudge:CLR-42-001:1:1", "nudge:CLR-42-002:1:1", "nudge:CLR-42-900:1:1"]


@pytest.mark.parametrize(
    "record",
    [
        record_of(),
        answered(again(record_of()), Answer(response="65", label="65"), DECIDER, LATER),
        escalated(again(record_of()), "stale", "Why.", LATER),
        again(record_of().model_copy(update={"rounds": (), "to": "security"})),
    ],
    ids=["not nudged", "answered", "escalated", "foreign"],
)
async def test_nudges_says_nothing_of(world: Stage, record: Clarification) -> None:
    await world.put(record)
    world.note(record)
    await settled(world)
    assert world.keys == ["nudge:CLR-42-900:1:1"]


@pytest.mark.parametrize(
    ("to", "via", "said"),
    [
        ("architect", "shell", True),
        ("nobody", "shell", True),
        ("security", "shell", False),
        ("nobody", None, True),
    ],
)
async def test_nudges_of_what_agents_ask_go_where_people_are_asked(
    world: Stage, to: str, via: str | None, said: bool
) -> None:
    asked = round_with(record_of().current, producer=None, session_id=None, reply_token=None, via=via)
    record = again(record_of().model_copy(update={"to": to, "rounds": (asked,)}))
    await world.put(record)
    world.note(record)
    await settled(world)
    assert ("nudge:CLR-42-001:1:1" in world.keys) is said
    if not said:
        return
    desired = await world.wanted("nudge:CLR-42-001:1:1")
    there = ("C0THEIRS", "<@U0THEIR>") if to == "architect" else ("C0GOOD", "<@U0GOOD>")
    assert (desired.channel, desired.opens_thread) == (there[0], True)
    assert there[1] in desired.message.text
    session = await world.store.read_one("select * from sessions where producer = ''")
    assert session is not None
    assert session["session_id"] == "CLR-42-001"


async def test_nudges_goes_on_while_one_has_to_wait(world: Stage) -> None:
    """Somebody holds the torn ledger of the first for long: the second is said all the same."""
    first, second = again(record_of()), again(numbered(2))
    await world.put(first, second)
    world.failing.append(LockTimeout(42, 2.0, "somebody"))
    world.note(first)
    world.note(second)
    await until(lambda: len(world.keys) == 2)
    assert world.keys == ["nudge:CLR-42-002:1:1", "nudge:CLR-42-001:1:1"]
    assert world.clock.slept == [0.5]


@pytest.mark.parametrize("trouble", ["broken", "gone"])
async def test_nudges_goes_on_after_one_that_fails(world: Stage, trouble: str) -> None:
    record = again(record_of())
    if trouble == "broken":
        await world.put(record)
        world.failing.append(ZeroDivisionError("a fault of ours"))
    world.note(record)
    await settled(world)
    assert world.keys == ["nudge:CLR-42-900:1:1"]


async def test_nudges_of_a_rollup_are_one_in_its_thread(world: Stage) -> None:
    """Forty questions of one agent, twenty with a card: each of those is nudged, the others together."""
    records = [again(numbered(n)) for n in range(1, 41)]
    for record in records:
        world.took(record)
    await world.put(*records)
    carded = [record for record in records if world.rollups.claim_card(record.id)]
    await world.messages.want(
        [Fresh(f"card:{record.id}:1", "card", "C0GOOD", record.id, 1, "p", "sess_1") for record in records]
    )
    for record in carded:
        card = await world.row(f"card:{record.id}:1")
        assert await world.messages.intend(card, "C0GOOD", None, 1.0, opens_thread=False)
    world.rollups.begin(Group("retirement-planner", "C0GOOD"), "rollup:retirement-planner:CLR-42-021")
    key = "rollup:retirement-planner:CLR-42-021"
    await world.messages.want(
        [Fresh(key, "rollup", "C0GOOD", body={"agent": "retirement-planner"}, wanted="r")]
    )
    row = await world.messages.get(key)
    assert row is not None
    await world.messages.landed(row, "C0GOOD", "222.2", "r", final=False, opens_thread=False)
    for record in reversed(records):
        world.note(record)
    await until(lambda: len(world.told) == 21)
    assert world.keys[0] == f"nudge:{key}:1"
    assert sorted(world.keys[1:]) == [f"nudge:{record.id}:1:1" for record in carded]
    desired = await world.wanted(f"nudge:{key}:1")
    assert (desired.channel, desired.thread_ts, desired.broadcast) == ("C0GOOD", "222.2", False)
    assert f"Reminder sent {inert.utc(LATER)}." in (await world.wanted(key)).message.text
    assert "20 questions" in desired.message.text
    assert [each.key for each in await world.messages.nudges_for(key)] == [f"nudge:{key}:1"]
    for record in records:
        world.rollups.update(abandoned(record, "cancelled", LATER))
    over = await world.wanted(f"nudge:{key}:1")
    judge_message(over.message)
    assert (over.final, over.unwanted, "still waiting" in over.message.text) == (True, True, False)
    assert "These questions are no longer waiting" in over.message.text


async def test_nudges_of_a_rollup_call_everybody_whose_answers_wait_there(world: Stage) -> None:
    """The people of a role share the agent's channel, so its roll-up card: they are called for what is theirs."""
    group, key = Group("retirement-planner", "C0GOOD"), "rollup:retirement-planner:CLR-42-021"
    theirs = {21: "reviewer", 23: "reviewer"}
    records = [again(numbered(n).model_copy(update={"to": theirs.get(n, "human")})) for n in range(1, 25)]
    for record in records:
        world.took(record)
    for number in range(1, 21):
        assert world.rollups.claim_card(f"CLR-42-{number:03d}")
    await world.put(*records)
    world.rollups.begin(group, key)
    await world.messages.want([Fresh(key, "rollup", "C0GOOD", body=group._asdict(), wanted="r")])
    for record in records[20:]:
        world.note(record)
    await until(lambda: len(world.told) == 2)
    assert (await world.wanted(f"nudge:{key}:1")).waits, "it is a reply to the roll-up card, which is to come"
    said = {fresh.key: (await world.wanted(fresh.key)).message.text for fresh in world.told}
    reviewers, usual = said[f"nudge:{key}:1:U0REVIEW"], said[f"nudge:{key}:1"]
    assert ("<@U0REVIEW>" in reviewers, "2 questions" in reviewers) == (True, True)
    assert ("<@U0GOOD>" in usual, "2 questions" in usual) == (True, True)
