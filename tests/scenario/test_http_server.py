"""The bot's HTTP server, seen by those who run it and by whoever can reach its port."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from datetime import UTC, datetime
from functools import partial
from typing import Any

import httpx
import psycopg
import pytest

from bot.check import check_machine
from bot.settings.load import parse_settings
from bot.storage import postgres
from tests.kit.databases import Server
from tests.kit.lives import beside
from tests.kit.until import until
from tests.kit.world import World, config, environment, own_url_of, question, said, url_of

AWAY = """
[[producers]]
name = "reviewer"
url = "http://127.0.0.1:9"
"""


async def test_bot_is_ready_while_one_agent_is_away_and_says_which(stage: World) -> None:
    async with stage.bot(config(stage.producer.url, more=AWAY)) as bot:
        # Of producers the bot knows that leads: it is connected with them.
        async with httpx.AsyncClient(base_url=own_url_of(bot), trust_env=False) as client:
            await stage.until(lambda: bot.agents.producers.status()["planner"]["connected"])
            answer = await client.get("/readyz")
            live = await client.get("/livez")
            welcome = await client.get("/")
        await stage.ask()  # and it works
    body = answer.json()
    assert (answer.status_code, body["ready"]) == (200, True)
    assert [(each["name"], each["ok"]) for each in body["checks"]] == [("slack", True), ("storage", True)]
    assert [each["name"] for each in body["degraded"]] == ["producer:reviewer"]
    assert body["degraded"][0]["why"].startswith("not connected: ")
    assert (live.status_code, live.text) == (200, "ok\n")
    assert (welcome.status_code, welcome.headers["content-type"]) == (200, "text/plain; charset=utf-8")
    assert "POST /questions" in welcome.text


async def test_bot_takes_questions_while_slack_is_away_though_it_is_not_ready(stage: World) -> None:
    """So an orchestrator must not route by /readyz: see deploy/kubernetes."""
    async with stage.bot() as bot, httpx.AsyncClient(base_url=url_of(bot), trust_env=False) as client:
        await stage.workspace.refuse_connections()
        await until(lambda: not bot.slack.app.connected)
        assert [(await client.get(path)).status_code for path in ("/readyz", "/livez")] == [503, 200]
        answer = await client.post("/questions", json={"question": "Which release?"})
        assert (answer.status_code, answer.json()["status"]) == (201, "waiting")
        await stage.workspace.accept_connections()
        await stage.card("Which release?")


class Swallowed(psycopg.AsyncConnection[Any]):
    """A connection behind a pooling proxy that hands no notices on."""

    async def notifies(
        self, *, timeout: float | None = None, stop_after: int | None = None
    ) -> AsyncGenerator[psycopg.Notify]:
        await asyncio.sleep(timeout or 0.0)
        for never in list[psycopg.Notify]():
            yield never


async def test_notices_of_the_database_that_do_not_get_through_are_told(
    stage: World, postgres_server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres, "_LISTEN", 0.05)
    monkeypatch.setattr(postgres, "_listening", partial(Swallowed.connect, autocommit=True))
    stage.keep_in(postgres_server.new())
    async with stage.bot() as bot, httpx.AsyncClient(base_url=own_url_of(bot), trust_env=False) as client:
        await until(lambda: bot.base.store.polls)
        answer = await client.get("/readyz")
    assert answer.status_code == 200
    (told,) = [each for each in answer.json()["degraded"] if each["name"] == "database notices"]
    assert "asked twice a second" in told["why"]


@pytest.mark.parametrize(
    ("away", "found"),
    [(True, "cannot listen for notifications there"), (False, "notifications do not arrive")],
)
async def test_address_at_which_no_notices_can_be_heard_is_told_and_all_goes_on(
    stage: World, postgres_server: Server, away: bool, found: str
) -> None:
    stage.keep_in(postgres_server.new())
    stage.environ["LISTEN_URL"] = "postgresql://127.0.0.1:9/none" if away else postgres_server.new()
    stage.configure(stage.file.read_text().replace("[storage]", '[storage]\nlisten_url_env = "LISTEN_URL"'))
    settings = parse_settings(
        stage.file.read_text(), file=stage.file, environ=environment(stage.workspace) | stage.environ
    )
    checked = await asyncio.to_thread(lambda: list(check_machine(settings)))
    assert any(each.text.startswith("PostgreSQL 1") and each.ok for each in checked)
    (told,) = [each for each in checked if "twice a second" in each.text]
    assert found in told.text
    assert told.ok is not away
    async with stage.bot() as bot, httpx.AsyncClient(base_url=own_url_of(bot), trust_env=False) as client:
        await until(lambda: bot.base.store.polls)
        answer = await client.get("/readyz")
        assert [each["name"] for each in answer.json()["degraded"]] == ["database notices"]
        await stage.ask()
        done = await beside(stage, "answer", "CLR-100001-001", "no")  # by another process
        assert done.code == 0, done.err
        assert (await stage.reply())["response"] is False


TWO = """
[[producers]]
name = "mailer"
token_env = "MAILER_TOKEN"
agents = ["mailer-*"]

[[producers]]
name = "engineer"
token_env = "ENGINEER_TOKEN"
agents = ["engineer", "tester"]
"""
MAILER = {"Authorization": "Bearer mailer-token"}
ENGINEER = {"Authorization": "Bearer engineer-token"}


def event(agent: str, number: int) -> dict[str, Any]:
    return question(f"rpl_{number}", question=f"Shall {agent} go on?") | {
        "@context": "https://aaep-protocol.org/context/v1",
        "event_id": f"evt_{number}",
        "timestamp": datetime.now(UTC).isoformat(),
        "producer": {"agent_id": agent},
    }


async def test_names_are_bound_to_the_producers_that_may_use_them(stage: World) -> None:
    stage.environ |= {"MAILER_TOKEN": "mailer-token", "ENGINEER_TOKEN": "engineer-token"}
    async with (
        stage.bot(config(stage.producer.url, more=TWO)) as bot,
        httpx.AsyncClient(base_url=url_of(bot), trust_env=False) as client,
    ):
        names = [
            ("mailer", 202),
            ("mailer-2", 202),
            ("engineer", 403),
            ("planner-agent", 403),
            ("mailer-\nengineer", 403),
        ]
        for number, (name, status) in enumerate(names):
            answer = await client.post("/aaep/v1/messages", json=event(name, number), headers=MAILER)
            assert answer.status_code == status, answer.text
            if status == 403:
                assert (answer.json()["error"], answer.json()["field"]) == (
                    "OTHER_AGENT",
                    "producer.agent_id",
                )
            else:
                await stage.card(f"Shall {name} go on?")
        asked = {"from": "tester", "to": "human", "issue": 7, "topic": "t", "question": "Which tests?"}
        assert (await client.post("/clarifications", json=asked, headers=MAILER)).status_code == 403
        made = await client.post("/clarifications", json=asked, headers=ENGINEER)
        assert made.status_code == 201, made.text
        assert (await client.get(made.headers["location"], headers=ENGINEER)).status_code == 200
        assert (await client.get(made.headers["location"], headers=MAILER)).status_code == 404
        listed = (await client.get("/clarifications", headers=MAILER)).json()["clarifications"]
        assert [each["from"] for each in listed] == ["mailer", "mailer-2"]
        await stage.card("Which tests?")
        assert len(stage.cards()) == 3


async def test_description_begins_with_how_people_are_asked(stage: World) -> None:
    async with stage.bot() as bot, httpx.AsyncClient(base_url=url_of(bot), trust_env=False) as client:
        paths = [*(await client.get("/openapi.json")).json()["paths"]]
    assert paths[0] == "/questions"
    assert paths[-1] == "/metrics"


async def test_agent_that_a_stream_may_not_speak_for_is_paged(stage: World) -> None:
    bound = config(stage.producer.url).replace('dialect = "auto"', 'dialect = "auto"\nagents = ["planner-*"]')
    async with stage.bot(bound):
        await stage.producer.emit(question("rpl_1") | {"producer": {"agent_id": "mailer"}})
        page = await stage.page("named the agent mailer")
        assert "was skipped" in said(page)
        await stage.producer.emit(question("rpl_3") | {"producer": {"agent_id": "planner-\nAll is well"}})
        assert "was skipped" in said(await stage.page("named the agent planner- All is well, for"))
        await stage.ask("rpl_2", question="May I?")  # as planner-agent
        assert len(stage.cards()) == 1


@pytest.mark.parametrize("path", ["/metrics", "/openapi.json", "/clarifications"])
async def test_name_that_somebody_else_made_leads_nowhere(stage: World, path: str) -> None:
    """A web page whose name its maker points to this machine (DNS rebinding)."""
    async with (
        stage.bot() as bot,
        httpx.AsyncClient(base_url=url_of(bot), trust_env=False) as client,
    ):
        answer = await client.get(path, headers={"Host": "rebound.example.org"})
        assert (answer.status_code, answer.json()["error"]) == (403, "HOST")
        assert (await client.get(path)).status_code == 200
        for probe in ("/livez", "/healthz", "/readyz"):  # an orchestrator calls them as it likes
            assert (await client.get(probe, headers={"Host": "bot.example.org"})).status_code == 200
