"""A second bot on the same database, which does not lead: what it knows, and what it leaves to the one that does."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import NamedTuple

import pytest

from bot.app import Bot
from tests.kit.databases import Server
from tests.kit.until import until
from tests.kit.world import World
from workspace.seed import AGENTS, FALLBACK


class Two(NamedTuple):
    leader: Bot
    follower: Bot


@pytest.fixture
async def two(stage: World, postgres_server: Server) -> AsyncIterator[Two]:
    stage.keep_in(postgres_server.new())
    async with stage.bot() as leader, stage.bot() as follower:
        assert (leader.store.leads, follower.store.leads) == (True, False)
        yield Two(leader, follower)


async def test_every_bot_lists_the_agents_that_the_leader_hears(stage: World, two: Two) -> None:
    for session in ("one", "two"):
        await stage.says("tool.completed", session=session)
        async with asyncio.timeout(60):
            for bot in two:
                while session not in {fact.session_id for fact in await bot.agents.sessions.facts()}:  # noqa: ASYNC110 - the listing must be asked for
                    await asyncio.sleep(0.01)


async def test_follower_has_the_leader_read_what_both_may_have_missed(
    stage: World, two: Two, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[Bot] = []
    for bot in two:

        async def look(bot: Bot = bot) -> int:
            looked.append(bot)
            return 0

        monkeypatch.setattr(bot.slack.app.backfill, "look", look)
    two.follower.catch_up.schedule()
    await until(lambda: bool(looked))
    assert looked == [two.leader]


async def test_lost_channel_is_known_to_both_and_told_once(stage: World, two: Two) -> None:
    stage.workspace.archive(AGENTS)
    await until(lambda: all(AGENTS in bot.agents.channels.lost for bot in two))
    await stage.message("was archived", FALLBACK)
    stage.workspace.archive(AGENTS, undo=True)
    await until(lambda: not any(bot.agents.channels.lost for bot in two))
    await stage.message("can post in", FALLBACK)
    assert len(stage.workspace.messages(FALLBACK)) == 1  # the first message was updated
