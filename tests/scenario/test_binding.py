"""Every press is bound to its own message and to the installation that posted it; all else decides nothing, and says so."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from httpx import ASGITransport, AsyncClient

from bot.check import check_machine
from tests.kit.clocks import LeapClock
from tests.kit.until import until
from tests.kit.world import World, scene
from workspace.demo.producer import DemoProducer
from workspace.seed import ADE, AGENTS, FOLAKE, ONCALL


@asynccontextmanager
async def elsewhere(stage: World) -> AsyncIterator[World]:
    """Another installation on the same Slack app: files and an agent of its own. Its numbers begin where all begin."""
    folder = stage.folder / "elsewhere"
    folder.mkdir()
    async with DemoProducer("other-agent", agent_name="Other", now=stage.clock.now) as producer:
        yield World(folder, stage.workspace, producer, stage.clock)


async def test_press_on_a_card_of_replaced_files_decides_nothing_and_says_why(stage: World) -> None:
    async with elsewhere(stage) as anew:
        async with stage.bot():
            old = await stage.ask("rpl_1", question="Delete the backups?")
        async with anew.bot():
            new = await anew.ask("rpl_2", question="Start the tests?")
            assert stage.record()["id"] == anew.record()["id"]
            await stage.workspace.click(FOLAKE, AGENTS, old.ts, label="Yes")
            await anew.whisper(FOLAKE, "had no effect", timeout=10)
            assert anew.record()["status"] == "pending"
            await stage.workspace.click(FOLAKE, AGENTS, new.ts, label="No")
            assert (await anew.reply("rpl_2"))["response"] is False


async def test_two_bots_on_one_app_answer_only_what_they_asked(stage: World) -> None:
    """Slack hands each click to either of them."""
    async with elsewhere(stage) as other, stage.bot(), other.bot():
        mine = await stage.ask("rpl_1", question="Delete the backups?")
        theirs = await other.ask("rpl_2", question="Start the tests?")
        for _ in range(2):
            await stage.workspace.click(FOLAKE, AGENTS, mine.ts, label="Yes")
        assert (await stage.reply("rpl_1"))["response"] is True
        await stage.whisper(FOLAKE, "nother installation")
        assert other.record()["status"] == "pending"
        for _ in range(2):
            await stage.workspace.click(FOLAKE, AGENTS, theirs.ts, label="No")
        assert (await other.reply("rpl_2"))["response"] is False


async def test_reply_to_a_card_that_is_not_ours_is_not_lost_in_silence(stage: World) -> None:
    async with elsewhere(stage) as other:
        async with other.bot():
            theirs = await other.ask("rpl_2")
        async with stage.bot():
            await stage.workspace.post(FOLAKE, AGENTS, "note: looks right to me", thread_ts=theirs.ts)
            await stage.workspace.post(FOLAKE, AGENTS, "yes", thread_ts=theirs.ts)
            told = await stage.whisper(FOLAKE, "your reply did not reach an agent")
            assert told.thread_ts == theirs.ts
            assert len(stage.workspace.ephemerals(FOLAKE)) == 1
            mine = await stage.ask("rpl_1", question="Delete the backups?")
            await stage.workspace.post(FOLAKE, AGENTS, "yes", thread_ts=mine.ts)
            assert (await stage.reply("rpl_1"))["response"] is True


@pytest.mark.speed(10)
async def test_post_in_doubt_is_not_taken_for_another_installations_card_of_the_same_number(
    stage: World,
) -> None:
    async with elsewhere(stage) as anew:
        async with stage.bot():
            old = await stage.ask("rpl_1", question="Delete the backups?")
        async with anew.bot() as running:
            stage.workspace.faults.add("chat.postMessage", "drop")
            new = await anew.ask("rpl_2", question="Start the tests?")
            await running.board.messages.in_flight.settled()
            row = await running.board.messages.get("card:CLR-100001-001:1")
            assert row is not None
            assert row.ts == new.ts != old.ts


@pytest.mark.speed(10)
async def test_press_on_a_card_whose_post_is_in_doubt_counts_and_says_where_it_is(stage: World) -> None:
    """Slack took the post, its answer was lost, and the history cannot be read: the press is what tells."""
    async with stage.bot() as running:
        stage.workspace.faults.add("chat.postMessage", "accept_then_drop")
        stage.workspace.faults.add("conversations.history", "refuse:internal_error", times=10_000)
        card = await stage.ask()
        await stage.until(lambda: stage.calls("conversations.history", ok=False))
        await stage.workspace.click(FOLAKE, AGENTS, card.ts, label="Yes")
        assert (await stage.reply())["response"] is True
        await stage.now_says(card, f"<@{FOLAKE}>")
        row = await running.board.messages.get("card:CLR-100001-001:1")
        assert row is not None
        assert row.ts == card.ts
        assert stage.calls("chat.postMessage", ok=False) == 1
        # It begins its session's thread, as if it had been found.
        second = await stage.ask("rpl_2", question="And now?")
        assert second.thread_ts == card.ts


async def test_second_bot_on_the_app_is_said_where_operators_look(tmp_path: Path) -> None:
    clock = LeapClock(30)  # it is counted twice, half a minute apart
    async with (
        scene(tmp_path, clock=clock) as stage,
        elsewhere(stage) as other,
        other.bot(),
        stage.bot() as running,
    ):
        told = await until(lambda: running.slack.app.other_bots)
        assert "another bot is connected to the same Slack app" in told
        async with AsyncClient(
            transport=ASGITransport(running.http_app(512)),
            base_url="http://127.0.0.1",
        ) as web:
            answer = await web.get("/readyz")
        assert answer.status_code == 200
        assert [each["name"] for each in answer.json()["degraded"]] == ["slack app"]
        told = await until(
            lambda: next((s for s in check_machine(running.base.settings) if s.subject == "slack app"), None)
        )
        assert not told.ok
        assert "another bot" in told.text


async def test_modal_page_list_and_home_of_another_installation_decide_nothing(stage: World) -> None:
    """They stand on no message that could be looked up, or were opened before the files were replaced."""
    workspace = stage.workspace
    free_text = {"accepted_response_kinds": ["freetext"]}
    async with elsewhere(stage) as anew:
        async with stage.bot():
            card = await stage.ask("rpl_1", question="Which name?", **free_text)
            await workspace.click(FOLAKE, AGENTS, card.ts, label="Answer…")
            await stage.modal(FOLAKE)
            await workspace.command(ADE, AGENTS, "/clarify")
            listed = await stage.whisper(ADE, "Which name?", timeout=5)
            await workspace.open_home(ADE)
            await stage.until(lambda: "Answer…" in str(workspace.home(ADE)))
            await workspace.command(FOLAKE, AGENTS, "/clarify", "escalate CLR-100001-001 look at it")
            page = await stage.page("Which name?")
            await workspace.click(ONCALL, page.channel, page.ts, label="Hand to…")
            hand = await stage.modal(ONCALL)
        async with anew.bot():
            await anew.ask("rpl_2", question="Which port?", **free_text)
            before = anew.record()
            await workspace.choose_user(ONCALL, hand, FOLAKE)
            outcome = await workspace.submit_view(ONCALL)
            assert "nother installation" in str(outcome.errors)
            await workspace.close_view(ONCALL)
            outcome = await workspace.submit_view(FOLAKE, {"answer.freetext": "production"})
            assert "nother installation" in str(outcome.errors)
            await workspace.press_ephemeral(ADE, listed, "Answer…")
            await anew.whisper(ADE, "nother installation")
            assert not workspace.views(ADE)
            await workspace.press_home(ADE, "Answer…")
            assert "nother installation" in str((await anew.modal(ADE)).payload)
            await workspace.click(ONCALL, page.channel, page.ts, label="Take")
            await anew.whisper(ONCALL, "nother installation")
            assert anew.record() == before


async def test_page_whose_post_is_in_doubt_can_be_taken_and_answered(stage: World) -> None:
    async with stage.bot():
        await stage.ask()
        stage.workspace.faults.add("chat.postMessage", "accept_then_drop")
        stage.workspace.faults.add("conversations.history", "refuse:internal_error", times=10_000)
        await stage.workspace.command(FOLAKE, AGENTS, "/clarify", "escalate CLR-100001-001 look at it")
        page = await stage.page("Shall I go on?")
        await stage.workspace.click(ONCALL, page.channel, page.ts, label="Take")
        await stage.now_says(page, f"Claimed by <@{ONCALL}>")
        await stage.workspace.click(ONCALL, page.channel, page.ts, label="Yes")
        assert (await stage.reply())["response"] is True
