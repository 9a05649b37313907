"""Replies on their way: at least once, always the same, settled in the ledger, across kills."""

from __future__ import annotations

import asyncio
import random
import sqlite3
from collections import defaultdict
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from bot.ask.client import Accepted, Refused, Reply, ReplyOutcome, TryAgain
from bot.ask.producers import Producers
from bot.errors import StorageUnavailable
from bot.show.replies import Replies
from bot.storage.ledger import DatabaseLedger
from bot.storage.store import Store
from core.clarification import Answer, Clarification
from core.clock import ConcurrencyLimit
from core.escalation import NewIncident
from core.router import Router
from tests.kit.builders import ADE, SLA, ask
from tests.kit.clocks import START, ManualClock
from tests.kit.until import until

ID = "CLR-42-001"
OK, PROOF, NO = Accepted(proof=False), Accepted(proof=True), Refused("no such token")
SURE, MAYBE = TryAgain("down", may_have_arrived=False), TryAgain("timeout", may_have_arrived=True)


@dataclass
class Producer(Producers):
    """Gives the scripted outcomes in turn, the last one for ever."""

    script: list[ReplyOutcome] = field(default_factory=lambda: [OK])
    got: list[Reply] = field(default_factory=list)
    hang: asyncio.Event | None = None
    back: dict[str, asyncio.Event] = field(default_factory=lambda: defaultdict(asyncio.Event))

    async def send(self, producer: str, reply: Reply) -> ReplyOutcome:
        self.got.append(reply)
        if self.hang is not None:
            await self.hang.wait()
        return self.script.pop(0) if len(self.script) > 1 else self.script[0]

    async def connected(self, producer: str) -> None:
        await self.back[producer].wait()


@dataclass
class World:
    producer: Producer
    clock: ManualClock
    router: Router
    ledger: DatabaseLedger
    store: Store
    replies: Replies
    raised: list[NewIncident]
    page_troubles: list[Exception]
    written: Clarification | None = None  # what this process wrote; None: found on a start

    @property
    def keys(self) -> list[str]:
        return [incident.key for incident in self.raised]

    async def answer(self, **question: object) -> None:
        await self.router.open(42, ask(**({"expires_at": START + timedelta(minutes=5)} | question)))
        self.written = await self.router.answer(ID, lambda _: Answer("yes", "Yes"), ADE, START)

    async def put(self) -> None:
        """Have the reply sent: of what this process wrote, else as after a start."""
        if self.written is not None:
            self.replies.record_changed(self.written)
        else:
            self.replies.load([await self.ledger.find(ID)])
        self.written = None

    async def settle(self) -> Clarification:
        """Have the reply sent until it is settled; the clock moves only while it is waited for."""
        await self.put()
        while self.replies.outbox:
            await until(lambda: self.clock.sleeping or not self.replies.outbox)
            await self.clock.advance(0.25)
        return await self.ledger.find(ID)


def started(
    producer: Producer, raised: list[NewIncident], troubles: list[Exception], **parts: Any
) -> Replies:
    async def raise_incident(incident: NewIncident) -> None:
        if troubles:
            raise troubles.pop()
        raised.append(incident)

    replies = Replies(
        producers=producer,
        rng=random.Random(1),  # noqa: S311 - jitter
        raise_incident=raise_incident,
        acts=ConcurrencyLimit(parts["clock"], 1, 1.0),
        **parts,
    )
    replies.outbox.start()
    return replies


@pytest.fixture
async def world(ledger: DatabaseLedger, clock: ManualClock) -> AsyncIterator[World]:
    store, producer = ledger.store, Producer()
    router = Router(ledger, clock, SLA, lambda _: None)
    raised: list[NewIncident] = []
    troubles: list[Exception] = []
    replies = started(producer, raised, troubles, store=store, clock=clock, router=router, ledger=ledger)
    yield World(producer, clock, router, ledger, store, replies, raised, troubles)
    await replies.outbox.close(1)


@pytest.mark.parametrize(
    ("script", "expected", "tries", "paged"),
    [
        ([OK], ("delivered", "answered"), 1, False),
        ([PROOF], ("delivered", "resolved"), 1, False),
        ([NO], ("refused", "answered"), 1, True),
        ([SURE, SURE, OK], ("delivered", "answered"), 3, False),
        ([MAYBE, OK], ("delivered", "answered"), 2, False),
        ([MAYBE, NO], ("unconfirmed", "answered"), 2, False),  # the token may be used up by the first try
        ([SURE, NO], ("refused", "answered"), 2, True),
        ([SURE, MAYBE, SURE, NO], ("unconfirmed", "answered"), 4, False),
    ],
)
async def test_reply_table(
    world: World, script: list[ReplyOutcome], expected: tuple[str, str], tries: int, paged: bool
) -> None:
    world.producer.script = script
    await world.answer()
    after = await world.settle()
    assert (after.delivery.reply, after.status) == expected
    assert len(world.producer.got) == tries
    assert world.keys == (["refused:CLR-42-001:1"] if paged else [])


@pytest.mark.parametrize(("outcome", "state"), [(SURE, "too_late"), (MAYBE, "unconfirmed")])
async def test_reply_is_tried_until_its_time_is_over(world: World, outcome: TryAgain, state: str) -> None:
    world.producer.script = [outcome]
    await world.answer(expires_at=START + timedelta(seconds=20))
    after = await world.settle()
    assert after.delivery.reply == state
    assert 20 <= (world.clock.now() - START).total_seconds() <= 22
    assert 5 <= len(world.producer.got) <= 12
    assert world.raised == []


async def test_killed_between_a_try_and_its_outcome_the_outcome_is_unknown(
    world: World, tmp_path: Path
) -> None:
    """The producer has it, but we died before we knew: its refusal of the repeat is no refusal."""
    world.producer.hang = asyncio.Event()
    await world.answer()
    world.written = None
    await world.put()
    await until(lambda: world.producer.got)
    await world.replies.outbox.close(0)  # the task dies in the middle of the call, as with SIGKILL
    again = Producer([NO])
    parts: dict[str, Any] = {
        "store": world.store,
        "clock": world.clock,
        "router": world.router,
        "ledger": world.ledger,
    }
    second = started(again, world.raised, [], **parts)
    world.replies, world.written = second, None
    after = await world.settle()
    assert (after.delivery.reply, world.raised) == ("unconfirmed", [])
    assert again.got == world.producer.got


async def test_page_of_a_refusal_outlives_a_locked_storage(world: World) -> None:
    world.producer.script = [NO]
    world.page_troubles.extend([StorageUnavailable(), StorageUnavailable()])
    await world.answer()
    await world.settle()
    assert world.keys == ["refused:CLR-42-001:1"]


async def test_storage_locked_means_no_try_is_made(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a start: a try that is not noted could not be told from none after the next kill."""
    await world.answer()
    world.written = None
    with monkeypatch.context() as locked:

        async def fail(*_: object) -> None:
            raise StorageUnavailable from sqlite3.OperationalError("locked")

        locked.setattr(world.store, "write", fail)
        await world.put()
        await until(lambda: world.clock.sleeping)  # until it is tried again
        assert world.producer.got == []
    assert (await world.settle()).delivery.reply == "delivered"


async def test_refusal_after_a_kill_before_anything_was_noted_is_not_sure(world: World) -> None:
    """The first try is not noted before it is made, so after a start it may have been made."""
    world.producer.script = [NO]
    await world.answer()
    world.written = None
    after = await world.settle()
    assert (after.delivery.reply, world.raised) == ("unconfirmed", [])


REFUSED = TryAgain("refuses our token (HTTP 401)", may_have_arrived=False, blocked=True)
PAGE = TryAgain("answers with text/html", may_have_arrived=True, blocked=True)


@pytest.mark.parametrize(("outcome", "state"), [(REFUSED, "too_late"), (PAGE, "unconfirmed")])
async def test_answer_that_never_arrived_is_told_when_its_time_is_over(
    world: World, outcome: TryAgain, state: str
) -> None:
    world.producer.script = [outcome]
    await world.answer(expires_at=START + timedelta(seconds=20))
    after = await world.settle()
    assert after.delivery.reply == state
    assert world.keys == ["undelivered:CLR-42-001:1"]


async def test_agent_that_is_just_away_is_nobodys_business_yet(world: World) -> None:
    world.producer.script = [*[SURE] * 12, OK]
    await world.answer(expires_at=START + timedelta(hours=1))
    assert (await world.settle()).delivery.reply == "delivered"
    assert world.clock.now() - START > timedelta(minutes=1)
    assert world.raised == []
