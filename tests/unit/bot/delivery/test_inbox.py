"""What producers told us: taken in once, with the cursor, under the right ledger's number."""

from __future__ import annotations

import asyncio
import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from bot.delivery.inbox import FIRST_RESERVED_ISSUE, SqliteInbox, declared_issue
from bot.delivery.store import Store
from bot.errors import StorageUnavailable
from bot.ports import Arrived
from core.aaep import parse_event
from tests.clocks import START
from tests.unit.bot.delivery.events import incoming, other, raw

EXPIRES = START + timedelta(minutes=5)


@pytest.fixture
def inbox(store: Store) -> SqliteInbox:
    return SqliteInbox(store)


async def came(inbox: SqliteInbox, event: dict[str, Any] | None = None, **how: Any) -> Arrived:
    (arrived,) = await inbox.put_all([(incoming(event, **how), START, EXPIRES)])
    return arrived


async def put(inbox: SqliteInbox, event: dict[str, Any] | None = None, **how: Any) -> bool:
    """Whether it is new."""
    return await came(inbox, event, **how) == "new"


async def issues(inbox: SqliteInbox) -> list[int | None]:
    return [item.issue for item in await inbox.waiting(0)]


async def test_put_keeps_all_of_an_event(inbox: SqliteInbox) -> None:
    event = raw(context="We migrate.", extensions={"x": [1, None]}, question="Wäre 👍?")
    assert await put(inbox, event, live=False)
    (item,) = await inbox.waiting(0)
    assert item.event == parse_event(event, START)
    assert (item.producer, item.at, item.received_at, item.expires_at, item.live) == (
        "planner", START, START, EXPIRES, False,
    )  # fmt: skip
    assert await inbox.waiting(item.id) == []


@pytest.mark.parametrize(
    ("second", "producer", "fresh"),
    [
        ({}, "planner", False),
        ({"event_id": "evt_2"}, "planner", False),  # same token, same words
        ({"event_id": "evt_2", "reply_token": "rpl_2"}, "planner", True),
        ({"event_id": "evt_2", "question": "Deploy to staging?"}, "planner", True),  # a token used again
        ({"event_id": "evt_2", "session_id": "sess_2"}, "planner", True),  # likewise, in a later session
        (
            {"timestamp": "2026-11-21T10:00:00Z", "sequence_number": 9},
            "planner",
            False,
        ),  # made anew, says the same
        ({"reply_token": "rpl_2"}, "planner", True),  # an id used again
        ({"question": "Deploy to staging?"}, "planner", True),
        ({"session_id": "sess_2"}, "planner", True),
        ({"choices": [{"value": "a", "label": "A"}]}, "planner", True),
        ({}, "writer", True),
    ],
)
async def test_put_deduplicates_by_what_events_say(
    inbox: SqliteInbox, second: dict[str, str], producer: str, fresh: bool
) -> None:
    assert await put(inbox)
    assert await put(inbox, raw(**second), producer=producer) is fresh
    assert len(await inbox.waiting(0)) == 1 + fresh


@pytest.mark.parametrize(
    ("second", "arrived"),
    [
        ({}, "duplicate"),
        ({"timestamp": "2026-11-21T10:00:00Z", "sequence_number": 9}, "duplicate"),
        ({"event_id": "evt_2"}, "duplicate"),
        ({"reply_token": "rpl_2"}, "event_id used"),
        ({"question": "Deploy to staging?"}, "event_id used"),
        ({"event_id": "evt_2", "question": "Deploy to staging?"}, "reply_token used"),
        ({"event_id": "evt_2", "session_id": "sess_2"}, "reply_token used"),
        ({"event_id": "evt_2", "reply_token": "rpl_2"}, "new"),
    ],
)
async def test_producer_that_is_told_is_told_of_ids_and_tokens_that_are_used(
    inbox: SqliteInbox, second: dict[str, str], arrived: Arrived
) -> None:
    assert await came(inbox, told=True) == "new"
    assert await came(inbox, raw(**second), told=True) == arrived
    assert len(await inbox.waiting(0)) == 1 + (arrived == "new")


async def test_events_under_one_id_are_told_apart_and_known_when_they_come_again(inbox: SqliteInbox) -> None:
    others = [raw(reply_token=f"rpl_{number}", question=f"Deploy {number}?") for number in range(3)]
    assert [await came(inbox, each) for each in others] == ["new"] * 3
    assert [await came(inbox, each) for each in others] == ["duplicate"] * 3
    found = await inbox.waiting(0)
    assert [item.event.question.text for item in found if item.event.question] == [
        "Deploy 0?",
        "Deploy 1?",
        "Deploy 2?",
    ]
    names = [item.event.event_id for item in found]
    assert names[0] == "evt_1"
    assert len(set(names)) == 3
    assert all(name.startswith("evt_1#") for name in names[1:])


@pytest.mark.parametrize("told", [True, False])
async def test_event_of_which_nothing_is_known_any_more_is_known_by_its_id(
    inbox: SqliteInbox, store: Store, told: bool
) -> None:
    """Forgotten, or taken in by a release that kept no digest."""
    await came(inbox, told=told)
    await store.execute("update inbox set contents = null, words = null")
    assert await came(inbox, raw(question="Deploy to staging?"), told=told) == "duplicate"
    assert await came(inbox, raw(event_id="evt_2", question="Deploy to staging?"), told=told) == "new"


@pytest.mark.parametrize(
    ("words", "arrived"), [({}, "duplicate"), ({"question": "Else?"}, "reply_token used")]
)
async def test_token_of_an_earlier_release_is_known_by_its_words(
    inbox: SqliteInbox, store: Store, words: dict[str, str], arrived: Arrived
) -> None:
    await came(inbox, told=True)
    await store.execute("update inbox set contents = null")
    assert await came(inbox, raw(event_id="evt_2", **words), told=True) == arrived


async def test_put_at_once_twice_takes_one(inbox: SqliteInbox) -> None:
    assert sorted(await asyncio.gather(*(put(inbox) for _ in range(10)))) == [False] * 9 + [True]


async def test_duplicates_are_known_after_they_are_done_and_content_is_forgotten(
    inbox: SqliteInbox, store: Store
) -> None:
    await put(inbox)
    await inbox.done([1])
    assert await inbox.waiting(0) == []
    assert not await put(inbox)
    assert [row["body"] for row in await store.read("select body from inbox")] == [None]


async def test_failed_keeps_its_content_and_does_not_come_again(inbox: SqliteInbox, store: Store) -> None:
    await put(inbox)
    await inbox.failed([1])
    assert await inbox.waiting(0) == []
    row = await store.read_one("select body from inbox")
    assert row is not None
    assert json.loads(row["body"])["event_id"] == "evt_1"


async def test_cursor_moves_with_the_event_also_for_duplicates(inbox: SqliteInbox) -> None:
    assert await inbox.cursor("planner") is None
    await put(inbox, cursor="1")
    assert await inbox.cursor("planner") == "1"
    assert not await put(inbox, cursor="2")
    assert (await inbox.cursor("planner"), await inbox.cursor("writer")) == ("2", None)
    await put(inbox, raw(event_id="evt_2"), cursor=None)
    assert await inbox.cursor("planner") == "2"


async def test_cursor_stays_when_the_event_was_not_stored(inbox: SqliteInbox, store: Store) -> None:
    await put(inbox, cursor="1")
    await store._writer.execute_fetchall("pragma query_only = on")
    with pytest.raises(StorageUnavailable):
        await put(inbox, raw(event_id="evt_2", reply_token="rpl_2"), cursor="2")
    await store._writer.execute_fetchall("pragma query_only = off")
    assert await inbox.cursor("planner") == "1"
    assert len(await inbox.waiting(0)) == 1


async def test_sessions_without_an_issue_get_reserved_ones(inbox: SqliteInbox) -> None:
    await put(inbox)
    await put(inbox, raw(event_id="e2", reply_token="r2"))
    await put(inbox, raw(event_id="e3", reply_token="r3", session_id="sess_2"))
    await put(inbox, raw(event_id="e4", reply_token="r4"), producer="writer")
    first = FIRST_RESERVED_ISSUE
    assert await issues(inbox) == [first, first, first + 1, first + 2]


async def test_declared_issue_is_the_sessions(inbox: SqliteInbox) -> None:
    await put(inbox, other("session.started", extensions={"agentx": {"issue": 42}}))
    await put(inbox)
    await put(inbox, raw(event_id="e2", reply_token="r2", extensions={"agentx": {"issue": 43}}))
    await put(inbox, raw(event_id="e3", reply_token="r3"))
    assert await issues(inbox) == [42, 42, 43, 42]


async def test_number_that_nobody_can_go_on_from_is_left(inbox: SqliteInbox, store: Store) -> None:
    await store.execute("insert into counters values ('issue', 999999999999999)")
    assert await inbox.last_issue() == 0
    await inbox.reserve_above(100_007)
    await put(inbox)
    assert await issues(inbox) == [100_008]
    assert await inbox.last_issue() == 100_008


async def test_event_without_a_question_takes_no_number(inbox: SqliteInbox) -> None:
    await put(inbox, other("tool.completed"))
    await put(inbox)
    assert await issues(inbox) == [None, FIRST_RESERVED_ISSUE]


@pytest.mark.parametrize(
    ("highest", "given"), [(0, 100_001), (42, 100_001), (100_000, 100_001), (100_007, 100_008)]
)
async def test_reserved_numbers_start_above_existing_ledgers(
    inbox: SqliteInbox, highest: int, given: int
) -> None:
    await inbox.reserve_above(highest)
    await put(inbox)
    assert await issues(inbox) == [given]
    await inbox.reserve_above(highest)
    await put(inbox, raw(event_id="e2", reply_token="r2", session_id="sess_2"))
    assert await issues(inbox) == [given, given + 1]


@pytest.mark.parametrize(
    ("value", "issue"),
    [(42, 42), ("42", 42), (100_000, 100_000), (100_001, None), (0, None), (-1, None), (True, None), (4.0, None),
     ("x", None), ("", None), ("1" * 5000, None), (None, None), ([42], None), ("٤٢", 42)],
)  # fmt: skip
def test_declared_issue_table(value: object, issue: int | None) -> None:
    event = parse_event(raw(extensions={"agentx": {"issue": value}}), START)
    assert declared_issue(event) == issue


async def test_numbers_survive_a_restart(tmp_path: Path) -> None:
    for number in range(2):
        store = await Store.open(tmp_path / "again.db")
        inbox = SqliteInbox(store)
        await put(
            inbox,
            raw(event_id=f"e{number}", reply_token=f"r{number}", session_id=f"s{number}"),
            cursor=str(number),
        )
        found = await issues(inbox)
        await store.close()
    assert found == [FIRST_RESERVED_ISSUE, FIRST_RESERVED_ISSUE + 1]


async def test_event_nested_to_the_limit_is_kept_in_what_matters(inbox: SqliteInbox) -> None:
    nest: list[Any] = []
    for _ in range(5000):
        nest = [nest]
    assert await put(inbox, raw(deep=nest))
    (item,) = await inbox.waiting(0)
    assert item.event.question is not None
    assert item.event.question.text == "Deploy to production?"
