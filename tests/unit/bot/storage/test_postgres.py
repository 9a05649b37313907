"""PostgreSQL: connections that break, at every moment of a transaction; several bots on one database; its versions."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import closing

import psycopg
import pytest

from bot.errors import StorageError, StorageInDoubt, StorageUnavailable
from bot.storage import postgres
from bot.storage.store import Store
from tests.kit.databases import Server, Wire

INSERT = "insert into onces (key) values (:key)"


async def keys(store: Store) -> set[str]:
    return {row["key"] for row in await store.read("select key from onces")}


@pytest.fixture
def wire(postgres_server: Server) -> Iterator[Wire]:
    made = Wire(postgres_server, postgres_server.new())
    yield made
    made.close()


async def test_what_broke_between_two_transactions_is_not_noticed(wire: Wire) -> None:
    store = await Store.open(wire.url)
    await store.run(INSERT, key="a")
    wire.cut()
    await store.run(INSERT, key="b")
    wire.cut()
    assert await keys(store) == {"a", "b"}
    await store.close()


@pytest.mark.parametrize("passes", [False, True])
async def test_commit_without_an_answer_is_read_back(wire: Wire, passes: bool) -> None:
    store = await Store.open(wire.url)
    wire.cut_at, wire.passes = b"commit", passes
    written = asyncio.create_task(store.run(INSERT, key="a"))
    if passes:
        assert await written == 1
    else:
        with pytest.raises(StorageUnavailable, match="Nothing was stored"):
            await written
    assert wire.cut_at is None
    assert await keys(store) == ({"a"} if passes else set())
    await store.close()


async def test_while_it_is_not_known_who_asked_waits(wire: Wire, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgres, "_RETRY", 0.01)
    store = await Store.open(wire.url)
    wire.cut_at, wire.passes, wire.blocked = b"commit", True, True
    written = asyncio.create_task(store.run(INSERT, key="a"))
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.3):
            await asyncio.shield(written)
    wire.blocked = False
    assert await written == 1
    await store.close()


async def test_who_waits_hears_that_nobody_can_tell(wire: Wire, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgres, "_RETRY", 0.01)
    monkeypatch.setattr(postgres, "_IN_DOUBT", 0.05)
    store = await Store.open(wire.url)
    wire.cut_at, wire.passes, wire.blocked = b"commit", True, True
    with pytest.raises(StorageInDoubt):
        await store.run(INSERT, key="a")
    wire.blocked = False
    assert await keys(store) == {"a"}
    await store.close()


async def test_a_server_that_is_away_is_unavailable_then_goes_on(wire: Wire) -> None:
    store = await Store.open(wire.url)
    wire.blocked = True
    wire.cut()
    with pytest.raises(StorageUnavailable, match="Nothing was stored"):
        await store.run(INSERT, key="a")
    with pytest.raises(StorageUnavailable, match="could not be read"):
        await keys(store)
    assert "could not be read" in str(await store.trouble())
    wire.blocked = False
    await store.run(INSERT, key="b")
    assert await keys(store) == {"b"}
    assert await store.trouble() is None
    await store.close()


async def test_several_bots_write_side_by_side(postgres_server: Server) -> None:
    url = postgres_server.new()
    stores = await asyncio.gather(*(Store.open(url) for _ in range(3)))
    assert len({store.installation for store in stores}) == 1
    await asyncio.gather(
        *(store.run(INSERT, key=f"{at} {n}") for at, store in enumerate(stores) for n in range(40))
    )
    assert len(await keys(stores[0])) == 120
    for store in stores:
        await store.close()


async def test_open_refuses_what_it_cannot_use(postgres_server: Server) -> None:
    url = postgres_server.new()
    with pytest.raises(StorageError, match="does not exist"):
        await Store.open(url.replace("/clarify_", "/nobody_"))
    await (await Store.open(url)).close()
    with closing(psycopg.connect(url, autocommit=True)) as db:
        db.execute("update schema_version set version = 999")
    with pytest.raises(StorageError, match="version 999, written by a newer clarify-bot"):
        await Store.open(url)


async def test_no_address_is_told(postgres_server: Server) -> None:
    """It may hold a password."""
    with pytest.raises(StorageError) as told:
        await Store.open("postgresql://postgres:secret@127.0.0.1:1/clarify")
    assert "secret" not in str(told.value)
