"""Corners where Slack is stricter, or stranger, than one would think."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import aiohttp
import pytest
from slack_sdk.errors import SlackApiError
from slack_sdk.web.async_client import AsyncWebClient

from bot.workspace import ControlError, Workspace, serve
from bot.workspace.seed import ADE, AGENTS, BOT_TOKEN, BOT_USER, FOLAKE, PLATFORM, RANDOM
from tests.unit.bot.workspace.kit import Bot, Json, StartBot, actions, button, modal, plain, text_input


async def test_sdk_that_retries_a_dropped_connection_posts_twice(ws: Workspace) -> None:
    ws.faults.add("chat.postMessage", "accept_then_drop")
    client = AsyncWebClient(BOT_TOKEN, base_url=ws.api_url)  # with its default retry handlers
    await client.chat_postMessage(channel=AGENTS, text="once?")
    assert [m.text for m in ws.messages(AGENTS)] == ["once?", "once?"]


async def test_ephemeral_click_carries_no_message_and_is_replaced_by_its_url(
    ws: Workspace, start: StartBot
) -> None:
    bot = Bot(ws)

    @bot.app.action("yes")
    async def yes(ack: Any, body: Json, respond: Any) -> None:
        await bot.note(body)
        await ack()
        if len(bot.bodies) == 1:
            await respond(text="done", replace_original=True)
        else:
            await respond(delete_original=True)

    await start(bot)
    await bot.client.chat_postEphemeral(channel=AGENTS, user=ADE, text="only you", blocks=[actions(button())])
    shown = ws.ephemerals(ADE)[0]
    await ws.click(ADE, AGENTS, shown.ts, "yes")
    body = bot.bodies[0]
    assert body["container"]["is_ephemeral"] is True
    assert "message" not in body
    assert [e.text for e in ws.ephemerals(ADE)] == ["done"]
    await bot.client.chat_postEphemeral(channel=AGENTS, user=ADE, text="again", blocks=[actions(button())])
    await ws.click(ADE, AGENTS, ws.ephemerals(ADE)[1].ts, "yes")
    assert [e.text for e in ws.ephemerals(ADE)] == ["done"]


async def test_view_update_checks_the_hash(ws: Workspace, client: AsyncWebClient) -> None:
    view = ws.board.open_view(ADE, modal(text_input()))
    old = view.hash
    await client.views_update(view_id=view.id, hash=old, view=modal(text_input(), title=plain("Filled")))
    assert ws.views(ADE)[0].payload["title"]["text"] == "Filled"
    with pytest.raises(SlackApiError, match="hash_conflict"):
        await client.views_update(view_id=view.id, hash=old, view=modal(text_input()))
    await ws.close_view(ADE)
    with pytest.raises(SlackApiError, match="not_found"):
        await client.views_update(view_id=view.id, view=modal(text_input()))


async def test_modal_without_a_submit_button_cannot_be_submitted(ws: Workspace) -> None:
    ws.board.open_view(ADE, {"type": "modal", "title": plain("Loading"), "blocks": []})
    with pytest.raises(ControlError, match="no submit button"):
        await ws.submit_view(ADE, {})


async def test_view_stack_is_three_high(ws: Workspace, client: AsyncWebClient) -> None:
    ws.board.open_view(ADE, modal(text_input()))
    for _ in range(2):
        await client.views_push(trigger_id=ws.board.trigger(ADE), view=modal(text_input()))
    with pytest.raises(SlackApiError, match="push_limit_reached"):
        await client.views_push(trigger_id=ws.board.trigger(ADE), view=modal(text_input()))
    top, root = ws.views(ADE)[-1], ws.views(ADE)[0]
    assert (top.root_view_id, top.previous_view_id) == (root.id, ws.views(ADE)[1].id)


async def test_home_is_published_and_clicked(ws: Workspace, start: StartBot) -> None:
    bot = Bot(ws)

    @bot.app.action("yes")
    async def yes(ack: Any, body: Json) -> None:
        await bot.note(body)
        await ack()

    await start(bot)
    await bot.client.views_publish(user_id=ADE, view={"type": "home", "blocks": [actions(button())]})
    with pytest.raises(SlackApiError, match="invalid_arguments"):
        await bot.client.views_publish(user_id=ADE, view=modal(text_input()))
    await ws.click_in_view(ADE, label="Yes")
    assert bot.bodies[0]["view"]["type"] == "home"


async def test_acknowledgement_with_a_wrong_view_is_an_error_on_screen(
    ws: Workspace, start: StartBot
) -> None:
    bot = Bot(ws)

    @bot.app.view("answer")
    async def answered(ack: Any) -> None:
        await ack(response_action="errors", errors={"nowhere": "x"})

    await start(bot)
    ws.board.open_view(ADE, modal(text_input()))
    outcome = await ws.submit_view(ADE, {"Answer": "x"})
    assert not outcome.ok
    assert "['answer']" in ws.errors(ADE)[0].reason


async def test_people_groups_and_channels_change_before_the_apps_eyes(ws: Workspace, start: StartBot) -> None:
    bot = Bot(ws)

    async def note(ack: Any, body: Json) -> None:
        await bot.note(body)
        await ack()

    for kind in (
        "user_change",
        "subteam_members_changed",
        "channel_left",
        "member_left_channel",
        "tokens_revoked",
    ):
        bot.app.event(kind)(note)
    await start(bot)
    ws.change_user(ADE, deleted=True)
    ws.change_group(PLATFORM, [FOLAKE])
    ws.leave(BOT_USER, AGENTS)
    ws.emit({"type": "tokens_revoked", "tokens": {"bot": [BOT_USER]}})
    await ws.wait_for(lambda: len(bot.bodies) == 5)
    assert bot.of_type("user_change")[0]["event"]["user"]["deleted"] is True
    assert bot.of_type("subteam_members_changed")[0]["event"]["added_users"] == [FOLAKE]
    assert (await bot.client.usergroups_users_list(usergroup=PLATFORM))["users"] == [FOLAKE]
    assert len(bot.of_type("channel_left")) == len(bot.of_type("member_left_channel")) == 1
    with pytest.raises(SlackApiError, match="not_in_channel"):
        await bot.client.chat_postMessage(channel=AGENTS, text="x")


async def test_private_channels_are_hidden_from_outside(ws: Workspace, client: AsyncWebClient) -> None:
    channel = ws.channel(RANDOM)
    channel.is_private = True
    for call in (
        client.conversations_info(channel=RANDOM),
        client.chat_postMessage(channel=RANDOM, text="x"),
    ):
        with pytest.raises(SlackApiError, match="channel_not_found"):
            await call
    ws.join(BOT_USER, RANDOM)
    assert (await client.conversations_info(channel=RANDOM))["channel"]["is_private"] is True
    ws.archive(RANDOM)
    await ws.wait_for(lambda: [a for a in ws.acks if a.payload_type == "group_archive"])


async def test_wait_for_says_what_happened_instead(ws: Workspace, client: AsyncWebClient) -> None:
    await client.auth_test()
    with pytest.raises(TimeoutError, match=r"auth\.test ok"):
        await ws.wait_for(lambda: False, timeout=0.05)


async def test_control_waits_for_changes(ws: Workspace) -> None:
    seen = ws.context.changes.version
    async with aiohttp.ClientSession(ws.url) as session:
        async with session.get("/control/wait", params={"version": str(seen), "timeout": "0.05"}) as answer:
            assert (await answer.json())["version"] == seen
        await ws.post(ADE, AGENTS, "x")
        async with session.get("/control/wait", params={"version": str(seen)}) as answer:
            assert (await answer.json())["version"] > seen


async def test_eleventh_connection_is_sent_away(ws: Workspace) -> None:
    async with aiohttp.ClientSession() as session:
        sockets = [await session.ws_connect(ws.link.new_url()) for _ in range(11)]
        first = [await socket.receive_json() for socket in sockets]
        for socket in sockets:
            await socket.close()
    assert [m["type"] for m in first] == ["hello"] * 10 + ["disconnect"]


async def test_serve_runs_until_cancelled() -> None:
    ready: asyncio.Future[Workspace] = asyncio.get_running_loop().create_future()
    task = asyncio.create_task(serve(0, ready.set_result))
    workspace = await ready
    async with aiohttp.ClientSession() as session, session.get(workspace.url) as answer:
        assert answer.status == 200
    with pytest.raises(OSError, match="address already in use"):
        await serve(int(workspace.url.rsplit(":", 1)[1].strip("/")), lambda _: None)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    async with aiohttp.ClientSession() as session:
        with pytest.raises(aiohttp.ClientConnectionError):
            await session.get(workspace.url)


@pytest.mark.parametrize(
    ("action", "body", "status"),
    [
        ("edit", {"user": ADE, "channel": AGENTS, "ts": "1", "text": "x"}, 400),
        ("submit_view", {"user": ADE, "values": {}}, 400),
        ("command", {"user": ADE, "channel": AGENTS, "command": "/clarify"}, 200),
        ("open_home", {"user": ADE}, 200),
        ("leave", {"user": ADE, "channel": AGENTS}, 200),
        ("archive", {"channel": AGENTS}, 200),
        ("change_user", {"user": ADE, "deleted": True}, 200),
        ("change_group", {"group": PLATFORM, "users": []}, 200),
        ("emit", {"event": {"type": "tokens_revoked"}}, 200),
        ("sockets", {"action": "reject_wss", "times": 1}, 200),
        ("sockets", {"action": "cut"}, 200),
        ("sockets", {"action": "half_open"}, 200),
        ("sockets", {"action": "disconnect"}, 200),
        ("sockets", {"action": "shout"}, 400),
        ("post", {"user": ADE}, 400),
        ("dance", {}, 404),
    ],
)
async def test_control_routes(ws: Workspace, action: str, body: Json, status: int) -> None:
    async with (
        aiohttp.ClientSession(ws.url) as session,
        session.post(f"/control/{action}", json=body) as answer,
    ):
        assert answer.status == status, await answer.text()


async def test_control_refuses_connections_for_a_while(ws: Workspace) -> None:
    async with aiohttp.ClientSession(ws.url) as session:
        with suppress(aiohttp.ClientConnectionError):  # the answer may fall to what was asked for
            await session.post("/control/sockets", json={"action": "refuse", "seconds": 0.1})
        version = ws.context.changes.version
        await ws.wait_for(lambda: ws.context.changes.version > version)
        async with session.get("/control/calls") as answer:
            assert (await answer.json())["calls"] == []


@pytest.mark.parametrize(
    "what", ["messages", "thread", "direct", "ephemerals", "views", "errors", "calls", "acks"]
)
async def test_control_reads(ws: Workspace, what: str) -> None:
    query = {"channel": AGENTS, "user": ADE, "ts": "1"}
    async with (
        aiohttp.ClientSession(ws.url) as session,
        session.get(f"/control/{what}", params=query) as answer,
    ):
        assert (answer.status, next(iter((await answer.json()).values()))) == (200, [])
