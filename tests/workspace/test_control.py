"""`/control/*`: the workspace driven from another process; the feed of changes; starting and stopping."""

from __future__ import annotations

import asyncio
from typing import Any

import aiohttp
import pytest
from slack_sdk.errors import SlackApiError
from slack_sdk.web.async_client import AsyncWebClient

from tests.workspace.kit import HAND, App, Json, actions, button, home, modal, option, select
from workspace import Workspace, serve
from workspace.seed import ADE, AGENTS, FOLAKE, GIO, USE_AS_ANSWER


async def sent(http: aiohttp.ClientSession, route: str, **body: Any) -> tuple[int, Json]:
    async with http.post(f"/control/{route}", json=body) as answer:
        is_json = answer.content_type == "application/json"
        return answer.status, await answer.json() if is_json else {}


@pytest.mark.parametrize(
    ("route", "body", "status"),
    [
        ("submit_view", {"user": ADE, "values": {}}, 400),
        ("open_home", {"user": ADE}, 200),
        ("join", {"user": ADE, "channel": AGENTS}, 200),
        ("join_enterprise", {"enterprise": "E0ORG"}, 200),
        ("press_home", {"user": GIO, "label_or_action_id": "x"}, 400),
        ("faults", {"method": "chat.*", "kind": "drop"}, 200),
        ("faults", {"method": "chat.*", "kind": "worse"}, 400),
        ("post", {"user": ADE}, 400),
        ("dance", {}, 404),
    ],
)
async def test_routes(http: aiohttp.ClientSession, route: str, body: Json, status: int) -> None:
    got, answer = await sent(http, route, **body)
    assert (got, status == 400) == (status, "error" in answer and "ok" not in answer)


async def test_actions_are_those_of_the_workspace(
    ws: Workspace, app: App, http: aiohttp.ClientSession
) -> None:
    _, said = await sent(http, "post", user=ADE, channel=AGENTS, text="port 8080")
    await app.client.views_publish(user_id=ADE, view=home(actions(button())))
    blocks = [actions(button(), select(option("One", "1")))]
    await app.client.chat_postEphemeral(channel=AGENTS, user=ADE, text="x", blocks=blocks)
    ts = await app.card(*blocks)
    view = ws.board.open_view(ADE, modal(HAND))
    bodies: dict[str, Json] = {
        "click": {"channel": AGENTS, "ts": ts, "label": "Yes"},
        "select": {"channel": AGENTS, "ts": ts, "label": "Choose", "option": "One"},
        "shortcut": {"callback_id": USE_AS_ANSWER, "message_ts": said["ts"], "channel": AGENTS},
        "press_home": {"label_or_action_id": "Yes"},
        "press_ephemeral": {"ephemeral": ws.ephemerals(ADE)[0].ts, "label": "Yes"},
        "choose_user": {"view": view.id, "user_id": FOLAKE},
        "submit_view": {},
        "click_in_view": {"label": "Yes"},
    }
    for action, body in bodies.items():
        status, outcome = await sent(http, action, user=ADE, **body)
        assert (status, set(outcome)) == (200, {"ok", "error", "errors", "seconds"})
        assert outcome["ok"], action
    assert await sent(http, "set_presence", user=ADE, presence="away") == (200, {})
    assert ws.state.users[ADE].presence == "away"
    assert len(app.of("block_actions")) == 5


async def test_what_there_is_can_be_read(
    ws: Workspace, client: AsyncWebClient, http: aiohttp.ClientSession
) -> None:
    root = await ws.post(ADE, AGENTS, "hi")
    query = {"channel": AGENTS, "user": ADE, "ts": root.ts}

    async def read(what: str) -> Json:
        async with http.get(f"/control/{what}", params=query) as answer:
            assert answer.status == 200
            body: Json = await answer.json()
            return body

    names = {what: what for what in ("messages", "views", "home", "errors", "calls", "acks")}
    for what, name in (names | dict.fromkeys(("direct", "ephemerals"), "messages")).items():
        assert (await read(what)) == {
            name: [] if what not in {"messages", "acks"} else (await read(what))[name]
        }
    assert [m["text"] for m in (await read("thread"))["messages"]] == ["hi"]
    await client.views_publish(user_id=ADE, view=home())
    ws.board.open_view(ADE, modal(HAND))
    assert [v["type"] for what in ("home", "views") for v in (await read(what))[what]] == ["home", "modal"]
    async with http.get("/control/nothing") as answer:
        assert answer.status == 404
    async with http.get("/control/messages", params={"channel": "C0NOWHERE"}) as answer:
        assert (answer.status, "no channel" in (await answer.json())["error"]) == (400, True)


async def test_wait_answers_when_something_changed(ws: Workspace, http: aiohttp.ClientSession) -> None:
    seen = ws.context.changes.version
    async with http.get("/control/wait", params={"version": str(seen), "timeout": "0"}) as answer:
        assert (await answer.json())["version"] == seen
    await ws.post(ADE, AGENTS, "x")
    async with http.get("/control/wait", params={"version": str(seen)}) as answer:
        assert (await answer.json())["version"] > seen


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


async def test_app_can_be_removed_and_a_channel_deleted(
    ws: Workspace, app: App, http: aiohttp.ClientSession
) -> None:
    assert (await sent(http, "delete_channel", channel=AGENTS))[0] == 200
    with pytest.raises(SlackApiError, match="channel_not_found"):
        await app.client.conversations_info(channel=AGENTS)
    assert (await sent(http, "uninstall"))[0] == 200
    with pytest.raises(SlackApiError, match="account_inactive"):
        await app.client.auth_test()
    await app.heard("channel_deleted")
    await app.heard("tokens_revoked")
    await app.heard("app_uninstalled")
    await sent(http, "uninstall", undo=True)
    assert (await app.client.auth_test())["ok"]
