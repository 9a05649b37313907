"""Connections to PostgreSQL, each with its own thread, replaced when they break.

A server may hang without closing anything: packets are dropped, or its processes are stopped. A connection is closed
when a statement gets no sign of life for `limit` seconds, unless the server answers on another connection: then it is
only slow, up to `longest` seconds.

A session that began while the database was read-only stays so when the database takes writes again. Its connection is
replaced.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from math import inf
from typing import Any, TypeVar

import psycopg
from psycopg.adapt import Buffer, Dumper
from psycopg.conninfo import conninfo_to_dict
from psycopg.pq.abc import PGconn
from psycopg.rows import dict_row
from psycopg.types.string import StrDumperUnknown

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
