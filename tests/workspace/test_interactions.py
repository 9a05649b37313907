"""What a click, a choice, a modal, a shortcut and a response_url carry and do, and what people cannot do."""

from __future__ import annotations

from typing import Any

import aiohttp
import pytest

from tests.workspace.kit import (
    HAND,
    PEOPLE,
    App,
    Json,
    actions,
    button,
    home,
    modal,
    option,
    plain,
    select,
    text_input,
)
from workspace import ControlError, Workspace
from workspace.seed import (
    ADE,
    AGENTS,
    BOT_USER,
    EVA,
    EXTERNAL_TEAM,
    FOLAKE,
    GONE,
    ONCALL,
    RANDOM,
    TEAM,
    USE_AS_ANSWER,
)


async def whispered(app: App, text: str = "only you") -> str:
    """An ephemeral message with a button, to Ade."""
    answer = await app.client.chat_postEphemeral(
        channel=AGENTS, user=ADE, text=text, blocks=[actions(button())]
    )
    return str(answer["message_ts"])


async def responded(body: Json, **sent: Any) -> int:
    """The status with which the response_url of an interaction takes it."""
    async with aiohttp.ClientSession() as session, session.post(body["response_url"], json=sent) as answer:
        return answer.status


# Controls of messages


async def test_click_carries_what_slack_sends(ws: Workspace, app: App) -> None:
    root = await app.card(actions(button(value="v1"), block_id="b1"))
    ts = await app.card(actions(button(value="v2"), block_id="b2"), thread_ts=root)
    assert (await ws.click(EVA, AGENTS, ts, label="Yes")).ok
    (body,) = app.of("block_actions")
    assert body["user"] == {"id": EVA, "username": "eva", "name": "eva", "team_id": EXTERNAL_TEAM}
    assert (body["team"]["id"], body["enterprise"], body["is_enterprise_install"]) == (TEAM, None, False)
    container = {"type": "message", "message_ts": ts, "channel_id": AGENTS, "is_ephemeral": False}
    assert body["container"] == container | {"thread_ts": root}
    (action,) = body["actions"]
    assert (action["action_id"], action["block_id"], action["value"]) == ("yes", "b2", "v2")
    assert body["message"]["ts"] == ts
    assert body["response_url"].startswith(ws.url)


@pytest.mark.parametrize("has_replies", [False, True])
async def test_click_that_was_made_before_its_message_was_deleted_arrives(
    ws: Workspace, app: App, has_replies: bool
) -> None:
    ts = await app.card(actions(button()))
    shown = ws.message(AGENTS, ts)
    if has_replies:
        await ws.post(ADE, AGENTS, "a reply", ts)
    await app.client.chat_delete(channel=AGENTS, ts=ts)
    with pytest.raises(ControlError):
        await ws.click(ADE, AGENTS, ts, label="Yes")
    assert (await ws.click_as_seen(ADE, shown, "Yes")).ok
    (body,) = app.of("block_actions")
    assert (body["message"]["ts"], body["message"]["text"]) == (ts, "card")
    assert (body["container"]["message_ts"], body["actions"][0]["action_id"]) == (ts, "yes")
    assert await responded(body, text="too late", replace_original=True) == 200
    left = ["This message was deleted.", "a reply"] if has_replies else []
    assert [m.text for m in ws.messages(AGENTS)] == left


async def test_choice_carries_the_option_and_the_state_of_all(ws: Workspace, app: App) -> None:
    menu = select(option("Staging", "s"), option("Production", "p"))
    ts = await app.card(actions(menu, PEOPLE, button(), block_id="b"))
    await ws.click(ADE, AGENTS, ts, "yes")
    await ws.select(ADE, AGENTS, ts, "Choose", "Production")
    await ws.select(ADE, AGENTS, ts, "A person", FOLAKE)
    untouched, chosen, both = (body["state"]["values"]["b"] for body in app.of("block_actions"))
    assert untouched["choice"] == {"type": "static_select", "selected_option": None}
    assert chosen["choice"]["selected_option"] == option("Production", "p")
    assert both == chosen | {"who": {"type": "users_select", "selected_user": FOLAKE}}
    assert app.of("block_actions")[1]["actions"][0]["selected_option"]["value"] == "p"


async def test_ephemeral_is_replaced_in_place_and_pressed_by_its_reader(ws: Workspace, app: App) -> None:
    ts = await whispered(app)
    with pytest.raises(ControlError, match="U0FOLAKE sees no ephemeral"):
        await ws.press_ephemeral(FOLAKE, ts, "Yes")
    assert (await ws.press_ephemeral(ADE, ws.ephemerals(ADE)[0], "Yes")).ok
    (body,) = app.of("block_actions")
    assert (body["container"]["is_ephemeral"], "message" in body) == (True, False)
    page: Json = {"text": "page 2", "blocks": [actions(button("Previous"))], "response_type": "in_channel"}
    assert await responded(body, replace_original=True, **page) == 200
    assert [(e.ts, e.text) for e in ws.ephemerals(ADE)] == [(ts, "page 2")]
    assert ws.messages(AGENTS) == []
    assert (await ws.press_ephemeral(ADE, ts, "Previous")).ok
    assert await responded(body, delete_original=True) == 200
    assert ws.ephemerals(ADE) == []


# response_url


async def test_response_url_lives_five_uses(ws: Workspace, app: App) -> None:
    body = await app.clicked()
    ts = body["container"]["message_ts"]
    sent: list[Json] = [
        {"text": "psst"},
        {"text": "new", "replace_original": True},
        {"text": "to all", "response_type": "in_channel"},
        {"text": "in the thread", "thread_ts": ts},
        {"delete_original": True},
        {"text": "again"},
    ]
    assert await responded(body, blocks=[{"type": "nonsense"}]) == 400
    ws.faults.add("response_url", "5xx:503")
    assert await responded(body, text="lost") == 503
    assert [await responded(body, **each) for each in sent] == [200] * 5 + [404]
    assert [(e.text, e.thread_ts) for e in ws.ephemerals(ADE)] == [("psst", None), ("in the thread", ts)]
    assert [m.text for m in ws.messages(AGENTS)] == ["to all"]
    assert [c.outcome for c in ws.calls if c.method == "response_url"] == [
        "invalid_blocks", "5xx", *["ok"] * 5, "used_url",
    ]  # fmt: skip


async def test_response_url_of_a_command_or_a_shortcut_replaces_nothing(ws: Workspace, app: App) -> None:
    app.answers["/clarify"] = {"text": "one"}
    await ws.command(ADE, AGENTS, "/clarify")
    await responded(app.of("/clarify")[0], text="two", replace_original=True)
    said = await ws.post(ADE, AGENTS, "port 8080")
    await ws.shortcut(ADE, USE_AS_ANSWER, said.ts, AGENTS)
    await responded(app.of("message_action")[0], text="three", replace_original=True)
    assert [e.text for e in ws.ephemerals(ADE)] == ["one", "two", "three"]
    assert [m.text for m in ws.messages(AGENTS)] == ["port 8080"]


# Modals and Home tabs


async def test_modal_is_submitted_with_what_was_entered(ws: Workspace, app: App) -> None:
    ws.board.open_view(ADE, modal(text_input(), private_metadata="m"))
    outcome = await ws.submit_view(ADE, {})
    assert outcome.errors == {"answer": "Please complete this required field."}
    assert app.bodies == []
    app.answers["view_submission"] = {"response_action": "errors", "errors": {"answer": "Think again"}}
    assert (await ws.submit_view(ADE, {"Answer": "no"})).errors == {"answer": "Think again"}
    app.answers.clear()
    assert (await ws.submit_view(ADE, {"answer": "yes"})).ok
    assert ws.views(ADE) == []
    view = app.of("view_submission")[-1]["view"]
    assert view["private_metadata"] == "m"
    assert view["state"]["values"]["answer"]["value"] == {"type": "plain_text_input", "value": "yes"}


SOME = select(option("one", "1"), option("two", "2"), type="multi_static_select", max_selected_items=1)
NUMBER = {"type": "number_input", "is_decimal_allowed": False, "min_value": "1", "max_value": "9"}


@pytest.mark.parametrize(
    ("element", "entered", "complaint"),
    [
        ({"min_length": 2}, "a", "at least 2 characters"),
        ({"max_length": 2}, "abc", "at most 2 characters"),
        (NUMBER, "one", "enter a number"),
        (NUMBER, "1.5", "a whole number"),
        (NUMBER, "0", "not less than 1"),
        (NUMBER, "10", "not greater than 9"),
        ({"type": "email_text_input"}, "ann at home", "a valid email address"),
        (SOME, ["one", "two"], "at most 1"),
    ],
)
async def test_form_with_errors_is_not_sent(
    ws: Workspace, element: Json, entered: Any, complaint: str
) -> None:
    ws.board.open_view(ADE, modal(text_input(**element)))
    outcome = await ws.submit_view(ADE, {"Answer": entered})
    assert complaint in outcome.errors["answer"]
    assert ws.acks == []


async def test_moment_is_sent_as_seconds(ws: Workspace, app: App) -> None:
    at = {"type": "datetimepicker", "initial_date_time": 1779631200}
    ws.board.open_view(ADE, modal(text_input("a", "A", **at), text_input("b", "B", **at)))
    with pytest.raises(ControlError, match="not a date and time"):
        await ws.submit_view(ADE, {"B": "soon"})
    await ws.submit_view(ADE, {"B": "2026-05-24T14:01"})
    values = app.of("view_submission")[0]["view"]["state"]["values"]
    assert values["a"]["value"] == {"type": "datetimepicker", "selected_date_time": 1779631200}
    assert values["b"]["value"] == {"type": "datetimepicker", "selected_date_time": 1779631260}


async def test_entries_are_gone_with_their_element(ws: Workspace, app: App) -> None:
    view = ws.board.open_view(ADE, modal(HAND, text_input()))
    assert (await ws.choose_user(ADE, view, ADE)).ok
    assert app.bodies == []  # a choice in an input block waits for the submission
    await app.client.views_update(view_id=view.id, view=modal(HAND, text_input("why", "Why")))
    await ws.submit_view(ADE, {"Why": "on a train"})
    values = app.of("view_submission")[0]["view"]["state"]["values"]
    assert values["to"] == {"who": {"type": "users_select", "selected_user": ADE}}
    assert set(values) == {"to", "why"}


async def test_home_button_carries_the_view_and_no_channel(ws: Workspace, app: App) -> None:
    published = home(actions(button(value="v")), private_metadata="page 2")
    await app.client.views_publish(user_id=ADE, view=published)
    assert (await ws.click_in_view(ADE, label="Yes")).ok
    ws.board.open_view(ADE, modal(text_input()))
    assert (await ws.press_home(ADE, "yes")).ok
    shown = ws.home(ADE)
    assert shown is not None
    for body in app.of("block_actions"):
        assert body["container"] == {"type": "view", "view_id": shown.id}
        assert (body["view"]["private_metadata"], body["actions"][0]["value"]) == ("page 2", "v")
        assert not {"channel", "message", "response_url"} & set(body)
    await app.client.views_push(trigger_id=body["trigger_id"], view=modal(text_input()))


# Commands and shortcuts


async def test_shortcut_carries_the_message_and_its_thread(ws: Workspace, app: App) -> None:
    root = await app.card(actions(button()))
    reply = await ws.post(ADE, AGENTS, "port 8080", root)
    assert (await ws.shortcut(FOLAKE, USE_AS_ANSWER, reply.ts, AGENTS)).ok
    (body,) = app.of("message_action")
    assert (body["callback_id"], body["message_ts"], body["user"]["id"]) == (USE_AS_ANSWER, reply.ts, FOLAKE)
    assert body["channel"] == {"id": AGENTS, "name": "agents"}
    message = body["message"]
    assert (message["text"], message["user"], message["thread_ts"]) == ("port 8080", ADE, root)
    assert {"action_ts", "token"} <= set(body)
    await app.client.views_open(trigger_id=body["trigger_id"], view=modal(text_input()))
    assert len(ws.views(FOLAKE)) == 1


# What cannot be done: there is no such control, or it is not this person's. `card` has Yes and a menu; Ade's message
# `gone` was deleted, `elsewhere` the bot does not see; `whisper` is to Ade; FOLAKE's modal is still loading, ONCALL's
# (`view`) asks for a person.
IMPOSSIBLE: list[tuple[str, Json, str]] = [
    ("click", {"user": ADE, "channel": AGENTS, "ts": "card", "label": "No"}, "not one"),
    ("select", {"user": ADE, "channel": AGENTS, "ts": "card", "label": "Choose", "option": "Blue"}, "no option 'Blue'"),
    ("click", {"user": ADE, "channel": AGENTS, "ts": "1.0"}, "no message"),
    ("post", {"user": ADE, "channel": "C0NOWHERE", "text": "x"}, "no channel"),
    ("post", {"user": ADE, "channel": AGENTS, "text": "x", "thread_ts": "1.0"}, "no thread"),
    ("post", {"user": EVA, "channel": RANDOM, "text": "x"}, "not a member"),
    ("edit", {"user": ADE, "channel": AGENTS, "ts": "card", "text": "x"}, "not U0ADE's"),
    ("submit_view", {"user": ADE}, "no modal open"),
    ("submit_view", {"user": FOLAKE}, "no submit button"),
    ("click_in_view", {"user": ADE, "action_id": "yes"}, "neither a modal nor a Home tab"),
    ("press_home", {"user": ADE, "label_or_action_id": "Yes"}, "nothing was published"),
    ("choose_user", {"user": ADE, "view": "view", "user_id": ADE}, "no longer has this view"),
    ("choose_user", {"user": ONCALL, "view": None, "user_id": GONE}, "no person"),
    ("choose_user", {"user": ONCALL, "view": None, "user_id": "U0NOBODY"}, "no person"),
    ("submit_view", {"user": ONCALL, "values": {"Hand to": "Ade"}}, "no person"),
    ("shortcut", {"user": ADE, "callback_id": "x", "message_ts": "card", "channel": AGENTS}, "no message shortcut x"),
    ("shortcut", {"user": BOT_USER, "callback_id": USE_AS_ANSWER, "message_ts": "elsewhere", "channel": RANDOM}, "not a member"),
    ("shortcut", {"user": ADE, "callback_id": USE_AS_ANSWER, "message_ts": "whisper", "channel": AGENTS}, "no message"),
    ("shortcut", {"user": ADE, "callback_id": USE_AS_ANSWER, "message_ts": "gone", "channel": AGENTS}, "deleted"),
]  # fmt: skip


async def test_what_cannot_be_done_says_why(ws: Workspace, app: App) -> None:
    gone = await ws.post(ADE, AGENTS, "to be deleted")
    await ws.post(FOLAKE, AGENTS, "reply", gone.ts)
    await ws.delete_message(ADE, AGENTS, gone.ts)
    ws.board.open_view(FOLAKE, {"type": "modal", "title": plain("Loading"), "blocks": []})
    known = {
        "card": await app.card(actions(button(), select(option("Red", "r")))),
        "gone": gone.ts,
        "elsewhere": (await ws.post(ADE, RANDOM, "hello")).ts,
        "whisper": await whispered(app),
        "view": ws.board.open_view(ONCALL, modal(HAND)).id,
    }
    for action, body, why in IMPOSSIBLE:
        with pytest.raises(ControlError) as caught:
            await getattr(ws, action)(
                **{k: known.get(v, v) if isinstance(v, str) else v for k, v in body.items()}
            )
        assert why in str(caught.value), (action, body)
    with pytest.raises(ControlError, match="expected active or away"):
        ws.set_presence(ADE, "asleep")  # type: ignore[arg-type]  # what a route may be given
    assert app.of("block_actions") == []
