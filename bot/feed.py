"""The feed: passes each change of a clarification to its consumers, in order, once.

A consumer has two halves. `owes` stores what the consumer has to send, in the transaction that moves its cursor; an outbox
(`bot.show.outbox`) sends it and retries. So a kill loses nothing and repeats nothing, and a start compares nothing: it continues at
the cursor. If `owes` fails for a change, the failure is stored and logged once, and the feed moves on.

Only the leader runs it; every bot and the shell write changes (`bot.storage.changes`). A commit in this process wakes it with the
record in hand; one of another process, with a notice. If no consumer wants a change, only the cursor moves, and that is stored
with the next transaction.

Consumers that gather changes for the same time share their transactions (`_Lane`); those of other times do not wait for them.

The cards that records owe need no cursor: they are stored with them (`bot.show.messages`).

An `Observer` only keeps something in sync with the records and stores nothing about a change. Its cursor stays before the first
change that it has not finished, so after a kill it gets that change again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from itertools import count
from math import inf
from typing import Any, Protocol, runtime_checkable

import structlog

from bot.errors import StorageUnavailable
from bot.storage import changes as rows
from bot.storage.changes import OPEN, Position, RecordChange
from bot.storage.ledger import as_stored
from bot.storage.store import Store, until_stored
from bot.storage.tx import Tx
from core.clarification import Clarification
from core.clock import Clock, backoff, event_or_time
from core.errors import LedgerUnreadable, LedgerUnwritable, LockTimeout, NotFound
from core.ledger import Ledger
from core.records import is_forgotten

_log = structlog.get_logger("clarify.feed")
_NOT_NOW = (StorageUnavailable, LockTimeout, LedgerUnwritable)
_BATCH = 64  # changes taken at once
_MOST_IN_HAND = 256  # records kept for a lane that has not taken their changes yet; others are read
_MOST = 1_000_000  # changes that a consumer may lag behind
_RETRY, _LONGEST_RETRY = 0.5, 300.0  # seconds
_SETTLING = 0.05  # seconds between looks at changes that a running transaction can still come before
_SAVED_WITHIN = 1.0  # seconds until a cursor that only moves is stored
_TOLD = timedelta(days=1)  # how long /readyz tells of what failed
_LEFT_OUT = "it is left out until the next start"


@runtime_checkable
class Consumer(Protocol):
    """Tells others of changes. One that must know when it is new, or missed changes, is a `Beginner`, too."""

    name: str
    gather: float  # seconds for which its changes are gathered, to be stored together

    def wants(self, change: RecordChange) -> bool:
        """Returns whether it may have something to send for a change. Not called for changes after `begin_anew`."""

    def owes(self, change: RecordChange, record: Clarification, tx: Tx) -> Callable[[], None] | None:
        """Stores what it has to send, in the transaction that moves its cursor. `record` is as of the change, or newer, with all
        of its receipts. Returns what to call once the transaction is stored, or None.
        """

    async def load(self) -> None:
        """Loads what it still has to send: at the start, and after a transaction of unknown outcome. Returns once it can take
        changes. Raises StorageUnavailable.
        """

    async def run(self) -> None:
        """Sends until cancelled."""


@runtime_checkable
class Beginner(Protocol):
    """A consumer or observer that must look at existing records when it begins."""

    def begin_anew(self, tx: Tx) -> None:
        """Stores that it must look at all records, because it is new or lagged too far behind. Later changes reach it as usual."""


@runtime_checkable
class Observer(Beginner, Protocol):
    """Keeps something in sync with the records."""

    name: str
    gather: float

    @property
    def undone(self) -> Position | None:
        """The first change that it has not finished, or None."""

    def observe(self, change: RecordChange) -> None:
        """Receives a change, in order. After a kill, it receives some again."""

    async def run(self, done: Callable[[], None]) -> None:
        """Processes changes until cancelled. Calls `done` when `undone` has moved on."""


@runtime_checkable
class Mirror(Observer, Protocol):
    """An observer that copies the records to another place. `part`: its name in /readyz."""

    part: str

    async def settle(self) -> None:
        """Quickly writes the latest decisions before the bot stops. Called after `run`."""

    def trouble(self) -> str | None:
        """Returns why it is out of sync, or None."""


@dataclass(kw_only=True, eq=False)
class Feed:
    """Runs the consumers and observers. Call `begin` once, then `run` until cancelled; `record_changed` and `wake` at any time.

    `sign` adds the receipts that a record still lacks, so that consumers get them, and returns whether it added any.
    `keep`: how long a change may wait for a consumer; None: forever. `absent`: configured consumers that could not be created; they
    keep their place.
    """

    consumers: Sequence[Consumer]
    observers: Sequence[Observer] = ()
    ledger: Ledger
    store: Store
    clock: Clock
    sign: Callable[[Clarification], Awaitable[bool]]
    keep: timedelta | None
    absent: Collection[str] = ()

    def __post_init__(self) -> None:
        self._failed: dict[str, tuple[str, datetime]] = {}
        self._lanes = [
            _Lane(
                self,
                [each for each in self.consumers if each.gather == gather],
                [each for each in self.observers if each.gather == gather],
                gather,
            )
            for gather in sorted({each.gather for each in self._parts})
        ]

    @property
    def _parts(self) -> list[Consumer | Observer]:
        return [*self.consumers, *self.observers]

    @property
    def idle(self) -> bool:
        """Whether all changes are taken."""
        return all(each.idle for each in self._lanes)

    def record_changed(self, record: Clarification) -> None:
        for each in self._lanes:
            each.record_changed(record)

    def wake(self) -> None:
        """Looks for changes that another process may have written."""
        for each in self._lanes:
            each.wake.set()

    async def run(self) -> None:
        """Runs the consumers and observers, and passes them changes as they come, until cancelled."""
        async with asyncio.TaskGroup() as group:
            for part in self.consumers:
                group.create_task(self._keep_running(part.name, part.run), name=part.name)
            for each in self._lanes:
                for observer in each.observers:
                    run = partial(observer.run, each.save_soon)
                    group.create_task(self._keep_running(observer.name, run), name=observer.name)
                group.create_task(each.run(), name="feed: " + ", ".join(each.places))

    async def _keep_running(self, name: str, run: Callable[[], Awaitable[None]]) -> None:
        """Runs a consumer or observer, and restarts it after a defect."""
        for failures in count():
            try:
                await run()
            except Exception as error:  # noqa: BLE001 - one part's defect must not stop the others
                self.failed(name, "it stopped, and was started again", error)
            else:
                return
            await self.clock.sleep(backoff(failures, first=_RETRY, longest=_LONGEST_RETRY))

    def failed(self, consumer: str, what: str, error: Exception) -> None:
        """Logs a defect of a consumer, or of another part of an integration, and has it told for a day."""
        _log.error("a consumer of changes failed", consumer=consumer, what=what, exc_info=error)
        self._failed[consumer] = f"{what} ({type(error).__name__})", self.clock.now()

    async def settle(self) -> None:
        """Has observers finish, and stores up to where they have. Call it after `run`."""
        for observer in self.observers:
            try:
                if isinstance(observer, Mirror):  # this may ask for `undone`
                    await observer.settle()
            except Exception:  # noqa: BLE001 - one observer's defect must not stop the others
                _log.exception("an observer of changes could not finish", observer=observer.name)
        if not self.observers:
            return
        try:
            for each in self._lanes:
                await each.save()
        except StorageUnavailable as error:
            _log.warning("the next start repeats some changes", reason=str(error))

    async def trouble(self) -> str | None:
        """Returns which consumers failed lately, or passed something that they could not take; None: none did."""
        since = self.clock.now() - _TOLD
        try:
            found = await rows.failures(self.store, since)
        except StorageUnavailable:
            return None  # another check tells
        told = [f"{name}: {why}" for name, (why, at) in list(self._failed.items()) if at > since]
        told += [
            f"{each['consumer']} skipped {each['clarification']}: {each['why']}"
            if each["clarification"]
            else f"{each['consumer']} began again with what is open: {each['why']}"
            for each in found
        ]
        return "; ".join(told) or None

    async def begin(self) -> None:
        """Drops consumers that are no longer configured, and puts new ones at the end. One whose `begin_anew` fails is left out, and
        begins anew at the next start.

        Raises:
            StorageUnavailable: the storage cannot be used now.
        """
        now = self.clock.now()

        def work(tx: Tx) -> tuple[list[str], list[str], dict[str, Exception], Mapping[str, Position]]:
            known, lagging, failed = rows.places(tx), list[str](), dict[str, Exception]()
            gone = sorted(known.keys() - {*(each.name for each in self._parts), *self.absent})
            for each in self._parts:
                place = known.get(each.name)
                if place is not None and not self._lags(tx, place, now):
                    continue
                _, error = tx.part(partial(self._begin_anew, each, now, lags=place is not None))
                if error is not None:
                    failed[each.name] = error
                elif place is not None:
                    lagging.append(each.name)
            rows.drop(tx, gone)
            rows.forget_failures(tx, now - _TOLD)
            return gone, lagging, failed, rows.places(tx)

        gone, lagging, failed, places = await self.store.write(work)
        for name in gone:
            _log.warning("dropped a consumer of changes that is no longer configured", consumer=name)
        for name in lagging:
            _log.error(
                "a consumer of changes lagged too far behind; it begins again with what is open",
                consumer=name,
            )
        for lane in self._lanes:
            lane.begin(places, failed)

    def _lags(self, tx: Tx, place: Position, now: datetime) -> bool:
        """Whether too much follows a place, or for too long."""
        count, since = rows.lag(tx, place, _MOST + 1)
        return count > _MOST or (self.keep is not None and since is not None and since < now - self.keep)

    def _begin_anew(self, part: Consumer | Observer, now: datetime, tx: Tx, *, lags: bool) -> None:
        rows.begin(tx, part.name, self.store.horizon)
        if lags:
            rows.note_failure(tx, part.name, None, "it lagged too far behind", now)
            if part not in self.observers:
                rows.note_open(tx, part.name, now)
        if isinstance(part, Beginner):
            part.begin_anew(tx)


class _Lane:
    """Runs those that gather changes for the same time. `places`: up to where each has taken them."""

    def __init__(
        self, feed: Feed, consumers: Sequence[Consumer], observers: Sequence[Observer], gather: float
    ) -> None:
        self.consumers, self.observers, self._gather = list(consumers), list(observers), gather
        self._feed, self._store, self._clock = feed, feed.store, feed.clock
        self.places: dict[str, Position] = {}
        self.wake = asyncio.Event()
        self.wake.set()
        self._in_hand: dict[str, Clarification] = {}  # the newest of records that changed
        self._busy = False
        self._saving: asyncio.Future[dict[str, Position]] | None = None
        self._in_doubt = False  # whether a transaction failed that may be committed all the same

    @property
    def parts(self) -> list[Consumer | Observer]:
        return [*self.consumers, *self.observers]

    def begin(self, places: Mapping[str, Position], failed: Mapping[str, Exception]) -> None:
        for each in self.parts:
            if (error := failed.get(each.name)) is not None:
                self._leave_out(each, error)
        self.places = {each.name: places[each.name] for each in self.parts}

    def _leave_out(self, part: Consumer | Observer, error: Exception) -> None:
        """Tells it of nothing more, and leaves its stored place for the next start. Works in the store's thread, too."""
        self._feed.failed(part.name, _LEFT_OUT, error)
        among: list[Any] = self.consumers if part in self.consumers else self.observers
        with suppress(ValueError):  # both threads came here
            among.remove(part)

    @property
    def idle(self) -> bool:
        return not self._busy and not self.wake.is_set()

    def record_changed(self, record: Clarification) -> None:
        if len(self._in_hand) < _MOST_IN_HAND or record.id in self._in_hand:
            self._in_hand[record.id] = record
        self.wake.set()

    async def run(self) -> None:
        """Takes changes as they come, until cancelled."""
        await until_stored(self._load, self._clock, _log, "loading what consumers owe later")
        while True:
            self.wake.clear()
            self._busy = True
            try:
                seconds = await self._take() if self.parts else inf
            except _NOT_NOW as error:
                _log.warning("cannot process changes yet, will retry", reason=str(error))
                seconds = _RETRY
            if seconds:
                self._busy = False
                await event_or_time(self._clock, self.wake, seconds)
                self._busy = True
                await self._clock.sleep(self._gather)

    async def _take(self) -> float:
        """Takes the next changes; returns after how many seconds to look again."""
        first = min(self.places[each.name] for each in self.parts)
        found, more = await rows.following(self._store, first, _BATCH)
        if not found:
            if self._in_doubt:
                await self._load()
            if not more:
                self._in_hand.clear()
            return _SETTLING if more else inf
        wanted = {change for change in found for each in self.consumers if self._is_wanted(each, change)}
        if wanted:
            records = await self._records([change for change in found if change in wanted])
            for consumer, act in await self._commit(found, records):
                self._guard(consumer, act)
        for observer in list(self.observers):
            self._guard(observer, partial(self._tell, observer, found))
        self.places = {name: max(place, found[-1].place) for name, place in self.places.items()}
        if self.observers or not wanted:
            self.save_soon()
        return 0

    def _guard(self, part: Consumer | Observer, work: Callable[[], None]) -> None:
        try:
            work()
        except Exception as error:  # noqa: BLE001 - one part's defect must not stop the others
            self._leave_out(part, error)

    def _tell(self, observer: Observer, found: Sequence[RecordChange]) -> None:
        for change in found:
            if change.place > self.places[observer.name] and _is_for(observer.name, change):
                observer.observe(change)

    async def _load(self) -> None:
        """Loads what is owed from before, or what a transaction of unknown outcome may have stored."""
        for each in list(self.consumers):
            try:
                await each.load()
            except _NOT_NOW:
                raise
            except Exception as error:  # noqa: BLE001 - one consumer's defect must not stop the others
                self._leave_out(each, error)
        self._in_doubt = False

    def save_soon(self) -> None:
        """Has cursors that only moved stored, unless that is on its way."""
        if self._saving is None:
            self._saving = self._store.write_soon(self._move, within=_SAVED_WITHIN)
            self._saving.add_done_callback(self._saved)

    async def save(self) -> None:
        await self._store.write(self._move)

    def _saved(self, saving: asyncio.Future[dict[str, Position]]) -> None:
        self._saving = None
        if saving.cancelled():
            return
        if (error := saving.exception()) is not None:
            _log.warning("cannot store the cursor yet, will retry", reason=str(error))
        elif saving.result() != self._reached():
            self.save_soon()

    def _is_wanted(self, consumer: Consumer, change: RecordChange) -> bool:
        if change.place <= self.places[consumer.name] or not _is_for(consumer.name, change):
            return False
        if change.what.startswith(OPEN):
            return True
        try:
            return consumer.wants(change)
        except Exception:  # noqa: BLE001 - it is asked again where that can be stored
            return True

    async def _records(self, wanted: Sequence[RecordChange]) -> dict[str, Clarification | Exception]:
        """Returns the records of changes, or why one cannot be read; without those that are gone.

        Raises:
            LockTimeout, LedgerUnwritable: not now.
        """
        found: dict[str, Clarification | Exception] = {}
        for name, revision in {each.clarification: each.revision for each in wanted}.items():
            record = self._in_hand.pop(name, None)
            try:
                if record is None or record.revision < revision:
                    record = await self._feed.ledger.find(name)
                if await self._feed.sign(record):
                    record = await self._feed.ledger.find(name)
            except NotFound:
                _log.warning("skipped a change: its clarification is gone", id=name)
            except LedgerUnreadable as error:
                found[name] = error
            else:
                found[name] = record
        # Those that agree with their receipts are known to, from here on.
        readable = [each for each in found.values() if isinstance(each, Clarification)]
        await self._feed.ledger.tampered_among(readable)
        return found

    async def _commit(
        self, found: Sequence[RecordChange], records: dict[str, Clarification | Exception]
    ) -> list[tuple[Consumer, Callable[[], None]]]:
        """Stores what consumers owe, and moves their cursors, in one transaction."""
        now = self._clock.now()

        def work(
            tx: Tx,
        ) -> tuple[list[tuple[Consumer, Callable[[], None]]], list[tuple[str, RecordChange, Exception]]]:
            stored, acts, failed = rows.places(tx), list[tuple[Consumer, Callable[[], None]]](), []
            current = {name: _current(tx, record) for name, record in records.items()}
            for each in self.consumers:
                place = stored.get(each.name, self.places[each.name])
                for change in found:
                    # The outcome of an earlier try may be unknown: only the stored cursor tells.
                    if change.place <= place or not self._is_wanted(each, change):
                        continue
                    record = current.get(change.clarification)
                    if record is None:
                        continue
                    act, error = _owed(each, change, record, tx)
                    if error is not None:
                        rows.note_failure(tx, each.name, change, type(error).__name__, now)
                        failed.append((each.name, change, error))
                    elif act is not None:
                        acts.append((each, act))
                rows.move(tx, each.name, max(place, found[-1].place))
            return acts, failed

        try:
            acts, failed = await self._store.write(work)
        except StorageUnavailable:
            self._in_doubt = True
            raise
        for consumer, change, error in failed:
            _log.error(
                "skipped a change: its consumer failed",
                consumer=consumer,
                id=change.clarification,
                what=change.what,
                exc_info=error,
            )
        return acts

    def _move(self, tx: Tx) -> dict[str, Position]:
        stored, reached = rows.places(tx), self._reached()
        for name, place in reached.items():
            if stored.get(name, place) < place:
                rows.move(tx, name, place)
        return reached

    def _reached(self) -> dict[str, Position]:
        """Returns up to where each is done with changes."""
        places = self.places
        if not places:  # the bot stops before it began
            return {}
        reached = {each.name: places[each.name] for each in list(self.consumers)}
        for each in list(self.observers):
            try:
                # Read after the places: what was undone when they were taken is done, or still here.
                first, place = each.undone, places[each.name]
                reached[each.name] = place if first is None else min(place, first._replace(seq=first.seq - 1))
            except Exception as error:  # noqa: BLE001 - one observer's defect must not stop the others
                self._leave_out(each, error)
        return reached


def _is_for(name: str, change: RecordChange) -> bool:
    return not change.what.startswith(OPEN) or change.what == OPEN + name


def _owed(
    consumer: Consumer, change: RecordChange, record: Clarification | Exception, tx: Tx
) -> tuple[Callable[[], None] | None, Exception | None]:
    """Returns what to call once it is stored, or why the consumer could not take the change."""
    if isinstance(record, Exception):
        return None, record

    def work(tx: Tx) -> Callable[[], None] | None:
        is_wanted = change.what.startswith(OPEN) or consumer.wants(change)
        return consumer.owes(change, record, tx) if is_wanted else None

    return tx.part(work)


def _current(tx: Tx, record: Clarification | Exception) -> Clarification | Exception:
    """Returns a record, or what is left of it if it was forgotten since it was read: that must not be stored again."""
    if isinstance(record, Exception):
        return record
    row = as_stored(tx, record)
    return row if is_forgotten(row) else record
