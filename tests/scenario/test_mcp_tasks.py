"""MCP's tasks extension on `/mcp`: an agent that does not hold its call."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest

from bot.tasks import IDENTIFIER
from bot.workspace.seed import ADE, AGENTS
from tests.kit.world import World, url_of

Json = dict[str, Any]
VERSION = "2026-07-28"
KNOWS: Json = {"extensions": {IDENTIFIER: {}}}

pytestmark = pytest.mark.either_database


class Agent:
    """A client that speaks to `/mcp` as the protocol has it on the wire."""

    def __init__(self, http: httpx.AsyncClient, capabilities: Json = KNOWS, token: str | None = None) -> None:
        self.http = http
        self.capabilities = capabilities
        self.token = token

    def request(self, method: str, params: Json) -> Json:
        meta = {
            "io.modelcontextprotocol/protocolVersion": VERSION,
            "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
            "io.modelcontextprotocol/clientCapabilities": self.capabilities,
        }
        name = params.get("name", params.get("taskId"))
        headers = {
            "accept": "application/json, text/event-stream",
            "mcp-protocol-version": VERSION,
            "mcp-method": method,
        }
        headers |= {} if name is None else {"mcp-name": name}
        headers |= {"authorization": f"Bearer {self.token}"} if self.token else {}
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": meta}}
        return {"url": "/mcp", "json": body, "headers": headers}

    async def send(self, method: str, **params: Any) -> Json:
        answer = await self.http.post(**self.request(method, params))
        found: Json
        if answer.headers["content-type"].startswith("text/event-stream"):
            found = events_in(answer.text)[-1]
        else:
            found = answer.json()
        return found

    async def call(self, tool: str, **arguments: Any) -> Json:
        return await self.result("tools/call", name=tool, arguments=arguments)

    async def result(self, method: str, **params: Any) -> Json:
        answer = await self.send(method, **params)
        assert "result" in answer, answer
        found: Json = answer["result"]
        assert found.pop("_meta")["io.modelcontextprotocol/serverInfo"]["name"] == "clarify"
        return found

    async def error(self, method: str, **params: Any) -> Json:
        answer = await self.send(method, **params)
        assert "error" in answer, answer
        found: Json = answer["error"]
        return found

    async def task(self, task_id: str) -> Json:
        return await self.result("tasks/get", taskId=task_id)

    @asynccontextmanager
    async def listening(self, *task_ids: str) -> AsyncIterator[AsyncIterator[Json]]:
        request = self.request("subscriptions/listen", {"notifications": {"taskIds": list(task_ids)}})
        async with self.http.stream("POST", **request) as stream:
            yield (json.loads(line[5:]) async for line in stream.aiter_lines() if line.startswith("data:"))


def events_in(text: str) -> list[Json]:
    return [json.loads(line[5:]) for line in text.splitlines() if line.startswith("data:")]


@pytest.fixture
async def http(stage: World) -> AsyncIterator[httpx.AsyncClient]:
    async with stage.bot() as bot, httpx.AsyncClient(base_url=url_of(bot), timeout=60) as client:
        yield client


@pytest.fixture
def agent(http: httpx.AsyncClient) -> Agent:
    return Agent(http)


async def test_approval_is_a_task_until_a_person_decides(stage: World, agent: Agent) -> None:
    discovered = await agent.result("server/discover")
    assert discovered["capabilities"] == {"extensions": {IDENTIFIER: {}}, "tools": {"listChanged": False}}
    task = await agent.call(
        "ask_approval", action="Send the newsletter", arguments={"count": 3}, timeout=3600
    )
    assert (task["resultType"], task["status"]) == ("task", "working")
    assert task["statusMessage"].startswith("Asked in Slack; waiting for a person.")
    assert task["ttlMs"] == (3600 + 7 * 86_400) * 1000
    assert task["pollIntervalMs"] == 5000
    name, _, secret = task["taskId"].rpartition(".")
    assert (name, len(secret)) == ("CLR-100001-001", 22)
    card = await stage.card("Send the newsletter")
    assert (await agent.task(task["taskId"]))["status"] == "working"

    assert (await stage.workspace.click(ADE, AGENTS, card.ts, label="Accept")).ok
    await stage.now_says(card, "Approved by")
    now = await agent.task(task["taskId"])
    assert (now["status"], now["resultType"]) == ("completed", "complete")
    waited = await agent.call("wait_for_answer", id=name)
    assert now["result"]["structuredContent"] == waited["structuredContent"]
    assert now["result"]["structuredContent"]["answer"] == {"decision": "accept", "arguments": {"count": 3}}


async def test_listener_hears_of_each_change(stage: World, agent: Agent) -> None:
    task = await agent.call("ask_human", question="Which one?", choices=["a", "b"])
    card = await stage.card("Which one?")
    async with asyncio.timeout(30), agent.listening(task["taskId"], "CLR-9-001.x") as events:
        acknowledged = await anext(events)
        assert acknowledged["method"] == "notifications/subscriptions/acknowledged"
        assert acknowledged["params"]["notifications"] == {"taskIds": [task["taskId"]]}
        assert (await stage.workspace.click(ADE, AGENTS, card.ts, label="b")).ok
        async for event in events:
            assert event["method"] == "notifications/tasks"
            if event["params"]["status"] == "completed":
                break
    assert event["params"]["result"]["structuredContent"]["answer"] == "b"
    assert stage.record()["aaep"]["reply"] != "confirmed", "only the answer to tasks/get is picked up"


async def test_task_is_cancelled_updated_and_joined(stage: World, agent: Agent) -> None:
    asked = {"question": "Which one?", "session": "s1"}
    task = await agent.call("ask_human", **asked)
    assert (await agent.call("ask_human", **asked))["taskId"] == task["taskId"]
    assert await agent.result("tasks/update", taskId=task["taskId"], inputResponses={}) == {
        "resultType": "complete"
    }
    assert await agent.result("tasks/cancel", taskId=task["taskId"]) == {"resultType": "complete"}
    assert (await agent.task(task["taskId"]))["status"] == "cancelled"
    assert await agent.result("tasks/cancel", taskId=task["taskId"]) == {"resultType": "complete"}


async def test_whoever_does_not_know_tasks_or_the_id_gets_none(
    stage: World, http: httpx.AsyncClient, agent: Agent
) -> None:
    task = await agent.call("ask_human", question="Which one?")
    name, _, secret = task["taskId"].rpartition(".")
    for guess in (name, f"{name}.{secret[:-1]}x", "CLR-100001-002." + secret, "nothing", ""):
        for method in ("tasks/get", "tasks/cancel", "tasks/update"):
            error = await agent.error(method, taskId=guess)
            assert (error["code"], error["message"]) == (-32602, "There is no such task."), (method, guess)
    for headers in ({"mcp-name": "another"}, {}):
        request = agent.request("tasks/get", {"taskId": task["taskId"]})
        request["headers"] = {
            name: each for name, each in request["headers"].items() if name != "mcp-name"
        } | headers
        answer = await http.post(**request)
        assert (answer.status_code, answer.json()["error"]["code"]) == (400, -32020)
    without = Agent(http, {})
    for method in ("tasks/get", "tasks/cancel", "tasks/update"):
        error = await without.error(method, taskId=task["taskId"])
        assert error["code"] == -32021
        assert error["data"] == {"requiredCapabilities": KNOWS}
    error = await without.error("subscriptions/listen", notifications={"taskIds": [task["taskId"]]})
    assert error["code"] == -32021
    waited = await without.call("ask_human", question="Another one?", wait=0)
    assert waited["structuredContent"]["status"] == "waiting"
