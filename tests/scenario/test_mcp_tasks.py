"""MCP's tasks extension, on `/mcp` and through `clarify mcp`: an agent that does not hold its call."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import Any, Protocol

import httpx
import pytest

from bot.ask.tools import IDENTIFIER
from bot.web import server, tools
from tests.kit.lives import Life, beside
from tests.kit.stdio import IMPATIENT, Stdio
from tests.kit.until import until
from tests.kit.world import World, config, own_url_of, url_of
from tests.scenario.other_parties import change_row
from workspace.seed import ADE, AGENTS, FALLBACK

Json = dict[str, Any]
VERSION = "2026-07-28"
SUBSCRIPTION = "io.modelcontextprotocol/subscriptionId"
NUMBERS = itertools.count(1)
KNOWS: Json = {"extensions": {IDENTIFIER: {}}}


class Door(Protocol):
    """Where messages of a client go."""

    async def answer(self, message: Json) -> Json: ...

    def events(self, message: Json) -> AbstractAsyncContextManager[AsyncIterator[Json]]: ...


class Http:
    """`/mcp`."""

    def __init__(self, client: httpx.AsyncClient) -> None:
        self._client = client

    async def answer(self, message: Json) -> Json:
        answer = await self._client.post(
            "/mcp", content=json.dumps(message).encode(), headers=headers_of(message)
        )
        lines = [line[5:] for line in answer.text.splitlines() if line.startswith("data:")]
        found: Json = json.loads(lines[-1] if lines else answer.text)
        return found

    @asynccontextmanager
    async def events(self, message: Json) -> AsyncIterator[AsyncIterator[Json]]:
        body, headers = json.dumps(message).encode(), headers_of(message)
        async with self._client.stream("POST", "/mcp", content=body, headers=headers) as stream:
            yield (json.loads(line[5:]) async for line in stream.aiter_lines() if line.startswith("data:"))


def headers_of(message: Json) -> dict[str, str]:
    name = message["params"].get("name", message["params"].get("taskId"))
    headers = {
        "accept": "application/json, text/event-stream",
        "content-type": "application/json",
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
    while (
        now["result"]["structuredContent"]["link"] is None
    ):  # Slack may take longer than a state waits for it
        now = await agent.task(task["taskId"])
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


@pytest.mark.either_database
async def test_listener_hears_each_end_once_and_is_dismissed_after_the_last(
    stage: World, agent: Agent
) -> None:
    tasks = [await agent.call("ask_human", question=each, choices=["a", "b"]) for each in ("One?", "Two?")]
    ids = [each["taskId"] for each in tasks]
    async with asyncio.timeout(60), agent.listening(*ids) as events:
        acknowledged = await anext(events)
        assert acknowledged["params"]["notifications"] == {"taskIds": ids}
        first = await stage.card("One?")
        assert (await stage.workspace.click(ADE, AGENTS, first.ts, label="b")).ok
        heard = await until_ended(events, ids[0])
        assert (await agent.task(ids[0]))["result"]["structuredContent"]["answer"] == "b"
        await stage.now_says(first, "the agent has resumed")  # it changed, after its end
        assert (await stage.workspace.click(ADE, AGENTS, (await stage.card("Two?")).ts, label="a")).ok
        heard += await until_ended(events, ids[1])
        last = await anext(events)
    ended = [each["taskId"] for each in heard if each["status"] == "completed"]
    assert ended == ids
    assert last["result"]["resultType"] == "complete"
    assert (
        last["result"]["_meta"][SUBSCRIPTION] == last["id"] == acknowledged["params"]["_meta"][SUBSCRIPTION]
    )


async def until_ended(events: AsyncIterator[Json], task_id: str) -> list[Json]:
    """Returns the tasks in the notifications, until this one has ended."""
    told = []
    async for event in events:
        assert event["method"] == "notifications/tasks"
        told.append(event["params"])
        if (told[-1]["taskId"], told[-1]["status"]) == (task_id, "completed"):
            break
    return told


async def test_listener_to_what_has_ended_hears_so_at_once(stage: World, agent: Agent) -> None:
    task = await agent.call("ask_human", question="Which one?", choices=["a", "b"])
    card = await stage.card("Which one?")
    assert (await stage.workspace.click(ADE, AGENTS, card.ts, label="b")).ok
    await stage.now_says(card, "Not picked up")
    async with asyncio.timeout(30), agent.listening(task["taskId"]) as events:
        kinds = [each.get("method", "result") for each in [await anext(events) for _ in range(3)]]
    assert kinds == ["notifications/subscriptions/acknowledged", "notifications/tasks", "result"]
    async with asyncio.timeout(30), agent.listening() as events:
        assert (await anext(events))["params"]["notifications"] == {"taskIds": []}
        assert "result" in await anext(events)


async def test_listener_hears_who_claimed_it(stage: World, agent: Agent) -> None:
    task = await agent.call("ask_human", question="Which one?", choices=["a", "b"])
    card = await stage.card("Which one?")
    async with asyncio.timeout(30), agent.listening(task["taskId"]) as events:
        await anext(events)
        assert (await stage.workspace.click(ADE, AGENTS, card.ts, label="Take")).ok
        async for event in events:
            if "waiting for a person" not in event["params"]["statusMessage"]:
                break
    assert event["params"]["statusMessage"].startswith(f"Asked in Slack; claimed by {ADE}.")
    assert event["params"]["status"] == "working"
    assert event["params"]["lastUpdatedAt"] > task["lastUpdatedAt"]


@pytest.mark.either_database
async def test_forgotten_task_is_unknown_and_a_changed_one_an_error_and_a_listener_hears_of_others(
    stage: World, agent: Agent
) -> None:
    questions = ("Forgotten?", "Changed?", "Answered?")
    tasks = [
        await agent.call("ask_human", question=each, choices=["a", "b"], session=each) for each in questions
    ]
    forgotten, changed, answered = ids = [each["taskId"] for each in tasks]
    cards = [await stage.card(each) for each in questions]
    async with asyncio.timeout(60), agent.listening(*ids) as events:
        await anext(events)
        assert (await beside(stage, "forget", forgotten.rpartition(".")[0], "--yes", "--abandon")).code == 0
        assert (await stage.workspace.click(ADE, AGENTS, cards[1].ts, label="a")).ok
        await until_ended(events, changed)
        name = changed.rpartition(".")[0]
        change_row(
            stage, lambda record: record["aaep"].update(response="b", label="b"), int(name.split("-")[1])
        )
        await stage.message(name, FALLBACK)
        assert (await stage.workspace.click(ADE, AGENTS, cards[2].ts, label="b")).ok
        await until_ended(events, answered)

    for method in ("tasks/get", "tasks/cancel", "tasks/update"):
        assert (await agent.error(method, taskId=forgotten))["code"] == -32602, method
    task = await agent.task(changed)
    assert (task["status"], task["result"]["isError"]) == ("completed", True)
    assert task["statusMessage"] == task["result"]["content"][0]["text"]
    assert "changed after it was decided" in task["statusMessage"]
    assert "structuredContent" not in task["result"]
    assert task["ttlMs"] > 0
    for method in ("tasks/cancel", "tasks/update"):
        assert await agent.result(method, taskId=changed) == {"resultType": "complete"}
    async with asyncio.timeout(30), agent.listening(*ids) as events:
        assert (await anext(events))["params"]["notifications"] == {"taskIds": [changed, answered]}
        assert {(await anext(events))["params"]["taskId"] for _ in range(2)} == {changed, answered}
        assert "result" in await anext(events)


@pytest.mark.speed(600)
async def test_expired_task_is_completed_and_no_error(stage: World, agent: Agent) -> None:
    asked: Json = {"question": "Which one?", "choices": ["a", "b"], "default": "b", "timeout": 900}
    task = await agent.call("ask_human", **asked)
    async with asyncio.timeout(60), agent.listening(task["taskId"]) as events:
        await anext(events)
        expired = (await until_ended(events, task["taskId"]))[-1]
    assert not expired["result"]["isError"]
    assert expired["statusMessage"] == 'No answer in time. Use the default: "b".'
    assert await agent.result("tasks/cancel", taskId=task["taskId"]) == {"resultType": "complete"}
    now = await agent.task(task["taskId"])
    assert (now["status"], now["result"]["structuredContent"]["status"]) == ("completed", "expired")
    assert now["result"]["structuredContent"]["default"] == "b"


async def test_cancelled_after_the_answer_stays_completed(stage: World, agent: Agent) -> None:
    task = await agent.call("ask_approval", action="Send the newsletter")
    card = await stage.card("Send the newsletter")
    assert (await stage.workspace.click(ADE, AGENTS, card.ts, label="Accept")).ok
    await stage.now_says(card, "Approved by")
    for _ in range(2):
        assert await agent.result("tasks/cancel", taskId=task["taskId"]) == {"resultType": "complete"}
    assert stage.record()["aaep"]["reply"] == "waiting", "tasks/cancel hands nothing out"
    now = await agent.task(task["taskId"])
    assert now["result"]["structuredContent"]["answer"]["decision"] == "accept"


async def test_id_that_is_none_of_ours_is_not_listened_to(url: str) -> None:
    async with opened("http", url) as door, asyncio.timeout(60):
        agent = Agent(door)
        await agent.call("ask_human", question="Which one?")
        for junk in ("\ud800", "CLR-100001-001.\ud800", "\x00", "é", "x" * 100_000, " ", ""):
            async with agent.listening(junk, junk) as events:
                assert (await anext(events))["params"]["notifications"] == {"taskIds": []}
                assert "result" in await anext(events)


async def test_wrong_list_of_ids_is_refused(agent: Agent) -> None:
    wrong: tuple[Any, ...] = ("x", 7, {}, [7], [None], ["x"] * 1001)
    for ids in wrong:
        error = await agent.error("subscriptions/listen", notifications={"taskIds": ids})
        assert (error["code"], "taskIds" in error["message"]) == (-32602, True), ids


@pytest.mark.either_database
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


async def test_capability_of_the_wrong_shape_is_refused(agent: Agent) -> None:
    arguments = {"name": "ask_human", "arguments": {"question": "Which one?", "wait": 0}}
    shapes: tuple[Any, ...] = (7, "io.modelcontextprotocol/tasks", [IDENTIFIER], {IDENTIFIER: 7})
    for extensions in shapes:
        wrong = Agent(agent.door, {"extensions": extensions})
        assert (await wrong.error("tools/call", **arguments))["code"] == -32602, extensions


async def test_header_of_another_task_is_refused(stage: World, url: str) -> None:
    async with httpx.AsyncClient(base_url=url, timeout=60) as client:
        agent = Agent(Http(client))
        task = await agent.call("ask_human", question="Which one?")
        message = agent.message("tasks/get", taskId=task["taskId"])
        for name in ({"mcp-name": "another"}, {}):
            headers = {field: each for field, each in headers_of(message).items() if field != "mcp-name"}
            answer = await client.post("/mcp", json=message, headers=headers | name)
            assert (answer.status_code, answer.json()["error"]["code"]) == (400, -32020)


@pytest.mark.either_database
async def test_every_replica_knows_a_task_and_so_does_the_next_run(stage: World) -> None:
    asked: Json = {"question": "Which one?", "choices": ["a", "b"], "session": "s1"}
    tasks = []
    async with stage.bot(), AsyncExitStack() as listening:
        doors = [await listening.enter_async_context(opened("http", own_url_of(each))) for each in stage.bots]
        streams = []
        for agent in map(Agent, doors):
            tasks.append(await agent.call("ask_human", **asked))
            streams.append(await listening.enter_async_context(agent.listening(tasks[0]["taskId"])))
            await anext(streams[-1])
        card = await stage.card("Which one?")
        assert (await stage.workspace.click(ADE, AGENTS, card.ts, label="b")).ok
        for stream in streams:
            async with asyncio.timeout(30):
                await until_ended(stream, tasks[0]["taskId"])
        assert stage.record()["aaep"]["reply"] == "waiting"
    async with stage.bot():
        for each in stage.bots:
            async with opened("http", own_url_of(each)) as door:
                now = await Agent(door).task(tasks[0]["taskId"])
                assert now["result"]["structuredContent"]["answer"] == "b"
    assert len({(each["taskId"], each["createdAt"]) for each in tasks}) == 1


async def test_task_of_another_producer_is_unknown(stage: World) -> None:
    more = ""
    for name in ("coder", "tester"):
        stage.environ[f"{name.upper()}_TOKEN"] = f"secret of {name}"
        more += f'[[producers]]\nname = "{name}"\ntoken_env = "{name.upper()}_TOKEN"\n'
    async with stage.bot(config(stage.producer.url, more=more)) as bot, AsyncExitStack() as doors:
        coder, tester = [
            Agent(
                Http(await doors.enter_async_context(httpx.AsyncClient(base_url=url_of(bot), headers=each)))
            )
            for each in ({"authorization": f"Bearer secret of {name}"} for name in ("coder", "tester"))
        ]
        task_id = (await coder.call("ask_human", question="Which one?"))["taskId"]
        for method in ("tasks/get", "tasks/cancel", "tasks/update"):
            assert (await tester.error(method, taskId=task_id))["code"] == -32602
        async with tester.listening(task_id) as events:
            assert (await anext(events))["params"]["notifications"] == {"taskIds": []}
        assert (await coder.task(task_id))["status"] == "working"


async def test_approval_of_a_named_session_is_joined_only_while_it_waits(stage: World, agent: Agent) -> None:
    action: Json = {"action": "Send the newsletter", "session": "s1"}
    tasks = [await agent.call("ask_approval", **action) for _ in range(2)]
    card = await stage.card("Send the newsletter")
    assert (await stage.workspace.click(ADE, AGENTS, card.ts, label="Accept")).ok
    await stage.now_says(card, "Approved by")
    tasks.append(await agent.call("ask_approval", **action))
    first, second, third = [each["taskId"] for each in tasks]
    assert first == second != third
    assert (await agent.task(third))["status"] == "working"


async def test_bot_that_stops_dismisses_its_listeners(stage: World) -> None:
    async with AsyncExitStack() as listening:
        async with stage.bot() as bot:
            agent = Agent(await listening.enter_async_context(opened("http", url_of(bot))))
            task = await agent.call("ask_human", question="Which one?")
            events = await listening.enter_async_context(agent.listening(task["taskId"]))
            await anext(events)
        assert [each["result"]["resultType"] async for each in events if "result" in each] == ["complete"]


async def test_listeners_leave_places_for_others_and_are_forgotten_when_they_leave(
    stage: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "_MOST_WAITING", 4)
    async with stage.bot() as bot, opened("http", url_of(bot)) as door, AsyncExitStack() as listening:
        agent = Agent(door)
        task_id = (await agent.call("ask_human", question="Which one?"))["taskId"]
        streams = [await listening.enter_async_context(agent.listening(task_id)) for _ in range(2)]
        for each in streams:
            assert "method" in await anext(each)
        message = agent.message("subscriptions/listen", notifications={"taskIds": [task_id]})
        assert (await door.answer(message))["error"] == "TOO_MANY_LISTEN"
        assert (await agent.task(task_id))["status"] == "working"
        await listening.aclose()
        await until(lambda: not any(each.agents.questions._waiting for each in stage.bots))
        heard = None
        async with asyncio.timeout(30):
            while heard is None:  # the bot ends their requests a moment later
                async with agent.listening(task_id) as events:
                    heard = await anext(events, None)
        assert heard["method"] == "notifications/subscriptions/acknowledged"


async def test_listeners_that_begin_at_once_leave_turns_of_the_event_loop_to_clicks(
    stage: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    turn, looked = itertools.count(), Counter[int]()
    now = 0

    async def count() -> None:
        nonlocal now
        while True:
            now = next(turn)
            await asyncio.sleep(0)

    of_task = tools.Call._of_task

    async def seen(call: tools.Call, task_id: str) -> Any:
        looked[now] += 1
        return await of_task(call, task_id)

    monkeypatch.setattr(tools.Call, "_of_task", seen)
    async with stage.bot() as bot, opened("http", url_of(bot)) as door, AsyncExitStack() as listening:
        agent = Agent(door)
        ids = [(await agent.call("ask_human", question=f"Which {n}?"))["taskId"] for n in range(20)]
        counting = asyncio.create_task(count())
        entering = [listening.enter_async_context(agent.listening(*ids)) for _ in range(10)]
        for events in await asyncio.gather(*entering):
            assert (await anext(events))["params"]["notifications"] == {"taskIds": ids}
        assert looked.total() >= 200
        assert max(looked.values()) == 1
        counting.cancel()


async def test_cancelled_listener_over_stdio_hears_no_more(stage: World, url: str) -> None:
    async with opened("stdio", url) as door:
        assert isinstance(door, Stdio)
        agent = Agent(door)
        task_id = (await agent.call("ask_human", question="Which one?", choices=["a", "b"]))["taskId"]
        message = agent.message("subscriptions/listen", notifications={"taskIds": [task_id]})
        async with door.events(message) as left:
            await anext(left)
        card = await stage.card("Which one?")
        async with asyncio.timeout(30), agent.listening(task_id) as stays:
            await anext(stays)
            assert (await stage.workspace.click(ADE, AGENTS, card.ts, label="b")).ok
            await until_ended(stays, task_id)
            assert "result" in await anext(stays)
        assert await door.end() == 0
        # That the question is in Slack may have been on its way.
        assert all(each["params"]["status"] == "working" for each in door.rest(message["id"]))


@pytest.mark.either_database
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
            meanwhile = await agent.task(task["taskId"])  # an error would end the task for its client
            assert (meanwhile["status"], meanwhile["resultType"]) == ("working", "complete")
            assert "cannot be reached" in meanwhile["statusMessage"]
            assert (await agent.error("tasks/get", taskId="CLR-9-001.x"))["code"] == -32603
            async with Life.of(stage):
                assert (await stage.workspace.click(ADE, AGENTS, card.ts, label="b")).ok
                async for event in events:
                    if event["params"]["status"] == "completed":
                        break
                assert (await agent.task(task["taskId"]))["result"]["structuredContent"]["answer"] == "b"
