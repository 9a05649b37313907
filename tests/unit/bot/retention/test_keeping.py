"""The daily round: which ledgers move, what is swept, and that trouble with one holds up nothing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

import pytest

from bot.delivery.retained import Retained
from bot.retention.keeping import Retention
from bot.storage.store import Store
from core.clarification import Clarification, abandoned
from core.index import Index, summarize
from core.ledger import FileLedger
from tests.kit.builders import NOW, record
from tests.kit.clocks import ManualClock
from tests.kit.until import until

MONTH = timedelta(days=30)


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    opened = await Store.open(tmp_path / "clarify.db")
    yield opened
    await opened.close()


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[FileLedger]:
    folder = tmp_path / "ledgers"
    folder.mkdir()
    made = FileLedger(folder)
    yield made
    made.close()


def retention(
    ledger: FileLedger, store: Store, clock: ManualClock, index: Index, keep: timedelta | None = MONTH
) -> Retention:
    return Retention(
        ledger=ledger,
        retained=Retained(store),
        index=index,
        clock=clock,
        archive_after=MONTH,
        keep=keep,
    )


async def put(ledger: FileLedger, made: Clarification) -> None:
    await ledger.transact(made.issue_number, lambda book: book.put(made))


async def test_run_archives_at_the_start_and_a_day_later(ledger: FileLedger, store: Store) -> None:
    clock = ManualClock(NOW + MONTH + timedelta(hours=12))
    await put(ledger, abandoned(record(1), "expired", NOW))
    await put(ledger, abandoned(record(2), "expired", NOW + timedelta(days=1)))
    await put(ledger, record(3))
    task = asyncio.create_task(retention(ledger, store, clock, Index()).run())
    try:
        await until(lambda: clock.sleeping)
        assert sorted(ledger.issues()) == [2, 3]
        await clock.advance(86_400)
        await until(lambda: sorted(ledger.issues()) == [3])
        await until(lambda: clock.sleeping)
        assert clock.slept == [86_400.0, 86_400.0]
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def test_tidy_goes_on_after_a_ledger_that_cannot_be_read(ledger: FileLedger, store: Store) -> None:
    clock = ManualClock(NOW + MONTH)
    ledger.path(1).write_text("{ broken")
    await put(ledger, abandoned(record(2), "expired", NOW))
    await retention(ledger, store, clock, Index()).tidy()
    assert list(ledger.issues()) == []  # the broken one was set aside, the other one archived
    assert [issue for issue, _ in ledger.archive.files()] == [2]


async def rows(store: Store) -> int:
    return len(await store.read("select 1 from messages"))


@pytest.mark.parametrize(("keep", "left"), [(None, 2), (MONTH, 1)])
async def test_tidy_keeps_what_is_open_and_everything_without_keep(
    ledger: FileLedger, store: Store, keep: timedelta | None, left: int
) -> None:
    index, waiting = Index(), record(1)
    index.put(summarize(waiting))
    for number, about in enumerate([waiting.id, "CLR-2-001"]):
        await store.execute(
            """insert into messages (key, kind, clarification, target, channel, ts, final)
               values (?, 'card', ?, 'C', 'C', ?, 1)""",
            f"card:{about}:1",
            about,
            f"{NOW.timestamp() + number:.6f}",
        )
    clock = ManualClock(NOW + MONTH + timedelta(days=1))
    await retention(ledger, store, clock, index, keep).tidy()
    assert await rows(store) == left
