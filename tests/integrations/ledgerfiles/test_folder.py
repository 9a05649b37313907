"""A ledger folder that belongs to another installation: its records are left alone, and everybody can go on."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.integrations.ledgerfiles.kit import (
    ROLES,
    accused,
    file_of,
    in_file,
    in_step,
    in_store,
    text,
    theirs,
)
from tests.kit.lives import beside
from tests.kit.until import until
from tests.kit.world import World, config, scene
from tests.scenario.typist import of_issue
from workspace.seed import AGENTS, FOLAKE

ID = ".clarify/installation"


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncIterator[World]:
    async with scene(tmp_path) as made:
        made.configure(text(made))
        yield made


def ours(stage: World, folder: str = "ledgers") -> str:
    """A clarify.toml of an installation with a database of its own."""
    at = f'directory = "{folder}"'
    plain = config(stage.producer.url, more=ROLES).replace('directory = "ledgers"', at)
    return plain.replace("clarify.db", "ours.db")


def owner(stage: World) -> str:
    return (stage.folder / "ledgers" / ID).read_text()


async def test_folder_becomes_the_installations_that_begins_in_it(stage: World) -> None:
    async with stage.bot() as bot:
        await stage.ask()
        await in_step(stage)
        assert owner(stage) == bot.store.installation
    assert "another installation" not in (await beside(stage, "check")).out


async def left_by_another(stage: World) -> list[dict[str, Any]]:
    """What another installation has in its folder; ours has asked something before, elsewhere."""
    async with stage.bot():
        card = await stage.ask(question=f"Theirs, open? {'x' * 3000}", **of_issue(7))
        done = await stage.ask("rpl_2", session="sess_two", question="Theirs, done?", **of_issue(7))
        await stage.workspace.click(FOLAKE, AGENTS, done.ts, label="Yes")
        await stage.reply("rpl_2")
        await until(lambda: in_store(stage, 7)[1]["status"] == "resolved")
        left = await in_step(stage, 7)
        stage.workspace.board.delete(card)
    async with stage.bot(ours(stage, "elsewhere")):
        await stage.ask("rpl_3", session="sess_three", question="Ours?")
    return left


async def test_records_of_another_installation_are_left_alone(stage: World) -> None:
    left = await left_by_another(stage)
    before = owner(stage)
    stage.configure(ours(stage))
    async with stage.bot() as bot:
        assert bot.store.installation != before
        # Ours has the same id as one of theirs, and one that theirs does not have.
        for number, token in enumerate(("rpl_4", "rpl_5", "rpl_6")):
            card = await stage.ask(token, session=f"sess_{number}", question=f"Ours {number}?", **of_issue(7))
        await until(lambda: len(in_file(stage, 7)) == 3)
        assert in_file(stage, 7)[:2] == left
        assert not await bot.store.read("select 1 from incidents where kind = 'ledger'")
        assert in_file(stage, 7)[2]["thread"][0]["body"] == "Ours 2?"
        await stage.workspace.click(FOLAKE, AGENTS, card.ts, label="Yes")
        await stage.reply("rpl_6")
        await until(lambda: in_file(stage, 7)[2]["status"] == "resolved")
        checked = (await beside(stage, "check")).out
        assert f"belongs to another installation of clarify-bot ({before})" in " ".join(checked.split())
    assert in_file(stage, 7)[:2] == left
    assert owner(stage) == before
    assert accused(stage) == []
    assert not [card for card in stage.cards() if "Theirs, open" in json.dumps(card.blocks)]


async def test_question_of_another_implementation_there_is_asked_and_ours_is_guarded(stage: World) -> None:
    """Only what that installation wrote is its own."""
    await left_by_another(stage)
    whole = json.loads(file_of(stage, 7).read_text())
    whole["clarifications"].append(theirs(9))
    file_of(stage, 7).write_text(json.dumps(whole))
    stage.configure(ours(stage))
    async with stage.bot():
        card = await stage.card("Which database?")
        await stage.workspace.post(FOLAKE, AGENTS, "SQLite", thread_ts=card.ts)
        await until(lambda: in_file(stage, 7)[2]["status"] == "answered")
        whole = json.loads(file_of(stage, 7).read_text())
        whole["clarifications"][2]["thread"][0]["body"] = "Which queue?"
        file_of(stage, 7).write_text(json.dumps(whole))
        await until(lambda: accused(stage))
        await until(lambda: in_file(stage, 7)[2]["thread"][0]["body"] == "Which database?")


async def test_new_database_takes_the_folder_over(stage: World) -> None:
    async with stage.bot():
        card = await stage.ask()
        await in_step(stage)
    before = owner(stage)
    stage.configure(stage.file.read_text().replace("clarify.db", "new.db"))
    checked = " ".join((await beside(stage, "check")).out.split())
    assert "the first start on this new database imports its files" in checked
    async with stage.bot() as bot:
        await stage.now_says(card, "From a ledger file")
        await until(lambda: owner(stage) == bot.store.installation != before)
