"""What the router and the bot rely on of ledgers, on either database."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, aclosing, suppress
from pathlib import Path
from typing import Any, NoReturn

import pytest

from bot.errors import StorageSilent
from bot.storage.ledger import DatabaseLedger, LockedError
from bot.storage.store import Store
from bot.storage.tx import Query, Row, Tx, Work
from core.clarification import Clarification
from core.errors import LedgersAway, LedgerUnreadable, LedgerUnwritable, LockTimeout, NotFound
from core.index import scan
from core.ledger import LOCK_TIMEOUT, Ledger
from core.records import Book, Raw
from tests.kit.builders import record
from tests.kit.clocks import ManualClock
from tests.kit.databases import Server, Wire, row_held
from tests.kit.ledgers import kept_ledger
from tests.kit.until import until

Another = Callable[[], Awaitable[Ledger]]


def add(book: Book) -> Clarification:
    return book.put(record(book.issue, book.next_seq()))


def over(_: list[Raw]) -> bool:
    return True


async def on_rows(url: str, stack: AsyncExitStack) -> DatabaseLedger:
    return await stack.enter_async_context(kept_ledger(url))


@pytest.fixture(params=["SQLite", "PostgreSQL"])
async def another(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Another]:
    """Opens the same ledgers again, as another process would."""
    is_sqlite = request.param == "SQLite"
    place = tmp_path if is_sqlite else request.getfixturevalue("postgres_server").new()
    async with AsyncExitStack() as stack:
        yield lambda: stack.enter_async_context(kept_ledger(place))


@pytest.fixture
async def ledger(another: Another) -> Ledger:
    return await another()


async def test_what_was_decided_is_what_others_read(ledger: Ledger, another: Another) -> None:
    told: list[str] = []
    made = await ledger.transact(7, add, written=lambda: told.append("written"))
    assert (made.id, told) == ("CLR-7-001", ["written"])
    other = await another()
    assert await other.find(made.id, 7) == made
    assert await other.read(8) == []
    with pytest.raises(NotFound):
        await other.find("CLR-7-002", 7)
    assert [await other.live(), (await scan(other)).highest_issue] == [[7], 7]


async def test_a_decision_that_raises_writes_nothing(ledger: Ledger) -> None:
    def fails(book: Book) -> None:
        add(book)
        raise ValueError("mine")

    done = asyncio.gather(
        ledger.transact(7, add), ledger.transact(7, fails), ledger.transact(8, add), return_exceptions=True
    )
    assert [type(each) for each in await done] == [Clarification, ValueError, Clarification]
    assert [len(await ledger.read(issue)) for issue in (7, 8)] == [1, 1]


async def test_issue_is_found_and_more_is_written_in_the_same_transaction(ledger: Ledger) -> None:
    assert isinstance(ledger, DatabaseLedger)

    def found(tx: Tx) -> int:
        tx.run("insert into onces (key) values ('found')")
        return 7

    def along(tx: Tx, made: Clarification) -> None:
        tx.run("insert into onces (key) values (:id)", id=made.id)

    def fails(*_: object) -> NoReturn:
        raise ValueError("mine")

    async def noted() -> set[str]:
        return {row["key"] for row in await ledger.store.read("select key from onces")}

    with pytest.raises(ValueError, match="mine"):
        await ledger.transact(fails, add)
    with pytest.raises(ValueError, match="mine"):
        await ledger.transact(found, add, along=fails)
    assert ([await ledger.read(7), await noted()]) == [[], set()]
    made = await ledger.transact(found, add, along=along)
    assert (made.id, await noted()) == ("CLR-7-001", {"found", made.id})
    assert await ledger.news(7) is None, "our own write is no news"


async def test_part_whose_lock_another_has_is_tried_again(ledger: Ledger) -> None:
    tries: list[str] = []

    def found(_: Tx) -> int:
        tries.append("")
        if len(tries) < 3:
            raise LockedError
        return 7

    done = asyncio.gather(ledger.transact(found, add), ledger.transact(8, add))
    assert [made.id for made in await done] == ["CLR-7-001", "CLR-8-001"]

    def never(_: Tx) -> int:
        raise LockedError

    with pytest.raises(LockTimeout, match="a new question was locked"):
        await ledger.transact(never, add, 0.05)


async def test_numbers_are_given_out_once(ledger: Ledger, another: Another) -> None:
    many = [ledger, await another(), await another()]
    made = await asyncio.gather(*(many[n % 3].transact(7, add, 30) for n in range(60)))
    assert sorted(each.id for each in made) == [f"CLR-7-{n:03}" for n in range(1, 61)]
    await ledger.transact(7, lambda book: book.raw["clarifications"].clear() or book.changed.append(made[0]))  # type: ignore[func-returns-value]
    assert (await ledger.transact(7, add)).id == "CLR-7-061", "none is given out again"


async def test_two_that_hold_what_the_other_wants_both_go_on(ledger: Ledger, another: Another) -> None:
    other = await another()
    await asyncio.gather(
        *(ledger.transact(issue, add, 30) for issue in (1, 2, 3, 4) * 10),
        *(other.transact(issue, add, 30) for issue in (4, 3, 2, 1) * 10),
    )
    assert [len(await ledger.read(issue)) for issue in (1, 2, 3, 4)] == [20] * 4


async def test_a_caller_that_is_gone_does_not_undo(ledger: Ledger) -> None:
    told: list[str] = []
    task = asyncio.create_task(ledger.transact(7, add, written=lambda: told.append("written")))
    await until(lambda: not task.done())
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await ledger.transact(7, add)
    assert len(await ledger.read(7)) == 2
    await until(lambda: told)


async def test_a_caller_that_is_gone_leaves_no_error_that_nobody_looks_at(ledger: Ledger) -> None:
    complaints: list[str] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, told: complaints.append(told["message"]))
    decided = threading.Event()

    def fails(_: Book) -> None:
        decided.set()
        raise ValueError("mine")

    with suppress(TimeoutError):
        async with asyncio.timeout(0):
            await ledger.transact(7, fails)
    await until(decided.is_set)
    await ledger.transact(7, add)  # after which the one before is over
    gc.collect()
    assert complaints == []


async def test_news_are_what_others_wrote(ledger: Ledger, another: Another) -> None:
    assert await ledger.news(7) == []
    await ledger.transact(7, add)
    assert await ledger.news(7) is None, "our own write is no news"
    other = await another()
    await other.transact(7, add)
    assert len(await ledger.news(7) or []) == 2
    assert await ledger.news(7) is None
    await other.transact(7, add)
    await ledger.transact(7, add)
    assert len(await ledger.news(7) or []) == 4, "our write on top of another's does not hide it"
    assert await ledger.news(7) is None
    ledger.forget(7)
    assert len(await ledger.news(7) or []) == 4
    await other.transact(7, lambda book: book.records)
    assert await ledger.news(7) is None, "nothing was changed"


@pytest.mark.parametrize("issue", [7, lambda _: 7], ids=["named", "found"])
async def test_own_write_is_no_news_before_it_is_known_to_be_done(
    postgres_server: Server, monkeypatch: pytest.MonkeyPatch, issue: int | Callable[[Any], int]
) -> None:
    """The database tells of a COMMIT at once; its answer may come later."""
    answered = asyncio.Event()
    write = Store.write

    async def slowly(self: Store, work: Work[Any]) -> Any:
        result = await write(self, work)
        await answered.wait()
        return result

    async with AsyncExitStack() as stack:
        url = postgres_server.new()
        ledger, other = await on_rows(url, stack), await on_rows(url, stack)
        monkeypatch.setattr(Store, "write", slowly)
        writing = asyncio.create_task(ledger.transact(issue, add))
        while not await other.read(7):  # noqa: ASYNC110 - committed
            await asyncio.sleep(0.01)
        news = asyncio.create_task(ledger.news(7))
        await asyncio.wait({news}, timeout=0.1)
        answered.set()
        await writing
        assert await news is None


async def test_changes_begin_with_what_was_written_before(ledger: Ledger, another: Another) -> None:
    other = await another()
    await ledger.transact(6, add)
    await other.transact(7, add)
    async with aclosing(ledger.changes(ManualClock())) as changes:
        assert await anext(changes) == [7]
        assert len(await ledger.news(7) or []) == 1
        await other.transact(8, add)
        async with asyncio.timeout(20):
            async for written in changes:
                if 8 in written:
                    break


async def test_who_waits_is_woken_by_whomever_writes(ledger: Ledger, another: Another) -> None:
    other = await another()
    async with aclosing(ledger.changes(ManualClock())) as changes, ledger.woken(7) as event:
        await anext(changes)
        listening = asyncio.ensure_future(anext(changes))
        await other.transact(7, add)
        async with asyncio.timeout(20):
            await event.wait()
        event.clear()
        await ledger.transact(7, add)
        async with asyncio.timeout(20):
            await event.wait()
        listening.cancel()
        await asyncio.gather(listening, return_exceptions=True)


async def test_archived_ledgers_are_read_and_come_back(ledger: Ledger, another: Another) -> None:
    await ledger.transact(7, add)
    await ledger.transact(8, add)
    assert not await ledger.shelve(7, lambda _: False)
    assert await ledger.shelve(7, over)
    assert not await ledger.shelve(7, over)
    assert not await ledger.shelve(9, over)
    other = await another()
    found = await scan(other)
    assert ([each.id for each in found.records], found.highest_issue) == (["CLR-8-001"], 8)
    assert [await other.live(), len(await other.read(7))] == [[8], 1]
    assert await other.transact(7, lambda book: len(book.records)) == 1
    assert await other.live() == [8], "who only looks brings nothing back"
    assert (await other.transact(7, add)).id == "CLR-7-002"
    assert len(await ledger.read(7)) == 2, "the whole ledger came back"
    assert await ledger.live() == [7, 8]
    assert await ledger.latest(1) == [7]


async def test_every_issue_is_read_once_whether_it_is_archived_or_not(ledger: Ledger) -> None:
    for issue in (9, 7, 8):
        await ledger.transact(issue, add)
    await ledger.shelve(8, over)

    async def ids(**which: Any) -> list[str]:
        found = [kept async for kept in ledger.every(**which)]
        assert not any(kept.problems for kept in found)
        return [item["id"] for kept in found for _, items in kept.parts for item in items]

    assert await ids(archived=False) == ["CLR-7-001", "CLR-9-001"]
    assert set(await ids()) == {"CLR-7-001", "CLR-8-001", "CLR-9-001"}
    assert set(await ids(issue=8)) == {"CLR-8-001"} == set(await ids(issue=8, archived=False))
    assert await ids(issue=10) == []


async def test_a_row_that_somebody_holds_is_a_lock(postgres_server: Server) -> None:
    url = postgres_server.new()
    async with AsyncExitStack() as stack:
        ledger = await on_rows(url, stack)
        await ledger.transact(7, add)
        with row_held(url, 7):
            with pytest.raises(LockTimeout, match=r"locked for 0\.1 s by another bot"):
                await ledger.transact(7, add, 0.1)
            assert len(await ledger.read(7)) == 1
            await ledger.transact(8, add)
            assert LOCK_TIMEOUT == 2.0, "then a person is told that it is busy: Slack allows three"
            waiting = asyncio.create_task(ledger.transact(7, add, 60))
        assert (await waiting).id == "CLR-7-002", "who gave up wrote nothing later"


async def test_a_database_that_is_away_says_so_and_comes_back(postgres_server: Server) -> None:
    url = postgres_server.new()
    wire = Wire(postgres_server, url)
    async with AsyncExitStack() as stack:
        stack.callback(wire.close)
        ledger = await on_rows(wire.url, stack)
        await ledger.transact(7, add)
        changes = await stack.enter_async_context(aclosing(ledger.changes(ManualClock())))
        await anext(changes)
        wire.blocked = True
        wire.cut()
        with pytest.raises(LedgerUnwritable, match="Nothing was stored"):
            await ledger.transact(7, add)
        for call in (ledger.read(7), ledger.live(), ledger.news(7)):
            with pytest.raises(LedgersAway, match="is unavailable"):
                await call
        assert await ledger.store.trouble()
        assert [type(each) for each in (await scan(ledger)).troubles] == [LedgersAway]
        other = await on_rows(url, stack)
        await other.transact(7, add)
        wire.blocked = False
        async with asyncio.timeout(20):
            async for written in changes:
                if 7 in written:
                    break
        assert len(await ledger.news(7) or []) == 2


async def test_changes_that_cannot_be_read_at_once_are_read_without_further_changes(
    postgres_server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = postgres_server.new()
    async with AsyncExitStack() as stack:
        ledger, other = await on_rows(url, stack), await on_rows(url, stack)
        await other.transact(7, add)
        fetch, refused = ledger.store._database.fetch, list[Query]()

        async def once_silent(queries: Sequence[Query]) -> list[list[Row] | Exception]:
            if refused:
                return await fetch(queries)
            refused.extend(queries)
            return [StorageSilent()] * len(queries)

        monkeypatch.setattr(ledger.store._database, "fetch", once_silent)
        changes = await stack.enter_async_context(aclosing(ledger.changes(ManualClock())))
        async with asyncio.timeout(20):
            assert await anext(changes) == [7]
        assert refused


async def test_a_row_that_is_no_ledger_is_told(postgres_server: Server) -> None:
    async with AsyncExitStack() as stack:
        ledger = await on_rows(postgres_server.new(), stack)
        await ledger.transact(7, add)
        await ledger.transact(8, add)
        await ledger.store.run("update ledgers set body = '[' where issue = 7")
        with pytest.raises(LedgerUnreadable, match="issue 7 is not a valid ledger"):
            await ledger.transact(7, add)
        found = await scan(ledger)
        assert [str(each)[:29] for each in found.troubles] == ["The ledger issue-7.json of is"]
        assert [each.id for each in found.records] == ["CLR-8-001"]
