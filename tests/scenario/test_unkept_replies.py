"""Promise P10 where a reply could not be kept: nobody acknowledged it, so it is looked for again, without a restart."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from pathlib import Path

import pytest

from bot.app import Bot
from tests.kit.clocks import LeapClock
from tests.kit.world import World, scene
from tests.scenario.test_confirmations import confirm
from tests.scenario.test_http_mode import SOON, in_use
from workspace.seed import ADE, AGENTS, FOLAKE

pytestmark = pytest.mark.files("a program that writes into SQLite's file locks out the bot")

MODES = ["socket", "http"]


@pytest.fixture
async def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[World]:
    monkeypatch.setattr("bot.storage.sqlite._BUSY_MS", 20)
    async with scene(tmp_path, SOON, LeapClock(5)) as made:
        yield made


def running(stage: World, mode: str) -> AbstractAsyncContextManager[Bot]:
    return stage.bot() if mode == "socket" else in_use(stage)


@contextmanager
def storage_busy(stage: World) -> Iterator[None]:
    """Somebody else writes into the storage, for longer than Slack tries."""
    other = sqlite3.connect(stage.folder / "clarify.db", isolation_level=None)
    try:
        other.execute("begin immediate")
        yield
        other.execute("rollback")
    finally:
        other.close()


async def refused_for_good(stage: World) -> None:
    """Slack gave up."""
    await stage.until(lambda: any(a.attempt == 3 and not a.ok for a in stage.workspace.acks))


@pytest.mark.parametrize("mode", MODES)
async def test_p10_reply_that_could_not_be_kept_is_found_when_the_storage_is_back(
    stage: World, mode: str
) -> None:
    async with running(stage, mode) as bot:
        stage.slack_waits(0.5)
        card = await stage.ask()
        await bot.board.messages.in_flight.settled()
        with storage_busy(stage):
            await stage.workspace.post(ADE, AGENTS, "no", thread_ts=card.ts)
            told = await stage.whisper(ADE, "could not be saved")
            assert told.thread_ts == card.ts
            await refused_for_good(stage)
            assert stage.record()["status"] == "pending"
        assert (await stage.reply())["response"] is False
    assert len(stage.workspace.ephemerals(ADE)) == 1


async def test_rejection_that_mentions_someone_is_kept_like_any_other_reply(stage: World) -> None:
    stage.slack_waits(0.5)
    async with stage.bot() as bot:
        card = await confirm(stage)
        await bot.board.messages.in_flight.settled()
        with storage_busy(stage):
            await stage.workspace.post(ADE, AGENTS, f"reject: <@{FOLAKE}> please fix first", card.ts)
            await stage.whisper(ADE, "could not be saved")
            await refused_for_good(stage)
        assert (await stage.reply())["decision"] == "reject"


async def test_talk_that_could_not_be_kept_gets_no_word(stage: World) -> None:
    stage.slack_waits(0.5)
    async with stage.bot() as bot:
        card = await stage.ask()
        await bot.board.messages.in_flight.settled()
        with storage_busy(stage):
            await stage.workspace.post(ADE, AGENTS, "note: lunch?", thread_ts=card.ts)
            elsewhere = await stage.workspace.post(ADE, AGENTS, "lunch?")
            await stage.workspace.post(FOLAKE, AGENTS, "yes", thread_ts=elsewhere.ts)
            await stage.until(
                lambda: len([a for a in stage.workspace.acks if a.attempt == 3 and not a.ok]) == 2
            )
    assert not stage.workspace.ephemerals(ADE)
    assert not stage.workspace.ephemerals(FOLAKE)
