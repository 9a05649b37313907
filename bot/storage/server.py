"""What several bots need of one PostgreSQL server: connections, its clock, and the lease that makes one of them the leader.

Each connection has its own thread, and is replaced when it breaks. A server may hang without closing anything: packets are dropped,
or its processes are stopped. A connection is closed when a statement gets no sign of life for `limit` seconds, unless the server
answers on another connection: then it is only slow, up to `longest` seconds.

A session that began while the database was read-only stays so when the database takes writes again. Its connection is
replaced.

The lease is a row with an epoch, judged by the server's clock. The rules:

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
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from math import inf
from typing import Any, TypeVar

import psycopg
import structlog
from psycopg.adapt import Buffer, Dumper
from psycopg.conninfo import conninfo_to_dict
from psycopg.pq.abc import PGconn
from psycopg.rows import dict_row
from psycopg.types.string import StrDumperUnknown

from bot.errors import NotLeading
from bot.storage.store import require_here
from bot.storage.tx import Row
from core.clock import Clock

_T = TypeVar("_T")
_CONNECT = 2  # seconds
_SLOW = 10.0  # seconds: the longest wait for a statement while other connections get answers
OPTIONS: dict[str, Any] = {
    "connect_timeout": _CONNECT,
    "keepalives_idle": 5,
    "keepalives_interval": 2,
    "keepalives_count": 3,
    "tcp_user_timeout": 5000,
    "application_name": "clarify-bot",
    "client_encoding": "utf8",  # not the default of the database, its user or our environment
}
_LOST = (psycopg.OperationalError, psycopg.InterfaceError)
# A pooling proxy would hand out the same session again: it is ended on the server.
_END_READ_ONLY = (
    "select pg_terminate_backend(pg_backend_pid())"
    " where current_setting('transaction_read_only') = 'on' and pg_backend_pid() <> %s"
)
_REMEMBERED = 8  # samples
_DRIFT = 0.0005  # per second between two samples: NTP corrects a clock no faster


class ServerSilent(psycopg.OperationalError):
    """The database does not answer."""


class ServerReadOnly(psycopg.OperationalError):
    """The database takes no writes now."""


@dataclass(slots=True)
class Server:
    """What several connections know about their server: when it last answered, and when it last refused a write as
    read-only, on `time.monotonic`.
    """

    heard: float = -inf
    refused: float = -inf


class _Bounded:
    """A connection that closes when the server is silent for longer than `limit` seconds, or for longer than `longest`
    while it answers on other connections.
    """

    limit = inf
    longest = _SLOW
    server = Server()
    pgconn: PGconn

    def _bounded(self, gen: Generator[Any, Any, _T]) -> Generator[Any, Any, _T]:
        """Wraps `gen`, which psycopg resumes every tenth of a second while nothing arrives."""
        since = time.monotonic()
        try:
            wanted = next(gen)
            while True:
                ready = yield wanted
                now = time.monotonic()
                if ready:
                    self.server.heard = since = now
                elif now - max(since, self.server.heard) > self.limit or now - since > max(
                    self.limit, self.longest
                ):
                    self.pgconn.finish()
                    raise ServerSilent("it does not answer")
                wanted = gen.send(ready)
        except StopIteration as end:
            result: _T = end.value
            return result


class PostgresConnection(_Bounded, psycopg.Connection[dict[str, Any]]):
    """A connection for statements, used in a thread of its own."""

    def wait(self, gen: Generator[Any, Any, _T], *args: Any, **kwargs: Any) -> _T:
        return super().wait(self._bounded(gen), *args, **kwargs)


class ListeningConnection(_Bounded, psycopg.AsyncConnection[Any]):
    """A connection that waits for notices."""

    limit = longest = 2.0

    async def wait(self, gen: Generator[Any, Any, _T], *args: Any, **kwargs: Any) -> _T:
        waits_for_notices = kwargs.get("timeout") is not None
        return await super().wait(gen if waits_for_notices else self._bounded(gen), *args, **kwargs)


class ConnectionThread:
    """A connection and its thread. Reconnects after a break. `limit`, `longest`: as the connection's."""

    def __init__(self, url: str, server: Server, limit: float = inf, longest: float = _SLOW) -> None:
        self.limit = limit
        self._longest = longest
        self._server = server
        self._url = url
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="PostgreSQL")
        self._db: PostgresConnection | None = None
        self._opened = -inf

    async def run(self, work: Callable[[PostgresConnection], _T], begin: str | None = None) -> _T:
        """Returns what `work` returns. Runs `begin` first, and repeats it on a new connection if the old one turns
        out to be dead or read-only.
        """
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._run, work, begin)

    async def undo(self) -> None:
        """Rolls back. A lost connection was rolled back already."""
        with suppress(psycopg.Error):
            await asyncio.get_running_loop().run_in_executor(self._thread, self._undo)

    async def close(self) -> None:
        await asyncio.get_running_loop().run_in_executor(self._thread, self._drop)
        self._thread.shutdown()

    def _run(self, work: Callable[[PostgresConnection], _T], begin: str | None) -> _T:
        db = self._connected()
        if begin is not None:
            try:
                with self._writing(db):
                    db.execute(begin)
            except ServerSilent:
                raise
            except _LOST:
                if not db.closed:
                    raise
                db = self._connected()
                with self._writing(db):
                    db.execute(begin)
        with self._writing(db):
            return work(db)  # never retried on another connection

    def _connected(self) -> PostgresConnection:
        if self._db is not None and not self._db.closed and self._opened > self._server.refused:
            self._db.limit = self.limit
            return self._db
        self._drop()
        self._opened = time.monotonic()
        self._db = db = connect(self._url)
        db.server, db.limit, db.longest = self._server, self.limit, self._longest
        row = db.execute("select current_setting('transaction_read_only') as value").fetchone()
        if row is not None and row["value"] == "on":
            raise _ended(db)
        return db

    @contextmanager
    def _writing(self, db: PostgresConnection) -> Iterator[None]:
        """Has all connections to the server replaced if it refuses a write as read-only.

        Raises:
            ServerReadOnly: it did.
        """
        try:
            yield
        except psycopg.errors.ReadOnlySqlTransaction as error:
            self._server.refused = time.monotonic()
            raise _ended(db) from error

    def _undo(self) -> None:
        if self._db is not None and not self._db.closed:
            self._db.execute("rollback")

    def _drop(self) -> None:
        if self._db is not None:
            self._db.close()
        self._db = None


def connect(url: str) -> PostgresConnection:
    """Opens a connection: nothing is prepared on the server, flags are 0 and 1, breaks are noticed soon.

    Raises:
        psycopg.Error: it cannot be opened.
    """
    try:
        db = PostgresConnection.connect(
            url,
            autocommit=True,
            prepare_threshold=None,
            row_factory=dict_row,
            **options(url),
        )
    except psycopg.errors.ConnectionTimeout as error:
        raise ServerSilent("it does not answer") from error
    db.adapters.register_dumper(bool, _Flag)
    db.adapters.register_dumper(str, _Text)
    return db


def options(url: str) -> dict[str, Any]:
    """Returns the options of each connection. Of several hosts, it goes to one that takes writes, unless `url` says
    otherwise.
    """
    asked = conninfo_to_dict(url)
    if "target_session_attrs" in asked or "," not in f"{asked.get('host')}{asked.get('hostaddr')}":
        return OPTIONS
    return OPTIONS | {"target_session_attrs": "read-write"}


def _ended(db: PostgresConnection) -> ServerReadOnly:
    """Closes a read-only connection. Returns the error to raise."""
    with suppress(psycopg.Error):
        db.execute("rollback")
        db.execute(_END_READ_ONLY, [db.info.backend_pid])
    db.close()
    return ServerReadOnly("it is read-only: a standby, or configured so")


class _Flag(Dumper):
    """Stores flags as integers, as SQLite does."""

    oid = psycopg.postgres.types["int8"].oid

    def dump(self, obj: bool) -> Buffer:  # noqa: FBT001 - psycopg's signature
        return b"1" if obj else b"0"


class _Text(StrDumperUnknown):
    """Replaces NUL, which PostgreSQL cannot store, by U+FFFD in what is stored and searched for."""

    def dump(self, obj: str) -> Buffer | None:
        return super().dump(obj.replace("\x00", "\ufffd"))


def reason_of(error: psycopg.Error) -> str:
    """Returns the error in one line, without the address, which may contain a password."""
    said = error.diag.message_primary or next(iter(str(error).strip().splitlines()), type(error).__name__)
    return said.rstrip(".")


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
