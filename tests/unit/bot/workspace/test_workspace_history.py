from __future__ import annotations

import pytest
from slack_sdk.web.async_client import AsyncWebClient

from bot.workspace import Workspace
from bot.workspace.seed import ADE, AGENTS
from tests.unit.bot.workspace.kit import Json


async def test_history_pages_newest_first(client: AsyncWebClient) -> None:
    for number in range(7):
        await client.chat_postMessage(channel=AGENTS, text=str(number))
    pages, cursor = [], None
    while cursor != "":
        answer = await client.conversations_history(channel=AGENTS, limit=3, cursor=cursor)
        pages.append([m["text"] for m in answer["messages"]])
        cursor = (answer.get("response_metadata") or {}).get("next_cursor", "")
        assert answer["has_more"] is bool(cursor)
    assert pages == [["6", "5", "4"], ["3", "2", "1"], ["0"]]


@pytest.mark.parametrize(
    ("bounds", "expected"),
    [
        ({"oldest": 1}, ["3", "2"]),
        ({"oldest": 1, "inclusive": True}, ["3", "2", "1"]),
        ({"latest": 2}, ["1", "0"]),
        ({"latest": 2, "inclusive": True}, ["2", "1", "0"]),
        ({"oldest": 0, "latest": 3}, ["2", "1"]),
    ],
)
async def test_history_bounds(client: AsyncWebClient, bounds: Json, expected: list[str]) -> None:
    stamps = [(await client.chat_postMessage(channel=AGENTS, text=str(n)))["ts"] for n in range(4)]
    exact = {k: stamps[v] if k in {"oldest", "latest"} else v for k, v in bounds.items()}
    answer = await client.conversations_history(channel=AGENTS, **exact)
    assert [m["text"] for m in answer["messages"]] == expected


async def test_history_shows_roots_with_their_counts(ws: Workspace, client: AsyncWebClient) -> None:
    root = (await client.chat_postMessage(channel=AGENTS, text="root"))["ts"]
    await ws.post(ADE, AGENTS, "quiet", root)
    loud = await client.chat_postMessage(channel=AGENTS, text="loud", thread_ts=root, reply_broadcast=True)
    shown = (await client.conversations_history(channel=AGENTS))["messages"]
    assert [(m["text"], m.get("subtype")) for m in shown] == [("loud", "thread_broadcast"), ("root", None)]
    assert shown[0]["root"]["ts"] == root
    assert (shown[1]["reply_count"], shown[1]["latest_reply"]) == (2, loud["ts"])


async def test_replies_page_oldest_first_with_the_root_once(ws: Workspace, client: AsyncWebClient) -> None:
    root = (await client.chat_postMessage(channel=AGENTS, text="root"))["ts"]
    for number in range(4):
        await ws.post(ADE, AGENTS, str(number), root)
    first = await client.conversations_replies(channel=AGENTS, ts=root, limit=3)
    cursor = first["response_metadata"]["next_cursor"]
    second = await client.conversations_replies(channel=AGENTS, ts=root, limit=3, cursor=cursor)
    assert [m["text"] for m in first["messages"]] == ["root", "0", "1"]
    assert [m["text"] for m in second["messages"]] == ["2", "3"]


async def test_replies_after_oldest_keep_the_root(ws: Workspace, client: AsyncWebClient) -> None:
    root = (await client.chat_postMessage(channel=AGENTS, text="root"))["ts"]
    seen = await ws.post(ADE, AGENTS, "seen", root)
    await ws.post(ADE, AGENTS, "new", root)
    answer = await client.conversations_replies(channel=AGENTS, ts=root, oldest=seen.ts)
    assert [m["text"] for m in answer["messages"]] == ["root", "new"]
