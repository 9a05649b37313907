"""Who leads, of all bots on one PostgreSQL: a row with an epoch, judged by the server's clock.

The rules, which `tests/unit/bot/storage/test_lease_model.py` explores in every order of events:

- Taken when it was handed over, or last renewed longer than `Terms.lasts` ago by the server's clock. The epoch goes up by
  one with each taking, and nothing else changes it.
- Renewed by who holds the current epoch, also late, as long as nobody else took it.
- A transaction of the leader first locks the row of its epoch (`for key share`). It is refused when that is not there,
  and who would take the lease waits for its end.
- What cannot be refused, calls to Slack and others, begins and lasts no longer than until `Terms.margin` before the end
  of the lease. The leader counts by its own steady clock, which runs on in suspend, from before it sent the last
  renewal that succeeded: the server counts from later.

The steady clock is asked right before each call, so nothing is late that the process does without standing still. One
that stands still between that and the sending (stopped by a signal, suspended) does send when it goes on: Slack cannot
be fenced. A call that is under way is cut off at the end by a timer of the event loop, late by what holds the loop up.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial

import psycopg
import structlog

from bot.errors import NotLeading
from bot.storage.clock import Sample, ServerClock
from bot.storage.connection import ConnectionThread, PostgresConnection, words

_log = structlog.get_logger("clarify.storage")


@dataclass(frozen=True, slots=True)
class Terms:
    """Seconds: how long a lease `lasts`, by how much its holder stops earlier, after which it is renewed, and after which
    it is asked for again.
    """

    lasts: float = 9.5  # with the time until it is asked for, ten after the last sign of life
    margin: float = 3.0
    renew: float = 1.0  # well within the time after which a server counts as silent
    ask: float = 0.5


@dataclass(frozen=True, slots=True)
class HeldLease:
    """A lease as its holder knows it. `since`: before the renewal that succeeded last was sent, on the steady clock."""

    epoch: int
    since: float
    terms: Terms

    def left(self, now: float) -> float:
        """Seconds in which the holder may act outside; none are left at 0 or below."""
        return self.since + self.terms.lasts - self.terms.margin - now

    def renewed(self, sent: float) -> HeldLease:
        """After a renewal that was sent then and succeeded."""
        return replace(self, since=sent)


@dataclass(frozen=True, slots=True)
class _LeaseAnswer:
    """The server's answer. `epoch`: under which the bot leads; `time`: of the answer."""

    epoch: int | None
    time: Sample


# What follows the change of the lease: this bot is seen. What has not changed for less than a renewal is not written.
_SEEN = """, seen as (
  insert into alive (id, seen_at) values (%(name)s, clock_timestamp()) on conflict (id) do update
  set seen_at = excluded.seen_at where alive.seen_at < excluded.seen_at - %(again)s * interval '1 second')
select (select epoch from mine) as epoch, extract(epoch from clock_timestamp())::float8 as at"""


@dataclass(eq=False)
class Lease:
    """One bot's part in it. `take` once, then it is renewed until `hand_over`, or until another bot leads (`lost`).

    Whoever asks or renews is seen by the others, and hears what the server's clock says.
    """

    session: ConnectionThread
    name: str
    clock: ServerClock
    terms: Terms
    lost: asyncio.Event = field(default_factory=asyncio.Event)
    _held: HeldLease | None = None
    _over: bool = False  # and said so
    _renewing: asyncio.Task[None] | None = None
    _acting: set[asyncio.Timeout] = field(default_factory=set)

    @property
    def epoch(self) -> int | None:
        """The number of this leadership, in the order of all; None: this bot never led."""
        return None if self._held is None else self._held.epoch

    @property
    def left(self) -> float:
        """Seconds in which this bot may act as the leader; none are left at 0 or below."""
        if self._held is None or self.lost.is_set():
            return 0.0
        return self._held.left(self.clock.steady())

    async def take(self, *, wait: bool = True) -> None:
        """Returns once this bot leads, or, if it is not to `wait`, as soon as it is known that another one does."""
        waits = False
        while True:
            try:
                said = self._heard(await self.session.run(self._asking))
                if said.epoch is not None:
                    break
                if not wait:
                    return
                if not waits:
                    _log.info("another replica leads; standing by")
                waits = True
            except psycopg.Error as error:
                _log.warning("cannot tell whether another replica leads", reason=words(error))
            await self.clock.sleep(self.terms.ask)
        self._held = HeldLease(said.epoch, said.time.sent, self.terms)
        _log.info("leading", epoch=said.epoch)
        self._renewing = asyncio.create_task(self._renew(self._held), name="lease")

    @asynccontextmanager
    async def acting(self) -> AsyncIterator[None]:
        """Around a call outside that only the leader makes, right before it. It is cut off when the lease ends.

        Raises:
            NotLeading: it was over before the call.
            TimeoutError: it ended.
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
        """At once, so that another bot leads without waiting for the lease to end. Nothing is under way any more."""
        if self._renewing is not None and self._held is not None:
            self._renewing.cancel()
            await asyncio.wait([self._renewing])
            self.lost.set()
            with suppress(psycopg.Error):
                await self.session.run(partial(_handed_over, self._held.epoch))
        await self.session.close()

    async def _renew(self, held: HeldLease) -> None:
        while True:
            try:
                said = self._heard(await self.session.run(partial(self._renewal, held.epoch)))
            except psycopg.Error as error:
                _log.warning("cannot renew the lease", reason=words(error))
                if self.left <= 0 and not self._over:
                    self._over = True
                    _log.error("lease expired; pausing work as the leader until it is renewed")
                await self.clock.sleep(self.terms.ask)
                continue
            if said.epoch is None:
                break
            self._held = held = held.renewed(said.time.sent)
            self._postpone()
            if self._over:
                self._over = False
                _log.info("still leading", epoch=held.epoch)
            await self.clock.sleep(self.terms.renew)
        _log.error("another replica leads")
        self.lost.set()
        for limit in self._acting:
            limit.reschedule(asyncio.get_running_loop().time())

    def _heard(self, said: _LeaseAnswer) -> _LeaseAnswer:
        self.clock.heard(said.time)
        return said

    def _asking(self, db: PostgresConnection) -> _LeaseAnswer:
        """No epoch: another bot leads, or is in a transaction that it began as the leader."""
        return self._said(
            "with free as (select epoch from lease"
            " where holder is null or renewed_at < clock_timestamp() - %(lasts)s * interval '1 second'"
            " for update skip locked),"
            " mine as (update lease set epoch = lease.epoch + 1, holder = %(name)s, renewed_at = clock_timestamp()"
            " from free where lease.epoch = free.epoch returning lease.epoch)",
            {"lasts": self.terms.lasts},
            db,
        )

    def _renewal(self, epoch: int, db: PostgresConnection) -> _LeaseAnswer:
        """No epoch: another bot leads. A transaction that locked the row does not hold it up, as the key stays as it is."""
        return self._said(
            "with mine as (update lease set renewed_at = clock_timestamp() where epoch = %(epoch)s returning epoch),"
            " gone as (delete from alive where seen_at < clock_timestamp() - interval '1 day'),"
            " over as (delete from replicas where at < clock_timestamp() - interval '1 day')",
            {"epoch": epoch},
            db,
        )

    def _said(self, change: str, values: dict[str, object], db: PostgresConnection) -> _LeaseAnswer:
        """What the server says to a change (`with mine as …`) of the row."""
        sent = self.clock.steady()
        row = db.execute(
            (change + _SEEN).encode(),
            {"name": self.name, "again": self.terms.renew, **values},
        ).fetchone()
        if row is None:
            raise psycopg.OperationalError("the database says nothing")
        return _LeaseAnswer(row["epoch"], Sample(sent, self.clock.steady(), row["at"]))

    def _postpone(self) -> None:
        """What is under way has the new end."""
        end = asyncio.get_running_loop().time() + self.left
        for limit in self._acting:
            if not limit.expired():
                limit.reschedule(end)


def _handed_over(epoch: int, db: PostgresConnection) -> None:
    db.execute("update lease set holder = null where epoch = %s", [epoch])


def begins(epoch: int, db: PostgresConnection) -> bool:
    """Whether a transaction that has begun may go on as that leader's: then nobody else takes the lease before its end."""
    return db.execute("select 1 from lease where epoch = %s for key share", [epoch]).fetchone() is not None


def is_led(lasts: float, db: PostgresConnection) -> bool:
    """Whether a bot leads."""
    leads = "select 1 from lease where holder is not null and renewed_at > clock_timestamp() - %s * interval '1 second'"
    return db.execute(leads, [lasts]).fetchone() is not None
