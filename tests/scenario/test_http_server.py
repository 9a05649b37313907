"""The bot's HTTP server, seen by those who run it and by whoever can reach its port."""

from __future__ import annotations

import httpx

from tests.scenario.harness import Scene, config, url_of

AWAY = """
[[producers]]
name = "reviewer"
url = "http://127.0.0.1:9"
"""


async def test_bot_is_ready_while_one_agent_is_away_and_says_which(stage: Scene) -> None:
    async with stage.bot(config(stage.producer.url, more=AWAY)) as bot:
        async with httpx.AsyncClient(base_url=url_of(bot), trust_env=False) as client:
            await stage.until(lambda: bot.producers.status()["planner"]["connected"])
            answer = await client.get("/readyz")
            live = await client.get("/livez")
        await stage.ask()  # and it works
    body = answer.json()
    assert (answer.status_code, body["ready"]) == (200, True)
    assert [(each["name"], each["ok"]) for each in body["checks"]] == [("slack", True), ("storage", True)]
    assert [each["name"] for each in body["degraded"]] == ["producer:reviewer"]
    assert body["degraded"][0]["why"].startswith("not connected: ")
    assert (live.status_code, live.text) == (200, "ok\n")
