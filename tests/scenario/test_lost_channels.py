"""Slack says that the bot can post nothing any more, in a channel or anywhere: people hear of it where they still can."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.kit.until import until
from tests.kit.world import World, config, said, url_of
from tests.scenario.pagers import night, pager, step
from tests.scenario.typist import FREE
from workspace.seed import ADE, AGENTS, BOT_USER, FALLBACK, FOLAKE, ONCALL
from workspace.state import Message

YES_NO: dict[str, Any] = {"accepted_response_kinds": ["yes_no"]}
LOSE: dict[str, tuple[Callable[[World, str], object], str, str]] = {
    "archive": (lambda stage, channel: stage.workspace.archive(channel), "was archived", "Unarchive it"),
    "leave": (
        lambda stage, channel: stage.workspace.leave(BOT_USER, channel),
        "doesn't have the bot as a member",
        "/invite @clarify",
    ),
    "delete": (
        lambda stage, channel: stage.workspace.delete_channel(channel),
        "was deleted",
        "name another channel",
    ),
}
BACK: dict[str, Callable[[World, str], object]] = {
    "archive": lambda stage, channel: stage.workspace.archive(channel, undo=True),
    "leave": lambda stage, channel: stage.workspace.join(BOT_USER, channel),
}


async def readiness(stage: World) -> dict[str, Any]:
    async with httpx.AsyncClient(base_url=url_of(stage.bots[0])) as http:
        ready: dict[str, Any] = (await http.get("/readyz")).json()
    return ready


async def degraded(stage: World) -> str:
    """What /readyz says of channels."""
    found = (each["why"] for each in (await readiness(stage))["degraded"] if each["name"] == "channels")
    return next(found, "")


async def why_not_ready(stage: World) -> str:
    """What /readyz says of Slack, once every bot has heard of it."""
    await until(lambda: all(bot.base.availability.refused for bot in stage.bots))
    ready = await readiness(stage)
    assert not ready["ready"]
    why: str = next(each["why"] for each in ready["checks"] if each["name"] == "slack")
    return why


def told_of(stage: World, channel: str, place: str = FALLBACK) -> list[Message]:
    return [
        m for m in stage.workspace.messages(place) if f"<#{channel}>" in m.text and "clarify.toml" in m.text
    ]


@pytest.mark.either_database
@pytest.mark.parametrize("how", LOSE)
async def test_lost_channel_is_told_once_and_its_open_questions_move_at_once(stage: World, how: str) -> None:
    lose, why, what_to_do = LOSE[how]
    async with stage.bot():
        await stage.ask("rpl_1", question="Still open?", session="one", **FREE)
        done = await stage.ask("rpl_2", question="Done?", session="two", **YES_NO)
        await stage.workspace.click(FOLAKE, AGENTS, done.ts, label="No")
        await stage.reply("rpl_2")
        lose(stage, AGENTS)
        notice = await stage.message(why, FALLBACK)
        assert what_to_do in notice.text
        assert "`routes[0].channel`" in notice.text
        card = await stage.card("Still open?", FALLBACK)
        assert "is_archived" in await degraded(stage) or how != "archive"
        assert AGENTS in await degraded(stage)
        await stage.workspace.post(ONCALL, FALLBACK, "yes, there", thread_ts=card.ts)
        assert (await stage.reply("rpl_1"))["response"] == "yes, there"
        await stage.emit("rpl_3", question="Next?", session="three")
        await stage.card("Next?", FALLBACK)
    async with stage.bot():  # it looks again, and has nothing new to tell
        await stage.emit("rpl_4", question="After a restart?", session="four")
        await stage.card("After a restart?", FALLBACK)
        assert AGENTS in await degraded(stage)
    assert len(told_of(stage, AGENTS)) == 1
    assert "Done?" not in "".join(map(said, stage.workspace.messages(FALLBACK)))


async def test_two_open_questions_of_a_session_stay_in_one_thread(stage: World) -> None:
    async with stage.bot():
        await stage.ask("rpl_1", question="First?", **YES_NO)
        await stage.ask("rpl_2", question="Second?", **YES_NO)
        stage.workspace.archive(AGENTS)
        first, second = await stage.card("First?", FALLBACK), await stage.card("Second?", FALLBACK)
        assert second.thread_ts == first.ts


@pytest.mark.parametrize("how", BACK)
async def test_channel_that_is_back_changes_what_was_told(stage: World, how: str) -> None:
    async with stage.bot():
        LOSE[how][0](stage, AGENTS)
        notice = await stage.message(LOSE[how][1], FALLBACK)
        BACK[how](stage, AGENTS)
        await stage.now_says(notice, "can post in <#C0AGENTS> again")
        assert await degraded(stage) == ""
        await stage.ask()
        LOSE[how][0](stage, AGENTS)  # told anew
        await stage.until(
            lambda: len(told_of(stage, AGENTS)) == 1 and told_of(stage, AGENTS)[0].ts != notice.ts
        )


@pytest.mark.either_database
async def test_what_happens_to_channels_while_the_bot_is_down_is_told_at_its_start(stage: World) -> None:
    async with stage.bot():
        await stage.ask(question="Still open?", **YES_NO)
    stage.workspace.archive(AGENTS)
    async with stage.bot():
        notice = await stage.message("was archived", FALLBACK)
        await stage.card("Still open?", FALLBACK)
    stage.workspace.archive(AGENTS, undo=True)
    async with stage.bot():
        await stage.now_says(notice, "again")


@pytest.mark.parametrize("how", LOSE)
async def test_lost_fallback_channel_is_told_to_who_is_on_call_until_it_is_back(
    stage: World, how: str
) -> None:
    async with stage.bot():
        LOSE[how][0](stage, FALLBACK)
        told = await stage.page(f"<#{FALLBACK}> {LOSE[how][1]}")
        assert "`slack.fallback_channel`" in said(told)
        assert FALLBACK in await degraded(stage)
        await stage.ask()  # others go on
        if how in BACK:
            BACK[how](stage, FALLBACK)
            await stage.now_says(told, f"can post in <#{FALLBACK}> again")
            assert await degraded(stage) == ""
    async with stage.bot():
        await stage.ask("rpl_2", question="After a restart?")
        assert len(told_of(stage, FALLBACK, told.channel)) == (how not in BACK)


@pytest.mark.parametrize("how", BACK)
async def test_channel_lost_after_the_fallback_is_told_to_who_is_on_call_and_its_questions_page(
    stage: World, how: str
) -> None:
    async with stage.bot():
        card = await stage.ask(question="Still open?", **YES_NO)
        stage.workspace.archive(FALLBACK)
        await stage.page(f"<#{FALLBACK}> was archived")
        LOSE[how][0](stage, AGENTS)
        told = await stage.page(f"<#{AGENTS}> {LOSE[how][1]}")
        assert "shown in the fallback" not in said(told)
        page = await stage.page("could not be shown anywhere")
        assert stage.cards() == [card]  # who still sees it there can still click
        await stage.workspace.click(ONCALL, page.channel, page.ts, label="Yes")
        await stage.reply()


async def test_lost_fallback_channel_is_told_in_another_where_nobody_is_on_call(stage: World) -> None:
    stage.configure(config(stage.producer.url).replace('on_call = "platform"\n', ""))
    async with stage.bot():
        stage.workspace.archive(FALLBACK)
        await stage.message(f"<#{FALLBACK}> was archived", AGENTS)


async def test_channel_that_nothing_needs_is_nobody_s_concern(stage: World) -> None:
    async with stage.bot():
        stage.workspace.join(BOT_USER, "C0RANDOM")
        stage.workspace.archive("C0RANDOM")
        await stage.heard("channel_archive")
        assert await degraded(stage) == ""
        assert not told_of(stage, "C0RANDOM")


@pytest.mark.needs("apprise")
@pytest.mark.either_database
async def test_app_that_was_removed_is_told_outside_at_once(tmp_path: Path) -> None:
    """Nobody hears of it in Slack."""
    async with night(tmp_path) as stage, pager() as outside:
        stage.environ["PAGER_URL"] = outside.url
        async with stage.bot(stage.config(step("0s", "dm"), step("15m", "apprise:PAGER_URL"))) as bot:
            stage.workspace.uninstall()
            told = await outside.says("cannot reach Slack")
            assert "account_inactive" in told["message"]
            assert "Install the app again" in told["message"]
            assert "Install the app again" in await why_not_ready(stage)
            assert await bot.store.trouble() is None
            stage.workspace.uninstall(undo=True)
            stage.clock.leap(timedelta(seconds=20))
            await outside.says("reaches Slack again")
            assert (await readiness(stage))["ready"]
    assert len(outside.told) == 2


async def test_token_of_someone_else_that_was_revoked_is_no_outage(stage: World) -> None:
    async with stage.bot() as bot:
        stage.workspace.emit({"type": "tokens_revoked", "tokens": {"oauth": [ADE], "bot": []}})
        await stage.heard("tokens_revoked")
        await stage.until(lambda: stage.calls("auth.test") >= 2)
        await stage.ask()
        assert not bot.slack_outage.is_raised
        assert (await readiness(stage))["ready"]
