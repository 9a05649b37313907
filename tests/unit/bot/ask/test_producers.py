"""The producers with a standard-dialect producer and with the minimal one from PyPI."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from bot.ask.client import Accepted, Refused, Reply, TryAgain
from bot.errors import TaskDiedError
from tests.kit.until import until
from tests.unit.bot.ask.parties import (
    NOW,
    Box,
    Configured,
    Party,
    RawServer,
    Writer,
    planner,
    seeded,
    stream,
    until_ticking,
)
from workspace.demo.producer import DemoProducer

ASKED = {
    "type": "aaep:agent.awaiting.clarification",
    "session_id": "sess_1",
    "question": "Deploy?",
    "reply_token": "rpl_1",
    "timeout_seconds": 600,
    "accepted_response_kinds": ["yes_no"],
}


def yes(token: str) -> Reply:
    return Reply(token, response=True, answered_at=NOW, decided_by="user:slack/T1/U1", correlation_id=None)


@pytest.fixture
async def demo() -> AsyncIterator[DemoProducer]:
    async with DemoProducer("planner", token="secret") as producer:
        yield producer


def standard(producer: DemoProducer) -> Configured:
    return planner(producer.url, "auto", "secret")


async def ask(producer: DemoProducer, party: Party, n: int = 1) -> str:
    sent = await producer.emit({**ASKED, "reply_token": f"rpl_{n}"})
    await party.until_got(sent["event_id"])
    return f"rpl_{n}"


async def test_producers_subscribes_anew_when_the_producer_forgot_us(demo: DemoProducer) -> None:
    async with Party(standard(demo)) as party:
        await party.until_connected()
        token = await ask(demo, party)
        demo.subscriptions.clear()
        outcome = await party.producers.send("planner", yes(token))
        assert isinstance(outcome, TryAgain)
        assert not outcome.may_have_arrived
        await until_ticking(party.clock, 0.5, lambda: demo.subscriptions)
        await party.until_connected()
        assert await party.producers.send("planner", yes(token)) == Accepted(proof=True)


async def test_producers_does_not_subscribe_anew_for_ever(demo: DemoProducer) -> None:
    async with Party(standard(demo)) as party:
        await party.until_connected()
        token = await ask(demo, party)
        demo.refuse_next(404, times=3)
        assert isinstance(await party.producers.send("planner", yes(token)), TryAgain)
        await until_ticking(party.clock, 0.5, lambda: len(demo.subscriptions) == 2)
        await party.until_connected()
        assert isinstance(await party.producers.send("planner", yes(token)), Refused)
        assert party.state()["connected"]


async def test_producers_stores_what_it_has_read_before_it_stops() -> None:
    async def serve(_request: str, writer: Writer) -> None:
        await stream(writer, *(b'data: {"type": "x:y", "event_id": "evt_%d"}\n\n' % n for n in range(50)))

    async with RawServer(serve) as server, Party(planner(server.url)) as party:
        party.box.unavailable = 1
        await until(lambda: party.state()["backlog"] == 50)
        stopping = asyncio.ensure_future(party.producers.stop(()))
        await until_ticking(party.clock, 1, lambda: len(party.box.got) == 50)
        await stopping


async def test_producers_goes_down_with_a_task_that_dies() -> None:
    class Broken(Box):
        async def cursor(self, producer: str) -> str | None:
            raise ZeroDivisionError

    async with (
        DemoProducer() as demo,
        Party(planner(demo.url, "standard"), planner(demo.url, "minimal", name="other"), box=Broken) as party,
        asyncio.timeout(60),
    ):
        with pytest.raises(TaskDiedError, match=r"producer (planner|other): read"):
            await party.producers.failed()


@pytest.mark.parametrize(
    "seed",
    [
        1,
        2,
    ],
)
async def test_producers_loses_no_question_through_cuts_restarts_and_a_slow_storage(seed: int) -> None:
    rng = seeded(seed)
    async with DemoProducer() as demo, Party(planner(demo.url, "auto")) as party:
        await party.until_connected()
        sent = []
        for n in range(120):
            event = await demo.emit({**ASKED, "reply_token": f"rpl_{n}"})
            sent.append(event["event_id"])
            match rng.randrange(12):
                case 0:
                    demo.drop_connections()
                case 1:
                    await demo.down()
                    await demo.up()
                case 2:
                    party.box.unavailable = rng.randrange(3)
                case 3:
                    await until_ticking(party.clock, 1, lambda: party.state()["connected"])
                case _:
                    await asyncio.sleep(0)
            await party.clock.advance(rng.random())
        await party.until_got(*sent)
        first_seen = list(dict.fromkeys(party.box.ids()))
        assert first_seen == sent
        assert party.state()["connections"] >= 3
