"""The storage, on either database: what `write` returned from is durable, one part's failure is its own."""

from __future__ import annotations

import asyncio
import sqlite3
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import psycopg
import pytest

from bot.storage.opening import open_storage
from bot.storage.store import Store
from bot.storage.tx import LONGEST_LIST, Tx, batches, bound
from tests.kit.databases import Server

ROOT = Path(__file__).parents[4]
INSERT = "insert into onces (key) values (:key)"


@pytest.fixture(params=["SQLite", "PostgreSQL"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Path | str:
    """An empty database."""
    if request.param == "SQLite":
        return tmp_path / "clarify.db"
    server: Server = request.getfixturevalue("postgres_server")
    return server.new(empty=True)


@pytest.fixture
async def store(place: Path | str) -> AsyncIterator[Store]:
    opened = await open_storage(place)
    yield opened
    await opened.close()


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
    assert isinstance(results[2], sqlite3.IntegrityError | psycopg.IntegrityError)
    assert await keys(store) == {"a", "b"}


async def test_cancelled_writer_loses_nothing(store: Store) -> None:
    task = asyncio.create_task(store.run(INSERT, key="a"))
    await asyncio.sleep(0)
    task.cancel()
    await store.run(INSERT, key="b")
    assert await keys(store) == {"a", "b"}


async def test_what_write_returned_from_survives_a_kill(place: Path | str) -> None:
    code = """
import asyncio, os, signal, sys
from pathlib import Path
from bot.storage.opening import open_storage
async def main():
    store = await open_storage(sys.argv[1] if '://' in sys.argv[1] else Path(sys.argv[1]))
    await asyncio.gather(*(store.run("insert into onces values (:key)", key=str(n)) for n in range(50)))
    os.kill(os.getpid(), signal.SIGKILL)
asyncio.run(main())
"""
    killed = await asyncio.create_subprocess_exec(sys.executable, "-c", code, str(place), cwd=ROOT)
    assert await killed.wait() == -9
    store = await open_storage(place)  # the kill let go of the lock, too
    assert len(await keys(store)) == 50
    await store.close()


async def test_a_database_is_the_same_installation_each_time(place: Path | str) -> None:
    found = set()
    for _ in range(2):
        store = await open_storage(place)
        await store.run(f"{INSERT} on conflict do nothing", key="a")
        found.add(store.installation)
        assert await keys(store) == {"a"}
        await store.close()
    assert len(found) == 1


@pytest.mark.needs("github")
async def test_flags_and_bytes_come_back_as_they_were(store: Store) -> None:
    await store.run(
        "insert into github_comments (repo, issue, entry, begun_at) values ('r', :issue, 'e', :begun_at)",
        begun_at=1.5,
        issue=True,
    )
    row = await store.read_one(
        "select begun_at, issue, comment from github_comments where issue = :on", on=True
    )
    assert row is not None
    assert dict(row) == {"begun_at": 1.5, "issue": 1, "comment": None}
    await store.run(
        "insert into outbox (endpoint, id, clarification, type, body, queued_at)"
        " values ('e', 'i', 'c', 't', :body, 1)",
        body=b"\x00'%:x",
    )
    assert [row["body"] for row in await store.read("select body from outbox where id <> '%:x'")] == [
        b"\x00'%:x"
    ]


async def test_what_is_written_soon_joins_the_next_transaction_or_has_its_own(store: Store) -> None:
    order: list[str] = []
    soon = store.write_soon(lambda _: order.append("soon"))
    await store.write(lambda _: order.append("now"))
    assert (order, soon.done()) == (["soon", "now"], True)
    await store.write_soon(lambda _: order.append("alone"))
    assert order[-1] == "alone"


async def test_what_is_written_soon_waits_no_longer_than_what_comes_after_it(store: Store) -> None:
    order: list[str] = []
    later = store.write_soon(lambda _: order.append("an hour"), within=3600)
    await store.write_soon(lambda _: order.append("soon"))
    assert (order, later.done()) == (["an hour", "soon"], True)


async def test_what_is_written_soon_is_stored_at_the_end(place: Path | str) -> None:
    store = await open_storage(place)
    store.write_soon(lambda tx: tx.run(INSERT, key="last"))
    await store.close()
    opened = await open_storage(place)
    assert await keys(opened) == {"last"}
    await opened.close()
