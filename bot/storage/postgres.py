# ruff: noqa: S608 - what is put into a statement here is ours alone
"""PostgreSQL: several bots on one database, each with a connection that writes and one that reads.

Transactions keep nothing in the session and prepare nothing on the server, so that pooling proxies in transaction mode can
stand in between.

A connection that dies in COMMIT leaves open whether it was done. Each transaction therefore notes its number in this
process's row of `replicas`. A new connection reads it back once the server is done with the old one, which holds that row
for as long as it lives. Until then who waits goes on waiting, and other work is refused.
"""

from __future__ import annotations

import asyncio
import re
import secrets
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing, closing, suppress
from dataclasses import dataclass
from functools import lru_cache, partial
from importlib import resources
from importlib.resources.abc import Traversable
from typing import Any, Self, TypeVar

import psycopg
import structlog
from psycopg import sql
from psycopg.adapt import Buffer, Dumper
from psycopg.rows import dict_row
from psycopg.types.string import StrDumperUnknown

from bot.errors import StorageError, StorageInDoubt, StorageUnavailable
from bot.storage.tx import Outcome, Query, Row, Tx, Work

_log = structlog.get_logger("clarify.storage")
_T = TypeVar("_T")
Connection = psycopg.Connection[dict[str, Any]]
_LOCK_TIMEOUT_MS = 2000
_IDLE_MS = 5000  # a process that was stopped in the middle of a transaction holds nobody up for longer
_SETTLE_MS = 10_000
_CONNECT, _IN_DOUBT, _RETRY = 3, 30.0, 0.2  # seconds
_CONNECTION: dict[str, Any] = {
    "connect_timeout": _CONNECT,
    "keepalives_idle": 5,
    "keepalives_interval": 2,
    "keepalives_count": 3,
    "tcp_user_timeout": 5000,
    "application_name": "clarify-bot",
}
_LISTEN, _POLL, _ALIVE = 2.0, 0.5, 5.0  # seconds
# Seconds that a lease lasts, and after which it is renewed, or asked for again.
LEASE, _RENEW, _ASK = 10.0, 2.0, 0.5
_PROBE = "probe"
FORGOTTEN = "clarify_forgotten"  # the channel that tells of it
_OLDEST = 140000  # PostgreSQL 14
MIGRATING = 0x636C6172696679  # the number of the advisory lock: "clarify"
_PARTS = re.compile(r"'(?:[^']|'')*'|%|(?<!:):([A-Za-z_]\w*)")
_LOST = (psycopg.OperationalError, psycopg.InterfaceError)


class PostgreSQL:
    """An open database."""

    def __init__(
        self, writer: _Session, reader: _Session, installation: str, url: str, listen_url: str
    ) -> None:
        self.installation = installation
        self._url = url
        self._writer = writer
        self._reader = reader
        self._name = secrets.token_hex(8)
        self._listen_url = listen_url
        self._number = 0
        self._lease: Lease | None = None

    @classmethod
    async def open(cls, url: str, listen_url: str | None = None) -> Self:
        """Connect, bring the database to the newest version.

        Raises:
            StorageError: it cannot be used, or was written by a newer version.
        """
        writer, reader = _Session(url), _Session(url)
        try:
            installation = await writer.run(prepared)
        except psycopg.Error as error:
            await writer.close()
            raise StorageError(f"The database cannot be used: {words(error)}.") from error
        except StorageError:
            await writer.close()
            raise
        return cls(writer, reader, installation, url, listen_url or url)

    async def commit(self, works: Sequence[Work[Any]]) -> list[Outcome]:
        """Do `works` in one transaction; when this returns, the server has it on its disk.

        Raises:
            StorageUnavailable: nothing was done.
            StorageInDoubt: nobody can tell whether it was.
        """
        self._number += 1
        results: list[Outcome] = []
        try:
            epoch = None if self._lease is None else self._lease.epoch
            return await self._writer.run(partial(_done, works, results, epoch), self._begin())
        except _DeposedError as error:
            await self._writer.undo()
            if self._lease is not None:
                self._lease.lost.set()
            raise StorageUnavailable("Nothing was stored: another bot leads.") from error
        except psycopg.Error as error:
            await self._writer.undo()
            if len(results) == len(works) and await self._was_committed():
                return results
            raise _unavailable(error) from error

    async def fetch(self, queries: Sequence[Query]) -> list[list[Row] | Exception]:
        """Each query's rows, or its exception: StorageUnavailable, or of who asked."""
        found = await self._fetch(queries)
        again = [at for at, each in enumerate(found) if isinstance(each, StorageUnavailable)]
        if again:  # the connection may have been an old one
            for at, each in zip(again, await self._fetch([queries[at] for at in again]), strict=True):
                found[at] = each
        return found

    async def _fetch(self, queries: Sequence[Query]) -> list[list[Row] | Exception]:
        try:
            return await self._reader.run(lambda db: [_fetched(query, db) for query in queries])
        except psycopg.Error as error:
            return [_unread(error)] * len(queries)

    async def lead(self) -> None:
        """Returns once no other bot leads. From then on what is written here is written as the leader, or not at all."""
        self._lease = await Lease.take(_Session(self._url), self._name)

    async def deposed(self) -> None:
        """Returns when another bot leads: this one had not renewed its lease."""
        if self._lease is None:
            raise RuntimeError("it never led")
        await self._lease.lost.wait()

    async def give_back(self) -> None:
        """The server does so by itself."""

    async def rings(self) -> AsyncGenerator[None]:
        async with aclosing(notices(self._listen_url, FORGOTTEN)) as told:
            async for _ in told:
                yield

    async def close(self) -> None:
        if self._lease is not None:
            await self._lease.hand_over()
        with suppress(psycopg.Error):
            await self._writer.run(lambda db: db.execute("delete from replicas where id = %s", [self._name]))
        await self._writer.close()
        await self._reader.close()

    def _begin(self) -> str:
        """In one string, since each is a way to the server and back; what is put into it is ours alone."""
        return (
            f"begin; set local lock_timeout = {_LOCK_TIMEOUT_MS};"
            f" set local idle_in_transaction_session_timeout = {_IDLE_MS};"
            f" insert into replicas (id, batch) values ('{self._name}', {self._number})"
            " on conflict (id) do update set batch = excluded.batch"
        )

    async def _was_committed(self) -> bool:
        """Whether the last transaction was done. The upsert waits for the server to be done with its old connection."""
        asked = (
            f"begin; set local lock_timeout = {_SETTLE_MS};"
            f" insert into replicas (id, batch) values ('{self._name}', 0)"
            " on conflict (id) do update set batch = replicas.batch"
        )

        def settled(db: Connection) -> int:
            row = db.execute("select batch from replicas where id = %s", [self._name]).fetchone()
            db.execute("commit")
            return 0 if row is None else int(row["batch"])

        deadline = asyncio.get_running_loop().time() + _IN_DOUBT
        while True:
            try:
                return await self._writer.run(settled, asked) == self._number
            except psycopg.Error as error:
                await self._writer.undo()
                if asyncio.get_running_loop().time() > deadline:
                    raise StorageInDoubt from error
            await asyncio.sleep(_RETRY)


class _Session:
    """A connection and its thread; a new connection where the last one broke."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="PostgreSQL")
        self._db: Connection | None = None

    async def run(self, work: Callable[[Connection], _T], begin: str | None = None) -> _T:
        """What `work` returns, after `begin`, which is tried on a new connection where an old one turns out to be gone."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._run, work, begin)

    async def undo(self) -> None:
        """What was begun is not done; without a connection it is not anyway."""
        with suppress(psycopg.Error):
            await self.run(_rollback)

    async def close(self) -> None:
        await asyncio.get_running_loop().run_in_executor(self._thread, self._drop)
        self._thread.shutdown()

    def _run(self, work: Callable[[Connection], _T], begin: str | None) -> _T:
        db = self._connected()
        if begin is not None:
            try:
                db.execute(begin)
            except _LOST:
                if not db.closed:
                    raise
                db = self._connected()
                db.execute(begin)
        return work(db)  # on this connection or none

    def _connected(self) -> Connection:
        if self._db is None or self._db.closed:
            self._drop()
            self._db = connect(self._url)
        return self._db

    def _drop(self) -> None:
        if self._db is not None:
            self._db.close()
        self._db = None


class Lease:
    """Who leads, of all bots on one database, by the server's clock: taken over `LEASE` seconds after it was last renewed.

    `epoch`: the number of this leadership, in the order of all. `lost`: somebody else's began.
    """

    def __init__(self, session: _Session, epoch: int) -> None:
        self.epoch = epoch
        self.lost = asyncio.Event()
        self._session = session
        self._renewing = asyncio.create_task(self._renew(), name="lease")

    @classmethod
    async def take(cls, session: _Session, name: str) -> Self:
        """Wait until nobody leads, then lead."""
        waits = False
        while True:
            try:
                if (epoch := await session.run(partial(_taken, name))) is not None:
                    _log.info("leads", epoch=epoch)
                    return cls(session, epoch)
                if not waits:
                    _log.info("another bot leads; this one waits for its lease to end")
                waits = True
            except psycopg.Error as error:
                _log.warning("whether another bot leads is not known", reason=words(error))
            await asyncio.sleep(_ASK)

    async def hand_over(self) -> None:
        """At once, so that another bot leads without waiting for the lease to end."""
        self._renewing.cancel()
        await asyncio.wait([self._renewing])
        with suppress(psycopg.Error):
            await self._session.run(
                lambda db: db.execute("update lease set holder = null where epoch = %s", [self.epoch])
            )
        await self._session.close()

    async def _renew(self) -> None:
        while not self.lost.is_set():
            wait = _RENEW
            try:
                if not await self._session.run(partial(_renewed, self.epoch)):
                    _log.error("another bot leads")
                    self.lost.set()
            except psycopg.Error as error:
                _log.warning("the lease could not be renewed", reason=words(error))
                wait = _ASK
            await asyncio.sleep(wait)


def _taken(name: str, db: Connection) -> int | None:
    """The new epoch; None: another bot leads."""
    row = db.execute(
        "update lease set epoch = epoch + 1, holder = %s, renewed_at = clock_timestamp()"
        " where holder is null or renewed_at < clock_timestamp() - %s * interval '1 second' returning epoch",
        [name, LEASE],
    ).fetchone()
    return None if row is None else int(row["epoch"])


def _renewed(epoch: int, db: Connection) -> bool:
    return (
        db.execute("update lease set renewed_at = clock_timestamp() where epoch = %s", [epoch]).rowcount == 1
    )


def connect(url: str) -> Connection:
    """A connection as all of ours are: nothing prepared on the server, flags as 0 and 1, broken ones noticed soon.

    Raises:
        psycopg.Error: it cannot be had.
    """
    db = psycopg.connect(
        url,
        autocommit=True,
        prepare_threshold=None,
        row_factory=dict_row,
        **_CONNECTION,
    )
    db.adapters.register_dumper(bool, _Flag)
    db.adapters.register_dumper(str, _Text)
    return db


class _Flag(Dumper):
    """Flags are integers in every database."""

    oid = psycopg.postgres.types["int8"].oid

    def dump(self, obj: bool) -> Buffer:  # noqa: FBT001 - psycopg's signature
        return b"1" if obj else b"0"


class _Text(StrDumperUnknown):
    """PostgreSQL has no NUL in texts: whatever is stored or looked for has U+FFFD in its place."""

    def dump(self, obj: str) -> Buffer | None:
        return super().dump(obj.replace("\x00", "\ufffd"))


@lru_cache(maxsize=1024)
def form(text: str) -> str:
    """A statement as psycopg takes it: `%(name)s` for `:name`."""
    return _PARTS.sub(lambda m: f"%({m[1]})s" if m[1] else m[0].replace("%", "%%"), text)


class _DeposedError(Exception):
    """The epoch is over."""


def _done(
    works: Sequence[Work[Any]], results: list[Outcome], epoch: int | None, db: Connection
) -> list[Outcome]:
    """All of `results`, once they are committed; they are complete before that. Whoever wants to lead in the place of
    `epoch` waits for the end of this transaction; its renewal does not, as the key stays as it is.

    Raises:
        _DeposedError: the epoch is over; nothing was done.
    """
    if epoch is not None:
        leads = db.execute("select 1 from lease where epoch = %s for key share", [epoch]).fetchone()
        if leads is None:
            raise _DeposedError
    results += Tx(db, form).parts(works, psycopg.OperationalError)
    db.execute("commit")
    return results


def _rollback(db: Connection) -> None:
    db.execute("rollback")


def _fetched(query: Query, db: Connection) -> list[Row] | Exception:
    text, values = query
    try:
        found: list[Any] = db.execute(form(text), values).fetchall()
    except psycopg.Error as error:
        return _unread(error)
    return found


def _unavailable(error: psycopg.Error) -> StorageUnavailable:
    return StorageUnavailable(f"Nothing was stored: {words(error)}.")


def _unread(error: psycopg.Error) -> StorageUnavailable:
    return StorageUnavailable(f"The storage could not be read: {words(error)}.")


def words(error: psycopg.Error) -> str:
    """One line, without the address, which may hold a password."""
    said = error.diag.message_primary or next(iter(str(error).strip().splitlines()), type(error).__name__)
    return said.rstrip(".")


def prepared(db: Connection) -> str:
    """Bring the database to this release's version; returns the installation's id."""
    files = migrations()
    newest = max(files)
    with db.transaction():
        db.execute("select pg_advisory_xact_lock(%s)", [MIGRATING])
        db.execute("create table if not exists schema_version (version bigint not null)")
        row = db.execute("select version from schema_version").fetchone()
        version = 0 if row is None else int(row["version"])
        if version > newest:
            raise StorageError(
                f"The database has version {version}, written by a newer clarify-bot; this one knows {newest}."
            )
        for number in sorted(each for each in files if each > version):
            db.execute(files[number].read_text(encoding="utf-8").encode())
        db.execute("delete from schema_version")
        db.execute("insert into schema_version (version) values (%s)", [newest])
        found = db.execute("select id from installation").fetchone()
    if found is None:
        raise StorageError("The database has no installation: its table was emptied.")
    return str(found["id"])


def migrations() -> dict[int, Traversable]:
    """By the version that they make: the same as in SQLite."""
    folder = resources.files("bot.storage").joinpath("migrations", "postgres")
    return {int(file.name.partition("_")[0]): file for file in folder.iterdir() if file.name.endswith(".sql")}


@dataclass(frozen=True, slots=True)
class Looked:
    """What a look at a database found. `version`: the server's; `seconds`: that a question took, at best; `schema`: the
    version of our tables, None where there are none; `may_create`: tables; `hears`: whether notices get through;
    `is_led`: whether a bot leads.
    """

    version: str
    is_old: bool
    seconds: float
    schema: int | None
    newest: int
    may_create: bool
    synchronous: str
    hears: bool
    is_led: bool


def look(url: str, listen_url: str) -> Looked:
    """Look at a database; nothing is changed. Blocking.

    Raises:
        StorageUnavailable: it cannot be had.
    """
    try:
        with closing(connect(url)) as db, closing(connect(listen_url)) as listening:
            listening.execute("listen clarify_check")
            took = []
            for _ in range(5):
                began = time.perf_counter()
                db.execute("select 1")
                took.append(time.perf_counter() - began)
            row = db.execute(
                "select current_setting('server_version') as version, current_setting('synchronous_commit') as synchronous,"
                " current_setting('server_version_num')::int < %s as is_old,"
                " has_schema_privilege(current_schema(), 'create') as may_create,"
                " to_regclass('schema_version') is not null as has_tables",
                [_OLDEST],
            ).fetchone()
            if row is None:
                raise StorageUnavailable("The database says nothing about itself.")
            found = row.pop("has_tables")
            schema = db.execute("select version from schema_version").fetchone() if found else None
            db.execute("select pg_notify('clarify_check', '')")
            return Looked(
                **row,
                seconds=min(took),
                schema=None if schema is None else schema["version"],
                newest=max(migrations()),
                hears=bool(list(listening.notifies(timeout=_LISTEN, stop_after=1))),
                is_led=schema is not None and led(db),
            )
    except psycopg.Error as error:
        raise StorageUnavailable(f"The database cannot be had: {words(error)}.") from error


def is_led(url: str) -> bool:
    """Whether a bot leads on a database. Blocking.

    Raises:
        StorageUnavailable: it cannot be had.
    """
    try:
        with closing(connect(url)) as db:
            return led(db)
    except psycopg.Error as error:
        raise StorageUnavailable(f"The database cannot be had: {words(error)}.") from error


def led(db: Connection) -> bool:
    leads = "select 1 from lease where holder is not null and renewed_at > clock_timestamp() - %s * interval '1 second'"
    return db.execute(leads, [LEASE]).fetchone() is not None


async def notices(url: str, channel: str) -> AsyncGenerator[list[str] | None]:
    """What is told on a channel (`pg_notify`): the payloads of some notices; or None where some may have been missed, as at
    first, after a connection broke, and all the time where a pooling proxy swallows them.
    """
    while True:
        try:
            async with (
                await psycopg.AsyncConnection.connect(
                    url, autocommit=True, prepare_threshold=None, **_CONNECTION
                ) as db,
                aclosing(_heard(db, channel)) as heard,
            ):
                async for each in heard:
                    yield each
        except psycopg.Error as error:
            _log.warning("notices of the database are not heard", reason=words(error))
        yield None
        await asyncio.sleep(_POLL)


async def _heard(db: psycopg.AsyncConnection[Any], channel: str) -> AsyncGenerator[list[str] | None]:
    await db.execute(sql.SQL("listen {}").format(sql.Identifier(channel)))
    await db.execute("select pg_notify(%s, %s)", [channel, _PROBE])
    polls = not [each async for each in db.notifies(timeout=_LISTEN, stop_after=1)]
    if polls:
        _log.warning("the database's notices do not get through, so it is asked twice a second")
    yield None
    while True:
        heard = [each.payload async for each in db.notifies(timeout=_POLL if polls else _ALIVE, stop_after=1)]
        told = [each for each in heard if each != _PROBE]
        if told:
            yield told
        elif polls:
            yield None
        elif not heard:
            await db.execute("select 1")  # a connection that is gone hears nothing, either
