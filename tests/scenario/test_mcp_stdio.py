"""`clarify mcp` on the wire: what it says alone, what it forwards, and how it ends. It runs where nothing is installed."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.metadata import version
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx
import pytest
from mcp import Client, StdioServerParameters
from mcp_types import Implementation

import clarify
from tests.kit.lives import Life
from tests.kit.processes import ROOT
from tests.kit.served import accepting
from tests.kit.stdio import IMPATIENT, Json, Stdio, envelope
from tests.kit.until import until
from tests.kit.world import World, config, controls, url_of
from tests.scenario.test_mcp import words
from workspace.seed import AGENTS, FOLAKE

NOWHERE = "http://127.0.0.1:9"
TASKS: Json = {"extensions": {"io.modelcontextprotocol/tasks": {}}}
INITIALIZE: Json = {
    "id": "init",
    "method": "initialize",
    "params": {"protocolVersion": "2025-06-18", "clientInfo": {"name": "coder", "version": "1"}},
}


@pytest.fixture
async def url(stage: World) -> AsyncIterator[str]:
    async with stage.bot() as bot:
        yield url_of(bot)


@pytest.fixture
async def alone() -> AsyncIterator[Stdio]:
    """It runs, and no bot does."""
    async with Stdio.started(NOWHERE) as door:
        yield door


def asking(key: Any, question: str, **more: Any) -> Json:
    params = {"name": "ask_human", "arguments": {"question": question, **more}}
    return {"id": key, "method": "tools/call", "params": params}


@pytest.mark.parametrize("mode", ["legacy", "2026-07-28"])
async def test_copied_file_asks_where_nothing_is_installed(
    stage: World, url: str, tmp_path: Path, mode: str
) -> None:
    shutil.copy(ROOT / "clarify.py", tmp_path / "clarify.py")
    clean = ["-I", "-S"]
    looks = "from importlib.util import find_spec as f; print(f('mcp'), f('bot'), f('pydantic'))"
    found = await asyncio.to_thread(subprocess.check_output, [sys.executable, *clean, "-c", looks])
    assert found.split() == [b"None"] * 3
    server = StdioServerParameters(
        command=sys.executable, args=[*clean, str(tmp_path / "clarify.py"), "mcp", "--url", url], cwd=tmp_path
    )
    async with Client(server, mode=mode, client_info=Implementation(name="coder", version="1")) as client:
        call = asyncio.create_task(
            client.call_tool("ask_human", {"question": "Which?", "choices": ["a", "b"]})
        )
        card = await stage.card("Which?")
        await stage.workspace.click(FOLAKE, AGENTS, card.ts, label="b")
        result = await call
    state = result.structured_content or {}
    assert (state["answer"], state["agent"]) == ("b", "coder")
    assert words(result).endswith('"b".')


async def test_tools_are_those_of_the_bot_and_listed_without_it(url: str, alone: Stdio) -> None:
    for mode, meta in (("legacy", {}), ("2026-07-28", {"_meta": envelope()})):
        async with Client(f"{url}/mcp", mode=mode) as client:
            theirs = (await client.list_tools()).model_dump(by_alias=True, mode="json", exclude_none=True)
        answer = await alone.answer({"id": mode, "method": "tools/list", "params": meta})
        assert answer["result"]["tools"] == theirs["tools"]


@pytest.mark.parametrize(
    ("asked", "negotiated"),
    [
        ("2024-11-05", "2024-11-05"),
        ("2025-06-18", "2025-06-18"),
        ("2025-11-25", "2025-11-25"),
        ("2026-07-28", "2025-11-25"),
        ("2030-01-01", "2025-11-25"),
        (None, "2025-11-25"),
        ([], "2025-11-25"),
    ],
)
async def test_handshake_needs_no_bot(alone: Stdio, asked: Any, negotiated: str) -> None:
    params = INITIALIZE["params"] | {"protocolVersion": asked}
    result = (await alone.answer(INITIALIZE | {"params": params}))["result"]
    assert result == {
        "protocolVersion": negotiated,
        "capabilities": {"tools": {"listChanged": False}},
        "serverInfo": {"name": "clarify", "title": "clarify-bot", "version": version("clarify-bot")},
        "instructions": clarify.INSTRUCTIONS,
    }
    alone.send({"method": "notifications/initialized"})
    assert (await alone.answer({"id": 1, "method": "ping"}))["result"] == {}
    listed = (await alone.answer({"id": 2, "method": "tools/list"}))["result"]
    assert not {"resultType", "ttlMs", "cacheScope"} & listed.keys()


async def test_newest_protocol_needs_no_bot(alone: Stdio) -> None:
    discovered = await alone.answer({"id": 1, "method": "server/discover", "params": {"_meta": envelope()}})
    result = discovered["result"]
    assert result["supportedVersions"] == ["2026-07-28"]
    assert result["capabilities"] == {**TASKS, "tools": {"listChanged": False}}
    assert result["_meta"]["io.modelcontextprotocol/serverInfo"]["name"] == "clarify"
    listed = (await alone.answer({"id": 2, "method": "tools/list", "params": {"_meta": envelope()}}))[
        "result"
    ]
    assert (listed["resultType"], listed["ttlMs"], listed["cacheScope"]) == ("complete", 0, "private")


_VERSION = "io.modelcontextprotocol/protocolVersion"
_SUBSCRIPTION = "io.modelcontextprotocol/subscriptionId"


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        ({"method": "no/such"}, -32601),
        ({"method": "server/discover"}, -32601),
        ({"method": "tasks/get", "params": {"taskId": "x"}}, -32601),
        ({"method": "subscriptions/listen", "params": {"notifications": {"taskIds": ["x"]}}}, -32601),
        ({"method": "resources/list", "params": {"_meta": envelope()}}, -32601),
        ({"method": "ping", "params": {"_meta": envelope()}}, -32601),
        ({"method": "tools/list", "params": {"_meta": envelope() | {_VERSION: "2027-01-01"}}}, -32022),
        ({"method": "tools/list", "params": {"_meta": {_VERSION: "2026-07-28"}}}, -32602),
        ({"method": "tools/call"}, -32602),
        ({"method": "tools/call", "params": {"name": 7}}, -32602),
        ({"method": "tools/call", "params": {"name": "ask\r\nX-Evil: 1"}}, -32602),
        ({"method": "tasks/get", "params": {"taskId": [], "_meta": envelope(**TASKS)}}, -32602),
        ({"method": "ping", "params": [1]}, -32600),
        ({"method": 7}, -32600),
        ({}, -32600),
        ({"method": "ping", "jsonrpc": "1.0"}, -32600),
    ],
)
async def test_wrong_request_gets_its_error(alone: Stdio, request_: Json, code: int) -> None:
    alone.send({"id": 1, **request_})
    error = (await alone.said(1))["error"]
    assert (error["code"], type(error["message"])) == (code, str)
    if code == -32022:
        assert error["data"] == {"supported": ["2026-07-28"], "requested": "2027-01-01"}
    assert "result" in await alone.answer({"id": 2, "method": "ping"})


@pytest.mark.parametrize(
    ("line", "code"),
    [
        (b"{", -32700),
        (b"\xff\xfe{", -32700),
        (b"[" * 100_000, -32700),
        (b"9" * 10_000, -32700),
        (b'{"jsonrpc": "2.0", "id": 1, "method": "ping", "method": "tools/list"}', -32700),
        (b"[]", -32600),
        (b"7", -32600),
        (b"null", -32600),
        (b'[{"jsonrpc":"2.0","id":1,"method":"ping"}]', -32600),
        (b'{"jsonrpc":"2.0","id":null,"method":"ping"}', -32600),
        (b'{"jsonrpc":"2.0","id":true,"method":"ping"}', -32600),
        (b'{"jsonrpc":"2.0","id":1.5,"method":"ping"}', -32600),
        (b'{"jsonrpc":"2.0","id":[1],"method":"ping"}', -32600),
        (b"", None),
        (b"  \t", None),
        (b'{"jsonrpc":"2.0","id":1,"result":{}}', None),
        (b'{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":"x"}}', None),
        (b'{"jsonrpc":"2.0","method":"notifications/no/such"}', None),
        (b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":[1]}}', None),
        (b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"unknown"}}', None),
    ],
)
async def test_line_that_is_no_request(alone: Stdio, line: bytes, code: int | None) -> None:
    alone.write(line + b"\n")
    if code is not None:
        assert (await alone.said(None))["error"]["code"] == code
    assert "result" in await alone.answer({"id": "after", "method": "ping"})
    assert alone.is_silent(None)


async def test_line_without_an_end_takes_little_memory(alone: Stdio) -> None:
    assert alone.process.stdin is not None
    for _ in range(160):
        alone.write(b"x" * 1_000_000)
        await alone.process.stdin.drain()
    alone.write(b"\n")
    assert (await alone.said(None))["error"]["code"] == -32700
    assert "result" in await alone.answer({"id": 1, "method": "ping"})
    assert _peak(alone.process.pid) < 60_000
    assert alone.is_silent(None)


def _peak(pid: int) -> int:
    """The most memory that a process ever had, in KB."""
    if sys.platform != "linux":
        pytest.skip("Linux says it in /proc")
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmHWM")).split()[1])


async def test_call_that_waits_blocks_no_other(stage: World, url: str) -> None:
    async with Stdio.started(url) as door:
        await door.answer(INITIALIZE)
        door.send(asking(1, "Slow?", choices=["a", "b"], wait=55))
        card = await stage.card("Slow?")
        assert (await door.answer({"id": 2, "method": "ping"}))["result"] == {}
        asked = (await door.answer(asking(3, "Quick?", wait=0)))["result"]
        assert asked["structuredContent"]["status"] == "waiting"
        assert door.is_silent(1)
        await stage.workspace.click(FOLAKE, AGENTS, card.ts, label="a")
        result = (await door.said(1))["result"]
        assert result["structuredContent"]["answer"] == "a"
        assert "resultType" not in result


async def test_id_of_a_call_under_way_cannot_be_used_again(stage: World, url: str) -> None:
    async with Stdio.started(url) as door:
        door.send(asking(1, "Once?", wait=55))
        card = await stage.card("Once?")
        door.send({"id": 1, "method": "ping"})
        assert (await door.said(None))["error"]["code"] == -32600
        await stage.workspace.post(FOLAKE, AGENTS, "yes", card.ts)
        assert (await door.said(1))["result"]["structuredContent"]["answer"] == "yes"
        assert (await door.answer({"id": 1, "method": "ping"}))["result"] == {}


async def test_cancelled_call_gets_no_response_and_takes_no_answer(stage: World, url: str) -> None:
    async with Stdio.started(url) as door:
        door.send(asking(1, "Still?", wait=55, session="s"))
        card = await stage.card("Still?")
        door.send({"method": "notifications/cancelled", "params": {"requestId": 1}})
        async with httpx.AsyncClient(base_url=url) as http, asyncio.timeout(10):
            hung_up = 'clarify_mcp_calls_total{outcome="left",tool="ask_human"} 1.0'
            while hung_up not in (await http.get("/metrics")).text:
                continue
        await stage.workspace.post(FOLAKE, AGENTS, "yes", card.ts)
        await stage.now_says(card, "Not picked up by the agent yet")
        assert door.is_silent(1)
        again = (await door.answer(asking(3, "Still?", wait=1, session="s")))["result"]
        assert again["structuredContent"]["answer"] == "yes"
        await stage.now_says(card, "the agent has resumed")


async def test_cancelled_call_ends_while_the_bot_is_away() -> None:
    async with Stdio.started(NOWHERE, IMPATIENT) as door:
        door.send(asking(1, "Anybody?"))
        door.send({"method": "notifications/cancelled", "params": {"requestId": 1}})
        door.send(asking(2, "Anybody?"))
        result = (await door.said(2))["result"]  # it gives up later than the other
        assert "cannot be reached" in result["content"][0]["text"]
        assert "Repeat the same call" in result["content"][0]["text"]
        assert door.is_silent(1)


async def test_end_of_input_ends_the_process_and_withdraws_nothing(stage: World, url: str) -> None:
    async with Stdio.started(url) as door:
        door.send(asking(1, "Still?", wait=55))
        card = await stage.card("Still?")
        async with asyncio.timeout(5):
            assert await door.end() == 0
        assert door.is_silent(1)
    async with Stdio.started(url) as door:  # a bot that serves another call has seen the end of the first
        await door.answer(asking(1, "Another?", wait=0))
    (still,) = [each for each in stage.cards() if each.ts == card.ts]
    assert controls(still)


async def test_client_that_reads_no_more_ends_the_process() -> None:
    reading, writing = os.pipe()
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-I", "-S", str(ROOT / "clarify.py"), "mcp"),
        stdin=asyncio.subprocess.PIPE,
        stdout=writing,
    )
    os.close(writing)
    os.close(reading)
    assert process.stdin is not None
    process.stdin.write(b'{"jsonrpc":"2.0","id":1,"method":"ping"}\n')
    async with asyncio.timeout(30):
        assert await process.wait() == 0


async def test_lines_stay_whole_when_much_is_said_at_once(stage: World, url: str) -> None:
    async with Stdio.started(url) as door:
        for number in range(60):
            door.send(asking(f"call {number}", f"{number}?", wait=0))
            door.send({"id": f"list {number}", "method": "tools/list"})
        for number in range(60):
            assert (await door.said(f"call {number}"))["result"]["structuredContent"]["status"] == "waiting"
            assert len((await door.said(f"list {number}"))["result"]["tools"]) == 4


async def test_progress_grows_over_a_restart_of_the_bot(stage: World, port: int) -> None:
    stage.configure(config(stage.producer.url, more=f'[http]\nlisten = "127.0.0.1:{port}"\n'))
    async with Life.of(stage) as life, Stdio.started(f"http://127.0.0.1:{port}") as door:
        call = asking(1, "Which?", wait=55)
        call["params"]["_meta"] = {"progressToken": "token"}
        door.send(call)
        card = await stage.card("Which?")
        await until(lambda: door.progress)
        await life.killed()
        seen = len(door.progress)
        async with Life.of(stage):
            await until(lambda: len(door.progress) > seen)
            await stage.workspace.post(FOLAKE, AGENTS, "this", card.ts)
            assert (await door.said(1))["result"]["structuredContent"]["answer"] == "this"
    assert all(earlier["progress"] < later["progress"] for earlier, later in pairwise(door.progress))
    assert {each["progressToken"] for each in door.progress} == {"token"}


@asynccontextmanager
async def served(*answers: bytes, seconds: float = 0) -> AsyncIterator[tuple[str, list[tuple[str, Json]]]]:
    """A server that gives these answers, one to each request, the first after some seconds, and then hangs up. Its address,
    and the requests' heads and bodies.
    """
    heard: list[tuple[str, Json]] = []
    left = list(answers)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        length = next(line for line in head.lower().splitlines() if line.startswith("content-length"))
        heard.append((head, json.loads(await reader.readexactly(int(length.partition(":")[2])))))
        await asyncio.sleep(seconds if len(heard) == 1 else 0)
        writer.write(left.pop(0) if left else b"")
        await writer.drain()
        writer.close()

    async with accepting(serve) as port:
        yield f"http://127.0.0.1:{port}", heard


def http(status: str, kind: str, body: str) -> bytes:
    return f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode()


DONE = '{"jsonrpc": "2.0", "id": 1, "result": {"content": [{"type": "text", "text": "done"}]}}'


async def test_repeated_call_is_the_same_and_waits_for_what_is_left() -> None:
    event = f"event: message\r\ndata: {DONE}\r\n\r\n: ping\r\n"
    chunks = "".join(f"{len(part):x}\r\n{part}\r\n" for part in (event[:20], event[20:]))
    stream = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
    answers = [
        b"",
        http("503 Service Unavailable", "text/plain", "later"),
        stream,  # which breaks off
        stream + chunks.encode() + b"0\r\n\r\n",
    ]
    async with served(*answers) as (url, heard), Stdio.started(url) as door:
        result = (await door.answer(asking(1, "Which?", wait=30)))["result"]
        assert result["content"][0]["text"] == "done"
    names = [line for head, _ in heard for line in head.splitlines() if line.startswith("Clarify-Call: ")]
    assert (len(names), len(set(names))) == (4, 1)
    waits = [body["params"]["arguments"].pop("wait") for _, body in heard]
    assert waits[0] == 30
    assert all(earlier > later > 20 for earlier, later in pairwise(waits))
    assert all(body == heard[0][1] for _, body in heard)


def events(*messages: Json) -> bytes:
    body = "".join(f"data: {json.dumps({'jsonrpc': '2.0', **each})}\n\n" for each in messages)
    return http("200 OK", "text/event-stream", body)


def acknowledged(*task_ids: str) -> Json:
    params = {"_meta": {_SUBSCRIPTION: 1}, "notifications": {"taskIds": task_ids}}
    return {"method": "notifications/subscriptions/acknowledged", "params": params}


def changed(task_id: str, status: str) -> Json:
    params = {"_meta": {_SUBSCRIPTION: 1}, "taskId": task_id, "status": status}
    return {"method": "notifications/tasks", "params": params}


async def test_listener_listens_again_to_what_has_not_ended() -> None:
    done: Json = {"id": 1, "result": {"resultType": "complete", "_meta": {_SUBSCRIPTION: 1}}}
    answers = [
        events(acknowledged("a", "b", "c"), changed("a", "working"), done),  # the bot stops
        events(
            acknowledged("a", "b", "c"),
            changed("a", "completed"),
            {"id": 1, "error": {"code": -32603, "message": "The storage is away."}},
        ),
        events(acknowledged("c"), changed("c", "working")),  # b was deleted; it breaks off
        events(acknowledged("c"), changed("c", "completed")),  # it breaks off before the end
        events(acknowledged(), done),
    ]
    message = {
        "id": 1,
        "method": "subscriptions/listen",
        "params": {"notifications": {"taskIds": ["a", "b", "c"]}, "_meta": envelope(**TASKS)},
    }
    async with served(*answers) as (url, heard), Stdio.started(url) as door:
        said = [await door.answer(message)]
        while "result" not in said[-1]:
            said.append(await door.said(1))
        assert door.is_silent(1)
    ids = [body["params"]["notifications"]["taskIds"] for _, body in heard]
    assert ids == [["a", "b", "c"], ["a", "b", "c"], ["b", "c"], ["c"], []]
    assert [each.get("method", "").rpartition("/")[2] for each in said] == [
        "acknowledged",
        *["tasks"] * 4,
        "",
    ]
    assert [each["params"]["status"] for each in said[1:-1]] == ["working", "completed"] * 2


async def test_bot_that_breaks_off_a_long_call_is_waited_for_as_long_as_one_that_was_away() -> None:
    answers = (b"", http("200 OK", "application/json", DONE))
    async with served(*answers, seconds=1) as (url, _), Stdio.started(url, IMPATIENT) as door:
        result = (await door.answer(asking(1, "Which?", wait=30)))["result"]
        assert result["content"][0]["text"] == "done"


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (http("200 OK", "text/html", "<p>Log in</p>"), "not clarify-bot"),
        (http("302 Found", "text/html", ""), "not clarify-bot"),
        (http("200 OK", "application/json", '{"jsonrpc": "2.0"}'), "not clarify-bot"),
        (http("200 OK", "application/json", '{"jsonrpc": "2.0", "result": 7}'), "not clarify-bot"),
        (http("200 OK", "text/event-stream", "data: [\r\n\r\n"), "not clarify-bot"),
        (http("401 Unauthorized", "application/json", '{"error": "X", "message": "No."}'), "No."),
        (b"SSH-2.0-OpenSSH_9.6\r\n\r\n", "does not speak HTTP"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{", "ended before"),
    ],
)
async def test_server_that_is_no_bot_is_an_error_for_the_model(answer: bytes, said: str) -> None:
    async with served(*[answer] * 9) as (url, _), Stdio.started(url, IMPATIENT) as door:
        result = (await door.answer(asking(1, "Which?", wait=30)))["result"]
        assert result["isError"] is True
        assert said in result["content"][0]["text"]
        assert "result" in await door.answer({"id": 2, "method": "ping"})


def told(name: str = "CLR-1-001", kind: str = "approval", **arguments: Any) -> Json:
    """A result that says that an action was approved."""
    answer = {"decision": "accept", "arguments": arguments}
    state = {"say": "Approved.", "id": name, "kind": kind, "status": "answered", "answer": answer}
    return {"content": [{"type": "text", "text": "Approved."}], "structuredContent": state}


def calling(key: int, tool: str, **arguments: Any) -> Json:
    return {"id": key, "method": "tools/call", "params": {"name": tool, "arguments": arguments}}


SENDS: Json = {"action": "Send", "arguments": {"to": 1, "who": "ann of hunter2"}}
WAITS: Json = {"structuredContent": {"id": "CLR-1-001", "kind": "approval", "status": "waiting"}}


@pytest.mark.parametrize(
    ("sent", "found"),
    [
        (SENDS, told(to=1.0, who="ann of [redacted]")),
        (
            SENDS | {"arguments": '{"to": 1, "who": "ann of hunter2"}'},
            told(to=1, who="ann of hunter2"),
        ),
        (SENDS | {"editable": "True"}, told(to=2, who="ann of hunter2")),
        ({"action": "Send"}, told()),
    ],
)
async def test_approval_of_what_was_sent_is_passed_on(sent: Json, found: Json) -> None:
    answers = [events({"id": 1, "result": WAITS}), events({"id": 2, "result": found})]
    async with served(*answers) as (url, _), Stdio.started(url) as door:
        await door.answer(calling(1, "ask_approval", **sent))
        result = (await door.answer(calling(2, "wait_for_answer", id="CLR-1-001")))["result"]
        assert result["structuredContent"]["status"] == "answered"


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (told(to=2, who="ann of hunter2"), "Other arguments were approved"),
        (told(to=True, who="ann of hunter2"), "Other arguments were approved"),
        (told(to=1, who="bob of [redacted]"), "Other arguments were approved"),
        (told(to=1), "Other arguments were approved"),
        (told("CLR-1-002", **SENDS["arguments"]), "about another question"),
        (told(kind="form", **SENDS["arguments"]), "about another question"),
    ],
)
async def test_approval_of_something_else_is_an_error_for_the_model(found: Json, said: str) -> None:
    answers = [events({"id": 1, "result": WAITS}), events({"id": 2, "result": found})]
    async with served(*answers) as (url, _), Stdio.started(url) as door:
        await door.answer(calling(1, "ask_approval", **SENDS))
        result = (await door.answer(calling(2, "wait_for_answer", id="CLR-1-001")))["result"]
        assert result["isError"] is True
        assert said in result["content"][0]["text"]
        assert "structuredContent" not in result


async def test_task_ends_with_the_approval_of_what_it_asked() -> None:
    def ended(found: Json, name: str = "CLR-1-001.x") -> bytes:
        return events({"id": 2, "result": {"taskId": name, "status": "completed", "result": found}})

    asked = events({"id": 1, "result": {"resultType": "task", "taskId": "CLR-1-001.x", "status": "working"}})
    call = calling(1, "ask_approval", **SENDS)
    call["params"]["_meta"] = envelope(**TASKS)
    poll = {"id": 2, "method": "tasks/get", "params": {"taskId": "CLR-1-001.x", "_meta": envelope(**TASKS)}}
    good = told(**SENDS["arguments"])
    for found, is_passed_on in (
        (ended(good), True),
        (ended(told(to=2)), False),
        (ended(told("CLR-1-002", **SENDS["arguments"])), False),
        (ended(good, "CLR-1-002.x"), False),
    ):
        async with served(asked, found) as (url, _), Stdio.started(url) as door:
            await door.answer(call)
            assert ("result" in await door.answer(poll)) is is_passed_on


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [(["--url", "ftp://x"], "not an HTTP address"), (["--port", "1"], "unrecognized arguments")],
)
def test_wrong_usage_exits_with_2(arguments: list[str], problem: str) -> None:
    command = [sys.executable, "-I", "-S", str(ROOT / "clarify.py"), "mcp", *arguments]
    ended = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert problem in ended.stderr
