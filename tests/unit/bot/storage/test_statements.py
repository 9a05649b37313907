"""Every statement of the bot: each driver takes it, and it is of the subset that all of them share."""

from __future__ import annotations

import ast
import re
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from functools import cache
from pathlib import Path

import psycopg
import pytest

from bot.integrations import OURS, schemas
from bot.storage.opening import open_storage
from bot.storage.postgres import form
from bot.storage.server import connect
from bot.storage.sqlite import migrate
from bot.storage.tx import bound
from tests.kit.databases import Server

ROOT = Path(__file__).parents[4] / "bot"
OF_ONE_DRIVER = {  # or have names put into statements
    ROOT / "storage" / name
    for name in (
        "sqlite.py",
        "postgres.py",
        "server.py",
        "tables.py",
        "tx.py",
        "ledger.py",
        "changes.py",
    )
}
BEGINS = re.compile(r"\s*(select\s|insert into\s|insert or\s|update \S+ set\s|delete from\s)")
NAMED = re.compile(r"(?<![:\w]):(\w+)")
LIST = re.compile(r"\bin :(\w+)")
ELSEWHERE = re.compile(  # what PostgreSQL does not take, or takes for something else
    r"\?|\bjson_\w+|\browid\b|\binsert or\b|\bupdate or\b|(?<!:)\buser\b|\binstr\(|\bifnull\(|\bglob\b|\blike\b|\bnot in :"
    r"|\bis (not )?:|\b(min|max)\([^()]*,|on conflict (?!\(|do nothing)|\bas real\)"
)


def strings(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Each string of a module with its line, `?` in place of what is put into it."""
    parts = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            yield node.lineno, "".join(str(getattr(part, "value", "?")) for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in parts:
            yield node.lineno, node.value


@cache
def statements() -> dict[str, str]:
    """The statements by where they stand."""
    return {
        f"{path.relative_to(ROOT.parent)}:{line}": text
        for path in sorted(ROOT.rglob("*.py"))
        if re.search(r"bot\.(storage|api)", source := path.read_text()) and path not in OF_ONE_DRIVER
        for line, text in strings(ast.parse(source))
        if BEGINS.match(text)
    }


def on_sqlite(found: Sequence[str]) -> list[str]:
    """What is wrong with statements, empty where nothing is."""

    def trouble(sql: str) -> str:
        text, flat = bound(sql, values_of(sql))
        try:
            db.execute(f"explain {text}", flat)
        except sqlite3.Error as error:
            return str(error)
        return ""

    with closing(sqlite3.connect(":memory:", isolation_level=None)) as db:
        migrate(db, Path(":memory:"))
        return [trouble(sql) for sql in found]


def values_of(sql: str) -> dict[str, object]:
    """A value for each parameter."""
    lists = LIST.findall(sql)
    return {name: [None] if name in lists else None for name in NAMED.findall(sql)}


async def on_postgres(found: Sequence[str], url: str) -> list[str]:
    """What is wrong with statements, empty where nothing is."""
    await (await open_storage(url)).close()

    def trouble(sql: str) -> str:
        text, flat = bound(sql, values_of(sql))
        try:
            db.execute(form(f"explain {text}"), flat)
        except psycopg.Error as error:
            return str(error)
        return ""

    with closing(connect(url)) as db:
        return [trouble(sql) for sql in found]


@pytest.mark.parametrize("where", ["SQLite", "PostgreSQL"])
async def test_every_statement_is_prepared(where: str, postgres_server: Server) -> None:
    found = statements()
    assert len(found) > 100
    texts = list(found.values())
    said = on_sqlite(texts) if where == "SQLite" else await on_postgres(texts, postgres_server.new())
    troubles = dict(zip(found, said, strict=True))
    assert {where: why for where, why in troubles.items() if why} == {}


def test_every_statement_is_of_the_common_subset() -> None:
    assert {where: told[0] for where, sql in statements().items() if (told := ELSEWHERE.search(sql))} == {}


def test_upserts_name_the_table_of_what_was_there() -> None:
    """`set value = value + 1` is ambiguous to PostgreSQL."""
    for where, sql in statements().items():
        changes = re.split(r"\b(?:where|returning)\b", sql.partition("do update set")[2])[0]
        for name, value in re.findall(r"(\w+) = ([^,]+)", changes):
            assert not re.search(rf"(?<![.:\w]){name}\b", value), where


def test_each_table_is_written_by_one_module() -> None:
    writers: dict[str, set[str]] = {}
    for where, sql in statements().items():
        for table in re.findall(
            r"\b(?:insert into|update|delete from) (\w+)", sql.replace("do update set", "")
        ):
            module = Path(where.partition(":")[0])
            owner = module.parent if "integrations" in module.parts else module
            writers.setdefault(table, set()).add(str(owner))
    # The storage's own id is written by who opens and who restores.
    together = {"installation"}
    assert {
        table: found for table, found in writers.items() if len(found) > 1 and table not in together
    } == {}
    assert len(writers) > 20


def test_tables_of_an_integration_have_its_name_and_are_its_own() -> None:
    uses = re.compile(r"\b(?:from|join|into|update) (\w+)")
    found = {
        name: set(re.findall(r"create table (\w+)", "".join(files))) for name, files in schemas().items()
    }
    assert {"github", "ledgerfiles", "webhooks"} & set(OURS) <= found.keys()
    for name, tables in found.items():
        for line in re.findall(r"^ *clarification .*", "".join(schemas()[name]), re.MULTILINE):
            assert "references clarifications on delete cascade" in line
        assert {each for each in tables if each.partition("_")[0] != name} == set()
        users = [where for where, sql in statements().items() if tables & set(uses.findall(sql))]
        assert [each for each in users if f"/integrations/{name}/" not in each] == []
