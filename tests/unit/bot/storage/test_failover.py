"""A database with several hosts, by one address: the one that takes writes is found again without a restart."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote, urlsplit

import pytest

from bot.errors import StorageUnavailable
from bot.storage.opening import open_storage
from tests.kit.databases import Server, Wire


@pytest.fixture
def hosts(postgres_server: Server) -> Iterator[tuple[Wire, Wire]]:
    """Two ways to one database."""
    database = postgres_server.new()
    made = Wire(postgres_server, database), Wire(postgres_server, database)
    yield made
    for each in made:
        each.close()


async def test_other_host_is_found_when_the_first_is_gone(hosts: tuple[Wire, Wire]) -> None:
    first, second = hosts
    ports = [urlsplit(each.url).port for each in hosts]
    name = urlsplit(first.url).path
    url = (
        f"postgresql://postgres@127.0.0.1:{ports[0]},127.0.0.1:{ports[1]}{name}"
        "?target_session_attrs=read-write"
    )
    second.blocked = True
    store = await open_storage(url)
    try:
        await store.run("insert into texts values ('a', 'before')")
        first.blocked = True
        first.cut()
        with pytest.raises(StorageUnavailable):
            await store.run("insert into texts values ('b', 'nobody takes it')")
        second.blocked = False
        await store.run("insert into texts values ('c', 'after')")
        rows = await store.read("select id from texts order by id")
        assert [row["id"] for row in rows] == ["a", "c"]
    finally:
        await store.close()


async def test_standby_is_away_until_it_is_promoted(postgres_server: Server) -> None:
    url = postgres_server.new()
    with (
        tempfile.TemporaryDirectory(dir=postgres_server.socket.parent) as folder,
        postgres_server.standby(Path(folder)) as (socket, promote),
    ):
        there = url.replace(quote(str(postgres_server.socket)), quote(str(socket)))
        with pytest.raises(StorageUnavailable, match="read-only: a standby"):
            await open_storage(there)
        store = await open_storage(url.replace("host=", f"host={quote(str(socket))},"))
        await store.run("insert into texts values ('a', 'the other host takes it')")
        await store.close()
        promote()
        store = await open_storage(there)
        await store.run("insert into texts values ('b', 'after')")
        await store.close()
