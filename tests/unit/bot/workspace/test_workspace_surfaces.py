"""Shortcuts, Home tabs, ephemerals, lists of people, presence: what the app is told, what a person may do."""

from __future__ import annotations

from typing import Any

import aiohttp
import pytest
from slack_sdk.errors import SlackApiError
from slack_sdk.web.async_client import AsyncWebClient

from bot.workspace import ControlError, Workspace
from bot.workspace.seed import ADE, AGENTS, BOT_USER, FOLAKE, GIO, GONE, ONCALL, RANDOM, TEAM, USE_AS_ANSWER
from tests.unit.bot.workspace.kit import (
    Bot,
    Json,
    StartBot,
    actions,
    button,
    card,
    modal,
    plain,
    text_input,
)

PEOPLE: Json = {"type": "users_select", "action_id": "who", "placeholder": plain("A person")}
HAND: Json = {"type": "input", "block_id": "to", "label": plain("Hand to"), "element": PEOPLE}


def home(*blocks: Json, **more: Any) -> Json:
    return {"type": "home", "blocks": list(blocks)} | more


def noting(ws: Workspace) -> Bot:
    """A bot that acknowledges every shortcut, press, view and opened Home, and notes it."""
    bot = Bot(ws)

    async def note(ack: Any, body: Json) -> None:
        await bot.note(body)
        await ack()

    bot.app.shortcut(USE_AS_ANSWER)(note)
    for action_id in ("yes", "who"):
        bot.app.action(action_id)(note)
    bot.app.view("answer")(note)
    bot.app.event("app_home_opened")(note)
    bot.app.event("message")(note)
    return bot


async def answer_of(url: str, body: Json) -> int:
    async with aiohttp.ClientSession() as session, session.post(url, json=body) as answer:
        return answer.status


# Message shortcuts


async def test_shortcut_carries_the_message_and_its_thread(ws: Workspace, start: StartBot) -> None:
    bot = await start(noting(ws))
    root = await card(bot, actions(button()))
    reply = await ws.post(ADE, AGENTS, "port 8080", root)
    outcome = await ws.shortcut(FOLAKE, USE_AS_ANSWER, reply.ts, AGENTS)
    await ws.wait_for(lambda: bot.of_type("message_action"))
    body = bot.of_type("message_action")[0]
    assert outcome.ok
    assert (body["callback_id"], body["message_ts"]) == (USE_AS_ANSWER, reply.ts)
    assert (body["user"]["id"], body["team"]["id"]) == (FOLAKE, TEAM)
    assert body["channel"] == {"id": AGENTS, "name": "agents"}
    message = body["message"]
    assert (message["text"], message["user"], message["thread_ts"]) == ("port 8080", ADE, root)
    assert {"trigger_id", "action_ts", "response_url", "token"} <= set(body)
    assert (body["is_enterprise_install"], body["enterprise"]) == (False, None)


async def test_shortcut_opens_a_modal_and_answers_without_replacing(ws: Workspace, start: StartBot) -> None:
    bot = await start(noting(ws))
    message = await ws.post(ADE, AGENTS, "port 8080")
    await ws.shortcut(FOLAKE, USE_AS_ANSWER, message.ts, AGENTS)
    await ws.wait_for(lambda: bot.of_type("message_action"))
    body = bot.of_type("message_action")[0]
    await bot.client.views_open(trigger_id=body["trigger_id"], view=modal(text_input()))
    assert len(ws.views(FOLAKE)) == 1
    assert await answer_of(body["response_url"], {"text": "taken", "replace_original": True}) == 200
    assert [e.text for e in ws.ephemerals(FOLAKE)] == ["taken"]
    assert ws.message(AGENTS, message.ts).text == "port 8080"


async def test_shortcut_works_where_the_bot_is_no_member(ws: Workspace, start: StartBot) -> None:
    bot = await start(noting(ws))
    message = await ws.post(ADE, RANDOM, "hello")
    ws.channel(RANDOM).is_private = True
    assert (await ws.shortcut(ADE, USE_AS_ANSWER, message.ts, RANDOM)).ok
    assert bot.of_type("message_action")[0]["channel"]["name"] == "privategroup"


async def test_shortcut_is_refused_where_slack_shows_no_menu(ws: Workspace, client: AsyncWebClient) -> None:
    message = await ws.post(ADE, AGENTS, "hello")
    await client.chat_postEphemeral(channel=AGENTS, user=ADE, text="psst")
    elsewhere = await ws.post(ADE, RANDOM, "hello")
    with pytest.raises(ControlError, match="no message shortcut nonsense"):
        await ws.shortcut(ADE, "nonsense", message.ts, AGENTS)
    with pytest.raises(ControlError, match="no message"):
        await ws.shortcut(ADE, USE_AS_ANSWER, ws.ephemerals(ADE)[0].ts, AGENTS)
    with pytest.raises(ControlError, match="not a member"):
        await ws.shortcut(BOT_USER, USE_AS_ANSWER, elsewhere.ts, RANDOM)
    await ws.post(FOLAKE, AGENTS, "reply", message.ts)
    await ws.delete_message(ADE, AGENTS, message.ts)
    with pytest.raises(ControlError, match="deleted"):
        await ws.shortcut(ADE, USE_AS_ANSWER, message.ts, AGENTS)


async def test_shortcut_without_acknowledgement_is_an_error_on_screen(ws: Workspace) -> None:
    message = await ws.post(ADE, AGENTS, "hello")
    outcome = await ws.shortcut(ADE, USE_AS_ANSWER, message.ts, AGENTS)
    assert (outcome.ok, [e.reason for e in ws.errors(ADE)]) == (False, ["no_connection"])


# Home tabs


async def test_home_opened_carries_the_view_once_there_is_one(ws: Workspace, start: StartBot) -> None:
    bot = await start(noting(ws))
    await ws.open_home(ADE)
    await bot.client.views_publish(user_id=ADE, view=home(actions(button())))
    await ws.open_home(ADE)
    await ws.open_home(ADE, "messages")
    await ws.wait_for(lambda: len(bot.bodies) == 3)
    events = sorted((b["event"] for b in bot.bodies), key=lambda e: str(e["event_ts"]))
    assert [(e["tab"], "view" in e) for e in events] == [
        ("home", False),
        ("home", True),
        ("messages", False),
    ]
    assert events[1]["view"]["type"] == "home"
    direct = ws.state.direct_message(ADE)
    assert direct is not None
    assert {e["channel"] for e in events} == {direct.id}


async def test_home_button_carries_the_view_and_no_channel(ws: Workspace, start: StartBot) -> None:
    bot = await start(noting(ws))
    await bot.client.views_publish(
        user_id=ADE, view=home(actions(button(value="v")), private_metadata="page 2")
    )
    ws.board.open_view(ADE, modal(text_input()))
    assert (await ws.press_home(ADE, "Yes")).ok
    assert (await ws.press_home(ADE, "yes")).ok
    body = bot.of_type("block_actions")[0]
    shown = ws.home(ADE)
    assert shown is not None
    assert body["container"] == {"type": "view", "view_id": shown.id}
    assert body["view"]["private_metadata"] == "page 2"
    assert body["actions"][0]["value"] == "v"
    assert not {"channel", "message", "response_url"} & set(body)
    await bot.client.views_push(trigger_id=body["trigger_id"], view=modal(text_input()))


async def test_home_that_was_never_published_has_no_buttons(ws: Workspace) -> None:
    assert ws.home(ADE) is None
    with pytest.raises(ControlError, match="nothing was published"):
        await ws.press_home(ADE, "Yes")


async def test_home_is_each_persons_own(ws: Workspace, client: AsyncWebClient) -> None:
    await client.views_publish(user_id=ADE, view=home(actions(button())))
    shown = ws.home(ADE)
    assert shown is not None
    assert ws.home(FOLAKE) is None
    with pytest.raises(ControlError, match="does not have this view"):
        ws.view(FOLAKE, shown)


async def test_home_hash_guards_against_overwriting(ws: Workspace, client: AsyncWebClient) -> None:
    with pytest.raises(SlackApiError, match="hash_conflict"):
        await client.views_publish(user_id=ADE, hash="h.made-up", view=home())
    first = (await client.views_publish(user_id=ADE, view=home()))["view"]
    second = (await client.views_publish(user_id=ADE, hash=first["hash"], view=home(actions(button()))))[
        "view"
    ]
    assert (second["id"], second["hash"] != first["hash"]) == (first["id"], True)
    with pytest.raises(SlackApiError, match="hash_conflict"):
        await client.views_publish(user_id=ADE, hash=first["hash"], view=home())


BIG = home(*[{"type": "section", "text": plain("é" * 3000)} for _ in range(50)])


@pytest.mark.parametrize(
    ("user", "view", "error"),
    [
        ("U0NOBODY", home(), "user_not_found"),
        (GONE, home(), "not_enabled"),
        (BOT_USER, home(), "not_enabled"),
        (ADE, BIG, "view_too_large"),
        (ADE, home(*[{"type": "divider"}] * 101), "invalid_arguments"),
        (ADE, home(title=plain("x")), "invalid_arguments"),
        (ADE, home(external_id="taken"), "duplicate_external_id"),
    ],
)
async def test_publish_refuses(client: AsyncWebClient, user: str, view: Json, error: str) -> None:
    await client.views_publish(user_id=FOLAKE, view=home(external_id="taken"))
    with pytest.raises(SlackApiError, match=error):
        await client.views_publish(user_id=user, view=view)


async def test_publish_needs_the_home_tab(ws: Workspace, client: AsyncWebClient) -> None:
    ws.state.app.home_tab = False
    with pytest.raises(SlackApiError, match="not_enabled"):
        await client.views_publish(user_id=ADE, view=home())


# Ephemeral messages


async def test_ephemeral_list_turns_its_pages_in_place(ws: Workspace, start: StartBot) -> None:
    bot = await start(noting(ws))
    await bot.client.chat_postEphemeral(channel=AGENTS, user=ADE, text="page 1", blocks=[actions(button())])
    shown = ws.ephemerals(ADE)[0]
    assert (await ws.press_ephemeral(ADE, shown, "Yes")).ok
    url = bot.of_type("block_actions")[0]["response_url"]
    page = {"text": "page 2", "blocks": [actions(button("Previous"))], "response_type": "in_channel"}
    assert await answer_of(url, page | {"replace_original": True}) == 200
    assert [(e.ts, e.text) for e in ws.ephemerals(ADE)] == [(shown.ts, "page 2")]
    assert ws.messages(AGENTS) == []
    assert (await ws.press_ephemeral(ADE, shown.ts, "Previous")).ok
    assert await answer_of(url, {"delete_original": True}) == 200
    assert ws.ephemerals(ADE) == []
    with pytest.raises(ControlError, match="sees no ephemeral"):
        await ws.press_ephemeral(ADE, shown, "Previous")


async def test_ephemeral_is_pressed_by_its_reader_only(ws: Workspace, client: AsyncWebClient) -> None:
    await client.chat_postEphemeral(channel=AGENTS, user=ADE, text="x", blocks=[actions(button())])
    with pytest.raises(ControlError, match="U0FOLAKE sees no ephemeral"):
        await ws.press_ephemeral(FOLAKE, ws.ephemerals(ADE)[0], "Yes")


async def test_response_url_of_a_command_replaces_nothing(ws: Workspace, start: StartBot) -> None:
    bot = Bot(ws)

    @bot.app.command("/clarify")
    async def clarify(ack: Any, body: Json) -> None:
        await bot.note(body)
        await ack("one")

    await start(bot)
    await ws.command(ADE, AGENTS, "/clarify")
    await answer_of(bot.bodies[0]["response_url"], {"text": "two", "replace_original": True})
    assert [e.text for e in ws.ephemerals(ADE)] == ["one", "two"]


# Lists of people, and what `state` holds


async def test_choosing_a_person_in_an_input_waits_for_the_submission(ws: Workspace, start: StartBot) -> None:
    bot = await start(noting(ws))
    view = ws.board.open_view(ONCALL, modal(HAND))
    assert (await ws.choose_user(ONCALL, view, ADE)).ok
    assert bot.bodies == []
    assert (await ws.submit_view(ONCALL)).ok
    values = bot.of_type("view_submission")[0]["view"]["state"]["values"]
    assert values == {"to": {"who": {"type": "users_select", "selected_user": ADE}}}


async def test_choosing_a_person_in_a_section_is_sent_at_once(ws: Workspace, start: StartBot) -> None:
    bot = await start(noting(ws))
    section = {"type": "section", "block_id": "s", "text": plain("Hand to"), "accessory": PEOPLE}
    view = ws.board.open_view(ONCALL, modal(section, text_input()))
    assert (await ws.choose_user(ONCALL, view.id, FOLAKE)).ok
    body = bot.of_type("block_actions")[0]
    assert (body["actions"][0]["type"], body["actions"][0]["selected_user"]) == ("users_select", FOLAKE)
    assert body["view"]["state"]["values"] == {
        "s": {"who": {"type": "users_select", "selected_user": FOLAKE}},
        "answer": {"value": {"type": "plain_text_input", "value": None}},
    }


async def test_choosing_a_person_in_a_message(ws: Workspace, start: StartBot) -> None:
    bot = await start(noting(ws))
    ts = await card(bot, actions(PEOPLE, button(), block_id="b"))
    await ws.click(ONCALL, AGENTS, ts, "yes")
    await ws.select(ONCALL, AGENTS, ts, "A person", ADE)
    untouched, chosen = (b["state"]["values"]["b"] for b in bot.of_type("block_actions"))
    assert untouched == {"who": {"type": "users_select", "selected_user": None}}
    assert chosen == {"who": {"type": "users_select", "selected_user": ADE}}


@pytest.mark.parametrize("nobody", [GONE, "U0NOBODY", "Ade"])
async def test_choosing_somebody_who_is_not_offered(ws: Workspace, nobody: str) -> None:
    view = ws.board.open_view(ONCALL, modal(HAND))
    with pytest.raises(ControlError, match="no person"):
        await ws.choose_user(ONCALL, view, nobody)
    with pytest.raises(ControlError, match="no person"):
        await ws.submit_view(ONCALL, {"Hand to": nobody})


async def test_entries_are_gone_with_their_element(ws: Workspace, start: StartBot) -> None:
    bot = await start(noting(ws))
    view = ws.board.open_view(ONCALL, modal(HAND, text_input()))
    await ws.choose_user(ONCALL, view, ADE)
    await bot.client.views_update(view_id=view.id, view=modal(HAND, text_input("why", "Why")))
    await ws.submit_view(ONCALL, {"Why": "on a train"})
    values = bot.of_type("view_submission")[0]["view"]["state"]["values"]
    assert values["to"]["who"]["selected_user"] == ADE
    assert set(values) == {"to", "why"}
    again = ws.board.open_view(ONCALL, modal(HAND))
    await ws.choose_user(ONCALL, again, ADE)
    await bot.client.views_update(view_id=again.id, view=modal(text_input()))
    assert again.values == {}


# Presence, deactivation


async def test_presence_of_others_and_ones_own(ws: Workspace, client: AsyncWebClient) -> None:
    assert (await client.users_getPresence(user=ADE)).data == {"ok": True, "presence": "active"}
    ws.set_presence(ADE, "away")
    assert (await client.users_getPresence(user=ADE))["presence"] == "away"
    ws.set_presence(ADE, "active")
    ws.change_user(ADE, deleted=True)
    assert (await client.users_getPresence(user=ADE))["presence"] == "away"
    assert {"online", "auto_away", "manual_away"} <= set((await client.users_getPresence(user=BOT_USER)).data)
    with pytest.raises(SlackApiError, match="user_not_found"):
        await client.users_getPresence(user="U0NOBODY")
    with pytest.raises(ControlError, match="expected active or away"):
        ws.set_presence(ADE, "asleep")  # type: ignore[arg-type]  # what a route may be given


async def test_message_to_somebody_deactivated_since_goes_nowhere(
    ws: Workspace, client: AsyncWebClient
) -> None:
    await client.chat_postMessage(channel=GIO, text="page 1")
    ws.change_user(GIO, deleted=True)
    await client.chat_postMessage(channel=GIO, text="page 2")
    assert [m.text for m in ws.direct(GIO)] == ["page 1", "page 2"]
    with pytest.raises(SlackApiError, match="channel_not_found"):
        await client.chat_postMessage(channel=GONE, text="never met")


# The same from another process


async def test_control_has_the_same_actions(ws: Workspace, start: StartBot) -> None:
    bot = await start(noting(ws))
    message = await ws.post(ADE, AGENTS, "port 8080")
    await bot.client.views_publish(user_id=ADE, view=home(actions(button())))
    await bot.client.chat_postEphemeral(channel=AGENTS, user=ADE, text="x", blocks=[actions(button())])
    view = ws.board.open_view(ADE, modal(HAND))
    bodies: dict[str, Json] = {
        "shortcut": {"callback_id": USE_AS_ANSWER, "message_ts": message.ts, "channel": AGENTS},
        "press_home": {"label_or_action_id": "Yes"},
        "press_ephemeral": {"ephemeral": ws.ephemerals(ADE)[0].ts, "label": "Yes"},
        "choose_user": {"view": view.id, "user_id": FOLAKE},
        "set_presence": {"presence": "away"},
    }
    async with aiohttp.ClientSession(ws.url) as session:
        for action, body in bodies.items():
            async with session.post(f"/control/{action}", json=body | {"user": ADE}) as answer:
                assert (answer.status, (await answer.json()).get("ok", True)) == (200, True)
        async with session.post(
            "/control/press_home", json={"user": GIO, "label_or_action_id": "x"}
        ) as answer:
            assert answer.status == 400
        async with session.get("/control/home", params={"user": ADE}) as answer:
            assert [v["type"] for v in (await answer.json())["home"]] == ["home"]
    assert ws.state.users[ADE].presence == "away"
    assert len(bot.of_type("block_actions")) == 2
