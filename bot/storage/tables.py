# ruff: noqa: S608 - names of tables and columns are ours alone
"""Reads and replaces PostgreSQL's tables from another process, whether bots run or not, as `beside` does SQLite's.
Blocking.

A backup is a SQLite file. Each of its tables exists in PostgreSQL too, with the same columns.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, TypeVar

import psycopg
from psycopg import sql
from psycopg.rows import dict_row, tuple_row

from bot.errors import BackupError, StorageInUseError, StorageUnavailable
from bot.storage.connection import PostgresConnection, connect, words
from bot.storage.lease import Terms
from bot.storage.postgres import MIGRATING, SCHEMA_VERSION, PostgresTx, led, our_tables, prepared
from bot.storage.sqlite import migrate
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
        "lease",
        "news",
        "receipts",
        "replicas",
        "signing_keys",
        SCHEMA_VERSION,
    }
)


class Tables:
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

    def to_file(self, path: Path) -> int:
        """Writes the tables into a SQLite file. Returns its version.

        Raises:
            BackupError: the file cannot be written.
        """
        make_private(path)
        try:
            with closing(sqlite3.connect(path, isolation_level=None)) as file:
                migrate(file, path)
                file.execute("begin")
                for table, columns in _shared(file).items():
                    file.execute(f"delete from {table}")
                    with self._db.cursor(name="copied", row_factory=tuple_row) as cursor:
                        cursor.itersize = _PAGE
                        cursor.execute(f"select {', '.join(columns)} from {table}".encode())
                        marks = ", ".join("?" * len(columns))
                        file.executemany(
                            f"insert into {table} ({', '.join(columns)}) values ({marks})", cursor
                        )
                for table in _autoincremented(file):
                    _continue_after(file, table, self._last_number(table))
                file.execute("commit")
                return int(file.execute("pragma user_version").fetchone()[0])
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
                for table, columns in _shared(file).items():
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


@contextmanager
def snapshot(url: str) -> Iterator[Tables]:
    """Yields the whole database as of one moment, while others write.

    Raises:
        StorageUnavailable: it cannot be read.
    """
    try:
        with closing(connect(url)) as db:
            db.execute("begin isolation level repeatable read, read only")
            yield Tables(db)
    except psycopg.Error as error:
        raise StorageUnavailable(f"The database could not be read: {words(error)}.") from error


def change(url: str, work: Callable[[Tx], _T]) -> _T:
    """Runs `work` in one transaction beside bots. Retries after a deadlock.

    Raises:
        StorageUnavailable: nothing was changed, or the outcome is unknown.
    """
    for left in reversed(range(_TRIES)):
        try:
            with closing(connect(url)) as db, db.transaction():
                _set_lock_timeout(db)
                return work(PostgresTx(db))
        except psycopg.errors.DeadlockDetected as error:
            if not left:
                raise StorageUnavailable(f"The database could not be changed: {words(error)}.") from error
        except psycopg.Error as error:
            raise StorageUnavailable(f"The database could not be changed: {words(error)}.") from error
    raise AssertionError("unreachable")


def vacuum(url: str) -> None:
    """Vacuums the tables, so that deleted rows are gone for good and their space is reused.

    Raises:
        StorageUnavailable: it failed.
    """
    try:
        with closing(connect(url)) as db:
            for table in _existing(db):
                db.execute(sql.SQL("vacuum {}").format(sql.Identifier(table)))
    except psycopg.Error as error:
        raise StorageUnavailable(f"The database could not be vacuumed: {words(error)}.") from error


@contextmanager
def new_tables(url: str, aside: str | None) -> Iterator[tuple[Tables, bool]]:
    """Yields new, empty tables in a transaction, and whether the old ones were in use and moved to the new schema
    `aside`.

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
                if led(db) or _has_followers(db):
                    raise StorageInUseError("A clarify-bot runs on the database: stop all that use it first.")
                row = db.execute("select max(epoch) as epoch from lease").fetchone()
                epoch = row["epoch"] if row else 0
                is_aside = _clear(db, there, aside)
            prepared(db)
            # Keeps a leader that was stopped all along from continuing.
            db.execute("update lease set epoch = %s", [epoch + 1])
            yield Tables(db), is_aside
            is_whole = True
    except psycopg.OperationalError as error:
        if not is_whole:
            raise BackupError(f"Not restored: {words(error)}.") from error
        raise BackupError(
            f"Whether it is restored is not known ({words(error)}): look with `clarify list`, and give the command again."
        ) from error
    except psycopg.Error as error:
        raise BackupError(f"Not restored: {words(error)}.") from error


def _clear(db: PostgresConnection, there: Sequence[str], aside: str | None) -> bool:
    """Drops our tables, or moves them aside if they hold data. Returns whether they were moved."""
    used = next((table for table in there if table not in _NEVER_EMPTY and _holds_any(db, table)), None)
    if used is not None and aside is None:
        raise BackupError(
            f"The database has something already, in its table {used}: with --replace all moves to a schema of its own."
        )
    if used is not None:
        db.execute(sql.SQL("create schema {}").format(sql.Identifier(str(aside))))
    for table in there:
        name = sql.Identifier(table)
        if used is None:
            db.execute(sql.SQL("drop table {}").format(name))
        else:
            db.execute(sql.SQL("alter table {} set schema {}").format(name, sql.Identifier(str(aside))))
    return used is not None


def _has_followers(db: PostgresConnection) -> bool:
    seen = "select 1 from alive where seen_at > clock_timestamp() - %s * interval '1 second'"
    return db.execute(seen, [Terms().lasts]).fetchone() is not None


def _holds_any(db: PostgresConnection, table: str) -> bool:
    row = db.execute(
        sql.SQL("select exists (select from {}) as any").format(sql.Identifier(table))
    ).fetchone()
    return bool(row and row["any"])


def _existing(db: PostgresConnection) -> list[str]:
    """Returns those of our tables that exist."""
    rows = db.execute(
        "select tablename from pg_tables where schemaname = current_schema() and tablename = any(%s) order by tablename",
        [our_tables()],
    )
    return [row["tablename"] for row in rows]


def _set_lock_timeout(db: PostgresConnection) -> None:
    """Waits longer for locks: a person waits at a prompt."""
    db.execute(f"set local lock_timeout = {_LOCK_TIMEOUT_MS}".encode())


def _shared(file: sqlite3.Connection) -> Mapping[str, Sequence[str]]:
    """Returns SQLite's tables, which both databases have, with their columns."""
    tables = file.execute(
        "select name from sqlite_master where type = 'table' and name not like 'sqlite_%' order by name"
    )
    names = [str(name) for (name,) in tables]
    return {name: [str(row[1]) for row in file.execute(f"pragma table_info({name})")] for name in names}


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
