"""The daily round: which ledgers move, which rows go after `keep`, and that trouble with one holds up nothing."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from bot import home
from bot.retention.upkeep import Needed, Upkeep, sweep_all
from bot.storage import sweeping
from bot.storage.store import Store
from core.clarification import Clarification, abandoned
from core.index import Index, summarize
from core.ledger import FileLedger
from tests.kit.builders import NOW as START
from tests.kit.builders import record
from tests.kit.clocks import ManualClock
from tests.kit.until import until
from tests.unit.bot.retention.rows import all_of, message, put

MONTH = timedelta(days=30)
DAY = 86_400.0
NOW = 1_800_000_000.0
HORIZON = NOW - 30 * DAY
OLD, NEW = HORIZON - DAY, HORIZON + DAY
NOTHING = Needed()
OPEN = Needed(frozenset({"CLR-1-001"}), frozenset({("planner", "s1")}))


async def inbox(store: Store, number: int, received_at: float = OLD, **more: Any) -> None:
    row = {
        "id": number,
        "producer": "planner",
        "event_id": f"e{number}",
        "session_id": f"s{number}",
        "received_at": received_at,
        "at": received_at,
        "live": 1,
        "state": "done",
    }
    await put(store, "inbox", **(row | more))


def ts(at: float | None) -> str | None:
    return None if at is None else f"{at:.6f}"


async def names(store: Store, table: str, column: str) -> list[Any]:
    return await all_of(store, f"select {column} from {table} order by 1")  # noqa: S608 - names in this file


async def sweep(store: Store, needed: Needed = NOTHING, now: float = NOW) -> dict[str, int]:
    return dict(await sweep_all(store, needed, now - 30 * DAY, now, [home.SWEEP]))


async def test_inbox_what_is_worked_off_and_old_goes(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweeping, "_BATCH", 2)
    for number in range(1, 8):
        await inbox(store, number)
    await inbox(store, 8, NEW)

    assert (await sweep(store))["inbox"] == 7
    assert await names(store, "inbox", "event_id") == ["e8"]


async def test_inbox_what_waits_or_runs_or_is_needed_stays(store: Store) -> None:
    await inbox(store, 1)  # its session is open
    await inbox(store, 2, state="new", body="{}")
    await inbox(store, 3, expires_at=NEW)
    await inbox(store, 4, NEW)

    assert "inbox" not in await sweep(store, OPEN)
    assert await names(store, "inbox", "id") == [1, 2, 3, 4]


async def test_inbox_numbers_are_never_given_out_again(store: Store) -> None:
    """Notices are named after them: another event of that number would be taken for one that was shown."""
    await inbox(store, 1)
    await inbox(store, 2)
    await sweep(store)
    await put(
        store, "inbox", producer="planner", event_id="next", session_id="s", received_at=1, at=1, live=1
    )
    assert await names(store, "inbox", "id") == [2, 3]


@pytest.mark.parametrize(
    ("name", "more", "goes"),
    [
        ("final", {}, True),
        ("given up", {"final": 0, "failed": "is_archived"}, True),
        (
            "of a clarification that is over, never confirmed",
            {"final": 0, "clarification": "CLR-2-001"},
            True,
        ),
        ("of an open one", {"clarification": "CLR-1-001"}, False),
        ("new", {"at": NEW}, False),
        ("to be changed yet", {"final": 0}, False),
        ("begun again", {"intent_at": NOW}, False),
    ],
)
async def test_messages_that_were_shown(store: Store, name: str, more: dict[str, Any], goes: bool) -> None:
    more = dict(more)
    await message(store, "card:x:1", ts(more.pop("at", OLD)), **more)
    await sweep(store, OPEN)
    assert (await names(store, "messages", "key") == []) is goes, name


@pytest.mark.parametrize(
    ("key", "more", "goes"),
    [
        ("card:CLR-2-001:1", {"clarification": "CLR-2-001"}, True),
        ("card:CLR-1-001:1", {"clarification": "CLR-1-001"}, False),
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
    await put(store, "sessions", producer="planner", session_id="there", agent_id="a")
    await inbox(store, 1, NEW, session_id="there")
    await message(store, key, None, **({"final": 0} | more))

    await sweep(store, OPEN)
    assert await names(store, "messages", "key") == [key]
    await sweep(store, OPEN, NOW + 29 * DAY)
    assert await names(store, "messages", "key") == [key]
    await inbox(store, 2, NOW + 30 * DAY, session_id="there")
    await sweep(store, OPEN, NOW + 31 * DAY)
    assert (await names(store, "messages", "key") == []) is goes
    assert await store.read("select * from over where name = :key", key=key) == []


async def test_timeless_rows_go_after_they_were_seen_for_that_long(store: Store) -> None:
    await put(store, "texts", id="a", body=json.dumps({"text": "a draft"}))
    await put(store, "texts", id="b", body=json.dumps({"about": "CLR-1-001 CLR-2-001"}))
    await put(store, "onces", key="hint:CLR-1-001:1:U1:x")
    await put(store, "onces", key="hint:CLR-2-001:1:U1:x")
    await put(store, "slack_events", event_id="Ev1", state="done")
    await put(store, "slack_events", event_id="Ev2", state="new", body="{}")
    await put(store, "replies", clarification="CLR-1-001", token="t")
    await put(store, "replies", clarification="CLR-2-001", token="t")

    assert await sweep(store, OPEN) == {}
    gone = await sweep(store, OPEN, NOW + 31 * DAY)

    assert gone == {"texts": 1, "onces": 1, "slack_events": 1, "replies": 1}
    assert await names(store, "texts", "id") == ["b"]
    assert await names(store, "onces", "key") == ["hint:CLR-1-001:1:U1:x"]
    assert await names(store, "slack_events", "event_id") == ["Ev2"]
    assert await names(store, "replies", "clarification") == ["CLR-1-001"]


async def incident(store: Store, number: int, page: int, closed: float | None = OLD, **more: Any) -> None:
    row = {
        "id": number,
        "key": f"escalated:{number}",
        "kind": "escalated",
        "title": "t",
        "reason": "r",
        "body": "b",
        "began_at": OLD,
        "closed_at": closed,
    }
    state = more.pop("state", "sent")
    await put(store, "incidents", **(row | more))
    await put(store, "incident_log", incident=number, at=OLD, what="began")
    await put(store, "pages", id=page, kind="escalated", step=0, at=OLD)
    await put(store, "page_items", page=page, incident=number)
    key = f"page:{page}:U1"
    await put(
        store,
        "page_sendings",
        page=page,
        via="slack",
        target="U1",
        mentions="[]",
        message=key,
        state=state,
    )
    await message(store, key, ts(OLD + number))


async def test_incidents_go_with_their_pages(store: Store) -> None:
    await incident(store, 1, 1)
    await incident(store, 2, 2, None)  # open
    await incident(store, 3, 3, clarification="CLR-1-001")
    await incident(store, 4, 4, state="wanted")  # its page is on its way
    await incident(store, 5, 5, kind="ledger")  # found again at each start
    await incident(store, 6, 6, NEW)

    gone = await sweep(store, OPEN)

    assert gone == {"incidents": 1, "pages": 1}
    assert await names(store, "incidents", "id") == [2, 3, 4, 5, 6]
    assert await names(store, "incident_log", "incident") == [2, 3, 4, 5, 6]
    assert await names(store, "page_sendings", "page") == [2, 3, 4, 5, 6]
    assert await names(store, "messages", "key") == [f"page:{n}:U1" for n in range(2, 7)]


async def test_sessions_go_last(store: Store) -> None:
    for name in ("heard", "shown", "s1", "over"):
        await put(store, "sessions", producer="planner", session_id=name, agent_id="a")
    await inbox(store, 1, NEW, session_id="heard")
    await message(store, "notice:1", ts(NEW), producer="planner", session_id="shown")

    assert await sweep(store, OPEN) == {"sessions": 1}
    assert await names(store, "sessions", "session_id") == ["heard", "s1", "shown"]


async def test_others_of_a_time_of_their_own(store: Store) -> None:
    await put(store, "homes", user_id="U1", team="T", channel="D", opened_at=OLD, pages="{}")
    await put(store, "homes", user_id="U2", team="T", channel="D", opened_at=NEW, pages="{}")
    for over in (OLD, OLD, NEW):
        await put(store, "overrides", policy="p", user_id="U", since=0, until=over, made_by="U")
    assert await sweep(store) == {"homes": 1, "overrides": 2}


async def test_pushed_replies_go_once_nobody_reads_them_again(store: Store) -> None:
    rows = [("confirmed", OLD, None), ("written", OLD, OLD), ("written", OLD, None), ("waiting", None, OLD)]
    for number, (state, written, expires) in enumerate(rows):
        await put(
            store,
            "pushed_replies",
            producer="planner",
            token=f"t{number}",
            digest="d",
            body="{}",
            state=state,
            written_at=written,
            expires_at=expires,
        )
    await sweep(store)
    assert await names(store, "pushed_replies", "token") == ["t2"]


async def test_file_gets_smaller(store: Store) -> None:
    rows = [{"key": f"notice:{n}", "body": "x" * 1000, "ts": ts(OLD + n)} for n in range(3000)]
    sql = "insert into messages (key, kind, target, body, ts, final) values (:key, 'notice', 'C', :body, :ts, 1)"
    await store.write(lambda tx: tx.many(sql, rows))
    before = (await store.read("pragma page_count"))[0][0]

    assert await sweep(store) == {"messages": 3000}

    assert (await store.read("pragma page_count"))[0][0] < before / 4
    assert (await store.read("pragma freelist_count"))[0][0] == 0


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[FileLedger]:
    folder = tmp_path / "ledgers"
    folder.mkdir()
    made = FileLedger(folder)
    yield made
    made.close()


def upkeep(
    ledger: FileLedger, store: Store, clock: ManualClock, index: Index, keep: timedelta | None = MONTH
) -> Upkeep:
    return Upkeep(ledger=ledger, store=store, index=index, clock=clock, archive_after=MONTH, keep=keep)


async def put_record(ledger: FileLedger, made: Clarification) -> None:
    await ledger.transact(made.issue_number, lambda book: book.put(made))


async def test_run_archives_at_the_start_and_a_day_later(ledger: FileLedger, store: Store) -> None:
    clock = ManualClock(START + MONTH + timedelta(hours=12))
    await put_record(ledger, abandoned(record(1), "expired", START))
    await put_record(ledger, abandoned(record(2), "expired", START + timedelta(days=1)))
    await put_record(ledger, record(3))
    task = asyncio.create_task(upkeep(ledger, store, clock, Index()).run())
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
    clock = ManualClock(START + MONTH)
    ledger.path(1).write_text("{ broken")
    await put_record(ledger, abandoned(record(2), "expired", START))
    await upkeep(ledger, store, clock, Index()).tidy()
    assert list(ledger.issues()) == []  # the broken one was set aside, the other one archived
    assert [issue for issue, _ in ledger.archive.files()] == [2]


@pytest.mark.parametrize(("keep", "left"), [(None, 2), (MONTH, 1)])
async def test_tidy_keeps_what_is_open_and_everything_without_keep(
    ledger: FileLedger, store: Store, keep: timedelta | None, left: int
) -> None:
    index, waiting = Index(), record(1)
    index.put(summarize(waiting))
    for number, about in enumerate([waiting.id, "CLR-2-001"]):
        await message(store, f"card:{about}:1", ts(START.timestamp() + number), clarification=about)
    clock = ManualClock(START + MONTH + timedelta(days=1))
    await upkeep(ledger, store, clock, index, keep).tidy()
    assert len(await names(store, "messages", "key")) == left
