"""`clarify backup` of SQLite and of PostgreSQL, and `clarify restore` of either into either: the bot goes on where it was."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import sql

import clarify
from bot.app import Bot
from bot.workspace.seed import AGENTS, FALLBACK, FOLAKE, ONCALL
from bot.workspace.state import Message
from tests.kit.databases import Server, records_in
from tests.kit.lives import beside
from tests.kit.processes import clarify as begun
from tests.kit.processes import ended
from tests.kit.until import until
from tests.kit.world import World, controls, environment, said, scene

ISSUE = {"extensions": {"agentx": {"issue": 42}}}
KINDS = ("SQLite", "PostgreSQL")


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncIterator[World]:
    async with scene(tmp_path) as made:
        yield made


@pytest.fixture
def places(postgres_server: Server) -> dict[str, Callable[[], str | None]]:
    """A new place to keep things in, by its kind."""
    return {"SQLite": lambda: None, "PostgreSQL": partial(postgres_server.new, empty=True)}


def lost(stage: World) -> None:
    shutil.rmtree(stage.folder / "ledgers", ignore_errors=True)
    for path in stage.folder.glob("clarify.db*"):
        path.unlink()


async def done(stage: World, *words: str) -> dict[str, Any]:
    """What a command told, which went well."""
    told_ = await beside(stage, *words, "--json")
    assert told_.code == 0, told_
    told: dict[str, Any] = json.loads(told_.out)
    return told


async def used(stage: World, bot: Bot) -> tuple[Message, Message]:
    """A question that is over, an open one with a page, one whose answer is on its way; the open one's card and page."""
    card = await stage.ask("rpl_done", question="Done before?", session="s_done", **ISSUE)
    await stage.workspace.click(FOLAKE, AGENTS, card.ts, label="Yes")
    await stage.reply("rpl_done")
    await stage.says("state.changed", session="s_done", from_state="awaiting_input", to_state="thinking")
    await until(lambda: stage.record(42)["aaep"]["reply"] == "confirmed")
    await stage.until(lambda: bot.shown.lanes.length == 0)
    await stage.emit("rpl_open", question="Open \0 then?", session="s_open")
    waiting = await stage.card("then?")
    assert (await beside(stage, "escalate", "CLR-100001-001", "too late")).code == 0
    page = await stage.page("Open")
    way = await stage.ask("rpl_way", question="On its way?", session="s_way")
    await stage.producer.down()
    await stage.workspace.click(FOLAKE, AGENTS, way.ts, label="No")
    await until(lambda: stage.record(100002)["status"] == "answered")
    return waiting, page


async def receipts(bot: Bot) -> dict[str, str]:
    """All receipts, by their names."""
    return {
        f"{record.id}/{record.round}": record.asked.receipt
        async for contents in bot.ledger.every()
        for record in contents.records
        if record.asked.receipt is not None
    }


@pytest.mark.parametrize("to", KINDS)
@pytest.mark.parametrize("source", KINDS)
async def test_bot_goes_on_where_it_was_wherever_it_is_kept_now(
    stage: World, places: dict[str, Callable[[], str | None]], source: str, to: str
) -> None:
    copy = stage.folder / "copy"
    stage.keep_in(places[source]())
    async with stage.bot() as bot:
        before = bot.base.store.installation
        waiting, page = await used(stage, bot)
        signed = await receipts(bot)
        await done(stage, "backup", str(copy))
    lost(stage)
    stage.keep_in(places[to]())

    told = await done(stage, "restore", str(copy))
    assert (told["aside"], told["ledgerFiles"]) == (None, None)

    await stage.producer.up()
    async with stage.bot() as bot:
        assert bot.base.store.installation == before
        assert (await stage.reply("rpl_way"))["decided_by"] == f"user:slack/T0LOCAL/{FOLAKE}"
        assert (await stage.workspace.click(ONCALL, page.channel, page.ts, label="Take")).ok
        await stage.now_says(page, f"<@{ONCALL}>")
        assert (await stage.workspace.click(FOLAKE, AGENTS, waiting.ts, label="Yes")).ok
        assert (await stage.reply("rpl_open"))["response"] is True
        await stage.now_says(waiting, f"<@{FOLAKE}>")
        # The producer tells again what it had asked: it is known. What is new gets a number that nothing had.
        await stage.emit("rpl_done", question="Done before?", session="s_done", **ISSUE)
        again = await stage.ask("rpl_new", question="Asked since?", session="s_new", **ISSUE)
        assert (again.metadata or {})["event_payload"]["clarification"] == "CLR-42-102"
        await stage.ask("rpl_other", question="And elsewhere?", session="s_other")
        assert len(stage.ledger(101_003)["clarifications"]) == 1
        await stage.until(lambda: bot.shown.lanes.length == 0)
        # What was decided before has the receipt that it had, and one entry in the log; what is decided now has its own.
        assert bot.signing is not None
        now = await receipts(bot)
        assert {name: now[name] for name in signed} == signed
        assert now.keys() - signed.keys() == {"CLR-100001-001/1"}
        assert all(clarify.verify(each, keys=bot.signing.jwks).problem is None for each in now.values())
        logged = "select jti, receipt from decisions where jti is not null"
        while {row["jti"]: row["receipt"] for row in await bot.store.read(logged)} != now:  # noqa: ASYNC110
            await asyncio.sleep(0.02)  # the log follows
        assert not stage.workspace.messages(FALLBACK)
    for words in ("Done before?", "then?", "On its way?"):
        assert len([card for card in stage.cards() if words in said(card)]) == 1, words
    tokens = [reply["reply_token"] for reply in stage.producer.replies]
    assert sorted(tokens) == ["rpl_done", "rpl_open", "rpl_way"]
    assert controls(next(card for card in stage.cards() if "then?" in said(card))) == ["View full", "Verify"]


@pytest.fixture
async def moved(stage: World, places: dict[str, Callable[[], str | None]]) -> str:
    """The address of a database in which a question waits; a backup of it is in `copy`."""
    database = str(places["PostgreSQL"]())
    stage.keep_in(database)
    async with stage.bot():
        await stage.ask()
        await done(stage, "backup", str(stage.folder / "copy"))
    return database


async def test_restore_fills_a_database_on_which_a_bot_only_started(
    stage: World, places: dict[str, Callable[[], str | None]], moved: str
) -> None:
    lost(stage)
    stage.keep_in(database := places["PostgreSQL"]())
    assert database != moved
    async with stage.bot():
        pass
    lost(stage)
    assert (await done(stage, "restore", str(stage.folder / "copy")))["aside"] is None


async def test_restore_refuses_while_a_bot_leads_and_over_what_is_there(stage: World, moved: str) -> None:
    copy = str(stage.folder / "copy")
    async with stage.bot():
        refused = await beside(stage, "restore", copy, "--replace")
        assert (refused.code, "stop all that use it first" in refused.err) == (1, True), refused
    refused = await beside(stage, "restore", copy)
    assert (refused.code, "issue-100001.json already exists" in refused.err) == (1, True), refused
    lost(stage)
    refused = await beside(stage, "restore", copy)
    assert (refused.code, "with --replace" in refused.err) == (1, True), refused
    assert stage.record()["status"] == "pending"


async def test_restore_over_a_database_keeps_what_was_there_aside_and_says_where(
    stage: World, moved: str
) -> None:
    async with stage.bot() as bot:
        await stage.ask("rpl_2", question="Lost again?", session="sess_two")
        before = bot.base.store.installation
    told = await beside(stage, "restore", str(stage.folder / "copy"), "--replace")
    assert told.code == 0, told
    (aside,) = re.findall(r"is in the schema (before_restore_\w+) of the database", told.err)
    with closing(psycopg.connect(moved)) as db:
        assert db.execute("select id from clarifications order by 1").fetchall() == [("CLR-100001-001",)]
        kept = sql.SQL("select id from {}.clarifications order by 1").format(sql.Identifier(aside))
        assert db.execute(kept).fetchall() == [("CLR-100001-001",), ("CLR-100002-001",)]
        its = sql.SQL("select id from {}.installation").format(sql.Identifier(aside))
        assert db.execute(its).fetchone() == (before,)
        assert db.execute("select id from installation").fetchone() == (before,)


async def test_restore_killed_in_the_middle_changed_nothing_and_can_be_given_again(
    stage: World, moved: str
) -> None:
    words = ("restore", str(stage.folder / "copy"), "--replace", "--config", str(stage.file))
    env = dict(os.environ) | environment(stage.workspace) | stage.environ
    with closing(psycopg.connect(moved)) as db:
        before = db.execute("select body from clarifications").fetchall()
        db.commit()
        db.execute("lock table webhook_unsigned in access share mode")  # one of the last that it moves
        process = await begun(*words, env=env)
        try:
            with closing(psycopg.connect(moved, autocommit=True)) as eyes:
                waits = "select 1 from pg_locks where not granted and relation = 'webhook_unsigned'::regclass"
                await until(lambda: eyes.execute(waits).fetchone())
        finally:
            process.kill()
            await process.wait()
    with closing(psycopg.connect(moved, autocommit=True)) as db:
        held = "select 1 from pg_locks where relation = 'clarifications'::regclass and mode = 'AccessExclusiveLock'"
        await until(lambda: db.execute(held).fetchone() is None)  # the server noticed
        assert db.execute("select body from clarifications").fetchall() == before
        assert db.execute("select 1 from pg_namespace where nspname like 'before%'").fetchall() == []
    assert (await done(stage, *words[:3]))["aside"] is not None
    card = next(iter(stage.cards()))
    async with stage.bot():
        await stage.workspace.click(FOLAKE, AGENTS, card.ts, label="Yes")
        assert (await stage.reply())["response"] is True


async def test_damaged_backup_changes_no_database(stage: World, moved: str) -> None:
    (stage.folder / "copy/clarify.db").write_bytes(b"{}")
    refused = await beside(stage, "restore", str(stage.folder / "copy"), "--replace")
    assert (refused.code, "is damaged" in refused.err) == (1, True), refused
    assert stage.record()["status"] == "pending"


async def test_backup_of_a_database_is_of_one_moment(stage: World, moved: str) -> None:
    """What is written after it began is not in it, wherever it is by then."""
    copy = stage.folder / "second"
    with closing(psycopg.connect(moved)) as db:
        db.execute("lock table clarifications in access exclusive mode")
        process = await begun(
            *("backup", str(copy), "--config", str(stage.file)),
            env=dict(os.environ) | environment(stage.workspace) | stage.environ,
        )
        with closing(psycopg.connect(moved, autocommit=True)) as eyes:
            waits = "select 1 from pg_locks where not granted and relation = 'clarifications'::regclass"
            await until(lambda: eyes.execute(waits).fetchone())
        db.execute("update clarifications set body = '{}', revision = 99")
        db.commit()
    assert (await ended(process)).code == 0
    first = stage.folder / "copy/clarify.db"
    assert records_in(copy / "clarify.db", 100001) == records_in(first, 100001) != []
