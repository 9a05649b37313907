"""Agents ask people over MCP, with the official client: over HTTP and over stdio, by both kinds of the protocol."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
from mcp import Client, StdioServerParameters
from mcp.client import session
from mcp.shared.exceptions import MCPError
from mcp_types import CallToolResult, Implementation, TextContent

import clarify
from bot.ask.tools import RECEIPT_LIMIT, say
from bot.web.questions import QuestionState
from core.questions import NewQuestion
from core.workflow import Speaker
from tests.kit.clocks import LeapClock
from tests.kit.lives import Life
from tests.kit.processes import ROOT
from tests.kit.until import until
from tests.kit.world import World, config, controls, said, scene, url_of
from workspace.seed import ADE, AGENTS, FOLAKE
from workspace.state import Message

CLARIFY = ["-m", "bot.cli"]
DOORS = [(door, version) for door in ("http", "stdio") for version in ("2025-06-18", "2026-07-28")]


class Caller:
    """A client, and what its tools return."""

    def __init__(self, client: Client) -> None:
        self.client = client

    async def call(self, name: str, *, is_error: bool = False, **arguments: Any) -> dict[str, Any]:
        result = await self.client.call_tool(name, arguments)
        assert result.is_error is is_error, words(result)
        return {"said": words(result)} | (result.structured_content or {})


Doorway = Callable[..., AbstractAsyncContextManager[Caller]]


def words(result: CallToolResult) -> str:
    (content,) = result.content
    assert isinstance(content, TextContent)
    return content.text


def clarification_of(card: Message) -> str:
    found: str = (card.metadata or {})["event_payload"]["clarification"]
    return found


def over(door: str, version: str, url: str, **more: str) -> Client:
    """A client by `clarify mcp` or by HTTP."""
    mode = "legacy" if version < "2026" else version
    name = Implementation(name="test-agent", version="1")
    if door == "http":
        return Client(f"{url}/mcp", mode=mode, client_info=name)
    environ = {"CLARIFY_URL": url, "PYTHONPATH": str(ROOT)} | more
    server = StdioServerParameters(command=sys.executable, args=[*CLARIFY, "mcp"], env=environ)
    return Client(server, mode=mode, client_info=name)


@asynccontextmanager
async def called(door: str, version: str, url: str) -> AsyncIterator[Caller]:
    with pytest.MonkeyPatch.context() as patch:
        if version < "2026":  # the client offers its newest only
            patch.setattr(session, "LATEST_HANDSHAKE_VERSION", version)
        async with over(door, version, url) as client:
            assert client.session.protocol_version == version
            yield Caller(client)


@pytest.fixture
async def url(stage: World) -> AsyncIterator[str]:
    async with stage.bot() as bot:
        yield url_of(bot)


@pytest.mark.parametrize(("door", "version"), DOORS)
async def test_answer_comes_back_through_every_door(stage: World, url: str, door: str, version: str) -> None:
    seen: list[float] = []

    async def progressed(progress: float, total: float | None, message: str | None) -> None:
        assert total is None
        assert message is not None
        seen.append(progress)

    async with called(door, version, url) as caller:
        tools = {tool.name: tool for tool in (await caller.client.list_tools()).tools}
        assert set(tools) == {"ask_human", "ask_approval", "wait_for_answer", "withdraw_question"}
        arguments = {"question": "Which age?", "choices": ["65", "67"], "wait": 50}
        asking = asyncio.create_task(
            caller.client.call_tool("ask_human", arguments, progress_callback=progressed)
        )
        card = await stage.card("Which age?")
        await until(lambda: seen)
        await stage.workspace.click(FOLAKE, AGENTS, card.ts, label="67")
        result = await asking
    state = result.structured_content
    assert (state["status"], state["answer"], state["kind"]) == ("answered", "67", "choice")
    assert state["agent"] == ("local" if door == "http" else "test-agent")
    assert "answered by user:slack/" in words(result)
    assert '"67"' in words(result)
    assert "\n" not in words(result)
    await stage.now_says(card, "the agent has resumed")


@pytest.mark.parametrize(("door", "version"), [DOORS[0], DOORS[-1]])
async def test_call_that_was_not_answered_says_how_to_wait(
    stage: World, url: str, door: str, version: str
) -> None:
    async with called(door, version, url) as caller:
        asked = await caller.call("ask_human", question="Go on?", kind="yes_no", wait=0)
        assert asked["status"] == "waiting"
        assert "wait_for_answer" in asked["said"]
        assert asked["id"] in asked["said"]
        card = await stage.card("Go on?")
        waiting = asyncio.create_task(caller.call("wait_for_answer", id=asked["id"]))
        await stage.workspace.click(FOLAKE, AGENTS, card.ts, label="Yes")
        assert (await waiting)["answer"] is True
        await stage.now_says(card, "the agent has resumed")
        # It is over, and was handed out: asked again, it is another question.
        again = await caller.call("ask_human", question="Go on?", kind="yes_no", wait=0)
        assert again["id"] != asked["id"]


@pytest.mark.parametrize("door", ["http", "stdio"])
async def test_approval_is_accepted_rejected_or_withdrawn(stage: World, url: str, door: str) -> None:
    async with called(door, "2026-07-28", url) as caller:
        asked = await caller.call(
            "ask_approval",
            action="Send it",
            risk="high",
            arguments={"to": 1204},
            requested_by="ann@example.com",
            wait=0,
        )
        assert asked["kind"] == "approval"
        card = await stage.card("Send it")
        assert "Asked for ann@example.com, says the agent." in said(card)
        await stage.workspace.post(FOLAKE, AGENTS, "reject: not on a Friday", card.ts)
        rejected = await caller.call("wait_for_answer", id=asked["id"])
        assert rejected["answer"] == {"decision": "reject", "arguments": {"to": 1204}}
        by = f"user:slack/T0LOCAL/{FOLAKE}"
        assert rejected["say"] == f"Rejected by {by}: not on a Friday. That is no consent. Do not do it."
        assert rejected["said"] == f"{asked['id']}: r{rejected['say'][1:]}"
        other = await caller.call("ask_approval", action="Delete it", wait=0)
        card = await stage.card("Delete it")
        assert (await caller.call("withdraw_question", id=other["id"]))["status"] == "withdrawn"
        assert not controls(await stage.now_says(card, "Withdrawn"))


@pytest.mark.parametrize("door", ["http", "stdio"])
async def test_form_and_arguments_that_people_may_change(stage: World, url: str, door: str) -> None:
    schema = {
        "properties": {"port": {"type": "integer", "title": "Port", "minimum": 1}},
        "required": ["port"],
    }
    async with called(door, "2025-06-18", url) as caller:
        asked = await caller.call("ask_human", question="Which port?", schema=schema, wait=0)
        assert asked["kind"] == "form"
        await stage.workspace.post(FOLAKE, AGENTS, "8080", (await stage.card("Which port?")).ts)
        answered = await caller.call("wait_for_answer", id=asked["id"])
        assert answered["answer"] == {"port": 8080}
        assert '{"port": 8080}' in answered["said"]
        asked = await caller.call("ask_human", question="How many?", schema={"type": "integer"}, wait=0)
        card = await stage.card("How many?")
        await stage.workspace.post(FOLAKE, AGENTS, "3", card.thread_ts or card.ts)
        assert (await caller.call("wait_for_answer", id=asked["id"]))["answer"] == 3
        wrong = {"arguments": {"to": "all"}, "arguments_schema": {"properties": {"to": {"type": "integer"}}}}
        refused = await caller.call("ask_approval", is_error=True, action="Send it", **wrong)
        assert refused["said"].startswith("`arguments.to` does not fit `arguments_schema`.")
        arguments: dict[str, Any] = {"arguments": {"to": 2**60 + 1}, "editable": True, "approvals": 2}
        arguments["arguments_schema"] = wrong["arguments_schema"]
        asked = await caller.call("ask_approval", action="Send it", **arguments, wait=0)
        card = await stage.card("Send it")
        for user in (FOLAKE, ADE):
            await stage.workspace.click(user, AGENTS, card.ts, label="Accept")
        accepted = await caller.call("wait_for_answer", id=asked["id"])
        assert accepted["answer"] == {"decision": "accept", "arguments": {"to": 2**60 + 1}}
        by = f"approved by user:slack/T0LOCAL/{FOLAKE} and user:slack/T0LOCAL/{ADE}."
        assert by in accepted["said"]
        assert 'Go ahead with exactly these arguments: {"to": 1152921504606846977}' in accepted["said"]


@pytest.mark.parametrize("door", ["http", "stdio"])
async def test_receipt_is_for_the_client_and_its_meaning_for_the_model(
    stage: World, url: str, door: str
) -> None:
    long = "x" * 2000
    async with called(door, "2025-06-18", url) as caller:
        small: dict[str, Any] = {"action": "Send it"}
        large: dict[str, Any] = {"action": "Send it all", "consequence": long, "context": long} | {
            "arguments": {"body": long}
        }
        for arguments, label, did in ((small, "Accept", "Approved"), (large, "Reject", "Rejected")):
            asked = await caller.call("ask_approval", **arguments, wait=0)
            card = await stage.card(arguments["action"])
            assert (await stage.workspace.click(FOLAKE, AGENTS, card.ts, label=label)).ok
            result = await caller.client.call_tool("wait_for_answer", {"id": asked["id"]})
            content, meta = result.structured_content or {}, result.meta or {}
            assert next(iter(content)) == "say"
            assert content["say"].startswith(f"{did} by user:slack/T0LOCAL/{FOLAKE}.")
            assert not {"asked", "receipt"} & content.keys()
            async with httpx.AsyncClient(base_url=url) as http:
                receipt = (await http.get(f"/receipts/{asked['id']}")).text
            if arguments is small:
                assert meta["receipt"] == receipt
            else:
                assert len(receipt) > RECEIPT_LIMIT
                assert meta["receipt_url"] == f"/receipts/{asked['id']}"
                assert "receipt" not in meta


@pytest.mark.parametrize(
    ("state", "said"),
    [
        (
            {"kind": "approval", "status": "answered", "answer": {"decision": "reject"}}
            | {"decided_by": "user:ann", "comment": "not on\na Friday"},
            "Rejected by @ann: not on a Friday. That is no consent. Do not do it.",
        ),
        (
            {"kind": "approval", "status": "answered", "answer": {"decision": "accept"}}
            | {"decided_by": "user:ben", "approved_by": ["user:ann", "user:ben"], "comment": "Checked!"},
            "Approved by @ann and @ben: Checked! Go ahead.",
        ),
        (
            {"kind": "approval", "status": "expired", "answer": None},
            "No decision in time. That is no consent. Do not do it.",
        ),
        (
            {"kind": "approval", "status": "closed", "answer": None, "decided_by": "user:ann@example.com"},
            "Closed by user:ann@example.com without an answer. That is no consent. Do not do it.",
        ),
        (
            {"kind": "text", "status": "closed", "answer": None, "decided_by": "user:slack/T1/U1"}
            | {"comment": "Ask me later"},
            "Closed by user:slack/T1/U1 without an answer: Ask me later.",
        ),
        (
            {"kind": "choice", "status": "answered", "answer": "a", "decided_by": "user:ann", "other": "b"},
            'Answered by @ann: "a", in their own words: "b".',
        ),
    ],
)
def test_words_for_the_model(state: dict[str, Any], said: str) -> None:
    assert say({"id": "CLR-1-001"} | state) == said


async def test_withdrawn_too_late_is_the_answer(stage: World, url: str) -> None:
    async with called("http", "2026-07-28", url) as caller:
        asked = await caller.call("ask_human", question="How many?", kind="number", wait=0)
        card = await stage.card("How many?")
        await stage.workspace.post(FOLAKE, AGENTS, "12.5", card.ts)
        await stage.now_says(card, "Answered: “12.5”")
        late = await caller.call("withdraw_question", id=asked["id"])
        assert (late["status"], late["answer"]) == ("answered", 12.5)
        await stage.now_says(card, "the agent has resumed")


@pytest.mark.parametrize("door", ["http", "stdio"])
async def test_mistakes_are_results_that_say_what_is_wrong(url: str, door: str) -> None:
    async with called(door, "2026-07-28", url) as caller:
        async with httpx.AsyncClient(base_url=url) as http:
            over_http = (await http.post("/questions", json={"question": "x", "choices": ["a", "a"]})).json()
        wrong = await caller.call("ask_human", question="x", choices=["a", "a"], is_error=True)
        assert wrong["said"] == over_http["message"]
        assert wrong["said"].startswith("Duplicate choice: `choices[1]`")
        mistakes: list[tuple[str, dict[str, Any], str]] = [
            ("ask_human", {}, "`question` is required."),
            ("ask_human", {"question": "x", "wait": 56}, "`wait` must be a number of seconds from 0 to 55."),
            ("ask_human", {"question": "x", "colour": "red"}, "`colour` is not a field of a question."),
            (
                "ask_human",
                {"question": "x", "choices": [1, 2]},
                "`choices[0]` must be a string or an object with `value`.",
            ),
            (
                "ask_human",
                {"question": "x", "timeout": "5m"},
                "`timeout` must be a number of seconds from 1 to 2,592,000.",
            ),
            ("ask_approval", {"action": "x", "irreversible": True, "risk": "low"}, "`irreversible` requires"),
            ("ask_approval", {"question": "x"}, "`action` is required"),
            ("ask_human", {"question": "x", "multiple": "perhaps"}, "`multiple` must be true or false."),
            (
                "ask_human",
                {"question": "x", "choices": "eu, us"},
                "`choices` must be an array. You sent a string;",
            ),
            (
                "ask_approval",
                {"action": "x", "arguments": "{n: 3}"},
                "`arguments` must be an object. You sent a string;",
            ),
            ("ask_approval", {"action": "x", "arguments": '{"n": 1, "n": 2}'}, "the same name twice"),
            ("ask_approval", {"action": ""}, "`action` is required"),
            ("wait_for_answer", {"id": None}, "`id` is required"),
            ("ask_human", {"question": "x", "kind": "approval"}, "Call ask_approval"),
            ("wait_for_answer", {"id": "CLR-7-001"}, "CLR-7-001"),
            ("wait_for_answer", {"id": "seven"}, "'seven'"),
            ("withdraw_question", {}, "`id` is required"),
            ("withdraw_question", {"id": "CLR-7-001", "why": "x"}, "`why` is not an argument of this tool."),
        ]
        for name, arguments, part in mistakes:
            assert part in (await caller.call(name, is_error=True, **arguments))["said"]
        with pytest.raises(MCPError, match="Unknown tool"):
            await caller.client.call_tool("ask_nobody", {})


@pytest.mark.parametrize("door", ["http", "stdio"])
async def test_arguments_that_clients_send_as_text_are_what_the_tool_wants(
    stage: World, url: str, door: str
) -> None:
    async with called(door, "2026-07-28", url) as caller:
        sent: dict[str, Any] = {
            "action": "Send A",
            "arguments": '{"list": "all", "n": 3}',
            "editable": "true",
        }
        asked = await caller.call("ask_approval", **sent, timeout="300", wait="0", approvals="1")
        card = await stage.card("Send A")
        created, expires = (datetime.fromisoformat(asked[each]) for each in ("created_at", "expires_at"))
        assert 299 < (expires - created).total_seconds() <= 301
        await stage.workspace.click(FOLAKE, AGENTS, card.ts, label="Accept")
        done = await caller.call("wait_for_answer", id=asked["id"], wait="30")
        assert done["answer"] == {"decision": "accept", "arguments": {"list": "all", "n": 3}}
        for more, kind, default in (
            ({"choices": '["eu", "us"]', "multiple": "False", "default": "eu"}, "choice", "eu"),
            ({"choices": ["eu", "us"], "multiple": "true", "default": '["eu"]'}, "choice", ["eu"]),
            ({"kind": "yes_no", "default": "false"}, "yes_no", False),
            ({"kind": "number", "default": "12.5"}, "number", 12.5),
            ({"kind": "text", "default": "12.5"}, "text", "12.5"),
            (
                {
                    "schema": '{"type": "object", "properties": {"n": {"type": "integer"}}}',
                    "default": '{"n": 1}',
                },
                "form",
                {"n": 1},
            ),
            ({"schema": '{"type": "integer"}', "default": "3"}, "form", 3),
            ({"schema": {"type": "string"}, "default": "3"}, "form", "3"),
        ):
            state = await caller.call("ask_human", question=f"{kind}?", **more, wait="0")
            assert (state["kind"], state["default"]) == (kind, default)


@pytest.mark.parametrize("left_out", [None, ""])
@pytest.mark.parametrize("door", ["http", "stdio"])
async def test_arguments_that_are_null_or_empty_are_left_out(
    url: str, door: str, left_out: str | None
) -> None:
    async with called(door, "2026-07-28", url) as caller:
        for tool in clarify.mcp_tools():
            if tool["name"] in clarify.ASKING:
                properties = dict.fromkeys(tool["inputSchema"]["properties"], left_out)
                required = dict.fromkeys(tool["inputSchema"]["required"], "Q")
                state = await caller.call(tool["name"], **properties | required | {"wait": 0})
                assert (state["status"], state["key"], state["default"]) == ("waiting", None, None)
        waited = await caller.call("wait_for_answer", id=state["id"], wait=0)
        assert waited["status"] == "waiting"


async def test_fields_that_are_null_are_left_out(url: str) -> None:
    fields = dict.fromkeys((field.alias or name for name, field in NewQuestion.model_fields.items()), None)
    async with httpx.AsyncClient(base_url=url) as http:
        answer = await http.post("/questions", json=fields | {"question": "Q?"})
        assert (answer.status_code, answer.json()["kind"]) == (201, "text")


@pytest.mark.parametrize(("door", "version"), DOORS)
async def test_broken_off_call_withdraws_nothing_and_asks_nothing_twice(
    stage: World, url: str, door: str, version: str
) -> None:
    question: dict[str, Any] = {
        "question": "Still there?",
        "kind": "yes_no",
        "session": "s",
        "agent": "planner",
    }
    async with called(door, version, url) as caller:
        asking = asyncio.create_task(caller.call("ask_human", **question))
        card = await stage.card("Still there?")
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
    await stage.workspace.click(FOLAKE, AGENTS, card.ts, label="No")
    await stage.now_says(card, "Not picked up by the agent yet")
    async with called(door, version, url) as caller:  # another client, whose ids begin again
        state = await caller.call("ask_human", **question, wait=1)
        assert state["answer"] is False
        await stage.now_says(card, "the agent has resumed")
        asked = await caller.call("ask_human", **question, wait=0)
        assert asked["status"] == "waiting"
        same = await asyncio.gather(*(caller.call("ask_human", **question, wait=0) for _ in range(5)))
        assert {each["id"] for each in same} == {asked["id"]}
        others = [{**question, "session": "t"}, {**question, "agent": "coder"}, {**question, "timeout": 60}]
        for other in others:
            assert (await caller.call("ask_human", **other, wait=0))["id"] != asked["id"]


async def test_same_words_over_http_are_another_question(stage: World, url: str) -> None:
    async with called("http", "2026-07-28", url) as caller, httpx.AsyncClient(base_url=url) as http:
        asked = await caller.call("ask_human", question="Which?", wait=0)
        posted = (await http.post("/questions", json={"question": "Which?"})).json()
        assert posted["id"] != asked["id"]
        keyed = await caller.call("ask_human", question="Which?", key="k", wait=0)
        again = (await http.post("/questions", json={"question": "Which?", "key": "k"})).json()
        assert keyed["id"] == again["id"]


async def test_calls_at_once_ask_once(stage: World, url: str) -> None:
    async with called("http", "2026-07-28", url) as caller:
        calls = [caller.call("ask_human", question="Once?", wait=0) for _ in range(8)]
        assert len({state["id"] for state in await asyncio.gather(*calls)}) == 1
    await stage.card("Once?")
    assert len(stage.cards()) == 1


async def test_callers_without_a_session_ask_for_approval_each_for_itself(stage: World, url: str) -> None:
    sending: dict[str, Any] = {"action": "Send it", "arguments": {"to": 1204}, "wait": 0}
    async with called("http", "2026-07-28", url) as one, called("http", "2025-06-18", url) as other:
        states = await asyncio.gather(*(caller.call("ask_approval", **sending) for caller in (one, other)))
        ids = [state["id"] for state in states]
        assert len(set(ids)) == 2
        await stage.until(lambda: len(stage.cards()) == 2)
        card = next(each for each in stage.cards() if clarification_of(each) == ids[0])
        await stage.workspace.click(FOLAKE, AGENTS, card.ts, label="Accept")
        assert (await one.call("wait_for_answer", id=ids[0]))["answer"]["decision"] == "accept"
        assert (await other.call("wait_for_answer", id=ids[1], wait=0))["status"] == "waiting"
        assert (await other.call("ask_approval", **sending))["id"] not in ids


async def test_named_session_joins_an_approval_only_while_it_waits(stage: World, url: str) -> None:
    sending: dict[str, Any] = {"action": "Send it", "session": "release", "wait": 0}
    async with called("http", "2026-07-28", url) as caller:
        asked = await caller.call("ask_approval", **sending)
        calls = [caller.call("ask_approval", **sending) for _ in range(4)]
        assert {each["id"] for each in await asyncio.gather(*calls)} == {asked["id"]}
        assert (await caller.call("ask_approval", **sending | {"session": "other"}))["id"] != asked["id"]
        card = await stage.until(
            lambda: next((each for each in stage.cards() if clarification_of(each) == asked["id"]), None)
        )
        await stage.workspace.click(FOLAKE, AGENTS, card.ts, label="Accept")
        await stage.now_says(card, "Not picked up by the agent yet")
        again = await caller.call("ask_approval", **sending)  # it was accepted once, for the call before
        assert (again["id"] != asked["id"], again["status"]) == (True, "waiting")
        assert (await caller.call("wait_for_answer", id=asked["id"]))["answer"]["decision"] == "accept"


async def test_same_key_gets_the_approval_that_was_answered(stage: World, url: str) -> None:
    sending: dict[str, Any] = {"action": "Send it", "key": "release-7", "wait": 0}
    async with called("http", "2026-07-28", url) as caller:
        asked = await caller.call("ask_approval", **sending)
        await stage.workspace.click(FOLAKE, AGENTS, (await stage.card("Send it")).ts, label="Accept")
        answered = await caller.call("ask_approval", **sending | {"wait": 30})
        assert (answered["id"], answered["answer"]["decision"]) == (asked["id"], "accept")
        assert (await caller.call("ask_approval", **sending | {"key": "release-8"}))["id"] != asked["id"]


@pytest.mark.parametrize(
    "asking",
    [
        ("ask_approval", {"action": "Go on"}),
        ("ask_approval", {"action": "Go on", "session": "s"}),
        ("ask_human", {"question": "Go on", "choices": ["Go on", "Stop"]}),
    ],
)
async def test_answer_that_was_not_fetched_in_time_is_nobody_elses(
    tmp_path: Path, asking: tuple[str, dict[str, Any]]
) -> None:
    clock, (tool, arguments) = LeapClock(), asking
    yes = arguments.get("choices", ["Accept"])[0]
    async with scene(tmp_path, clock=clock) as stage, stage.bot() as bot:
        async with called("http", "2026-07-28", url_of(bot)) as one:
            asked = await one.call(tool, **arguments, timeout=60, wait=0)
            card = await stage.card("Go on")
            await stage.workspace.click(FOLAKE, AGENTS, card.ts, label=yes)
            await stage.now_says(card, "Not picked up by the agent yet")
        clock.leap(timedelta(seconds=61))
        async with called("http", "2026-07-28", url_of(bot)) as third:
            late = await third.call(tool, **arguments, timeout=60, wait=0)
            assert (late["id"] != asked["id"], late["status"], late["answer"]) == (True, "waiting", None)
            await stage.until(lambda: len(stage.cards()) == 2)
            assert (await third.call("wait_for_answer", id=asked["id"]))["status"] == "answered"


async def test_calls_that_differ_in_what_is_redacted_are_not_joined(stage: World) -> None:
    bare = '[[producers]]\nname = "bare"\nredact = ["hunter[0-9]"]\n'
    async with (
        stage.bot(config(stage.producer.url, more=bare)) as bot,
        called("http", "2026-07-28", url_of(bot)) as caller,
    ):
        for tool, sent in (
            ("ask_approval", lambda host: {"action": "Log in", "arguments": {"host": host}}),
            ("ask_human", lambda host: {"question": f"May I use {host}?"}),
        ):
            ids = [
                (await caller.call(tool, **sent(host), session="s", wait=0))["id"]
                for host in ("hunter1", "hunter2", "hunter1")
            ]
            assert [each == ids[0] for each in ids] == [True, False, True], tool
        plain: dict[str, Any] = {
            "action": "Log in",
            "arguments": {"host": "db1", "port": 5432.0},
            "session": "s",
            "wait": 0,
        }
        same = [await caller.call("ask_approval", **plain) for _ in range(2)]
        assert same[0]["id"] == same[1]["id"]


async def test_call_that_is_cancelled_at_its_first_wait_was_asked(stage: World) -> None:
    async with stage.bot() as bot:
        asking = asyncio.ensure_future(
            bot.agents.questions.ask(NewQuestion(question="At once?"), Speaker("local"), repeats=True)
        )
        await asyncio.sleep(0)
        asking.cancel()
        await stage.card("At once?")
        assert asking.cancelled()


async def test_nobody_answers_in_time(tmp_path: Path) -> None:
    async with (
        scene(tmp_path, clock=LeapClock(600)) as stage,
        stage.bot() as bot,
        called("http", "2026-07-28", url_of(bot)) as caller,
    ):
        asked = await caller.call(
            "ask_human", question="Which?", choices=["a", "b"], default="b", timeout=60, wait=0
        )
        await stage.now_says(await stage.card("Which?"), "Expired")
        state = await caller.call("wait_for_answer", id=asked["id"])
        assert (state["status"], state["default"]) == ("expired", "b")
        assert 'Use the default: "b"' in state["said"]


async def test_process_is_a_session(stage: World, url: str) -> None:
    async with called("stdio", "2026-07-28", url) as one, called("stdio", "2025-06-18", url) as other:
        states = [
            await caller.call("ask_human", question=question, wait=0)
            for caller in (one, other)
            for question in ("A?", "B?")
        ]
    sessions = [state["session"] for state in states]
    assert sessions[0] == sessions[1]
    assert sessions[2] == sessions[3]
    assert sessions[0] != sessions[2]
    assert {state["agent"] for state in states} == {"test-agent"}


async def test_session_of_null_is_that_of_the_process(stage: World, url: str) -> None:
    sending: dict[str, Any] = {"action": "Send it", "session": None, "agent": None, "wait": 0}
    async with called("stdio", "2026-07-28", url) as caller:
        asked = [await caller.call("ask_approval", **sending) for _ in range(2)]
    assert asked[0]["id"] == asked[1]["id"]
    assert asked[0]["agent"] == "test-agent"


async def test_stdio_lives_through_a_restart_of_the_bot(stage: World, port: int) -> None:
    stage.configure(config(stage.producer.url, more=f'[http]\nlisten = "127.0.0.1:{port}"\n'))
    async with Life.of(stage) as life, called("stdio", "2026-07-28", f"http://127.0.0.1:{port}") as caller:
        asking = asyncio.create_task(caller.call("ask_human", question="Which?", choices=["a", "b"], wait=55))
        card = await stage.card("Which?")
        await life.killed()
        async with Life.of(stage):
            await stage.workspace.click(FOLAKE, AGENTS, card.ts, label="b")
            assert (await asking)["answer"] == "b"
            assert len(stage.cards()) == 1


async def test_approval_that_was_accepted_before_a_broken_off_call_came_again_is_handed_to_it(
    stage: World, port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`clarify mcp` repeats the call by itself: it is the same one."""
    program = "import clarify, bot.cli; clarify._PAUSES = (3.0, 3.0); bot.cli.main()"
    monkeypatch.setattr(f"{__name__}.CLARIFY", ["-c", program])
    stage.configure(config(stage.producer.url, more=f'[http]\nlisten = "127.0.0.1:{port}"\n'))
    async with Life.of(stage) as life, called("stdio", "2026-07-28", f"http://127.0.0.1:{port}") as caller:
        asking = asyncio.create_task(caller.call("ask_approval", action="Send it", wait=55))
        card = await stage.card("Send it")
        await life.killed()
        async with Life.of(stage):
            await stage.workspace.click(FOLAKE, AGENTS, card.ts, label="Accept")
            assert (await asking)["answer"]["decision"] == "accept"
            assert len(stage.cards()) == 1
            again = await caller.call("ask_approval", action="Send it", wait=0)
            assert again["status"] == "waiting"
            await stage.until(lambda: len(stage.cards()) == 2)


@pytest.mark.parametrize("version", ["2025-06-18", "2026-07-28"])
async def test_bot_that_stops_ends_the_calls(
    stage: World, version: str, capsys: pytest.CaptureFixture[str]
) -> None:
    async def ask(url: str) -> dict[str, Any]:
        async with called("http", version, url) as caller:
            await caller.client.list_tools()  # or it would ask for them afterwards
            return await caller.call("ask_human", question="Still?", wait=50)

    async with stage.bot() as bot:
        asking = asyncio.create_task(ask(url_of(bot)))
        await stage.card("Still?")
    state = await asking
    assert (state["status"], "wait_for_answer" in state["said"]) == ("waiting", True)
    assert "[error" not in capsys.readouterr().out


async def test_bot_away_is_a_mistake_that_the_model_can_read(
    port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is waited for shorter than in life."""
    program = "import clarify, bot.cli; clarify._BOT_AWAY = 0.5; bot.cli.main()"
    monkeypatch.setattr(f"{__name__}.CLARIFY", ["-c", program])
    async with called("stdio", "2026-07-28", f"http://127.0.0.1:{port}") as caller:
        state = await caller.call("ask_human", question="Anybody?", wait=0, is_error=True)
        assert "cannot be reached" in state["said"]


async def test_callers_are_those_of_the_bot(stage: World) -> None:
    more = '[http]\nlisten = "127.0.0.1:0"\norigins = ["https://inspector.example.com"]\n'
    call = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "tools/call",
        "params": {"name": "ask_human", "arguments": {"question": "From a page?", "wait": 0}},
    }
    headers = {"Accept": "application/json, text/event-stream", "MCP-Protocol-Version": "2025-11-25"}
    async with (
        stage.bot(config(stage.producer.url, more=more)) as bot,
        httpx.AsyncClient(base_url=url_of(bot), headers=headers) as http,
    ):
        for wrong, code in [
            ({"Origin": "https://evil.example.com"}, "BROWSER"),
            ({"Origin": "http://localhost.evil.example.com:6274"}, "BROWSER"),
            ({"Origin": "http://localhost:6274", "Host": "evil.example.com"}, "HOST"),
            ({"Host": "evil.example.com"}, "HOST"),
            ({"Content-Type": "text/plain"}, "NOT_JSON"),
            ({"Authorization": "Bearer wrong"}, "UNAUTHORIZED"),
        ]:
            answer = await http.post(
                "/mcp", content=json.dumps(call), headers={"Content-Type": "application/json"} | wrong
            )
            assert answer.json()["error"] == code, wrong
        for local in ("http://localhost:6274", "https://127.0.0.1", "http://[::1]:3000"):
            answer = await http.post("/mcp", json=call, headers={"Origin": local})
            assert answer.status_code == 200
            assert "access-control-allow-origin" not in answer.headers
            assert (await http.get("/questions", headers={"Origin": local})).json()["error"] == "BROWSER"
        page = {"Origin": "https://inspector.example.com"}
        preflight = {
            "Access-Control-Request-Method": "POST",
            "Access-Control-Request-Headers": "mcp-protocol-version",
        }
        allowed = await http.options("/mcp", headers=page | preflight)
        assert allowed.headers["access-control-allow-origin"] == page["Origin"]
        answer = await http.post("/mcp", json=call, headers=page)
        assert answer.status_code == 200
        assert answer.headers["access-control-allow-origin"] == page["Origin"]
        assert (await http.get("/mcp")).status_code == 405
        assert (
            await http.post("/mcp", content=b"x" * 2_000_000, headers={"Content-Type": "application/json"})
        ).status_code == 413


async def test_callers_with_the_same_words_have_questions_of_their_own(stage: World) -> None:
    more = ""
    for name in ("coder", "tester"):
        stage.environ[f"{name.upper()}_TOKEN"] = f"secret of {name}"
        more += f'[[producers]]\nname = "{name}"\ntoken_env = "{name.upper()}_TOKEN"\n'
    question = {"question": "Which?", "agent": "both", "session": "s", "wait": 0}
    async with stage.bot(config(stage.producer.url, more=more)) as bot:
        ids = []
        for name in ("coder", "tester"):
            async with over("stdio", "2026-07-28", url_of(bot), CLARIFY_TOKEN=f"secret of {name}") as client:
                asked = (await client.call_tool("ask_human", question)).structured_content
                ids.append(asked["id"])
                if name == "tester":
                    other = await client.call_tool("wait_for_answer", {"id": ids[0], "wait": 0})
                    assert (other.is_error, ids[0] in words(other)) == (True, True)
        assert len(set(ids)) == 2


async def test_token_is_enough_from_anywhere(stage: World) -> None:
    stage.environ["CODER_TOKEN"] = "secret"
    more = '[[producers]]\nname = "coder"\ntoken_env = "CODER_TOKEN"\n'
    async with stage.bot(config(stage.producer.url, more=more)) as bot:
        with_token = {"Authorization": "Bearer secret", "Host": "clarify.example.com"}
        async with httpx.AsyncClient(base_url=url_of(bot), headers=with_token) as http:
            call = {
                "jsonrpc": "2.0",
                "id": 1,
                "method": "tools/call",
                "params": {"name": "ask_human", "arguments": {"question": "Who am I?", "wait": 0}},
            }
            answer = await http.post(
                "/mcp", json=call, headers={"Accept": "application/json, text/event-stream"}
            )
            assert '"agent":"coder"' in answer.text.replace("\\", "").replace(" ", "")
        async with over("stdio", "2026-07-28", url_of(bot)) as client:
            refused = await client.call_tool("ask_human", {"question": "Who am I?"})
            assert (refused.is_error, words(refused)) == (
                True,
                "Send the bearer token of your producer: Authorization: Bearer TOKEN.",
            )
        async with over("stdio", "2026-07-28", url_of(bot), CLARIFY_TOKEN="secret") as client:
            state = (
                await client.call_tool("ask_human", {"question": "Who am I?", "wait": 0})
            ).structured_content
            assert state["status"] == "waiting"


def test_output_schema_is_that_of_the_state() -> None:
    """The schema stands apart, where the bot is not imported: what it names is there."""
    known = QuestionState.model_json_schema()["properties"]
    for tool in clarify.mcp_tools():
        output = tool["outputSchema"]
        assert set(output["properties"]) - {"say"} <= set(known) - {"asked", "receipt"}
        assert next(iter(output["properties"])) == output["required"][0] == "say"
        assert output["properties"]["status"]["enum"] == known["status"]["enum"]
