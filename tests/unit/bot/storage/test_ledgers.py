"""What the router and the bot rely on of records, on either database."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractContextManager, AsyncExitStack, aclosing
from pathlib import Path
from typing import Any

import psycopg
import pytest

from bot.errors import StorageSilent
from bot.storage import ledger as storage
from bot.storage.ledger import DatabaseLedger, LockedError, fill, leave_out_numbers
from bot.storage.store import Store
from bot.storage.tx import Query, Row, Tx, Work
from core.clarification import Ask, Clarification, Direct
from core.errors import (
    BadInput,
    LedgersAway,
    LedgerUnreadable,
    LedgerUnwritable,
    LockTimeout,
    NotFound,
    RecordUnreadable,
)
from core.ledger import LOCK_TIMEOUT, Asking, Ledger, OfIssue, OfRecord, OfSession, Reach
from core.matching import session_asking
from core.records import Book
from core.summary import Summary
from core.transitions import opened
from tests.kit.builders import MINUTE, NOW, SLA, ask, changed, closed, record
from tests.kit.databases import Server, Wire, change_rows, row_held
from tests.kit.ledgers import held, kept_ledger
from tests.kit.until import until

Another = Callable[[], Awaitable[DatabaseLedger]]
Place = Path | str


async def loaded(ledger: Ledger) -> list[Summary]:
    return [each async for some in ledger.load() for each in some]


def add(book: Book) -> Clarification:
    return book.put(record(book.issue, book.next_seq()))


def again(book: Book) -> Clarification:
    return book.put(book.records[0])


def ids(records: Sequence[Clarification]) -> list[str]:
    return [each.id for each in records]


def seen(book: Book) -> list[str]:
    return ids(book.records)


def between(topic: str) -> Ask:
    """What one agent asks another."""
    nobody = ("producer", "session_id", "reply_token", "asked_at", "expires_at")
    return ask(
        agent_id="engineer", to="architect", topic=topic, event_id=f"evt_{topic}", **dict.fromkeys(nobody)
    )


def told_between(issue: int, seq: int, topic: str) -> Clarification:
    return opened(issue, seq, between(topic), NOW, SLA)


async def on_rows(url: str, stack: AsyncExitStack) -> DatabaseLedger:
    return await stack.enter_async_context(kept_ledger(url))


async def write(ledger: DatabaseLedger, *records: Clarification, **numbers: int) -> None:
    await ledger.store.write(lambda tx: fill(tx, records, {int(name[1:]): n for name, n in numbers.items()}))


@pytest.fixture(params=["SQLite", "PostgreSQL"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    if request.param == "SQLite":
        return tmp_path
    url: str = request.getfixturevalue("postgres_server").new()
    return url


@pytest.fixture
async def another(place: Place) -> AsyncIterator[Another]:
    """Opens the same records again, as another process would."""
    async with AsyncExitStack() as stack:
        yield lambda: stack.enter_async_context(kept_ledger(place))


@pytest.fixture
async def ledger(another: Another) -> DatabaseLedger:
    return await another()


@pytest.fixture
def hold(place: Place) -> Callable[[str], AbstractContextManager[None]]:
    """Has another process hold a lock."""
    return lambda name: held(name) if isinstance(place, Path) else row_held(place, name)


async def test_what_was_decided_is_what_others_read(ledger: Ledger, another: Another) -> None:
    told: list[str] = []
    made = await ledger.transact(OfIssue(7), add, written=lambda: told.append("written"))
    assert (made.id, told) == ("CLR-7-001", ["written"])
    other = await another()
    assert await other.find(made.id) == made
    assert [(await other.read(7)).records, (await other.read(8)).records] == [[made], []]
    assert await other.by_token("planner", "rpl_1") == made
    for call in (other.find("CLR-7-002"), other.by_token("planner", "rpl_2"), other.by_token("x", "rpl_1")):
        with pytest.raises(NotFound):
            await call
    with pytest.raises(BadInput, match="CLR-42-001"):
        await other.find("7")


async def test_what_is_written_along_is_written_with_the_decision_or_not_at_all(
    ledger: DatabaseLedger,
) -> None:
    def find(tx: Tx) -> int:
        tx.run("insert into counters (name, value) values ('found', 7)")
        return 7

    def along(tx: Tx, made: Clarification) -> None:
        tx.run("insert into counters (name, value) values (:id, 1)", id=made.id)

    def fails(tx: Tx, made: Clarification) -> None:
        along(tx, made)
        raise ValueError("mine")

    async def counted() -> list[str]:
        rows = await ledger.store.read(
            "select name from counters where name in ('found', 'CLR-7-001') order by 1"
        )
        return [row["name"] for row in rows]

    def never(_: Tx) -> int:
        raise ValueError("mine")

    for issue, beside in ((never, along), (find, fails)):
        with pytest.raises(ValueError, match="mine"):
            await ledger.transact(Asking(issue, [ask()]), add, along=beside)
    assert [(await ledger.read(7)).records, await counted()] == [[], []]
    await ledger.transact(Asking(find, [ask()]), add, along=along)
    assert [len((await ledger.read(7)).records), sorted(await counted())] == [1, ["CLR-7-001", "found"]]
    assert await ledger.news("CLR-7-001") is None, "our own write is no news"


async def test_part_whose_lock_another_has_is_tried_again(ledger: Ledger) -> None:
    tries: list[str] = []

    def find(_: Tx) -> int:
        tries.append("")
        if len(tries) < 3:
            raise LockedError
        return 7

    done = asyncio.gather(ledger.transact(Asking(find, [ask()]), add), ledger.transact(OfIssue(8), add))
    assert ids(await done) == ["CLR-7-001", "CLR-8-001"]

    def never(_: Tx) -> int:
        raise LockedError

    with pytest.raises(LockTimeout, match="A new question was locked"):
        await ledger.transact(Asking(never, [ask()]), add, 0.05)


# -- what a decision reads and locks -----------------------------------------------------------------------------------

LATER = NOW + MINUTE
RECORDS = [
    record(7, 1),
    closed(2).model_copy(update={"id": "CLR-7-002", "issue_number": 7}),
    told_between(7, 3, "storage"),
    record(8, 1, reply_token="rpl_2"),
    record(8, 2, session_id="sess_2"),
    record(8, 3, producer="writer"),
    told_between(8, 4, "storage"),
    told_between(8, 5, "rollout"),
]
READS: dict[str, tuple[Reach, list[str]]] = {
    "one": (OfRecord("CLR-7-001"), ["CLR-7-001"]),
    "one that is not there": (OfRecord("CLR-9-001"), []),
    "a session's open ones, whatever their issue": (
        OfSession("planner", "sess_1", LATER),
        ["CLR-7-001", "CLR-8-001"],
    ),
    "and those that ended since": (
        OfSession("planner", "sess_1", NOW),
        ["CLR-7-001", "CLR-7-002", "CLR-8-001"],
    ),
    "an issue": (OfIssue(7), ["CLR-7-001", "CLR-7-002", "CLR-7-003"]),
    "all of the session that asks, whatever their issue": (
        Asking(8, [ask(reply_token="new")]),
        ["CLR-7-001", "CLR-7-002", "CLR-8-001"],
    ),
    "all of each session that asks": (
        Asking(9, [ask(session_id="sess_2"), ask(producer="writer")]),
        ["CLR-8-002", "CLR-8-003"],
    ),
    "what one agent asked another about it, in the issue": (Asking(8, [between(" Storage ")]), ["CLR-8-004"]),
    "what was asked directly, with its token": (
        Asking(8, [ask(reply_token="rpl_2", direct=Direct(kind="text"))]),
        ["CLR-8-001"],
    ),
}


@pytest.mark.parametrize("case", READS)
async def test_a_decision_reads(ledger: DatabaseLedger, case: str) -> None:
    reach, expected = READS[case]
    await write(ledger, *RECORDS, _7=3, _8=5)
    assert await ledger.transact(reach, seen) == expected
    if isinstance(reach, Asking | OfIssue) and isinstance(reach.issue, int):
        next_one = {7: 4, 8: 6, 9: 1}[reach.issue]
        assert await ledger.transact(reach, lambda book: (book.issue, book.next_seq())) == (
            reach.issue,
            next_one,
        )


_storage = session_asking(between("storage"))[1]
LOCKS: list[tuple[Reach, set[str]]] = [
    (OfRecord("CLR-7-001"), {"CLR-7-001"}),
    (OfSession("planner", "sess_1", NOW), {"session planner sess_1"}),
    (OfIssue(7), {"issue 7"}),
    (Asking(7, [ask(), ask(producer="writer")]), {"session planner sess_1", "session writer sess_1", "issue 7"}),
    (Asking(7, [between("storage")]), {f"session 7 {_storage}", "issue 7"}),
    (Asking(8, [between("storage")]), {f"session 8 {_storage}", "issue 8"}),
]  # fmt: skip


async def test_a_decision_locks_no_more_than_it_needs(
    ledger: Ledger, hold: Callable[[str], AbstractContextManager[None]]
) -> None:
    async def locked(reach: Reach) -> bool:
        try:
            await ledger.transact(reach, seen, 0)
        except LockTimeout:
            return True
        return False

    for name in sorted(set().union(*(names for _, names in LOCKS))):
        with hold(name):
            assert [await locked(reach) for reach, _ in LOCKS] == [name in names for _, names in LOCKS], name


async def test_what_is_written_is_locked_too(
    ledger: Ledger, hold: Callable[[str], AbstractContextManager[None]]
) -> None:
    await ledger.transact(OfIssue(7), add)
    reach = OfSession("planner", "sess_1", NOW)
    with hold("CLR-7-001"):
        assert await ledger.transact(reach, seen) == ["CLR-7-001"], "who only looks needs no lock of it"
        with pytest.raises(LockTimeout, match="Session sess_1 was locked"):
            await ledger.transact(reach, again, 0)
    assert (await ledger.transact(reach, again)).revision == 2


@pytest.mark.parametrize(
    ("name", "reach", "said"),
    [
        ("CLR-7-001", OfRecord("CLR-7-001"), "CLR-7-001"),
        ("session planner sess_1", OfSession("planner", "sess_1", NOW), "Session sess_1"),
        ("issue 7", OfIssue(7), "Issue 7"),
        ("session planner sess_1", Asking(7, [ask()]), "Issue 7"),
    ],
)
async def test_what_another_process_holds_is_tried_again_until_patience_ends(
    ledger: Ledger, hold: Callable[[str], AbstractContextManager[None]], name: str, reach: Reach, said: str
) -> None:
    await ledger.transact(OfIssue(7), add)
    with hold(name):
        with pytest.raises(LockTimeout, match=rf"^{said} was locked for 0\.1 s by another bot"):
            await ledger.transact(reach, again, 0.1)
        assert [each.revision for each in (await ledger.read(7)).records] == [1]
        await ledger.transact(OfIssue(8), add)
        assert LOCK_TIMEOUT == 2.0, "then a person is told that it is busy: Slack allows three"
        waiting = asyncio.create_task(ledger.transact(reach, again, 60))
        await ledger.transact(OfIssue(8), add)  # by then it has tried
    assert (await waiting).revision == 2, "who gave up wrote nothing later"


async def test_a_write_whose_record_was_changed_since_it_was_read_is_decided_again(
    postgres_server: Server,
) -> None:
    """A session's lock is not that of its records. SQLite has one writer."""
    url, found = postgres_server.new(), list[str]()

    def decide(book: Book) -> Clarification:
        (before,) = book.records
        if not found:
            change_rows(url, 7, lambda records: [each | {"topic": "of another"} for each in records])
        found.append(before.topic)
        return book.put(before.model_copy(update={"status": "stale"}))

    async with AsyncExitStack() as stack:
        ledger = await on_rows(url, stack)
        before = await ledger.transact(OfIssue(7), add)
        made = await ledger.transact(OfSession("planner", "sess_1", NOW), decide)
        assert found == [before.topic, "of another"]
        assert await ledger.find("CLR-7-001") == made
        assert (made.topic, made.status, made.revision) == ("of another", "stale", 3)


async def test_a_question_is_compared_with_the_newest_of_its_session_and_with_its_token(
    ledger: DatabaseLedger,
) -> None:
    count = storage._LATEST + 3
    unsettled = [record(7, n, reply_token=f"open_{n}") for n in range(1, count + 1)]
    over = [
        closed(n, reply_token=f"over_{n}").model_copy(
            update={"id": f"CLR-7-{count + n:03d}", "issue_number": 7, "resolved_at": NOW + n * MINUTE}
        )
        for n in range(1, count + 1)
    ]
    await write(ledger, *unsettled, *over)
    for token, with_token in (("open_2", unsettled[1]), ("over_2", over[1])):
        found = await ledger.transact(Asking(7, [ask(reply_token=token)]), seen)
        assert set(found) == {with_token.id, *ids(unsettled[3:]), *ids(over[3:])}
        assert len(found) == 2 * storage._LATEST + 1
    assert storage._LATEST == 200


async def test_two_that_hold_what_the_other_wants_both_go_on(ledger: Ledger, another: Another) -> None:
    other = await another()
    one, two = ask(session_id="one"), ask(session_id="two")
    await asyncio.gather(
        *(ledger.transact(Asking(issue, [one, two]), add, 30) for issue in (1, 2, 3, 4) * 10),
        *(other.transact(Asking(issue, [two, one]), add, 30) for issue in (4, 3, 2, 1) * 10),
    )
    assert [len((await ledger.read(issue)).records) for issue in (1, 2, 3, 4)] == [20] * 4


# -- numbers -----------------------------------------------------------------------------------------------------------


async def test_numbers_are_given_out_once(ledger: DatabaseLedger, another: Another) -> None:
    many = [ledger, await another(), await another()]
    made = await asyncio.gather(*(many[n % 3].transact(OfIssue(7), add, 30) for n in range(60)))
    assert sorted(ids(made)) == [f"CLR-7-{n:03}" for n in range(1, 61)]
    await ledger.store.run("delete from clarifications where issue = 7")
    assert (await ledger.transact(OfIssue(7), add)).id == "CLR-7-061", "none is given out again"


async def test_numbers_that_are_left_out_are_not_given_out_in_any_issue(ledger: DatabaseLedger) -> None:
    """A restored database does not know what was asked since it was copied."""
    await ledger.transact(OfIssue(7), add)
    for _ in range(2):
        await ledger.store.write(lambda tx: leave_out_numbers(tx, 1000))
    made = [await ledger.transact(Asking(issue, [ask()]), add) for issue in (7, 7, 8, 8)]
    assert ids(made) == ["CLR-7-2002", "CLR-7-2003", "CLR-8-2001", "CLR-8-2002"]


# -- callers that leave ------------------------------------------------------------------------------------------------


async def test_a_caller_that_is_gone_does_not_undo(ledger: Ledger) -> None:
    told: list[str] = []
    task = asyncio.create_task(ledger.transact(OfIssue(7), add, written=lambda: told.append("written")))
    await until(lambda: not task.done())
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await ledger.transact(OfIssue(7), add)
    assert len((await ledger.read(7)).records) == 2
    await until(lambda: told)


# -- what others write -------------------------------------------------------------------------------------------------


async def test_news_are_what_others_wrote(ledger: Ledger, another: Another) -> None:
    with pytest.raises(NotFound):
        await ledger.news("CLR-7-001")
    mine = await ledger.transact(OfIssue(7), add)
    assert await ledger.news(mine.id) is None, "our own write is no news"
    other = await another()
    assert await other.news(mine.id) == mine
    theirs = await other.transact(OfRecord(mine.id), again)
    assert await ledger.news(mine.id) == theirs
    assert await other.news(mine.id) is None
    await other.transact(OfRecord(mine.id), seen)
    assert await ledger.news(mine.id) == theirs, "nothing was changed"
    await ledger.transact(OfRecord(mine.id), again)
    assert await ledger.news(mine.id) is None, "we decided on top of it"


@pytest.mark.parametrize("reach", [OfIssue(7), Asking(lambda _: 7, [ask()])], ids=["named", "found"])
async def test_own_write_is_no_news_before_it_is_known_to_be_done(
    postgres_server: Server, monkeypatch: pytest.MonkeyPatch, reach: Reach
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
        writing = asyncio.create_task(ledger.transact(reach, add))
        while not (await other.read(7)).records:  # noqa: ASYNC110 - committed
            await asyncio.sleep(0.01)
        news = asyncio.create_task(ledger.news("CLR-7-001"))
        await asyncio.wait({news}, timeout=0.1)
        answered.set()
        await writing
        assert await news is None


async def test_changes_are_what_others_wrote_since_it_was_loaded(ledger: Ledger, another: Another) -> None:
    other = await another()
    await other.transact(OfIssue(5), add)
    await loaded(ledger)
    await ledger.transact(OfIssue(6), add)
    await other.transact(OfIssue(7), add)
    async with aclosing(ledger.changes()) as changes:
        assert await anext(changes) == ["CLR-7-001"]
        await ledger.transact(OfIssue(6), add)
        await other.transact(OfIssue(8), add)
        told = set[str]()
        async with asyncio.timeout(20):
            async for names in changes:
                told |= set(names)
                if "CLR-8-001" in told:
                    break
        assert told == {"CLR-8-001"}, "not our own, and each once"


async def test_changes_are_told_once_while_another_transaction_runs(postgres_server: Server) -> None:
    """As a dump does for minutes: until its end, one that was open before may still be committed."""
    url = postgres_server.new()
    async with AsyncExitStack() as stack:
        ledger, other = await on_rows(url, stack), await on_rows(url, stack)
        await loaded(ledger)
        long = stack.enter_context(psycopg.connect(url))
        long.execute("select pg_current_xact_id()")
        await other.transact(OfIssue(7), add)
        since, first = await ledger._changed(ledger._loaded)
        _, second = await ledger._changed(since)
        assert first == second == [("CLR-7-001", 1)]
        assert [ledger._report(each) for each in (first, second)] == [["CLR-7-001"], []]


async def test_who_waits_is_woken_by_whomever_writes(ledger: Ledger, another: Another) -> None:
    other = await another()
    async with aclosing(ledger.changes()) as changes, ledger.woken("CLR-7-001") as event:
        await anext(changes)
        listening = asyncio.ensure_future(anext(changes))
        await other.transact(OfIssue(7), add)
        async with asyncio.timeout(20):
            await event.wait()
        event.clear()
        await ledger.transact(OfIssue(8), add)
        assert not event.is_set(), "another record"
        await ledger.transact(OfRecord("CLR-7-001"), again)
        async with asyncio.timeout(20):
            await event.wait()
        listening.cancel()
        await asyncio.gather(listening, return_exceptions=True)


# -- reading many ------------------------------------------------------------------------------------------------------


async def test_every_record_is_read_once_in_order(
    ledger: DatabaseLedger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(storage, "_PAGE", 2)
    await write(ledger, *reversed(RECORDS))

    async def found(**which: Any) -> list[str]:
        return [name async for some in ledger.every(**which) for name in ids(some.records)]

    everything = ids(RECORDS)
    assert await found() == everything
    assert await found(issue=7) == everything[:3]
    assert await found(issue=10) == []
    assert await found(after=(7, 2)) == everything[2:]
    assert await found(since=NOW) == everything
    without = [name for name in everything if name != "CLR-7-002"]
    assert await found(since=LATER) == await found(waiting=True) == without
    assert [each.id for each in await loaded(ledger)] == without


async def test_a_token_means_the_newest_question_with_it(ledger: DatabaseLedger) -> None:
    await write(ledger, record(8, 2), record(7, 9), record(8, 1), record(9, 1, producer="writer"))
    assert (await ledger.by_token("planner", "rpl_1")).id == "CLR-8-002"


# -- what is kept in memory --------------------------------------------------------------------------------------------


class Checked:
    """Receipts as they are checked: `x` is a good one."""

    def __init__(self) -> None:
        self.records: list[str] = []

    def agrees(self, record: Clarification) -> bool:
        self.records.append(record.id)
        return record.current.receipt == "x"


async def test_a_row_is_read_and_its_receipt_checked_once_as_long_as_it_says_the_same(
    ledger: DatabaseLedger, another: Another
) -> None:
    receipts, told = Checked(), list[str]()
    ledger.receipts = receipts
    ledger.found_tampered = lambda found: told.extend(ids(found))
    other = await another()
    await write(other, changed(closed().model_copy(update={"id": "CLR-42-001"}), receipt="x"))

    async def looked_at() -> Clarification:
        known = await ledger.find("CLR-42-001")
        assert await ledger.find(known.id) is known
        assert ((await ledger.read(42)).records)[0] is known
        assert await ledger.transact(OfRecord(known.id), lambda book: book.records[0]) is known
        for _ in range(2):
            await ledger.is_tampered(known)
        return known

    first = await looked_at()
    assert receipts.records == ["CLR-42-001"]
    await other.transact(OfRecord(first.id), again)
    second = await looked_at()
    assert second.revision > first.revision
    assert receipts.records == ["CLR-42-001"] * 2, "another text"
    assert told == []
    await other.store.run(
        "update clarifications set body = replace(body, :good, :bad)", good='"x"', bad='"another"'
    )
    assert await ledger.is_tampered(await ledger.find(first.id)), "whatever its revision says"
    assert told == [first.id]


# -- what is broken or away --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("body", ["[", "{}", "7", "another's"])
async def test_a_row_that_somebody_broke_is_unreadable_alone(ledger: DatabaseLedger, body: str) -> None:
    broken, whole, told = "CLR-7-001", "CLR-7-002", list[str]()
    ledger.found_unreadable = told.append
    await ledger.transact(OfIssue(7), add)
    await ledger.transact(OfIssue(7), lambda book: book.put(record(7, book.next_seq(), session_id="sess_2")))
    (other,) = await ledger.store.read("select body from clarifications where id = :id", id=whole)
    text = other["body"] if body == "another's" else body
    await ledger.store.run("update clarifications set body = :text where id = :id", text=text, id=broken)
    for call in (ledger.find(broken), ledger.news(broken), ledger.transact(OfRecord(broken), again)):
        with pytest.raises(RecordUnreadable, match=f"{broken} in the database is not a valid clarification"):
            await call
    assert issubclass(RecordUnreadable, LedgerUnreadable)
    assert (await ledger.find(whole)).id == whole
    assert ids((await ledger.read(7)).records) == [whole]
    (found,) = [each async for each in ledger.every()]
    assert (ids(found.records), found.unreadable) == ([whole], [broken])
    assert set(told) == {broken}
    assert [each.id for each in await loaded(ledger)] == [broken, whole], "a start reads only summaries"
    assert (await ledger.transact(OfRecord(whole), again)).revision == 2
    session = OfSession("planner", "sess_1", NOW)
    seen_by = [await ledger.transact(reach, seen) for reach in (OfIssue(7), session, Asking(7, [ask()]))]
    assert seen_by == [[whole], [], []], "what cannot be read stops no other"
    assert (await ledger.transact(Asking(7, [ask()]), add)).id == "CLR-7-003"
    (left,) = await ledger.store.read("select body from clarifications where id = :id", id=broken)
    assert left["body"] == text


@pytest.mark.parametrize("summary", ["[", "{}", None])
async def test_a_summary_that_somebody_broke_is_left_out_and_told(
    ledger: DatabaseLedger, summary: str | None
) -> None:
    told = list[str]()
    ledger.found_unreadable = told.append
    await write(ledger, record(7, 1), record(7, 2))
    await ledger.store.run("update clarifications set summary = :summary where number = 1", summary=summary)
    assert [each.id for each in await loaded(ledger)] == ["CLR-7-002"]
    assert told == ["CLR-7-001"]


async def test_a_database_that_is_away_says_so_and_comes_back(postgres_server: Server) -> None:
    url = postgres_server.new()
    wire = Wire(postgres_server, url)
    async with AsyncExitStack() as stack:
        stack.callback(wire.close)
        ledger = await on_rows(wire.url, stack)
        made = await ledger.transact(OfIssue(7), add)
        changes = await stack.enter_async_context(aclosing(ledger.changes()))
        await anext(changes)
        wire.blocked = True
        wire.cut()
        with pytest.raises(LedgerUnwritable, match=r"Issue 7 could not be written .*Nothing was stored"):
            await ledger.transact(OfIssue(7), add)
        for call in (
            ledger.find(made.id),
            ledger.by_token("planner", "rpl_1"),
            ledger.read(7),
            loaded(ledger),
            ledger.latest(1),
            ledger.news(made.id),
        ):
            with pytest.raises(LedgersAway, match="The database is unavailable"):
                await call
        assert await ledger.store.trouble()
        other = await on_rows(url, stack)
        theirs = await other.transact(OfIssue(7), add)
        wire.blocked = False
        async with asyncio.timeout(20):
            async for names in changes:
                if theirs.id in names:
                    break
        assert await ledger.news(theirs.id) == theirs


async def test_changes_that_cannot_be_read_at_once_are_read_without_further_changes(
    postgres_server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = postgres_server.new()
    async with AsyncExitStack() as stack:
        ledger, other = await on_rows(url, stack), await on_rows(url, stack)
        await other.transact(OfIssue(7), add)
        fetch, refused = ledger.store.fetch, list[Query]()

        async def once_silent(queries: Sequence[Query]) -> list[list[Row] | Exception]:
            if refused:
                return await fetch(queries)
            refused.extend(queries)
            return [StorageSilent()] * len(queries)

        monkeypatch.setattr(ledger.store, "fetch", once_silent)
        changes = await stack.enter_async_context(aclosing(ledger.changes()))
        async with asyncio.timeout(20):
            assert await anext(changes) == ["CLR-7-001"]
        assert refused
