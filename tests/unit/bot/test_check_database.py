"""`clarify check` of a PostgreSQL: what it needs of a server, a database and a user."""

from __future__ import annotations

from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
import pytest

from bot.check import check_connections
from bot.checks import CheckResult
from bot.storage.opening import connections, open_storage
from bot.storage.postgres import check
from tests.kit.databases import Server

NOON = datetime(2026, 2, 3, 12, tzinfo=UTC)


@pytest.fixture
def url(postgres_server: Server) -> str:
    return postgres_server.new()


def name_of(url: str) -> str:
    return urlsplit(url).path.removeprefix("/")


def run(url: str, *statements: str) -> None:
    with closing(psycopg.connect(url, autocommit=True)) as db:
        for each in statements:
            db.execute(each.encode())


def found(url: str) -> list[CheckResult]:
    return [*check(url, url), *check_connections(connections(Path(), url))]


def problems(url: str) -> list[str]:
    return [each.text for each in found(url) if not each.ok]


async def test_database_that_is_as_it_has_to_be(url: str) -> None:
    texts = [each.text for each in found(url)]
    assert all(each.ok for each in found(url))
    assert any("up to date; no bot is running" in each for each in texts)
    assert any("notifications arrive" in each for each in texts)
    assert not any("pooling" in each for each in texts)


async def test_other_bot_on_the_slack_app_is_told_of(url: str) -> None:
    store = await open_storage(url)
    await store.note_connections(0, NOON)
    assert any("no other bot was connected" in each.text for each in found(url))
    await store.note_connections(2, NOON)
    await store.close()
    (said,) = problems(url)
    assert "another bot" in said.lower()
    assert "2026-02-03 12:00" in said


@pytest.mark.parametrize(
    ("setting", "problem"),
    [
        ("synchronous_commit = off", "synchronous_commit is off"),
        ("default_transaction_read_only = on", "is read-only"),
    ],
)
async def test_settings_that_lose_or_refuse_answers(url: str, setting: str, problem: str) -> None:
    run(url, f"alter database {name_of(url)} set {setting}")
    (said,) = problems(url)
    assert problem in said


async def test_encoding_that_has_not_all_characters(postgres_server: Server) -> None:
    url = postgres_server.new()
    name = f"{name_of(url)}_latin"
    run(url, f"create database {name} encoding 'LATIN1' locale 'C' template template0")
    (said,) = problems(postgres_server.url(name))
    assert "its encoding is LATIN1" in said


async def test_rights_of_the_user(postgres_server: Server, url: str) -> None:
    other = name_of(url)
    mine = url.replace("postgres@", f"{other}@")
    run(
        url,
        f"create role {other} login",
        f"grant select, insert, update, delete on all tables in schema public to {other}",
    )
    assert problems(mine) == []
    run(url, f"revoke insert on clarifications from {other}")
    (said,) = problems(mine)
    assert said == "this user needs read and write access to all tables: clarifications"
    empty = postgres_server.new(empty=True)
    run(empty, f"revoke create on schema public from public, {other}")
    (said,) = problems(empty.replace("postgres@", f"{other}@"))
    assert said == "this user cannot create tables"
