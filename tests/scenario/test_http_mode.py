"""Slack over HTTP: the whole bot behind a request URL, the workspace that sends to it, an agent."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import pytest
import structlog

from bot.app import Bot
from bot.settings.load import parse_settings, prepare_folders
from bot.workspace import Options
from bot.workspace.seed import ADE, AGENTS, BOT_TOKEN, FOLAKE, SIGNING_SECRET, USE_AS_ANSWER
from tests.kit.clocks import LeapClock
from tests.kit.world import World, config, controls, of_a_click, scene

SOON = Options(ack_timeout=30.0, retry_delays=(0.0, 0.05, 0.1))


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncIterator[World]:
    async with scene(tmp_path, SOON) as made:
        yield made


@dataclass
class Joined:
    """A bot in HTTP mode and the address of its server."""

    bot: Bot
    url: str


def environment(stage: World) -> dict[str, str]:
    return {
        "SLACK_BOT_TOKEN": BOT_TOKEN,
        "SLACK_SIGNING_SECRET": SIGNING_SECRET,
        "SLACK_API_URL": stage.workspace.api_url,
    }


@asynccontextmanager
async def serving(stage: World, *, start: bool = True, port: int = 0) -> AsyncIterator[Joined]:
    """The bot in HTTP mode; with `start` it is ready for clicks."""
    text = config(stage.producer.url, more=f'[http]\nlisten = "127.0.0.1:{port}"\n')
    text = text.replace('mode = "socket"', 'mode = "http"')
    settings = parse_settings(text, file=stage.folder / "clarify.toml", environ=environment(stage))
    prepare_folders(settings)
    bot = await Bot.build(settings, stage.clock, random.Random(7))  # noqa: S311 - jitter
    try:
        await bot.start()
        if start:
            await asyncio.wait_for(bot.slack.ready.wait(), 60)
        assert bot._http is not None
        yield Joined(bot, f"{bot._http.url}/slack/events")
    finally:
        await bot.stop()


@asynccontextmanager
async def in_use(stage: World) -> AsyncIterator[Bot]:
    """The bot, and the workspace told to send to it."""
    async with serving(stage) as joined:
        await stage.workspace.link.requests.set_url(joined.url)
        yield joined.bot


async def test_click_that_names_no_team_is_of_the_home_team(stage: World) -> None:
    async with in_use(stage):
        card = await stage.ask()
        payload = of_a_click(stage, ADE, card)
        payload["team"] = None
        del payload["user"]["team_id"]
        assert (await stage.workspace.link.deliver("interactive", payload)).ok
        assert (await stage.reply())["decided_by"] == f"user:slack/T0LOCAL/{ADE}"


async def test_question_is_answered_by_a_click(stage: World) -> None:
    async with in_use(stage):
        card = await stage.ask()
        assert (await stage.workspace.click(ADE, AGENTS, card.ts, label="Yes")).ok
        assert (await stage.reply())["response"] is True
        answered = await stage.now_says(card, f"<@{ADE}>")
        assert "Yes" not in controls(answered)
    assert not stage.workspace.link.connections
    assert stage.calls("apps.connections.open", ok=False) == 0


async def test_question_is_answered_in_a_modal_that_first_says_what_to_mend(stage: World) -> None:
    async with in_use(stage):
        card = await stage.ask(accepted_response_kinds=["yes_no", "freetext"])
        assert (await stage.workspace.click(FOLAKE, AGENTS, card.ts, label="Answer…")).ok
        await stage.modal(FOLAKE)
        outcome = await stage.workspace.submit_view(FOLAKE, {"Your answer": "Later", "Yes or no": "Yes"})
        assert set(outcome.errors.values()) == {"Fill in exactly one of these, and empty the others."}
        filled = {"Your answer": "Later: «ça» & so on", "Yes or no": "None of these"}
        assert (await stage.workspace.submit_view(FOLAKE, filled)).ok
        assert (await stage.reply())["response"] == "Later: «ça» & so on"
        assert not stage.workspace.views(FOLAKE)


async def test_question_is_answered_in_the_thread(stage: World) -> None:
    async with in_use(stage):
        card = await stage.ask()
        await stage.workspace.post(ADE, AGENTS, "no", card.ts)
        assert (await stage.reply())["response"] is False


async def test_command_is_answered_in_its_response(stage: World) -> None:
    async with in_use(stage):
        await stage.ask()
        assert (await stage.workspace.command(ADE, AGENTS, "/clarify", "help")).ok
        assert "CLR-" in (await stage.whisper(ADE, "/clarify")).text


async def test_command_that_says_payload_is_heard(stage: World) -> None:
    """Bolt reads forms with that word in them as if they were interactions, and finds nothing there."""
    async with in_use(stage):
        await stage.ask(accepted_response_kinds=["freetext"])
        number = stage.record()["id"]
        words = "the payload is = too large & so on"
        assert (await stage.workspace.command(ADE, AGENTS, "/clarify", f"answer {number} {words}")).ok
        assert (await stage.reply())["response"] == words


async def test_message_is_used_as_the_answer_by_a_shortcut(stage: World) -> None:
    async with in_use(stage):
        card = await stage.ask(accepted_response_kinds=["freetext"])
        said = await stage.workspace.post(FOLAKE, AGENTS, "note: the blue one", card.ts)
        assert (await stage.workspace.shortcut(ADE, USE_AS_ANSWER, said.ts, AGENTS)).ok
        assert (await stage.reply())["response"] == "note: the blue one"


async def test_home_tab_is_shown_to_who_opens_it(stage: World) -> None:
    async with in_use(stage):
        await stage.ask()
        await stage.workspace.open_home(ADE)
        await stage.until(
            lambda: (home := stage.workspace.home(ADE)) and "Shall I go on?" in str(home.payload)
        )


async def test_event_that_comes_twice_is_handled_once(stage: World) -> None:
    async with in_use(stage):
        card = await stage.ask()
        await stage.heard("message")
        stage.workspace.link.requests.spoil("lost")
        await stage.workspace.post(ADE, AGENTS, "yes", card.ts)
        await stage.reply()
        sent = await stage.until(lambda: [a for a in stage.workspace.acks if a.attempt == 1 and a.ok])
        first = [a for a in stage.workspace.acks if a.envelope_id == sent[0].envelope_id]
        assert [ack.failure for ack in first] == ["http_timeout", None]
    assert [entry["type"] for entry in stage.record()["thread"]].count("answer") == 1
    assert len(stage.producer.replies) == 1


async def test_requests_that_are_not_slacks_change_nothing(stage: World) -> None:
    async with in_use(stage):
        card = await stage.ask()
        for fault in ("bad_signature", "old_timestamp", "unsigned"):
            stage.workspace.link.requests.spoil(fault)
            with structlog.testing.capture_logs() as logs:
                outcome = await stage.workspace.click(ADE, AGENTS, card.ts, label="Yes")
            assert not outcome.ok
            assert stage.workspace.acks[-1].status == 401
            assert any("refused" in line["event"] and line["log_level"] == "warning" for line in logs)
        assert stage.record()["status"] == "pending"
        assert (await stage.workspace.click(ADE, AGENTS, card.ts, label="Yes")).ok


async def test_before_it_is_ready_slack_is_answered_but_nothing_taken(stage: World) -> None:
    stage.workspace.faults.add("auth.test", "refuse:internal_error", 1000)
    async with serving(stage, start=False) as joined:
        await stage.workspace.link.requests.set_url(joined.url)  # the challenge
        assert not (await stage.workspace.command(ADE, AGENTS, "/clarify", "help")).ok
        assert stage.workspace.acks[-1].status == 503
        stage.workspace.faults.clear()
        await asyncio.wait_for(joined.bot.slack.ready.wait(), 60)
        assert (await stage.workspace.command(ADE, AGENTS, "/clarify", "help")).ok


async def test_reply_written_while_the_bot_was_down_is_found_at_the_start(stage: World) -> None:
    async with in_use(stage):
        card = await stage.ask()
        await stage.heard("message")
    await stage.workspace.post(ADE, AGENTS, "yes", card.ts)
    async with in_use(stage):
        assert (await stage.reply())["response"] is True


async def test_reply_that_slack_gave_up_is_found_after_the_outage(stage: World) -> None:
    """Nothing of it arrives; what comes next shows that there was an outage."""
    async with in_use(stage):
        card = await stage.ask()
        await stage.heard("message")
        requests = stage.workspace.link.requests
        requests.spoil("unreachable", 4)
        await stage.workspace.post(ADE, AGENTS, "yes", card.ts)
        await stage.until(lambda: any(a.attempt == 3 and not a.ok for a in stage.workspace.acks))
        requests.spoil("unreachable")  # the first try of an event that comes through later
        await stage.workspace.post(FOLAKE, AGENTS, "anybody there?")
        assert (await stage.reply())["response"] is True


async def test_reply_lost_in_an_outage_that_nothing_tells_of_is_found_by_the_silence(tmp_path: Path) -> None:
    """Slack gave up for good before anything came through again: no retry shows that there was an outage."""
    clock = LeapClock(1.0)
    async with scene(tmp_path, SOON, clock) as stage, in_use(stage):
        card = await stage.ask(timeout_seconds=86400)
        await stage.heard("message")
        stage.workspace.link.requests.spoil("unreachable", 4)
        await stage.workspace.post(ADE, AGENTS, "yes", card.ts)
        await stage.until(lambda: any(a.attempt == 3 and not a.ok for a in stage.workspace.acks))
        clock.ahead += timedelta(minutes=10)
        await stage.workspace.post(FOLAKE, AGENTS, "good morning")
        assert (await stage.reply())["response"] is True
