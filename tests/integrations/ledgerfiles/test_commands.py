"""Commands that copy, restore, clean up and forget, beside ledger files."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.acceptance.test_keeping import ISSUE, clarification_of, retention
from tests.acceptance.upkeep import erasing, kept, shown
from tests.integrations.ledgerfiles.kit import accused, in_file
from tests.kit.lives import beside
from tests.kit.until import until
from tests.kit.world import World, controls, scene
from tests.scenario.other_parties import another_writes, answers, held
from tests.unit.core.test_ledgeracts import asked
from workspace.seed import AGENTS, FOLAKE

SECRET = "tell-nobody-7f3a"


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncIterator[World]:
    async with scene(tmp_path) as made:
        yield made


async def test_older_state_beside_newer_files_accuses_nobody(stage: World) -> None:
    """What was decided after the backup stands in the files, and would count as another program's answer."""
    copy = stage.folder / "copy"
    async with stage.bot():
        card = await stage.ask()
        await stage.in_step()
        assert (await beside(stage, "backup", str(copy))).code == 0
        await stage.workspace.click(FOLAKE, AGENTS, card.ts, label="Yes")
        await stage.reply()
        await until(lambda: stage.record()["status"] == "resolved")
        await stage.in_step()
    await another_writes(stage, answers("Theirs"))
    newer = stage.ledger_file().read_text()
    (stage.folder / "ledgers/.clarify/installation").write_text("a database that began anew")

    done = await beside(stage, "restore", str(copy), "--replace", "--json")
    assert done.code == 0, done.err
    aside = Path(json.loads(done.out)["ledgerFiles"])
    assert f"The previous ledger files are in {aside}." in done.err
    assert (aside / "issue-100001.json").read_text() == newer
    async with stage.bot() as bot:
        await stage.in_step()
        assert (stage.folder / "ledgers/.clarify/installation").read_text() == bot.store.installation
        assert stage.record()["status"] == "pending"
        await stage.until(lambda: controls(stage.cards()[0]) == ["Yes", "No", "Take"])
        await stage.workspace.click(FOLAKE, AGENTS, card.ts, label="No")
        await stage.until(lambda: stage.record()["status"] != "pending")
        assert stage.record()["aaep"]["decidedBy"] == f"user:slack/T0LOCAL/{FOLAKE}"
        await stage.in_step()
    assert accused(stage) == []


def put_away(stage: World, issue: int = 100001) -> None:
    """A ledger file is in the archive, too, beside a later one of the issue, and was set aside once."""
    words = stage.ledger_file(issue).read_text()
    assert SECRET in words
    folder = stage.ledger_file(issue).parent
    (folder / "archive").mkdir(exist_ok=True)
    (folder / f"archive/issue-{issue}.2.json").write_text(words)
    (folder / f"issue-{issue}.json.unreadable-20261128T100000000000").write_text(words[:-5])


@pytest.mark.parametrize("is_running", [True, False])
async def test_files_are_blanked_wherever_they_are(stage: World, is_running: bool) -> None:
    async with stage.bot() as bot, erasing(bot):
        await stage.ask(question=f"{SECRET}?")
        await stage.in_step()
        put_away(stage)
        if is_running:
            done = await beside(stage, "forget", "sess_one", "--yes", "--abandon")
            assert not list(kept(stage, SECRET))
            (row,) = await bot.base.store.read("select base from ledgerfiles")
            assert [len(states) for states in json.loads(row["base"]).values()] == [1], "digests of words"
    if not is_running:
        done = await beside(stage, "forget", "sess_one", "--yes", "--abandon")
        assert not list(kept(stage, SECRET))
        async with stage.bot():
            await stage.in_step()
    assert done.code == 0, done.err
    assert "Deleted 1 ledger file that had been set aside as unreadable." in done.err
    assert "May still contain" not in done.err
    assert accused(stage) == []


async def test_file_that_somebody_holds_is_waited_for(stage: World) -> None:
    async with stage.bot() as bot, erasing(bot):
        await stage.ask(question=f"{SECRET}?")
        await stage.in_step()
        with held(stage, 100001):
            command = asyncio.create_task(beside(stage, "forget", "sess_one", "--yes", "--abandon"))
            await until(lambda: SECRET not in json.dumps(stage.record()))
            await stage.until(lambda: not list(shown(stage.workspace, SECRET)))
            assert SECRET in stage.ledger_file().read_text()
            assert not command.done()
        done = await command
        assert (done.code, "May still contain" in done.err) == (0, False), done
        assert not list(kept(stage, SECRET))


async def test_file_that_stays_held_is_named(stage: World) -> None:
    async with stage.bot():
        await stage.ask(question=f"{SECRET}?")
        await stage.in_step()
    with held(stage, 100001):
        done = await beside(stage, "forget", "sess_one", "--yes", "--abandon")
        assert done.code == 0, done
        assert "May still contain some of it: issue-100001.json." in done.err
    done = await beside(stage, "forget", "sess_one", "--yes")
    assert (done.code, "May still contain" in done.err) == (0, False), done
    assert not list(kept(stage, SECRET))


async def test_record_of_another_installation_with_that_id_stays(stage: World) -> None:
    async with stage.bot():
        await stage.ask(question=f"{SECRET}?")
        await stage.in_step()
    stage.changed("update ledgerfiles set base = '{}'")  # the bridge never wrote what stands there
    (stage.folder / "ledgers/.clarify/installation").write_text("another")
    broken = stage.ledger_file().with_name("issue-100001.json.unreadable-20261128T100000000000")
    broken.write_text("{")
    done = await beside(stage, "forget", "sess_one", "--yes", "--abandon")
    assert f"May still contain some of it: {broken.name}." in done.err, done
    assert SECRET in stage.ledger_file().read_text()
    assert broken.exists()


async def test_folder_that_is_away_is_named(stage: World) -> None:
    async with stage.bot():
        await stage.ask(question=f"{SECRET}?")
        await stage.in_step()
    (stage.folder / "ledgers").rename(stage.folder / "elsewhere")
    done = await beside(stage, "forget", "sess_one", "--yes", "--abandon")
    assert f"May still contain some of it: {stage.folder / 'ledgers'}." in done.err, done
    assert not (stage.folder / "ledgers").exists()


@pytest.mark.parametrize("is_copied", [False, True])
async def test_ledger_file_keeps_what_the_database_has_no_more(stage: World, is_copied: bool) -> None:
    """Other programs number by what is in it. It does not count as news, even if the folder was copied without the files whose
    names begin with a dot; what another program asks there does.
    """
    async with stage.bot() as bot:
        card = await stage.ask("rpl_1", question="Rotate?", session="s1", **ISSUE)
        await stage.workspace.click(FOLAKE, AGENTS, card.ts, label="Yes")
        await stage.reply("rpl_1")
        await stage.says("state.changed", session="s1", from_state="awaiting_input", to_state="thinking")
        await until(lambda: stage.record(42)["aaep"]["reply"] == "confirmed")
        await stage.until(lambda: bot.show.lanes.length == 0)
        await stage.in_step(42)
        await retention(bot).tidy()
        assert not await bot.store.read("select 1 from clarifications")
    (marker,) = stage.folder.rglob(".clarify/installation")
    file = marker.parent.parent / "issue-42.json"
    if is_copied:
        shutil.rmtree(marker.parent)
    held = json.loads(file.read_text())
    theirs = {"id": "CLR-42-007", "issueNumber": 42, "to": "human", "aaep": None}
    file.write_text(json.dumps({**held, "clarifications": [*held["clarifications"], asked() | theirs]}))
    expected = [f"CLR-42-{n}" for n in ("001", "007", "008")]
    async with stage.bot():
        await stage.card("Which database?")
        await stage.ask("rpl_2", question="And now?", session="s2", **ISSUE)
        await until(lambda: [each["id"] for each in in_file(stage, 42)] == expected)
        assert [clarification_of(card) for card in stage.cards()] == expected
