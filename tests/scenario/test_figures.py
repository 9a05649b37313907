"""What /metrics tells of a day with people, as Prometheus reads it."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest
from mcp import Client
from prometheus_client.parser import text_string_to_metric_families

from bot.app import Bot
from tests.kit.world import World, config, url_of
from tests.scenario.pagers import night
from workspace.seed import AGENTS, FOLAKE

ROUTE = '\n[[routes]]\nagent = "mailer-*"\nchannel = "C0AGENTS"\n'
LASTS = {"accepted_response_kinds": ["yes_no"], "timeout_seconds": 36_000}


async def figure(bot: Bot, name: str, *, follower: bool = False, **labels: str) -> float:
    """What the bot that leads says, or the one that follows where there is one."""
    assert bot._http is not None
    url = url_of(bot) if follower else bot._http.url
    async with httpx.AsyncClient(base_url=url, trust_env=False) as http:
        text = (await http.get("/metrics")).text
    return sum(
        sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name == name and labels.items() <= sample.labels.items()
    )


async def test_age_and_answers_are_told_by_route(tmp_path: Path) -> None:
    async with night(tmp_path) as stage:
        text = config(stage.producer.url).replace("[[routes]]", f"{ROUTE.strip()}\n\n[[routes]]", 1)
        async with stage.bot(text) as bot:
            card = await stage.ask("rpl_1", **LASTS)
            await stage.later(bot, hours=1)
            for follower in (False, True):
                oldest = "clarify_oldest_question_seconds"
                assert 3600 <= await figure(bot, oldest, follower=follower, route="*") < 3700
                assert await figure(bot, oldest, follower=follower, route="mailer-*") == 0
            assert await figure(bot, "clarify_answers_total") == 0
            assert (await stage.workspace.click(FOLAKE, AGENTS, card.ts, label="Yes")).ok
            await stage.reply("rpl_1")
            assert await figure(bot, "clarify_answers_total", route="*", kind="yes_no") == 1
            assert await figure(bot, "clarify_answers_total") == 1
            assert await figure(bot, "clarify_oldest_question_seconds") == 0
            assert await figure(bot, "clarify_leads") == 1


@pytest.mark.speed(20)
async def test_calls_that_slack_put_off_are_counted(stage: World) -> None:
    async with stage.bot() as bot:
        stage.workspace.faults.add("chat.postMessage", "429:2")
        await stage.ask()
        assert await figure(bot, "clarify_slack_rate_limited_total", method="chat.postMessage") == 1
        assert await figure(bot, "clarify_retries_total", kind="card") == 1


async def test_mcp_calls_and_requests_are_counted(stage: World) -> None:
    async with stage.bot() as bot:
        async with Client(f"{url_of(bot)}/mcp") as client:
            state = await client.call_tool("ask_human", {"question": "Counted?", "wait": 0})
            assert not state.is_error
            assert (await client.call_tool("wait_for_answer", {"id": "seven"})).is_error
        for tool, outcome in (("ask_human", "done"), ("wait_for_answer", "refused")):
            labels = {"tool": tool, "outcome": outcome}
            assert await figure(bot, "clarify_mcp_calls_total", follower=True, **labels) == 1
        assert await figure(bot, "clarify_mcp_calls_total", follower=True) == 2
        assert await figure(bot, "clarify_http_requests_total", follower=True, path="/mcp", status="200") >= 2
