"""A storage that another process reads beside a bot, or without one."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from bot.errors import StorageUnavailable
from bot.storage.sqlite import InSqlite
from tests.kit.databases import open_store

INSERT = "insert into onces (key) values (:key)"


def keys(path: Path) -> list[str]:
    with InSqlite(path).read_only() as tx:
        return [row["key"] for row in tx.rows("select key from onces order by key")]


async def test_reader_sees_what_a_bot_wrote_and_neither_changes_nor_locks_anything(tmp_path: Path) -> None:
    path = tmp_path / "clarify.db"
    store = await open_store(path)
    try:
        await store.run(INSERT, key="a")
        with InSqlite(path).read_only() as tx:
            assert len(tx.rows("select key from onces")) == 1
            await store.run(INSERT, key="b")
        with pytest.raises(StorageUnavailable, match="readonly"), InSqlite(path).read_only() as tx:
            tx.run("delete from onces")
        assert keys(path) == ["a", "b"]
    finally:
        await store.close()


def test_reader_leaves_nothing_behind_where_no_bot_runs(tmp_path: Path) -> None:
    path = tmp_path / "clarify.db"
    asyncio.run(_written_and_closed(path))
    before = sorted(each.name for each in tmp_path.iterdir())
    assert keys(path) == ["a"]
    assert sorted(each.name for each in tmp_path.iterdir()) == before


async def _written_and_closed(path: Path) -> None:
    store = await open_store(path)
    await store.run(INSERT, key="a")
    await store.close()
