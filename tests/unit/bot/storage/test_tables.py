# ruff: noqa: S608 - names of tables are ours alone
"""The tables of PostgreSQL and those of a file of SQLite: the same, and copied whole, from one to the other and back."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest

from bot.errors import StorageInUseError
from bot.storage import sqlite, tables
from bot.storage.opening import open_storage
from bot.storage.schema import newest_version
from bot.storage.tx import Tx
from tests.kit.databases import Server

# What a column takes besides what its type does.
CHOSEN = {
    ("inbox", "state"): "done",
    ("sendings", "state"): "sent",
    ("pushed_replies", "state"): "begun",
    ("erasures", "state"): "blanked",
    ("slack_events", "state"): "done",
}
# All that PostgreSQL has besides; `tables.new_tables` knows of each of them.
ITS_OWN = {"alive", "lease", "news", "replicas", "schema_version"}


@pytest.fixture
def url(postgres_server: Server) -> str:
    """A database with our tables."""
    return postgres_server.new()


@pytest.fixture
async def file(tmp_path: Path) -> Path:
    """A storage in SQLite with a row, full of values, in each table."""
    path = tmp_path / "clarify.db"
    await (await open_storage(path)).close()
    with closing(sqlite3.connect(path)) as db:
        for table, columns in sqlite.columns(db).items():
            if table == "installation":
                continue
            types = {row[1]: row[2].lower() for row in db.execute(f"pragma table_info({table})")}
            values = [CHOSEN.get((table, name)) or _value(name, types[name]) for name in columns]
            db.execute(f"insert into {table} values ({', '.join('?' * len(values))})", values)
        db.execute("update sqlite_sequence set seq = 8000000000 where name = 'pushed_replies'")
        db.execute("update installation set others = 3, told_at = 1700000000.123456")
        db.commit()
    return path


def _value(column: str, type_: str) -> Any:
    return {
        # What hangs on a clarification refers to it.
        "text": f"{'id' if column == 'clarification' else column}: “ü” \\N \t \n %s ☃ \U0001f600",
        "integer": 1 if column == "one" else 7_000_000_000,
        "real": 1_700_000_000.123_456_7,
        "blob": b"\x00\xff\\x00",
    }[type_]


def contents(path: Path) -> Mapping[str, Any]:
    with closing(sqlite3.connect(path)) as db:
        names = [*sqlite.columns(db), "sqlite_sequence"]
        return {name: sorted(db.execute(f"select * from {name}").fetchall()) for name in names}


def columns(url: str) -> dict[str, set[str]]:
    with closing(psycopg.connect(url)) as db:
        rows = db.execute(
            "select table_name, column_name from information_schema.columns where table_schema = current_schema()"
        ).fetchall()
    found: dict[str, set[str]] = {}
    for table, column in rows:
        found.setdefault(table, set()).add(column)
    return found


TYPES = {"integer": "bigint", "real": "double precision", "text": "text", "blob": "bytea"}
ITS_COLUMNS = """
select table_name, column_name, data_type, is_nullable = 'NO', coalesce(replace(column_default, '::text', ''), '')
from information_schema.columns where table_schema = current_schema()
"""
ITS_REFERENCES = """
select conrelid::regclass::text, attname, confrelid::regclass::text from pg_constraint
join pg_attribute on attrelid = conrelid and attnum = conkey[1] where contype = 'f' and confdeltype = 'c'
"""
ITS_INDEXES = """
select c.relname, x.indrelid::regclass::text, x.indisunique, x.indpred is not null,
       array(select pg_get_indexdef(x.indexrelid, n, true) from generate_series(1, x.indnkeyatts) as n)
from pg_index x join pg_class c on c.oid = x.indexrelid where c.relnamespace = current_schema()::regnamespace
"""


def test_both_databases_have_the_same_schema(url: str, file: Path) -> None:
    with closing(sqlite3.connect(file)) as ours, closing(psycopg.connect(url)) as theirs:
        names = {*sqlite.columns(ours), "integrations"}
        assert columns(url).keys() - names == ITS_OWN
        its_columns = theirs.execute(ITS_COLUMNS).fetchall()
        assert {each for each in its_columns if each[0] in names} == {
            (table, name, TYPES[type_.lower()], bool(required or key), default or "")
            for table in names
            for _, name, type_, required, default, key in ours.execute(f"pragma table_info({table})")
        }
        assert set(theirs.execute(ITS_REFERENCES).fetchall()) == {
            (table, row[3], row[2])
            for table in names
            for row in ours.execute(f"pragma foreign_key_list({table})")
            if row[6] == "CASCADE"
        }
        its_indexes = theirs.execute(ITS_INDEXES).fetchall()
        # Those of constraints have names of their own: they are compared by what they are of.
        assert {
            (not name.endswith(("_key", "_pkey")) and name, table, *how, tuple(of))
            for name, table, *how, of in its_indexes
            if table in names
        } == {
            (origin == "c" and name, table, bool(unique), bool(partial), columns_of(ours, name))
            for table in names
            for _, name, unique, origin, partial in ours.execute(f"pragma index_list({table})")
        } | {(False, table, True, False, (key,)) for table, key in rowids(ours, names)}


def columns_of(db: sqlite3.Connection, index: str) -> tuple[str, ...]:
    return tuple(row[2] for row in db.execute(f"pragma index_info({index})"))


def rowids(db: sqlite3.Connection, tables: Iterable[str]) -> Iterator[tuple[str, str]]:
    """The keys for which SQLite needs no index, by table: the number of the row."""
    for table in tables:
        keys = [row for row in db.execute(f"pragma table_info({table})") if row[5]]
        if len(keys) == 1 and keys[0][2].lower() == "integer":
            yield table, keys[0][1]


def test_the_database_numbers_where_the_schema_says_so(url: str, file: Path) -> None:
    with closing(sqlite3.connect(file)) as ours, closing(psycopg.connect(url)) as theirs:
        found = {
            (table, name)
            for table in sqlite.columns(ours)
            for _, name, type_, required, _, key in ours.execute(f"pragma table_info({table})")
            if key and type_.lower() == "integer" and not required
        }
        its = "select table_name, column_name from information_schema.columns where is_identity = 'YES'"
        assert found | {("news", "id")} == set(theirs.execute(its).fetchall())


def test_all_that_a_file_holds_is_the_same_after_a_database(url: str, file: Path, tmp_path: Path) -> None:
    before = contents(file)
    assert all(before.values())
    with tables.new_tables(url, None) as (new, _):
        new.from_file(file)
    with tables.InPostgres(url).snapshot() as found:
        assert found.to_file(tmp_path / "back.db") == newest_version()
    assert contents(tmp_path / "back.db") == before


def test_numbers_go_on_after_the_highest(url: str, file: Path) -> None:
    with tables.new_tables(url, None) as (new, _):
        new.from_file(file)
    with closing(psycopg.connect(url)) as db:
        erased = "insert into slack_events (event_id) values ('new') returning seq"
        assert db.execute(erased).fetchone() == (7_000_000_001,)
        db.execute("delete from pushed_replies")
        reply = "insert into pushed_replies (producer, token, digest, body) values ('p', 't', 'd', '') returning id"
        assert db.execute(reply).fetchone() == (8_000_000_001,)


def test_nul_has_another_character_in_its_place(url: str, file: Path) -> None:
    with sqlite.transaction(file) as tx:
        tx.run("update texts set body = :body", body="a\x00b")
    with tables.new_tables(url, None) as (new, _):
        new.from_file(file)
    with closing(psycopg.connect(url)) as db:
        assert db.execute("select body from texts").fetchone() == ("a\ufffdb",)


def test_who_led_before_does_not_lead_what_is_new(url: str) -> None:
    """A bot that stood still meanwhile, so that its lease had run out."""
    with closing(psycopg.connect(url)) as db:
        db.execute("update lease set epoch = 7, holder = 'asleep', renewed_at = now() - interval '1 hour'")
        db.execute("insert into texts values ('a', 'b')")
        db.commit()
        with tables.new_tables(url, "kept_aside") as (_, is_aside):
            assert is_aside
        assert db.execute("select epoch, holder from lease").fetchall() == [(8, None)]
        assert db.execute("select * from kept_aside.texts").fetchall() == [("a", "b")]
        assert db.execute("select * from texts").fetchall() == []
        ours = "select count(*) from pg_tables where schemaname = 'kept_aside'"
        assert db.execute(ours).fetchone() == (len(columns(url)),)


def test_nothing_is_replaced_where_a_bot_follows(url: str) -> None:
    with closing(psycopg.connect(url, autocommit=True)) as db:
        db.execute("insert into alive values ('another', clock_timestamp())")
        with pytest.raises(StorageInUseError), tables.new_tables(url, "aside"):
            pass
        db.execute("update alive set seen_at = seen_at - interval '1 minute'")
        with tables.new_tables(url, "aside") as (_, is_aside):
            assert not is_aside, "nothing was in use"


def test_change_is_tried_again_where_two_waited_for_each_other(url: str) -> None:
    with closing(psycopg.connect(url)) as other, ThreadPoolExecutor(1) as beside_us:
        other.execute("insert into texts values ('a', ''), ('b', '')")
        other.commit()
        other.execute("set deadlock_timeout = '60s'")  # so that it is not the one that gives way
        other.execute("update texts set body = 'theirs' where id = 'b'")
        tries: list[Future[object]] = []

        def take_a() -> None:
            other.execute("update texts set body = 'theirs' where id = 'a'")
            other.commit()

        def work(tx: Tx) -> int:
            tx.run("update texts set body = body || 'ours' where id = 'a'")
            tries.append(beside_us.submit(take_a if not tries else int))
            while len(tries) == 1 and not tx.rows("select 1 as waits from pg_locks where not granted"):
                pass
            return tx.run("update texts set body = body || 'ours' where id = 'b'")

        assert tables.InPostgres(url).change(work) == 1
        tries[0].result(60)
        found = other.execute("select body from texts order by id").fetchall()
    assert (len(tries), found) == (2, [("theirsours",), ("theirsours",)])
