"""What Slack sends: events, clicks, modals and commands, over sockets and to a request URL; what is tried again.

Bolt, its HTTP adapter and its verification of signatures are the judges.
"""

from __future__ import annotations

import asyncio
import gc
import socket
import warnings
from dataclasses import replace

import aiohttp
import pytest
from aiohttp import web

from tests.workspace.kit import (
    FAST,
    App,
    Json,
    actions,
    ask,
    button,
    impatient,
    modal,
    plain,
    text_input,
)
from workspace import ControlError, Workspace, stop_accepting
from workspace.seed import ADE, AGENTS, BOT_USER, FOLAKE, PLATFORM, USE_AS_ANSWER

either_way = pytest.mark.parametrize("app", ["socket", "http"], indirect=True)
http_only = pytest.mark.parametrize("app", ["http"], indirect=True)


def says(app: App, text: str, status: int = 200, content_type: str = "text/plain") -> None:
    """Have the app answer so, whatever it is sent."""

    async def answer() -> web.Response:
        return web.Response(text=text, status=status, content_type=content_type)

    app.instead = answer


# Either way


@either_way
async def test_each_kind_arrives_as_bolt_takes_it(ws: Workspace, app: App) -> None:
    said = await ws.post(ADE, AGENTS, "héllo & so on")
    await app.heard("message")
    assert (await app.clicked())["user"]["id"] == ADE
    assert (await ws.shortcut(ADE, USE_AS_ANSWER, said.ts, AGENTS)).ok
    app.answers["/clarify"] = {"text": "you said a=b&c é", "response_type": "ephemeral"}
    assert (await ws.command(ADE, AGENTS, "/clarify", "a=b&c é")).ok
    assert app.of("message")[0]["event"]["text"] == "héllo &amp; so on"
    assert app.of("message_action")[0]["message"]["ts"] == said.ts
    assert app.of("/clarify")[0]["text"] == "a=b&c é"
    assert [e.text for e in ws.ephemerals(ADE)] == ["you said a=b&c é"]
    assert all(ack.ok and ack.seconds is not None for ack in ws.acks)


NEXT = modal(title=plain("Next"))


@either_way
@pytest.mark.parametrize(
    ("answer", "ok", "titles"),
    [
        ({}, True, []),
        ({"response_action": "clear"}, True, []),
        ({"response_action": "errors", "errors": {"answer": "no"}}, False, ["Answer"]),
        ({"response_action": "errors", "errors": {"nowhere": "no"}}, False, ["Answer"]),
        ({"response_action": "update", "view": NEXT}, True, ["Next"]),
        ({"response_action": "update", "view": {"type": "modal"}}, False, ["Answer"]),
        ({"response_action": "push", "view": NEXT}, True, ["Answer", "Next"]),
    ],
)
async def test_response_to_a_modal_is_carried_out(
    ws: Workspace, app: App, answer: Json, ok: bool, titles: list[str]
) -> None:
    app.answers["view_submission"] = answer
    ws.board.open_view(ADE, modal(text_input()))
    outcome = await ws.submit_view(ADE, {"Answer": "x"})
    assert outcome.ok is ok
    assert [v.payload["title"]["text"] for v in ws.views(ADE)] == titles
    wrong = "nowhere" in answer.get("errors", ()) or answer.get("view") == {"type": "modal"}
    assert len(ws.errors(ADE)) == wrong


@either_way
async def test_event_is_tried_again_until_acknowledged(ws: Workspace, app: App) -> None:
    ws.context.options = replace(FAST, ack_timeout=0.05, retry_delays=(0.0,) * 1000)
    app.deaf["message"] = 1000
    await ws.post(ADE, AGENTS, "hello?")
    await ws.wait_for(lambda: len(ws.acks) >= 3)
    app.deaf.clear()
    ws.context.options = FAST
    await ws.wait_for(lambda: ws.acks[-1].ok)
    assert len({body["event_id"] for body in app.bodies}) == 1
    assert [ack.ok for ack in ws.acks] == [False] * (len(ws.acks) - 1) + [True]
    assert [ack.attempt for ack in ws.acks] == list(range(len(ws.acks)))


@either_way
async def test_click_that_is_not_acknowledged_is_an_error_and_not_tried_again(
    ws: Workspace, app: App
) -> None:
    ts = await app.card(actions(button()))
    await ws.wait_for(lambda: ws.acks)
    app.deaf["block_actions"] = 5
    impatient(ws)
    outcome = await ws.click(ADE, AGENTS, ts, "yes")
    assert (outcome.ok, outcome.error) in {(False, "timeout"), (False, "http_timeout")}
    assert [e.reason for e in ws.errors(ADE)] == [outcome.error]
    app.deaf["message"] = 4
    await ws.post(ADE, AGENTS, "what is tried again")
    await ws.wait_for(lambda: ws.acks[-1].attempt == 3)
    assert [a.attempt for a in ws.acks if a.kind == "interactive"] == [0]


# Events


async def test_what_people_do_is_told(ws: Workspace, app: App) -> None:
    message = await ws.post(ADE, AGENTS, "@clarify help")
    await ws.edit(ADE, AGENTS, message.ts, "never mind")
    await ws.delete_message(ADE, AGENTS, message.ts)
    ws.leave(ADE, AGENTS)
    ws.join(ADE, AGENTS)
    ws.change_user(ADE, deleted=True)
    ws.change_group(PLATFORM, [FOLAKE])
    ws.disable_group(PLATFORM)
    ws.emit({"type": "tokens_revoked", "tokens": {"bot": [BOT_USER]}})
    ws.emit({"type": "emoji_changed"})  # the app did not subscribe to it
    ws.archive(AGENTS)
    ws.archive(AGENTS, undo=True)
    ws.leave(BOT_USER, AGENTS)
    expected = [
        "message", "app_mention", "message", "message", "member_left_channel", "member_joined_channel",
        "user_change", "subteam_members_changed", "subteam_updated", "tokens_revoked", "channel_archive",
        "channel_unarchive", "member_left_channel", "channel_left",
    ]  # fmt: skip
    await ws.wait_for(lambda: len(app.bodies) >= len(expected))
    assert sorted(body["event"]["type"] for body in app.bodies) == sorted(expected)
    told = {body["event"].get("subtype"): body["event"] for body in app.of("message")}
    assert set(told) == {None, "message_changed", "message_deleted"}
    assert told["message_changed"]["previous_message"]["text"] == f"<@{BOT_USER}> help"
    assert app.of("user_change")[0]["event"]["user"]["deleted"] is True
    assert app.of("subteam_members_changed")[0]["event"]["added_users"] == [FOLAKE]
    assert (await ask(app.client, "chat.postMessage", channel=AGENTS, text="x"))["error"] == "not_in_channel"


async def test_deleted_root_is_told_as_a_change_and_gone_with_its_last_reply(ws: Workspace, app: App) -> None:
    root = await app.card()
    reply = await ws.post(ADE, AGENTS, "a reply", root)
    await app.client.chat_delete(channel=AGENTS, ts=root)
    await ws.delete_message(ADE, AGENTS, reply.ts)
    await ws.wait_for(lambda: len(app.of("message")) == 4)  # of its own post Bolt tells no app
    told = {(e.get("subtype"), e.get("deleted_ts")): e for e in (b["event"] for b in app.of("message"))}
    assert set(told) == {
        (None, None),
        ("message_changed", None),
        ("message_deleted", reply.ts),
        ("message_deleted", root),
    }
    changed = told["message_changed", None]
    assert changed["hidden"] is True
    assert (changed["message"]["subtype"], changed["message"]["ts"]) == ("tombstone", root)
    assert changed["message"]["user"] == "USLACKBOT"
    assert changed["previous_message"]["text"] == "card"
    assert told["message_deleted", root]["previous_message"]["subtype"] == "tombstone"


async def test_home_opened_carries_the_view_once_there_is_one(ws: Workspace, app: App) -> None:
    await ws.open_home(ADE)
    await app.client.views_publish(user_id=ADE, view={"type": "home", "blocks": [actions(button())]})
    await ws.open_home(ADE)
    await ws.open_home(ADE, "messages")
    events = sorted(
        (body["event"] for body in await app.heard("app_home_opened", 3)), key=lambda e: str(e["event_ts"])
    )
    assert [(e["tab"], e.get("view", {}).get("type")) for e in events] == [
        ("home", None),
        ("home", "home"),
        ("messages", None),
    ]
    direct = ws.state.direct_message(ADE)
    assert direct is not None
    assert {e["channel"] for e in events} == {direct.id}


# Sockets


async def test_events_while_nobody_is_connected_are_tried_again_and_lost(ws: Workspace) -> None:
    await ws.post(ADE, AGENTS, "hello?")
    await ws.wait_for(lambda: len(ws.acks) == 4)
    assert {a.failure for a in ws.acks} == {"no_connection"}
    assert (await ws.command(ADE, AGENTS, "/clarify")).error == "no_connection"


@pytest.mark.parametrize("fault", ["cut", "disconnect"])
async def test_bolt_reconnects(ws: Workspace, app: App, fault: str) -> None:
    before = ws.link.connections[0]
    if pending := getattr(ws.link, fault)():
        await pending
    await ws.wait_for(lambda: ws.link.connections and before not in ws.link.connections)
    await app.clicked()


async def test_tickets_are_good_once_and_upgrades_are_refused_on_demand(ws: Workspace) -> None:
    async with aiohttp.ClientSession() as session:
        ws.link.reject(1)
        for _ in range(2):
            with pytest.raises(aiohttp.WSServerHandshakeError):
                await session.ws_connect(f"{ws.url.replace('http', 'ws')}link/?ticket=made-up")
        assert ws.link.refused_upgrades == 2
        url = ws.link.new_url()
        async with session.ws_connect(url) as socket:
            assert (await socket.receive_json())["type"] == "hello"
            await socket.ping(b"sdk-ping-pong:1")
        with pytest.raises(aiohttp.WSServerHandshakeError):
            await session.ws_connect(url)


# A request URL


@http_only
async def test_retry_says_which_and_why(ws: Workspace, app: App) -> None:
    says(app, "", 503)
    await ws.post(ADE, AGENTS, "hello")
    await ws.wait_for(lambda: len(ws.acks) == 4)
    assert [(a.attempt, a.failure, a.status) for a in ws.acks] == [(n, "http_error", 503) for n in range(4)]
    assert [h.get("x-slack-retry-num") for h in app.headers] == [None, "1", "2", "3"]
    assert app.headers[1]["x-slack-retry-reason"] == "http_error"


@http_only
@pytest.mark.parametrize(
    ("kind", "status", "failure"),
    [
        ("bad_signature", 401, "http_error"),
        ("unsigned", 401, "http_error"),
        ("old_timestamp", 401, "http_error"),
        ("unreachable", None, "connection_failed"),
        ("lost", None, "http_timeout"),
    ],
)
async def test_fault_meets_one_request(
    ws: Workspace, app: App, kind: str, status: int | None, failure: str
) -> None:
    ws.link.requests.spoil(kind)
    assert (await ws.command(ADE, AGENTS, "/clarify", "1")).error == failure
    assert ws.acks[-1].status == status
    assert len(app.bodies) == (kind == "lost")
    assert (await ws.command(ADE, AGENTS, "/clarify", "2")).ok


@http_only
async def test_request_url_has_to_repeat_the_challenge(ws: Workspace, app: App) -> None:
    says(app, "something else")
    with pytest.raises(ControlError, match="a different body"):
        await ws.link.requests.set_url(f"{app.url}?other")
    assert ws.link.requests.url == app.url


async def test_workspace_comes_back_on_its_port(ws: Workspace, app: App) -> None:
    await ws.refuse_connections()
    with pytest.raises(aiohttp.ClientConnectionError):
        await app.client.auth_test()
    await ws.accept_connections()
    assert (await app.client.auth_test())["ok"] is True


async def test_connection_that_comes_while_the_server_stops_is_closed() -> None:
    """Closing between `accept` and the connection's task leaks it (CPython 3.11): its socket was found by a later test."""
    runner = web.AppRunner(web.Application(), shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    with socket.create_connection(runner.addresses[0]):
        turn = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_soon(turn.set_result, None)
        await turn  # the turn in which it is accepted
        await stop_accepting(runner)
        await runner.cleanup()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        gc.collect()
    assert not [each for each in caught if issubclass(each.category, ResourceWarning)]
