"""Journeys 5 and 6: errors, tool results, handoffs."""

from __future__ import annotations

from tests.kit.world import World, controls, said
from workspace.controls import controls as found_controls
from workspace.seed import AGENTS


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


async def test_error_pages_by_its_category(stage: World) -> None:
    async with stage.bot():
        for n, category in enumerate(("network", "transient", "timeout", None, "quota", "authorization")):
            fields = {} if category is None else {"error_category": category}
            words = {"summary_normal": "", "error_message": f"Boom, {category}"}
            await stage.says("session.errored", session=f"sess_{n}", urgency="critical", **words, **fields)
        for paged in (None, "quota", "authorization"):
            assert "ended with an error" in said(await stage.page(f"Boom, {paged}"))
        pages = "".join(map(said, stage.workspace.direct("U0ONCALL")))
        assert not [quiet for quiet in ("network", "transient", "timeout") if f"Boom, {quiet}" in pages]


async def test_tool_errors_are_lines_and_successes_fold_into_one(stage: World) -> None:
    async with stage.bot():
        card = await stage.ask()
        for n in (1, 2, 3):
            await stage.says(
                "tool.completed", tool=f"search{n}", status="success", summary_normal="", duration_ms=n
            )
        await stage.says("tool.completed", tool="fetch", status="error", summary_normal="404 for the page")
        await stage.says("tool.completed", tool="wait", status="timeout", summary_normal="")
        await stage.message("Tool fetch failed: “404 for the page”")
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


async def test_streaming_and_progress_are_not_shown(stage: World) -> None:
    async with stage.bot():
        card = await stage.ask()
        for n in range(20):
            await stage.says("output.streaming", chunk=f"word {n}", urgency="background")
            await stage.says("progress.updated", progress_percent=n, urgency="background")
        await stage.ask("rpl_2", question="Second?")
        assert len(stage.workspace.thread(AGENTS, card.ts)) == 2
