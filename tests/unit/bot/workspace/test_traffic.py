"""What the traffic panel is told, in which words, and what it never shows."""

from __future__ import annotations

from typing import Any

import aiohttp
import pytest

from bot.workspace import Workspace
from bot.workspace.seed import ADE, AGENTS, APP_TOKEN, BOT_TOKEN, seeded
from bot.workspace.traffic import PLACES, Line, Traffic, about_aaep, about_call, about_payload, redacted
from tests.unit.bot.workspace.kit import App, ask

STATE = seeded(lambda: 1_795_000_000.0)
QUESTION = {"type": "aaep:agent.awaiting.clarification", "question": "Go on?", "reply_token": "rpl_1"}


def traffic(keep: int = 300) -> Traffic:
    return Traffic(STATE, lambda: None, keep=keep)


async def test_calls_and_clicks_are_shown_with_what_came_of_them(ws: Workspace, app: App) -> None:
    await app.clicked()
    ws.faults.add("chat.postMessage", "refuse:channel_not_found")
    await ask(app.client, "chat.postMessage", channel=AGENTS, text="hello")
    await ws.link.close()
    await ws.wait_for(lambda: not ws.link.connections)
    await ws.command(ADE, AGENTS, "/clarify", "stale")
    told = {
        (line.direction, line.title, line.detail, line.failure): line.seconds is not None
        for line in ws.traffic.lines
    }
    expected = {
        ("bot→slack", "chat.postMessage", "#agents · card", ""): True,
        ("bot→slack", "chat.postMessage", "#agents · hello", "channel_not_found"): True,
        ("slack→bot", "click", "Yes · Ade", ""): True,
        ("slack→bot", "/clarify stale", "Ade", "no connection"): False,
    }
    assert told | expected == told


async def test_other_processes_tell_of_agents(ws: Workspace, http: aiohttp.ClientSession) -> None:
    bodies: list[tuple[Any, int]] = [
        ({"direction": "agent→bot", "message": QUESTION}, 200),
        ({"direction": "bot→agent", "title": "clarification.reply", "failure": "token consumed"}, 200),
        ({"direction": "sideways", "title": "x"}, 400),
        ([], 400),
    ]
    for body, status in bodies:
        async with http.post("/control/traffic", json=body) as answer:
            assert answer.status == status
    assert [(line.title, line.detail, line.failure) for line in ws.traffic.lines] == [
        ("awaiting.clarification", "Go on?", ""),
        ("clarification.reply", "", "token consumed"),
    ]
    async with http.get(f"/traffic/{ws.traffic.lines[0].number}") as answer:
        text = await answer.text()
    async with http.get("/part/traffic") as answer:
        page = await answer.text()
    assert ('"question": "Go on?"' in text, "rpl_1" in text + page) == (True, False)


def test_last_lines_are_kept_and_repetitions_folded() -> None:
    kept = traffic(keep=3)
    for title in ("auth.test", "auth.test", "auth.test", "chat.update", "auth.test"):
        kept.note("bot→slack", title)
    folded = [("auth.test", 3), ("chat.update", 1), ("auth.test", 1)]
    assert [(line.title, line.times) for line in kept.lines] == folded
    kept.note("bot→slack", "chat.delete")
    assert [line.title for line in kept.lines] == ["chat.update", "auth.test", "chat.delete"]
    assert kept.line(1) is None


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
def test_secrets_are_hidden_by_name_and_by_look(body: Any, shown: Any) -> None:
    assert redacted(body) == shown


def test_words_are_without_tokens_and_bodies_of_a_readable_length() -> None:
    kept = traffic()
    kept.note("agent→bot", f"got {BOT_TOKEN}", "Bearer abc", failure=APP_TOKEN, body={"x": "y" * 100_000})
    (line,) = kept.lines
    assert (line.title, line.detail, line.failure) == ("got •••", "•••", "•••")
    assert len(line.text()) < 9_000
    assert Line(1, 0.0, "agent→bot", "x").text() == ""


def event(**fields: Any) -> dict[str, Any]:
    return {"type": "event_callback", "event": {"type": "message", "channel": AGENTS} | fields}


def used(kind: str, **fields: Any) -> dict[str, Any]:
    return {"type": kind, "user": {"id": ADE}} | fields


YES = {"type": "button", "text": {"text": "Yes"}}
ONE = {"type": "static_select", "selected_option": {"text": {"text": "One"}}}


@pytest.mark.parametrize(
    ("payload", "told"),
    [
        ({"command": "/clarify", "text": "stale", "user_id": ADE}, ("/clarify stale", "Ade")),
        (event(user=ADE, text="a\nb"), ("message", "#agents · Ade · a b")),
        (event(subtype="message_changed"), ("message_changed", "#agents")),
        (used("block_actions", actions=[YES]), ("click", "Yes · Ade")),
        (used("block_actions", actions=[ONE]), ("choice", "One · Ade")),
        (used("view_submission", view={"title": {"text": "Answer"}}), ("view_submission", "Answer · Ade")),
        (used("message_action", callback_id="use"), ("message_action", "use · Ade")),
    ],
)
def test_about_payload(payload: Any, told: tuple[str, str]) -> None:
    assert about_payload(payload, STATE) == told


@pytest.mark.parametrize(
    ("message", "told"),
    [
        (QUESTION, ("awaiting.clarification", "Go on?")),
        ({"type": "clarification.reply", "response": True, "decided_by": "user:x"}, ("clarification.reply", "true · user:x")),
        ({"type": "confirmation.reply", "decision": "accept"}, ("confirmation.reply", "accept")),
        ({}, ("message", "")),
    ],
)  # fmt: skip
def test_about_aaep(message: Any, told: tuple[str, str]) -> None:
    assert about_aaep(message) == told


@pytest.mark.parametrize(
    ("args", "told"),
    [
        ({"channel": AGENTS, "text": "hi"}, "#agents · hi"),
        ({"filename": "bars.png"}, "bars.png"),
        ({"user_id": ADE, "view": {"type": "home"}}, "Ade · Home tab"),
        ({"view": '{"title": {"text": "Answer"}}'}, "Answer"),
        ({"view": "not json"}, ""),
        ({"channel": "C0NOWHERE"}, "C0NOWHERE"),
        ({"text": "x" * 500}, "x" * 139 + "…"),
    ],
)
def test_about_call(args: Any, told: str) -> None:
    assert about_call(args, STATE) == told


def test_line_says_between_whom_which_way_and_how_long() -> None:
    lines = [
        Line(1, 0.0, way, "x", seconds=seconds)
        for way, seconds in zip(PLACES, (None, 0.0002, 0.0123, 2.34), strict=True)
    ]
    assert [(line.spoken("clarify"), line.lane, line.heading, line.took) for line in lines] == [
        ("agent to clarify", "agent", "right", ""),
        ("clarify to agent", "agent", "left", "<1 ms"),
        ("clarify to Slack", "slack", "right", "12 ms"),
        ("Slack to clarify", "slack", "left", "2.3 s"),
    ]
