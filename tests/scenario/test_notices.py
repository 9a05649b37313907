"""Journeys 5 and 6: errors, tool results, handoffs."""

from __future__ import annotations

from typing import Any

import pytest

from bot.workspace.controls import controls as found_controls
from bot.workspace.seed import AGENTS
from tests.kit.world import World, controls, said


async def test_error_of_a_session_with_a_thread_is_told_in_it(stage: World) -> None:
    async with stage.bot():
        card = await stage.ask()
        await stage.says(
            "session.errored",
            urgency="critical",
            summary_normal="The quota is used up",
            error_category="quota",
            error_code="E429",
            remediation_hint="Buy more",
            error_uri="https://example.org/quota",
        )
        notice = await stage.message("The quota is used up")
        assert notice.thread_ts == card.ts
        assert all(word in said(notice) for word in ("quota", "E429", "What to do: Buy more"))
        links = [control.element for control in found_controls(notice.blocks)]
        assert [(link["text"]["text"], link["url"]) for link in links] == [
            ("Learn more", "https://example.org/quota")
        ]
        assert not controls(await stage.now_says(card, "the agent's session ended"))


async def test_p1_error_of_a_session_without_a_thread_opens_one(stage: World) -> None:
    async with stage.bot():
        await stage.says("session.errored", urgency="critical", summary_normal="Out of memory")
        notice = await stage.message("Out of memory")
        assert notice.thread_ts is None
        question = await stage.ask()
        assert question.thread_ts == notice.ts


@pytest.mark.parametrize(
    "uri", ["javascript:alert(1)", "ftp://example.org/x", "https://user:pw@example.org/", "slack://x"]
)
async def test_p8_error_links_nowhere_but_to_plain_web_addresses(stage: World, uri: str) -> None:
    async with stage.bot():
        await stage.says("session.errored", urgency="critical", summary_normal="Broken", error_uri=uri)
        assert not controls(await stage.message("Broken"))


@pytest.mark.parametrize(
    ("fields", "paged"),
    [
        ({"error_category": "quota"}, True),
        ({"error_category": "authorization"}, True),
        ({}, True),
        ({"error_category": "network"}, False),
        ({"error_category": "transient"}, False),
        ({"error_category": "timeout"}, False),
    ],
)
async def test_error_pages_by_its_category(stage: World, fields: dict[str, Any], paged: bool) -> None:
    async with stage.bot():
        await stage.says(
            "session.errored", urgency="critical", summary_normal="", error_message="Boom", **fields
        )
        await stage.message("Boom")
        if paged:
            assert "ended with an error" in said(await stage.page("Boom"))
        else:
            await stage.ask()  # whatever would have been paged is posted before this card
            assert not stage.workspace.direct("U0ONCALL")


async def test_tool_errors_are_lines_and_successes_fold_into_one(stage: World) -> None:
    async with stage.bot():
        card = await stage.ask()
        for n in (1, 2, 3):
            await stage.says(
                "tool.completed", tool=f"search{n}", status="success", summary_normal="", duration_ms=n
            )
        await stage.says("tool.completed", tool="fetch", status="error", summary_normal="404 for the page")
        await stage.says("tool.completed", tool="wait", status="timeout", summary_normal="")
        await stage.message("Tool fetch failed: 404 for the page")
        await stage.message("Tool wait timed out")
        folded = await stage.message("3 tools done, the latest search3")
        thread = stage.workspace.thread(AGENTS, card.ts)
        assert len(thread) == 4
        assert folded in thread


async def test_tool_results_of_a_session_without_a_thread_are_not_shown(stage: World) -> None:
    async with stage.bot():
        await stage.says("tool.completed", session="sess_two", tool="fetch", status="error")
        await stage.ask()
        assert len(stage.workspace.messages(AGENTS)) == 1


async def test_p1_handoff_is_a_notice_and_a_page(stage: World) -> None:
    async with stage.bot():
        await stage.says(
            "handoff.requested",
            urgency="critical",
            reason="I am out of my depth",
            target_kind="human_operator",
            packaged_context={"customer": "ACME"},
        )
        notice = await stage.message("I am out of my depth")
        assert "ACME" in said(notice)
        assert "I am out of my depth" in said(await stage.page("hands over to a human"))


async def test_streaming_and_progress_are_not_shown(stage: World) -> None:
    async with stage.bot():
        card = await stage.ask()
        for n in range(20):
            await stage.says("output.streaming", chunk=f"word {n}", urgency="background")
            await stage.says("progress.updated", progress_percent=n, urgency="background")
        await stage.ask("rpl_2", question="Second?")
        assert len(stage.workspace.thread(AGENTS, card.ts)) == 2
