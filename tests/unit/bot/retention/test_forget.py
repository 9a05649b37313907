"""What of a session is left in each table: names that keep things from being done twice, no words, nobody; and the file
by which another process tells the bot that something was forgotten.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import sqlite3
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import aclosing, closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from bot import integrations
from bot.errors import StorageMoved, StorageUnavailable
from bot.retention.forget import Found, Traces, find
from bot.retention.forget import forget as forget_all
from bot.storage import sqlite
from bot.storage.ledger import DatabaseLedger
from bot.storage.opening import open_storage
from bot.storage.sqlite import InSqlite, changed_signal, tell_changed
from bot.storage.store import Store
from bot.storage.tx import Tx
from core.clarification import Clarification
from core.ledger import OfRecord
from core.matching import followed_up
from core.records import Subject
from core.transitions import abandoned, answered, reply_settled
from tests.kit import builders
from tests.kit.builders import foreign
from tests.kit.clocks import START
from tests.kit.databases import open_store
from tests.kit.ledgers import write_records
from tests.kit.until import until
from tests.unit.bot.retention.rows import all_of, message, put, recorded

SECRET = "tell-nobody-7f3a"
GONE = Subject(
    clarifications=frozenset({"CLR-7-001"}),
    sessions=frozenset({("planner", "s1")}),
    events=frozenset({("planner", "e1")}),
    tokens=frozenset({("planner", "t1")}),
)
ONE = Subject(frozenset({"CLR-7-001"}), events=GONE.events, tokens=GONE.tokens)


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    opened = await open_store(tmp_path / "clarify.db")
    await fill(opened)
    yield opened
    await opened.close()


async def said(store: Store, key: str, ts: str | None, **more: Any) -> None:
    await message(store, key, ts, **({"body": json.dumps({"text": SECRET})} | more))


async def fill(store: Store) -> None:
    """A session s1 that left something everywhere, and s2 beside it."""
    one, two = ({"producer": "planner", "session_id": name} for name in ("s1", "s2"))
    await recorded(store, "CLR-7-001")
    await recorded(store, "CLR-7-0011")
    thread = {"agent_id": "a", "agent_name": SECRET, "channel": "C1"}
    await put(store, "sessions", one | {"thread_ts": "11.0"}, two | {"thread_ts": "12.0"}, **thread)
    event = {"state": "failed", "body": SECRET, "contents": "w", "received_at": 1.0, "at": 1.0, "live": 1}
    first, second = one | {"event_id": "e1", "token": "s1"}, two | {"event_id": "e2", "token": "s2"}
    await put(store, "inbox", first, second, **event)
    await said(store, "card:CLR-7-001:1", "11.0", clarification="CLR-7-001", **one)
    await said(store, "notice:planner:e1b", "11.1", **one)
    await said(store, "word:which:t-1", "11.2", thread_ts="11.0")
    await said(store, "word:aside", "20.0", body=json.dumps({"text": f"CLR-7-001 {SECRET}"}))
    await said(store, "card:CLR-7-0011:1", "12.0", clarification="CLR-7-0011", **two)
    for name, body in (
        ("t-1", {"text": SECRET}),
        ("t-2", {"about": "CLR-7-001"}),
        ("t-3", {"about": "CLR-7-0011"}),
    ):
        await put(store, "texts", id=name, body=json.dumps(body))
    await put(store, "onces", {"key": "hint:CLR-7-001:1:U1:k"}, {"key": "hint:CLR-7-0011:1:U1:k"})
    await put(store, "replies", clarification="CLR-7-001", token="t1")
    pages = {1: [1, 2], 2: [1, 3], 3: [3]}
    await put(
        store,
        "incidents",
        {"id": 1, "key": "escalated:CLR-7-001:1", "clarification": "CLR-7-001"},
        {"id": 2, "key": "errored:planner:e1b"},
        {"id": 3, "key": "escalated:CLR-7-0011:1", "clarification": "CLR-7-0011"},
        **dict.fromkeys(("title", "reason", "body"), SECRET),
        kind="escalated",
        began_at=1.0,
        closed_at=2.0,
    )
    for number in (1, 2, 3):
        log: list[dict[str, Any]] = [
            {"what": "sent", "page": page} for page, about in pages.items() if number in about
        ]
        rows = [
            {"entry": json.dumps(each), "page": each.get("page")}
            for each in (*log, {"what": "taken", "user": "U1"})
        ]
        await put(store, "incident_log", *rows, incident=number)
    for page, about in pages.items():
        what: dict[str, Any] = {
            "at": 1.0,
            "note": "",
            "items": [[each, 0] for each in about],
            "mentions": ["U1"],
        }
        outside = {"key": f"page:{page}:PAGER", "via": "apprise", "target": "PAGER", "at": 1.0}
        await put(store, "sendings", outside, page=page, body=json.dumps(what), state="sent")
        where = {"channel": "D1", "page": page, "shown": "x"}
        await said(store, f"page:{page}:D1", f"3{page}.0", body=json.dumps({"page": what}), **where)
    queued = {"endpoint": "h", "type": "t", "body": SECRET, "queued_at": 1.0}
    ids = ({"id": "0", "clarification": "CLR-7-001"}, {"id": "1", "clarification": "CLR-7-0011"})
    await put(store, "outbox", *ids, **queued)
    await put(store, "pushed_replies", one | {"token": "t1"}, two | {"token": "t2"}, digest="d", body=SECRET)


class Teams:
    """An integration that told others of everything."""

    name = "teams"

    def keeps(self, tx: Tx, subject: Subject) -> Iterable[str]:
        return ["#deploys"] if subject.is_in("CLR-7-001") else []


class Broken(Teams):
    name = "broken"

    def keeps(self, tx: Tx, subject: Subject) -> Iterable[str]:
        raise RuntimeError("a defect")


@pytest.fixture(autouse=True)
def _told_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(integrations, "installed", lambda: [Teams(), Broken()])


def forget(tmp_path: Path, subject: Subject, *, even_waiting: bool = False) -> Traces:
    kept, found = InSqlite(tmp_path / "clarify.db"), Found(subject, (replace(subject, sessions=frozenset()),))
    return forget_all(kept, found, now=START, abandoned=even_waiting)[0]


NOTHING_SAID = "(forgotten)"
LEFT: dict[str, list[Any]] = {  # of everything, after the session is forgotten
    "select event_id, body, contents, state, token from inbox order by 1": [
        ("e1", None, None, "done", "s1"),
        ("e2", SECRET, "w", "failed", "s2"),
    ],
    "select session_id, agent_name, channel, thread_ts from sessions order by 1": [
        ("s1", None, None, None),
        ("s2", SECRET, "C1", "12.0"),
    ],
    "select ts from erasures order by 1": ["11.0", "11.1", "11.2", "20.0", "31.0"],
    "select key from messages where failed is not null order by key": [
        "card:CLR-7-001:1",
        "notice:planner:e1b",
        "page:1:D1",
        "word:aside",
        "word:which:t-1",
    ],
    "select distinct body, ts, failed, final from messages where failed is not null": [
        (None, None, "forgotten", 1)
    ],
    # A page about others, too, is drawn again.
    "select key, ts, shown, final from messages where kind = 'page' and failed is null order by key": [
        ("page:2:D1", "32.0", None, 0),
        ("page:3:D1", "33.0", "x", 1),
    ],
    "select title, reason, body from incidents order by id": [
        *[(NOTHING_SAID, NOTHING_SAID, "")] * 2,
        (SECRET,) * 3,
    ],
    "select incident from incident_log where entry like '%U1%'": [3],
    "select id from texts": ["t-3"],
    "select key from onces": ["hint:CLR-7-0011:1:U1:k"],
    "select 1 from replies": [],
    "select clarification from outbox": ["CLR-7-0011"],
    "select token from pushed_replies": ["t2"],
}
LEFT_OF_ONE: dict[str, list[Any]] = {  # after the clarification alone is
    "select ts from erasures order by 1": ["11.0", "20.0"],
    "select agent_name, thread_ts from sessions where session_id = 's1'": [(SECRET, "11.0")],
    "select contents from inbox order by event_id": [None, "w"],
    "select token from pushed_replies": ["t2"],
}


@pytest.mark.parametrize(("subject", "left"), [(GONE, LEFT), (ONE, LEFT_OF_ONE)])
async def test_names_are_left_and_no_words(
    store: Store, tmp_path: Path, subject: Subject, left: dict[str, list[Any]]
) -> None:
    traces = forget(tmp_path, subject)
    assert (traces.in_flight, traces.waiting, traces.elsewhere) == (
        0,
        0,
        {"teams": ("#deploys",), "broken": ("places that the log tells of",)},
    )
    assert {sql: await all_of(store, sql) for sql in left} == left


async def test_pages_that_went_outside_are_told_of_and_what_nobody_took_is_closed(
    store: Store, tmp_path: Path
) -> None:
    await store.run("update incidents set closed_at = null where id = 2")
    assert forget(tmp_path, GONE) == Traces(
        pagers=frozenset({(1, "apprise", "PAGER"), (2, "apprise", "PAGER")}),
        untaken=1,
        elsewhere={"teams": ("#deploys",), "broken": ("places that the log tells of",)},
    )
    words = await all_of(store, "select closed_at is null, title from incidents where id = 2")
    assert words == [(0, NOTHING_SAID)]
    assert await all_of(store, "select 1 from incident_log where entry like '%U1%' and incident = 2") == []


async def test_again_changes_nothing_but_tries_what_failed(store: Store, tmp_path: Path) -> None:
    forget(tmp_path, GONE)
    await store.run("update erasures set state = 'failed' where ts = '11.0'")
    before = await all_of(store, "select * from messages order by key")
    await message(store, "card:x", "11.0", clarification="CLR-7-001", final=0)
    forget(tmp_path, GONE)
    assert (await all_of(store, "select * from messages where key <> 'card:x' order by key")) == before
    assert await all_of(store, "select state from erasures where ts = '11.0'") == ["wanted"]


WAITS = "update inbox set state = 'new' where event_id = 'e1'"


@pytest.mark.parametrize(
    ("statement", "on_its_way"),
    [
        ("update messages set ts = null, intent_at = 1 where key like 'card:CLR-7-001:%'", (1, 0)),
        (WAITS, (0, 1)),
    ],
)
async def test_what_is_on_its_way_is_not_torn(
    store: Store, tmp_path: Path, statement: str, on_its_way: tuple[int, int]
) -> None:
    await store.run(statement)
    traces = forget(tmp_path, GONE)
    assert (traces.in_flight, traces.waiting) == on_its_way
    assert await all_of(store, "select 1 from erasures") == []
    assert await all_of(store, "select agent_name from sessions where session_id = 's1'") == [SECRET]


async def test_what_waits_goes_with_what_is_abandoned(store: Store, tmp_path: Path) -> None:
    await store.run(WAITS)
    assert forget(tmp_path, GONE, even_waiting=True).waiting == 1
    assert await all_of(store, "select state, body from inbox where event_id = 'e1'") == [("done", None)]


MANY = 45  # clarifications of a session: more than two steps


class Stopped(Exception):
    """The process was killed."""


@dataclass(frozen=True)
class Counted(InSqlite):
    """Stops before transaction number `stop`; notes how many rows each forgot."""

    stop: int = 1000
    forgot: list[int] = field(default_factory=list)

    def change(self, work: Callable[[Tx], Any]) -> Any:
        if len(self.forgot) == self.stop:
            raise Stopped
        with self.read_only() as tx:
            before = len(words_in(tx))
        result = super().change(work)
        with self.read_only() as tx:
            self.forgot.append(before - len(words_in(tx)))
        return result


def words_in(tx: Tx) -> list[Any]:
    sql = (
        "select id as name from clarifications where body like :secret union all select key from messages where body like :secret"
        " union all select event_id from inbox where body like :secret"
    )
    return tx.rows(sql, secret=f"%{SECRET}%")


async def many(store: Store, tmp_path: Path) -> None:
    """A session with a card for each clarification, notices, and events of which none asked anything."""
    items = [
        foreign(
            8,
            number,
            topic=SECRET,
            status="abandoned",
            aaep={
                "producer": "planner",
                "sessionId": "s9",
                "eventId": f"q{number}",
                "replyToken": f"r{number}",
            },
        )
        for number in range(1, MANY + 1)
    ]
    write_records(tmp_path, 8, *items)
    one = {"producer": "planner", "session_id": "s9"}
    await put(store, "sessions", one, agent_id="a", agent_name=SECRET)
    for item in items:
        await said(store, f"card:{item['id']}:1", f"1{item['id'][6:]}.0", clarification=item["id"], **one)
    for number in range(MANY):
        await said(store, f"notice:s9:{number}", f"50.{number}", **one)
        event = {"event_id": f"other{number}", "body": SECRET, "received_at": 1.0, "at": 1.0, "live": 1}
        await put(store, "inbox", one | event, state="failed")


async def test_session_is_forgotten_in_steps_and_killed_anywhere_the_rest_follows(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bot.retention.forget._ROWS", 20)
    await many(store, tmp_path)
    steps = 0
    for stop in itertools.count(1):
        kept = Counted(tmp_path / "clarify.db", stop)
        try:
            traces, _ = forget_all(kept, find(kept, "s9"), now=START)
        except Stopped:
            assert max(kept.forgot) <= 40, "a card and its clarification, of 20"
            steps += any(kept.forgot)
        else:
            break
    assert traces.is_all(abandoned=False)
    assert steps >= 5
    with kept.read_only() as tx:
        left = {row["name"] for row in words_in(tx)}
    assert not any("-8-" in name or "s9" in name or name.startswith("other") for name in left), left
    assert await all_of(store, "select agent_name from sessions where session_id = 's9'") == [None]


async def test_only_what_is_on_its_way_is_refused_and_follows(store: Store, tmp_path: Path) -> None:
    await many(store, tmp_path)
    lost = "key = 'card:CLR-8-007:1'"
    await store.run(f"update messages set ts = null, intent_at = 1 where {lost}")  # noqa: S608 - ours
    kept = Counted(tmp_path / "clarify.db")
    traces, left = forget_all(kept, find(kept, "s9"), now=START)
    assert (traces.in_flight, [each.clarifications for each in left.parts]) == (1, [frozenset({"CLR-8-007"})])
    with kept.read_only() as tx:
        names = {row["name"] for row in words_in(tx) if "-8-" in row["name"]}
    assert names == {"CLR-8-007", "card:CLR-8-007:1"}
    assert await all_of(store, "select agent_name from sessions where session_id = 's9'") == [SECRET]

    await store.run(f"update messages set ts = '51.0', channel = 'C1', intent_at = null where {lost}")  # noqa: S608 - ours
    assert forget_all(kept, left, now=START)[0].is_all(abandoned=False)
    with kept.read_only() as tx:
        assert not [row for row in words_in(tx) if "-8-" in row["name"]]
    assert await all_of(store, "select state from erasures where ts = '51.0'") == ["wanted"]


@pytest.mark.parametrize("abandon", [False, True])
async def test_what_is_asked_again_meanwhile_stays_as_it_is_and_goes_once_it_is_over(
    store: Store, tmp_path: Path, *, abandon: bool
) -> None:
    """It was over when it was found."""
    ledger, kept = DatabaseLedger(store), InSqlite(tmp_path / "clarify.db")
    first = await settled(store, ledger, 1)
    await settled(store, ledger, 2)
    found = find(kept, "s9")
    assert not found.unsettled
    next_question = builders.ask(question=SECRET, session_id="s9", event_id="e9", reply_token="t9")
    again = await written(ledger, followed_up(first, next_question, builders.NOW, builders.SLA))
    await said(store, "card:CLR-42-001:2", "70.0", clarification=again.id, round=2)
    await put(store, "pushed_replies", producer="planner", token="t9", digest="d", body=SECRET)
    of_it = (
        "select * from clarifications where id = 'CLR-42-001'",
        "select * from messages where clarification = 'CLR-42-001'",
        "select token from pushed_replies where token = 't9'",
    )
    before = [await all_of(store, sql) for sql in of_it]

    traces, left = forget_all(kept, found, now=START, abandoned=abandon)

    assert [each.id for each in traces.unsettled] == ["CLR-42-001"]
    assert not traces.is_all(abandoned=abandon)
    assert [await all_of(store, sql) for sql in of_it] == before
    assert await all_of(store, "select ts from erasures") == ["62.0"], "the other went"

    await written(ledger, abandoned(again, "by hand", builders.NOW))
    assert forget_all(kept, left, now=START, abandoned=True)[0].is_all(abandoned=True)
    assert await all_of(store, "select ts from erasures order by ts") == ["61.0", "62.0", "70.0"]
    assert await all_of(store, of_it[-1]) == []
    assert await all_of(store, f"select id from clarifications where body like '%{SECRET}%'") == []  # noqa: S608 - ours


async def test_answer_on_its_way_by_now_stays_unless_it_is_abandoned(store: Store, tmp_path: Path) -> None:
    ledger, kept = DatabaseLedger(store), InSqlite(tmp_path / "clarify.db")
    first = await settled(store, ledger, 1)
    found = find(kept, first.id)
    await written(ledger, reply_settled(first, "sending", None))
    traces, left = forget_all(kept, found, now=START)
    assert [each.id for each in traces.unsettled] == [first.id]
    assert await all_of(store, "select ts from erasures") == []
    assert forget_all(kept, left, now=START, abandoned=True)[0].is_all(abandoned=True)
    assert await all_of(store, "select ts from erasures") == ["61.0"]


async def settled(store: Store, ledger: DatabaseLedger, seq: int) -> Clarification:
    """What agents asked in the session s9, with its card, once the producer has the answer."""
    asked: dict[str, Any] = {"session_id": "s9", "event_id": f"e{seq}", "reply_token": f"t{seq}"}
    over = answered(
        builders.record(seq=seq, question=SECRET, **asked), builders.YES, builders.ADE, builders.NOW
    )
    record = await written(ledger, reply_settled(over, "confirmed", None))
    await said(store, f"card:{record.id}:1", f"6{seq}.0", clarification=record.id)
    return record


async def written(ledger: DatabaseLedger, record: Clarification) -> Clarification:
    return await ledger.transact(OfRecord(record.id), lambda book: book.put(record))


async def test_database_that_moved_meanwhile_is_not_changed(store: Store, tmp_path: Path) -> None:
    """Whoever confirms at the prompt after a move is told where the conversation is now."""
    await store.run("update installation set moved_to = 'elsewhere.db'")
    kept = InSqlite(tmp_path / "clarify.db")
    with kept.read_only() as tx:
        before = words_in(tx)
    with pytest.raises(StorageMoved, match=r"has moved to elsewhere\.db"):
        forget(tmp_path, GONE)
    with kept.read_only() as tx:
        assert words_in(tx) == before != []


async def test_log_that_still_holds_it_is_told_of(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody reads an older state of the storage: until they are through, it is not gone from the disk."""
    monkeypatch.setattr(sqlite, "_BUSY_SECONDS", 0.1)
    kept, found = InSqlite(tmp_path / "clarify.db"), Found(GONE)
    with closing(sqlite3.connect(kept.database, isolation_level=None)) as reader:
        reader.execute("begin")
        reader.execute("select 1 from sessions").fetchall()
        with pytest.raises(StorageUnavailable, match="same command again"):
            forget_all(kept, found, now=START)
    assert forget_all(kept, found, now=START)[0].in_flight == 0
    assert (tmp_path / "clarify.db-wal").stat().st_size == 0


async def test_ring_is_heard_wherever_the_storage_is(tmp_path: Path) -> None:
    """Some names of folders are left out by who watches files, unless told otherwise."""
    storage = tmp_path / "node_modules" / "clarify.db"
    storage.parent.mkdir()
    store = await open_storage(storage)
    async with aclosing(store.news()) as news:
        heard = asyncio.ensure_future(anext(news))
        await until(lambda: changed_signal(storage).exists())
        async with asyncio.timeout(20):
            while not heard.done():
                await asyncio.to_thread(tell_changed, storage)
                await asyncio.wait([heard], timeout=1)
    assert heard.result() == [("forgotten", "")]
    await store.close()
