"""The feed driven at random: writers whose transactions overlap, leaders that are killed, consumers that come and go, fail, lag.

What a consumer stored stands for what the other side gets: sending it, at least once, is the outbox's. The model knows only
what was committed. CLARIFY_EXAMPLES sets how many courses of events are tried.
"""

from __future__ import annotations

import asyncio
import os
import random
import sqlite3
import tempfile
from collections import defaultdict
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, ClassVar, TypeVar
from unittest.mock import patch

import structlog
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule, run_state_machine_as_test

from bot import feed as feeding
from bot.feed import Feed
from bot.storage import changes
from bot.storage.changes import RecordChange
from bot.storage.ledger import DatabaseLedger, write
from bot.storage.opening import open_storage
from bot.storage.postgres import PostgresTx
from bot.storage.server import connect
from bot.storage.store import Store
from bot.storage.tx import Tx, Work
from core.clarification import Clarification
from core.records import dump, packed
from tests.kit import builders
from tests.kit.clocks import START, ManualClock
from tests.kit.databases import Server, make_tables
from tests.kit.until import until

_T = TypeVar("_T")
GIVEN = os.environ.get("CLARIFY_EXAMPLES")
_MEMORY = Path("/dev/shm")  # noqa: S108 - where there is one: a disk that others use makes each step wait
NAMES = ("first", "second")
_name, _writer, _place = st.sampled_from(NAMES), st.integers(0, 2), st.integers(0, 5)
_what = st.sampled_from(["requested/1", "answered/1", "receipt/1", "forgotten", "", ""])
_LAG = 4

Written = tuple[str, int]
"""A clarification and its revision."""


class Killed(BaseException):
    """As by kill -9: nothing catches it."""


class Broken(Exception):
    """A consumer's defect."""


@dataclass
class Mortal:
    """A storage whose process is killed at a write: before it, or after it and before its caller hears of it."""

    store: Store
    writes: int | None
    before: bool

    def __getattr__(self, name: str) -> Any:
        return getattr(self.store, name)

    async def write(self, work: Work[_T]) -> _T:
        if self.writes is not None:
            self.writes -= 1
            if self.writes < 0 and self.before:
                raise Killed
        result = await self.store.write(work)
        if self.writes is not None and self.writes < 0:
            raise Killed
        return result


@dataclass
class Taker:
    """A consumer that stores each change; it fails on what is poisoned."""

    name: str
    poison: set[str]
    gather: float = 0.0

    def wants(self, change: RecordChange) -> bool:
        return bool(change.what)

    def owes(self, change: RecordChange, record: Clarification, tx: Tx) -> Callable[[], None] | None:
        assert record.id == change.clarification
        assert record.revision >= change.revision, "the record is older than the change"
        tx.run(
            """insert into outbox (endpoint, id, clarification, type, body, queued_at)
               values (:name, :id, :about, :what, :body, 0)""",
            name=self.name,
            id=f"{random.getrandbits(64):x}",
            about=change.clarification,
            what=change.what,
            body=str(change.revision).encode(),
        )
        if change.clarification in self.poison:
            raise Broken
        return None

    async def run(self) -> None:
        pass

    async def load(self) -> None:
        pass


@dataclass
class Known:
    """A consumer, and from which write on it has to tell of all."""

    since: int


class Writer:
    """Another process, in a transaction or between two."""

    def __init__(self, open_: Callable[[], tuple[Any, Tx]]) -> None:
        self._open = open_
        self._db: Any = None
        self._tx: Tx | None = None
        self.wrote: list[tuple[Clarification, str, int]] = []

    @property
    def is_open(self) -> bool:
        return self._tx is not None

    def begin(self) -> Tx:
        if self._tx is None:
            self._db, self._tx = self._open()
        return self._tx

    def end(self, how: str) -> list[tuple[Clarification, str, int]]:
        if self._tx is not None:
            self._db.execute(how)
            self._db.close()
        self._tx, wrote, self.wrote = None, self.wrote, []
        return wrote if how == "commit" else []


class Following(RuleBasedStateMachine):
    """On SQLite: there is one writer at a time, so a transaction is over before the next begins."""

    overlap: ClassVar[bool] = False

    def __init__(self) -> None:
        super().__init__()
        self.stack = ExitStack()
        self.stack.enter_context(structlog.testing.capture_logs())
        self.place = self._made()
        self.loop = asyncio.new_event_loop()
        self.stack.callback(self.loop.close)
        self.clock = ManualClock()
        self.writers = [Writer(self._opened) for _ in range(3)]
        self.records: dict[str, Clarification] = {}  # as committed
        self.committed: dict[Written, tuple[str, int]] = {}  # what, and its number in the order of writes
        self.number = 0
        self.configured = {"first"}
        self.known: dict[str, Known] = {}
        self.poison: dict[str, set[str]] = defaultdict(set)

    def _made(self) -> Path | str:
        folder = tempfile.TemporaryDirectory(prefix="clarify-", dir=_MEMORY if _MEMORY.is_dir() else None)
        place = Path(self.stack.enter_context(folder)) / "clarify.db"
        make_tables(place)
        return place

    def _opened(self) -> tuple[Any, Tx]:
        db = sqlite3.connect(str(self.place), isolation_level=None, timeout=10)
        db.row_factory = sqlite3.Row
        db.execute("begin immediate")
        return db, Tx(db)

    def rows(self, sql: str) -> list[Any]:
        db, tx = self._opened()
        found = tx.rows(sql)
        db.execute("rollback")
        db.close()
        return found

    # Writers

    @rule(who=_writer)
    def begin(self, who: int) -> None:
        """It has its number before it writes anything."""
        if self.overlap:
            self.writers[who].begin().rows(f"select {PostgresTx.stamp}")

    @rule(who=_writer, place=_place, what=_what, over=st.booleans())
    def write(self, who: int, place: int, what: str, over: bool) -> None:
        writer, name = self.writers[who], f"CLR-42-{place + 1:03}"
        others = [each for each in self.writers if each is not writer]
        if any(record.id == name for each in others for record, _, _ in each.wrote):
            return  # that one has its lock
        before = next((r for r, _, _ in reversed(writer.wrote) if r.id == name), self.records.get(name))
        status = "abandoned" if over else "pending"
        record = builders.changed(
            builders.record(42, place + 1),
            status=status,
            revision=1 if before is None else before.revision + 1,
        )
        tx = writer.begin()
        assert write(tx, record, packed(dump(record)), None if before is None else before.revision)
        changes.note(tx, name, what, START)
        self.number += 1
        writer.wrote.append((record, what, self.number))
        if not self.overlap:
            self.end(who, True)

    def write_many(self, who: int, places: list[int]) -> None:
        for place in places:
            self.write(who, place, "answered/1", place == 0)
        self.end(who, True)

    @rule(who=_writer, commits=st.sampled_from([True, True, True, False]))
    def end(self, who: int, commits: bool) -> None:
        for record, what, number in self.writers[who].end("commit" if commits else "rollback"):
            self.records[record.id] = record
            self.committed[record.id, record.revision] = what, number

    @rule(who=_writer, other=st.integers(1, 2), places=st.tuples(_place, _place), looks=st.booleans())
    def commit_late(self, who: int, other: int, places: tuple[int, int], looks: bool) -> None:
        """What began first is written last, also of the same clarification."""
        other = (who + other) % len(self.writers)
        self.end(other, True)
        self.begin(who)
        self.write(other, places[0], "answered/1", False)
        self.end(other, True)
        if looks:
            self.lead(None, False, False)
        self.write(who, places[1], "answered/1", False)
        self.end(who, True)

    # Consumers

    @rule(name=_name, there=st.sampled_from([True, True, False]))
    def configure(self, name: str, there: bool) -> None:
        (self.configured.add if there else self.configured.discard)(name)

    @rule(name=_name, place=_place, heals=st.booleans())
    def defect(self, name: str, place: int, heals: bool) -> None:
        which = self.poison[name]
        (which.discard if heals else which.add)(f"CLR-42-{place + 1:03}")

    @rule(name=_name, place=_place)
    def fail(self, name: str, place: int) -> None:
        """On one change, and not on the next."""
        self.lead(None, False, False)
        self.defect(name, place, False)
        self.write_many(0, [place, (place + 1) % 6])
        self.lead(None, False, False)
        self.defect(name, place, True)
        self.write_many(0, [place])

    # The leader

    @rule(places=st.lists(_place, min_size=_LAG + 1, max_size=2 * _LAG), before=st.booleans())
    def lag(self, places: list[int], before: bool) -> None:
        """Much is written while nobody leads; who leads then may be killed as it begins."""
        self.write_many(1, places)
        self.lead(0, before, True)
        self.write_many(1, places[:1])
        self.lead(None, False, True)

    @rule(places=st.lists(_place, min_size=1, max_size=4), writes=st.integers(0, 2), before=st.booleans())
    def kill(self, places: list[int], writes: int, before: bool) -> None:
        """While it takes what was written."""
        self.write_many(2, places)
        self.lead(writes, before, False)

    @rule(writes=st.one_of(st.none(), st.integers(0, 3)), before=st.booleans(), lags=st.booleans())
    def lead(self, writes: int | None, before: bool, lags: bool) -> None:
        self.loop.run_until_complete(self._lead(writes, before, _LAG if lags else feeding._MOST))

    async def _lead(self, writes: int | None, before: bool, most: int) -> None:
        store = await open_storage(self.place, beside=True)
        mortal: Any = Mortal(store, writes, before)
        consumers = [Taker(name, self.poison[name]) for name in sorted(self.configured)]
        feed = Feed(
            consumers=consumers,
            ledger=DatabaseLedger(store),
            store=mortal,
            clock=self.clock,
            sign=_signs_nothing,
            keep=None,
        )
        is_killed = False
        try:
            lagging = {row["consumer"]: row["at"] for row in self.rows(_BEGAN_AGAIN)}
            self.clock.jump(self.clock.now() + timedelta(seconds=1))
            with patch.object(feeding, "_MOST", most):
                try:
                    await feed.begin()
                finally:
                    self._registered(lagging)
            if consumers:
                running = asyncio.create_task(feed.run())
                try:
                    await until(lambda: feed.idle or running.done())
                    while not running.done() and not any(each.is_open for each in self.writers):
                        # The server's own transactions may still hold back the last ones.
                        is_held = bool(self.rows(_HELD.format(horizon=store.horizon)))
                        await self.clock.advance(1)
                        await until(lambda: feed.idle or running.done())
                        if not is_held:
                            break
                finally:
                    running.cancel()
                    await asyncio.wait([running])
                if not running.cancelled() and (error := running.exception()) is not None:
                    raise error.exceptions[0] if isinstance(error, BaseExceptionGroup) else error
        except Killed:
            is_killed = True
            store._soon.clear()
        finally:
            await store.close()
        self.judge(whole=not is_killed)

    def _registered(self, began_again: dict[str, float]) -> None:
        """Compares which consumers there are with what the model knows."""
        there = {row["name"] for row in self.rows("select name from consumers")}
        for name in self.known.keys() - there:
            del self.known[name]
            db, tx = self._opened()
            tx.run("delete from outbox where endpoint = :name", name=name)
            db.execute("commit")
            db.close()
        now = {row["consumer"]: row["at"] for row in self.rows(_BEGAN_AGAIN)}
        for name in there:
            again = now.get(name) != began_again.get(name)
            if name not in self.known or again:
                # What it lagged behind is not told; nor need be what was written before it was there.
                self.known[name] = Known(self.number)
                if again:
                    self._tells_what_is_open(name)

    def _tells_what_is_open(self, name: str) -> None:
        rows = self.rows("select clarification, what from changes")
        kept = {row["clarification"] for row in rows if row["what"] == f"open/{name}"}
        assert kept == {each.id for each in self.records.values() if each.needs_something}

    # What must be

    def told(self, name: str) -> list[tuple[str, int, str]]:
        rows = self.rows("select endpoint, clarification, type, body from outbox order by seq")
        return [
            (row["clarification"], int(bytes(row["body"])), row["type"])
            for row in rows
            if row["endpoint"] == name
        ]

    def failed(self, name: str) -> set[Written]:
        rows = self.rows("select consumer, clarification, revision, what from failed_changes")
        return {
            (row["clarification"], row["revision"])
            for row in rows
            if row["consumer"] == name and row["clarification"] and not row["what"].startswith("open/")
        }

    def untold(self, name: str) -> list[Written]:
        known = self.known[name]
        had = {(about, revision) for about, revision, _ in self.told(name)} | self.failed(name)
        return [
            each
            for each, (what, number) in self.committed.items()
            if what and number > known.since and each not in had
        ]

    def judge(self, *, whole: bool) -> None:
        for name in self.known:
            told = self.told(name)
            in_order = defaultdict[str, list[int]](list)
            for about, revision, what in told:
                if what.startswith("open/"):
                    in_order[about].clear()  # it begins again
                    continue
                assert self.committed[about, revision][0] == what, "told of what was not written"
                in_order[about].append(revision)
            changes_told = {
                (about, revision) for about, revision, what in told if not what.startswith("open/")
            }
            assert not changes_told & self.failed(name), "half of it stays"
            for about, revisions in in_order.items():
                assert revisions == sorted(set(revisions)), (
                    f"{name}: {about} twice or out of order: {revisions}"
                )
        if whole and not any(each.is_open for each in self.writers):
            for name in self.known:
                assert self.untold(name) == [], f"{name} lost something"
            assert self.rows("select * from changes") == [], "passed changes stay"

    def teardown(self) -> None:
        try:
            for who in range(len(self.writers)):
                self.end(who, True)
            self.loop.run_until_complete(self._lead(None, False, feeding._MOST))
        finally:
            for each in self.writers:
                each.end("rollback")
            self.stack.close()


_HELD = "select 1 from changes where written >= {horizon}"
_BEGAN_AGAIN = "select consumer, at from failed_changes where clarification = ''"


async def _signs_nothing(_: Clarification) -> bool:
    return False


def _settings(examples: int) -> settings:
    return settings(
        max_examples=int(GIVEN or examples),
        stateful_step_count=40,
        derandomize=GIVEN is None,
        phases=[Phase.generate] if GIVEN is None else [Phase.generate, Phase.shrink],
        deadline=None,
        database=None,
        # A step opens a database and waits for threads: how long that takes says nothing about the code.
        suppress_health_check=list(HealthCheck),
    )


def test_feed_on_sqlite() -> None:
    run_state_machine_as_test(Following, settings=_settings(15))


def test_feed_on_postgres(postgres_server: Server) -> None:
    class OnPostgres(Following):
        overlap = True

        def _made(self) -> str:
            self.stack.callback(postgres_server.drop)
            return postgres_server.new()

        def _opened(self) -> tuple[Any, Tx]:
            db = connect(str(self.place))
            db.execute("begin")
            return db, PostgresTx(db)

    run_state_machine_as_test(OnPostgres, settings=_settings(6))
