"""What a later release adds to the schema of an older database."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from bot import integrations
from bot.errors import StorageError, StorageUnavailable
from bot.retention.backup import move
from bot.storage import postgres, schema, sqlite
from bot.storage.opening import Kept, kept_at, open_storage
from bot.storage.sqlite import InSqlite
from bot.storage.tables import InPostgres
from tests.kit.databases import Place, Server

NEXT = """-- A next file.
alter table texts add column about text not null default 'real text';
-- PostgreSQL alone: bots tell each other more.
create table pings (id integer primary key);
"""


@pytest.fixture(params=["SQLite", "PostgreSQL"])
def place(request: pytest.FixtureRequest, tmp_path: Path, postgres_server: Server) -> Place:
    return tmp_path / "clarify.db" if request.param == "SQLite" else postgres_server.new()


async def test_an_older_database_gets_what_a_later_release_adds(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = await open_storage(place)
    await store.run("insert into texts (id, body) values ('a', 'b')")
    await store.close()
    files = schema._files()
    monkeypatch.setattr(schema, "_files", lambda: [*files, NEXT])
    with pytest.raises(StorageUnavailable, match=r"version.*start the bot once"):
        look_at(place)
    for _ in range(2):
        store = await open_storage(place)
        (row,) = await store.read("select id, body, about from texts")
        assert (row["id"], row["body"], row["about"]) == ("a", "b", "real text")
        await store.close()
    look_at(place)
    monkeypatch.setattr(schema, "_files", lambda: files)
    with pytest.raises(StorageError, match="version 2, written by a newer clarify-bot; this one knows 1"):
        await open_storage(place)
    with pytest.raises(StorageUnavailable, match="version 2, written by a newer"):
        look_at(place)


def look_at(place: Place) -> None:
    """What commands of the shell begin with."""
    kept = InSqlite(place) if isinstance(place, Path) else InPostgres(place)
    with TemporaryDirectory() as folder, kept.held(Path(folder) / "copy.db"):
        pass


def mark(place: Place, version: int) -> None:
    if isinstance(place, Path):
        with closing(sqlite3.connect(place)) as db:
            db.execute(f"pragma user_version = {version}")
    else:
        InPostgres(place).change(
            lambda tx: tx.run("update schema_version set version = :version", version=version)
        )


async def test_check_names_a_database_of_another_release(place: Place) -> None:
    why = "has version 999, written by a newer clarify-bot; this one knows 1"
    await (await open_storage(place)).close()
    mark(place, 999)
    with pytest.raises(StorageError, match=why):
        await open_storage(place)
    if isinstance(place, Path):
        result = sqlite.check_storage(place)
    else:
        result = next(each for each in postgres.check(place, place) if not each.ok)
    assert (result.ok, why in result.text) == (False, True)


TOLD = "create table teams_told (\n  id integer primary key,\n  clarification text references clarifications on delete cascade\n);"
LATER = "alter table teams_told add column about text not null default 'real text';"


async def test_tables_of_an_integration_have_a_version_of_their_own(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    await (await open_storage(place)).close()
    for files in ([TOLD], [TOLD], [TOLD, LATER]):
        monkeypatch.setattr(integrations, "schemas", lambda files=files: {"teams": files})
        store = await open_storage(place)
        await store.run("insert into teams_told (clarification) values (null)")
        await store.close()
    store = await open_storage(place)
    assert [row["about"] for row in await store.read("select about from teams_told")] == ["real text"] * 3
    await store.close()
    monkeypatch.setattr(integrations, "schemas", lambda: {"teams": [TOLD]})
    with pytest.raises(StorageError, match="tables of teams have version 2; this release knows 1"):
        await open_storage(place)
    monkeypatch.setattr(integrations, "schemas", dict)
    await (
        await open_storage(place)
    ).close()  # it is not installed any more: its tables stay, and are in no copy
    if isinstance(place, Path):
        assert not [table for table in InSqlite(place).columns() if table.startswith("teams")]


@pytest.fixture(params=["SQLite", "PostgreSQL"])
def other(request: pytest.FixtureRequest, tmp_path: Path, postgres_server: Server) -> Place:
    return tmp_path / "other.db" if request.param == "SQLite" else postgres_server.new()


def kept(place: Place) -> Kept:
    return kept_at(place, None) if isinstance(place, Path) else kept_at(Path(), place)


REAL = integrations.schemas()


async def started(place: Place, *, uses: bool = True) -> list[str]:
    """Starts on it, and has teams use its table. Returns what is in the table."""
    store = await open_storage(place)
    if uses:
        await store.run("insert into teams_told (clarification) values (null)")
    rows = await store.read("select * from teams_told") if "teams" in integrations.schemas() else []
    await store.close()
    return [row["about"] if "about" in row.keys() else "" for row in rows]  # noqa: SIM118 - sqlite3.Row


@pytest.mark.parametrize("before", [[], [TOLD]], ids=["installed", "upgraded"])
async def test_an_integration_may_be_installed_before_a_copy_and_start_after_it(
    place: Place, other: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: list[str]
) -> None:
    monkeypatch.setattr(integrations, "schemas", lambda: {**REAL, "teams": before} if before else REAL)
    await started(place, uses=bool(before))
    monkeypatch.setattr(integrations, "schemas", lambda: {**REAL, "teams": [TOLD, LATER]})
    kept(place).copy(tmp_path / "copy.db")
    kept(other).put(tmp_path / "copy.db", lambda _: None, aside="before_restore")
    assert await started(other, uses=False) == ["real text"] * len(before)
    move(kept(place), kept(other), now=datetime.now(UTC), replace=True)
    assert await started(other) == ["real text"] * (len(before) + 1)


async def test_an_integration_may_come_back_after_a_copy_that_left_its_tables_out(
    place: Place, other: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(integrations, "schemas", lambda: {**REAL, "teams": [TOLD]})
    await started(place)
    await started(other)  # its tables go aside with the others
    is_whole = isinstance(place, Path) and isinstance(other, Path)  # a file is copied as it is
    restored = tmp_path / "copy.db"
    for put in (
        lambda: kept(other).put(restored, lambda _: None, aside="before_restore"),
        lambda: move(kept(place), kept(other), now=datetime.now(UTC), replace=True),
    ):
        monkeypatch.setattr(integrations, "schemas", lambda: REAL)
        restored.unlink(missing_ok=True)
        kept(place).copy(restored)
        put()
        monkeypatch.setattr(integrations, "schemas", lambda: {**REAL, "teams": [TOLD]})
        assert len(await started(other)) == 1 + is_whole


async def test_a_copy_needs_the_release_that_wrote_the_tables(
    postgres_server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(integrations, "schemas", lambda: {**REAL, "teams": [TOLD, LATER]})
    await started(url := postgres_server.new())
    monkeypatch.setattr(integrations, "schemas", lambda: {**REAL, "teams": [TOLD]})
    with pytest.raises(StorageError, match="tables of teams have version 2; this release knows 1"):
        kept(url).copy(tmp_path / "copy.db")
