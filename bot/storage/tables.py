# ruff: noqa: S608 - names of tables and columns are ours alone
"""PostgreSQL's tables from another process, as `beside` has SQLite's file, whether bots run or not. Blocking.

A backup holds a file of SQLite, whichever database it is of: each table of it is also one of PostgreSQL, with the same
columns. What PostgreSQL has besides (ledgers, keys, who leads) is for the caller to copy.
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
from bot.storage.postgres import MIGRATING, SCHEMA_VERSION, form, led, our_tables, prepared, tell_bots
from bot.storage.sqlite import migrate
from bot.storage.tx import Row, Tx
from core.files import make_private

_T = TypeVar("_T")
_LOCK_TIMEOUT_MS = 10_000
_TRIES = 3
_PAGE = 500
# Rows that are there in a database which was never used.
_ALWAYS = frozenset({"alive", "installation", "keys", "lease", "news", "replicas", SCHEMA_VERSION})


class Tables:
    """The tables within one transaction; `tx` does anything else in it."""

    def __init__(self, db: PostgresConnection) -> None:
        self.tx = Tx(db, form)
        self._db = db

    def rows(self, query: str) -> Iterator[Row]:
        """The rows of a query, however many there are."""
        with self._db.cursor(name="rows", row_factory=dict_row) as cursor:
            cursor.itersize = _PAGE
            cursor.execute(query.encode())
            yield from cursor

    def to_file(self, path: Path) -> int:
        """Make a file of SQLite that holds the same; returns its version.

        Raises:
            BackupError: the disk refused.
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
                for table in _never_again(file):
                    _go_on_after(file, table, self._last_number(table))
                file.execute("commit")
                return int(file.execute("pragma user_version").fetchone()[0])
        except sqlite3.Error as error:
            raise BackupError(f"{path} cannot be written: {error}.") from error

    def from_file(self, path: Path) -> None:
        """Have the tables hold what a file of SQLite does, which is of this version. Numbers go on after the highest.

        Raises:
            BackupError: it cannot be read.
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
                    for table in _never_again(file)
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
        """That was given out in a table."""
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
        """The columns whose numbers PostgreSQL gives out, by their tables."""
        rows = self.tx.rows(
            "select table_name, column_name from information_schema.columns"
            " where table_schema = current_schema() and is_identity = 'YES'"
        )
        return {row["table_name"]: row["column_name"] for row in rows}


@contextmanager
def snapshot(url: str) -> Iterator[Tables]:
    """All of a database as it is at one moment, while others write.

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
    """Do `work` in one transaction, beside bots; again, where it and one of theirs waited for each other.

    Raises:
        StorageUnavailable: nothing was changed, or nobody can tell whether it was.
    """
    for left in reversed(range(_TRIES)):
        try:
            with closing(connect(url)) as db, db.transaction():
                _be_patient(db)
                return work(Tx(db, form, tell=tell_bots))
        except psycopg.errors.DeadlockDetected as error:
            if not left:
                raise StorageUnavailable(f"The database could not be changed: {words(error)}.") from error
        except psycopg.Error as error:
            raise StorageUnavailable(f"The database could not be changed: {words(error)}.") from error
    raise AssertionError("unreachable")


def vacuum(url: str) -> None:
    """Have the server give up what was deleted: no query finds it any more, and its room is used again.

    Raises:
        StorageUnavailable: it could not.
    """
    try:
        with closing(connect(url)) as db:
            for table in _there(db):
                db.execute(sql.SQL("vacuum {}").format(sql.Identifier(table)))
    except psycopg.Error as error:
        raise StorageUnavailable(f"The database could not be vacuumed: {words(error)}.") from error


@contextmanager
def anew(url: str, aside: str | None) -> Iterator[tuple[Tables, bool]]:
    """A transaction in which all tables are new. Where they were in use they move to the new schema `aside`, which is told.

    Raises:
        StorageInUseError: a bot runs on the database.
        BackupError: something is there and `aside` is None; or the database refused, and nothing was changed; or it
            went away, and whether it was is not known.
    """
    is_whole = False
    try:
        with closing(connect(url)) as db, db.transaction():
            _be_patient(db)
            db.execute("select pg_advisory_xact_lock(%s)", [MIGRATING])
            is_aside, epoch = False, 0
            if there := _there(db):
                db.execute("lock table lease in access exclusive mode")  # nobody begins to lead meanwhile
                if led(db) or _has_followers(db):
                    raise StorageInUseError("A clarify-bot runs on the database: stop all that use it first.")
                row = db.execute("select max(epoch) as epoch from lease").fetchone()
                epoch = row["epoch"] if row else 0
                is_aside = _clear(db, there, aside)
            prepared(db)
            # So that who led before, and stood still all the time, does not go on.
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
    """Have none of our tables be there; whether they are aside now."""
    used = next((table for table in there if table not in _ALWAYS and _holds_any(db, table)), None)
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


def _there(db: PostgresConnection) -> list[str]:
    """Our tables, as far as they are there."""
    rows = db.execute(
        "select tablename from pg_tables where schemaname = current_schema() and tablename = any(%s) order by tablename",
        [our_tables()],
    )
    return [row["tablename"] for row in rows]


def _be_patient(db: PostgresConnection) -> None:
    """Somebody waits at a prompt."""
    db.execute(f"set local lock_timeout = {_LOCK_TIMEOUT_MS}".encode())


def _shared(file: sqlite3.Connection) -> Mapping[str, Sequence[str]]:
    """The tables of both databases, with their columns."""
    tables = file.execute(
        "select name from sqlite_master where type = 'table' and name not like 'sqlite_%' order by name"
    )
    names = [str(name) for (name,) in tables]
    return {name: [str(row[1]) for row in file.execute(f"pragma table_info({name})")] for name in names}


def _never_again(file: sqlite3.Connection) -> list[str]:
    """Tables that give out no number twice, even if its row is gone."""
    rows = file.execute("select name from sqlite_master where type = 'table' and sql like '%autoincrement%'")
    return [str(name) for (name,) in rows]


def _go_on_after(file: sqlite3.Connection, table: str, number: int) -> None:
    values: dict[str, Any] = {"table": table, "number": number}
    if not file.execute(
        "update sqlite_sequence set seq = max(seq, :number) where name = :table", values
    ).rowcount:
        file.execute("insert into sqlite_sequence (name, seq) values (:table, :number)", values)
