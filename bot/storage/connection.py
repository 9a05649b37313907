"""Connections to PostgreSQL, each with its own thread, replaced when they break.

A server may hang without closing anything: packets are dropped, or its processes are stopped. A connection is closed
when a statement gets no sign of life for `PostgresConnection.limit` seconds, unless the server answers on another
connection: then it is only slow.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from math import inf
from typing import Any, TypeVar

import psycopg
from psycopg.adapt import Buffer, Dumper
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


class ServerSilent(psycopg.OperationalError):
    """The database does not answer."""


@dataclass(slots=True)
class Server:
    """What several connections know about their server. `heard`: when it last answered, on `time.monotonic`."""

    heard: float = -inf


class PostgresConnection(psycopg.Connection[dict[str, Any]]):
    """A connection that closes when the server is silent for longer than `limit` seconds."""

    limit = inf
    server = Server()

    def wait(self, gen: Generator[Any, Any, _T], *args: Any, **kwargs: Any) -> _T:
        return super().wait(self._listening(gen), *args, **kwargs)

    def _listening(self, gen: Generator[Any, Any, _T]) -> Generator[Any, Any, _T]:
        """Wraps `gen`, which psycopg resumes every tenth of a second while nothing arrives."""
        since = time.monotonic()
        try:
            wanted = next(gen)
            while True:
                ready = yield wanted
                now = time.monotonic()
                if ready:
                    self.server.heard = since = now
                elif now - max(since, self.server.heard) > self.limit or now - since > max(self.limit, _SLOW):
                    self.pgconn.finish()
                    raise ServerSilent("it does not answer")
                wanted = gen.send(ready)
        except StopIteration as end:
            result: _T = end.value
            return result


class ConnectionThread:
    """A connection and its thread. Reconnects after a break. `limit`: see `PostgresConnection`."""

    def __init__(self, url: str, server: Server, limit: float = inf) -> None:
        self.limit = limit
        self._server = server
        self._url = url
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="PostgreSQL")
        self._db: PostgresConnection | None = None

    async def run(self, work: Callable[[PostgresConnection], _T], begin: str | None = None) -> _T:
        """Returns what `work` returns. Runs `begin` first, and repeats it on a new connection if the old one turns
        out to be dead.
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
                db.execute(begin)
            except ServerSilent:
                raise
            except _LOST:
                if not db.closed:
                    raise
                db = self._connected()
                db.execute(begin)
        return work(db)  # never retried on another connection

    def _connected(self) -> PostgresConnection:
        if self._db is None or self._db.closed:
            self._drop()
            self._db = connect(self._url)
        self._db.server, self._db.limit = self._server, self.limit
        return self._db

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
            **OPTIONS,
        )
    except psycopg.errors.ConnectionTimeout as error:
        raise ServerSilent("it does not answer") from error
    db.adapters.register_dumper(bool, _Flag)
    db.adapters.register_dumper(str, _Text)
    return db


class _Flag(Dumper):
    """Stores flags as integers, as SQLite does."""

    oid = psycopg.postgres.types["int8"].oid

    def dump(self, obj: bool) -> Buffer:  # noqa: FBT001 - psycopg's signature
        return b"1" if obj else b"0"


class _Text(StrDumperUnknown):
    """Replaces NUL, which PostgreSQL cannot store, by U+FFFD in what is stored and searched for."""

    def dump(self, obj: str) -> Buffer | None:
        return super().dump(obj.replace("\x00", "\ufffd"))


def words(error: psycopg.Error) -> str:
    """Returns the error in one line, without the address, which may contain a password."""
    said = error.diag.message_primary or next(iter(str(error).strip().splitlines()), type(error).__name__)
    return said.rstrip(".")
