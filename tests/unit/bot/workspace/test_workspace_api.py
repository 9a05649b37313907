from __future__ import annotations

import json
from typing import Any

import aiohttp
import pytest
from slack_sdk.errors import SlackApiError
from slack_sdk.web.async_client import AsyncWebClient

from bot.workspace import Workspace
from bot.workspace.faults import Limiter
from bot.workspace.seed import (
    ADE,
    AGENTS,
    APP_TOKEN,
    ARCHIVED,
    BOT_ID,
    BOT_TOKEN,
    BOT_USER,
    EVA,
    EXTERNAL_TEAM,
    FOLAKE,
    GONE,
    ONCALL,
    PLATFORM,
    RANDOM,
    TEAM,
)
from tests.unit.bot.workspace.kit import FAST, Json, actions, button, web_client


async def refused(call: Any) -> Json:
    with pytest.raises(SlackApiError) as caught:
        await call
    body: Json = caught.value.response.data
    return body


async def test_auth_test_names_the_bot(client: AsyncWebClient) -> None:
    answer = await client.auth_test()
    assert (answer["team_id"], answer["user_id"], answer["bot_id"]) == (TEAM, BOT_USER, BOT_ID)
    assert "chat:write" in answer.headers["x-oauth-scopes"]


@pytest.mark.parametrize(
    ("method", "token", "error"),
    [
        ("auth.test", "", "not_authed"),
        ("auth.test", "xoxb-wrong", "invalid_auth"),
        ("apps.connections.open", BOT_TOKEN, "not_allowed_token_type"),
        ("chat.postMessage", APP_TOKEN, "not_allowed_token_type"),
        ("chat.dance", BOT_TOKEN, "unknown_method"),
        ("conversations.join", BOT_TOKEN, "missing_scope"),
    ],
)
async def test_calls_without_leave_are_refused(ws: Workspace, method: str, token: str, error: str) -> None:
    async with aiohttp.ClientSession() as session:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        async with session.post(f"{ws.api_url}{method}", headers=headers) as answer:
            assert (await answer.json())["error"] == error


async def test_missing_scope_names_needed_and_provided(ws: Workspace, client: AsyncWebClient) -> None:
    ws.state.tokens[BOT_TOKEN] = frozenset({"users:read"})
    body = await refused(client.chat_postMessage(channel=AGENTS, text="x"))
    assert (body["error"], body["needed"], body["provided"]) == ("missing_scope", "chat:write", "users:read")


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"channel": "C0NOWHERE", "text": "x"}, "channel_not_found"),
        ({"channel": RANDOM, "text": "x"}, "not_in_channel"),
        ({"channel": ARCHIVED, "text": "x"}, "is_archived"),
        ({"channel": GONE, "text": "x"}, "channel_not_found"),
        ({"channel": AGENTS}, "no_text"),
        ({"channel": AGENTS, "text": "x", "thread_ts": "1.000000"}, "thread_not_found"),
        ({"channel": AGENTS, "text": "x", "blocks": [{"type": "nonsense"}]}, "invalid_blocks"),
        ({"channel": AGENTS, "text": "x", "blocks": "nonsense"}, "invalid_blocks_format"),
        ({"channel": AGENTS, "text": "x", "metadata": {"event_type": "x"}}, "invalid_metadata_format"),
        (
            {
                "channel": AGENTS,
                "text": "x",
                "metadata": {"event_type": "x", "event_payload": {"x": "x" * 17_000}},
            },
            "metadata_too_large",
        ),
        ({"text": "x"}, "invalid_arguments"),
    ],
)
async def test_post_message_refuses(client: AsyncWebClient, arguments: Json, error: str) -> None:
    assert (await refused(client.api_call("chat.postMessage", json=arguments)))["error"] == error


async def test_post_message_says_what_is_wrong_with_blocks(client: AsyncWebClient) -> None:
    body = await refused(
        client.chat_postMessage(channel=AGENTS, text="x", blocks=[actions(button("x" * 76))])
    )
    pointer = "/blocks/0/elements/0/text/text"
    expected = f"[ERROR] must be less than 76 characters [json-pointer:{pointer}]"
    assert body["response_metadata"]["messages"] == [expected]


async def test_post_message_takes_forms_with_json_in_them(ws: Workspace) -> None:
    form = {"token": BOT_TOKEN, "channel": AGENTS, "text": "x", "blocks": json.dumps([actions(button())])}
    async with (
        aiohttp.ClientSession() as session,
        session.post(f"{ws.api_url}chat.postMessage", data=form) as answer,
    ):
        body = await answer.json()
    assert body["message"]["blocks"][0]["elements"][0]["action_id"] == "yes"
    assert "token" not in ws.calls[-1].args


async def test_post_message_cuts_text(client: AsyncWebClient) -> None:
    answer = await client.chat_postMessage(channel=AGENTS, text="x" * 40_001)
    assert len(answer["message"]["text"]) == 40_000


async def test_post_message_to_a_person_opens_a_direct_channel(ws: Workspace, client: AsyncWebClient) -> None:
    answer = await client.chat_postMessage(channel=ADE, text="psst")
    assert answer["channel"].startswith("D")
    assert [m.text for m in ws.direct(ADE)] == ["psst"]


async def test_update_replaces_text_and_drops_blocks(ws: Workspace, client: AsyncWebClient) -> None:
    ts = (await client.chat_postMessage(channel=AGENTS, text="one", blocks=[actions(button())]))["ts"]
    await client.chat_update(channel=AGENTS, ts=ts, text="two")
    message = ws.message(AGENTS, ts)
    assert (message.text, message.blocks) == ("two", [])


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"text": "x" * 4001}, "msg_too_long"),
        ({"ts": "1.000000", "text": "x"}, "message_not_found"),
        (
            {
                "text": "x",
                "blocks": [{"type": "section", "text": {"type": "mrkdwn", "text": "x" * 3000}}] * 4,
            },
            "msg_blocks_too_long",
        ),
    ],
)
async def test_update_refuses(client: AsyncWebClient, arguments: Json, error: str) -> None:
    ts = (await client.chat_postMessage(channel=AGENTS, text="one"))["ts"]
    body = await refused(client.api_call("chat.update", json={"channel": AGENTS, "ts": ts} | arguments))
    assert body["error"] == error


async def test_update_of_someone_elses_message_is_refused(ws: Workspace, client: AsyncWebClient) -> None:
    message = await ws.post(ADE, AGENTS, "mine")
    body = await refused(client.chat_update(channel=AGENTS, ts=message.ts, text="yours"))
    assert body["error"] == "cant_update_message"


async def test_delete_leaves_a_tombstone_where_there_are_replies(
    ws: Workspace, client: AsyncWebClient
) -> None:
    alone = (await client.chat_postMessage(channel=AGENTS, text="alone"))["ts"]
    root = (await client.chat_postMessage(channel=AGENTS, text="root"))["ts"]
    await ws.post(ADE, AGENTS, "reply", root)
    await client.chat_delete(channel=AGENTS, ts=alone)
    await client.chat_delete(channel=AGENTS, ts=root)
    assert [m.subtype for m in ws.messages(AGENTS)] == ["tombstone", None]
    body = await refused(client.chat_delete(channel=AGENTS, ts=root))
    assert body["error"] == "message_not_found"


async def test_ephemeral_is_seen_by_one_and_stored_nowhere(ws: Workspace, client: AsyncWebClient) -> None:
    await client.chat_postEphemeral(channel=AGENTS, user=ADE, text="only you")
    assert [e.text for e in ws.ephemerals(ADE)] == ["only you"]
    assert (await client.conversations_history(channel=AGENTS))["messages"] == []


async def test_metadata_is_shown_where_asked_for(client: AsyncWebClient) -> None:
    metadata = {"event_type": "clarify_card", "event_payload": {"clarification": "CLR-1-001"}}
    ts = (await client.chat_postMessage(channel=AGENTS, text="x", metadata=metadata))["ts"]
    bare = await client.conversations_history(channel=AGENTS)
    full = await client.conversations_history(channel=AGENTS, include_all_metadata=True)
    assert "metadata" not in bare["messages"][0]
    assert full["messages"][0]["metadata"] == metadata
    changed = metadata | {"event_payload": {"clarification": "CLR-1-001", "revision": 2}}
    await client.chat_update(channel=AGENTS, ts=ts, text="y", metadata=changed)
    replies = await client.conversations_replies(channel=AGENTS, ts=ts, include_all_metadata=True)
    assert replies["messages"][0]["metadata"] == changed


@pytest.mark.parametrize(
    ("method", "arguments", "error"),
    [
        ("conversations.history", {"channel": RANDOM}, "not_in_channel"),
        ("conversations.history", {"channel": AGENTS, "cursor": "nonsense"}, "invalid_cursor"),
        ("conversations.history", {"channel": AGENTS, "limit": 0}, "invalid_limit"),
        ("conversations.history", {"channel": AGENTS, "oldest": "yesterday"}, "invalid_ts_oldest"),
        ("conversations.replies", {"channel": AGENTS, "ts": "1.0"}, "thread_not_found"),
        ("conversations.info", {"channel": "C0NOWHERE"}, "channel_not_found"),
        ("conversations.list", {"types": "im"}, "missing_scope"),
        ("conversations.open", {"users": GONE}, "user_disabled"),
        ("users.info", {"user": "U0NOBODY"}, "user_not_found"),
        ("users.lookupByEmail", {"email": "nobody@local.example"}, "users_not_found"),
        ("usergroups.users.list", {"usergroup": "S0NONE"}, "no_such_subteam"),
        ("views.open", {"trigger_id": "1", "view": '{"type": "modal"}'}, "invalid_arguments"),
    ],
)
async def test_reads_refuse(client: AsyncWebClient, method: str, arguments: Json, error: str) -> None:
    assert (await refused(client.api_call(method, params=arguments)))["error"] == error


async def test_people_and_groups(client: AsyncWebClient) -> None:
    eva = (await client.users_info(user=EVA))["user"]
    gone = (await client.users_info(user=GONE))["user"]
    folake = (await client.users_lookupByEmail(email="folake@local.example"))["user"]
    assert (eva["team_id"], eva["is_stranger"], "email" in eva["profile"]) == (EXTERNAL_TEAM, True, False)
    assert gone["deleted"] is True
    assert folake["id"] == FOLAKE
    assert (await client.usergroups_users_list(usergroup=PLATFORM))["users"] == [ONCALL, ADE]
    assert ADE in (await client.conversations_members(channel=AGENTS))["members"]
    assert GONE not in (await client.conversations_members(channel=AGENTS))["members"]
    mine = (await client.users_conversations())["channels"]
    assert {c["name"] for c in mine} == {"agents", "clarify-fallback", "old-questions"}


async def test_rate_limit_answers_429_with_retry_after() -> None:
    options = type(FAST)(rate_limits=True)
    async with Workspace(options=options) as ws:
        client = web_client(ws)
        for _ in range(4):
            await client.chat_postMessage(channel=AGENTS, text="x")
        with pytest.raises(SlackApiError) as caught:
            await client.chat_postMessage(channel=AGENTS, text="x")
        await client.chat_postMessage(channel=ADE, text="another channel")
    assert caught.value.response.status_code == 429
    assert caught.value.response.headers["Retry-After"] == "1"


def test_limiter_refills_with_time() -> None:
    limiter = Limiter()
    waits = [limiter.wait("post", "C1", 100.0) for _ in range(5)]
    assert waits == [0, 0, 0, 0, 1.0]
    assert limiter.wait("post", "C1", 100.5) == pytest.approx(0.5)
    assert limiter.wait("post", "C1", 101.0) == 0
