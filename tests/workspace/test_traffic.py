"""What the traffic panel is told, in which words, and what it never shows."""

from __future__ import annotations

from typing import Any

import aiohttp
import pytest

from tests.workspace.kit import App, ask
from workspace import Workspace
from workspace.seed import ADE, AGENTS, APP_TOKEN, BOT_TOKEN, seeded
from workspace.traffic import Traffic, redacted

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


async def test_line_of_an_agent_opens_without_its_token(ws: Workspace, http: aiohttp.ClientSession) -> None:
    ws.traffic.aaep("agent→bot", QUESTION)
    (line,) = ws.traffic.lines
    assert (line.title, line.detail) == ("awaiting.clarification", "Go on?")
    async with http.get(f"/traffic/{line.number}") as answer:
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
