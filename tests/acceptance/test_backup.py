"""`clarify backup` and `restore`: really restored, and gone on from: no question lost, no answer sent twice."""

from __future__ import annotations

import asyncio
import json
import shutil
import sqlite3
from collections.abc import AsyncIterator, Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from bot.retention.files import InFiles
from filelock import FileLock

from bot.delivery.messages import InFlight
from bot.errors import BackupError, StorageInUseError
from bot.oncall.incidents import Incidents
from bot.oncall.pages import Batch, Destination, Item, Pages
from bot.producers.client import Accepted
from bot.producers.push import Reader
from bot.retention.backup import backup, restore
from bot.storage.store import Store
from bot.workspace.seed import AGENTS, FOLAKE
from core.escalation import NewIncident
from core.ledger import FileLedger
from tests.kit.builders import foreign
from tests.kit.clocks import ManualClock
from tests.kit.lives import beside
from tests.kit.world import World, controls, said, scene
from tests.unit.bot.producers.push_kit import TOKEN, Life, answer, asked, frames, life

NOW = datetime(2026, 11, 22, 9, 0, tzinfo=UTC)


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncIterator[World]:
    async with scene(tmp_path) as made:
        yield made


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
        assert json.loads(done.out)["ledgers"] == 2
        assert (copy / "manifest.json").stat().st_mode & 0o077 == 0
        await stage.ask("rpl_since", question="Asked since?", session="s_since")
    lost(stage)

    done = await beside(stage, "restore", str(copy))
    assert done.code == 0, done.err
    assert sorted(path.name for path in (stage.folder / "ledgers").glob("issue-*.json")) == [
        "issue-100001.json",
        "issue-100002.json",
    ]

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
    assert sorted(path.name for path in (stage.folder / "ledgers").glob("issue-*.json"))[2:] == [
        "issue-101003.json"
    ]
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


@pytest.fixture
def upkeep(tmp_path: Path) -> Iterator[FileLedger]:
    (tmp_path / "ledgers").mkdir()
    made = FileLedger(tmp_path / "ledgers")
    yield made
    made.close()


def a_ledger(upkeep: FileLedger, issue: int = 7, **more: Any) -> dict[str, Any]:
    event = {"producer": "planner", "sessionId": "s1", "eventId": "e1", "replyToken": "r1"}
    record = foreign(issue, aaep=event | more)
    (upkeep.files.directory / f"issue-{issue}.json").write_text(json.dumps({"clarifications": [record]}))
    upkeep.files.numbers.note(issue, 1)  # as whoever gave the number out did
    return record


async def a_storage(path: Path) -> Path:
    store = await Store.open(path)
    await store.run("insert into counters values ('issue', 100005)")
    await store.close()
    return path


def rows(path: Path, sql: str) -> list[Any]:
    with closing(sqlite3.connect(path)) as db:
        return db.execute(sql).fetchall()


async def test_backup_knows_what_a_ledger_got_after_the_storage_was_copied(
    tmp_path: Path, upkeep: FileLedger
) -> None:
    """Else the producer's next telling of it would be asked as another question."""
    database = await a_storage(tmp_path / "clarify.db")
    a_ledger(upkeep, 100_009)
    backup(InFiles(upkeep.files, database), tmp_path / "copy", now=NOW, release="1")
    copied = tmp_path / "copy/clarify.db"
    assert rows(copied, "select producer, event_id, session_id, issue, token, state from inbox") == [
        ("planner", "e1", "s1", 100_009, "r1", "done")
    ]
    assert rows(copied, "select issue from sessions") == [(100_009,)]
    assert rows(copied, "select value from counters") == [(100_009,)]
    assert rows(database, "select 1 from inbox") == []


async def test_backup_takes_archive_and_broken_files_and_numbers(tmp_path: Path, upkeep: FileLedger) -> None:
    database = await a_storage(tmp_path / "clarify.db")
    a_ledger(upkeep)
    upkeep.files.archive.folder.mkdir()
    (upkeep.files.directory / "archive/issue-8.json").write_text('{"clarifications": []}')
    (upkeep.files.directory / "issue-7.json.unreadable-20260101T000000000000").write_text("{ broken")
    upkeep.files.numbers.note(7, 12)
    before = {
        path.relative_to(upkeep.files.directory): path.read_bytes()
        for path in upkeep.files.directory.rglob("issue-*")
        if ".clarify" not in path.parts
    }
    backup(InFiles(upkeep.files, database), tmp_path / "copy", now=NOW, release="1")
    for path in before:
        (upkeep.files.directory / path).unlink()
    upkeep.files.numbers.path(7).unlink()

    restore(tmp_path / "copy", InFiles(upkeep.files, tmp_path / "new.db"), now=NOW, replace=False)

    assert {path: (upkeep.files.directory / path).read_bytes() for path in before} == before
    assert upkeep.files.numbers.highest(7) >= 12 + 100
    assert rows(tmp_path / "new.db", "select value from counters") == [(101_005,)]
    assert rows(tmp_path / "new.db", "pragma auto_vacuum") == [(2,)]


async def test_restore_moves_aside_what_is_there(tmp_path: Path, upkeep: FileLedger) -> None:
    database = await a_storage(tmp_path / "clarify.db")
    a_ledger(upkeep)
    backup(InFiles(upkeep.files, database), tmp_path / "copy", now=NOW, release="1")
    a_ledger(upkeep, 9)
    restore(tmp_path / "copy", InFiles(upkeep.files, database), now=NOW, replace=True)
    aside = upkeep.files.directory / "before-restore-20261122T090000"
    assert sorted(path.name for path in aside.iterdir()) == ["issue-7.json", "issue-9.json"]
    assert sorted(upkeep.files.by_issue()) == [7]
    assert (tmp_path / "clarify.db.before-restore-20261122T090000").exists()


async def test_restore_gives_no_page_a_number_that_stands_in_slack(
    tmp_path: Path, upkeep: FileLedger
) -> None:
    """A press of Take on a page that was sent after the backup takes nothing else."""
    database = await a_storage(tmp_path / "clarify.db")
    backup(InFiles(upkeep.files, database), tmp_path / "copy", now=NOW, release="1")
    sent = await _paged(database)
    restore(tmp_path / "copy", InFiles(upkeep.files, database), now=NOW, replace=True)
    incident, page = await _paged(database)
    assert (incident - sent[0], page - sent[1]) == (1000, 1000)


async def _paged(database: Path) -> tuple[int, int]:
    """The numbers of a page and what it is about."""
    store = await Store.open(database)
    try:
        clock = ManualClock()
        incidents = Incidents(store, clock, lambda _: None)
        found = await incidents.raise_(NewIncident("errored:1", "It broke", "Broke"))
        assert found is not None
        to = (Destination("slack", "U0ONCALL"),)
        pages = Pages(store, incidents, InFlight(), clock)
        sendings = await pages.send(Batch(found.group, 0, (Item(found.id, 0),), to))
        return found.id, sendings[0].page
    finally:
        await store.close()


async def test_restore_has_readers_of_replies_miss_none(tmp_path: Path, upkeep: FileLedger) -> None:
    """One that read on after the backup says so, by a number that is then another reply's."""
    clock, copy = ManualClock(), tmp_path / "copy"
    async with life(tmp_path, clock) as before:
        await before.post(asked(clock))
        reader = await before.push().open(None)
        backup(InFiles(upkeep.files, tmp_path / "clarify.db"), copy, now=NOW, release="1")
        last, _ = await _read(before, reader, TOKEN)
    restore(copy, InFiles(upkeep.files, tmp_path / "clarify.db"), now=NOW, replace=True)
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
    (copy / "ledgers/issue-7.json").write_bytes(b"{}")


def _gone(copy: Path) -> None:
    (copy / "clarify.db").unlink()


def _outside(copy: Path) -> None:
    _edit(copy, "files", [{"path": "ledgers/../../x", "size": 0, "sha256": ""}])


def _newer(copy: Path) -> None:
    _edit(copy, "storage_version", 999)


def _newer_format(copy: Path) -> None:
    _edit(copy, "format", 2)


def _none(copy: Path) -> None:
    (copy / "manifest.json").unlink()


def _edit(copy: Path, field: str, value: Any) -> None:
    manifest = json.loads((copy / "manifest.json").read_text())
    (copy / "manifest.json").write_text(json.dumps(manifest | {field: value}))


@pytest.mark.parametrize("damage", [_cut, _gone, _outside, _newer, _newer_format, _none])
async def test_restore_of_a_damaged_backup_changes_nothing(
    tmp_path: Path, upkeep: FileLedger, damage: Any
) -> None:
    database = await a_storage(tmp_path / "clarify.db")
    a_ledger(upkeep)
    backup(InFiles(upkeep.files, database), tmp_path / "copy", now=NOW, release="1")
    damage(tmp_path / "copy")
    with pytest.raises(BackupError):
        restore(tmp_path / "copy", InFiles(upkeep.files, database), now=NOW, replace=True)
    assert sorted(upkeep.files.by_issue()) == [7]
    assert not list(upkeep.files.directory.glob("before-restore-*"))


async def test_restore_refuses_where_the_storage_is_held(tmp_path: Path, upkeep: FileLedger) -> None:
    database = await a_storage(tmp_path / "clarify.db")
    backup(InFiles(upkeep.files, database), tmp_path / "copy", now=NOW, release="1")
    with FileLock(f"{database}.lock"), pytest.raises(StorageInUseError):
        restore(tmp_path / "copy", InFiles(upkeep.files, database), now=NOW, replace=True)


async def test_backup_that_fails_leaves_nothing(
    tmp_path: Path, upkeep: FileLedger, monkeypatch: pytest.MonkeyPatch
) -> None:
    a_ledger(upkeep)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(shutil, "copyfile", full)
    with pytest.raises(BackupError, match="No space left"):
        backup(InFiles(upkeep.files, tmp_path / "none.db"), tmp_path / "copy", now=NOW, release="1")
    assert not [path for path in tmp_path.glob("*") if path != upkeep.files.directory]  # noqa: ASYNC240 - nobody waits


@pytest.mark.parametrize("more", [(), ("--copy",)])
async def test_restored_bot_keeps_its_buttons_and_a_copy_does_not(
    stage: World, more: tuple[str, ...]
) -> None:
    copy = stage.folder / "copy"
    async with stage.bot() as bot:
        before = bot.base.store.installation
        card = await stage.ask()
        assert (await beside(stage, "backup", str(copy))).code == 0
    lost(stage)
    done = await beside(stage, "restore", str(copy), *more)
    assert done.code == 0, done.err
    async with stage.bot() as bot:
        assert (bot.base.store.installation == before) is (not more)
        await stage.workspace.click(FOLAKE, AGENTS, card.ts, label="Yes")
        if more:
            await stage.whisper(FOLAKE, "nother installation of clarify-bot")
            assert stage.record()["status"] == "pending"
        else:
            assert (await stage.reply())["response"] is True
