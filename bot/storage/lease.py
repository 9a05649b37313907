"""Elects the leader among all bots on one PostgreSQL: a row with an epoch, judged by the server's clock.

The rules:

- A bot takes the lease when it was handed over, or when its last renewal is more than `Terms.lasts` ago by the server's
  clock. Each taking raises the epoch by one; nothing else changes it.
- The holder of the current epoch renews it, even late, unless another bot has taken it.
- A transaction of the leader first locks the row of its epoch (`for key share`). Without that row it is refused. A bot
  that wants the lease waits for the transaction's end, and ends it if the lease is over and the leader says nothing more
  in it: a frozen process would hold the lease for good.
- Calls to Slack and others cannot be refused afterwards, so they end at the latest `Terms.margin` before the lease does.
  The leader counts by its own steady clock, which also runs during suspend, from before it sent its last successful
  renewal: the server counts from later.

The steady clock is read right before each call, so nothing is late unless the process is frozen. A process that is
frozen between that and the sending (stopped by a signal, suspended) still sends when it continues: Slack cannot be
fenced. A timer of the event loop cuts off running calls, late by as much as the loop is blocked.

All bots tell the time by the server's clock (`ServerClock`), not by their machines'.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial

import psycopg
import structlog

from bot.errors import NotLeading
from bot.storage.connection import ConnectionThread, PostgresConnection, reason_of
from bot.storage.store import require_here
from bot.storage.tx import Row
from core.clock import Clock

_REMEMBERED = 8  # samples
_DRIFT = 0.0005  # per second between two samples: NTP corrects a clock no faster


@dataclass(frozen=True, slots=True)
class Sample:
    """The server's time of day (`at`, seconds since 1970), read between `sent` and `received` on our steady clock."""

    sent: float
    received: float
    at: float

    @property
    def offset(self) -> float:
        """The difference between the server's clock and our steady clock, if request and response took the same time."""
        return self.at - (self.sent + self.received) / 2

    def error(self, now: float) -> float:
        """Returns the largest possible error of the offset, in seconds."""
        return (self.received - self.sent) / 2 + _DRIFT * (now - self.received)


class ServerClock:
    """Tells the server's time: the best of the last samples, carried forward by our steady clock.

    Two bots differ by at most the difference between their requests' and responses' travel times: milliseconds.
    """

    def __init__(self, own: Clock) -> None:
        self._own = own
        self._samples: deque[Sample] = deque(maxlen=_REMEMBERED)
        self._offset = own.now().timestamp() - own.steady()

    def add(self, sample: Sample) -> None:
        """Adds a sample. Drops older ones that contradict it: they date from before the server's clock was set."""
        agreeing = [each for each in self._samples if _agree(each, sample)]
        self._samples = deque([*agreeing, sample], _REMEMBERED)
        self._offset = min(self._samples, key=lambda each: each.error(sample.received)).offset

    def now(self) -> datetime:
        return datetime.fromtimestamp(self._own.steady() + self._offset, UTC)

    def steady(self) -> float:
        return self._own.steady()

    async def sleep(self, seconds: float) -> None:
        await self._own.sleep(seconds)


def _agree(older: Sample, newer: Sample) -> bool:
    most = older.error(newer.received) + newer.error(newer.received)
    return abs(older.offset - newer.offset) <= most


_log = structlog.get_logger("clarify.storage")


@dataclass(frozen=True, slots=True)
class Terms:
    """Seconds: how long a lease `lasts`, how much earlier its holder stops, how often to renew it and to ask for it, and
    after how long a silent leader's transaction is ended.
    """

    lasts: float = 9.5  # plus `ask`: a new leader ten seconds after the last sign of life
    margin: float = 3.0
    renew: float = 1.0  # well below the time after which a server counts as silent
    ask: float = 0.5
    silent: float = 6.0  # the server ends it sooner (`bot.storage.postgres`), as far as it can


Newest = tuple[int | None, int | None]
"""The transactions that last told other bots something, and last wrote a ledger."""


@dataclass(frozen=True, slots=True)
class _LeaseAnswer:
    """The server's answer: the epoch under which the bot leads, if it does, the server's time, and the newest change.
    `installation`: where the database moved to, if it did.
    """

    epoch: int | None
    time: Sample
    newest: Newest
    installation: Row


# Ends transactions of a leader whose lease is over, where the server waits for it to go on.
_END_SILENT = """select pg_terminate_backend(held.pid) from lease, pg_locks held join pg_stat_activity session using (pid)
where session.datname = current_database() and held.relation = 'lease'::regclass and held.mode = 'RowShareLock'
and session.wait_event = 'ClientRead' and session.state_change < clock_timestamp() - %(silent)s * interval '1 second'
and lease.renewed_at < clock_timestamp() - %(lasts)s * interval '1 second'"""
# Appended to each change of the lease: records this bot as alive, at most once per renewal interval.
_SEEN = """, seen as (
  insert into alive (id, seen_at) values (%(name)s, clock_timestamp()) on conflict (id) do update
  set seen_at = excluded.seen_at where alive.seen_at < excluded.seen_at - %(again)s * interval '1 second')
select (select epoch from mine) as epoch, extract(epoch from clock_timestamp())::float8 as at,
  (select max(xid) from news) as told, (select max(written) from clarifications) as written,
  moved_to, moved_from from installation"""


@dataclass(eq=False)
class Lease:
    """One bot's side of the election. Call `acquire` once; it is then renewed until `hand_over`, or until another bot
    leads (`lost`).

    Asking and renewing also tells the others that this bot is alive, and reads the server's clock and the newest change:
    notices may fail to arrive.
    """

    session: ConnectionThread
    name: str
    clock: ServerClock
    terms: Terms
    lost: asyncio.Event = field(default_factory=asyncio.Event)
    newest: Newest = (None, None)
    epoch: int | None = (
        None  # the number of this leadership, counted over all bots; None if this bot never led
    )
    _since: float = 0.0  # when it sent its last successful renewal, on the steady clock
    _expiry_logged: bool = False
    _renewing: asyncio.Task[None] | None = None
    _acting: set[asyncio.Timeout] = field(default_factory=set)

    @property
    def left(self) -> float:
        """How many seconds this bot may still act as the leader; 0 or less means none."""
        if self.epoch is None or self.lost.is_set():
            return 0.0
        return self._since + self.terms.lasts - self.terms.margin - self.clock.steady()

    async def acquire(self, *, wait: bool = True) -> None:
        """Returns once this bot leads or, without `wait`, once another bot is known to lead.

        Raises:
            StorageMoved: the database moved to another one since it was opened.
        """
        waits = False
        while True:
            try:
                answer = self._note(await self.session.run(self._try_acquire))
                require_here("The database", answer.installation)
                if answer.epoch is not None:
                    break
                if not wait:
                    return
                if not waits:
                    _log.info("another replica leads; standing by")
                waits = True
            except psycopg.Error as error:
                _log.warning("cannot tell whether another replica leads", reason=reason_of(error))
            await self.clock.sleep(self.terms.ask)
        self.epoch, self._since = answer.epoch, answer.time.sent
        _log.info("leading", epoch=answer.epoch)
        self._renewing = asyncio.create_task(self._renew(answer.epoch), name="lease")

    @asynccontextmanager
    async def acting(self) -> AsyncIterator[None]:
        """Wraps an outside call that only the leader makes. The call is cut off when the lease ends.

        Raises:
            NotLeading: the lease was over before the call.
            TimeoutError: the lease ended during it.
        """
        if (left := self.left) <= 0:
            raise NotLeading
        async with asyncio.timeout(left) as limit:
            self._acting.add(limit)
            try:
                yield
            finally:
                self._acting.discard(limit)

    async def hand_over(self) -> None:
        """Gives up the lease, so that another bot can lead at once. Nothing may be running any more."""
        if self._renewing is not None and self.epoch is not None:
            self._renewing.cancel()
            await asyncio.wait([self._renewing])
            self.lost.set()
            with suppress(psycopg.Error):
                await self.session.run(partial(_release, self.epoch))
        await self.session.close()

    async def _renew(self, epoch: int) -> None:
        while True:
            try:
                answer = self._note(await self.session.run(partial(self._try_renew, epoch)))
            except psycopg.Error as error:
                _log.warning("cannot renew the lease", reason=reason_of(error))
                if self.left <= 0 and not self._expiry_logged:
                    self._expiry_logged = True
                    _log.error("lease expired; pausing work as the leader until it is renewed")
                await self.clock.sleep(self.terms.ask)
                continue
            if answer.epoch is None:
                break
            self._since = answer.time.sent
            self._move_deadlines()
            if self._expiry_logged:
                self._expiry_logged = False
                _log.info("still leading", epoch=epoch)
            await self.clock.sleep(self.terms.renew)
        _log.error("another replica leads")
        self.lost.set()
        self._move_deadlines()

    def _note(self, answer: _LeaseAnswer) -> _LeaseAnswer:
        self.clock.add(answer.time)
        self.newest = answer.newest
        return answer

    def _try_acquire(self, db: PostgresConnection) -> _LeaseAnswer:
        """Tries to take the lease. Without an epoch, another bot leads, or is in a transaction that it began as the
        leader.
        """
        answer = self._ask_server(
            "with free as (select epoch from lease"
            " where holder is null or renewed_at < clock_timestamp() - %(lasts)s * interval '1 second'"
            " for update skip locked),"
            " mine as (update lease set epoch = lease.epoch + 1, holder = %(name)s, renewed_at = clock_timestamp()"
            " from free where lease.epoch = free.epoch returning lease.epoch)",
            {"lasts": self.terms.lasts},
            db,
        )
        if answer.epoch is None:
            over = {"lasts": self.terms.lasts, "silent": self.terms.silent}
            if ended := db.execute(_END_SILENT, over).fetchall():
                _log.warning("ended what a frozen leader had begun to write", transactions=len(ended))
        return answer

    def _try_renew(self, epoch: int, db: PostgresConnection) -> _LeaseAnswer:
        """Renews the lease. Without an epoch, another bot leads. Does not wait for transactions that locked the row:
        its key does not change.
        """
        return self._ask_server(
            "with mine as (update lease set renewed_at = clock_timestamp() where epoch = %(epoch)s returning epoch),"
            " gone as (delete from alive where seen_at < clock_timestamp() - interval '1 day'),"
            " over as (delete from replicas where at < clock_timestamp() - interval '1 day')",
            {"epoch": epoch},
            db,
        )

    def _ask_server(self, change: str, values: dict[str, object], db: PostgresConnection) -> _LeaseAnswer:
        """Returns the server's answer to a change (`with mine as …`) of the row."""
        sent = self.clock.steady()
        row = db.execute(
            (change + _SEEN).encode(),
            {"name": self.name, "again": self.terms.renew, **values},
        ).fetchone()
        if row is None:
            raise psycopg.OperationalError("the database says nothing")
        time = Sample(sent, self.clock.steady(), row["at"])
        return _LeaseAnswer(row["epoch"], time, (row["told"], row["written"]), row)

    def _move_deadlines(self) -> None:
        """Moves the deadlines of running calls to the new end, except for calls that are being cut off already."""
        end = asyncio.get_running_loop().time() + self.left
        for limit in self._acting:
            if not limit.expired():
                limit.reschedule(end)


def _release(epoch: int, db: PostgresConnection) -> None:
    db.execute("update lease set holder = null where epoch = %s", [epoch])


def begins(epoch: int, db: PostgresConnection) -> bool:
    """Returns whether a transaction may continue as that leader's. If so, no bot takes the lease before its end."""
    return db.execute("select 1 from lease where epoch = %s for key share", [epoch]).fetchone() is not None
