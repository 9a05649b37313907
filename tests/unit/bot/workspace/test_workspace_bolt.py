"""Bolt, unchanged, against the workspace: what it gets, what its acknowledgements do, what is retried."""

from __future__ import annotations

from typing import Any

import aiohttp
import pytest
from slack_sdk.errors import SlackApiError

from bot.workspace import ControlError, Workspace
from bot.workspace.seed import ADE, AGENTS, BOT_USER, EVA, EXTERNAL_TEAM, FOLAKE, TEAM
from tests.unit.bot.workspace.kit import (
    Bot,
    Json,
    StartBot,
    actions,
    button,
    card,
    listening,
    modal,
    option,
    plain,
    select,
    text_input,
)


async def test_click_carries_what_slack_sends(ws: Workspace, start: StartBot) -> None:
    bot = await start(listening(ws))
    root = await card(bot, actions(button(value="v1"), block_id="b1"))
    ts = await card(bot, actions(button(value="v2"), block_id="b2"), thread_ts=root)
    outcome = await ws.click(EVA, AGENTS, ts, label="Yes")
    body = bot.of_type("block_actions")[0]
    assert outcome.ok
    assert body["user"] == {"id": EVA, "username": "eva", "name": "eva", "team_id": EXTERNAL_TEAM}
    assert body["team"]["id"] == TEAM
    assert body["container"] == {
        "type": "message",
        "message_ts": ts,
        "channel_id": AGENTS,
        "is_ephemeral": False,
        "thread_ts": root,
    }
    action = body["actions"][0]
    assert (action["action_id"], action["block_id"], action["value"]) == ("yes", "b2", "v2")
    assert body["message"]["ts"] == ts
    assert body["response_url"].startswith(ws.url)
    assert ws.acks[-1].seconds is not None


async def test_select_carries_the_option_and_the_state(ws: Workspace, start: StartBot) -> None:
    bot = await start(listening(ws))
    ts = await card(bot, actions(select(option("Staging", "s"), option("Production", "p")), block_id="b"))
    await ws.select(ADE, AGENTS, ts, "Choose", "Production")
    body = bot.of_type("block_actions")[0]
    assert body["actions"][0]["selected_option"]["value"] == "p"
    assert body["state"]["values"]["b"]["choice"]["selected_option"]["value"] == "p"


async def test_click_on_what_is_not_there_is_an_error_of_the_test(ws: Workspace, start: StartBot) -> None:
    bot = await start(listening(ws))
    ts = await card(bot, actions(button()))
    with pytest.raises(ControlError, match="exactly one"):
        await ws.click(ADE, AGENTS, ts, label="No")


async def test_modal_opens_refuses_and_closes(ws: Workspace, start: StartBot) -> None:
    bot = Bot(ws)

    @bot.app.action("yes")
    async def open_modal(ack: Any, body: Json) -> None:
        await ack()
        await bot.client.views_open(
            trigger_id=body["trigger_id"], view=modal(text_input(), private_metadata="m")
        )

    @bot.app.view("answer")
    async def answered(ack: Any, body: Json, view: Json) -> None:
        await bot.note(body)
        if view["state"]["values"]["answer"]["value"]["value"] == "no":
            await ack(response_action="errors", errors={"answer": "Think again"})
        else:
            await ack()

    await start(bot)
    ts = await card(bot, actions(button()))
    await ws.click(ADE, AGENTS, ts, "yes")
    await ws.wait_for(lambda: ws.views(ADE))
    refused = await ws.submit_view(ADE, {"Answer": "no"})
    assert (refused.ok, refused.errors) == (False, {"answer": "Think again"})
    assert (await ws.submit_view(ADE, {"answer": "yes"})).ok
    assert ws.views(ADE) == []
    assert bot.bodies[-1]["view"]["private_metadata"] == "m"


async def test_modal_with_an_empty_required_input_is_not_sent(ws: Workspace, start: StartBot) -> None:
    bot = await start(listening(ws))
    ws.board.open_view(ADE, modal(text_input()))
    outcome = await ws.submit_view(ADE, {})
    assert outcome.errors == {"answer": "Please complete this required field."}
    assert bot.bodies == []


async def test_modal_closed_is_told_where_asked_for(ws: Workspace, start: StartBot) -> None:
    bot = await start(listening(ws))
    ws.board.open_view(ADE, modal(text_input(), notify_on_close=True))
    await ws.close_view(ADE)
    assert bot.bodies[0]["type"] == "view_closed"
    assert ws.views(ADE) == []


@pytest.mark.parametrize(
    ("response", "titles"),
    [
        ({"response_action": "clear"}, []),
        ({"response_action": "update"}, ["Next"]),
        ({"response_action": "push"}, ["Answer", "Next"]),
    ],
)
async def test_modal_response_actions(
    ws: Workspace, start: StartBot, response: Json, titles: list[str]
) -> None:
    bot = Bot(ws)

    @bot.app.view("answer")
    async def answered(ack: Any) -> None:
        view = modal(title=plain("Next")) if response["response_action"] != "clear" else None
        await ack(**response, view=view)

    await start(bot)
    ws.board.open_view(ADE, modal(text_input()))
    await ws.submit_view(ADE, {"Answer": "x"})
    assert [v.payload["title"]["text"] for v in ws.views(ADE)] == titles


async def test_trigger_is_good_once_and_briefly(ws: Workspace, start: StartBot) -> None:
    bot = await start(listening(ws))
    ts = await card(bot, actions(button()))
    await ws.click(ADE, AGENTS, ts, "yes")
    trigger_id = bot.bodies[0]["trigger_id"]
    await bot.client.views_open(trigger_id=trigger_id, view=modal(text_input()))
    with pytest.raises(SlackApiError, match="exchanged_trigger_id"):
        await bot.client.views_open(trigger_id=trigger_id, view=modal(text_input()))
    await ws.click(ADE, AGENTS, ts, "yes")
    trigger = ws.state.triggers[bot.bodies[-1]["trigger_id"]]
    trigger.expires -= 3.1
    with pytest.raises(SlackApiError, match="expired_trigger_id"):
        await bot.client.views_open(trigger_id=bot.bodies[-1]["trigger_id"], view=modal(text_input()))


async def test_thread_reply_arrives_with_its_thread(ws: Workspace, start: StartBot) -> None:
    bot = await start(listening(ws))
    ts = await card(bot, actions(button()))
    await ws.post(ADE, AGENTS, "use <b> & https://example.org, @folake", ts)
    await ws.wait_for(lambda: len(bot.of_type("message")) == 1)
    event = bot.of_type("message")[0]["event"]
    assert (event["thread_ts"], event["user"], event["parent_user_id"]) == (ts, ADE, BOT_USER)
    assert event["text"] == f"use &lt;b&gt; &amp; <https://example.org>, <@{FOLAKE}>"


async def test_own_posts_come_back_as_events(ws: Workspace, start: StartBot) -> None:
    bot = await start(listening(ws))
    await card(bot, actions(button()))
    await ws.wait_for(lambda: [a for a in ws.acks if a.payload_type == "message"])


async def test_mention_edit_delete_join_archive_home_are_events(ws: Workspace, start: StartBot) -> None:
    bot = await start(listening(ws))
    message = await ws.post(ADE, AGENTS, "@clarify help")
    await ws.edit(ADE, AGENTS, message.ts, "never mind")
    await ws.delete_message(ADE, AGENTS, message.ts)
    ws.leave(ADE, AGENTS)
    ws.join(ADE, AGENTS)
    ws.archive(AGENTS)
    await ws.open_home(ADE)
    await ws.wait_for(lambda: len(bot.bodies) == 8)
    subtypes = [b["event"].get("subtype") for b in bot.of_type("message")]
    assert subtypes == [None, "message_changed", "message_deleted"]
    assert bot.of_type("message")[1]["event"]["previous_message"]["text"] == f"<@{BOT_USER}> help"
    for kind in ("app_mention", "member_joined_channel", "channel_archive"):
        assert len(bot.of_type(kind)) == 1


async def test_command_answers_the_person_alone(ws: Workspace, start: StartBot) -> None:
    bot = Bot(ws)

    @bot.app.command("/clarify")
    async def clarify(ack: Any, body: Json) -> None:
        await bot.note(body)
        await ack("Nothing is open.")

    await start(bot)
    assert (await ws.command(ADE, AGENTS, "/clarify", "stale")).ok
    assert (bot.bodies[0]["text"], bot.bodies[0]["user_id"]) == ("stale", ADE)
    assert [e.text for e in ws.ephemerals(ADE)] == ["Nothing is open."]


async def test_commands_unknown_or_in_threads_are_refused(ws: Workspace) -> None:
    message = await ws.post(ADE, AGENTS, "x")
    assert not (await ws.command(ADE, AGENTS, "/dance")).ok
    assert not (await ws.command(ADE, AGENTS, "/clarify", thread_ts=message.ts)).ok
    assert [e.text.split(" is ")[0] for e in ws.errors(ADE)] == ["/dance", "/clarify"]


async def test_response_url_lives_five_uses(ws: Workspace, start: StartBot) -> None:
    bot = await start(listening(ws))
    ts = await card(bot, actions(button()))
    await ws.click(ADE, AGENTS, ts, "yes")
    url = bot.bodies[0]["response_url"]
    async with aiohttp.ClientSession() as session:
        statuses = []
        for body in ({"text": "psst"}, {"text": "new", "replace_original": True}, *[{"text": "again"}] * 4):
            async with session.post(url, json=body) as answer:
                statuses.append(answer.status)
    assert statuses == [200] * 5 + [404]
    assert ws.ephemerals(ADE)[0].text == "psst"
    assert ws.message(AGENTS, ts).text == "new"
