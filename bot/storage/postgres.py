# ruff: noqa: S608 - only our own text is put into statements
"""PostgreSQL: several bots on one database, each with one connection for writing and one for reading.

Transactions keep no state in the session and prepare nothing on the server, so pooling proxies in transaction mode
work.

If a connection breaks during COMMIT, the outcome is unknown. Each transaction therefore writes its number into this
process's row of `replicas`. A new connection reads it back once the server has finished with the old one, which holds
a lock on that row. Until then the callers of that transaction wait, and other work is refused. The same goes for a
COMMIT that a hung server does not answer. Any other unanswered statement had no effect: its transaction ends with the
connection.
"""

from __future__ import annotations

import asyncio
import re
import secrets
import time
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, aclosing, closing, suppress
from functools import lru_cache, partial
from math import inf
from typing import Any, Self

import psycopg
import structlog
from psycopg import sql

from bot.checks import CheckResult, right, wrong
from bot.errors import StorageError, StorageInDoubt, StorageMoved, StorageSilent, StorageUnavailable
from bot.storage import schema, server
from bot.storage.server import (
    ConnectionThread,
    Lease,
    ListeningConnection,
    Newest,
    PostgresConnection,
    Sample,
    Server,
    ServerClock,
    ServerSilent,
    Terms,
    connect,
    options,
    reason_of,
)
from bot.storage.store import Store, require_here
from bot.storage.tx import NUMBERED, OF_THE_LEADER, News, Outcome, Query, Row, Topic, Tx, Work
from core.clock import SystemClock

_log = structlog.get_logger("clarify.storage")
_SILENCE = 2.0  # seconds of silence after which the server counts as hung: Slack waits for three
_LOCK_TIMEOUT_MS = 1500
_IDLE_MS = 5000  # so that a process stopped within a transaction blocks others no longer
_SETTLE_MS = 10_000
_IN_DOUBT, _RETRY = 30.0, 0.2  # seconds
_KEPT = 3600.0  # seconds for which a row of `replicas` is certain to exist; it is deleted after a day
_LISTEN, _POLL, _ALIVE = 2.0, 0.5, 5.0  # seconds
TERMS = Terms()
_PROBE = "probe"
_NEWS, _NEWS_KEPT = "clarify_news", 600.0  # seconds
_TELL = (
    "with told as (insert into news (xid, teller, topic, name) values (pg_current_xact_id()::text::bigint, %s, %s, %s)"
    " returning 1) select pg_notify(%s, '') from told"
)
_OLDEST = 140000  # PostgreSQL 14
_FAR = 0.02  # seconds
_SUBJECT = "storage.url_env"
_UNREAD = "The storage could not be read"
_LOOKS = 5
MIGRATING = 0x636C6172696679  # the number of the advisory lock: "clarify"
_LOCK = "hashtextextended('clarify lock ' || %s::text, 0)"  # the number of a name's advisory lock
_PARTS = re.compile(r"'(?:[^']|'')*'|%|(?<!:):([A-Za-z_]\w*)")


class PostgreSQL(Store):
    """A database that several bots share."""

    clock: ServerClock
    horizon = "pg_snapshot_xmin(pg_current_snapshot())::text::bigint"
    is_shared = True

    def __init__(
        self,
        writer: ConnectionThread,
        reader: ConnectionThread,
        asking: ConnectionThread,
        installation: Row,
        urls: tuple[str, str],
    ) -> None:
        """`installation`: its row; `urls`: the database's address, and the one for listening."""
        super().__init__()
        self.installation = str(installation["id"])
        self.secret = bytes(installation["secret"])
        self.clock = ServerClock(SystemClock())
        self._writer = writer
        self._reader = reader
        self.name = secrets.token_hex(8)
        self._urls = urls
        self._deaf: set[str] = set()  # channels whose notices do not arrive
        self._number = 0
        self._doubtful: float | None = None  # since when, on `time.monotonic`
        self._lease = Lease(asking, self.name, self.clock, TERMS)

    @classmethod
    async def open(cls, url: str, listen_url: str | None) -> Self:
        server = Server()
        writer = ConnectionThread(url, server)
        reader = ConnectionThread(url, server, _SILENCE)
        # A slow statement may take longer than a lease lasts.
        asking = ConnectionThread(url, server, _SILENCE, longest=_SILENCE)
        try:
            installation = await writer.run(prepared)
        except psycopg.Error as error:
            await writer.close()
            kind = StorageUnavailable if isinstance(error, psycopg.OperationalError) else StorageError
            raise kind(f"The database cannot be used: {reason_of(error)}.") from error
        except StorageError:
            await writer.close()
            raise
        writer.limit = _SILENCE
        opened = cls(writer, reader, asking, installation, (url, listen_url or url))
        with suppress(psycopg.Error):  # otherwise the first answer of the lease sets it
            opened.clock.add(await reader.run(opened._time))
        return opened

    async def commit(self, works: Sequence[Work[Any]]) -> list[Outcome]:
        self._number += 1
        results: list[Outcome] = []
        began = self.clock.steady()
        try:
            return await self._writer.run(partial(self._run_works, works, results), self._begin())
        except _DeposedError as error:
            await self._writer.undo()
            raise StorageUnavailable(f"Nothing was stored: {error}.") from error
        except StorageError as error:
            await self._writer.undo()
            raise StorageUnavailable(f"Nothing was stored: {error}") from error
        except psycopg.Error as error:
            await self._writer.undo()
            if len(results) == len(works) and await self._was_committed(began):
                return results
            raise _unavailable("Nothing was stored", error) from error

    async def fetch(self, queries: Sequence[Query]) -> list[list[Row] | Exception]:
        found = await self._fetch(queries)
        again = [at for at, each in enumerate(found) if isinstance(each, StorageUnavailable)]
        silent = next((each for each in found if isinstance(each, StorageSilent)), None)
        if silent is not None:
            for at in again:
                found[at] = silent
        elif again:  # the connection may have been dead
            for at, each in zip(again, await self._fetch([queries[at] for at in again]), strict=True):
                found[at] = each
        return found

    async def _fetch(self, queries: Sequence[Query]) -> list[list[Row] | Exception]:
        try:
            return await self._reader.run(lambda db: [_fetched(query, db) for query in queries])
        except psycopg.Error as error:
            return [_unavailable(_UNREAD, error)] * len(queries)

    @property
    def doubt(self) -> float:
        since = self._doubtful
        return 0.0 if since is None else time.monotonic() - since

    async def others(self) -> frozenset[str]:
        alive = "select id from alive where id <> :me and seen_at > clock_timestamp() - :seconds * interval '1 second'"
        (found,) = await self.fetch([(alive, {"me": self.name, "seconds": TERMS.lasts})])
        if isinstance(found, Exception):
            raise found
        return frozenset(row["id"] for row in found)

    @property
    def leads(self) -> bool:
        return self._lease.epoch is not None

    async def lead(self, *, wait: bool = True) -> bool:
        """Once this bot leads, each transaction is done as the leader or refused."""
        await self._lease.acquire(wait=wait)
        return self.leads

    async def deposed(self) -> None:
        await self._lease.lost.wait()

    @property
    def polls(self) -> bool:
        return bool(self._deaf)

    def notices(self, channel: str) -> AsyncGenerator[list[str] | None]:
        def note(polls: bool) -> None:  # noqa: FBT001 - the signature that `notices` calls
            (self._deaf.add if polls else self._deaf.discard)(channel)

        return notices(*self._urls, channel, lambda: self._lease.newest, note)

    def acting(self) -> AbstractAsyncContextManager[None]:
        return self._lease.acting()

    async def news(self) -> AsyncGenerator[list[News] | None]:
        since, seen, looked, cleared = 0, set[int](), -inf, -inf
        async with aclosing(self.notices(_NEWS)) as told:
            async for heard in told:
                began = time.monotonic()
                rows, since = await self._read_news(since)
                # While notices arrive, silence means no news. After a reconnect, some may have been missed.
                if heard is None and began - looked > _NEWS_KEPT / 2:
                    yield None
                elif news := [(row["topic"], row["name"]) for row in rows if row["id"] not in seen]:
                    yield news
                seen, looked = {row["id"] for row in rows}, began
                if self.leads and began - cleared > _NEWS_KEPT:
                    with suppress(StorageUnavailable):
                        await self.commit([_clear_news])
                    cleared = began

    async def _read_news(self, since: int) -> tuple[list[Row], int]:
        """Returns the news from transactions still open at `since`, and from when to look next time. Retries while they cannot
        be read, since no other notice may follow.
        """
        told = (
            "select pg_snapshot_xmin(pg_current_snapshot())::text::bigint as until, news.id, topic, name"
            " from installation left join news on xid >= :since and teller <> :me order by news.id"
        )
        while True:
            (found,) = await self.fetch([(told, {"since": since, "me": self.name})])
            if not isinstance(found, Exception):
                return [row for row in found if row["id"] is not None], found[0]["until"]
            if not isinstance(found, StorageUnavailable):
                raise found
            _log.warning("cannot read other replicas' messages", reason=str(found))
            await asyncio.sleep(_POLL)

    async def close(self) -> None:
        await super().close()
        await self._lease.hand_over()
        with suppress(psycopg.Error):
            await self._writer.run(partial(_sign_off, self.name))
        await self._writer.close()
        await self._reader.close()

    def _run_works(
        self, works: Sequence[Work[Any]], results: list[Outcome], db: PostgresConnection
    ) -> list[Outcome]:
        """Runs `works` and commits. `results` is complete before the commit.

        Raises:
            _DeposedError: the lease has ended, or may have. Nothing was done.
            StorageMoved: the database moved to another one since it was opened. Nothing was done.
        """
        if (epoch := self._lease.epoch) is not None:
            if self._lease.left <= 0 and not self._lease.lost.is_set():
                raise _DeposedError("this bot's lease is over")
            if not server.begins(epoch, db):
                raise _DeposedError("another bot leads")
        else:  # a move raises the epoch
            _require_here(db)
        tx = PostgresTx(db, self.name, leads=epoch is not None)
        results += [tx.part(work) for work in works]
        self._doubtful = time.monotonic()
        db.execute("commit")
        self._doubtful = None
        return results

    def _begin(self) -> str:
        """Begins a transaction in one round trip."""
        return (
            f"begin; set local lock_timeout = {_LOCK_TIMEOUT_MS};"
            f" set local idle_in_transaction_session_timeout = {_IDLE_MS};"
            f" insert into replicas (id, batch, at) values ('{self.name}', {self._number}, clock_timestamp())"
            " on conflict (id) do update set batch = excluded.batch, at = excluded.at"
        )

    async def _was_committed(self, began: float) -> bool:
        """Returns whether the last transaction was committed. The upsert waits until the server has ended the old
        connection.
        """
        asked = (
            f"begin; set local lock_timeout = {_SETTLE_MS};"
            f" insert into replicas (id, batch, at) values ('{self.name}', 0, clock_timestamp())"
            " on conflict (id) do update set batch = replicas.batch"
        )

        def settled(db: PostgresConnection) -> int:
            row = db.execute("select batch from replicas where id = %s", [self.name]).fetchone()
            db.execute("commit")
            return 0 if row is None else int(row["batch"])

        self._writer.limit = _SETTLE_MS / 1000 + 1
        try:
            while True:
                try:
                    batch = await self._writer.run(settled, asked)
                except psycopg.Error as error:
                    await self._writer.undo()
                    if self.doubt > _IN_DOUBT:
                        raise StorageInDoubt from error
                else:
                    if batch == 0 and self.clock.steady() - began > _KEPT:
                        raise StorageInDoubt
                    return batch == self._number
                await asyncio.sleep(_RETRY)
        finally:
            self._doubtful, self._writer.limit = None, _SILENCE

    def _time(self, db: PostgresConnection) -> Sample:
        sent = self.clock.steady()
        row = db.execute("select extract(epoch from clock_timestamp())::float8 as at").fetchone()
        if row is None:
            raise psycopg.OperationalError("the database does not say what time it is")
        return Sample(sent, self.clock.steady(), row["at"])


@lru_cache(maxsize=1024)
def form(text: str) -> str:
    """Returns the statement in psycopg's form: `%(name)s` for `:name`."""
    return _PARTS.sub(lambda m: f"%({m[1]})s" if m[1] else m[0].replace("%", "%%"), text)


class PostgresTx(Tx):
    """A transaction beside those of other processes. `teller`: this bot's name; empty: not a bot."""

    stamp = "pg_current_xact_id()::text::bigint"
    place = "greatest(written, pg_current_xact_id()::text::bigint)"
    beyond = "pg_snapshot_xmax(pg_current_snapshot())::text::bigint"
    renumbered: Mapping[str, str] = {**NUMBERED, "news": "xid"}
    fatal = psycopg.OperationalError

    def __init__(self, db: PostgresConnection, teller: str = "", *, leads: bool = False) -> None:
        super().__init__(db)
        self._teller = teller
        self._leads = leads

    def _form(self, sql: str) -> str:
        return form(sql)

    def tell(self, topic: Topic, name: object = "") -> None:
        if not (self._leads and topic in OF_THE_LEADER):
            self._db.execute(_TELL, [self._teller, topic, str(name), _NEWS])

    def lock(self, name: str, *, wait: bool = False) -> bool:
        if wait:
            self._db.execute(f"select pg_advisory_xact_lock({_LOCK})", [name])
            return True
        tried = self._db.execute(f"select pg_try_advisory_xact_lock({_LOCK}) as had", [name])
        return bool(tried.fetchone()["had"])

    def notify(self, channel: str, text: str) -> None:
        self._db.execute("select pg_notify(%s, %s)", [channel, text])


class _DeposedError(Exception):
    """Another bot leads, or may lead."""


def _sign_off(name: str, db: PostgresConnection) -> None:
    db.execute("delete from replicas where id = %s", [name])
    db.execute("delete from alive where id = %s", [name])


def _clear_news(tx: Tx) -> None:
    tx.run(
        "delete from news where told_at < clock_timestamp() - :seconds * interval '1 second'",
        seconds=_NEWS_KEPT,
    )


def _fetched(query: Query, db: PostgresConnection) -> list[Row] | Exception:
    text, values = query
    try:
        found: list[Any] = db.execute(form(text), values).fetchall()
    except psycopg.Error as error:
        return _unavailable(_UNREAD, error)
    return found


def _unavailable(outcome: str, error: psycopg.Error) -> StorageUnavailable:
    kind = StorageSilent if isinstance(error, ServerSilent) else StorageUnavailable
    return kind(f"{outcome}: {reason_of(error)}.")


def prepared(db: PostgresConnection) -> Row:
    """Makes the tables or brings them to this release's version, and renumbers what was loaded from a dump of another server,
    whose transactions had higher numbers. Returns the row of the installation.
    """
    with db.transaction():
        db.execute("select pg_advisory_xact_lock(%s)", [MIGRATING])
        version, newest, tx = version_of(db), schema.newest_version(), PostgresTx(db)
        schema.require_usable(version, "The database")
        if version < newest:
            db.execute(schema.for_postgres(version).encode())
            if not version:
                schema.make_installation(tx)
            db.execute("delete from schema_version")
            db.execute("insert into schema_version (version) values (%s)", [newest])
        made = list(schema.behind(schema.versions(tx)))
        for each in made:
            db.execute(schema.translated(each.sql).encode())
        schema.note(tx, made)
        tx.renumber()
    return _require_here(db)


def _require_here(db: PostgresConnection) -> Row:
    """Returns the row of the installation.

    Raises:
        StorageMoved: the database has moved to another, or is not yet complete.
    """
    found = db.execute("select id, secret, moved_to, moved_from from installation").fetchone()
    if found is None:
        raise StorageError("The database has no installation: its table was emptied.")
    return require_here("The database", found)


def version_of(db: PostgresConnection) -> int:
    """Returns the version of the tables; 0: there are none yet."""
    row = db.execute("select version from schema_version").fetchone() if _has_tables(db) else None
    return 0 if row is None else int(row["version"])


def check(url: str, listen_url: str) -> Iterator[CheckResult]:
    """Checks a database. Changes nothing. Blocking."""
    try:
        with closing(connect(url)) as db:
            yield from _checked(db, url, listen_url)
    except psycopg.Error as error:
        text = f"The database cannot be reached: {reason_of(error)}"
        yield wrong(_SUBJECT, text, "start the server, or correct the address")


def _checked(db: PostgresConnection, url: str, listen_url: str) -> Iterator[CheckResult]:
    """Checks the server, the database and our rights. Stops at the first result that makes the rest pointless."""
    took = []
    for _ in range(_LOOKS):
        began = time.perf_counter()
        db.execute("select 1")
        took.append(time.perf_counter() - began)
    version = db.info.parameter_status("server_version")
    if db.info.server_version < _OLDEST:
        yield wrong(_SUBJECT, f"PostgreSQL {version} is too old", "use version 14 or newer")
        return
    if _setting(db, "transaction_read_only") == "on":
        fix = "use the address of one that takes writes, or name all hosts in it"
        yield wrong(_SUBJECT, f"PostgreSQL {version} is read-only: a standby, or configured so", fix)
        return
    slow = "every click makes several queries; run the bot closer to the database"
    answers = f"PostgreSQL {version} answers within {min(took) * 1e3:.1f} ms"
    yield right(_SUBJECT, answers, slow if min(took) > _FAR else None)
    if (encoding := _setting(db, "server_encoding")) != "UTF8":
        yield wrong(_SUBJECT, f"its encoding is {encoding}", "create a database with encoding UTF8")
    yield _check_tables(db)
    if _setting(db, "synchronous_commit") == "off":
        text = "synchronous_commit is off: a crash loses answers that were acknowledged"
        yield wrong(_SUBJECT, text, "leave synchronous_commit on for this user and database")
    if _setting(db, "fsync") == "off":
        text = "fsync is off: a crash may lose everything"
        yield wrong(_SUBJECT, text, "turn it on in the server's settings")
    if _is_pooled(db, url):
        yield right(_SUBJECT, "connected through a pooler in transaction mode")
    yield _check_notices(db, listen_url)


def _setting(db: PostgresConnection, name: str) -> str:
    row = db.execute("select current_setting(%s) as value", [name]).fetchone()
    return str(row["value"]) if row is not None else ""


def _has_tables(db: PostgresConnection) -> bool:
    row = db.execute("select to_regclass('schema_version') is not null as there").fetchone()
    return row is not None and bool(row["there"])


def _check_tables(db: PostgresConnection) -> CheckResult:
    subject, there = _SUBJECT, _has_tables(db)
    if there and (lacks := _lacks(db)):
        text = f"this user needs read and write access to all tables: {', '.join(lacks)}"
        return wrong(subject, text, "create and use them with one user, or grant the rights")
    if (why := schema.refusal(version := version_of(db))) is not None:
        return wrong(subject, f"the database {why}", schema.REMEDY)
    if version < schema.newest_version():
        may = db.execute("select has_schema_privilege(current_schema(), 'create') as may").fetchone()
        if may is None or not may["may"]:
            return wrong(subject, "this user cannot create tables", "grant it `create` on the schema")
        return right(subject, "its tables will be created or upgraded")
    found = db.execute("select moved_to, moved_from from installation").fetchone()
    try:
        if found is not None:
            require_here("The database", found)
    except StorageMoved as error:
        return wrong(subject, str(error), "name the database that it moved to")
    return right(subject, "up to date; a bot is leading" if led(db) else "up to date; no bot is running")


def _check_notices(db: PostgresConnection, listen_url: str) -> CheckResult:
    try:
        with closing(connect(listen_url)) as listening:
            listening.execute("listen clarify_check")
            db.execute("select pg_notify('clarify_check', '')")
            if list(listening.notifies(timeout=_LISTEN, stop_after=1)):
                return right(_SUBJECT, "notifications arrive")
    except psycopg.Error as error:
        text = f"cannot listen for notifications there, so the bot polls twice a second: {reason_of(error)}"
        return wrong("storage.listen_url_env", text, "correct the address, or remove it")
    text = "notifications do not arrive, so the bot polls twice a second"
    return right(_SUBJECT, text, "put a direct address in storage.listen_url_env")


def _lacks(db: PostgresConnection) -> list[str]:
    can = " and ".join(
        f"has_table_privilege(oid, '{right}')" for right in ("select", "insert", "update", "delete")
    )
    rows = db.execute(
        f"select relname from pg_class where oid = any(select to_regclass(name) from unnest(%s::text[]) as name) and not ({can})"
        " order by relname".encode(),
        [schema.tables()],
    )
    return [row["relname"] for row in rows]


def _is_pooled(db: PostgresConnection, url: str) -> bool:
    """Returns whether two open connections share one server session, as they do behind a pooling proxy."""
    pid = "select pg_backend_pid() as pid"
    with closing(connect(url)) as other:
        return any(db.execute(pid).fetchone() == other.execute(pid).fetchone() for _ in range(_LOOKS))


def led(db: PostgresConnection) -> bool:
    leads = "select 1 from lease where holder is not null and renewed_at > clock_timestamp() - %s * interval '1 second'"
    return db.execute(leads, [TERMS.lasts]).fetchone() is not None


async def notices(
    url: str, listen_url: str, channel: str, newest: Callable[[], Newest], polls: Callable[[bool], None]
) -> AsyncGenerator[list[str] | None]:
    """Yields the payloads of notices sent at `url` on a channel (`pg_notify`) and received at `listen_url`.

    Yields None when some may have been missed: at first, after a break, and always where they do not arrive, such as
    behind a pooling proxy. `polls` is called with whether that is the case. Yields an empty list when `newest` says that
    something changed, whether or not a notice tells of it.
    """
    why = ""
    while True:
        try:
            async with (
                await _listening(listen_url) as db,
                aclosing(_received(db, url, channel, newest, polls)) as heard,
            ):
                async for each in heard:
                    why = ""
                    yield each
        except psycopg.Error as error:
            if reason_of(error) != why:  # log each reason once
                why = reason_of(error)
                _log.warning("cannot listen for database notifications", reason=why)
            polls(True)  # noqa: FBT003 - its signature
        yield None
        await asyncio.sleep(_POLL)


async def _listening(url: str) -> psycopg.AsyncConnection[Any]:
    return await ListeningConnection.connect(url, autocommit=True, prepare_threshold=None, **options(url))


async def _received(
    db: psycopg.AsyncConnection[Any],
    url: str,
    channel: str,
    newest: Callable[[], Newest],
    found: Callable[[bool], None],
) -> AsyncGenerator[list[str] | None]:
    """As `notices`, on one connection.

    Raises:
        psycopg.Error: it broke, or hears not even its own notice.
    """
    await db.execute(sql.SQL("listen {}").format(sql.Identifier(channel)))
    # Probe from another connection, as real notices come from others: a pooling proxy would return this connection
    # its own notice, but no other; and the listening address may lead to another database.
    async with await _listening(url) as other:
        await other.execute("select pg_notify(%s, %s)", [channel, _PROBE])
    polls = not [each async for each in db.notifies(timeout=_LISTEN, stop_after=1)]
    found(polls)
    if polls:
        _log.warning("database notifications do not arrive; polling twice a second")
    known = newest()
    yield None
    heard_at, probed_at = time.monotonic(), None
    while True:
        heard = [each.payload async for each in db.notifies(timeout=_POLL, stop_after=1)]
        if told := [each for each in heard if each != _PROBE]:
            yield told
        elif polls:
            yield None
        if newest() != known:
            known = newest()
            yield []
        if polls:
            continue
        now = time.monotonic()
        if heard:
            heard_at, probed_at = now, None
        elif probed_at is not None and now - probed_at > _LISTEN:
            raise ServerSilent("they do not arrive any more")
        elif probed_at is None and now - heard_at > _ALIVE:
            await db.execute("select pg_notify(%s, %s)", [channel, _PROBE])
            probed_at = now
