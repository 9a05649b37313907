"""TypeScript programs ask people with `clients/clarify.ts`, and a bot: answers, approvals, forms, restarts. How it understands
every response, and withdraws: `cases.json`.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.clients.conftest import Start
from tests.kit.lives import Life
from tests.kit.world import World, config, url_of
from workspace.seed import AGENTS, FOLAKE


async def test_answer_says_who_chose_what(stage: World, start: Start) -> None:
    async with stage.bot() as bot:
        program = await start(
            """
            const choices = ["65", {value: "67", label: "Sixty-seven"}];
            const answer = await clarify.ask("Which age?", {choices, agent: "planner", session: "s"});
            show([answer.value, answer.label, answer.status, answer.decidedBy, answer.id, answer.receipt]);
            show([answer.state.agent, answer.state.session]);
            """,
            url_of(bot),
        )
        card = await stage.card("Which age?")
        await stage.workspace.click(FOLAKE, AGENTS, card.ts, label="Sixty-seven")
        *answer, receipt = await program.shown()
        assert answer == ["67", "Sixty-seven", "answered", f"user:slack/T0LOCAL/{FOLAKE}", "CLR-100001-001"]
        assert receipt.count(".") == 2
        assert await program.shown() == ["planner", "s"]
        assert await program.ended() == ""
        await stage.now_says(card, "the agent has resumed")


async def test_approval_resolves_with_the_arguments(stage: World, start: Start) -> None:
    async with stage.bot() as bot:
        program = await start(
            """
            const approval = await clarify.approve("Send it", {arguments: {to: 1204}, risk: "high"});
            show([approval.decision, approval.status, approval.arguments, approval.approvedBy]);
            """,
            url_of(bot),
        )
        card = await stage.card("Send it")
        await stage.workspace.click(FOLAKE, AGENTS, card.ts, label="Accept")
        by = f"user:slack/T0LOCAL/{FOLAKE}"
        assert await program.shown() == ["accept", "answered", {"to": 1204}, [by]]
        assert await program.ended() == ""


@pytest.mark.parametrize(
    "program",
    [
        'if (await clarify.approve("Send it")) show("sent");',
        'await clarify.approve("Send it"); show("sent");',
        'clarify.approve("Send it").then(() => show("sent"));',
    ],
    ids=["truthy", "not looked at", "then"],
)
async def test_careless_program_runs_nothing_that_was_rejected(
    stage: World, start: Start, program: str
) -> None:
    async with stage.bot() as bot:
        running = await start(program, url_of(bot))
        card = await stage.card("Send it")
        await stage.workspace.click(FOLAKE, AGENTS, card.ts, label="Reject")
        out, errors = await running.process.communicate()
        assert (out, running.process.returncode) == (b"", 1)
        assert b"NotApproved: Rejected by user:slack/" in errors


async def test_form_comes_back_as_the_schema_makes_it(stage: World, start: Start) -> None:
    async with stage.bot() as bot:
        program = await start(
            """
            import { z } from "zod";
            const Mail = z.email().meta({id: "Mail"});
            const Plan = z.object({
              name: z.string().min(1).meta({title: "Name"}),
              owner: Mail.optional().meta({title: "Owner"}),
              deputy: Mail.optional(),
              start: z.iso.date().optional().meta({title: "Start"}),
              size: z.enum(["small", "large"]).meta({title: "Size"}),
              notify: z.boolean().default(true),
              percent: z.int().min(1).max(100).optional(),
              people: z.int().optional(),
              share: z.number().positive().nullish(),
              page: z.url().optional(),
              end: z.iso.datetime().optional(),
              regions: z.array(z.enum(["eu", "us"])).max(2).optional().meta({title: "Regions"}),
              speed: z.union([z.literal("slow").meta({title: "Slow"}), z.literal("fast")]).optional(),
            }).transform((plan) => ({...plan, upper: plan.name.toUpperCase()}));
            const answer = await clarify.ask("Plan it", {schema: Plan});
            show(answer.value);
            show(answer.state.answer);
            """,
            url_of(bot),
        )
        card = await stage.card("Plan it")
        await stage.workspace.click(FOLAKE, AGENTS, card.ts, label="Answer…")
        await stage.modal(FOLAKE)
        entered: dict[str, Any] = {"Name": "a", "Start": "2026-12-01", "Size": "large"}
        entered |= {
            "Owner": "ann@example.com",
            "people": "12",
            "share": "0.5",
            "Regions": ["us", "eu"],
            "speed": "Slow",
        }
        assert (await stage.workspace.submit_view(FOLAKE, entered)).ok
        filled: dict[str, Any] = {"name": "a", "start": "2026-12-01", "size": "large"}
        filled |= {
            "owner": "ann@example.com",
            "people": 12,
            "share": 0.5,
            "regions": ["eu", "us"],
            "speed": "slow",
        }
        assert await program.shown() == filled | {"notify": True, "upper": "A"}
        assert await program.shown() == filled | {"notify": True}
        assert await program.ended() == ""


async def test_bot_is_killed_while_the_question_waits(stage: World, port: int, start: Start) -> None:
    stage.configure(config(stage.producer.url, more=f'[http]\nlisten = "127.0.0.1:{port}"\n'))
    async with Life.of(stage) as life:
        program = await start(
            'show((await clarify.ask("Which?", {choices: ["a", "b"]})).value);', f"http://127.0.0.1:{port}"
        )
        card = await stage.card("Which?")
        await life.killed()
    async with Life.of(stage):
        await stage.workspace.click(FOLAKE, AGENTS, card.ts, label="b")
        assert await program.shown() == "b"
        await stage.now_says(card, "the agent has resumed")
        assert len(stage.cards()) == 1
        assert "Retrying until the question expires." in await program.ended()
