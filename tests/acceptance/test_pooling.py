"""The bot behind a real PgBouncer in transaction mode, where one is installed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from bot.check import check_machine
from bot.settings.load import parse_settings
from tests.acceptance.test_replicas import until_taken
from tests.kit import world as worlds
from tests.kit.databases import Bouncer, set_read_only
from tests.kit.lives import beside
from tests.kit.world import World, environment, scene
from workspace.seed import ADE, AGENTS


@pytest.fixture
async def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bouncer: Bouncer) -> AsyncIterator[World]:
    monkeypatch.setattr(worlds, "new_database", lambda: bouncer.url)
    async with scene(tmp_path) as made:
        yield made


async def checked(stage: World) -> str:
    settings = parse_settings(
        stage.file.read_text(), file=stage.file, environ=environment(stage.workspace) | stage.environ
    )
    results = await asyncio.to_thread(lambda: list(check_machine(settings)))
    assert all(each.ok for each in results), results
    return "\n".join(each.text for each in results)


@pytest.mark.parametrize("direct", [False, True])
async def test_questions_are_asked_and_answered_behind_a_pooling_proxy(
    stage: World, bouncer: Bouncer, direct: bool
) -> None:
    if direct:
        stage.environ["CLARIFY_LISTEN_URL"] = bouncer.direct
        text = stage.file.read_text().replace("[storage]", '[storage]\nlisten_url_env = "CLARIFY_LISTEN_URL"')
        stage.configure(text)
    found = await checked(stage)
    assert "a pooler in transaction mode" in found
    assert ("notifications arrive" in found) is direct
    async with stage.bot():
        card = await stage.ask()
        assert (await stage.workspace.click(ADE, AGENTS, card.ts, label="Yes")).ok
        assert (await stage.reply())["response"] is True
        await stage.now_says(card, f"<@{ADE}>")
        await stage.ask("rpl_2", question="Which port?", session="s2", accepted_response_kinds=["freetext"])
        # Written by another process: it is heard of, through the proxy or past it.
        done = await beside(stage, "answer", "CLR-100002-001", "8080")
        assert done.code == 0, done.err
        assert (await stage.reply("rpl_2"))["response"] == "8080"
        done = await beside(stage, "forget", "s2", "--yes")
        assert done.code == 0, done.err
        done = await beside(stage, "backup", str(stage.folder / "copy"))
        assert done.code == 0, done.err
    done = await beside(stage, "restore", str(stage.folder / "copy"), "--replace")
    assert done.code == 0, done.err
    assert stage.record()["status"] == "resolved"


async def test_sessions_of_the_proxy_that_stay_read_only_are_ended(stage: World, bouncer: Bouncer) -> None:
    async with stage.bot():
        stage.slack_waits(3.0)
        card = await stage.ask()
        set_read_only(bouncer.direct, "on")
        await asyncio.to_thread(bouncer.renew)
        assert not (await stage.workspace.click(ADE, AGENTS, card.ts, label="Yes")).ok
        set_read_only(bouncer.direct, "off")
        await until_taken(stage, card)
        assert (await stage.reply())["response"] is True
