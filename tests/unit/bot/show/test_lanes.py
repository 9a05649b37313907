"""Lanes: order, pace and pauses, with a clock that tests move."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator

import pytest

from bot.show.lanes import CARD, DEAD_CONTROLS, NOTICE, PAGE, Again, Done, Lanes, NotYet
from tests.kit.clocks import START, ManualClock

POSTED = Done(posted=True)


class Wire:
    """Delivers by script: each key's results in turn, then a post that went well; notes when."""

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.script: dict[str, list[Done | Again | NotYet | Exception]] = {}
        self.sent: list[tuple[str, float]] = []
        self.hold: asyncio.Event | None = None

    async def deliver(self, key: str) -> Done | Again | NotYet:
        self.sent.append((key, self.elapsed()))
        if self.hold is not None:
            await self.hold.wait()
        todo = self.script.get(key)
        result = todo.pop(0) if todo else POSTED
        if isinstance(result, Exception):
            raise result
        return result

    def elapsed(self) -> float:
        return (self.clock.now() - START).total_seconds()

    @property
    def order(self) -> list[str]:
        return [key for key, _ in self.sent]


@pytest.fixture
def wire(clock: ManualClock) -> Wire:
    return Wire(clock)


@pytest.fixture
async def lanes(wire: Wire, clock: ManualClock) -> AsyncIterator[Lanes]:
    made = Lanes(wire.deliver, clock, 1.0, random.Random(1))  # noqa: S311 - jitter
    yield made
    await made.close()
    assert [task for task in asyncio.all_tasks() if task.get_name().startswith(("lane", "later"))] == []


async def test_posts_go_in_the_order_of_sending_at_the_channels_pace(
    lanes: Lanes, wire: Wire, clock: ManualClock
) -> None:
    lanes.put("C1", "first", post=True, priority=(NOTICE, 0.0))
    await clock.advance(0)
    lanes.put("C1", "notice", post=True, priority=(NOTICE, 0.0))
    lanes.put("C1", "never expires", post=True, priority=(CARD, float("inf")))
    lanes.put("C1", "late card", post=True, priority=(CARD, 200.0))
    lanes.put("C1", "urgent card", post=True, priority=(CARD, 100.0))
    lanes.put("C1", "dead", post=True, priority=(DEAD_CONTROLS, 0.0))
    lanes.put("C1", "page", post=True, priority=(PAGE, 0.0))
    await clock.advance(10)
    assert wire.order == ["first", "page", "dead", "urgent card", "late card", "never expires", "notice"]
    assert [at for _, at in wire.sent] == pytest.approx([0, 1, 2, 3, 4, 5, 6])


async def test_an_update_never_waits_behind_paced_posts(lanes: Lanes, wire: Wire, clock: ManualClock) -> None:
    for number in range(10):
        lanes.put("C1", f"card {number}", post=True, priority=(CARD, float(number)))
    await clock.advance(0.1)
    wire.script["dead"] = [Done()]
    lanes.put("C1", "dead", post=False, priority=(DEAD_CONTROLS, 0.0))
    await clock.advance(0)
    assert wire.order[-1] == "dead"
    assert wire.sent[-1][1] == pytest.approx(0.1)


@pytest.mark.parametrize(("told", "wait"), [(30.0, 30.0), (1.5, 1.5), (None, 1.0)])
async def test_a_rate_limit_pauses_the_whole_lane_and_tries_the_same_first(
    lanes: Lanes, wire: Wire, clock: ManualClock, told: float | None, wait: float
) -> None:
    wire.script = {"a": [Again(told, pause=True)], "u": [Done()]}
    lanes.put("C1", "a", post=True, priority=(CARD, 0.0))
    lanes.put("C1", "b", post=True, priority=(CARD, 1.0))
    await clock.advance(0)
    lanes.put("C1", "u", post=False, priority=(DEAD_CONTROLS, 0.0))
    lanes.put("C2", "elsewhere", post=True, priority=(CARD, 0.0))
    await clock.advance(wait + 5)
    assert wire.sent[:2] == [("a", 0), ("elsewhere", 0)]
    assert sorted(wire.sent[2:4]) == [("a", wait), ("u", wait)]
    assert wire.sent[4][0] == "b"


async def test_one_that_has_to_wait_does_not_hold_up_the_lane(
    lanes: Lanes, wire: Wire, clock: ManualClock
) -> None:
    wire.script = {"a": [Again(3.0)]}
    lanes.put("C1", "a", post=True, priority=(CARD, 0.0))
    lanes.put("C1", "b", post=True, priority=(CARD, 1.0))
    await clock.advance(10)
    assert wire.order == ["a", "b", "a"]
    assert wire.sent[1][1] == 0
    assert 3 <= wire.sent[2][1] <= 3.6


async def test_a_key_waits_once_where_it_was_put_last(lanes: Lanes, wire: Wire, clock: ManualClock) -> None:
    lanes.put("C1", "first", post=True, priority=(PAGE, 0.0))
    await clock.advance(0)
    for priority in ((NOTICE, 0.0), (CARD, 5.0), None):
        lanes.put("C1", "x", post=True, priority=priority)
    for priority in ((CARD, 1.0), (NOTICE, 0.0)):
        lanes.put("C1", "over", post=True, priority=priority)
    lanes.put("C1", "y", post=True, priority=(CARD, 9.0))
    assert lanes.length == 3
    await clock.advance(10)
    assert wire.order == ["first", "x", "y", "over"]
    lanes.put("C1", "x", post=True, priority=(NOTICE, 0.0))
    await clock.advance(10)
    assert wire.order[-1] == "x"


async def test_producers_have_turns_however_much_one_of_them_posts(
    lanes: Lanes, wire: Wire, clock: ManualClock
) -> None:
    for number in range(20):
        lanes.put("C1", f"flood {number:02d}", post=True, priority=(CARD, float(number)), producer="flood")
    await clock.advance(3)
    for number in range(3):
        lanes.put("C1", f"b{number}", post=True, priority=(CARD, 900.0 + number), producer="b")
    lanes.put("C1", "c0", post=True, priority=(CARD, 800.0), producer="c")
    lanes.put("C1", "page", post=True, priority=(PAGE, 0.0), producer="flood")
    await clock.advance(8)
    assert wire.order[4:11] == ["page", "c0", "b0", "b1", "b2", "flood 04", "flood 05"]
    await clock.advance(200)  # what was long ago counts no more
    lanes.put("C1", "later b", post=True, priority=(CARD, 2000.0), producer="b")
    lanes.put("C1", "later flood", post=True, priority=(CARD, 1000.0), producer="flood")
    lanes.put("C1", "now", post=True, priority=(CARD, 0.0), producer="d")
    await clock.advance(8)
    assert wire.order[-3:] == ["now", "later flood", "later b"]


async def test_turn_without_a_post_does_not_count(lanes: Lanes, wire: Wire, clock: ManualClock) -> None:
    lanes.put("C1", "first", post=True, priority=(PAGE, 0.0))
    await clock.advance(0)
    for number in range(5):
        wire.script[f"over {number}"] = [Done()]
        lanes.put("C1", f"over {number}", post=True, priority=(CARD, float(number)), producer="a")
    lanes.put("C1", "a", post=True, priority=(CARD, 7.0), producer="a")
    lanes.put("C1", "b", post=True, priority=(CARD, 8.0), producer="b")
    await clock.advance(2)
    assert wire.order[-2:] == ["a", "b"]


async def test_put_while_being_sent_is_sent_again(lanes: Lanes, wire: Wire, clock: ManualClock) -> None:
    wire.hold = asyncio.Event()
    lanes.put("C1", "x", post=False, priority=(CARD, 0.0))
    await clock.advance(0)
    lanes.put("C1", "x", post=False, priority=(CARD, 0.0))
    wire.hold.set()
    await clock.advance(0)
    assert wire.order == ["x", "x"]


async def test_a_fault_is_told(lanes: Lanes, wire: Wire, clock: ManualClock) -> None:
    wire.script = {"x": [RuntimeError("fault")]}
    lanes.put("C1", "x", post=True, priority=(CARD, 0.0))
    await clock.advance(0)
    with pytest.raises(RuntimeError):
        await lanes.failed


@pytest.mark.parametrize("result", [POSTED, Again(5.0), Again(5.0, pause=True)])
async def test_close_lets_the_one_being_sent_finish(
    lanes: Lanes, wire: Wire, clock: ManualClock, result: Done | Again
) -> None:
    wire.hold = asyncio.Event()
    wire.script = {"x": [result]}
    lanes.put("C1", "x", post=True, priority=(CARD, 0.0))
    lanes.put("C1", "y", post=True, priority=(CARD, 1.0))
    await clock.advance(0)
    closing = asyncio.create_task(lanes.close())
    await clock.advance(0)
    assert not closing.done()
    wire.hold.set()
    await closing
    assert wire.order == ["x"]
    lanes.put("C1", "z", post=True, priority=(CARD, 0.0))
    assert lanes.length == 0


@pytest.mark.parametrize("while_it_is_sent", [False, True])
async def test_what_may_not_be_posted_yet_waits_to_go_on(
    lanes: Lanes, wire: Wire, clock: ManualClock, while_it_is_sent: bool
) -> None:
    wire.script["early"], wire.hold = [NotYet()], asyncio.Event()
    lanes.put("C1", "early", post=True, priority=(CARD, 0.0))
    await clock.advance(0)
    if while_it_is_sent:
        lanes.go_on()
    wire.hold.set()
    await clock.advance(600)
    if not while_it_is_sent:
        assert (wire.order, lanes.length) == (["early"], 1)
        lanes.go_on()
    await clock.advance(0)
    assert (wire.order, lanes.length) == (["early", "early"], 0)


async def test_slack_that_is_back_ends_a_backoff_and_no_wait_that_slack_asked_for(
    lanes: Lanes, wire: Wire, clock: ManualClock
) -> None:
    wire.script["guessed"] = [Again(pause=True)] * 6
    wire.script["told"] = [Again(50.0, pause=True)]
    lanes.put("C1", "guessed", post=True, priority=(CARD, 0.0))
    lanes.put("C2", "told", post=True, priority=(CARD, 0.0))
    await clock.advance(40)
    tries = wire.order.count("guessed")
    lanes.slack_is_back()
    await clock.advance(0)
    assert wire.order.count("guessed") == tries + 1
    assert wire.order.count("told") == 1
    await clock.advance(11)
    assert wire.order.count("told") == 2


@pytest.fixture
async def fast_lanes(wire: Wire, clock: ManualClock) -> AsyncIterator[Lanes]:
    """At four posts a second."""
    made = Lanes(wire.deliver, clock, 4.0, random.Random(1))  # noqa: S311 - jitter
    yield made
    if wire.hold is not None:
        wire.hold.set()
    await made.close()


@pytest.mark.parametrize("post", [True, False])
async def test_cards_and_updates_are_on_their_way_side_by_side_as_far_as_the_pace_lets_them(
    fast_lanes: Lanes, wire: Wire, clock: ManualClock, post: bool
) -> None:
    wire.hold = asyncio.Event()
    for number in range(6):
        fast_lanes.put("C1", f"key {number}", post=post, priority=(CARD, float(number)))
    await clock.advance(2)
    assert wire.order == [f"key {number}" for number in range(4)]
    assert [at for _, at in wire.sent] == pytest.approx([0, 0.25, 0.5, 0.75] if post else [0] * 4)
    wire.hold.set()
    await clock.advance(1)
    assert wire.order == [f"key {number}" for number in range(6)]


@pytest.mark.parametrize("kind", [PAGE, NOTICE])
async def test_pages_and_notices_are_posted_one_after_another(
    fast_lanes: Lanes, wire: Wire, clock: ManualClock, kind: int
) -> None:
    wire.hold = asyncio.Event()
    fast_lanes.put("C1", "card", post=True, priority=(CARD, 0.0))
    await clock.advance(0.5)
    for number in range(2):
        fast_lanes.put("C1", f"said {number}", post=True, priority=(kind, float(number)))
    await clock.advance(5)
    assert wire.order == ["card"]
    for sent in (["card", "said 0"], ["card", "said 0", "said 1"]):
        wire.hold.set()
        wire.hold = asyncio.Event()
        await clock.advance(5)
        assert wire.order == sent


async def test_a_rate_limit_that_meets_several_counts_once(
    fast_lanes: Lanes, wire: Wire, clock: ManualClock
) -> None:
    wire.hold = asyncio.Event()
    keys = [f"dead {number}" for number in range(4)]
    wire.script = {key: [Again(pause=True), Done()] for key in keys}
    for key in keys:
        fast_lanes.put("C1", key, post=False, priority=(DEAD_CONTROLS, 0.0))
    await clock.advance(0)
    wire.hold.set()
    await clock.advance(5)
    assert sorted(wire.order) == sorted([*keys, *keys])
    assert [at for _, at in wire.sent[4:]] == pytest.approx([1.0] * 4)
