"""Slack over HTTP: the whole bot behind a request URL, the workspace that sends to it, an agent."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
import structlog

from bot.app import Bot
from tests.kit.clocks import LeapClock
from tests.kit.world import PATIENT, World, config, controls, scene, url_of
from workspace.seed import ADE, AGENTS, FOLAKE, GIO, SIGNING_SECRET, USE_AS_ANSWER

SOON = replace(PATIENT, retry_delays=(0.0, 0.05, 0.1))


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncIterator[World]:
    async with scene(tmp_path, SOON) as made:
        yield made


@asynccontextmanager
async def in_use(stage: World) -> AsyncIterator[Bot]:
    """The bot in HTTP mode, and the workspace told to send to it."""
    async with over_http(stage) as bot:
        await stage.workspace.link.requests.set_url(f"{url_of(bot)}/slack/events")
        yield bot


def over_http(stage: World, *, ready: bool = True) -> AbstractAsyncContextManager[Bot]:
    stage.environ["SLACK_SIGNING_SECRET"] = SIGNING_SECRET
    return stage.bot(config(stage.producer.url).replace('mode = "socket"', 'mode = "http"'), ready=ready)


async def test_every_surface_works_over_http(stage: World) -> None:
    """Clicks, modals, replies, commands, shortcuts and Home: as forms and as JSON, answered in their responses."""
    words = {"accepted_response_kinds": ["yes_no", "freetext"]}
    said = (
        "the payload is = too large & so on"  # Bolt reads forms with that word as if they were interactions
    )
    async with in_use(stage):
        workspace = stage.workspace
        card = await stage.ask()
        assert (await workspace.click(ADE, AGENTS, card.ts, label="Yes")).ok
        assert (await stage.reply())["response"] is True
        assert "Yes" not in controls(await stage.now_says(card, f"<@{ADE}>"))

        card = await stage.ask("rpl_2", session="sess_2", question="In a modal?", **words)
        assert (await workspace.click(FOLAKE, AGENTS, card.ts, label="Answer…")).ok
        await stage.modal(FOLAKE)
        outcome = await workspace.submit_view(FOLAKE, {"Your answer": "Later", "Yes or no": "Yes"})
        assert set(outcome.errors.values()) == {"Fill in only one of these, and clear the others."}
        filled = {"Your answer": "Later: «ça» & so on", "Yes or no": "None of these"}
        assert (await workspace.submit_view(FOLAKE, filled)).ok
        assert (await stage.reply("rpl_2"))["response"] == "Later: «ça» & so on"
        assert not workspace.views(FOLAKE)

        card = await stage.ask("rpl_3", session="sess_3", question="In the thread?")
        await workspace.post(ADE, AGENTS, "no", card.ts)
        assert (await stage.reply("rpl_3"))["response"] is False

        await stage.ask("rpl_4", session="sess_4", question="By a command?", **words)
        assert (await workspace.command(ADE, AGENTS, "/clarify", f"answer CLR-100004-001 {said}")).ok
        assert (await stage.reply("rpl_4"))["response"] == said
        assert (await workspace.command(GIO, AGENTS, "/clarify", "help")).ok
        assert "CLR-" in (await stage.whisper(GIO, "/clarify")).text

        card = await stage.ask("rpl_5", session="sess_5", question="By a shortcut?", **words)
        await workspace.open_home(ADE)
        await stage.until(lambda: (home := workspace.home(ADE)) and "By a shortcut?" in str(home.payload))
        note = await workspace.post(FOLAKE, AGENTS, "note: the blue one", card.ts)
        assert (await workspace.shortcut(ADE, USE_AS_ANSWER, note.ts, AGENTS)).ok
        assert (await stage.reply("rpl_5"))["response"] == "the blue one"
    assert not stage.workspace.link.connections
    assert stage.calls("apps.connections.open", ok=False) == 0


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
    async with over_http(stage, ready=False) as bot:
        await stage.workspace.link.requests.set_url(f"{url_of(bot)}/slack/events")  # the challenge
        assert not (await stage.workspace.command(ADE, AGENTS, "/clarify", "help")).ok
        assert stage.workspace.acks[-1].status == 503
        stage.workspace.faults.clear()
        await asyncio.wait_for(asyncio.gather(*(each.slack.app.ready.wait() for each in stage.bots)), 60)
        assert (await stage.workspace.command(ADE, AGENTS, "/clarify", "help")).ok


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
