"""What the bot appends to the log, from records; what goes after `keep`; what another program put into a ledger."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from bot.decisions import chain, log
from bot.decisions.log import DecisionLog, texts_of
from bot.routing import Audiences
from bot.signing import KeyPlace, Signing
from bot.storage.ledger import DatabaseLedger
from bot.storage.store import Store
from bot.workspace.seed import AGENTS
from core.aaep import Confirmation
from core.clarification import Answer, Clarification, Direct, answered, opened
from core.ledger import OfIssue
from tests.kit.builders import ADE, LATER, MONTH, NOW, SLA, ask, changed
from tests.kit.clocks import ManualClock
from tests.unit.bot.oncall.crew_parties import settings

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
        confirmation=Confirmation(action=question, risk_level="high", is_direct=True),
        direct=Direct(kind="approval", arguments={"to": "all"}, editable=True),
        **more,
    )
    return answered(opened(42, number, asked, NOW, SLA), Answer("accept", "Accept", "Go"), ADE, LATER)


@pytest.fixture
async def ledger(store: Store, signing: Signing) -> DatabaseLedger:
    made = DatabaseLedger(store)
    made.receipts = made.signer = signing
    return made


class Keeping:
    """A log that runs."""

    def __init__(self, made: DecisionLog, store: Store, signing: Signing) -> None:
        self.log = made
        self.store = store
        self.signing = signing

    async def lines(self) -> list[dict[str, Any]]:
        rows = await self.store.read("select seq, kind, entry, receipt from decisions order by seq")
        return [dict(row) for row in rows]

    async def kinds(self) -> list[str]:
        return [line["kind"] for line in await self.lines()]

    async def check(self) -> chain.Verified:
        lines = [log.line_of(row) for row in await self.lines()]
        return chain.verify([json.dumps(line).encode() for line in lines], self.signing.jwks)


@asynccontextmanager
async def running(made: DecisionLog) -> AsyncIterator[DecisionLog]:
    task = asyncio.create_task(made.run())
    yield made
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


@pytest.fixture
async def keeping(
    store: Store, ledger: DatabaseLedger, signing: Signing, clock: ManualClock, tmp_path: Path
) -> AsyncIterator[Keeping]:
    audiences = Audiences(settings(tmp_path))
    made = DecisionLog(
        ledger=ledger, store=store, signing=signing, audiences=audiences, clock=clock, keep=KEEP
    )
    async with running(made):
        yield Keeping(made, store, signing)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(LATER, auto=True)


async def test_only_genuine_receipts_are_logged_each_once(
    keeping: Keeping, ledger: DatabaseLedger, signing: Signing
) -> None:
    real = await ledger.transact(OfIssue(42), lambda book: book.put(decided(1, signing)))
    forged = changed(decided(2, signing), receipt="eyJhbGciOiJub25lIn0.e30.")
    swapped = changed(decided(3, signing), receipt=real.asked.receipt)
    for each in (forged, swapped, real, real):
        keeping.log.record_changed(each)
    await keeping.log.caught_up()
    keeping.log.record_changed(real)
    await keeping.log.caught_up()
    (line,) = await keeping.lines()
    assert line["receipt"] == real.asked.receipt
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


async def test_old_decisions_lose_receipt_and_text_and_the_oldest_entries_are_cut_off(
    keeping: Keeping, ledger: DatabaseLedger, signing: Signing, clock: ManualClock
) -> None:
    def put(number: int) -> Any:
        return lambda book: book.put(decided(number, signing))

    keeping.log.record_changed(await ledger.transact(OfIssue(42), put(1)))
    await keeping.log.caught_up()
    await clock.advance(KEEP.total_seconds() / 2)
    await keeping.log.forget()
    assert await keeping.kinds() == ["decision"]

    await clock.advance(KEEP.total_seconds())
    await keeping.log.forget()
    await keeping.log.caught_up()
    assert await keeping.kinds() == ["decision", "forgotten"]
    assert (await keeping.lines())[0]["receipt"] is None
    assert await keeping.store.read("select * from decision_texts") == []
    assert (await keeping.check()).gone == 1

    await clock.advance(KEEP.total_seconds())
    at = clock.now()
    late = changed(decided(2, signing), answered_at=at, resolved_at=at)
    keeping.log.record_changed(await ledger.transact(OfIssue(42), lambda book: book.put(late)))
    await keeping.log.caught_up()
    await keeping.log.forget()
    assert await keeping.kinds() == ["forgotten", "decision", "cut"]
    keeping.log.forgotten()
    first = await ledger.find("CLR-42-001")
    keeping.log.record_changed(first)  # as a start that compares the ledgers with the log
    await keeping.log.caught_up()
    assert await keeping.kinds() == ["forgotten", "decision", "cut"]
    found = await keeping.check()
    assert (found.first, found.decisions) == (2, 1)


async def test_restored_records_are_compared_with_the_log_once(
    store: Store, ledger: DatabaseLedger, signing: Signing, clock: ManualClock, tmp_path: Path
) -> None:
    record = changed(decided(1, signing), status="resolved", reply="delivered")
    await ledger.transact(OfIssue(42), lambda book: book.put(record))
    await clock.advance(2 * 86_400)
    audiences = Audiences(settings(tmp_path))

    async def logged() -> list[str]:
        async with running(
            DecisionLog(ledger=ledger, store=store, signing=signing, audiences=audiences, clock=clock)
        ) as made:
            await made.caught_up()
        rows = await store.read("select jti from decisions")
        await store.run("delete from decisions")
        await store.run("delete from decision_texts")
        return [row["jti"] for row in rows]

    assert await logged() == ["CLR-42-001/1"]
    assert await logged() == []  # what ended long before is in the log already…
    await ledger.transact(OfIssue(42), lambda book: book.put(decided(2, signing)))
    assert await logged() == ["CLR-42-002/1"]  # what is not over may have ended since
    await store.write(log.compare_again)  # all are compared again once the records were restored
    assert await logged() == ["CLR-42-001/1", "CLR-42-002/1"]


def test_texts_over_two_kilobytes_come_from_the_record(signing: Signing) -> None:
    long = "Send this newsletter. " * 200
    record = decided(1, signing, question=long)
    receipt = signing.made(record)
    assert receipt is not None
    (ended,) = log.ended_in(changed(record, receipt=receipt))
    texts = texts_of(ended)
    assert texts["question"].strip() == long.strip()
