"""The storage: what `write` returned from is on disk, one part's failure is its own, one instance per file."""

from __future__ import annotations

import asyncio
import sqlite3
import sys
import threading
from collections.abc import Callable
from contextlib import closing
from importlib import resources
from pathlib import Path

import pytest

from bot.errors import StorageError, StorageInUseError, StorageUnavailable
from bot.storage import store as store_module
from bot.storage.store import LONGEST_LIST, Store, Tx, batches, bound

ROOT = Path(__file__).parents[4]
INSERT = "insert into onces (key) values (:key)"
BIG = "insert into texts (id, body) values ('big', :body)"


async def keys(store: Store) -> set[str]:
    return {row["key"] for row in await store.read("select key from onces")}


async def test_statements_take_values_by_name_and_lists(store: Store) -> None:
    def work(tx: Tx) -> list[str]:
        tx.many("insert into onces values (:key)", [{"key": key} for key in "abcde"])
        assert tx.run("delete from onces where key in :keys and key <> :kept", keys=["a", "b"], kept="b") == 1
        assert tx.one("select key from onces where key = :key", key="a") is None
        found = tx.rows(
            "delete from onces where key in :keys or key = :key returning key", keys="cd", key="b"
        )
        return sorted(row["key"] for row in found)

    assert await store.write(work) == ["b", "c", "d"]
    assert await keys(store) == {"e"}
    assert await store.run(INSERT, key="z") == 1
    assert await store.read_one("select key from onces where key in :keys", keys=[]) is None
    assert len(await store.read("select key from onces where key in :keys", keys=["z", "y"])) == 1


def test_lists_have_few_forms_and_an_end() -> None:
    forms = {bound("… in :ids", {"ids": range(size)})[0] for size in range(LONGEST_LIST + 1)}
    assert len(forms) == 10
    with pytest.raises(ValueError, match="513 values"):
        bound("… in :ids", {"ids": range(LONGEST_LIST + 1)})
    assert [len(each) for each in batches(range(1025))] == [512, 512, 1]


async def test_one_failing_part_does_not_undo_the_others(store: Store) -> None:
    def fail_after(tx: Tx) -> None:
        tx.run(INSERT, key="undone")
        raise ValueError("mine")

    results = await asyncio.gather(
        store.run(INSERT, key="a"),
        store.write(fail_after),
        store.run(INSERT, key="a"),
        store.run(INSERT, key="b"),
        return_exceptions=True,
    )
    assert results[0] == results[3] == 1
    assert isinstance(results[1], ValueError)
    assert isinstance(results[2], sqlite3.IntegrityError)
    assert await keys(store) == {"a", "b"}


async def test_concurrent_writes_share_commits(store: Store) -> None:
    commits = 0

    def count(sql: str) -> None:
        nonlocal commits
        commits += sql.lower() == "commit"

    await store._writer._execute(store._writer._conn.set_trace_callback, count)  # type: ignore[no-untyped-call]
    await asyncio.gather(*(store.run(INSERT, key=str(n)) for n in range(200)))
    assert len(await keys(store)) == 200
    assert commits <= 3


async def test_cancelled_writer_loses_nothing(store: Store) -> None:
    task = asyncio.create_task(store.run(INSERT, key="a"))
    await asyncio.sleep(0)
    task.cancel()
    await store.run(INSERT, key="b")
    assert await keys(store) == {"a", "b"}


async def test_locked_by_somebody_else_is_unavailable_then_recovers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_module, "_BUSY_MS", 50)
    store = await Store.open(tmp_path / "clarify.db")
    with closing(sqlite3.connect(tmp_path / "clarify.db", isolation_level=None)) as other:
        other.execute("begin immediate")
        writes = (store.run(INSERT, key=str(n)) for n in range(5))
        results = await asyncio.gather(*writes, return_exceptions=True)
        assert all(isinstance(result, StorageUnavailable) for result in results)
        assert await keys(store) == set(), "readers go on"
    await store.run(INSERT, key="after")
    assert await keys(store) == {"after"}
    await store.close()


async def test_full_disk_is_unavailable_and_recovers(store: Store) -> None:
    pages = await store._writer.execute_fetchall("pragma page_count")
    await store._writer.execute_fetchall(f"pragma max_page_count = {next(iter(pages))[0]}")
    with pytest.raises(StorageUnavailable, match="full"):
        await store.run(BIG, body="x" * 1_000_000)
    await store._writer.execute_fetchall("pragma max_page_count = 1000000")
    await store.run(BIG, body="x" * 1_000_000)


async def test_what_write_returned_from_survives_a_kill(tmp_path: Path) -> None:
    code = """
import asyncio, os, signal, sys
from pathlib import Path
from bot.storage.store import Store
async def main():
    store = await Store.open(Path(sys.argv[1]))
    await asyncio.gather(*(store.run("insert into onces values (:key)", key=str(n)) for n in range(50)))
    os.kill(os.getpid(), signal.SIGKILL)
asyncio.run(main())
"""
    path = tmp_path / "clarify.db"
    killed = await asyncio.create_subprocess_exec(sys.executable, "-c", code, str(path), cwd=ROOT)
    assert await killed.wait() == -9
    store = await Store.open(path)  # the kill let go of the lock, too
    assert len(await keys(store)) == 50
    await store.close()


async def test_second_instance_is_refused_until_the_first_is_gone(tmp_path: Path) -> None:
    first = await Store.open(tmp_path / "clarify.db")
    with pytest.raises(StorageInUseError, match="in use"):
        await Store.open(tmp_path / "clarify.db")
    await first.close()
    await (await Store.open(tmp_path / "clarify.db")).close()


async def test_open_migrates_once(tmp_path: Path) -> None:
    path = tmp_path / "clarify.db"
    for _ in range(2):
        store = await Store.open(path)
        await store.run(f"{INSERT} on conflict do nothing", key="a")
        assert await keys(store) == {"a"}
        await store.close()
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("pragma user_version").fetchone()[0] == store_module.newest_version()
        assert db.execute("pragma journal_mode").fetchone()[0] == "wal"


async def test_rows_of_earlier_versions_outlive_columns_that_are_renamed(tmp_path: Path) -> None:
    path = tmp_path / "clarify.db"
    files = sorted(
        resources.files("bot.storage").joinpath("migrations").iterdir(), key=lambda file: file.name
    )
    with closing(sqlite3.connect(path)) as db:
        db.executescript(
            "".join(file.read_text() for file in files if file.name < "0010") + "pragma user_version = 9;"
        )
        db.execute(
            "insert into homes (user, team, channel, opened_at, pages) values ('U1', 'T', 'D', 1, '{}')"
        )
        db.execute(
            "insert into overrides (policy, user, since, until, made_by) values ('p', 'U1', 0, 1, 'U2')"
        )
        db.execute("insert into incident_log (incident, at, what, user) values (1, 0, 'taken', 'U1')")
        db.executemany("insert into slack_events (event_id, body) values (?, '{}')", [("Ev9",), ("Ev1",)])
        db.commit()
    store = await Store.open(path)
    for table in ("homes", "overrides", "incident_log"):
        assert [row["user_id"] for row in await store.read(f"select user_id from {table}")] == ["U1"]  # noqa: S608
    events = await store.read("select event_id, state from slack_events order by seq")
    assert [tuple(row) for row in events] == [("Ev9", "new"), ("Ev1", "new")]
    await store.close()


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
            await Store.open(path)
    for thread in threading.enumerate():
        if "connection" in thread.name:  # it would keep the process alive
            thread.join(10)
            assert not thread.is_alive()
