from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest
from slack_sdk.web.async_client import AsyncWebClient

from bot.workspace import Workspace
from bot.workspace.seed import ADE, AGENTS, EVA, FALLBACK, FOLAKE, GIO, ONCALL
from tests.unit.bot.workspace.kit import (
    Bot,
    Json,
    StartBot,
    actions,
    button,
    modal,
    option,
    plain,
    select,
    text_input,
)

HOSTILE = "<script>alert(1)</script> & <https://x.org|x>"
EVERYTHING: list[Json] = [
    {"type": "header", "text": plain("Header")},
    {"type": "divider"},
    {
        "type": "section",
        "text": {"type": "mrkdwn", "text": "*bold*"},
        "fields": [plain("left"), plain("right")],
    },
    {"type": "section", "text": plain("choose"), "accessory": select(option("One", "1"), option("Two", "2"))},
    {"type": "context", "elements": [plain("small print")]},
    {"type": "image", "image_url": "https://x.org/i.png", "alt_text": "a picture"},
    actions(
        button(
            "Yes",
            confirm={
                "title": plain("T"),
                "text": plain('"quoted"'),
                "confirm": plain("Y"),
                "deny": plain("N"),
            },
        ),
        button("Link", "link", url="https://x.org"),
        {
            "type": "radio_buttons",
            "action_id": "r",
            "options": [option("Red", "red"), option("Blue", "blue")],
        },
        {"type": "checkboxes", "action_id": "c", "options": [option("Now", "now")]},
        {"type": "overflow", "action_id": "o", "options": [option("Snooze", "s")]},
        {"type": "datepicker", "action_id": "d"},
        {"type": "users_select", "action_id": "u"},
    ),
]


@pytest.fixture
async def browser(ws: Workspace) -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(ws.url) as session:
        yield session


async def seen(browser: aiohttp.ClientSession, path: str = "/", **query: str) -> str:
    names = {"user": "as"}
    async with browser.get(path, params={names.get(k, k): v for k, v in query.items()}) as answer:
        assert answer.status == 200
        return await answer.text()


async def do(browser: aiohttp.ClientSession, what: str, user: str = ADE, **fields: Any) -> int:
    form = {"as": user, "channel": AGENTS} | {k.replace("__", ":"): v for k, v in fields.items()}
    async with browser.post(f"/do/{what}", data=form) as answer:
        return answer.status


@pytest.mark.parametrize("user", [FOLAKE, ADE, GIO, EVA, ONCALL])
async def test_page_shows_every_kind_of_block_to_everybody(
    client: AsyncWebClient, browser: aiohttp.ClientSession, user: str
) -> None:
    await client.chat_postMessage(channel=AGENTS, text="fallback", blocks=EVERYTHING)
    html = await seen(browser, user=user)
    for words in (
        "Header",
        "<strong>bold</strong>",
        "small print",
        "a picture",
        "Red",
        "Now",
        "Snooze",
        "Two",
        '"text": "\\"quoted\\""',
    ):
        assert words in html


async def test_page_escapes_what_people_write(ws: Workspace, browser: aiohttp.ClientSession) -> None:
    await ws.post(ADE, AGENTS, HOSTILE)
    html = await seen(browser)
    assert "<script>alert" not in html
    assert "&lt;script&gt;alert(1)&lt;/script&gt; &amp;" in html


async def test_page_shows_ephemerals_to_one_person(
    client: AsyncWebClient, browser: aiohttp.ClientSession
) -> None:
    await client.chat_postEphemeral(channel=AGENTS, user=ADE, text="a secret")
    mine = await seen(browser, "/part/channel", user=ADE)  # the traffic beside it is everybody's
    assert "a secret" in mine
    assert "Only visible to you" in mine
    assert "a secret" not in await seen(browser, "/part/channel", user=FOLAKE)


async def test_page_marks_unread_until_seen(client: AsyncWebClient, browser: aiohttp.ClientSession) -> None:
    await client.chat_postMessage(channel=FALLBACK, text="new")
    assert "1<span" in await seen(browser, "/part/sidebar", user=ADE)
    await seen(browser, user=ADE, channel=FALLBACK)
    assert "unread" not in await seen(browser, "/part/sidebar", user=ADE)


async def test_page_shows_the_recent_messages_first(ws: Workspace, browser: aiohttp.ClientSession) -> None:
    for number in range(151):
        await ws.post(ADE, AGENTS, f"message {number}.")
    recent = await seen(browser, "/part/channel")
    assert ("message 0." in recent, "message 150." in recent, "Show earlier" in recent) == (False, True, True)
    assert "message 0." in await seen(browser, "/part/channel", all="1")


async def test_page_shows_a_thread_beside(ws: Workspace, browser: aiohttp.ClientSession) -> None:
    root = await ws.post(ADE, AGENTS, "root")
    await ws.post(FOLAKE, AGENTS, "only in the thread", root.ts)
    assert "only in the thread" not in await seen(browser, "/part/channel")
    assert "1 reply" in await seen(browser)
    assert "only in the thread" in await seen(browser, "/part/thread", thread=root.ts)


async def test_page_says_posts_edits_and_deletes(ws: Workspace, browser: aiohttp.ClientSession) -> None:
    assert await do(browser, "say", text="hello") == 204
    message = ws.messages(AGENTS)[0]
    assert await do(browser, "edit", ts=message.ts, text="hello again") == 204
    assert message.text == "hello again"
    assert await do(browser, "delete", user=FOLAKE, ts=message.ts) == 204
    assert "not U0FOLAKE" in ws.errors(FOLAKE)[0].text
    assert await do(browser, "delete", ts=message.ts) == 204
    assert ws.messages(AGENTS) == []


async def test_page_presses_and_chooses(
    ws: Workspace, browser: aiohttp.ClientSession, start: StartBot
) -> None:
    bot = Bot(ws)

    async def note(ack: Any, body: Json) -> None:
        await bot.note(body)
        await ack()

    bot.app.action("yes")(note)
    bot.app.action("choice")(note)
    await start(bot)
    blocks = [actions(button(), select(option("One", "1"), option("Two", "2")), block_id="b")]
    ts = (await bot.client.chat_postMessage(channel=AGENTS, text="x", blocks=blocks))["ts"]
    assert await do(browser, "press", ts=ts, pressed="e:b:yes") == 204
    assert await do(browser, "press", ts=ts, pressed="e:b:choice", e__b__choice="2") == 204
    assert bot.bodies[0]["user"]["id"] == ADE
    assert bot.bodies[1]["actions"][0]["selected_option"]["text"]["text"] == "Two"
    assert '<option value="2" selected>' in await seen(browser, user=ADE)


async def test_page_fills_in_a_modal(ws: Workspace, browser: aiohttp.ClientSession, start: StartBot) -> None:
    bot = Bot(ws)

    @bot.app.view("answer")
    async def answered(ack: Any, body: Json) -> None:
        await bot.note(body)
        await ack()

    await start(bot)
    ws.board.open_view(ADE, modal(text_input(max_length=5)))
    assert "<form" in await seen(browser, "/part/modal", user=ADE)
    await do(browser, "submit", e__answer__value="too long")
    html = await seen(browser, "/part/modal", user=ADE)
    assert "at most 5 characters" in html
    assert 'value="too long"' in html
    await do(browser, "submit", e__answer__value="right")
    assert ws.views(ADE) == []
    assert bot.bodies[0]["view"]["state"]["values"]["answer"]["value"]["value"] == "right"


async def test_page_runs_commands_and_says_that_they_failed(browser: aiohttp.ClientSession) -> None:
    form = {"as": ADE, "channel": AGENTS, "text": "/clarify stale"}
    async with browser.post("/do/say", data=form) as answer:
        assert "dispatch_failed" in json.loads(answer.headers["X-Notice"])
    async with browser.post("/do/say", data=form | {"text": "hello"}) as answer:
        assert "X-Notice" not in answer.headers


async def test_page_feed_names_what_changed(ws: Workspace, browser: aiohttp.ClientSession) -> None:
    async with browser.get("/feed") as answer:
        await ws.post(ADE, AGENTS, "hello")
        lines = [await answer.content.readline() for _ in range(3)]
    assert b"data: channel:C0AGENTS\n" in lines


@pytest.mark.parametrize(
    ("path", "headers", "status"),
    [
        ("/", {"Host": "evil.example"}, 403),
        ("/", {"Origin": "https://evil.example"}, 403),
        ("/", {}, 200),
        ("/static/htmx.min.js", {}, 200),
        ("/static/page.css", {}, 200),
        ("/static/htmx.LICENSE.txt", {}, 200),
        ("/static/nothing.js", {}, 404),
        ("/part/nothing", {}, 404),
        ("/static/..%2fserver.py", {}, 404),
    ],
)
async def test_page_routes(
    browser: aiohttp.ClientSession, path: str, headers: dict[str, str], status: int
) -> None:
    async with browser.get(path, headers=headers) as answer:
        assert answer.status == status
