from __future__ import annotations

import time

import aiohttp
import pytest
from slack_sdk.errors import SlackApiError
from slack_sdk.web.async_client import AsyncWebClient

from bot.workspace import Workspace
from bot.workspace.seed import ADE, AGENTS, FALLBACK


@pytest.mark.parametrize(
    ("kind", "expected", "stored"),
    [
        ("refuse:channel_not_found", (200, "channel_not_found", None), 0),
        ("accept_then_error:internal_error", (200, "internal_error", None), 1),
        ("429:1.5", (429, "ratelimited", "1.5"), 0),
        ("429", (429, "ratelimited", None), 0),
    ],
)
async def test_fault_answers(
    ws: Workspace, client: AsyncWebClient, kind: str, expected: tuple[int, str, str | None], stored: int
) -> None:
    ws.faults.add("chat.postMessage", kind)
    with pytest.raises(SlackApiError) as caught:
        await client.chat_postMessage(channel=AGENTS, text="x")
    response = caught.value.response
    assert (response.status_code, response["error"], response.headers.get("Retry-After")) == expected
    assert len(ws.messages(AGENTS)) == stored
    await client.chat_postMessage(channel=AGENTS, text="the fault is used up")


@pytest.mark.parametrize(("kind", "stored"), [("drop", 0), ("accept_then_drop", 1)])
async def test_fault_hangs_up(ws: Workspace, client: AsyncWebClient, kind: str, stored: int) -> None:
    ws.faults.add("chat.postMessage", kind)
    with pytest.raises(aiohttp.ClientConnectionError):
        await client.chat_postMessage(channel=AGENTS, text="x")
    assert len(ws.messages(AGENTS)) == stored


async def test_fault_5xx_is_no_json(ws: Workspace) -> None:
    ws.faults.add("auth.test", "5xx:503")
    async with aiohttp.ClientSession() as session, session.post(f"{ws.api_url}auth.test") as answer:
        assert (answer.status, answer.content_type) == (503, "text/html")


@pytest.mark.parametrize("kind", ["delay:0.2", "accept_then_delay:0.2"])
async def test_fault_delays(ws: Workspace, client: AsyncWebClient, kind: str) -> None:
    ws.faults.add("chat.postMessage", kind)
    started = time.monotonic()
    await client.chat_postMessage(channel=AGENTS, text="x")
    assert time.monotonic() - started >= 0.2
    assert len(ws.messages(AGENTS)) == 1


async def test_fault_meets_its_method_and_channel_only(ws: Workspace, client: AsyncWebClient) -> None:
    ws.faults.add("chat.*", "refuse:is_archived", times=2, channel=FALLBACK)
    await client.chat_postMessage(channel=AGENTS, text="x")
    for _ in range(2):
        with pytest.raises(SlackApiError):
            await client.chat_postMessage(channel=FALLBACK, text="x")
    await client.chat_postMessage(channel=FALLBACK, text="x")
    assert [c.fault for c in ws.calls] == [None, "refuse:is_archived", "refuse:is_archived", None]


@pytest.mark.parametrize("kind", ["refuse", "delay:soon", "429:x", "5xx:404", "drop:1", "gremlins"])
def test_fault_of_unknown_kind_is_refused(ws: Workspace, kind: str) -> None:
    with pytest.raises(ValueError, match="expected one of"):
        ws.faults.add("chat.postMessage", kind)


async def test_control_drives_from_another_process(ws: Workspace) -> None:
    async with aiohttp.ClientSession(ws.url) as session:
        async with session.post(
            "/control/post", json={"user": ADE, "channel": AGENTS, "text": "hi"}
        ) as answer:
            ts = (await answer.json())["ts"]
        async with session.get("/control/thread", params={"channel": AGENTS, "ts": ts}) as answer:
            assert [m["text"] for m in (await answer.json())["messages"]] == ["hi"]
        async with session.post("/control/faults", json={"method": "chat.update", "kind": "drop"}) as answer:
            assert len((await answer.json())["pending"]) == 1
        async with session.post("/control/click", json={"user": ADE, "channel": AGENTS, "ts": "1"}) as answer:
            assert (answer.status, (await answer.json())["error"]) == (400, f"no message 1 in {AGENTS}")


async def test_refused_connections_come_back(ws: Workspace, client: AsyncWebClient) -> None:
    await client.auth_test()
    await ws.refuse_connections()
    with pytest.raises(aiohttp.ClientConnectionError):
        await client.auth_test()
    await ws.accept_connections()
    assert (await client.auth_test())["ok"] is True
