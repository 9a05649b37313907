# ruff: noqa: S608 - names of tables and columns are ours alone
"""Reads and replaces PostgreSQL's tables from another process, whether bots run or not, as `InSqlite` does SQLite's.
Blocking.

A backup is a SQLite file. Each of its tables exists in PostgreSQL too, with the same columns: the tables of an integration have
the version that they have there, which may be older than what is installed.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict
from psycopg.rows import dict_row, tuple_row

from bot.errors import BackupError, StorageError, StorageInUseError, StorageUnavailable
from bot.storage import sqlite
from bot.storage.postgres import (
    MIGRATING,
    PostgresTx,
    led,
    prepared,
    version_of,
)
from bot.storage.schema import require_current, tables, uninstalled, versions
from bot.storage.server import PostgresConnection, Terms, connect, reason_of
from bot.storage.sqlite import Columns, TableDigest, migrate
from bot.storage.sqlite import version_of as version_of_file
from bot.storage.tx import Row, Tx
from core.files import make_private

_T = TypeVar("_T")
_LOCK_TIMEOUT_MS = 10_000
_TRIES = 3
_PAGE = 500
# Tables with rows even in an unused database.
_NEVER_EMPTY = frozenset(
    {
        "alive",
        "consumers",
        "installation",
        "integrations",
        "lease",
        "news",
        "receipts",
        "replicas",
        "signing_keys",
        "schema_version",
    }
)


class TableCopy:
    """The tables within one transaction, `tx`."""

    def __init__(self, db: PostgresConnection) -> None:
        self.tx = PostgresTx(db)
        self._db = db

    def rows(self, query: str) -> Iterator[Row]:
        """Yields the rows of a query, page by page."""
        with self._db.cursor(name="rows", row_factory=dict_row) as cursor:
            cursor.itersize = _PAGE
            cursor.execute(query.encode())
            yield from cursor

    def contents(self, wanted: Columns) -> Mapping[str, TableDigest]:
        """Returns what is in the tables' columns."""
        return {table: TableDigest.of(self._values(table, columns)) for table, columns in wanted.items()}

    def _values(self, table: str, columns: Sequence[str]) -> Iterator[tuple[Any, ...]]:
        with self._db.cursor(name="values", row_factory=tuple_row) as cursor:
            cursor.itersize = _PAGE
            cursor.execute(f"select {', '.join(columns)} from {table}".encode())
            yield from cursor

    def to_file(self, path: Path) -> int:
        """Writes the tables into a SQLite file. Returns its version.

        Raises:
            BackupError: the file cannot be written.
            StorageError: a newer release of an integration wrote its tables.
        """
        make_private(path)
        try:
            with closing(sqlite3.connect(path, isolation_level=None)) as file:
                migrate(file, path, versions(self.tx))
                file.execute("begin")
                for table, columns in sqlite.columns(file).items():
                    file.execute(f"delete from {table}")
                    marks = ", ".join("?" * len(columns))
                    file.executemany(
                        f"insert into {table} ({', '.join(columns)}) values ({marks})",
                        self._values(table, columns),
                    )
                for table in _autoincremented(file):
                    _continue_after(file, table, self._last_number(table))
                file.execute("commit")
                return version_of_file(file)
        except sqlite3.Error as error:
            raise BackupError(f"{path} cannot be written: {error}.") from error

    def from_file(self, path: Path) -> None:
        """Replaces the tables' contents by those of a SQLite file of this version. Numbering continues after the
        highest.

        Raises:
            BackupError: the file cannot be read.
        """
        try:
            with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)) as file:
                for table, columns in sqlite.columns(file).items():
                    names = ", ".join(columns)
                    self._db.execute(f"delete from {table}".encode())
                    with self._db.cursor().copy(f"copy {table} ({names}) from stdin".encode()) as copy:
                        for row in file.execute(f"select {names} from {table}"):
                            copy.write_row(row)
                last = {
                    table: file.execute("select seq from sqlite_sequence where name = ?", [table]).fetchone()
                    for table in _autoincremented(file)
                }
        except sqlite3.Error as error:
            raise BackupError(f"{path} cannot be used: {error}.") from error
        for table, column in self._numbered().items():
            highest = self.tx.one(f"select coalesce(max({column}), 0) as highest from {table}")
            number = max(highest["highest"] if highest else 0, (last.get(table) or [0])[0])
            if number:
                self.tx.rows(
                    "select setval(pg_get_serial_sequence(:of, :its), :number)",
                    of=table,
                    its=column,
                    number=number,
                )

    def _last_number(self, table: str) -> int:
        """Returns the last number given out in a table."""
        row = self.tx.one(
            "select pg_get_serial_sequence(:of, :its) as name", of=table, its=self._numbered()[table]
        )
        last = (
            self.tx.one(f"select case when is_called then last_value else 0 end as last from {row['name']}")
            if row
            else None
        )
        return int(last["last"]) if last else 0

    def _numbered(self) -> Mapping[str, str]:
        """Returns the columns that PostgreSQL numbers, by table."""
        rows = self.tx.rows(
            "select table_name, column_name from information_schema.columns"
            " where table_schema = current_schema() and is_identity = 'YES'"
        )
        return {row["table_name"]: row["column_name"] for row in rows}


@dataclass(frozen=True, slots=True)
class InPostgres:
    """`bot.storage.opening.Kept` in PostgreSQL. A copy is one snapshot; putting one in its place is one transaction."""

    url: str

    @property
    def name(self) -> str:
        """Raises StorageError if the address is none."""
        try:
            said = conninfo_to_dict(self.url)
        except psycopg.ProgrammingError as error:
            raise StorageError(f"That is no address of PostgreSQL: {reason_of(error)}.") from error
        host = said.get("host") or said.get("hostaddr") or "this machine"
        port = f":{said['port']}" if "port" in said else ""
        database = said.get("dbname") or said.get("user") or "of this user"
        return f"the PostgreSQL database {database} on {host}{port}"

    def is_in_use(self) -> bool:
        """By the lease: whether a bot leads."""
        try:
            with closing(connect(self.url)) as db:
                return led(db)
        except psycopg.Error as error:
            raise StorageUnavailable(f"The database cannot be reached: {reason_of(error)}.") from error

    @contextmanager
    def snapshot(self) -> Iterator[TableCopy]:
        """Yields the whole database as of one moment, while others write.

        Raises:
            StorageUnavailable: it cannot be read.
        """
        try:
            with closing(connect(self.url)) as db:
                db.execute("begin isolation level repeatable read, read only")
                yield TableCopy(db)
        except psycopg.Error as error:
            raise StorageUnavailable(f"The database could not be read: {reason_of(error)}.") from error

    def copy(self, to: Path) -> int:
        with self.snapshot() as found:
            return found.to_file(to)

    def put(
        self,
        copied: Path,
        prepare: Callable[[Tx], None],
        *,
        aside: str | None = None,
        drop: bool = False,
        emptied: Callable[[], None] = lambda: None,
    ) -> str | None:
        schema = None if aside is None else aside.replace("-", "_").lower()
        with TemporaryDirectory() as drafts:
            file = Path(drafts) / "clarify.db"
            with sqlite.putting_back(copied, file) as tx:
                prepare(tx)
            with new_tables(self.url, schema, drop=drop) as (new, is_aside):
                new.from_file(file)
                new.tx.renumber()
                emptied()
        return f"the schema {schema} of the database" if is_aside else None

    @contextmanager
    def held(self, to: Path) -> Iterator[Tx]:
        try:
            with closing(connect(self.url)) as db, db.transaction():
                _set_lock_timeout(db)
                db.execute(
                    "set local idle_in_transaction_session_timeout = 0"
                )  # meanwhile another database is filled
                if not (there := _existing(db)):
                    raise BackupError("The database is empty: no bot has used it yet.")
                names = sql.SQL(", ").join(map(sql.Identifier, there))
                db.execute(sql.SQL("lock table {} in exclusive mode").format(names))
                require_current(version_of(db), "The database")
                _require_no_bot(db)
                held = TableCopy(db)
                held.to_file(to)
                yield held.tx
                # Keeps a leader that stood still all along from continuing.
                db.execute("update lease set epoch = epoch + 1")
        except psycopg.Error as error:
            raise StorageUnavailable(f"The database could not be used: {reason_of(error)}.") from error

    def contents(self, wanted: Columns) -> Mapping[str, TableDigest]:
        with self.snapshot() as found:
            return found.contents(wanted)

    def unfinished(self) -> str | None:
        with self.read_only() as tx:
            if not tx.rows("select 1 where to_regclass('installation') is not null"):
                return None
            row = tx.one("select id from installation where moved_from is not null")
            return None if row is None else str(row["id"])

    @contextmanager
    def read_only(self) -> Iterator[Tx]:
        with self.snapshot() as found:
            yield found.tx

    def change(self, work: Callable[[Tx], _T]) -> _T:
        """Retries after a deadlock."""
        for left in reversed(range(_TRIES)):
            try:
                with closing(connect(self.url)) as db, db.transaction():
                    _set_lock_timeout(db)
                    return work(PostgresTx(db))
            except psycopg.Error as error:
                if not left or not isinstance(error, psycopg.errors.DeadlockDetected):
                    raise StorageUnavailable(
                        f"The database could not be changed: {reason_of(error)}."
                    ) from error
        raise AssertionError("unreachable")

    def purge(self) -> None:
        """Vacuums the tables, so that deleted rows are gone for good and their space is reused."""
        try:
            with closing(connect(self.url)) as db:
                for table in _existing(db):
                    db.execute(sql.SQL("vacuum {}").format(sql.Identifier(table)))
        except psycopg.Error as error:
            raise StorageUnavailable(f"The database could not be vacuumed: {reason_of(error)}.") from error


@contextmanager
def new_tables(url: str, aside: str | None, *, drop: bool = False) -> Iterator[tuple[TableCopy, bool]]:
    """Yields new, empty tables in a transaction, and whether the old ones were in use and moved to the new schema
    `aside`. `drop`: the old ones are dropped, whatever they hold.

    Raises:
        StorageInUseError: a bot runs on the database.
        BackupError: the tables hold data and `aside` is None; or the database refused, and nothing was changed; or it went
            away, and the outcome is unknown.
    """
    is_whole = False
    try:
        with closing(connect(url)) as db, db.transaction():
            _set_lock_timeout(db)
            db.execute("select pg_advisory_xact_lock(%s)", [MIGRATING])
            is_aside, epoch = False, 0
            if there := _existing(db):
                db.execute("lock table lease in access exclusive mode")  # keeps bots from taking the lead
                _require_no_bot(db)
                row = db.execute("select max(epoch) as epoch from lease").fetchone()
                epoch = row["epoch"] if row else 0
                is_aside = _clear(db, there, aside, drop=drop)
            prepared(db)
            # Keeps a leader that was stopped all along from continuing.
            db.execute("update lease set epoch = %s", [epoch + 1])
            yield TableCopy(db), is_aside
            is_whole = True
    except psycopg.OperationalError as error:
        if not is_whole:
            raise BackupError(f"Nothing was changed: {reason_of(error)}.") from error
        raise BackupError(
            f"Whether the database took it is not known ({reason_of(error)}): run the command again."
        ) from error
    except psycopg.Error as error:
        raise BackupError(f"Nothing was changed: {reason_of(error)}.") from error


def _clear(db: PostgresConnection, there: Sequence[str], aside: str | None, *, drop: bool) -> bool:
    """Drops our tables, or moves them aside if they hold data. Returns whether they were moved."""
    candidates = () if drop else (table for table in there if table not in _NEVER_EMPTY)
    used = next((table for table in candidates if _holds_any(db, table)), None)
    if used is not None and aside is None:
        raise BackupError(
            f"The database has something already, in its table {used}: with --replace all moves to a schema of its own."
        )
    if used is not None:
        db.execute(sql.SQL("create schema {}").format(sql.Identifier(str(aside))))
    for table in there:
        name = sql.Identifier(table)
        if used is None:
            db.execute(sql.SQL("drop table {} cascade").format(name))
        else:
            db.execute(sql.SQL("alter table {} set schema {}").format(name, sql.Identifier(str(aside))))
    return used is not None


def _require_no_bot(db: PostgresConnection) -> None:
    if led(db) or _has_followers(db):
        raise StorageInUseError(
            "A clarify-bot runs on the database: stop all that use it first, with Ctrl-C or SIGTERM. One that was killed counts "
            f"for {Terms().lasts:.0f} seconds more."
        )


def _has_followers(db: PostgresConnection) -> bool:
    seen = "select 1 from alive where seen_at > clock_timestamp() - %s * interval '1 second'"
    return db.execute(seen, [Terms().lasts]).fetchone() is not None


def _holds_any(db: PostgresConnection, table: str) -> bool:
    row = db.execute(
        sql.SQL("select exists (select from {}) as any").format(sql.Identifier(table))
    ).fetchone()
    return bool(row and row["any"])


def _existing(db: PostgresConnection) -> list[str]:
    """Returns those of our tables that exist, even of integrations that are no longer installed."""
    rows = db.execute(
        "select tablename from pg_tables where schemaname = current_schema() order by tablename"
    )
    there, ours = [row["tablename"] for row in rows], frozenset(tables())
    gone = uninstalled(PostgresTx(db)) if "integrations" in there else ()
    prefixes = tuple(f"{name}_" for name in gone)
    return [each for each in there if each in ours or f"{each}_".startswith(prefixes)]


def _set_lock_timeout(db: PostgresConnection) -> None:
    """Waits longer for locks: a person waits at a prompt."""
    db.execute(f"set local lock_timeout = {_LOCK_TIMEOUT_MS}".encode())


def _autoincremented(file: sqlite3.Connection) -> list[str]:
    """Returns the tables that never give out a number twice."""
    rows = file.execute("select name from sqlite_master where type = 'table' and sql like '%autoincrement%'")
    return [str(name) for (name,) in rows]


def _continue_after(file: sqlite3.Connection, table: str, number: int) -> None:
    values: dict[str, Any] = {"table": table, "number": number}
    if not file.execute(
        "update sqlite_sequence set seq = max(seq, :number) where name = :table", values
    ).rowcount:
        file.execute("insert into sqlite_sequence (name, seq) values (:table, :number)", values)
