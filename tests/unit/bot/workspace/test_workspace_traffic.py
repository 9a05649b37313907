"""What the traffic panel is told, and what it never shows."""

from __future__ import annotations

from typing import Any

import aiohttp
import pytest
from slack_sdk.web.async_client import AsyncWebClient

from bot.workspace import Workspace
from bot.workspace.seed import ADE, AGENTS, APP_TOKEN, BOT_TOKEN, seeded
from bot.workspace.traffic import PLACES, Line, Traffic, about_aaep, about_call, about_payload, redacted
from tests.unit.bot.workspace.kit import StartBot, actions, button, card, listening

STATE = seeded(lambda: 1_795_000_000.0)


def traffic(keep: int = 300) -> Traffic:
    return Traffic(STATE, lambda: None, keep=keep)


async def test_traffic_has_calls_with_outcome_and_duration(ws: Workspace, client: AsyncWebClient) -> None:
    await client.chat_postMessage(channel=AGENTS, text="hello")
    ws.faults.add(method="chat.postMessage", kind="refuse:channel_not_found")
    with pytest.raises(Exception, match="channel_not_found"):
        await client.chat_postMessage(channel=AGENTS, text="hello")
    good, bad = (line for line in ws.traffic.lines if line.direction == "bot→slack")
    assert (good.title, good.detail, good.failure) == ("chat.postMessage", "#agents · hello", "")
    assert good.seconds is not None
    assert good.seconds >= 0
    assert bad.failure == "channel_not_found"


async def test_traffic_has_clicks_and_their_acknowledgement(ws: Workspace, start: StartBot) -> None:
    bot = await start(listening(ws))
    ts = await card(bot, actions(button()))
    await ws.click(ADE, AGENTS, ts, "yes")
    click = next(line for line in ws.traffic.lines if line.title == "click")
    assert (click.direction, click.detail, click.failure) == ("slack→bot", "Yes · Ade", "")
    assert click.seconds is not None


async def test_traffic_says_that_nobody_listened(ws: Workspace) -> None:
    await ws.command(ADE, AGENTS, "/clarify", "stale")
    line = ws.traffic.lines[-1]
    assert (line.title, line.detail, line.failure) == ("/clarify stale", "Ade", "no connection")


async def test_traffic_comes_from_other_processes_too(ws: Workspace) -> None:
    event = {"type": "aaep:agent.awaiting.clarification", "question": "Go on?", "reply_token": "rpl_1"}
    bodies: list[Any] = [
        {"direction": "agent→bot", "message": event},
        {"direction": "bot→agent", "title": "clarification.reply", "failure": "token consumed"},
        {"direction": "sideways", "title": "x"},
        {"title": "x"},
        [],
    ]
    async with aiohttp.ClientSession(ws.url) as session:
        answers = [await session.post("/control/traffic", json=body) for body in bodies]
        text = await (await session.get(f"/traffic/{ws.traffic.lines[0].number}")).text()
        gone = await session.get("/traffic/999")
        page = await (await session.get("/part/traffic")).text()
    assert [answer.status for answer in answers] == [200, 200, 400, 400, 400]
    assert [(line.title, line.detail, line.failure) for line in ws.traffic.lines] == [
        ("awaiting.clarification", "Go on?", ""),
        ("clarification.reply", "", "token consumed"),
    ]
    assert '"question": "Go on?"' in text
    assert "rpl_1" not in text + page
    assert gone.status == 404


def test_traffic_keeps_the_last_lines_only() -> None:
    kept = traffic(keep=3)
    for number in range(5):
        kept.note("bot→slack", f"call {number}")
    assert [line.title for line in kept.lines] == ["call 2", "call 3", "call 4"]
    assert kept.line(1) is None


def test_traffic_folds_what_repeats_itself() -> None:
    kept = traffic()
    for title in ("auth.test", "auth.test", "auth.test", "chat.update", "auth.test"):
        kept.note("bot→slack", title)
    assert [(line.title, line.times) for line in kept.lines] == [
        ("auth.test", 3),
        ("chat.update", 1),
        ("auth.test", 1),
    ]


def test_traffic_refuses_unknown_directions() -> None:
    with pytest.raises(ValueError, match="expected one of agent→bot"):
        traffic().note("up", "x")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("body", "shown"),
    [
        ({"token": "abc", "reply_token": "rpl_1", "text": "hi"}, {"token": "•••", "reply_token": "•••", "text": "hi"}),
        ({"a": [{"Authorization": "Bearer x"}]}, {"a": [{"Authorization": "•••"}]}),
        ({"text": f"see {BOT_TOKEN} and {APP_TOKEN}."}, {"text": "see ••• and •••."}),
        ({"text": "Bearer abc.def"}, {"text": "•••"}),
        ({"metadata": '{"event_payload": {"reply_token": "rpl_1"}}'}, {"metadata": {"event_payload": {"reply_token": "•••"}}}),
        ({"response_url": "http://x", "trigger_id": "t"}, {"response_url": "•••", "trigger_id": "•••"}),
        ({"text": "{not json", "n": 1, "none": None}, {"text": "{not json", "n": 1, "none": None}),
    ],
)  # fmt: skip
def test_redacted_hides_secrets_by_name_and_by_look(body: Any, shown: Any) -> None:
    assert redacted(body) == shown


def test_note_hides_tokens_in_its_words() -> None:
    kept = traffic()
    kept.note("agent→bot", f"got {BOT_TOKEN}", "Bearer abc", failure=APP_TOKEN)
    line = kept.lines[0]
    assert (line.title, line.detail, line.failure) == ("got •••", "•••", "•••")


def test_line_text_is_cut_to_a_readable_length() -> None:
    line = Line(1, 0.0, "agent→bot", "x", body={"context": "y" * 100_000})
    assert len(line.text()) < 9_000
    assert Line(1, 0.0, "agent→bot", "x").text() == ""


@pytest.mark.parametrize(
    ("payload", "told"),
    [
        (
            {"command": "/clarify", "text": "stale", "user_id": ADE},
            ("/clarify stale", "Ade"),
        ),
        (
            {
                "type": "event_callback",
                "event": {"type": "message", "channel": AGENTS, "user": ADE, "text": "a\nb"},
            },
            ("message", "#agents · Ade · a b"),
        ),
        (
            {
                "type": "event_callback",
                "event": {"type": "message", "subtype": "message_changed", "channel": AGENTS},
            },
            ("message_changed", "#agents"),
        ),
        (
            {
                "type": "block_actions",
                "user": {"id": ADE},
                "actions": [{"type": "button", "text": {"text": "Yes"}}],
            },
            ("click", "Yes · Ade"),
        ),
        (
            {
                "type": "block_actions",
                "user": {"id": ADE},
                "actions": [{"type": "static_select", "selected_option": {"text": {"text": "One"}}}],
            },
            ("choice", "One · Ade"),
        ),
        (
            {"type": "view_submission", "user": {"id": ADE}, "view": {"title": {"text": "Answer"}}},
            ("view_submission", "Answer · Ade"),
        ),
        (
            {"type": "message_action", "user": {"id": ADE}, "callback_id": "use"},
            ("message_action", "use · Ade"),
        ),
    ],
)
def test_about_payload(payload: Any, told: tuple[str, str]) -> None:
    assert about_payload(payload, STATE) == told


@pytest.mark.parametrize(
    ("message", "told"),
    [
        ({"type": "aaep:agent.awaiting.clarification", "question": "Go?"}, ("awaiting.clarification", "Go?")),
        (
            {"type": "clarification.reply", "response": True, "decided_by": "user:folake"},
            ("clarification.reply", "true · user:folake"),
        ),
        ({"type": "confirmation.reply", "decision": "accept"}, ("confirmation.reply", "accept")),
        ({}, ("message", "")),
    ],
)
def test_about_aaep(message: Any, told: tuple[str, str]) -> None:
    assert about_aaep(message) == told


@pytest.mark.parametrize(
    ("args", "told"),
    [
        ({"channel": AGENTS, "text": "hi"}, "#agents · hi"),
        ({"user_id": ADE, "view": {"type": "home"}}, "Ade · Home tab"),
        ({"view": '{"title": {"text": "Answer"}}'}, "Answer"),
        ({"view": "not json"}, ""),
        ({"channel": "C0NOWHERE"}, "C0NOWHERE"),
        ({"text": "x" * 500}, "x" * 139 + "…"),
    ],
)
def test_about_call(args: Any, told: str) -> None:
    assert about_call(args, STATE) == told


@pytest.mark.parametrize(
    ("seconds", "words"), [(None, ""), (0.0002, "<1 ms"), (0.0123, "12 ms"), (2.34, "2.3 s")]
)
def test_took(seconds: float | None, words: str) -> None:
    assert Line(1, 0.0, "bot→slack", "x", seconds=seconds).took == words


def test_wires_say_between_whom_and_which_way() -> None:
    lines = [Line(number, 0.0, way, "x") for number, way in enumerate(PLACES)]
    assert [(w.spoken("clarify"), w.lane, w.heading) for w in lines] == [
        ("agent to clarify", "agent", "right"),
        ("clarify to agent", "agent", "left"),
        ("clarify to Slack", "slack", "right"),
        ("Slack to clarify", "slack", "left"),
    ]
