"""The feed and one consumer: what is stored when, what is told of troubles. Courses of events: `test_feed_model`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from typing import Any

import pytest
from structlog.testing import capture_logs

from bot import feed as feeding
from bot.errors import StorageUnavailable
from bot.feed import Feed
from bot.storage.changes import Position, RecordChange
from bot.storage.ledger import DatabaseLedger
from bot.storage.store import Store
from bot.storage.tx import Tx
from core.clarification import Clarification
from core.ledger import OfIssue
from core.transitions import abandoned
from tests.kit import builders
from tests.kit.builders import LATER
from tests.kit.clocks import ManualClock
from tests.kit.databases import sqlite_of
from tests.kit.until import until


class Taker:
    """Notes what it is given, here and in the storage."""

    def __init__(self, name: str = "taker", gather: float = 0.0) -> None:
        self.name, self.gather = name, gather
        self.told: list[str] = []
        self.holds: asyncio.Event | None = None
        self.fails_on: set[str] = set()
        self.loaded = 0

    def wants(self, change: RecordChange) -> bool:
        return bool(change.what)

    def owes(self, change: RecordChange, record: Clarification, tx: Tx) -> Callable[[], None] | None:
        tx.run("insert into counters (name, value) values (:name, 1)", name=f"{self.name} {change.place}")
        if change.clarification in self.fails_on:
            raise KeyError(record.topic)
        return lambda: self.told.append(f"{change.clarification} {change.what}")

    async def run(self) -> None:
        pass

    async def load(self) -> None:
        if self.holds is not None:
            await self.holds.wait()
        self.loaded += 1


class Mirror:
    """Notes what it observes; finishes nothing that `holds`."""

    name, part, gather = "mirror", "mirror", 0.0

    def __init__(self) -> None:
        self.seen: list[str] = []
        self.undone: Position | None = None
        self.holds = ""
        self.done: Callable[[], None]

    def observe(self, change: RecordChange) -> None:
        self.seen.append(f"{change.clarification} {change.what}")
        if change.clarification == self.holds and self.undone is None:
            self.undone = change.place

    def begin_anew(self, tx: Tx) -> None:
        tx.run("insert into counters (name, value) values ('anew', 1) on conflict do nothing")

    async def run(self, done: Callable[[], None]) -> None:
        self.done = done

    async def settle(self) -> None:
        """It leaves what it holds."""

    def trouble(self) -> str | None:
        return None

    def finish(self) -> None:
        self.undone, self.holds = None, ""
        self.done()


class Defective(Mirror):
    """Tests have it fail."""

    name = part = "defective"


class Beginning(Taker):
    """Has something to do at its beginning."""

    def __init__(self) -> None:
        super().__init__("defective")

    def begin_anew(self, tx: Tx) -> None:
        Mirror.begin_anew(self, tx)  # type: ignore[arg-type]


def fail(*_: object) -> None:
    raise KeyError("a defect")


class World:
    def __init__(self, store: Store, clock: ManualClock) -> None:
        self.store, self.clock = store, clock
        self.ledger = DatabaseLedger(store, clock)
        self.feed: Feed

    @asynccontextmanager
    async def leading(self, *parts: Taker | Mirror, keep: timedelta | None = None) -> AsyncIterator[Feed]:
        async with self.running(*parts, keep=keep) as feed:
            if parts:
                await self.quiet()
            yield feed

    @asynccontextmanager
    async def running(
        self, *parts: Taker | Mirror, keep: timedelta | None = None, absent: tuple[str, ...] = ()
    ) -> AsyncIterator[Feed]:
        self.feed = Feed(
            consumers=[each for each in parts if isinstance(each, Taker)],
            observers=[each for each in parts if isinstance(each, Mirror)],
            ledger=self.ledger,
            store=self.store,
            clock=self.clock,
            sign=self._signs_nothing,
            keep=keep,
            absent=absent,
        )
        await self.feed.begin()
        running = asyncio.create_task(self.feed.run()) if parts else None
        try:
            yield self.feed
        finally:
            if running is not None:
                running.cancel()
                with suppress(asyncio.CancelledError):
                    await running

    async def _signs_nothing(self, _: Clarification) -> bool:
        return False

    async def quiet(self) -> None:
        await until(lambda: self.feed.idle)

    async def put(self, record: Clarification) -> Clarification:
        return await self.ledger.transact(OfIssue(42), lambda book: book.put(record))

    async def told(self, record: Clarification) -> None:
        self.feed.record_changed(record)
        await self.quiet()

    async def count(self, table: str) -> int:
        rows = await self.store.read(f"select count(*) as n from {table}")  # noqa: S608 - ours
        return int(rows[0]["n"])


@pytest.fixture
def world(store: Store) -> World:
    return World(store, ManualClock())


def counted(store: Store, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How much was stored in each transaction."""
    found: list[int] = []
    database = sqlite_of(store)
    commit = database.commit

    async def counting(works: Any) -> Any:
        results = await commit(works)
        found.append(len(works))
        return results

    monkeypatch.setattr(database, "commit", counting)
    return found


async def test_change_that_fails_is_undone_told_and_passed(world: World) -> None:
    taker, other = Taker(), Taker("other")
    taker.fails_on = {"CLR-42-001"}
    async with world.leading(taker, other) as feed:
        with capture_logs() as logs:
            await world.told(await world.put(builders.record(topic="secret")))
            await world.told(await world.put(builders.record(seq=2)))
        assert [each["id"] for each in logs if each["log_level"] == "error"] == ["CLR-42-001"]
        assert await feed.trouble() == "taker skipped CLR-42-001: KeyError"
        assert await world.count("counters") == 3, "what it stored before it failed is undone"
    assert taker.told == ["CLR-42-002 requested/1"]
    assert other.told == ["CLR-42-001 requested/1", "CLR-42-002 requested/1"]
    world.clock.jump(world.clock.now() + timedelta(days=2))
    assert await feed.trouble() is None


async def test_what_is_gathered_is_stored_together_and_holds_nobody_up(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    prompt, slow = Taker("prompt"), Taker("slow", gather=5.0)
    slow.holds = asyncio.Event()
    async with world.running(prompt, slow) as feed:
        feed.record_changed(await world.put(builders.record()))
        await until(lambda: len(prompt.told) == 1)
        assert slow.loaded == 0, "it waits until it can take changes"
        slow.holds.set()
        await until(lambda: len(slow.told) == 1)
        await world.quiet()
        commits = counted(world.store, monkeypatch)
        for n in (2, 3):
            feed.record_changed(await world.put(builders.record(seq=n)))
            await until(lambda n=n: len(prompt.told) == n)  # type: ignore[misc]
        await until(lambda: world.clock.sleeping)
        assert len(slow.told) == 1
        assert sum(commits) == 4
        await world.clock.advance(5)
        await world.quiet()
    assert slow.told == prompt.told
    assert sum(commits) == 5


async def test_observer_costs_no_transaction_and_hears_again_of_what_it_had_not_finished(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    mirror, taker = Mirror(), Taker()
    mirror.holds = "CLR-42-002"
    async with world.leading(mirror, taker):
        commits = counted(world.store, monkeypatch)
        for n in (1, 2, 3):
            await world.told(await world.put(builders.record(seq=n)))
        await until(lambda: len(commits) == 7)
    assert mirror.seen == taker.told == [f"CLR-42-00{n} requested/1" for n in (1, 2, 3)]
    assert sum(commits) == 9, "cursors that only move went with the others, but for the last"
    after = Mirror()
    async with world.leading(after, taker) as feed:
        assert after.seen == mirror.seen[1:]
    await feed.settle()
    assert taker.told == mirror.seen
    assert [await world.count(table) for table in ("changes", "counters")] == [0, 4]


async def test_cursor_follows_an_observer_that_finishes_after_it_was_stored(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    mirror = Mirror()
    mirror.holds = "CLR-42-001"
    async with world.leading(mirror):
        record = await world.put(builders.record())
        commits = counted(world.store, monkeypatch)
        await world.told(record)
        await until(lambda: commits == [1])
        await touch(world)
        assert commits == [1, 1], "it waits for what is undone"
        mirror.finish()
        await touch(world)
        assert commits == [1, 1, 2], "it rides on the next transaction"
        assert await world.count("changes") == 0
        mirror.holds = "CLR-42-002"
        await world.told(await world.put(builders.record(seq=2)))
        await until(lambda: commits == [1, 1, 2, 1, 1])
        mirror.finish()
        await until(lambda: commits == [1, 1, 2, 1, 1, 1])
        assert await world.count("changes") == 0


async def test_observer_that_is_new_or_lagged_too_far_looks_at_all(world: World) -> None:
    taker, mirror, keep = Taker(), Mirror(), timedelta(days=30)
    async with world.leading(taker):
        await world.told(await world.put(builders.record()))
    async with world.leading(mirror, keep=keep):
        await world.told(await world.put(builders.record(seq=2)))
        assert (mirror.seen, await anew(world)) == (["CLR-42-002 requested/1"], True)
    await world.feed.settle()
    async with world.leading(mirror, keep=keep):
        assert not await anew(world)
    await world.put(builders.record(seq=3))
    world.clock.jump(world.clock.now() + timedelta(days=31))
    async with world.leading(mirror, keep=keep):
        assert await anew(world)
        await world.told(await world.put(builders.record(seq=4)))
    assert mirror.seen == ["CLR-42-002 requested/1", "CLR-42-004 requested/1"]


async def touch(world: World) -> None:
    await world.store.run("update installation set probes = probes")


async def anew(world: World) -> bool:
    return await world.store.run("delete from counters where name = 'anew'") == 1


async def test_what_comes_before_it_can_be_taken_is_read_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feeding, "_MOST_IN_HAND", 2)
    taker = Taker()
    taker.holds = asyncio.Event()
    async with world.running(taker) as feed:
        for n in range(1, 6):
            feed.record_changed(await world.put(builders.record(seq=n)))
        (lane,) = feed._lanes
        assert len(lane._in_hand) == 2
        taker.holds.set()
        await world.quiet()
    assert taker.told == [f"CLR-42-00{n} requested/1" for n in range(1, 6)]


async def test_record_that_cannot_be_read_is_a_failure_like_that(world: World) -> None:
    taker = Taker()
    async with world.leading(taker) as feed:
        await world.put(builders.record())
        await world.store.run("update clarifications set body = '[]'")
        world.ledger._known.clear()
        feed.wake()
        await world.quiet()
        assert await feed.trouble() == "taker skipped CLR-42-001: RecordUnreadable"
    assert taker.told == []


@pytest.mark.parametrize(("days", "lags"), [(29, False), (31, True)])
async def test_what_lags_too_long_begins_again_with_what_is_open(world: World, days: int, lags: bool) -> None:
    taker, keep = Taker(), timedelta(days=30)
    async with world.leading(taker, keep=keep):
        pass
    for n in range(1, 5):
        record = await world.put(builders.record(seq=n))
        if n < 3:
            await world.put(abandoned(record, "by hand", LATER))
    world.clock.jump(world.clock.now() + timedelta(days=days))
    with capture_logs() as logs:
        async with world.leading(taker, keep=keep) as feed:
            trouble = await feed.trouble()
    assert await world.count("changes") == 0
    if lags:
        assert taker.told == [f"CLR-42-00{n} open/taker" for n in (3, 4)]
        assert "begins again with what is open" in "".join(each["event"] for each in logs)
        assert trouble == "taker began again with what is open: it lagged too far behind"
    else:
        ended = [f"CLR-42-00{n} {what}/1" for n in (1, 2) for what in ("requested", "abandoned")]
        assert taker.told == [*ended, *(f"CLR-42-00{n} requested/1" for n in (3, 4))]
        assert trouble is None


async def test_what_a_transaction_of_unknown_outcome_stored_is_not_stored_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is committed after all, when the next has read the changes already."""
    taker = Taker()
    async with world.leading(taker):
        write, in_doubt = world.store.write, list[Any]()

        async def late(work: Any) -> Any:
            in_doubt.append(work)
            if len(in_doubt) == 1:
                raise StorageUnavailable("nobody knows")
            return [await write(each) for each in in_doubt][-1]

        record = await world.put(builders.record())
        monkeypatch.setattr(world.store, "write", late)
        world.feed.record_changed(record)
        await until(lambda: world.clock.sleeping)
        await world.clock.advance(1)
        await world.quiet()
        assert len(in_doubt) == 2
        assert taker.loaded == 2, "nobody else was told of what it stored"
        assert await world.count("counters") == 1
        assert await world.count("failed_changes") == 0


async def test_restored_changes_come_before_all_that_follow(world: World) -> None:
    """As from PostgreSQL, where each has its transaction's number."""
    taker = Taker()
    async with world.leading(taker):
        pass
    for n in (1, 2, 3):
        await world.put(builders.record(seq=n))
    await world.store.run("update changes set written = 1000 - seq")
    await world.store.run("update consumers set written = (select min(written) from changes), seq = 3")
    await world.store.write(lambda tx: tx.renumber())
    await world.put(builders.record(seq=4))
    async with world.leading(taker):
        pass
    assert taker.told == [f"CLR-42-00{n} requested/1" for n in (2, 1, 4)]


async def test_consumer_that_cannot_load_is_left_out_and_goes_on_at_the_next_start(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    defective, sound = Taker("defective"), Taker("sound")
    async with world.leading(defective, sound):
        pass

    async def load() -> None:
        raise KeyError("a defect")

    with monkeypatch.context() as patched:
        patched.setattr(defective, "load", load)
        async with world.leading(defective, sound) as feed:
            await world.told(await world.put(builders.record()))
            assert (defective.told, sound.told) == ([], ["CLR-42-001 requested/1"])
            assert await feed.trouble() == "defective: it is left out until the next start (KeyError)"
    async with world.running(sound, absent=("defective",)):  # now it cannot even be made
        await world.quiet()
    async with world.leading(defective, sound):
        assert (defective.told, sound.told) == (["CLR-42-001 requested/1"], ["CLR-42-001 requested/1"])


async def test_consumer_that_stops_sending_is_started_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    taker, runs = Taker(), asyncio.Queue[int]()

    async def run() -> None:
        runs.put_nowait(1)
        raise KeyError("a defect")

    monkeypatch.setattr(taker, "run", run)
    async with world.leading(taker) as feed:
        await runs.get()
        await until(lambda: world.clock.sleeping)
        await world.clock.advance(1)
        await runs.get()
        assert await feed.trouble() == "taker: it stopped, and was started again (KeyError)"
        await world.told(await world.put(builders.record()))
        assert taker.told == ["CLR-42-001 requested/1"]


@pytest.mark.parametrize(("what", "failing"), [("observe", fail), ("undone", property(fail))])
async def test_observer_that_fails_is_left_out_and_goes_on_at_the_next_start(
    world: World, monkeypatch: pytest.MonkeyPatch, what: str, failing: object
) -> None:
    defective, sound, told = Defective(), Mirror(), [f"CLR-42-00{n} requested/1" for n in (1, 2, 3)]
    async with world.leading(defective, sound):
        pass
    with monkeypatch.context() as patched:
        patched.setattr(Defective, what, failing, raising=False)
        async with world.leading(defective, sound) as feed:
            for n in (1, 2, 3):
                await world.told(await world.put(builders.record(seq=n)))
            await feed.settle()
            assert sound.seen == told
            assert await feed.trouble() == "defective: it is left out until the next start (KeyError)"
    defective.seen.clear()
    async with world.leading(defective, sound):
        assert (defective.seen, sound.seen) == (told, told)


@pytest.mark.parametrize("kind", [Defective, Beginning])
@pytest.mark.parametrize("lags", [False, True])
async def test_part_that_fails_to_begin_is_left_out_and_begins_at_the_next_start(
    world: World, monkeypatch: pytest.MonkeyPatch, kind: type[Defective | Beginning], *, lags: bool
) -> None:
    part, sound, keep = kind(), Taker("sound"), timedelta(days=30)
    if lags:
        async with world.leading(part, sound):
            assert await anew(world)
        await world.put(builders.record())
        world.clock.jump(world.clock.now() + timedelta(days=31))
    begin = kind.begin_anew

    def begin_and_fail(self: Any, tx: Tx) -> None:
        begin(self, tx)
        fail()

    with monkeypatch.context() as patched:
        patched.setattr(kind, "begin_anew", begin_and_fail)
        async with world.leading(part, sound, keep=keep) as feed:
            await world.told(await world.put(builders.record(seq=2)))
            assert sound.told[-1] == "CLR-42-002 requested/1"
            assert "defective: it is left out until the next start (KeyError)" in str(await feed.trouble())
    assert (part.seen if isinstance(part, Mirror) else part.told) == []
    assert not await anew(world)
    async with world.leading(part, sound, keep=keep):
        assert await anew(world)
