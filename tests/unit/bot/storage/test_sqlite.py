"""SQLite: one instance per file, what stands in its way is said."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from bot.errors import StorageError, StorageUnavailable
from bot.storage import sqlite
from bot.storage.opening import open_storage
from bot.storage.store import Store
from tests.kit.databases import sqlite_of

INSERT = "insert into onces (key) values (:key)"


async def keys(store: Store) -> set[str]:
    return {row["key"] for row in await store.read("select key from onces")}


async def test_concurrent_writes_share_commits(store: Store) -> None:
    commits = 0

    def count(sql: str) -> None:
        nonlocal commits
        commits += sql.lower() == "commit"

    await sqlite_of(store).writer.run(lambda db: db.set_trace_callback(count))
    await asyncio.gather(*(store.run(INSERT, key=str(n)) for n in range(200)))
    assert len(await keys(store)) == 200
    assert commits <= 3


async def test_locked_by_somebody_else_is_unavailable_then_recovers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite, "_BUSY_MS", 50)
    store = await open_storage(tmp_path / "clarify.db")
    with closing(sqlite3.connect(tmp_path / "clarify.db", isolation_level=None)) as other:
        other.execute("begin immediate")
        writes = (store.run(INSERT, key=str(n)) for n in range(5))
        results = await asyncio.gather(*writes, return_exceptions=True)
        assert all(isinstance(result, StorageUnavailable) for result in results)
        assert await keys(store) == set(), "readers go on"
    await store.run(INSERT, key="after")
    assert await keys(store) == {"after"}
    await store.close()


async def test_deleted_text_leaves_no_trace_in_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where SQLite was built without that."""
    connect = sqlite3.connect

    def connected(*args: Any, **options: Any) -> Any:
        db = connect(*args, **options)
        db.execute("pragma secure_delete = off")
        return db

    monkeypatch.setattr(sqlite3, "connect", connected)
    path = tmp_path / "clarify.db"
    store = await open_storage(path)
    for n in range(30):
        await store.run("insert into texts (id, body) values (:id, :body)", id=str(n), body=f"s3cret {n}")
    await store.run("update texts set body = ''")
    await store.close()
    files = [each.read_bytes() for each in tmp_path.iterdir()]  # noqa: ASYNC240
    assert [each.count(b"s3cret") for each in files] == [0] * len(files)


def newer(path: Path) -> None:
    with closing(sqlite3.connect(path)) as db:
        db.execute("pragma user_version = 999")


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (newer, "newer clarify-bot"),
        (lambda path: path.write_bytes(b"no database" * 1000), "not a database"),
        (Path.mkdir, "Is a directory"),
    ],
)
async def test_open_refuses_what_it_cannot_use_and_ends(
    tmp_path: Path, spoil: Callable[[Path], object], words: str
) -> None:
    path = tmp_path / "clarify.db"
    spoil(path)
    for _ in range(2):  # not "in use": the lock was let go
        with pytest.raises(StorageError, match=words):
            await open_storage(path)
    for thread in threading.enumerate():
        if "connection" in thread.name:  # it would keep the process alive
            thread.join(10)
            assert not thread.is_alive()


async def test_what_cannot_be_read_on_the_event_loop_is_read_by_the_thread(store: Store) -> None:
    await store.run(INSERT, key="there")
    sqlite_of(store).glances.close()
    assert await store.read_one("select key from onces where key = 'there'") is not None
