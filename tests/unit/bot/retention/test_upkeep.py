"""The daily round: which rows go after `keep`."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta
from functools import partial
from typing import Any

import pytest

from bot import home
from bot.ask.inbox import lock_of
from bot.oncall import pages
from bot.retention.forget import Upkeep, sweep_all
from bot.storage.ledger import fill as fill_records
from bot.storage.opening import open_storage
from bot.storage.store import Store
from bot.storage.tx import Outcome, Tx, Work
from core.index import Index
from core.records import Subject
from tests.kit.builders import NOW as START
from tests.kit.builders import closed, record
from tests.kit.clocks import ManualClock
from tests.kit.databases import Server, sqlite_of
from tests.kit.ledgers import held
from tests.kit.until import until
from tests.unit.bot.retention.rows import all_of, message, put, recorded

MONTH = timedelta(days=30)
DAY = 86_400.0
NOW = 1_800_000_000.0
HORIZON = NOW - 30 * DAY
OLD, NEW = HORIZON - DAY, HORIZON + DAY
OPEN = Subject(frozenset({"CLR-1-001"}), frozenset({("planner", "s1")}))


DEFAULTS: dict[str, dict[str, Any]] = {
    "inbox": {"producer": "p", "session_id": "s", "received_at": OLD, "at": OLD, "live": 1, "state": "done"},
    "messages": {"kind": "notice", "target": "C1", "channel": "C1", "final": 1},
    "sessions": {"producer": "planner", "agent_id": "a"},
    "pushed_replies": {"producer": "planner", "digest": "d", "body": "{}"},
    "homes": {"team": "T", "channel": "D", "pages": "{}"},
    "overrides": {"policy": "p", "user_id": "U", "since": 0, "made_by": "U"},
    "incidents": {
        "kind": "escalated",
        "title": "",
        "reason": "",
        "body": "",
        "began_at": OLD,
        "closed_at": OLD,
    },
}


def ts(at: float) -> str:
    return f"{at:.6f}"


async def fill(store: Store, table: str, *rows: dict[str, Any]) -> None:
    await put(store, table, *rows, **DEFAULTS.get(table, {}))


async def names(store: Store, table: str, column: str) -> list[Any]:
    return await all_of(store, f"select {column} from {table} order by 1")  # noqa: S608 - names in this file


async def sweep(store: Store, needed: Subject = OPEN, now: float = NOW) -> dict[str, int]:
    return dict(await sweep_all(store, needed, now - 30 * DAY, now, [home.SWEEP]))


@pytest.fixture
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bot.retention.forget._BATCH", 2)
    monkeypatch.setattr("bot.retention.forget._OVER_AT_ONCE", 2)


async def hang(store: Store, name: str, *, expires_at: float, intent_at: float | None = None) -> None:
    """What hangs on a clarification, in each table that has something."""
    await message(store, f"card:{name}:1", ts(float(name[-3:])), clarification=name, intent_at=intent_at)
    await put(store, "replies", clarification=name, token="t")
    question = {"token": name, "producer": "planner", "agent": "a", "session_id": "s", "digest": "d"}
    await put(store, "questions", question, clarification=name, created_at=OLD, expires_at=expires_at)


@pytest.mark.usefixtures("small_batches")
async def test_clarification_that_is_over_goes_with_all_that_hangs_on_it(store: Store) -> None:
    over = {"live": 0, "closed": OLD}
    a_week = 7 * DAY
    stay: list[tuple[dict[str, Any], dict[str, Any]]] = [
        ({"closed": NEW}, {}),
        ({"closed": None, "live": 1}, {}),
        ({"live": 1}, {}),  # its reply is not delivered
        ({}, {"expires_at": NOW - a_week + 60}),  # whoever asks with its key gets the same answer
        ({}, {"intent_at": NOW}),  # a post of its card is on its way
        ({"closed": OLD + 1}, {}),  # another bot is about to change it
    ]
    for number in range(1, 12):
        more, hanging = stay[number - 1] if number <= len(stay) else ({}, {})
        await recorded(store, f"CLR-1-{number:03d}", **(over | more))
        await hang(store, f"CLR-1-{number:03d}", **({"expires_at": NOW - a_week - 60} | hanging))
    with held("CLR-1-006"):
        assert await sweep(store) == {"clarifications": 5}
    left = [f"CLR-1-{number:03d}" for number in range(1, 7)]
    assert await names(store, "clarifications", "id") == left
    for table in ("messages", "replies", "questions"):
        assert await names(store, table, "clarification") == left, table
    assert await sweep(store) == {"clarifications": 1}


async def test_later_write_has_a_higher_number_whatever_was_deleted(store: Store) -> None:
    """Or whoever looks for what was written since would miss it."""
    for number in (1, 2):
        await store.write(partial(fill_records, records=[closed(number)], highest={}))
    since = (await store.read(f"select {store.horizon} as until"))[0]["until"]
    late = START.timestamp() + 365 * DAY
    assert await sweep(store, now=late) == {"clarifications": 2}
    await store.write(partial(fill_records, records=[closed(3)], highest={}))
    news = await store.read("select id from clarifications where written >= :since", since=since)
    assert [row["id"] for row in news] == ["CLR-42-003"]


@pytest.mark.usefixtures("small_batches")
@pytest.mark.parametrize(
    ("table", "name", "stay", "go"),
    [
        (
            "inbox",
            "event_id",
            {
                "of an open session": {"producer": "planner", "session_id": "s1"},
                "waits": {"state": "new", "body": "{}"},
                "runs": {"expires_at": NEW},
                "new": {"received_at": NEW},
                "the last one": {},  # or its number would be given out again, and notices are named after it
            },
            {"worked off": {}, "run out": {"expires_at": OLD}, "failed": {"state": "failed"}},
        ),
        (
            "messages",
            "key",
            {
                "of a clarification": {"ts": ts(OLD), "clarification": "CLR-1-001"},
                "new": {"ts": ts(NEW)},
                "to be changed yet": {"ts": ts(OLD + 1), "final": 0},
                "begun again": {"ts": ts(OLD + 2), "intent_at": NOW},
                "post of a week that may not be over": {"ts": ts(OLD + 6), "kind": "post"},
            },
            {
                "final": {"ts": ts(OLD + 3)},
                "post": {"ts": ts(HORIZON - 8 * DAY), "kind": "post"},
                "given up": {"ts": ts(OLD + 4), "final": 0, "failed": "is_archived"},
            },
        ),
        (
            "pushed_replies",
            "token",
            {"read, and may be asked for": {"state": "written", "written_at": OLD}},
            {
                "confirmed": {"state": "confirmed", "written_at": OLD},
                "run out": {"state": "written", "written_at": OLD, "expires_at": OLD},
                "never read": {"state": "waiting", "expires_at": OLD},
            },
        ),
        ("homes", "user_id", {"U2": {"opened_at": NEW}}, {"U1": {"opened_at": OLD}}),
        ("overrides", "until", {NEW: {}}, {OLD: {}, OLD - 1: {}}),
        ("sessions", "session_id", {"s1": {}}, {"over": {}}),
    ],
)
async def test_what_is_over_goes_and_what_is_needed_stays(
    store: Store,
    table: str,
    name: str,
    stay: dict[Any, Any],
    go: dict[Any, Any],
) -> None:
    await recorded(store, "CLR-1-001")
    await fill(store, table, *({name: each, **more} for each, more in (go | stay).items()))
    assert await sweep(store) == {table: len(go)}
    assert await names(store, table, name) == sorted(stay)


@pytest.mark.parametrize(
    ("key", "more", "goes"),
    [
        ("card:CLR-1-001:1", {"clarification": "CLR-1-001", "failed": "channel_not_found"}, False),
        ("notice:9", {"failed": "channel_not_found"}, True),
        ("notice:9", {}, False),  # Slack is away: it waits
        ("notice:9", {"producer": "planner", "session_id": "gone"}, True),
        ("notice:9", {"producer": "planner", "session_id": "there"}, False),
        ("notice:9", {"failed": "x", "intent_at": NOW}, False),
    ],
)
async def test_messages_that_were_never_shown_go_once_that_was_seen_long_enough(
    store: Store, key: str, more: dict[str, Any], goes: bool
) -> None:
    await recorded(store, "CLR-1-001")
    await fill(store, "sessions", {"session_id": "there"})
    await fill(
        store, "inbox", {"event_id": "1", "session_id": "there", "state": "new", "producer": "planner"}
    )
    await message(store, key, None, **({"final": 0} | more))

    await sweep(store)
    await sweep(store, now=NOW + 29 * DAY)
    assert await names(store, "messages", "key") == [key]
    await sweep(store, now=NOW + 31 * DAY)
    assert (await names(store, "messages", "key") == []) is goes
    assert await store.read("select * from over where name = :key", key=key) == []


async def test_timeless_rows_go_after_they_were_seen_for_that_long(store: Store) -> None:
    about = [
        {"id": "a", "body": '{"text": "a draft"}'},
        {"id": "b", "body": '{"about": "CLR-1-001 CLR-2-001"}'},
    ]
    await fill(store, "texts", *about)
    await fill(store, "onces", {"key": "hint:CLR-1-001:1:U1:x"}, {"key": "hint:CLR-2-001:1:U1:x"})
    await fill(store, "slack_events", {"event_id": "Ev1", "state": "done"}, {"event_id": "Ev2", "body": "{}"})

    assert await sweep(store) == {}
    assert await sweep(store, now=NOW + 31 * DAY) == dict.fromkeys(("texts", "onces", "slack_events"), 1)

    assert await names(store, "texts", "id") == ["b"]
    assert await names(store, "onces", "key") == ["hint:CLR-1-001:1:U1:x"]
    assert await names(store, "slack_events", "event_id") == ["Ev2"]


async def test_incidents_go_with_their_pages(store: Store) -> None:
    incidents: list[dict[str, Any]] = [
        {},
        {"closed_at": None},
        {"clarification": "CLR-1-001"},
        {"kind": "ledger"},  # found again at each start
        {"closed_at": NEW},
        {"closed_at": None},
    ]
    for number, more in enumerate(incidents, 1):
        await fill(store, "incidents", {"id": number, "key": f"escalated:{number}", **more})
    for page, about in ((1, [1]), (2, [1, 5]), (3, [5])):
        await fill(
            store, "incident_log", *({"incident": each, "page": page, "entry": "{}"} for each in about)
        )
        to = {"key": f"page:{page}:P", "via": "apprise", "target": "P", "page": page}
        await fill(store, "sendings", {**to, "body": "{}", "at": OLD, "state": "sent"})
        await message(store, f"page:{page}:U1", ts(OLD + page), page=page, kind="page")
    card = {"page": 3, "kind": "handoff", "ts": None, "failed": "deleted"}
    await fill(store, "messages", {"key": "notice:p:e", **card})

    assert await sweep(store) == {"incidents": 1, "sendings": 1, "messages": 1}
    assert await names(store, "incidents", "id") == [2, 3, 4, 5, 6]
    assert await names(store, "incident_log", "page") == [2, 3]
    assert await names(store, "sendings", "page") == [2, 3]
    assert await names(store, "messages", "key") == ["notice:p:e", "page:2:U1", "page:3:U1"]
    found = await store.write(lambda tx: pages.find_about(tx, [5]))
    assert found.alone == {"notice:p:e", "page:2:U1", "page:3:U1"}
    assert {page for page, _, _ in found.outside} == {2, 3}

    assert await sweep(store, now=NOW + 31 * DAY) == {"incidents": 1, "sendings": 2, "messages": 3}
    assert await names(store, "incident_log", "page") == []


async def test_sessions_stay_with_what_is_of_them(store: Store) -> None:
    await fill(store, "sessions", *({"session_id": name} for name in ("asked", "heard", "shown", "over")))
    await fill(
        store, "inbox", {"event_id": "1", "producer": "planner", "session_id": "heard", "received_at": NEW}
    )
    await message(store, "notice:1", ts(NEW), producer="planner", session_id="shown")
    await recorded(store, "CLR-1-001", producer="planner", session="asked", closed=NEW, live=0)
    assert await sweep(store) == {"sessions": 1}
    assert await names(store, "sessions", "session_id") == ["asked", "heard", "shown"]


async def test_session_in_which_another_bot_asks_now_stays(postgres_server: Server) -> None:
    """Its question is not committed yet."""
    url, asking, swept = postgres_server.new(), threading.Event(), threading.Event()
    store, other = await open_storage(url), await open_storage(url)
    await fill(store, "sessions", *({"session_id": name} for name in ("asked", "over")))

    def ask(tx: Tx) -> None:
        assert tx.lock(lock_of("planner", "asked"))
        asking.set()
        assert swept.wait(60)

    asks = asyncio.create_task(other.write(ask))
    try:
        assert await asyncio.to_thread(asking.wait, 60)
        assert await sweep(store) == {"sessions": 1}
        assert await names(store, "sessions", "session_id") == ["asked"]
    finally:
        swept.set()
        await asks
    assert await sweep(store) == {"sessions": 1}
    await store.close()
    await other.close()


async def pragma(store: Store, name: str) -> int:
    return int((await store.read(f"pragma {name}"))[0][name])


async def test_file_gets_smaller(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    commits, database = list[int](), sqlite_of(store)
    commit = database.commit

    async def counted(works: Sequence[Work[Any]]) -> list[Outcome]:
        commits.append(len(works))
        return await commit(works)

    monkeypatch.setattr(database, "commit", counted)
    rows = [{"key": f"notice:{n}", "body": "x" * 1000, "ts": ts(OLD + n)} for n in range(1000)]
    sql = "insert into messages (key, kind, target, body, ts, final) values (:key, 'notice', 'C', :body, :ts, 1)"
    await store.write(lambda tx: tx.many(sql, rows))
    before = await pragma(store, "page_count")

    assert await sweep(store) == {"messages": 1000}

    assert await pragma(store, "page_count") < before / 4
    assert len(commits) < before / 4, "many pages are given back at once"
    assert await pragma(store, "freelist_count") == 0


def upkeep(store: Store, clock: ManualClock, index: Index, keep: timedelta | None = MONTH) -> Upkeep:
    return Upkeep(store=store, index=index, clock=clock, keep=keep)


async def test_run_tidies_at_the_start_and_a_day_later(store: Store) -> None:
    clock = ManualClock(START + MONTH + timedelta(hours=12))
    for number, about in enumerate(["CLR-1-001", "CLR-2-001"]):
        at = START + timedelta(days=number)
        await recorded(store, about, live=0, closed=at.timestamp())
    task = asyncio.create_task(upkeep(store, clock, Index()).run())
    try:
        await until(lambda: clock.sleeping)
        assert await names(store, "clarifications", "id") == ["CLR-2-001"]
        await clock.advance(86_400)
        await until(lambda: clock.slept == [86_400.0, 86_400.0])
        assert await names(store, "clarifications", "id") == []
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


@pytest.mark.parametrize(("keep", "left"), [(None, 3), (MONTH, 2)])
async def test_tidy_keeps_what_is_open_and_everything_without_keep(
    store: Store, keep: timedelta | None, left: int
) -> None:
    index, waiting = Index(), record(1)
    index.put(waiting)
    session = {"producer": waiting.producer, "session_id": waiting.session_id}
    rows: list[dict[str, Any]] = [session, {}, {}]  # the last one stays, too
    for number, row in enumerate(rows):
        await fill(store, "inbox", row | {"event_id": str(number), "received_at": START.timestamp()})
    clock = ManualClock(START + MONTH + timedelta(days=1))
    await upkeep(store, clock, index, keep).tidy()
    assert len(await names(store, "inbox", "event_id")) == left
