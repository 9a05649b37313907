"""The whole bot while its storage is swept: nothing is lost, shown or sent twice."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest

from bot.app import Bot
from bot.retention.upkeep import Upkeep
from bot.workspace.seed import AGENTS, FOLAKE
from tests.kit.until import until
from tests.kit.world import World, config, said, scene

ISSUE = {"extensions": {"agentx": {"issue": 42}}}


@pytest.fixture
async def stage(tmp_path: Path, _database: None) -> AsyncIterator[World]:
    async with scene(tmp_path) as made:
        yield made


def retention(bot: Bot) -> Upkeep:
    """Keeps nothing that is over."""
    return Upkeep(
        store=bot.base.store,
        index=bot.base.index,
        clock=bot.base.clock,
        keep=timedelta(0),
    )


@pytest.mark.either_database
async def test_swept_while_the_bot_runs_and_starts_again(stage: World) -> None:
    async with stage.bot() as bot:
        keeper = retention(bot)
        card = await stage.ask("rpl_1", question="Rotate?", session="s1", **ISSUE)
        open_ = await stage.ask("rpl_2", question="Deploy?", session="s2")
        await keeper.tidy()
        await stage.workspace.click(FOLAKE, AGENTS, card.ts, label="Yes")
        await stage.reply("rpl_1")
        await stage.says("state.changed", session="s1", from_state="awaiting_input", to_state="thinking")
        await until(lambda: stage.record(42)["aaep"]["reply"] == "confirmed")
        await stage.until(lambda: bot.shown.lanes.length == 0)
        stage.changed("update inbox set expires_at = 1 where token = 'rpl_1'")  # long ago
        await keeper.tidy()
        await keeper.tidy()  # what is timeless goes once it was seen

        again = await stage.ask("rpl_3", question="Rotate once more?", session="s3", **ISSUE)
        assert (again.metadata or {})["event_payload"]["clarification"] == "CLR-42-002"
        # The agent tells its old question again: its record stands, though the inbox has it no more.
        assert not await bot.store.read("select 1 from inbox where token = 'rpl_1'")
        await stage.emit("rpl_1", session="s1", question="Rotate?", **ISSUE)
        await stage.ask("rpl_4", question="The one after that?", session="s4")

    async with stage.bot(config(stage.producer.url)) as bot:
        await retention(bot).tidy()
        await stage.workspace.click(FOLAKE, AGENTS, open_.ts, label="No")
        assert (await stage.reply("rpl_2"))["response"] is False
        await stage.workspace.click(FOLAKE, AGENTS, again.ts, label="Yes")
        assert (await stage.reply("rpl_3"))["response"] is True
        await stage.until(lambda: bot.shown.lanes.length == 0)
    for words in ("Rotate?", "Deploy?", "Rotate once more?", "The one after that?"):
        assert len([shown for shown in stage.cards() if words in said(shown)]) == 1, words
    tokens = [reply["reply_token"] for reply in stage.producer.replies]
    assert sorted(tokens) == ["rpl_1", "rpl_2", "rpl_3"]
