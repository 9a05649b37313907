"""The outbox alone: when what is tried again, what holds up what, and what happens to what cannot be stored."""

from __future__ import annotations

import asyncio
import random
from datetime import timedelta
from math import inf

import pytest

from bot.errors import StorageUnavailable
from bot.outbox import Backoff, Delivered, GivenUp, Mail, Outbox, Outcome, Owed, RetryLater, retain, waiting
from bot.storage.store import Store
from tests.kit.clocks import START, ManualClock
from tests.kit.until import until

POLICY = Backoff(first=1.0, longest=30.0, spread=0.0)


class Party:
    """Gives the scripted outcomes in turn, then takes everything. `at`: seconds since the start, and the key, of each try."""

    def __init__(self, clock: ManualClock, *script: Outcome | Exception | None, at_once: int = 1) -> None:
        self.script = list(script)
        self.at: list[tuple[float, str]] = []
        self.outcomes: list[str] = []
        self.clock = clock
        self.hang: asyncio.Event | None = None
        self.outbox: Outbox[str] = Outbox(
            "party",
            self.attempt,
            POLICY,
            clock=clock,
            rng=random.Random(1),  # noqa: S311 - no secret
            at_once=at_once,
            on_outcome=self.outcomes.append,
        )
        self.outbox.start()

    async def attempt(self, key: str) -> Outcome | None:
        self.at.append(((self.clock.now() - START).total_seconds(), key))
        if self.hang is not None:
            await self.hang.wait()
        outcome = self.script.pop(0) if self.script else Delivered()
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    async def all_tried(self) -> list[tuple[float, str]]:
        await until(lambda: not self.outbox)
        return self.at


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(auto=True)


@pytest.mark.parametrize(
    ("outcome", "seconds"),
    [
        (RetryLater("x"), 1.0),
        (RetryLater("x", after=7.0), 7.0),
        (RetryLater("x", within=0.5), 0.5),
        (RetryLater("x", within=3.0, after=60.0), 3.0),
        (RetryLater("x", within=0.001), 0.05),
        (StorageUnavailable(), 0.5),
        (RuntimeError("a defect"), 60.0),
    ],
)
async def test_outbox_waits(clock: ManualClock, outcome: Outcome | Exception, seconds: float) -> None:
    party = Party(clock, outcome)
    party.outbox.put("a")
    assert await party.all_tried() == [(0.0, "a"), (pytest.approx(seconds, abs=0.01), "a")]


async def test_outbox_waits_longer_each_time_and_begins_anew_once_it_went_well(clock: ManualClock) -> None:
    party = Party(clock, *[RetryLater("x")] * 6, Delivered(more=True), RetryLater("x"))
    party.outbox.put("a")
    at = [round(seconds) for seconds, _ in await party.all_tried()]
    assert at == [0, 1, 3, 7, 15, 31, 61, 61, 62]
    assert party.outcomes == ["later"] * 6 + ["sent", "later", "sent"]


async def test_trouble_of_one_key_holds_up_no_other_that_of_the_party_all(clock: ManualClock) -> None:
    party = Party(clock, RetryLater("x"), Delivered(), RetryLater("x", party_wide=True, after=5.0))
    for key in ("a", "b", "c", "d"):
        party.outbox.put(key)
    at = [(round(seconds), key) for seconds, key in await party.all_tried()]
    assert at[:3] == [(0, "a"), (0, "b"), (0, "c")]
    assert sorted(at[3:]) == [(5, "a"), (5, "c"), (5, "d")]


async def test_what_is_put_anew_waits_for_no_retry_and_has_not_failed() -> None:
    clock = ManualClock()
    party = Party(clock, RetryLater("x", after=60.0), RetryLater("x"))
    party.outbox.put("a")
    await until(lambda: party.at and party.outbox.idle)
    party.outbox.put("a")
    assert party.outbox.idle
    party.outbox.put("a", anew=True)
    await until(lambda: len(party.at) == 2 and party.outbox.idle)
    await clock.advance(1.0)
    await party.all_tried()
    assert [seconds for seconds, _ in party.at] == [0, 0, 1]


async def test_keys_take_turns(clock: ManualClock) -> None:
    party = Party(clock, Delivered(more=True), Delivered(more=True), GivenUp("no", more=True), None)
    party.outbox.put("a")
    party.outbox.put("b")
    assert [key for _, key in await party.all_tried()] == ["a", "b", "a", "b", "a"]


async def test_what_is_put_during_its_try_is_tried_after_it_but_a_failure_waits(clock: ManualClock) -> None:
    party = Party(clock, Delivered(), RetryLater("x"))
    party.hang = asyncio.Event()
    party.outbox.put("a")
    await until(lambda: party.at)
    party.outbox.put("a")
    party.outbox.put("a")
    party.hang.set()
    assert [round(seconds) for seconds, _ in await party.all_tried()] == [0, 0, 1]


async def test_at_most_so_many_at_once(clock: ManualClock) -> None:
    party = Party(clock, at_once=2)
    party.hang = asyncio.Event()
    for key in ("a", "b", "c"):
        party.outbox.put(key)
    await until(lambda: len(party.at) == 2)
    assert len(party.outbox) == 3
    assert not party.outbox.idle
    party.hang.set()
    assert len(await party.all_tried()) == 3


async def test_close_lets_a_try_end_and_tries_nothing_again(clock: ManualClock) -> None:
    party = Party(clock, RetryLater("x"))
    party.hang = asyncio.Event()
    party.outbox.put("a")
    await until(lambda: party.at)
    asyncio.get_running_loop().call_soon(party.hang.set)
    await party.outbox.close()
    await clock.advance(60)
    assert len(party.at) == 1


async def test_settled_returns_in_time(clock: ManualClock) -> None:
    party = Party(clock)
    party.hang = asyncio.Event()
    await party.outbox.settled(["a"], 60)
    party.outbox.put("a")
    await party.outbox.settled(["a"], 0.01)
    party.hang.set()
    await party.outbox.settled(["a"], 60)
    assert not party.outbox


# mail


class Post:
    def __init__(self, store: Store, clock: ManualClock, *script: Outcome, party: str = "callback:p") -> None:
        self.script, self.sent = list(script), list[Owed]()
        self.store, self.clock = store, clock
        self.mail = Mail(party, self.send, store=store, clock=clock, patience=timedelta(days=3))

    async def send(self, owed: Owed) -> Outcome:
        self.sent.append(owed)
        return self.script.pop(0) if self.script else Delivered()

    async def add(self, *ids: str) -> None:
        owed = [Owed(each, f"CLR-{each[0]}", "https://a", each.encode()) for each in ids]
        await self.store.write(lambda tx: self.mail.add(tx, owed, self.clock.now()))


@pytest.fixture
def post(store: Store, clock: ManualClock) -> Post:
    return Post(store, clock)


async def test_mail_is_stored_once_and_goes_out_in_the_order_of_its_clarification(post: Post) -> None:
    await post.add("1a", "1b", "2a")
    await post.add("1a")
    assert await post.mail.owed() == ["CLR-1", "CLR-2"]
    assert await post.mail.attempt("CLR-1") == Delivered(more=True)
    assert await post.mail.attempt("CLR-1") == Delivered()
    assert await post.mail.attempt("CLR-1") is None
    assert [(owed.id, owed.kind, owed.body) for owed in post.sent] == [
        ("1a", "https://a", b"1a"),
        ("1b", "https://a", b"1b"),
    ]
    assert await waiting(post.store) == {"callback:p": 1}


async def test_mail_that_is_refused_lets_the_next_pass(post: Post) -> None:
    post.script = [GivenUp("no such thing")]
    await post.add("1a", "1b")
    assert await post.mail.attempt("CLR-1") == GivenUp("no such thing", more=True)
    assert await post.mail.attempt("CLR-1") == Delivered()


async def test_mail_that_never_failed_goes_first_after_a_start_and_old_mail_is_tried_once(post: Post) -> None:
    post.script = [RetryLater("x"), RetryLater("x")]
    await post.add("1a", "2a")
    await post.mail.attempt("CLR-1")
    await post.clock.advance(timedelta(days=4).total_seconds())
    again = Post(post.store, post.clock, RetryLater("x"))
    assert await again.mail.owed() == ["CLR-2", "CLR-1"]
    assert await again.mail.attempt("CLR-2") == RetryLater("x")
    assert isinstance(await again.mail.attempt("CLR-2"), GivenUp)
    assert isinstance(await again.mail.attempt("CLR-1"), GivenUp)
    assert [owed.id for owed in again.sent] == ["2a"]
    assert await waiting(post.store) == {}


async def test_mail_of_other_kinds_is_retained(post: Post, store: Store, clock: ManualClock) -> None:
    other, hook = Post(store, clock, party="callback:q"), Post(store, clock, party="0123456789abcdef")
    for each in (post, other, hook):
        await each.add("1a")
    assert await store.write(lambda tx: retain(tx, "callback", {"callback:q"})) == 1
    assert await waiting(store) == {"callback:q": 1, "0123456789abcdef": 1}


async def test_signal_that_comes_as_the_retry_begins_makes_no_second_attempt() -> None:
    def timer_fires(_: object) -> None:
        party.outbox._schedule("a", -inf)
        party.outbox._pump()

    back = asyncio.get_running_loop().create_future()
    back.add_done_callback(timer_fires)
    party = Party(ManualClock(), RetryLater("x", after=7.0, sooner=lambda: back), at_once=2)
    party.outbox.put("a")
    await until(lambda: len(party.at) == 1 and "a" in party.outbox)
    party.hang = asyncio.Event()
    back.set_result(None)
    await until(lambda: len(party.at) == 2)
    for _ in range(10):
        await asyncio.sleep(0)
    assert len(party.at) == 2
    party.hang.set()
    await party.all_tried()
    await party.outbox.close()
