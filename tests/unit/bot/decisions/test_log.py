"""What the log appends of what the feed tells; what goes after `keep`, or is forgotten; what another program put into a record."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, closing, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from bot.decisions import chain, log
from bot.decisions.log import DecisionLog, texts_of
from bot.feed import Feed
from bot.routing import Audiences
from bot.signing import KeyPlace, Signing, jwk_of
from bot.storage.ledger import DatabaseLedger, hold, rewrite
from bot.storage.opening import open_storage
from bot.storage.postgres import PostgresTx
from bot.storage.server import connect
from bot.storage.store import Store
from bot.storage.tx import Tx
from core.clarification import Answer, Clarification, Confirmation, Direct
from core.ledger import FORGOTTEN, OfIssue
from core.matching import followed_up
from core.records import Subject, forgotten
from core.transitions import abandoned, answered, opened
from tests.kit.builders import ADE, LATER, MONTH, NOW, SLA, ask, changed
from tests.kit.clocks import ManualClock
from tests.kit.databases import Server
from tests.kit.until import until
from tests.unit.bot.oncall.crew_parties import settings
from workspace.seed import AGENTS

KEEP = timedelta(days=90)


@pytest.fixture
def signing(tmp_path: Path) -> Signing:
    made = Signing(KeyPlace(tmp_path / "clarify-signing.pem"), "urn:clarify:here", NOW - MONTH)
    assert made.load(create=True)
    return made


def decided(
    number: int, signing: Signing, question: str = "Send the newsletter", **more: Any
) -> Clarification:
    asked = ask(
        question=question,
        kinds=("confirmation",),
        wanted=Confirmation(action=question, risk_level="high", sent={"to": "all"}, editable=True),
        direct=Direct(kind="approval"),
        **more,
    )
    return answered(opened(42, number, asked, NOW, SLA), Answer("accept", "Accept", "Go"), ADE, LATER)


NEXT = ask(question="And now?", event_id="evt_2", reply_token="rpl_2")


class Keeping:
    """The feed with the log as its consumer, beside real records; `leads` again and again, as over the lives of a bot."""

    def __init__(self, store: Store, signing: Signing, clock: ManualClock, folder: Path) -> None:
        self.store, self.signing, self.clock = store, signing, clock
        self.ledger = DatabaseLedger(store, clock)
        self.ledger.receipts = self.ledger.signer = signing
        self.log = DecisionLog(
            store=store, signing=signing, audiences=Audiences(settings(folder)), clock=clock, keep=KEEP
        )
        self.feed: Feed
        self.forgotten_when_read: set[str] = set()

    @asynccontextmanager
    async def leads(self) -> AsyncIterator[None]:
        async with self.begins():
            await self.quiet()
            yield
            await self.quiet()
            assert await self.feed.trouble() is None

    @asynccontextmanager
    async def begins(self) -> AsyncIterator[None]:
        self.feed = Feed(
            consumers=[self.log],
            ledger=self.ledger,
            store=self.store,
            clock=self.clock,
            sign=self._sign,
            keep=None,
        )
        await self.feed.begin()
        running = asyncio.create_task(self.feed.run())
        try:
            yield
        finally:
            running.cancel()
            with suppress(asyncio.CancelledError):
                await running

    async def _sign(self, record: Clarification) -> bool:
        """Signs nothing: called when a record was read, and before its entry is appended."""
        if record.id in self.forgotten_when_read:
            await self.forget(record.id)
        return False

    async def quiet(self) -> None:
        self.feed.wake()
        await until(lambda: self.feed.idle)

    async def put(self, record: Clarification) -> Clarification:
        return await self.ledger.transact(OfIssue(42), lambda book: book.put(record))

    async def again(self, name: str) -> None:
        """Its next round is asked, and answered."""
        asked = await self.put(followed_up(await self.ledger.find(name), NEXT, LATER, SLA))
        await self.put(answered(asked, Answer("yes", "Yes"), ADE, LATER))

    async def forget(self, name: str) -> None:
        """As `clarify forget` does."""

        def work(tx: Tx) -> None:
            hold(tx, [name])
            log.forget(tx, Subject(frozenset({name})))
            rewrite(tx, [name], forgotten, FORGOTTEN, self.clock.now())

        await self.store.write(work)

    async def lines(self) -> list[dict[str, Any]]:
        rows = await self.store.read("select seq, kind, entry, receipt from decisions order by seq")
        return [dict(row) for row in rows]

    async def kinds(self) -> list[str]:
        return [line["kind"] for line in await self.lines()]

    async def jtis(self) -> list[str]:
        rows = await self.store.read("select jti from decisions where jti is not null order by seq")
        return [row["jti"] for row in rows]

    async def questions(self) -> list[str]:
        rows = await self.store.read("select question from decision_texts order by seq")
        return [row["question"] for row in rows]

    async def check(self) -> chain.Verified:
        lines = [log.line_of(row) for row in await self.lines()]
        return chain.verify([json.dumps(line).encode() for line in lines], self.signing.jwks)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(LATER, auto=True)


@pytest.fixture
def keeping(store: Store, signing: Signing, clock: ManualClock, tmp_path: Path) -> Keeping:
    return Keeping(store, signing, clock, tmp_path)


async def test_only_genuine_receipts_are_logged_each_once(keeping: Keeping, signing: Signing) -> None:
    async with keeping.leads():
        real = await keeping.put(decided(1, signing))
        await keeping.put(changed(decided(2, signing), receipt="eyJhbGciOiJub25lIn0.e30."))
        await keeping.put(changed(decided(3, signing), receipt=real.current.receipt))
        await keeping.quiet()
        again = await keeping.put(changed(real, receipt=None))
        await keeping.put(changed(again, receipt=real.current.receipt))  # "the receipt follows"
    (line,) = await keeping.lines()
    assert line["receipt"] == real.current.receipt
    assert (await keeping.check()).decisions == 1
    (row,) = await keeping.store.read("select * from decision_texts")
    assert (row["question"], row["answer"], row["outcome"], row["decision"]) == (
        "Send the newsletter",
        '{"to": "all"}',
        "answered",
        "accept",
    )
    assert (row["channel"], row["ts"], row["recipient"]) == (AGENTS, None, None)
    assert row["deciders"] == " user:slack/t1/u1  u1 "
    assert "go" in row["words"].splitlines()


async def test_every_end_of_a_round_has_its_entry(keeping: Keeping, signing: Signing) -> None:
    """Also of what ended while no bot ran, and of rounds that a later one follows."""
    async with keeping.leads():
        pass
    await keeping.put(decided(1, signing))
    await keeping.again("CLR-42-001")
    await keeping.put(abandoned(await keeping.put(opened(42, 2, NEXT, NOW, SLA)), "expired", LATER))
    async with keeping.leads():
        pass
    assert await keeping.jtis() == ["CLR-42-001/1", "CLR-42-001/2", "CLR-42-002/1"]
    async with keeping.leads():
        pass
    assert (await keeping.check()).decisions == 3


async def test_receipt_by_a_new_key_of_another_replica_is_known(keeping: Keeping, tmp_path: Path) -> None:
    (tmp_path / "next").mkdir()
    other = Signing(KeyPlace(tmp_path / "next" / "clarify-signing.pem"), "urn:clarify:here", NOW - MONTH)
    assert other.load(create=True)
    keeping.ledger.signer = other
    async with keeping.leads():
        await keeping.put(decided(1, other))
        await keeping.quiet()
        assert await keeping.jtis() == []
        await other.note(keeping.store, NOW)
        await keeping.put(decided(2, other))
    assert await keeping.jtis() == ["CLR-42-002/1"]


async def test_entry_follows_what_another_process_appends_at_the_same_time(
    postgres_server: Server, signing: Signing, clock: ManualClock, tmp_path: Path
) -> None:
    """As `clarify keys rotate` does beside a bot."""
    url = postgres_server.new()
    blocked = "select count(*) from pg_locks where not granted and database is null"
    async with AsyncExitStack() as stack:
        store = await open_storage(url)
        stack.push_async_callback(store.close)
        rotating = stack.enter_context(closing(connect(url)))
        looking = stack.enter_context(closing(psycopg.connect(url, autocommit=True)))
        keeping = Keeping(store, signing, clock, tmp_path)
        await signing.note(store, NOW)
        async with keeping.leads():
            pass
        await keeping.put(decided(1, signing))
        rotating.execute("begin")
        log.announce_key(
            PostgresTx(rotating), signing, jwk_of(Ed25519PrivateKey.generate().public_key()), NOW
        )
        async with keeping.begins():
            await until(lambda: looking.execute(blocked).fetchone() != (0,))
            rotating.execute("commit")
            await keeping.quiet()
            assert await keeping.feed.trouble() is None
        assert await keeping.kinds() == ["key", "decision"]
        assert (await keeping.check()).head.seq == 2


async def test_what_is_forgotten_before_its_entry_never_comes_into_the_log(
    keeping: Keeping, signing: Signing
) -> None:
    keeping.forgotten_when_read = {"CLR-42-001"}
    async with keeping.leads():
        await keeping.put(decided(1, signing))
        await keeping.put(decided(2, signing))
    assert await keeping.jtis() == ["CLR-42-002/1"]
    assert await keeping.kinds() == ["decision"]


async def test_what_is_decided_after_it_was_forgotten_stays(keeping: Keeping, signing: Signing) -> None:
    async with keeping.leads():
        pass
    await keeping.put(decided(1, signing))
    await keeping.forget("CLR-42-001")
    await keeping.again("CLR-42-001")
    async with keeping.leads():
        pass
    assert await keeping.jtis() == ["CLR-42-001/2"]
    assert await keeping.questions() == ["And now?"]


async def test_what_is_forgotten_while_its_entry_is_appended_loses_its_texts(
    keeping: Keeping, signing: Signing
) -> None:
    """In another transaction, of which neither sees the other."""
    async with keeping.leads():
        first = await keeping.put(decided(1, signing))
        await keeping.store.write(lambda tx: log.forget(tx, Subject(frozenset({first.id}))))
        await keeping.quiet()
        assert await keeping.kinds() == ["decision"]

        def edit(tx: Tx) -> None:
            rewrite(tx, [first.id], forgotten, FORGOTTEN, NOW)

        await keeping.store.write(edit)
    assert await keeping.kinds() == ["decision", "forgotten"]
    assert await keeping.questions() == []
    assert (await keeping.check()).gone == 1


async def test_old_decisions_lose_receipt_and_text_and_the_oldest_entries_are_cut_off(
    keeping: Keeping, signing: Signing, clock: ManualClock
) -> None:
    async with keeping.leads():
        first = await keeping.put(decided(1, signing))
        await keeping.quiet()
        await clock.advance(KEEP.total_seconds() / 2)
        await keeping.log.delete_old()
        assert await keeping.kinds() == ["decision"]

        await clock.advance(KEEP.total_seconds())
        await keeping.log.delete_old()
        assert await keeping.kinds() == ["decision", "forgotten"]
        assert (await keeping.lines())[0]["receipt"] is None
        assert await keeping.store.read("select * from decision_texts") == []
        assert (await keeping.check()).gone == 1

        await clock.advance(KEEP.total_seconds())
        at = clock.now()
        await keeping.put(changed(decided(2, signing), answered_at=at, resolved_at=at))
        await keeping.quiet()
        await keeping.log.delete_old()
        assert await keeping.kinds() == ["forgotten", "decision", "cut"]
        without = await keeping.put(changed(first, receipt=None))
        await keeping.put(changed(without, receipt=first.current.receipt))  # it is too old to be logged again
        await keeping.quiet()
        assert await keeping.kinds() == ["forgotten", "decision", "cut"]
    found = await keeping.check()
    assert (found.first, found.decisions) == (2, 1)


def test_texts_over_two_kilobytes_come_from_the_record(signing: Signing) -> None:
    long = "Send this newsletter. " * 200
    record = decided(1, signing, question=long)
    receipt = signing.made(record)
    assert receipt is not None
    texts = texts_of(changed(record, receipt=receipt))
    assert texts["question"].strip() == long.strip()
