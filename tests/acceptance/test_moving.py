"""`clarify backup` of SQLite and of PostgreSQL, `clarify restore` and `clarify move` of either into either: the bot goes on."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
from collections.abc import Callable, Sequence
from contextlib import closing
from functools import partial
from typing import Any

import httpx
import psycopg
import pytest
from psycopg import sql

import clarify
from bot.app import Bot
from bot.errors import StorageMoved
from bot.storage.postgres import MIGRATING, PostgresTx
from tests.kit.databases import Server, open_store, records_in
from tests.kit.lives import beside
from tests.kit.processes import clarify as begun
from tests.kit.processes import ended
from tests.kit.receivers import Receiver, receiving
from tests.kit.until import until
from tests.kit.world import World, config, controls, environment, said, url_of
from workspace.seed import AGENTS, FALLBACK, FOLAKE, ONCALL
from workspace.state import Message

ISSUE = {"extensions": {"agentx": {"issue": 42}}}


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
    await stage.until(lambda: bot.show.lanes.length == 0)
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
        f"{record.id}/{record.round}": record.current.receipt
        async for contents in bot.ledger.every()
        for record in contents.records
        if record.current.receipt is not None
    }


@pytest.mark.parametrize(
    ("source", "to"),
    [
        ("SQLite", "PostgreSQL"),
        ("PostgreSQL", "SQLite"),
        pytest.param("SQLite", "SQLite", marks=pytest.mark.ci),
        pytest.param("PostgreSQL", "PostgreSQL", marks=pytest.mark.ci),
    ],
)
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
        await stage.until(lambda: bot.show.lanes.length == 0)
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
    assert controls(next(card for card in stage.cards() if "then?" in said(card)))[-1:] == ["Verify"]


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


@pytest.mark.needs("ledgerfiles")
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


@pytest.mark.needs("ledgerfiles")
async def test_restore_killed_in_the_middle_changed_nothing_and_can_be_given_again(
    stage: World, moved: str
) -> None:
    words = ("restore", str(stage.folder / "copy"), "--replace", "--config", str(stage.file))
    env = dict(os.environ) | environment(stage.workspace) | stage.environ
    with closing(psycopg.connect(moved)) as db:
        before = db.execute("select body from clarifications").fetchall()
        db.commit()
        db.execute("lock table webhooks_unsigned in access share mode")  # one of the last that it moves
        process = await begun(*words, env=env)
        try:
            with closing(psycopg.connect(moved, autocommit=True)) as eyes:
                waits = (
                    "select 1 from pg_locks where not granted and relation = 'webhooks_unsigned'::regclass"
                )
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


# -- clarify move ------------------------------------------------------------------------------------------------------


def kept(stage: World, database: str | None, hook: Receiver | None = None) -> None:
    """Have bots and commands from now on use a database, and tell a webhook."""
    stage.keep_in(database)
    if hook is not None:
        stage.environ["HOOK_SECRET"] = "s3cret-of-the-hook"
        more = f'[[webhooks]]\nurl = "{hook.url}"\nsecret_env = "HOOK_SECRET"\n'
        stage.configure(config(stage.producer.url, more=more))


async def log_of(stage: World) -> list[Any]:
    """The log of decisions, which is whole."""
    told = await beside(stage, "log")
    assert told.code == 0, told
    file = stage.folder / "log.jsonl"
    file.write_text(told.out)
    verified = await beside(stage, "verify", "--log", str(file))
    assert verified.code == 0, verified
    return [json.loads(line) for line in told.out.splitlines()]


async def answered(stage: World) -> None:
    card = await stage.ask("rpl_done", question="Done before?", session="s_done", **ISSUE)
    await stage.workspace.click(FOLAKE, AGENTS, card.ts, label="Yes")
    await stage.reply("rpl_done")


async def logged(bot: Bot, count: int) -> None:
    """Returns once the log has `count` decisions."""
    while len(await bot.store.read("select seq from decisions where kind = 'decision'")) < count:  # noqa: ASYNC110
        await asyncio.sleep(0.02)  # it follows


def changed_in_slack(stage: World, ts: str) -> int:
    return sum(call.method == "chat.update" and call.args["ts"] == ts for call in stage.workspace.calls)


async def nothing_starts(stage: World, *commands: Sequence[str]) -> None:
    """The database moved away: neither a bot nor a command goes on with it."""
    with pytest.raises(StorageMoved, match="has moved to"):
        async with stage.bot():
            pass
    for words in commands:
        refused = await beside(stage, *words)
        assert (refused.code, "has moved to" in refused.err) == (1, True), refused


@pytest.mark.needs("ledgerfiles")
@pytest.mark.parametrize(("source", "to"), [("SQLite", "PostgreSQL"), ("PostgreSQL", "SQLite")])
async def test_moved_bot_continues_as_if_it_had_only_been_restarted(
    stage: World, places: dict[str, Callable[[], str | None]], source: str, to: str
) -> None:
    question = {"question": "Which port?", "choices": ["80", "81"], "key": "k1"}
    first, second = places[source](), places[to]()
    target = second or str(stage.folder / "clarify.db")
    async with receiving() as hook:
        kept(stage, first, hook)
        hook.refuses = lambda _: 503
        async with stage.bot() as bot, httpx.AsyncClient(base_url=url_of(bot), timeout=60) as http:
            made = bot.store.installation, bot.store.secret
            await answered(stage)
            late = await stage.ask("rpl_late", question="Answered late?", session="s_late", **ISSUE)
            asked = (await http.post("/questions", json=question)).json()
            card = await stage.card("Which port?")
            await logged(bot, 1)
            await until(lambda: len(hook.got) >= 3)
            refused = await beside(stage, "move", "--to", target)
            assert (refused.code, "with Ctrl-C or SIGTERM" in refused.err) == (1, True), refused
        before = await log_of(stage)
        if source == "SQLite":  # more has been written there than in the whole life of the server
            stage.changed("update clarifications set written = written + 1000000000")
        # With no bot to take it, this change waits in the feed.
        assert (await beside(stage, "answer", "CLR-42-002", "yes")).code == 0

        told = await done(stage, "move", "--to", target)
        assert (told["aside"], "s3cret" in str(told)) == (None, False)
        assert told["rows"] > 20

        await nothing_starts(stage, ("list",), ("answer", asked["id"], "80"), ("move", "--to", target))
        kept(stage, second, hook)
        hook.got.clear()
        hook.refuses = lambda _: None
        drawn = changed_in_slack(stage, card.ts)
        async with stage.bot() as bot, httpx.AsyncClient(base_url=url_of(bot), timeout=60) as http:
            assert (bot.store.installation, bot.store.secret) == made
            assert (await stage.reply("rpl_late"))["response"] is True
            assert (await http.post("/questions", json=question)).json()["id"] == asked["id"]
            await stage.now_says(late, "Answered")
            assert changed_in_slack(stage, card.ts) == drawn, "an open card stays as it is"
            await stage.workspace.click(FOLAKE, AGENTS, card.ts, label="81")
            state = (await http.get(f"/questions/{asked['id']}", params={"wait": 30})).json()
            assert (state["status"], state["answer"]) == ("answered", "81")
            new = await stage.ask("rpl_new", question="Asked since?", session="s_new", **ISSUE)
            assert (new.metadata or {})["event_payload"]["clarification"] == "CLR-42-003"
            await logged(bot, 3)
            expected = {f"answered {each}" for each in ("CLR-42-001", "CLR-42-002", asked["id"])}
            expected |= {"requested " + each.removeprefix("answered ") for each in expected}
            await until(lambda: expected <= {*hook.events})
            await until(lambda: bot.feed.idle)
            assert max(map(hook.events.count, expected)) == 1
        entries = await log_of(stage)
        assert entries[: len(before)] == before
        assert len(entries) == len(before) + 2
        assert len(stage.cards()) == 4


async def test_move_over_what_is_there_is_refused_or_keeps_it_aside(stage: World, moved: str) -> None:
    path = stage.folder / "clarify.db"
    store = await open_store(path)
    await store.run("insert into issues values (7, 12)")
    await store.close()
    refused = await beside(stage, "move", "--to", str(path))
    assert (refused.code, "clarify.db already exists" in refused.err) == (1, True), refused
    assert "before-move-" in (await done(stage, "move", "--to", str(path), "--replace"))["aside"]
    # And back, to where what moved away is still there.
    stage.keep_in(None)
    stage.environ["DATABASE"] = moved
    refused = await beside(stage, "move", "--to", "DATABASE")
    assert (refused.code, "with --replace" in refused.err) == (1, True), refused
    assert "before_move_" in (await done(stage, "move", "--to", "DATABASE", "--replace"))["aside"]
    stage.keep_in(moved)
    async with stage.bot():
        await stage.workspace.click(FOLAKE, AGENTS, next(iter(stage.cards())).ts, label="Yes")
        assert (await stage.reply())["response"] is True


@pytest.mark.parametrize("to", ["", "CLARIFY_DATABSE_URL", "mysql://db/clarify", "postgresql://[db/clarify"])
async def test_move_wants_a_database(stage: World, to: str) -> None:
    refused = await beside(stage, "move", "--to", to)
    assert (refused.code, "--to" in refused.err) == (2, True), refused
    refused = await beside(stage, "move", "--to", str(stage.folder / "clarify.db"))
    assert (refused.code, "is the database that is in use already" in refused.err) == (1, True), refused


async def test_move_killed_in_the_middle_changed_nothing_and_can_be_given_again(
    stage: World, postgres_server: Server
) -> None:
    target = postgres_server.new(empty=True)
    async with stage.bot():
        card = await stage.ask()
    env = dict(os.environ) | environment(stage.workspace) | stage.environ
    with closing(psycopg.connect(target)) as db:
        db.execute("select pg_advisory_xact_lock(%s)", [MIGRATING])
        process = await begun("move", "--to", target, "--config", str(stage.file), env=env)
        try:
            with closing(psycopg.connect(target, autocommit=True)) as eyes:
                waits = "select 1 from pg_locks where not granted and locktype = 'advisory'"
                await until(lambda: eyes.execute(waits).fetchone())
        finally:
            process.kill()
            await process.wait()
    async with stage.bot():
        pass
    assert (await done(stage, "move", "--to", target))["aside"] is None
    stage.keep_in(target)
    async with stage.bot():
        await stage.workspace.click(FOLAKE, AGENTS, card.ts, label="Yes")
        assert (await stage.reply())["response"] is True


@pytest.mark.needs("ledgerfiles")
async def test_database_loaded_from_a_dump_of_a_busier_server_is_gone_on_with(
    stage: World, postgres_server: Server
) -> None:
    """Its transactions have higher numbers than this server's."""
    first, second = postgres_server.new(), postgres_server.new(empty=True)
    async with receiving() as hook:
        kept(stage, first, hook)
        async with stage.bot() as bot:
            card = await stage.ask()
            await until(lambda: hook.events == ["requested CLR-100001-001"])
            await until(lambda: bot.feed.idle)
        assert (await beside(stage, "escalate", "CLR-100001-001", "too late")).code == 0
        with closing(psycopg.connect(first)) as db:
            for table, column in PostgresTx.renumbered.items():
                ours = sql.Identifier(table), sql.Identifier(column)
                db.execute(sql.SQL("update {0} set {1} = {1} + 1000000000").format(*ours))
            db.commit()
        postgres_server.load(first, second)
        kept(stage, second, hook)
        async with stage.bot() as bot:
            await stage.workspace.click(FOLAKE, AGENTS, card.ts, label="Yes")
            assert (await stage.reply())["response"] is True
            told = [f"{each} CLR-100001-001" for each in ("requested", "escalated", "answered", "resolved")]
            await until(lambda: hook.events[3:])
            await until(lambda: bot.feed.idle)
            assert hook.events == told
