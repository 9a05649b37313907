"""What the storage keeps: rows of what is over go after `keep`, rows that something open needs stay."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from bot.delivery.retained import Needed, Retained
from bot.storage.store import Store

DAY = 86_400.0
NOW = 1_800_000_000.0
HORIZON = NOW - 30 * DAY
OLD, NEW = HORIZON - DAY, HORIZON + DAY
NOTHING = Needed()
OPEN = Needed(frozenset({"CLR-1-001"}), frozenset({("planner", "s1")}))


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    opened = await Store.open(tmp_path / "clarify.db")
    yield opened
    await opened.close()


async def put(store: Store, table: str, **row: Any) -> None:
    columns = ", ".join(row)
    marks = ", ".join("?" * len(row))
    await store.execute(f"insert into {table} ({columns}) values ({marks})", *row.values())  # noqa: S608 - names in this file


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


async def message(store: Store, key: str, ts: float | None = OLD, **more: Any) -> None:
    row = {
        "key": key,
        "kind": key.partition(":")[0],
        "target": "C1",
        "channel": "C1" if ts else None,
        "ts": f"{ts:.6f}" if ts else None,
        "final": 1,
    }
    await put(store, "messages", **(row | more))


async def names(store: Store, table: str, column: str) -> list[Any]:
    return [row[0] for row in await store.read(f"select {column} from {table} order by 1")]  # noqa: S608 - as above


async def sweep(store: Store, needed: Needed = NOTHING, now: float = NOW) -> dict[str, int]:
    return dict(await Retained(store, batch=2).sweep(now - 30 * DAY, now, needed))


async def test_inbox_what_is_worked_off_and_old_goes(store: Store) -> None:
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
    await store.execute(
        """insert into inbox (producer, event_id, session_id, received_at, at, live)
           values ('planner', 'next', 's', 1, 1, 1)"""
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
    await message(store, "card:x:1", more.pop("at", OLD), **more)
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
    assert await store.read("select * from over where name = ?", key) == []


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
    await message(store, key, OLD + number)


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
    await message(store, "notice:1", NEW, producer="planner", session_id="shown")

    assert await sweep(store, OPEN) == {"sessions": 1}
    assert await names(store, "sessions", "session_id") == ["heard", "s1", "shown"]


async def test_others_of_a_time_of_their_own(store: Store) -> None:
    await put(store, "homes", user_id="U1", team="T", channel="D", opened_at=OLD, pages="{}")
    await put(store, "homes", user_id="U2", team="T", channel="D", opened_at=NEW, pages="{}")
    for until in (OLD, OLD, NEW):
        await put(store, "overrides", policy="p", user_id="U", since=0, until=until, made_by="U")
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


async def test_file_gets_smaller_and_writers_have_their_turn(store: Store, tmp_path: Path) -> None:
    def fill(db: sqlite3.Connection) -> None:
        for number in range(3000):
            db.execute(
                "insert into messages (key, kind, target, body, ts, final) values (?, 'notice', 'C', ?, ?, 1)",
                (f"notice:{number}", "x" * 1000, f"{OLD + number:.6f}"),
            )

    await store.write(fill)
    before = (await store.read("pragma page_count"))[0][0]

    assert await sweep(store) == {"messages": 3000}

    assert (await store.read("pragma page_count"))[0][0] < before / 4
    assert (await store.read("pragma freelist_count"))[0][0] == 0
