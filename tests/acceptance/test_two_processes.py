"""A bot under load and a shell in a loop on one SQLite file."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from asyncio.subprocess import PIPE
from pathlib import Path

import pytest

from tests.kit.until import until
from tests.kit.world import World
from workspace.seed import AGENTS, FOLAKE

ROOT = Path(__file__).parents[2]
QUESTIONS = 40
LONGEST = 2.0  # seconds: then a person is told "busy, try again"


@pytest.mark.needs("ledgerfiles")
@pytest.mark.files("two processes share SQLite's file")
async def test_shell_in_a_loop_beside_a_bot_under_load_loses_nothing_and_delays_no_click(
    stage: World,
) -> None:
    async with stage.bot() as bot:
        shell = await asyncio.create_subprocess_exec(
            *(
                sys.executable,
                "-m",
                "tests.acceptance.shell_beside",
                str(stage.rows),
                "7",
                str(3 * QUESTIONS),
            ),
            cwd=ROOT,
            stdout=PIPE,
        )
        slowest = 0.0
        for number in range(QUESTIONS):
            card = await stage.ask(f"rpl_{number}", session=f"s_{number}", question=f"Go {number}?")
            began = time.monotonic()
            clicked = await stage.workspace.click(FOLAKE, AGENTS, card.ts, label="Yes")
            slowest = max(slowest, time.monotonic() - began)
            assert clicked.ok, clicked
        for number in range(QUESTIONS):
            assert (await stage.reply(f"rpl_{number}"))["response"] is True
        out, _ = await shell.communicate()
        assert shell.returncode == 0
        did = json.loads(out)
        *done, last = stage.ledger(7)["clarifications"]
        assert {item["id"]: item["thread"][1]["body"] for item in done} == did["did"]
        # The bot hears of it at once, long before it would look by itself.
        await until(lambda: bot.base.index.get(last["id"]), 15)
        assert last["id"] == did["open"]
        await stage.in_step(7)
    assert max(slowest, did["slowest"]) < LONGEST
    issues = [issue for issue in stage.issues() if issue != 7]
    assert [stage.record(issue)["status"] for issue in issues] == ["resolved"] * QUESTIONS
