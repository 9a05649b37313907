"""Producers' events: stored once, with the cursor, under the right issue's number."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Awaitable
from datetime import timedelta
from typing import Any

import pytest
from structlog.testing import capture_logs

from bot.ask.inbox import (
    FIRST_RESERVED_ISSUE,
    Arrived,
    Inbox,
    Session,
    declared_issue,
    issue_for,
    reserve_above,
    take,
)
from bot.ask.receiver import Arrival, Frame, Gaps, Oversize, Receiver, StreamTrouble
from bot.errors import StorageUnavailable
from bot.storage.ledger import LockedError
from bot.storage.opening import open_storage
from bot.storage.store import Store
from bot.storage.tx import Tx, Work
from core.aaep import parse_event
from core.workflow import Speaker
from tests.kit.clocks import START, ManualClock
from tests.kit.databases import Server, sqlite_of
from tests.kit.events import incoming, raw
from tests.unit.bot.ask.parties import NOW, Box, event, question, seeded

EXPIRES = START + timedelta(minutes=5)


@pytest.fixture
def inbox(store: Store) -> Inbox:
    return Inbox(store)


async def came(inbox: Inbox, event: dict[str, Any] | None = None, **how: Any) -> Arrived:
    (arrived,) = await inbox.put(incoming(event, **how))
    return arrived


async def put(inbox: Inbox, event: dict[str, Any] | None = None, **how: Any) -> bool:
    """Whether it is new."""
    return await came(inbox, event, **how) == "new"


async def issues(inbox: Inbox) -> list[int | None]:
    return [item.issue for item in await inbox.waiting(0)]


async def test_put_keeps_all_of_an_event(inbox: Inbox) -> None:
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
        ({"event_id": "evt_2"}, "planner", False),  # same token, same contents
        ({"event_id": "evt_2", "reply_token": "rpl_2"}, "planner", True),
        ({"event_id": "evt_2", "question": "Deploy to staging?"}, "planner", True),  # a token used again
        ({"event_id": "evt_2", "session_id": "sess_2"}, "planner", True),  # likewise, in a later session
        (
            {"timestamp": "2026-11-21T10:00:00Z", "sequence_number": 9},
            "planner",
            False,
        ),  # made anew, says the same
        ({"reply_token": "rpl_2"}, "planner", True),  # an id used again
        ({}, "writer", True),
    ],
)
async def test_put_deduplicates_by_what_events_say(
    inbox: Inbox, second: dict[str, str], producer: str, fresh: bool
) -> None:
    assert await put(inbox)
    assert await put(inbox, raw(**second), producer=producer) is fresh
    assert len(await inbox.waiting(0)) == 1 + fresh


@pytest.mark.parametrize(
    ("second", "arrived"),
    [
        ({}, "duplicate"),
        ({"reply_token": "rpl_2"}, "event_id used"),
        ({"event_id": "evt_2", "question": "Deploy to staging?"}, "reply_token used"),
        ({"event_id": "evt_2", "session_id": "sess_2"}, "reply_token used"),
    ],
)
async def test_producer_that_is_told_is_told_of_ids_and_tokens_that_are_used(
    inbox: Inbox, second: dict[str, str], arrived: Arrived
) -> None:
    assert await came(inbox, refusable=True) == "new"
    assert await came(inbox, raw(**second), refusable=True) == arrived
    assert len(await inbox.waiting(0)) == 1 + (arrived == "new")


@pytest.mark.parametrize("refusable", [True, False])
async def test_event_of_which_nothing_is_known_any_more_is_known_by_its_id(
    inbox: Inbox, store: Store, refusable: bool
) -> None:
    await came(inbox, refusable=refusable)
    await store.run("update inbox set contents = null")
    assert await came(inbox, raw(question="Deploy to staging?"), refusable=refusable) == "duplicate"
    assert (
        await came(inbox, raw(event_id="evt_2", question="Deploy to staging?"), refusable=refusable) == "new"
    )


async def test_duplicates_are_known_after_they_are_done_and_content_is_forgotten(
    inbox: Inbox, store: Store
) -> None:
    await put(inbox)
    await inbox.done([1])
    assert await inbox.waiting(0) == []
    assert not await put(inbox)
    assert [row["body"] for row in await store.read("select body from inbox")] == [None]


async def test_cursor_moves_with_the_event_also_for_duplicates(inbox: Inbox) -> None:
    assert await inbox.cursor("planner") is None
    await put(inbox, cursor="1")
    assert await inbox.cursor("planner") == "1"
    assert not await put(inbox, cursor="2")
    assert (await inbox.cursor("planner"), await inbox.cursor("writer")) == ("2", None)
    await put(inbox, raw(event_id="evt_2"), cursor=None)
    assert await inbox.cursor("planner") == "2"


async def test_cursor_stays_when_the_event_was_not_stored(inbox: Inbox, store: Store) -> None:
    await put(inbox, cursor="1")
    await sqlite_of(store).writer.execute_fetchall("pragma query_only = on")
    with pytest.raises(StorageUnavailable):
        await put(inbox, raw(event_id="evt_2", reply_token="rpl_2"), cursor="2")
    await sqlite_of(store).writer.execute_fetchall("pragma query_only = off")
    assert await inbox.cursor("planner") == "1"
    assert len(await inbox.waiting(0)) == 1


async def test_sessions_without_an_issue_get_reserved_ones(inbox: Inbox) -> None:
    await put(inbox)
    await put(inbox, raw(event_id="e2", reply_token="r2"))
    await put(inbox, raw(event_id="e3", reply_token="r3", session_id="sess_2"))
    await put(inbox, raw(event_id="e4", reply_token="r4"), producer="writer")
    first = FIRST_RESERVED_ISSUE
    assert await issues(inbox) == [first, first, first + 1, first + 2]


@pytest.mark.parametrize(("first", "second"), [("a", "b"), ("s", "s")])
async def test_two_bots_that_store_events_and_questions_never_wait_for_each_other(
    postgres_server: Server, first: str, second: str
) -> None:
    """One has the inbox and needs a session or a number; the other has those, and needs the inbox."""
    url = postgres_server.new()
    one, other_bot = await open_storage(url), await open_storage(url)
    has_the_inbox, both_hold_something = threading.Event(), threading.Barrier(2)

    def event_of(session: str) -> Work[Any]:
        return lambda tx: take(tx, incoming(raw(event_id=session, reply_token=session, session_id=session)))

    def asked_in(session: str) -> Work[Any]:
        return lambda tx: issue_for(tx, Session("planner", session, "agent", None, None))

    def begun(_tx: Tx) -> None:
        has_the_inbox.set()

    def second_to_begin(_tx: Tx) -> None:
        assert has_the_inbox.wait(20)

    def meet(_tx: Tx) -> None:
        both_hold_something.wait(20)

    def all_of(store: Store, *works: Work[Any]) -> Awaitable[list[Any]]:
        return asyncio.gather(*map(store.write, works), return_exceptions=True)

    found = await asyncio.gather(
        all_of(one, event_of("e"), begun, meet, event_of(first)),
        all_of(other_bot, second_to_begin, asked_in(second), meet, event_of("f")),
    )
    await one.close()
    await other_bot.close()
    errors = [each for results in found for each in results if isinstance(each, Exception)]
    assert [type(each) for each in errors] == [LockedError], "it is tried again"


@pytest.mark.parametrize("highest", [100_000, 100_007])
async def test_reserved_numbers_start_above_those_of_a_lost_database(
    inbox: Inbox, store: Store, highest: int
) -> None:
    await store.write(lambda tx: reserve_above(tx, highest))
    await put(inbox)
    assert await issues(inbox) == [highest + 1]
    await store.write(lambda tx: reserve_above(tx, highest))
    await put(inbox, raw(event_id="e2", reply_token="r2", session_id="sess_2"))
    assert await issues(inbox) == [highest + 1, highest + 2]


@pytest.mark.parametrize(
    ("value", "issue"),
    [(42, 42), ("42", 42), (100_000, 100_000), (100_001, None), (0, None), (-1, None), (True, None), (4.0, None),
     ("x", None), ("", None), ("1" * 5000, None), (None, None), ([42], None), ("٤٢", 42)],
)  # fmt: skip
def test_declared_issue_table(value: object, issue: int | None) -> None:
    event = parse_event(raw(extensions={"agentx": {"issue": value}}), START)
    assert declared_issue(event) == issue


async def test_event_nested_to_the_limit_is_kept_in_what_matters(inbox: Inbox) -> None:
    nest: list[Any] = []
    for _ in range(5000):
        nest = [nest]
    assert await put(inbox, raw(deep=nest))
    (item,) = await inbox.waiting(0)
    assert item.event.question is not None
    assert item.event.question.question == "Deploy to production?"


SECRET = "Deploy to production?"


class Desk:
    """A receiver with what it writes to."""

    def __init__(self, store: Store) -> None:
        self.box, self.clock = Box(store), ManualClock(NOW)
        self.troubles: list[StreamTrouble] = []
        self.receiver = Receiver(
            speaker=Speaker("planner"),
            inbox=self.box,
            clock=self.clock,
            rng=seeded(1),
            report_trouble=self.tell,
        )
        self.counters, self.offset = self.receiver.counters, self.receiver.offset

    async def tell(self, trouble: StreamTrouble) -> None:
        self.troubles.append(trouble)

    async def take(self, data: object, **fields: Any) -> None:
        await self.receiver.handle(arrival(data, **fields))


@pytest.fixture
def desk(store: Store) -> Desk:
    return Desk(store)


def arrival(
    data: object, *, live: bool = False, resumable: bool = False, filtered: bool = False, **fields: Any
) -> Arrival:
    text = data if isinstance(data, str) else json.dumps(data)
    values: dict[str, Any] = {"id": "evt_9", "size": len(text), "skimmed": 0, **fields}
    return Arrival(Frame(text, **values), NOW + timedelta(seconds=3), live, filtered, resumable)


def read(data: object) -> Frame:
    text = json.dumps(data)
    return Frame(text, None, len(text), 0)


async def test_receiver_drops_what_the_skim_could_not_prove(desk: Desk) -> None:
    await desk.take(event("agent.output.streaming", chunk="critical", type_="x"))
    await desk.take(event("agent.progress.updated", urgency="critical"))
    assert desk.counters.skimmed == 1
    assert [one.event.type for one in desk.box.got] == ["agent.progress.updated"]


@pytest.mark.parametrize(
    ("data", "paged"),
    [
        ("ping", False),
        ("[1, 2]", False),
        ("{}", False),
        ('{"type": 5}', False),
        ("[" * 100_000, False),
        (
            '{"type": "aaep:agent.awaiting.clarification", "session_id": "sess_1", "producer": {"agent_id": "a"',
            True,
        ),
        ('[{"type": "aaep:agent.handoff.requested"}]', True),
        ('{"urgency": "critical"}', True),
    ],
)
async def test_receiver_survives_what_is_no_event(desk: Desk, data: str, paged: bool) -> None:
    with capture_logs() as logs:
        await desk.take(data)
        await desk.take(event(n=2))
    assert desk.counters.unreadable == 1
    assert len(desk.troubles) == paged
    assert desk.box.ids() == ["evt_0000000000000002"]
    assert not any(data in str(line) for line in logs if len(data) > 4)


async def test_receiver_pages_with_what_could_be_read(desk: Desk) -> None:
    await desk.take(
        '{"type": "aaep:agent.awaiting.clarification", "session_id": "sess_1", "agent_id": "a", "question": "Q'
    )
    await desk.receiver.handle(
        Arrival(Oversize('{"type": "x:y", "session_id": "sess_2", "question": "Q', 0), NOW, live=False)
    )
    first, second = desk.troubles
    assert (first.key, first.session_id, first.agent_id) == ("unreadable:sess_1", "sess_1", "a")
    assert (second.key, second.session_id, second.agent_id) == ("oversize:sess_2", "sess_2", None)
    assert "x:y" in second.summary
    assert desk.counters.oversize == 1


@pytest.mark.parametrize(("resumable", "pages"), [(True, 0), (False, 1)])
async def test_receiver_pages_for_a_torn_question_only_where_it_is_lost(
    desk: Desk, resumable: bool, pages: int
) -> None:
    await desk.take(json.dumps(question())[:-9], torn=True, id=None, resumable=resumable)
    assert len(desk.troubles) == pages


async def test_receiver_stores_what_waits_together_but_for_what_cannot_be_stored_and_pages_for_that(
    desk: Desk,
) -> None:
    desk.box.chokes_on = "evt_0000000000000002"
    with capture_logs() as logs:
        await desk.receiver.handle(*(arrival(question(n)) for n in (1, 2, 3)))
    assert desk.box.ids() == ["evt_0000000000000001", "evt_0000000000000003"]
    assert [one.key for one in desk.troubles] == ["failed:sess_2c91a7b4d23f1e88"]
    assert SECRET not in str(logs)
    assert "KeyError" in str(logs)


@pytest.mark.parametrize(
    ("sent", "live", "behind", "expires"),
    [
        ("2026-05-24T14:22:11Z", True, 0, 300),
        ("2026-05-24T14:21:11Z", False, 0, 240),
        ("2026-05-24T14:20:11Z", True, 120, 300),
        ("2020-01-01T00:00:00Z", True, 0, 300),  # no clock is this wrong: it was sent when it came
        ("2999-01-01T00:00:00Z", True, 0, 300),
        ("nonsense", True, 0, 300),
    ],
)
async def test_receiver_puts_the_end_of_a_question_on_our_clock(
    desk: Desk, sent: str, live: bool, behind: float, expires: float
) -> None:
    desk.offset.observe(NOW - timedelta(seconds=behind), NOW, live=True)
    asked = question(timestamp=sent, timeout_seconds=300)
    await desk.receiver.handle(Arrival(read(asked), NOW, live=live))
    (item,) = await desk.box.waiting(0)
    assert item.expires_at == NOW + timedelta(seconds=expires)


@pytest.mark.parametrize(
    ("seen", "missing"),
    [
        ([(0, 0), (1, 0), (2, 0)], 0),
        ([(0, 0), (4, 0)], 3),
        ([(0, 0), (4, 3)], 0),  # skimmed ones carry numbers too
        ([(0, 0), (4, 1)], 2),
        ([(5, 0)], 0),  # who knows what was before
        ([(5, 0), (0, 0), (1, 0), (6, 0)], 0),  # a replay
    ],
)
def test_gaps_counts_what_is_certainly_missing(seen: list[tuple[int, int]], missing: int) -> None:
    gaps = Gaps()
    assert sum(gaps.missing("sess_1", number, skimmed) for number, skimmed in seen) == missing
