"""Webhooks against a small receiver: real storage, real ledgers, a clock that tests move."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
from collections.abc import AsyncIterator, Callable, Sequence
from datetime import datetime, timedelta
from functools import partial
from itertools import pairwise
from typing import Any, NoReturn

import pytest
from pydantic import TypeAdapter
from structlog.testing import capture_logs

from bot.checks import right
from bot.errors import NotLeading
from bot.integrations.webhooks import integration
from bot.integrations.webhooks.webhooks import Endpoint, Webhooks
from bot.mailing import Mailbox, Mailer, Message
from bot.retention import forget as forgetting
from bot.settings.load import signing_key
from bot.show import outbox
from bot.show.outbox import signature
from bot.storage.ledger import DatabaseLedger
from bot.storage.sqlite import InSqlite
from bot.storage.tx import Tx
from core.clarification import Answer, Clarification
from core.ledger import OfIssue, OfRecord
from core.matching import followed_up
from core.receipts import is_decided, jti_of
from core.transitions import amended, answered, escalated, nudged, resolved
from tests.kit import builders
from tests.kit.clocks import START, ManualClock
from tests.kit.databases import sqlite_of
from tests.kit.following import ADA, SLA, Following
from tests.kit.hosts import a_host
from tests.kit.receivers import Receiver, receiving
from tests.kit.until import until

ID = "CLR-42-001"
SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"


class World(Following[Mailer]):
    def __init__(self, clock: ManualClock, ledger: DatabaseLedger, *endpoints: Endpoint) -> None:
        super().__init__(clock, ledger)
        self.endpoints = endpoints
        self.outcomes: list[str] = []

    async def start(self, keep: timedelta | None = None) -> None:
        host = a_host("webhooks", self.ledger, self.clock, lambda _, word: self.outcomes.append(word))
        await self.live(Mailer(host, Webhooks(self.endpoints, host)), keep)
        await self.quiet()

    async def quiet(self) -> None:
        """Nothing can be done now."""
        await until(lambda: self.feed.idle and self.follower.idle)


def endpoint(receiver: Receiver, *events: str) -> Endpoint:
    return Endpoint(receiver.url, signing_key(SECRET), frozenset(events))


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    async with receiving() as made:
        yield made


@pytest.fixture
async def world(ledger: DatabaseLedger, receiver: Receiver) -> AsyncIterator[World]:
    made = World(ManualClock(), ledger, endpoint(receiver))
    yield made
    await made.kill()


def done(world: World, record: Clarification) -> Clarification:
    return resolved(record, world.clock.now())


async def test_all_five_events_arrive_in_order_once(world: World, receiver: Receiver) -> None:
    await world.start()
    record = await world.ask()
    record = await world.put(nudged(record, world.clock.now(), SLA))
    record = await world.put(world.answered(record))
    await world.put(done(world, record))
    other = await world.ask()
    await world.put(escalated(other, "stale", "Nobody answered.", world.clock.now()))
    await world.quiet()

    of_first = [event.split()[0] for event in receiver.events if event.endswith(ID)]
    of_second = [event.split()[0] for event in receiver.events if event.endswith("CLR-42-002")]
    assert of_first == ["requested", "stale", "answered", "resolved"]
    assert of_second == ["requested", "escalated"]
    assert world.outcomes == ["sent"] * 6


async def test_message_is_as_standard_webhooks_says(world: World, receiver: Receiver) -> None:
    await world.start()
    await world.ask()
    await world.quiet()

    (got,) = receiver.got
    assert got.said == {
        "id": got.headers["webhook-id"],
        "type": "clarification-requested",
        "timestamp": "2026-11-21T09:00:00.000Z",
        "data": {
            "clarificationId": ID,
            "issueNumber": 42,
            "fromAgent": "engineer",
            "toAgent": "architect",
            "topic": "db",
            "blocking": True,
            "timestamp": "2026-11-21T09:00:00.000Z",
        },
    }
    key = base64.b64decode(SECRET.removeprefix("whsec_"))
    at = str(int(START.timestamp()))
    signed = hmac.new(key, f"{got.said['id']}.{at}.".encode() + got.body, hashlib.sha256).digest()
    assert got.headers["webhook-timestamp"] == at
    assert got.headers["webhook-signature"] == f"v1,{base64.b64encode(signed).decode()}"
    assert got.headers["Content-Type"] == "application/json"
    assert b"Which database?" not in got.body


def test_signature_is_the_one_that_the_package_standardwebhooks_makes() -> None:
    body = b'{"answer": "67", "label": "\\u00e4"}'
    assert signature(signing_key(SECRET), "CLR-42-001/1", 1764194400, body) == {
        "webhook-id": "CLR-42-001/1",
        "webhook-timestamp": "1764194400",
        "webhook-signature": "v1,G4eLFfIfItXFkeFTFcg00tlXitFXltmJF5+H5GmGMTk=",
    }


async def test_failed_message_comes_again_with_its_id_and_a_new_time(
    world: World, receiver: Receiver
) -> None:
    receiver.answers = [(500, {}), (0, {}), (302, {"Location": receiver.url})]
    await world.start()
    await world.ask()
    while len(receiver.got) < 4:
        await world.quiet()
        await world.clock.advance(1)
    await world.quiet()

    times = [int(got.headers["webhook-timestamp"]) for got in receiver.got]
    assert [shortest <= b - a for shortest, (a, b) in zip((10, 20, 40), pairwise(times), strict=True)] == [
        True
    ] * 3
    assert len({got.headers["webhook-id"] for got in receiver.got}) == 1
    assert len({got.body for got in receiver.got}) == 1
    assert world.outcomes == ["later", "later", "later", "sent"]


async def test_order_holds_while_a_message_fails_and_others_pass(world: World, receiver: Receiver) -> None:
    receiver.refuses = lambda got: 400 if got.event == f"requested {ID}" and len(receiver.got) < 5 else None
    await world.start()
    first = await world.ask()
    await world.answer(first)
    await world.ask(43)
    for _ in range(20):
        await world.quiet()
        await world.clock.advance(60)
    await until(lambda: f"answered {ID}" in receiver.events)

    events = receiver.events
    assert events.index("requested CLR-43-001") < events.index(f"answered {ID}")
    assert events.count(f"answered {ID}") == 1
    assert [event for event in events if event.endswith(ID)][-2:] == [f"requested {ID}", f"answered {ID}"]


async def test_no_answer_is_a_failure(
    world: World, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outbox, "ANSWER_TIMEOUT", 0.05)
    receiver.answers = [(-1, {})]
    await world.start()
    await world.ask()
    await until(lambda: world.outcomes == ["later"])


async def test_retry_after_is_heeded(world: World, receiver: Receiver) -> None:
    receiver.answers = [(429, {"Retry-After": "600"})]
    await world.start()
    await world.ask()
    await until(lambda: len(receiver.got) == 1 and world.follower.idle)
    await world.ask(43)
    await world.clock.advance(599)
    await world.quiet()
    assert len(receiver.got) == 1, "nothing else is sent to it either"
    await world.clock.advance(2)
    await until(lambda: len(receiver.got) == 3)


async def test_gone_endpoint_is_left_alone_until_the_next_start(world: World, receiver: Receiver) -> None:
    receiver.answers = [(410, {})]
    await world.start()
    record = await world.ask()
    await until(lambda: world.outcomes == ["never"])
    await world.answer(record)
    await until(lambda: len(world.outcomes) == 2)
    await world.clock.advance(86400)
    await world.quiet()
    assert len(receiver.got) == 1

    await world.kill()
    await world.start()
    await world.ask(43)
    await world.quiet()
    assert receiver.events[1:] == ["requested CLR-43-001"]


async def test_old_messages_are_given_up_and_counted(world: World, receiver: Receiver) -> None:
    receiver.refuses = lambda _: 500
    await world.start()
    await world.ask()
    with capture_logs() as logs:
        for _ in range(80):
            await world.quiet()
            await world.clock.advance(3600)
        await world.quiet()

    assert world.outcomes[-1] == "never"
    assert [log["event"] for log in logs].count("given up") == 1
    assert 60 < len(receiver.got) < 90
    assert list((await world.follower.waiting()).values()) == [0]


async def test_endpoint_gets_what_it_wants(world: World, receiver: Receiver) -> None:
    world.endpoints = (endpoint(receiver, "clarification-answered"),)
    await world.start()
    await world.answer(await world.ask())
    await world.quiet()
    assert receiver.events == [f"answered {ID}"]


# kills, and what happens while nobody looks


async def test_kill_before_the_outcome_is_known_sends_it_again_with_its_id(
    world: World, receiver: Receiver
) -> None:
    receiver.answers = [(-1, {})]
    await world.start()
    await world.ask()
    await until(lambda: receiver.got)
    await world.kill()
    await world.start()
    await world.quiet()
    assert receiver.events == [f"requested {ID}"] * 2
    assert len({got.headers["webhook-id"] for got in receiver.got}) == 1


async def test_all_that_others_wrote_meanwhile_is_told(world: World, receiver: Receiver) -> None:
    """Each round, not only what came of it."""
    await world.start()
    await world.kill()
    record = await world.write(world.answered(await world.write(world.question())))
    again = followed_up(record, builders.ask(question="And now?"), world.clock.now(), SLA)
    await world.write(world.answered(await world.write(again)))
    world.clock.jump(world.clock.now() + timedelta(days=4))
    receiver.answers = [(500, {})]  # what is old by then is tried as often as all else
    await world.start()
    receiver.got.clear()
    await world.clock.advance(60)
    await until(lambda: len(receiver.got) == 4)
    assert [event.split()[0] for event in receiver.events] == ["requested", "answered"] * 2
    assert {got.said["timestamp"] for got in receiver.got} == {"2026-11-21T09:00:00.000Z"}, "as it happened"


async def test_what_is_open_is_told_after_too_long_a_time(world: World, receiver: Receiver) -> None:
    await world.start()
    await world.kill()
    await world.write(world.question())
    await world.write(escalated(await world.write(world.question()), "stale", "Nobody.", world.clock.now()))
    await world.write(done(world, world.answered(await world.write(world.question()))))
    world.clock.jump(world.clock.now() + timedelta(days=31))
    await world.start(keep=timedelta(days=30))
    assert receiver.events == [f"requested {ID}", "escalated CLR-42-002"]


async def test_what_a_restored_backup_tells_again_has_the_same_ids(world: World, receiver: Receiver) -> None:
    await world.start()
    await world.kill()
    record = await world.write(world.question())
    await world.write(done(world, world.answered(record)))
    tables = ("changes", "consumers")
    kept = {each: await world.store.read(f"select * from {each}") for each in tables}  # noqa: S608 - ours
    await world.start()
    await world.kill()

    def restore(tx: Tx) -> None:
        for table, rows in kept.items():
            tx.run(f"delete from {table}")  # noqa: S608 - ours
            columns = rows[0].keys()
            names = ", ".join(f":{each}" for each in columns)
            tx.many(f"insert into {table} ({', '.join(columns)}) values ({names})", map(dict, rows))  # noqa: S608

    await world.store.write(restore)
    await world.clock.advance(60)
    await world.start()
    await world.quiet()
    ids = [each.headers["webhook-id"] for each in receiver.got]
    assert len(ids) == 6
    assert ids[:3] == ids[3:]
    assert len(set(ids)) == 3


# receipts


class Signer:
    """Signs receipts once it has its key: their names stand for them."""

    has_key = True

    def made(self, record: Clarification) -> str | None:
        return jti_of(record) if self.has_key else None

    def owes(self, record: Clarification) -> bool:
        return self.has_key and is_decided(record)

    def agrees(self, record: Clarification) -> bool:
        return record.current.receipt == jti_of(record)


@pytest.fixture
def signer(world: World) -> Signer:
    made = Signer()
    world.ledger.receipts = world.ledger.signer = made
    return made


async def decided(world: World, response: str = "yes", seq: int = 1) -> Clarification:
    """Asked by an agent, and answered."""
    record = builders.record(seq=seq)
    record = await world.ledger.transact(OfIssue(42), lambda book: book.put(record))
    given = Answer(response, response)
    record = answered(record, given, ADA, record.created + timedelta(minutes=1))
    return await world.ledger.transact(OfIssue(42), lambda book: book.put(record))


def receipts(receiver: Receiver) -> list[tuple[str, str | None]]:
    return [(each.event.split()[0], each.said["data"].get("receipt")) for each in receiver.got]


async def test_receipt_that_follows_comes_with_the_event_again(
    world: World, receiver: Receiver, signer: Signer
) -> None:
    signer.has_key = False
    await world.start()
    record = await decided(world)
    world.feed.record_changed(record)
    await world.quiet()
    assert receipts(receiver)[-1] == ("answered", None)
    await world.kill()
    signer.has_key = True
    signed = await world.ledger.transact(
        OfIssue(42), lambda book: book.put(record, owed=True)
    )  # and nobody is told
    assert signed.current.receipt == f"{ID}/1"
    told = len(receiver.got)
    for _ in range(2):
        await world.start()
        await world.kill()
    assert receipts(receiver)[told:] == [("answered", f"{ID}/1")]
    await world.start()
    await world.put(done(world, signed))
    await world.quiet()
    assert receipts(receiver)[told:] == [("answered", f"{ID}/1"), ("resolved", f"{ID}/1")]


async def test_receipts_are_those_of_their_rounds_when_all_are_told_late(
    world: World, receiver: Receiver, signer: Signer
) -> None:
    await world.start()
    await world.kill()
    record = await decided(world)
    later = record.last_change + timedelta(minutes=1)
    again = await world.write(followed_up(record, builders.ask(question="And now?"), later, SLA))
    await world.write(world.answered(again, "no"))
    await world.start()
    assert receipts(receiver) == [
        ("requested", None),
        ("answered", f"{ID}/1"),
        ("requested", None),
        ("answered", f"{ID}/2"),
    ]


async def test_what_the_shell_decided_waits_for_its_receipt(
    world: World, receiver: Receiver, signer: Signer
) -> None:
    """The shell has no key, but the bot does."""
    await world.start()
    world.ledger.signer = None
    record = await decided(world)
    assert record.current.receipt is None
    world.ledger.signer = signer
    world.feed.wake()
    await world.quiet()
    assert receipts(receiver) == [("requested", None), ("answered", f"{ID}/1")]


async def test_receipt_of_an_earlier_round_follows_as_well(
    world: World, receiver: Receiver, signer: Signer
) -> None:
    signer.has_key = False
    await world.start()
    record = await decided(world)
    later = record.last_change + timedelta(minutes=1)
    again = await world.put(followed_up(record, builders.ask(question="And now?"), later, SLA))
    await world.quiet()
    signer.has_key = True
    world.feed.record_changed(
        await world.ledger.transact(OfRecord(again.id), lambda book: book.put(again, owed=True))
    )
    await world.quiet()
    assert receipts(receiver)[-1] == ("answered", f"{ID}/1")
    assert await world.store.read("select * from webhooks_unsigned") == []


async def test_decision_without_a_receipt_is_not_remembered_for_ever(
    world: World, receiver: Receiver, signer: Signer
) -> None:
    signer.has_key = False
    await world.start()
    world.feed.record_changed(await decided(world))
    await world.quiet()
    await world.clock.advance(timedelta(days=31).total_seconds())
    world.feed.record_changed(await decided(world, seq=2))
    await world.quiet()
    found = await world.store.read("select clarification from webhooks_unsigned")
    assert [row["clarification"] for row in found] == ["CLR-42-002"]


def meanwhile(world: World, monkeypatch: pytest.MonkeyPatch, act: Callable[[], Any]) -> None:
    """Once, between reading what was decided and storing what that owes, `act` happens."""
    read, acts = world.ledger.tampered_among, [act]

    async def then(records: Sequence[Clarification]) -> frozenset[str]:
        found = await read(records)
        if acts and any(not each.is_open for each in records):
            await acts.pop()()
        return found

    monkeypatch.setattr(world.ledger, "tampered_among", then)


async def forgotten(world: World) -> None:
    """As `clarify forget` does."""
    kept = InSqlite(sqlite_of(world.store).path)
    found = forgetting.find(kept, ID)
    work = partial(forgetting.forget, kept, found, now=world.clock.now(), abandoned=True)
    assert (await asyncio.to_thread(work))[0].is_all(abandoned=True)


async def test_what_is_forgotten_after_it_was_read_is_told_to_nobody(
    world: World, receiver: Receiver, signer: Signer, monkeypatch: pytest.MonkeyPatch
) -> None:
    receiver.refuses = lambda _: 503
    bodies: list[bytes] = []
    add = Mailbox.add

    def noted(box: Mailbox, tx: Tx, message: Message, now: datetime) -> None:
        if message.kind == "clarification-answered":
            bodies.append(message.body)
        add(box, tx, message, now)

    monkeypatch.setattr(Mailbox, "add", noted)
    await world.start()
    meanwhile(world, monkeypatch, lambda: forgotten(world))
    world.feed.record_changed(await decided(world))
    await world.quiet()
    (body,) = map(json.loads, bodies)
    assert body["data"]["topic"] == "(forgotten)"
    assert "receipt" not in body["data"]
    for table in ("outbox", "webhooks_unsigned"):
        assert await world.store.read(f"select * from {table}") == []  # noqa: S608 - ours


async def test_what_goes_on_after_it_was_read_is_told_with_its_receipt(
    world: World, receiver: Receiver, signer: Signer, monkeypatch: pytest.MonkeyPatch
) -> None:
    await world.start()
    record = await decided(world)
    again = followed_up(record, builders.ask(question="And now?"), record.last_change, SLA)
    meanwhile(world, monkeypatch, lambda: world.write(again))
    world.feed.record_changed(record)
    await world.quiet()
    assert receipts(receiver)[:2] == [("requested", None), ("answered", f"{ID}/1")]


async def test_receipt_that_does_not_agree_with_its_record_is_sent_to_nobody(
    world: World, receiver: Receiver, signer: Signer
) -> None:
    await world.start()
    record = await decided(world)
    swapped = amended(record, receipt="CLR-42-002/1")
    world.feed.record_changed(swapped)
    await world.quiet()
    assert receipts(receiver)[-1] == ("answered", None)


async def test_endpoints_that_are_no_more_leave_nothing(world: World, receiver: Receiver) -> None:
    receiver.refuses = lambda _: 500
    await world.start()
    await world.ask()
    await until(lambda: receiver.got)
    await world.kill()
    world.endpoints = (Endpoint("http://127.0.0.1:1/other", b"key"),)
    await world.start()
    await world.kill()
    assert await world.store.read("select * from outbox") == []


async def test_secrets_and_topics_are_in_no_log(world: World, receiver: Receiver) -> None:
    receiver.answers = [(500, {}), (410, {})]
    with capture_logs() as logs:
        await world.start()
        await world.ask(topic="storage")
        await until(lambda: world.outcomes == ["later"] and world.follower.idle)
        await world.clock.advance(60)
        await until(lambda: "never" in world.outcomes)
    assert logs
    said = repr(logs)
    for secret in ("s3cret", SECRET, "storage", "Which database?"):
        assert secret not in said
    assert "s3cret" not in repr(world.endpoints)


async def test_who_does_not_lead_sends_nothing(
    world: World, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    def acting() -> NoReturn:
        raise NotLeading

    monkeypatch.setattr(world.store, "acting", acting)
    await world.start()
    await world.ask()
    await until(lambda: world.outcomes == ["later"])
    assert receiver.got == []


async def test_check_says_what_signs_and_sends_nothing(receiver: Receiver) -> None:
    read = TypeAdapter(integration.settings).validate_python(({"url": receiver.url, "secret_env": "HOOK"},))
    assert integration.check is not None
    found = [each async for each in integration.check(read, {"HOOK": "s"}.__getitem__)]
    assert found == [right("webhooks[0]", "signed with HOOK; nothing is sent by this check")]
    assert receiver.got == []
