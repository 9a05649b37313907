"""`clarify backup` and `restore`: really restored, and gone on from: no question lost, no answer sent twice."""

from __future__ import annotations

import asyncio
import json
import shutil
import sqlite3
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock

from bot.ask.client import Accepted
from bot.ask.push import Reader
from bot.errors import BackupError, StorageInUseError
from bot.oncall.incidents import Incidents
from bot.oncall.pages import Batch, Destination, Item, Pages
from bot.retention.backup import backup, restore
from bot.retention.forget import Erased, LocalFiles
from bot.show.messages import Messages
from bot.storage.opening import open_storage
from bot.storage.sqlite import InSqlite
from core.escalation import NewIncident
from tests.kit.clocks import ManualClock
from tests.kit.lives import beside
from tests.kit.world import World, controls, said
from tests.unit.bot.ask.push_kit import TOKEN, Life, answer, asked, frames, life
from workspace.seed import AGENTS, FOLAKE

NOW = datetime(2026, 11, 22, 9, 0, tzinfo=UTC)


async def test_restored_bot_goes_on_where_the_backup_was_taken(stage: World) -> None:
    """The disk is lost after the backup: what was asked since comes again from the producer, what was answered
    before is not answered again, what was open can be answered."""
    copy = stage.folder / "copy"
    async with stage.bot():
        card = await stage.ask("rpl_done", question="Done before?", session="s_done")
        await stage.workspace.click(FOLAKE, AGENTS, card.ts, label="Yes")
        await stage.reply("rpl_done")
        waiting = await stage.ask("rpl_open", question="Open then?", session="s_open")
        done = await beside(stage, "backup", str(copy), "--json")
        assert done.code == 0, done.err
        assert json.loads(done.out)["bytes"] == (copy / "clarify.db").stat().st_size
        assert (copy / "manifest.json").stat().st_mode & 0o077 == 0
        await stage.ask("rpl_since", question="Asked since?", session="s_since")
    lost(stage)

    done = await beside(stage, "restore", str(copy))
    assert done.code == 0, done.err
    assert stage.issues() == [100001, 100002]

    async with stage.bot():
        since = await stage.until(
            lambda: cards_saying(stage, "Asked since?")[1:]
        )  # its first card is not ours now
        assert controls(since[0]) == ["Yes", "No", "Take"]
        await stage.workspace.click(FOLAKE, AGENTS, waiting.ts, label="No")
        assert (await stage.reply("rpl_open"))["response"] is False
        await stage.workspace.click(FOLAKE, AGENTS, since[0].ts, label="Yes")
        assert (await stage.reply("rpl_since"))["response"] is True
    # A click on the card of the question that was lost answers no other one.
    assert stage.issues()[2:] == [101003]
    assert len(cards_saying(stage, "Done before?")) == 1
    assert len(cards_saying(stage, "Open then?")) == 1
    tokens = [reply["reply_token"] for reply in stage.producer.replies]
    assert sorted(tokens) == ["rpl_done", "rpl_open", "rpl_since"]


async def test_answer_on_its_way_is_still_that_persons_after_a_restore(stage: World) -> None:
    copy = stage.folder / "copy"
    async with stage.bot():
        card = await stage.ask()
        await stage.producer.down()
        await stage.workspace.click(FOLAKE, AGENTS, card.ts, label="Yes")
        done = await beside(stage, "backup", str(copy))
        assert done.code == 0, done.err
    lost(stage)
    done = await beside(stage, "restore", str(copy))
    assert done.code == 0, done.err
    await stage.producer.up()
    async with stage.bot():
        assert (await stage.reply())["decided_by"] == f"user:slack/T0LOCAL/{FOLAKE}"


def lost(stage: World) -> None:
    shutil.rmtree(stage.folder / "ledgers")
    for path in stage.folder.glob("clarify.db*"):
        path.unlink()


def cards_saying(stage: World, text: str) -> list[Any]:
    return [card for card in stage.cards() if text in said(card)]


async def test_restore_refuses_while_a_bot_runs_and_over_what_is_there(stage: World) -> None:
    copy = stage.folder / "copy"
    async with stage.bot():
        await stage.ask()
        done = await beside(stage, "backup", str(copy))
        assert done.code == 0, done
        running = await beside(stage, "restore", str(copy), "--replace")
        assert running.code == 1, running
        assert "stop it first" in running.err
    there = await beside(stage, "restore", str(copy))
    assert there.code == 1, there
    assert "--replace" in there.err
    again = await beside(stage, "backup", str(copy))
    assert again.code == 1, again
    assert "not empty" in again.err


async def a_storage(path: Path) -> Path:
    store = await open_storage(path)
    await store.run("insert into counters values ('issue', 100005)")
    await store.run("insert into issues values (7, 12)")
    await store.close()
    return path


def rows(path: Path, sql: str) -> list[Any]:
    with closing(sqlite3.connect(path)) as db:
        return db.execute(sql).fetchall()


async def test_restore_skips_the_numbers_given_out_since(tmp_path: Path) -> None:
    database = await a_storage(tmp_path / "clarify.db")
    backup(InSqlite(database), tmp_path / "copy", now=NOW, release="1")

    restore(tmp_path / "copy", InSqlite(tmp_path / "new.db"), [], now=NOW, replace=False)

    assert rows(tmp_path / "new.db", "select issue, highest from issues") == [(7, 112)]
    assert rows(tmp_path / "new.db", "select value from counters where name = 'issue'") == [(101_005,)]
    assert rows(tmp_path / "new.db", "pragma auto_vacuum") == [(2,)]


async def test_restore_skips_the_numbers_that_the_database_before_gave_out(tmp_path: Path) -> None:
    database = await a_storage(tmp_path / "clarify.db")
    backup(InSqlite(database), tmp_path / "copy", now=NOW, release="1")
    with closing(sqlite3.connect(database)) as db:
        db.execute("update issues set highest = 900")
        db.execute("insert into issues values (8, 3)")
        db.commit()

    restore(tmp_path / "copy", InSqlite(database), [], now=NOW, replace=True)

    assert rows(database, "select issue, highest from issues order by issue") == [(7, 1000), (8, 103)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """An integration's, with one file."""
    (made := tmp_path / "files").mkdir()
    (made / "issue-7.json").write_text("{}")
    return made


def local(folder: Path) -> LocalFiles:
    return LocalFiles(
        first=lambda: next(folder.iterdir(), None),
        move_aside=lambda name: folder.rename(folder.with_name(name)),
        forgotten=lambda _tx, _ids: None,
        erase=Erased,
    )


async def test_restore_moves_aside_what_is_there(tmp_path: Path, folder: Path) -> None:
    database = await a_storage(tmp_path / "clarify.db")
    backup(InSqlite(database), tmp_path / "copy", now=NOW, release="1")
    restored = restore(tmp_path / "copy", InSqlite(database), [local(folder)], now=NOW, replace=True)
    assert restored.files == tmp_path / "before-restore-20261122T090000"
    assert (restored.files / "issue-7.json").exists()
    assert (tmp_path / "clarify.db.before-restore-20261122T090000").exists()


async def test_ledger_files_alone_are_not_moved_unless_told(tmp_path: Path, folder: Path) -> None:
    """The database is lost: the files may have what is nowhere else."""
    backup(InSqlite(await a_storage(tmp_path / "clarify.db")), tmp_path / "copy", now=NOW, release="1")
    with pytest.raises(BackupError, match=r"issue-7\.json already exists"):
        restore(tmp_path / "copy", InSqlite(tmp_path / "new.db"), [local(folder)], now=NOW, replace=False)
    assert (folder / "issue-7.json").exists()
    assert not (tmp_path / "new.db").exists()


async def test_restore_gives_no_page_a_number_that_stands_in_slack(tmp_path: Path) -> None:
    """A press of Take on a page that was sent after the backup takes nothing else."""
    database = await a_storage(tmp_path / "clarify.db")
    backup(InSqlite(database), tmp_path / "copy", now=NOW, release="1")
    sent = await _paged(database)
    restore(tmp_path / "copy", InSqlite(database), [], now=NOW, replace=True)
    incident, page = await _paged(database)
    assert (incident - sent[0], page - sent[1]) == (1000, 1000)


async def _paged(database: Path) -> tuple[int, int]:
    """The numbers of a page and what it is about."""
    store = await open_storage(database)
    try:
        clock = ManualClock()
        incidents = Incidents(store, clock, lambda _: None)
        found = await incidents.raise_(NewIncident("errored:1", "It broke", "Broke"))
        assert found is not None
        to = (Destination("slack", "U0ONCALL"),)
        pages = Pages(store, incidents, Messages(store), clock)
        sendings = await pages.send(Batch((Item(found.id, 0),), to))
        return found.id, sendings[0].page.number
    finally:
        await store.close()


async def test_restore_has_readers_of_replies_miss_none(tmp_path: Path) -> None:
    """One that read on after the backup says so, by a number that is then another reply's."""
    clock, copy = ManualClock(), tmp_path / "copy"
    async with life(tmp_path, clock) as before:
        await before.post(asked(clock))
        reader = await before.push().open(None)
        backup(InSqlite(tmp_path / "clarify.db"), copy, now=NOW, release="1")
        last, _ = await _read(before, reader, TOKEN)
    restore(copy, InSqlite(tmp_path / "clarify.db"), [], now=NOW, replace=True)
    async with life(tmp_path, clock, seed=8) as after:
        await after.post(asked(clock, "rpl_asked_after_that", 2))
        reader = await after.push().open(last)
        _, message = await _read(after, reader, "rpl_asked_after_that")
    assert message["reply_token"] == "rpl_asked_after_that"


async def _read(life: Life, reader: Reader, token: str) -> tuple[str, dict[str, Any]]:
    """The id and the message of the reply for a token, sent now."""
    sending = asyncio.create_task(life.push().send(answer(life.clock, token)))
    await asyncio.wait_for(reader.more.wait(), 60)
    ((name, message),) = frames(await reader.next())
    await reader.wrote()
    reader.close()
    assert await sending == Accepted(proof=False)
    return name, message


def _cut(copy: Path) -> None:
    whole = (copy / "clarify.db").read_bytes()
    (copy / "clarify.db").write_bytes(whole[:-1])


def _gone(copy: Path) -> None:
    (copy / "clarify.db").unlink()


def _newer(copy: Path) -> None:
    _edit(copy, "storage_version", 999)


def _earlier(copy: Path) -> None:
    _edit(copy, "storage_version", 32)


def _newer_format(copy: Path) -> None:
    _edit(copy, "format", 2)


def _none(copy: Path) -> None:
    (copy / "manifest.json").unlink()


def _edit(copy: Path, field: str, value: Any) -> None:
    manifest = json.loads((copy / "manifest.json").read_text())
    (copy / "manifest.json").write_text(json.dumps(manifest | {field: value}))


@pytest.mark.parametrize("damage", [_cut, _gone, _newer, _earlier, _newer_format, _none])
async def test_restore_of_a_damaged_backup_changes_nothing(tmp_path: Path, folder: Path, damage: Any) -> None:
    database = await a_storage(tmp_path / "clarify.db")
    backup(InSqlite(database), tmp_path / "copy", now=NOW, release="1")
    before = database.read_bytes()
    damage(tmp_path / "copy")
    with pytest.raises(BackupError):
        restore(tmp_path / "copy", InSqlite(database), [local(folder)], now=NOW, replace=True)
    assert (folder / "issue-7.json").exists()
    assert database.read_bytes() == before


async def test_restore_refuses_where_the_storage_is_held(tmp_path: Path) -> None:
    database = await a_storage(tmp_path / "clarify.db")
    backup(InSqlite(database), tmp_path / "copy", now=NOW, release="1")
    with FileLock(f"{database}.lock"), pytest.raises(StorageInUseError):
        restore(tmp_path / "copy", InSqlite(database), [], now=NOW, replace=True)


class Full(InSqlite):
    """Its copies find no room."""

    def copy(self, to: Path) -> int:
        super().copy(to)
        raise OSError(28, "No space left on device")


async def test_backup_that_fails_leaves_nothing(tmp_path: Path) -> None:
    database = await a_storage(tmp_path / "clarify.db")
    before = set(tmp_path.iterdir())  # noqa: ASYNC240 - nobody waits
    with pytest.raises(BackupError, match="No space left"):
        backup(Full(database), tmp_path / "copy", now=NOW, release="1")
    assert set(tmp_path.iterdir()) == before  # noqa: ASYNC240


async def test_backup_without_a_database_makes_none(stage: World) -> None:
    done = await beside(stage, "backup", str(stage.folder / "copy"))
    assert (done.code, "no bot has used it yet" in done.err) == (1, True), done
    assert not list(stage.folder.glob("copy*")) + list(stage.folder.glob("clarify.db*"))


async def test_restored_bot_keeps_its_buttons(stage: World) -> None:
    copy = stage.folder / "copy"
    async with stage.bot() as bot:
        before = bot.base.store.installation
        card = await stage.ask()
        assert (await beside(stage, "backup", str(copy))).code == 0
    lost(stage)
    done = await beside(stage, "restore", str(copy))
    assert done.code == 0, done.err
    async with stage.bot() as bot:
        assert bot.base.store.installation == before
        await stage.workspace.click(FOLAKE, AGENTS, card.ts, label="Yes")
        assert (await stage.reply())["response"] is True
