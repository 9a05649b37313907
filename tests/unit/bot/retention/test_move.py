"""A move that is interrupted anywhere leaves one database at most that a bot starts on, and is finished by the same call."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

import psycopg
import pytest

from bot.errors import BackupError, StorageMoved, StorageUnavailable
from bot.retention.backup import backup, move, restore
from bot.storage.opening import Kept, open_storage
from bot.storage.sqlite import InSqlite
from bot.storage.tables import InPostgres
from tests.kit.databases import Server, make_tables

NOW = datetime(2026, 11, 22, 9, 0, tzinfo=UTC)


@pytest.fixture
def source(tmp_path: Path) -> InSqlite:
    make_tables(tmp_path / "source.db")
    kept = InSqlite(tmp_path / "source.db")
    kept.change(lambda tx: tx.run("insert into issues values (7, 12), (8, 3)"))
    return kept


@pytest.fixture(params=["SQLite", "PostgreSQL"])
def target(request: pytest.FixtureRequest, tmp_path: Path) -> Kept:
    if request.param == "SQLite":
        return InSqlite(tmp_path / "target.db")
    server: Server = request.getfixturevalue("postgres_server")
    return InPostgres(server.new(empty=True))


@dataclass(frozen=True)
class Breaking:
    """A database that goes away when `at` is called, or whose contents change then."""

    kept: Kept
    at: str
    then: Callable[[Kept], object] | None = None

    def __getattr__(self, name: str) -> Any:
        if name == self.at:
            if self.then is None:
                raise StorageUnavailable("The database went away.")
            self.then(self.kept)
        return getattr(self.kept, name)


def breaking(kept: Kept, at: str, then: Callable[[Kept], object] | None = None) -> Kept:
    return cast("Kept", Breaking(kept, at, then))


async def starts_on(kept: Kept) -> bool:
    place = kept.url if isinstance(kept, InPostgres) else kept.database  # type: ignore[attr-defined]
    try:
        store = await open_storage(place)
    except StorageMoved:
        return False
    await store.close()
    return True


def numbers(kept: Kept) -> Mapping[int, int]:
    with kept.read_only() as tx:
        return {row["issue"]: row["highest"] for row in tx.rows("select issue, highest from issues")}


async def test_move_that_broke_before_it_was_complete_begins_again(source: InSqlite, target: Kept) -> None:
    with pytest.raises(StorageUnavailable):
        move(source, breaking(target, "contents"), now=NOW, replace=False)
    assert (await starts_on(source), await starts_on(target)) == (True, False)
    source.change(lambda tx: tx.run("update issues set highest = 13 where issue = 7"))
    moved = move(source, target, now=NOW, replace=False)
    assert (moved.aside, moved.rows["issues"]) == (None, 2)
    assert (await starts_on(source), await starts_on(target)) == (False, True)
    assert numbers(target) == {7: 13, 8: 3}


async def test_move_that_broke_at_its_end_is_only_ended(source: InSqlite, target: Kept) -> None:
    with pytest.raises(StorageUnavailable):
        move(source, breaking(target, "change"), now=NOW, replace=False)
    assert (await starts_on(source), await starts_on(target)) == (False, False)
    move(source, breaking(target, "put"), now=NOW, replace=False)
    assert (await starts_on(source), await starts_on(target)) == (False, True)
    with pytest.raises(StorageMoved, match="has moved to"):
        move(source, target, now=NOW, replace=True)


async def test_move_that_broke_at_its_end_is_ended_where_it_went(source: InSqlite, tmp_path: Path) -> None:
    """Another target that an earlier move left unfinished is not ended with it."""
    first, second = InSqlite(tmp_path / "first.db"), InSqlite(tmp_path / "second.db")
    with pytest.raises(StorageUnavailable):
        move(source, breaking(first, "contents"), now=NOW, replace=False)
    with pytest.raises(StorageUnavailable):
        move(source, breaking(second, "change"), now=NOW, replace=False)
    with pytest.raises(StorageMoved, match=re.escape(f"has moved to {second.name}")):
        move(source, first, now=NOW, replace=False)
    move(source, second, now=NOW, replace=False)
    assert [await starts_on(each) for each in (source, first, second)] == [False, False, True]


async def test_copy_that_differs_is_not_used(source: InSqlite, target: Kept) -> None:
    def lose_one(kept: Kept) -> None:
        kept.change(lambda tx: tx.run("update issues set highest = 4 where issue = 8"))

    with pytest.raises(BackupError, match="The table issues in"):
        move(source, breaking(target, "contents", lose_one), now=NOW, replace=False)
    assert (await starts_on(source), await starts_on(target)) == (True, False)


async def test_unfinished_move_of_another_installation_is_not_overwritten(
    source: InSqlite, target: Kept, tmp_path: Path
) -> None:
    with pytest.raises(StorageUnavailable):
        move(source, breaking(target, "contents"), now=NOW, replace=False)
    make_tables(tmp_path / "another.db")
    with pytest.raises(BackupError, match="--replace"):
        move(InSqlite(tmp_path / "another.db"), target, now=NOW, replace=False)
    assert numbers(target) == {7: 12, 8: 3}


async def test_nobody_writes_while_it_is_moved(source: InSqlite, target: Kept) -> None:
    tried: list[str] = []

    def write(_: Kept) -> None:
        with closing(sqlite3.connect(source.database, timeout=0)) as db:
            try:
                db.execute("delete from issues")
            except sqlite3.OperationalError as error:
                tried.append(str(error))

    move(source, breaking(target, "contents", write), now=NOW, replace=False)
    assert tried == ["database is locked"]


async def test_what_moved_can_be_put_back_from_a_backup_if_its_new_place_is_lost(
    source: InSqlite, target: Kept, tmp_path: Path
) -> None:
    move(source, target, now=NOW, replace=False)
    backup(source, tmp_path / "copy", now=NOW, release="1")
    restore(tmp_path / "copy", source, [], now=NOW, replace=True)
    assert await starts_on(source)
    assert numbers(source) == {7: 112, 8: 103}


async def test_bot_that_opened_the_database_before_it_moved_does_not_lead_on_it(
    tmp_path: Path, postgres_server: Server
) -> None:
    url = postgres_server.new()
    early, leader = await open_storage(url), await open_storage(url)
    assert await leader.lead()
    await leader.close()
    try:
        with closing(psycopg.connect(url, autocommit=True)) as db:
            before = db.execute("select epoch from lease").fetchone()
            move(InPostgres(url), InSqlite(tmp_path / "target.db"), now=NOW, replace=False)
            assert before == (1,)
            assert db.execute("select epoch from lease").fetchone() == (2,), "one that stood still is deposed"
        with pytest.raises(StorageMoved, match="has moved to"):
            await early.lead()
    finally:
        await early.close()


async def test_shell_that_opened_the_database_before_it_moved_changes_nothing_there(
    source: InSqlite, tmp_path: Path
) -> None:
    shell = await open_storage(source.database, beside=True)
    try:
        await shell.run("update issues set highest = 13 where issue = 7")
        move(source, InSqlite(tmp_path / "target.db"), now=NOW, replace=False)
        for _ in range(2):
            with pytest.raises(StorageUnavailable, match="has moved to"):
                await shell.run("update issues set highest = 14 where issue = 7")
    finally:
        await shell.close()
    assert numbers(source) == {7: 13, 8: 3}


async def test_follower_that_opened_the_database_before_it_moved_changes_nothing_there(
    tmp_path: Path, postgres_server: Server
) -> None:
    source = InPostgres(postgres_server.new())
    early, leader = await open_storage(source.url), await open_storage(source.url)
    try:
        assert await leader.lead()
        await leader.close()
        await early.run("insert into issues values (7, 13)")
        move(source, InSqlite(tmp_path / "target.db"), now=NOW, replace=False)
        for _ in range(2):
            with pytest.raises(StorageUnavailable, match="has moved to"):
                await early.run("update issues set highest = 14 where issue = 7")
    finally:
        await early.close()
    assert numbers(source) == {7: 13}
