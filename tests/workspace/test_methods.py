"""The Web API: what each method answers and refuses, history and its pages, faults on demand."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import aiohttp
import pytest
from slack_sdk.errors import SlackApiError
from slack_sdk.web.async_client import AsyncWebClient

from tests.workspace.kit import (
    App,
    Json,
    actions,
    ask,
    button,
    home,
    modal,
    plain,
    section,
    text_input,
)
from workspace import Workspace
from workspace.seed import (
    ADE,
    AGENTS,
    APP_TOKEN,
    ARCHIVED,
    BOT_ID,
    BOT_TOKEN,
    BOT_USER,
    EVA,
    EXTERNAL_TEAM,
    FALLBACK,
    FOLAKE,
    GIO,
    GONE,
    ONCALL,
    PLATFORM,
    RANDOM,
    TEAM,
)

TABLE: Json = {"type": "table", "rows": [[{"type": "raw_text", "text": "x"}]]}
METADATA = {"event_type": "clarify_card", "event_payload": {"clarification": "CLR-1-001"}}


async def posted(client: AsyncWebClient, text: str = "x", **more: Any) -> str:
    return str((await client.chat_postMessage(channel=AGENTS, text=text, **more))["ts"])


def message(**fields: Any) -> Json:
    return {"channel": AGENTS, "text": "x"} | fields


def publish(user: str, view: Json) -> tuple[str, Json]:
    return "views.publish", {"user_id": user, "view": view}


# Before each: a message of the bot ($mine) and of Ade ($theirs), and a Home tab of Folake with external_id "taken".
REFUSED: list[tuple[str, Json, str]] = [
    ("chat.dance", {}, "unknown_method"),
    ("chat.postMessage", message(channel="C0NOWHERE"), "channel_not_found"),
    ("chat.postMessage", message(channel=RANDOM), "not_in_channel"),
    ("chat.postMessage", message(channel=ARCHIVED), "is_archived"),
    ("chat.postMessage", message(text=""), "no_text"),
    ("chat.postMessage", message(thread_ts="1.000000"), "thread_not_found"),
    ("chat.postMessage", message(blocks=[{"type": "nonsense"}]), "invalid_blocks"),
    ("chat.postMessage", message(blocks=[TABLE, TABLE]), "invalid_attachments"),
    ("blocks.validate", {}, "invalid_arguments"),
    ("blocks.validate", {"blocks": [section()], "message": {"blocks": [section()]}}, "invalid_arguments"),
    ("blocks.validate", {"blocks": "no JSON"}, "invalid_arguments"),
    ("blocks.validate", {"blocks": "[1]"}, "invalid_blocks"),
    ("blocks.validate", {"message": {"text": "x", "blocks": [section()]}}, "invalid_message"),
    ("blocks.validate", {"message": {"text": "x"}}, "invalid_message"),
    ("blocks.validate", {"view": home(TABLE)}, "invalid_view"),
    ("chat.postMessage", message(metadata=METADATA | {"event_type": "é"}), "invalid_metadata_schema"),
    ("chat.update", message(ts="$mine", text="x" * 4001), "msg_too_long"),
    ("chat.update", message(ts="1.000000"), "message_not_found"),
    ("chat.update", message(ts="$theirs"), "cant_update_message"),
    ("chat.update", message(ts="$mine", blocks=[section("x" * 3000)] * 4), "msg_blocks_too_long"),
    ("chat.delete", message(ts="$theirs"), "cant_delete_message"),
    ("chat.postEphemeral", message(channel=FALLBACK, user=GIO), "user_not_in_channel"),
    ("conversations.history", {"channel": RANDOM}, "not_in_channel"),
    ("conversations.replies", {"channel": AGENTS, "ts": "1.0"}, "thread_not_found"),
    ("conversations.info", {"channel": "C0NOWHERE"}, "channel_not_found"),
    ("conversations.open", {"users": GONE}, "user_disabled"),
    ("users.info", {"user": "U0NOBODY"}, "user_not_found"),
    ("usergroups.users.list", {"usergroup": "S0NONE"}, "no_such_subteam"),
    ("users.lookupByEmail", {"email": "nobody@local.example"}, "users_not_found"),
    ("views.open", {"trigger_id": "1", "view": modal(text_input())}, "invalid_trigger_id"),
    ("views.update", {"view_id": "V1", "view": modal(text_input())}, "not_found"),
    (*publish("U0NOBODY", home()), "user_not_found"),
    (*publish(GONE, home()), "not_enabled"),
    (*publish(ADE, home(*[section("é" * 3000)] * 50)), "view_too_large"),
    (*publish(ADE, home(external_id="taken")), "duplicate_external_id"),
    ("views.publish", {"user_id": ADE, "view": home(), "hash": "h.made-up"}, "hash_conflict"),
]  # fmt: skip


async def test_refusals(ws: Workspace, client: AsyncWebClient) -> None:
    known = {
        "$mine": await posted(client),
        "$theirs": (await ws.post(ADE, AGENTS, "mine")).ts,
    }
    await client.views_publish(user_id=FOLAKE, view=home(external_id="taken"))
    before = (len(ws.messages(AGENTS)), len(ws.ephemerals(GIO)), ws.home(ADE))
    for method, arguments, error in REFUSED:
        sent = json.loads(json.dumps(arguments))
        for name, value in known.items():
            sent = json.loads(json.dumps(sent).replace(name, value))
        answer = await ask(client, method, **sent)
        assert (answer["ok"], answer["error"]) == (False, error), (method, arguments)
    assert (len(ws.messages(AGENTS)), len(ws.ephemerals(GIO)), ws.home(ADE)) == before


async def test_second_table_of_a_message_is_named(client: AsyncWebClient) -> None:
    answer = await ask(client, "chat.postMessage", **message(blocks=[TABLE, TABLE]))
    assert answer["response_metadata"]["messages"] == ["[ERROR] only_one_table_allowed"]
    assert "errors" not in answer


async def test_blocks_are_validated_without_being_posted(ws: Workspace, client: AsyncWebClient) -> None:
    """It knows the schema, not what this workspace lacks, nor that a message has only one table."""
    ws.context.options = replace(ws.context.options, without_blocks=frozenset({"table"}))
    alert = {"type": "alert", "text": plain("x")}
    assert (await client.blocks_validate(blocks=[TABLE, alert]))["ok"]
    assert (await client.blocks_validate(message={"blocks": [TABLE, TABLE]}))["ok"]
    assert (await client.blocks_validate(view=modal(alert)))["ok"]
    wrong = {"type": "section", "text": plain("")}
    for sent, error, pointer in (
        ({"blocks": [wrong]}, "invalid_blocks", "/0/text/text"),
        ({"message": {"blocks": [wrong]}}, "invalid_message", "/blocks/0/text/text"),
        ({"view": modal(wrong)}, "invalid_view", "/blocks/0/text/text"),
    ):
        answer = await ask(client, "blocks.validate", **sent)
        said = {"pointer": pointer, "code": "failed_constraint", "message": "must be more than 0 characters"}
        assert (answer["error"], answer["errors"]) == (error, [said])
    assert ws.messages(AGENTS) == []


@pytest.mark.parametrize(
    ("method", "token", "error"),
    [
        ("auth.test", "", "not_authed"),
        ("auth.test", "xoxb-wrong", "invalid_auth"),
        ("apps.connections.open", BOT_TOKEN, "not_allowed_token_type"),
        ("chat.postMessage", APP_TOKEN, "not_allowed_token_type"),
    ],
)
async def test_wrong_token_is_refused(
    http: aiohttp.ClientSession, method: str, token: str, error: str
) -> None:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    async with http.post(f"/api/{method}", headers=headers) as answer:
        assert (await answer.json())["error"] == error


async def test_missing_scope_names_needed_and_provided(ws: Workspace, client: AsyncWebClient) -> None:
    ws.state.tokens[BOT_TOKEN] = frozenset({"users:read"})
    answer = await ask(client, "chat.postMessage", channel=AGENTS, text="x")
    expected = {"error": "missing_scope", "needed": "chat:write", "provided": "users:read"}
    assert answer | expected == answer


@pytest.mark.parametrize(
    ("sent", "error"),
    [
        ({"data": "{", "headers": {"Content-Type": "application/json"}}, "invalid_json"),
        ({"json": []}, "json_not_object"),
        ({"data": "x", "headers": {"Content-Type": "text/plain"}}, "invalid_post_type"),
        ({"data": {"token": BOT_TOKEN, "blocks": json.dumps([actions(button())])}}, None),
        ({"params": {"token": BOT_TOKEN, "text": "in the query"}}, None),
    ],
)
async def test_arguments_come_in_three_ways(
    ws: Workspace, http: aiohttp.ClientSession, sent: Json, error: str | None
) -> None:
    sent = dict(sent)
    query = sent.pop("params", {}) | {"channel": AGENTS}
    async with http.post("/api/chat.postMessage", params=query, **sent) as answer:
        body = await answer.json()
    assert body.get("error") == error
    assert [call.method for call in ws.calls] == ["chat.postMessage"]
    assert "token" not in ws.calls[-1].args


# chat


async def test_messages_are_posted_cut_and_changed(ws: Workspace, client: AsyncWebClient) -> None:
    long = await posted(client, "x" * 40_001, blocks=[actions(button())])
    assert len(ws.message(AGENTS, long).text) == 40_000
    await client.chat_update(channel=AGENTS, ts=long, text="two")  # without blocks: they are gone
    assert (ws.message(AGENTS, long).text, ws.message(AGENTS, long).blocks) == ("two", [])
    answer = await client.chat_postMessage(channel=ADE, text="psst")
    assert (answer["channel"][0], [m.text for m in ws.direct(ADE)]) == ("D", ["psst"])


async def test_delete_leaves_a_tombstone_where_there_are_replies(
    ws: Workspace, client: AsyncWebClient
) -> None:
    alone, root = await posted(client), await posted(client)
    first = await ws.post(ADE, AGENTS, "reply", root)
    second = await posted(client, thread_ts=root)
    for ts in (alone, root):
        await client.chat_delete(channel=AGENTS, ts=ts)
    assert [m.subtype for m in ws.messages(AGENTS)] == ["tombstone", None, None]
    assert (await ask(client, "chat.delete", channel=AGENTS, ts=root))["error"] == "message_not_found"
    assert (await ask(client, "chat.update", channel=AGENTS, ts=root, text="x"))[
        "error"
    ] == "message_not_found"
    thread = (await client.conversations_replies(channel=AGENTS, ts=root))["messages"]
    assert [each["text"] for each in thread] == ["This message was deleted.", "reply", "x"]
    assert (thread[0]["hidden"], thread[0]["reply_count"]) == (True, 2)
    await ws.post(ADE, AGENTS, "the thread goes on", root)

    await client.chat_delete(channel=AGENTS, ts=second)
    for message in [m for m in ws.messages(AGENTS) if m.user == ADE]:
        assert root in {m.ts for m in ws.messages(AGENTS)}
        await ws.delete_message(ADE, AGENTS, message.ts)
    assert first.thread_ts == root
    assert ws.messages(AGENTS) == []


async def test_metadata_is_shown_where_asked_for(client: AsyncWebClient) -> None:
    ts = await posted(client, metadata=METADATA)
    bare = await client.conversations_history(channel=AGENTS)
    full = await client.conversations_history(channel=AGENTS, include_all_metadata=True)
    assert ("metadata" in bare["messages"][0], full["messages"][0]["metadata"]) == (False, METADATA)
    changed = METADATA | {"event_payload": {"clarification": "CLR-1-001", "revision": 2}}
    await client.chat_update(channel=AGENTS, ts=ts, text="y", metadata=changed)
    replies = await client.conversations_replies(channel=AGENTS, ts=ts, include_all_metadata=True)
    assert replies["messages"][0]["metadata"] == changed


# conversations


async def test_history_pages_newest_first(client: AsyncWebClient) -> None:
    for number in range(7):
        await posted(client, str(number))
    pages, cursor = [], None
    while cursor != "":
        answer = await client.conversations_history(channel=AGENTS, limit=3, cursor=cursor)
        pages.append("".join(m["text"] for m in answer["messages"]))
        cursor = (answer.get("response_metadata") or {}).get("next_cursor", "")
        assert answer["has_more"] is bool(cursor)
    assert pages == ["654", "321", "0"]


async def test_history_bounds(client: AsyncWebClient) -> None:
    stamps = [await posted(client, str(n)) for n in range(4)]
    for bounds, inclusive, expected in [
        ({"oldest": 1}, False, "32"),
        ({"oldest": 1}, True, "321"),
        ({"latest": 2}, False, "10"),
        ({"latest": 2}, True, "210"),
        ({"oldest": 0, "latest": 3}, False, "21"),
    ]:
        exact = {name: stamps[n] for name, n in bounds.items()}
        answer = await client.conversations_history(channel=AGENTS, inclusive=inclusive, **exact)  # type: ignore[arg-type]
        assert "".join(m["text"] for m in answer["messages"]) == expected


async def test_history_shows_roots_with_their_counts(ws: Workspace, client: AsyncWebClient) -> None:
    root = await posted(client, "root")
    await ws.post(ADE, AGENTS, "quiet", root)
    loud = await posted(client, "loud", thread_ts=root, reply_broadcast=True)
    shown = (await client.conversations_history(channel=AGENTS))["messages"]
    assert [(m["text"], m.get("subtype")) for m in shown] == [("loud", "thread_broadcast"), ("root", None)]
    assert shown[0]["root"]["ts"] == root
    assert (shown[1]["reply_count"], shown[1]["latest_reply"]) == (2, loud)


async def test_replies_page_oldest_first_with_the_root_once(ws: Workspace, client: AsyncWebClient) -> None:
    root = await posted(client, "root")
    replies = [await ws.post(ADE, AGENTS, str(number), root) for number in range(4)]
    first = await client.conversations_replies(channel=AGENTS, ts=root, limit=3)
    cursor = first["response_metadata"]["next_cursor"]
    second = await client.conversations_replies(channel=AGENTS, ts=root, limit=3, cursor=cursor)
    later = await client.conversations_replies(channel=AGENTS, ts=root, oldest=replies[2].ts)
    assert [m["text"] for m in first["messages"]] == ["root", "0", "1"]
    assert [m["text"] for m in second["messages"]] == ["2", "3"]
    assert [m["text"] for m in later["messages"]] == ["root", "3"]


# People and groups


async def test_people_and_groups(ws: Workspace, client: AsyncWebClient) -> None:
    auth = await client.auth_test()
    assert (auth["team_id"], auth["user_id"], auth["bot_id"]) == (TEAM, BOT_USER, BOT_ID)
    assert "chat:write" in auth.headers["x-oauth-scopes"]
    eva = (await client.users_info(user=EVA))["user"]
    assert (eva["team_id"], eva["is_stranger"], "email" in eva["profile"]) == (EXTERNAL_TEAM, True, False)
    assert (await client.users_info(user=GONE))["user"]["deleted"] is True
    ws.change_user(GIO, hidden="user_not_visible")
    assert (await ask(client, "users.info", user=GIO))["error"] == "user_not_visible"
    assert (await client.usergroups_users_list(usergroup=PLATFORM))["users"] == [ONCALL, ADE]
    ws.disable_group(PLATFORM)
    assert (await ask(client, "usergroups.users.list", usergroup=PLATFORM))["error"] == "no_such_subteam"
    members = (await client.conversations_members(channel=AGENTS))["members"]
    assert (ADE in members, GONE in members) == (True, False)
    first = await client.conversations_members(channel=AGENTS, limit=2)
    following = first["response_metadata"]["next_cursor"]
    second = await client.conversations_members(channel=AGENTS, limit=100, cursor=following)
    assert [len(page["members"]) for page in (first, second)] == [2, len(members) - 2]


async def test_people_by_address_and_in_pages(ws: Workspace, client: AsyncWebClient) -> None:
    assert (await client.users_lookupByEmail(email="ADE@local.example"))["user"]["id"] == ADE
    gone = await ask(client, "users.lookupByEmail", email="gone@local.example")
    assert gone["error"] == "users_not_found", "deactivated people are not told of"
    first = await client.users_list(limit=3)
    second = await client.users_list(limit=100, cursor=first["response_metadata"]["next_cursor"])
    users = [user["id"] for page in (first, second) for user in page["members"]]
    assert users == list(ws.context.state.users)
    assert {GONE, BOT_USER} <= {*users}


async def test_presence_of_others(ws: Workspace, client: AsyncWebClient) -> None:
    assert (await client.users_getPresence(user=ADE)).data == {"ok": True, "presence": "active"}
    ws.set_presence(ADE, "away")
    assert (await client.users_getPresence(user=ADE))["presence"] == "away"
    ws.set_presence(ADE, "active")
    ws.change_user(ADE, deleted=True)
    assert (await client.users_getPresence(user=ADE))["presence"] == "away"


# views


async def test_view_update_and_publish_check_the_hash(ws: Workspace, client: AsyncWebClient) -> None:
    view = ws.board.open_view(ADE, modal(text_input()))
    old = view.hash
    await client.views_update(view_id=view.id, hash=old, view=modal(text_input(), title=plain("Filled")))
    assert ws.views(ADE)[0].payload["title"]["text"] == "Filled"
    with pytest.raises(SlackApiError, match="hash_conflict"):
        await client.views_update(view_id=view.id, hash=old, view=modal(text_input()))
    await ws.close_view(ADE)
    with pytest.raises(SlackApiError, match="not_found"):
        await client.views_update(view_id=view.id, view=modal(text_input()))
    first = (await client.views_publish(user_id=ADE, view=home()))["view"]
    second = (await client.views_publish(user_id=ADE, hash=first["hash"], view=home()))["view"]
    assert (second["id"], second["hash"] != first["hash"], ws.home(FOLAKE)) == (first["id"], True, None)
    with pytest.raises(SlackApiError, match="hash_conflict"):
        await client.views_publish(user_id=ADE, hash=first["hash"], view=home())
    ws.state.app.home_tab = False
    with pytest.raises(SlackApiError, match="not_enabled"):
        await client.views_publish(user_id=ADE, view=home())


async def test_view_stack_is_three_high(ws: Workspace, client: AsyncWebClient) -> None:
    ws.board.open_view(ADE, modal(text_input()))
    for _ in range(2):
        await client.views_push(trigger_id=ws.board.trigger(ADE), view=modal(text_input()))
    with pytest.raises(SlackApiError, match="push_limit_reached"):
        await client.views_push(trigger_id=ws.board.trigger(ADE), view=modal(text_input()))
    root, middle, top = ws.views(ADE)
    assert (top.root_view_id, top.previous_view_id) == (root.id, middle.id)


async def test_trigger_is_good_once_and_briefly(ws: Workspace, app: App) -> None:
    trigger_id = (await app.clicked())["trigger_id"]
    await app.client.views_open(trigger_id=trigger_id, view=modal(text_input()))
    with pytest.raises(SlackApiError, match="exchanged_trigger_id"):
        await app.client.views_open(trigger_id=trigger_id, view=modal(text_input()))
    later = (await app.clicked())["trigger_id"]
    ws.state.triggers[later].expires -= ws.context.options.trigger_lifetime + 0.1
    with pytest.raises(SlackApiError, match="expired_trigger_id"):
        await app.client.views_open(trigger_id=later, view=modal(text_input()))


# Faults


@pytest.mark.parametrize(
    ("kind", "expected", "stored"),
    [
        ("refuse:channel_not_found", (200, "channel_not_found", None), 0),
        ("accept_then_error:internal_error", (200, "internal_error", None), 1),
        ("429:1.5", (429, "ratelimited", "1.5"), 0),
        ("429", (429, "ratelimited", None), 0),
        ("5xx:503", (503, None, None), 0),
        ("drop", None, 0),
        ("accept_then_drop", None, 1),
        ("delay:0", (200, "", None), 1),
        ("accept_then_delay:0", (200, "", None), 1),
    ],
)
async def test_fault_is_met_once(
    ws: Workspace, http: aiohttp.ClientSession, kind: str, expected: object, stored: int
) -> None:
    ws.faults.add("chat.*", "refuse:is_archived", channel=FALLBACK)  # another channel's
    ws.faults.add("chat.postMessage", kind)
    form, met = message(token=BOT_TOKEN), None
    try:
        async with http.post("/api/chat.postMessage", data=form) as answer:
            is_json = answer.content_type == "application/json"
            error = (await answer.json()).get("error", "") if is_json else None
            met = (answer.status, error, answer.headers.get("Retry-After"))
    except aiohttp.ClientConnectionError:
        pass
    assert (met, len(ws.messages(AGENTS))) == (expected, stored)
    async with http.post("/api/chat.postMessage", data=form) as answer:
        assert (await answer.json())["ok"] is True
    assert [call.fault for call in ws.calls] == [kind, None]


@pytest.mark.parametrize("kind", ["refuse", "delay:soon", "429:x", "5xx:404", "drop:1", "gremlins"])
def test_fault_of_unknown_kind_is_refused(ws: Workspace, kind: str) -> None:
    with pytest.raises(ValueError, match="expected one of"):
        ws.faults.add("chat.postMessage", kind)
