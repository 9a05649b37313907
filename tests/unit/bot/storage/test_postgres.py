"""PostgreSQL: connections that break, at every moment of a transaction; several bots on one database."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import aclosing, closing
from datetime import UTC, datetime, timedelta

import psycopg
import pytest
from structlog.testing import capture_logs

from bot.errors import NotLeading, StorageError, StorageInDoubt, StorageSilent, StorageUnavailable
from bot.storage import postgres
from bot.storage.opening import open_storage
from bot.storage.server import Lease, ListeningConnection, Sample, ServerClock, Terms, _LeaseAnswer
from bot.storage.store import Store
from bot.storage.tx import Query, Row, Tx
from core.clock import SystemClock
from tests.kit.clocks import ManualClock
from tests.kit.databases import Server, Wire, set_read_only
from tests.kit.until import until

INSERT = "insert into onces (key) values (:key)"


async def keys(store: Store) -> set[str]:
    return {row["key"] for row in await store.read("select key from onces")}


@pytest.fixture
def wire(postgres_server: Server) -> Iterator[Wire]:
    made = Wire(postgres_server, postgres_server.new())
    yield made
    made.close()


async def test_what_broke_between_two_transactions_is_not_noticed(wire: Wire) -> None:
    store = await open_storage(wire.url)
    await store.run(INSERT, key="a")
    wire.cut()
    await store.run(INSERT, key="b")
    wire.cut()
    assert await keys(store) == {"a", "b"}
    await store.close()


@pytest.mark.parametrize("encoding", ["UTF8", "SQL_ASCII"])
async def test_words_are_kept_whatever_encoding_others_prefer(
    postgres_server: Server, encoding: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGCLIENTENCODING", "latin1")
    name = f"encoded_{encoding.lower()}"
    with closing(psycopg.connect(postgres_server.url("postgres"), autocommit=True)) as db:
        how = f"encoding '{encoding}' template template0 lc_collate 'C' lc_ctype 'C'"
        db.execute(f"create database {name} {how}".encode())
    url = postgres_server.url(name)
    problems = [each.text for each in postgres.check(url, url) if not each.ok]
    assert problems == ([] if encoding == "UTF8" else [f"its encoding is {encoding}"])
    store = await open_storage(url)
    await store.run(INSERT, key="“heißt” 日本")
    assert await keys(store) == {"“heißt” 日本"}
    await store.close()


@pytest.mark.parametrize("passes", [False, True])
async def test_commit_without_an_answer_is_read_back(wire: Wire, passes: bool) -> None:
    store = await open_storage(wire.url)
    wire.cut_at, wire.passes = b"commit", passes
    written = asyncio.create_task(store.run(INSERT, key="a"))
    if passes:
        assert await written == 1
    else:
        with pytest.raises(StorageUnavailable, match="Nothing was stored"):
            await written
    assert wire.cut_at is None
    assert await keys(store) == ({"a"} if passes else set())
    await store.close()


async def test_while_it_is_not_known_who_asked_waits(wire: Wire, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgres, "_RETRY", 0.01)
    store = await open_storage(wire.url)
    wire.cut_at, wire.passes, wire.blocked = b"commit", True, True
    written = asyncio.create_task(store.run(INSERT, key="a"))
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.3):
            await asyncio.shield(written)
    wire.blocked = False
    assert await written == 1
    await store.close()


async def test_who_waits_hears_that_nobody_can_tell(wire: Wire, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgres, "_RETRY", 0.01)
    monkeypatch.setattr(postgres, "_IN_DOUBT", 0.05)
    store = await open_storage(wire.url)
    wire.cut_at, wire.passes, wire.blocked = b"commit", True, True
    with pytest.raises(StorageInDoubt):
        await store.run(INSERT, key="a")
    wire.blocked = False
    assert await keys(store) == {"a"}
    await store.close()


async def test_several_bots_write_side_by_side(postgres_server: Server) -> None:
    url = postgres_server.new(empty=True)  # all of them make the tables
    stores = await asyncio.gather(*(open_storage(url) for _ in range(3)))
    assert len({store.installation for store in stores}) == 1
    await asyncio.gather(
        *(store.run(INSERT, key=f"{at} {n}") for at, store in enumerate(stores) for n in range(40))
    )
    assert len(await keys(stores[0])) == 120
    for store in stores:
        await store.close()


async def test_open_refuses_what_it_cannot_use(postgres_server: Server) -> None:
    url = postgres_server.new()
    with pytest.raises(StorageError, match="does not exist"):
        await open_storage(url.replace("/clarify_", "/nobody_"))
    with closing(psycopg.connect(url, autocommit=True)) as db:
        db.execute("truncate installation")
    with pytest.raises(StorageError, match="no installation"):
        await open_storage(url)


async def test_what_has_no_place_in_a_text_is_replaced_wherever_it_comes(postgres_server: Server) -> None:
    store = await open_storage(postgres_server.new())
    await store.run(INSERT, key="a\x00b")
    assert await keys(store) == {"a\ufffdb"}
    assert await store.run("delete from onces where key in :keys", keys=["a\x00b"]) == 1
    await store.close()


async def test_no_address_is_told(postgres_server: Server) -> None:
    """It may hold a password."""
    with pytest.raises(StorageError) as told:
        await open_storage("postgresql://postgres:secret@127.0.0.1:1/clarify")
    assert "secret" not in str(told.value)


async def test_leader_stops_a_margin_before_its_lease_ends_counted_from_when_it_asked() -> None:
    own = ManualClock()

    class Granting:
        """Renews the lease. Each answer takes two seconds."""

        async def run(self, _: object) -> object:
            now = own.steady()
            here = {"moved_to": None, "moved_from": None}
            return _LeaseAnswer(1, Sample(now - 2, now, 0.0), (None, None), here)

    lease = Lease(Granting(), "first", ServerClock(own), Terms(lasts=10.0, margin=3.0, renew=4.0))  # type: ignore[arg-type]
    await lease.acquire()
    await own.advance(3)
    assert lease.left == 2.0
    await own.advance(1)
    assert lease.left == 5.0
    assert lease._renewing is not None
    lease._renewing.cancel()
    await asyncio.wait([lease._renewing])


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leases of a moment."""
    monkeypatch.setattr(postgres, "TERMS", Terms(lasts=1.0, margin=0.3, renew=0.1, ask=0.05, silent=2.5))


@pytest.mark.usefixtures("short")
async def test_who_could_not_renew_its_lease_writes_nothing_more(wire: Wire) -> None:
    first = await open_storage(wire.url)
    await first.lead()
    wire.blocked = True
    wire.cut()
    second = await open_storage(wire.direct)
    async with asyncio.timeout(20):
        await second.lead()
    wire.blocked = False
    async with asyncio.timeout(20):
        await first.deposed()
    with pytest.raises(StorageUnavailable, match="another bot leads"):
        await first.run(INSERT, key="first")
    await second.run(INSERT, key="second")
    assert await keys(second) == {"second"}
    await first.close()
    await second.close()


@pytest.mark.usefixtures("short")
async def test_whoever_takes_over_waits_for_what_the_leader_is_writing(postgres_server: Server) -> None:
    url = postgres_server.new()
    first, second = await open_storage(url), await open_storage(url)
    await first.lead()
    begun, go_on = threading.Event(), threading.Event()

    def work(tx: Tx) -> None:
        begun.set()
        assert go_on.wait(20)
        tx.run(INSERT, key="first")

    writing = asyncio.create_task(first.write(work))
    await asyncio.to_thread(begun.wait, 20)
    first._lease._renewing.cancel()  # type: ignore[attr-defined]  # it stands still
    leading = asyncio.create_task(second.lead())
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(1.5):
            await asyncio.shield(leading)
    go_on.set()
    await writing
    async with asyncio.timeout(20):
        await leading
    with pytest.raises(StorageUnavailable, match="lease is over"):
        await first.run(INSERT, key="late")
    assert await keys(second) == {"first"}
    await first.close()
    await second.close()


@pytest.mark.usefixtures("short")
async def test_frozen_leader_in_a_transaction_is_not_waited_for(
    postgres_server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        postgres, "_IDLE_MS", 0
    )  # the server lets it stand, as where it waits for a message's rest
    url = postgres_server.new()
    first, second = await open_storage(url), await open_storage(url)
    await first.lead()
    begun, go_on = threading.Event(), threading.Event()

    def work(tx: Tx) -> None:
        tx.run(INSERT, key="first")
        begun.set()
        assert go_on.wait(20)

    writing = asyncio.create_task(first.write(work))
    await asyncio.to_thread(begun.wait, 20)
    first._lease._renewing.cancel()  # type: ignore[attr-defined]  # it stands still
    async with asyncio.timeout(20):
        await second.lead()
    await second.run(INSERT, key="second")
    go_on.set()
    with pytest.raises(StorageUnavailable, match="Nothing was stored"):
        await writing
    assert await keys(second) == {"second"}
    await first.close()
    await second.close()


async def may_act(store: Store) -> bool:
    try:
        async with store.acting():
            return True
    except NotLeading:
        return False


@pytest.mark.usefixtures("short")
async def test_leader_that_cannot_reach_the_database_does_nothing_as_such_until_it_can(wire: Wire) -> None:
    store = await open_storage(wire.url)
    assert not await may_act(store), "it does not lead yet"
    await store.lead()
    assert await may_act(store)
    wire.blocked = True
    wire.cut()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(20), store.acting():
            await asyncio.Event().wait()
    assert not await may_act(store)
    with pytest.raises(StorageUnavailable):
        await store.run(INSERT, key="a")
    wire.blocked = False
    async with asyncio.timeout(20):
        while not await may_act(store):  # noqa: ASYNC110 - there is no event for it
            await asyncio.sleep(0.01)
    await store.run(INSERT, key="b")
    assert await keys(store) == {"b"}
    await store.close()
    assert not await may_act(store)


@pytest.mark.usefixtures("short")
async def test_call_that_is_slow_to_end_when_the_lease_is_lost_breaks_nothing(wire: Wire) -> None:
    first, second = await open_storage(wire.url), await open_storage(wire.direct)
    await first.lead()
    wire.blocked = True
    wire.cut()

    async def call() -> None:
        async with asyncio.timeout(20), first.acting():
            try:
                await asyncio.Event().wait()
            finally:  # its connection is being closed
                await second.lead()
                wire.blocked = False
                await first.deposed()

    with pytest.raises(TimeoutError):
        await call()
    await asyncio.wait([renewing := first._lease._renewing], timeout=20)  # type: ignore[attr-defined]
    assert renewing.exception() is None
    await first.close()
    await second.close()


@pytest.mark.usefixtures("short")
async def test_what_takes_longer_than_a_lease_goes_on_while_it_is_renewed(postgres_server: Server) -> None:
    store = await open_storage(postgres_server.new())
    await store.lead()
    async with store.acting():
        await asyncio.sleep(1.5)
    await store.close()


@pytest.mark.usefixtures("short")
async def test_leader_that_stood_still_looks_at_its_clock_first(
    postgres_server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever was ready before its timer runs first."""
    monkeypatch.setattr(Lease, "_renew", lambda *_: asyncio.sleep(600))  # it has not got to that yet
    store = await open_storage(postgres_server.new())
    await store.lead()
    async with store.acting():
        monkeypatch.setattr(SystemClock, "steady", lambda _: time.monotonic() + 1e9)
        assert not await may_act(store)
        with pytest.raises(StorageUnavailable, match="lease is over"):
            await store.run(INSERT, key="a")
    monkeypatch.undo()
    await store.close()


@pytest.mark.usefixtures("short")
async def test_bots_that_run_are_seen_until_they_end_or_stand_still(postgres_server: Server) -> None:
    url = postgres_server.new()
    first, second, third = [await open_storage(url) for _ in range(3)]
    assert await first.others() == set()
    await first.lead()
    waiting = [asyncio.create_task(each.lead()) for each in (second, third)]

    async def seen(*names: str) -> None:
        async with asyncio.timeout(20):
            while await first.others() != set(names):  # noqa: ASYNC110 - there is no event for it
                await asyncio.sleep(0.01)

    await seen(second.name, third.name)
    shell = await open_storage(url)
    await shell.run(INSERT, key="a")
    waiting[0].cancel()
    await second.close()
    await seen(third.name)
    waiting[1].cancel()  # it stands still
    await seen()
    for each in (shell, third, first):
        await each.close()


@pytest.mark.usefixtures("short")
async def test_what_a_killed_bot_left_is_removed_after_a_day(postgres_server: Server) -> None:
    url = postgres_server.new()
    store = await open_storage(url)
    with closing(psycopg.connect(url, autocommit=True)) as db:
        for name, hours in {"gone": 25, "away": 23}.items():
            seen = datetime.now(UTC) - timedelta(hours=hours)
            db.execute("insert into alive values (%s, %s)", [name, seen])
            db.execute("insert into replicas values (%s, 1, %s)", [name, seen])
        await store.lead()

        def known() -> list[str]:
            said = db.execute("select id from replicas union all select id from alive").fetchall()
            return [name for (name,) in said if len(name) == 4]

        await until(lambda: known() == ["away", "away"])
    await store.close()


SLACKS_PATIENCE = 3.0  # seconds


async def test_server_that_hangs_is_not_waited_for(wire: Wire) -> None:
    store = await open_storage(wire.url)
    await store.run(INSERT, key="a")
    assert await keys(store) == {"a"}
    wire.stall()
    for _ in range(2):  # on connections that were there, and on new ones
        began = time.monotonic()
        reading = [asyncio.create_task(keys(store)) for _ in range(3)]
        writing = [asyncio.create_task(store.run(INSERT, key="b"))]
        await asyncio.sleep(1)  # while it is found out
        reading.append(asyncio.create_task(keys(store)))
        writing.append(asyncio.create_task(store.run(INSERT, key="c")))
        for each in await asyncio.gather(*reading, *writing, return_exceptions=True):
            assert isinstance(each, StorageSilent)
        assert time.monotonic() - began < SLACKS_PATIENCE
        assert store.doubt == 0
    wire.go_on()
    await store.run(INSERT, key="d")
    assert await keys(store) == {"a", "d"}
    await store.close()


async def test_commit_that_a_server_which_hangs_does_not_answer_is_in_doubt_until_it_does(wire: Wire) -> None:
    store = await open_storage(wire.url)
    wire.stall_at = b"commit"
    began = time.monotonic()
    first = asyncio.create_task(store.run(INSERT, key="a"))
    await until(lambda: wire.stalled)
    second = asyncio.create_task(store.run(INSERT, key="b"))
    await until(lambda: store.doubt > 1)
    assert time.monotonic() - began < SLACKS_PATIENCE
    with pytest.raises(StorageSilent):
        await second
    assert time.monotonic() - began < SLACKS_PATIENCE
    assert not first.done()
    wire.go_on()
    assert await first == 1
    assert store.doubt == 0
    await store.run(INSERT, key="c")
    assert await keys(store) == {"a", "c"}
    await store.close()


async def test_statement_that_takes_long_is_waited_for_while_the_server_lives(
    postgres_server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres, "TERMS", Terms(renew=0.1))
    monkeypatch.setattr(postgres, "_SILENCE", 0.7)
    store = await open_storage(postgres_server.new())
    await store.lead()  # it is heard of
    await store.read("select pg_sleep(1.2)")
    await store.write(lambda tx: tx.rows("select pg_sleep(1.2)"))
    await store.close()


@pytest.mark.usefixtures("short")
async def test_leader_of_a_server_that_hangs_stops_in_time(wire: Wire) -> None:
    store = await open_storage(wire.url)
    await store.lead()
    wire.stall()
    began = time.monotonic()
    with pytest.raises(TimeoutError):
        async with store.acting():
            await asyncio.Event().wait()
    assert time.monotonic() - began < 1, "a lease less its margin"
    wire.go_on()
    await until(lambda: store._lease.left > 0)  # type: ignore[attr-defined]
    await store.close()


async def test_news_are_what_other_bots_tell_and_long_silence_is_no_gap(
    postgres_server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres, "_NEWS_KEPT", 0.0)  # any silence is a long one
    url = postgres_server.new()
    store, other = await open_storage(url), await open_storage(url)
    async with aclosing(store.news()) as news:
        assert await anext(news) is None, "at first anything may have been missed"
        await store.write(lambda tx: tx.tell("message", "ours"))
        for name in ("a", "b"):
            await other.write(lambda tx, name=name: tx.tell("incident", name))  # type: ignore[misc]
            assert await anext(news) == [("incident", name)]
    await store.close()
    await other.close()


async def test_news_that_cannot_be_read_at_once_are_read_without_further_news(
    postgres_server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = postgres_server.new()
    store, other = await open_storage(url), await open_storage(url)
    fetch, refused = store.fetch, list[Query]()

    async def once_silent(queries: Sequence[Query]) -> list[list[Row] | Exception]:
        if refused:
            return await fetch(queries)
        refused.extend(queries)
        return [StorageSilent()] * len(queries)

    async with aclosing(store.news()) as news:
        assert await anext(news) is None
        monkeypatch.setattr(store, "fetch", once_silent)
        await other.write(lambda tx: tx.tell("message", "a"))
        async with asyncio.timeout(20):
            assert await anext(news) == [("message", "a")]
        assert refused
    await store.close()
    await other.close()


async def test_notices_that_never_arrive_any_more_are_told_and_polled_for(
    wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres, "_ALIVE", 0.3)
    monkeypatch.setattr(postgres, "_LISTEN", 0.7)
    monkeypatch.setattr(ListeningConnection, "limit", 0.7)
    monkeypatch.setattr(ListeningConnection, "longest", 0.7)
    store, other = await open_storage(wire.url), await open_storage(wire.direct)
    async with aclosing(store.news()) as news:
        assert await anext(news) is None
        assert not store.polls
        wire.hang(b"listen ", new=True)
        for name in ("a", "b"):
            await other.write(lambda tx, name=name: tx.tell("incident", name))  # type: ignore[misc]
            async with asyncio.timeout(20):
                assert await anext(news) == [("incident", name)]
            assert store.polls
    await store.close()
    await other.close()


async def test_connection_for_notices_that_hears_itself_is_kept(
    wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres, "_ALIVE", 0.1)
    monkeypatch.setattr(postgres, "_LISTEN", 0.8)
    store = await open_storage(wire.url)
    with capture_logs() as logs:
        async with aclosing(store.news()) as news:
            assert await anext(news) is None
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(2):
                    await anext(news)
    assert logs == []
    await store.close()


async def test_leader_whose_connection_for_the_lease_hangs_goes_on_leading(
    wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres, "TERMS", Terms(lasts=3.0, margin=1.0, renew=0.3))
    monkeypatch.setattr(postgres, "_SILENCE", 0.7)
    store = await open_storage(wire.url)
    await store.lead()
    reading = asyncio.create_task(read_on(store))  # the server lives
    wire.hang(b"insert into alive")
    began = time.monotonic()
    while time.monotonic() - began < postgres.TERMS.lasts:
        assert await may_act(store)
        await asyncio.sleep(0.1)
    reading.cancel()
    await store.close()


async def read_on(store: Store) -> None:
    while True:
        await keys(store)
        await asyncio.sleep(0.1)


async def test_session_that_became_read_only_is_replaced(wire: Wire) -> None:
    """Behind a pooling proxy, the one at the next statement may be another."""
    store = await open_storage(wire.url)
    await store.run(INSERT, key="a")
    await store.read("select set_config('default_transaction_read_only', 'on', false)")
    await store._writer.run(  # type: ignore[attr-defined]
        lambda db: db.execute("set default_transaction_read_only = on")
    )
    await store.run(INSERT, key="b")
    assert await keys(store) == {"a", "b"}
    (row,) = await store.read("select current_setting('default_transaction_read_only') as value")
    assert row["value"] == "off", "so was what read"
    await store.close()


async def test_bot_is_not_opened_on_a_read_only_database(postgres_server: Server) -> None:
    url = postgres_server.new()
    set_read_only(url, "on")
    with pytest.raises(StorageUnavailable, match="cannot be used: it is read-only"):
        await open_storage(url)
    set_read_only(url, "off")
    await (await open_storage(url)).close()
