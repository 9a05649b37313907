"""MCP's tasks extension, on `/mcp` and through `clarify mcp`: an agent that does not hold its call."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Protocol

import httpx
import pytest

from bot.tasks import IDENTIFIER
from bot.workspace.seed import ADE, AGENTS
from tests.kit.lives import Life
from tests.kit.stdio import IMPATIENT, Stdio
from tests.kit.world import World, config, url_of

Json = dict[str, Any]
VERSION = "2026-07-28"
SUBSCRIPTION = "io.modelcontextprotocol/subscriptionId"
NUMBERS = itertools.count(1)
KNOWS: Json = {"extensions": {IDENTIFIER: {}}}

pytestmark = pytest.mark.either_database


class Door(Protocol):
    """Where messages of a client go."""

    async def answer(self, message: Json) -> Json: ...

    def events(self, message: Json) -> AbstractAsyncContextManager[AsyncIterator[Json]]: ...


class Http:
    """`/mcp`."""

    def __init__(self, client: httpx.AsyncClient) -> None:
        self._client = client

    async def answer(self, message: Json) -> Json:
        answer = await self._client.post("/mcp", json=message, headers=headers_of(message))
        lines = [line[5:] for line in answer.text.splitlines() if line.startswith("data:")]
        found: Json = json.loads(lines[-1] if lines else answer.text)
        return found

    @asynccontextmanager
    async def events(self, message: Json) -> AsyncIterator[AsyncIterator[Json]]:
        headers = headers_of(message)
        async with self._client.stream("POST", "/mcp", json=message, headers=headers) as stream:
            yield (json.loads(line[5:]) async for line in stream.aiter_lines() if line.startswith("data:"))


def headers_of(message: Json) -> dict[str, str]:
    name = message["params"].get("name", message["params"].get("taskId"))
    headers = {
        "accept": "application/json, text/event-stream",
        "mcp-protocol-version": VERSION,
        "mcp-method": message["method"],
    }
    return headers | ({} if name is None else {"mcp-name": name})


class Agent:
    """A client, as the protocol has it on the wire."""

    def __init__(self, door: Door, capabilities: Json = KNOWS) -> None:
        self.door = door
        self.capabilities = capabilities

    def message(self, method: str, **params: Any) -> Json:
        meta = {
            "io.modelcontextprotocol/protocolVersion": VERSION,
            "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
            "io.modelcontextprotocol/clientCapabilities": self.capabilities,
        }
        return {
            "jsonrpc": "2.0",
            "id": next(NUMBERS),
            "method": method,
            "params": {**params, "_meta": meta},
        }

    async def call(self, tool: str, **arguments: Any) -> Json:
        return await self.result("tools/call", name=tool, arguments=arguments)

    async def result(self, method: str, **params: Any) -> Json:
        answer = await self.door.answer(self.message(method, **params))
        assert "result" in answer, answer
        found: Json = answer["result"]
        assert found.pop("_meta")["io.modelcontextprotocol/serverInfo"]["name"] == "clarify"
        return found

    async def error(self, method: str, **params: Any) -> Json:
        answer = await self.door.answer(self.message(method, **params))
        assert "error" in answer, answer
        found: Json = answer["error"]
        return found

    async def task(self, task_id: str) -> Json:
        return await self.result("tasks/get", taskId=task_id)

    def listening(self, *task_ids: str) -> AbstractAsyncContextManager[AsyncIterator[Json]]:
        return self.door.events(self.message("subscriptions/listen", notifications={"taskIds": task_ids}))


@asynccontextmanager
async def opened(door: str, url: str) -> AsyncIterator[Door]:
    if door == "stdio":
        async with Stdio.started(url) as stdio:
            yield stdio
    else:
        async with httpx.AsyncClient(base_url=url, timeout=60) as client:
            yield Http(client)


@pytest.fixture
async def url(stage: World) -> AsyncIterator[str]:
    async with stage.bot() as bot:
        yield url_of(bot)


@pytest.fixture(params=["http", "stdio"])
async def agent(url: str, request: pytest.FixtureRequest) -> AsyncIterator[Agent]:
    async with opened(request.param, url) as door:
        yield Agent(door)


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
    for known in (name, task["taskId"]):
        waited = await agent.call("wait_for_answer", id=known)
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


async def test_whoever_does_not_know_tasks_or_the_id_gets_none(stage: World, agent: Agent) -> None:
    task = await agent.call("ask_human", question="Which one?")
    name, _, secret = task["taskId"].rpartition(".")
    close = secret[:-1] + ("y" if secret.endswith("x") else "x")
    for guess in (name, f"{name}.{close}", "CLR-100001-002." + secret, "nothing", ""):
        for method in ("tasks/get", "tasks/cancel", "tasks/update"):
            error = await agent.error(method, taskId=guess)
            assert (error["code"], error["message"]) == (-32602, "There is no such task."), (method, guess)
    without = Agent(agent.door, {})
    for method in ("tasks/get", "tasks/cancel", "tasks/update"):
        error = await without.error(method, taskId=task["taskId"])
        assert error["code"] == -32021
        assert error["data"] == {"requiredCapabilities": KNOWS}
    error = await without.error("subscriptions/listen", notifications={"taskIds": [task["taskId"]]})
    assert error["code"] == -32021
    waited = await without.call("ask_human", question="Another one?", wait=0)
    assert waited["structuredContent"]["status"] == "waiting"


async def test_header_of_another_task_is_refused(stage: World, url: str) -> None:
    async with httpx.AsyncClient(base_url=url, timeout=60) as client:
        agent = Agent(Http(client))
        task = await agent.call("ask_human", question="Which one?")
        message = agent.message("tasks/get", taskId=task["taskId"])
        for name in ({"mcp-name": "another"}, {}):
            headers = {field: each for field, each in headers_of(message).items() if field != "mcp-name"}
            answer = await client.post("/mcp", json=message, headers=headers | name)
            assert (answer.status_code, answer.json()["error"]["code"]) == (400, -32020)


@pytest.mark.parametrize("end", [Life.killed, Life.stop])
async def test_listener_over_stdio_hears_of_an_answer_after_a_restart_of_the_bot(
    stage: World, port: int, end: Callable[[Life], Awaitable[object]]
) -> None:
    """However long it was away."""
    stage.configure(config(stage.producer.url, more=f'[http]\nlisten = "127.0.0.1:{port}"\n'))
    async with (
        Life.of(stage) as life,
        Stdio.started(f"http://127.0.0.1:{port}", IMPATIENT) as door,
        asyncio.timeout(60),
    ):
        agent = Agent(door)
        task = await agent.call("ask_human", question="Which one?", choices=["a", "b"])
        card = await stage.card("Which one?")
        async with agent.listening(task["taskId"]) as events:
            await anext(events)
            await end(life)
            async with Life.of(stage):
                assert (await stage.workspace.click(ADE, AGENTS, card.ts, label="b")).ok
                async for event in events:
                    if event["params"]["status"] == "completed":
                        break
                assert (await agent.task(task["taskId"]))["result"]["structuredContent"]["answer"] == "b"
