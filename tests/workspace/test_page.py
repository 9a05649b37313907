"""The page: what it shows to whom, what is done on it, links to messages, the feed."""

from __future__ import annotations

import json
import re
from typing import Any
from urllib.parse import parse_qs, urlsplit

import aiohttp
import pytest
from slack_sdk.web.async_client import AsyncWebClient

from tests.workspace.kit import (
    App,
    Json,
    actions,
    button,
    home,
    modal,
    option,
    plain,
    section,
    select,
    text_input,
)
from workspace import Workspace
from workspace.seed import ADE, AGENTS, FOLAKE, GIO, ONCALL

CONFIRM = {"title": plain("T"), "text": plain('"quoted"'), "confirm": plain("Y"), "deny": plain("N")}
COLOURS = [option("Red", "red"), option("Blue", "blue")]
EVERYTHING: list[Json] = [
    {"type": "header", "text": plain("Header")},
    {"type": "divider"},
    section("*bold*", fields=[plain("left"), plain("right")]),
    section("choose", accessory=select(option("One", "1"), option("Two", "2"))),
    {"type": "context", "elements": [plain("small print")]},
    {"type": "image", "image_url": "https://x.org/i.png", "alt_text": "a picture"},
    actions(
        button("Yes", confirm=CONFIRM),
        button("Link", "link", url="https://x.org"),
        {"type": "radio_buttons", "action_id": "r", "options": COLOURS},
        {"type": "checkboxes", "action_id": "c", "options": [option("Now", "now")]},
        {"type": "overflow", "action_id": "o", "options": [option("Snooze", "s")]},
        {"type": "datepicker", "action_id": "d"},
        {"type": "users_select", "action_id": "u"},
    ),
]
HOME = home(actions(button("Answer…", "yes"), block_id="b"))


async def seen(http: aiohttp.ClientSession, path: str = "/", user: str = ADE, **query: str) -> str:
    async with http.get(path, params={"as": user} | query) as answer:
        assert answer.status == 200
        return await answer.text()


async def do(http: aiohttp.ClientSession, what: str, user: str = ADE, **fields: Any) -> str:
    """Do it; what the person is told went wrong."""
    form = {"as": user, "channel": AGENTS} | {k.replace("__", ":"): v for k, v in fields.items()}
    async with http.post(f"/do/{what}", data=form) as answer:
        assert answer.status == 204
        return str(json.loads(answer.headers.get("X-Notice", '""')))


# What it shows


async def test_what_people_write_is_escaped(ws: Workspace, http: aiohttp.ClientSession) -> None:
    await ws.post(ADE, AGENTS, "<script>alert(1)</script> & <https://x.org|x>")
    html = await seen(http)
    assert "<script>alert" not in html
    assert "&lt;script&gt;alert(1)&lt;/script&gt; &amp;" in html


@pytest.mark.parametrize("user", [FOLAKE, ONCALL])
async def test_every_kind_of_block_is_shown_to_everybody(
    client: AsyncWebClient, http: aiohttp.ClientSession, user: str
) -> None:
    await client.chat_postMessage(channel=AGENTS, text="fallback", blocks=EVERYTHING)
    html = await seen(http, user=user)
    shown = ["Header", "<strong>bold</strong>", "small print", "a picture", "Red", "Now", "Snooze", "Two"]
    for words in [*shown, '"text": "\\"quoted\\""']:
        assert words in html


def words(text: str) -> Json:
    section = {"type": "rich_text_section", "elements": [{"type": "text", "text": text}]}
    return {"type": "rich_text", "elements": [section]}


def cells(*texts: str) -> list[Json]:
    return [{"type": "raw_text", "text": text} for text in texts]


async def test_table_scrolls_inside_itself_and_aligns_its_columns(
    client: AsyncWebClient, http: aiohttp.ClientSession
) -> None:
    rows = [
        cells("Key", "Value"),
        [*cells("<a>"), {"type": "raw_number", "value": 1204, "text": "1,204"}],
        [words("*b*")],
    ]
    columns = [{"is_wrapped": True}, None, {"align": "center"}]
    table = {"type": "table", "block_id": "t", "rows": rows, "column_settings": columns}
    await client.chat_postMessage(channel=AGENTS, text="x", blocks=[table])
    html = re.sub(r"\n *", "", await seen(http, "/part/channel"))
    assert re.search(
        r'<div class="wide" id="[^"]+-t" role="region" aria-label="Table" tabindex="0"><table>', html
    )
    assert '<th scope="col" dir="auto" class="left wrapped">Key</th>' in html
    assert (
        '<td dir="auto" class="left wrapped">&lt;a&gt;</td><td dir="auto" class="right">1,204</td></tr>'
        in html
    )
    assert '<div class="rich"><p dir="auto">*b*</p></div></td><td></td></tr>' in html, (
        "a short row is filled up"
    )


async def test_data_table_shows_its_first_page_and_the_rest_on_demand(
    client: AsyncWebClient, http: aiohttp.ClientSession
) -> None:
    rows = [cells("Route", "Questions"), *[cells(f"r{n}", str(n)) for n in range(7)]]
    table = {"type": "data_table", "caption": "Last <week>", "rows": rows}
    await client.chat_postMessage(channel=AGENTS, text="x", blocks=[table])
    html = await seen(http, "/part/channel")
    assert '<caption dir="auto">Last &lt;week&gt;</caption>' in html
    assert html.count('<tr class="rest">') == 2
    assert '<th scope="row" dir="auto" class="left">r0</th>' in html
    assert "Show all 7 rows" in html


async def test_alert_says_its_level_to_those_who_hear_it(
    ws: Workspace, client: AsyncWebClient, http: aiohttp.ClientSession
) -> None:
    alert = {"type": "alert", "level": "warning", "text": plain("This cannot be undone.")}
    await client.views_open(trigger_id=ws.board.trigger(ADE), view=modal(alert))
    html = await seen(http, "/part/modal")
    assert '<div class="block alert warning" role="note">' in html
    assert '<span class="hidden">Warning: </span>This cannot be undone.' in html


async def test_ephemeral_is_shown_pressed_and_dismissed_by_one_person(
    ws: Workspace, app: App, http: aiohttp.ClientSession
) -> None:
    blocks = [section("a secret"), actions(button("Next"), block_id="b")]
    await app.client.chat_postEphemeral(channel=AGENTS, user=ADE, text="a secret", blocks=blocks)
    ts = ws.ephemerals(ADE)[0].ts
    mine = await seen(http, "/part/channel")  # the traffic beside it is everybody's
    assert all(words in mine for words in ("a secret", "Only visible to you", "Dismiss message"))
    assert "a secret" not in await seen(http, "/part/channel", user=FOLAKE)
    await do(http, "press", ts=ts, pressed="e:b:yes")
    assert app.of("block_actions")[0]["container"]["is_ephemeral"] is True
    await do(http, "hide", user=FOLAKE, ts=ts)
    assert len(ws.ephemerals(ADE)) == 1
    await do(http, "hide", ts=ts)
    assert ws.ephemerals(ADE) == []


async def test_recent_messages_are_shown_first_and_threads_beside(
    ws: Workspace, http: aiohttp.ClientSession
) -> None:
    root = await ws.post(ADE, AGENTS, "root")
    await ws.post(FOLAKE, AGENTS, "only in the thread", root.ts)
    assert "1 reply" in await seen(http)
    for number in range(150):
        await ws.post(ADE, AGENTS, f"message {number}.")
    recent, whole = await seen(http, "/part/channel"), await seen(http, "/part/channel", all="1")
    assert ("root" in recent, "message 149." in recent, "Show earlier" in recent) == (False, True, True)
    assert ("root" in whole, "only in the thread" in whole) == (True, False)
    assert "only in the thread" in await seen(http, "/part/thread", thread=root.ts)


# What is done on it


async def test_home_tab_opens_as_in_slack_and_is_used_below_a_modal(
    ws: Workspace, app: App, http: aiohttp.ClientSession
) -> None:
    assert "has not published anything" in await seen(http, home="1")
    await app.client.views_publish(user_id=ADE, view=HOME)
    assert "Answer…" in await seen(http, "/part/home")
    assert "Answer…" not in await seen(http, "/part/home", user=FOLAKE)
    async with http.post("/do/direct", data={"as": ADE}) as answer:
        await seen(http, answer.headers["HX-Redirect"])
    opened = await app.heard("app_home_opened", 2)
    assert sorted(body["event"]["tab"] for body in opened) == ["home", "messages"]
    shown = ws.home(ADE)
    assert shown is not None
    ws.board.open_view(ADE, modal(text_input()))
    await do(http, "press-in-view", view=shown.id, pressed="e:b:yes")
    assert app.of("block_actions")[0]["view"]["id"] == shown.id
    told = await do(http, "press-in-view", user=GIO, view=shown.id, pressed="e:b:yes")
    assert "no longer has this view" in told


# Links to messages


async def followed(http: aiohttp.ClientSession, link: str) -> tuple[dict[str, str], str]:
    """Where a link leads (its query), and what is shown there."""
    async with http.get(link) as answer:
        assert answer.status == 200
        query = parse_qs(urlsplit(str(answer.url)).query)
        return {name: values[0] for name, values in query.items()}, await answer.text()


async def test_permalink_opens_the_page_at_the_message(
    ws: Workspace, client: AsyncWebClient, http: aiohttp.ClientSession
) -> None:
    root = await ws.post(ADE, AGENTS, "the root")
    reply = await ws.post(FOLAKE, AGENTS, "the reply", root.ts)
    for number in range(151):
        await ws.post(ADE, AGENTS, f"talk {number}")
    link = (await client.chat_getPermalink(channel=AGENTS, message_ts=root.ts))["permalink"]
    assert link == ws.permalink(AGENTS, root.ts)
    assert link.startswith((await client.auth_test())["url"])
    query, html = await followed(http, link)
    assert (query["channel"], query["at"], html.count(" found")) == (AGENTS, root.ts, 1)
    deep = ws.permalink(AGENTS, reply.ts)
    assert deep.endswith(f"?thread_ts={root.ts}&cid={AGENTS}")
    query, html = await followed(http, deep)
    assert (query["thread"], "the reply" in html) == (root.ts, True)


async def test_permalink_in_a_direct_message_stays_with_its_reader(
    ws: Workspace, client: AsyncWebClient, http: aiohttp.ClientSession
) -> None:
    link = ws.permalink(AGENTS, (await ws.post(ADE, AGENTS, "the root")).ts)
    buttons = actions(button("Thread", "yes", url=link), button("Docs", "docs", url="https://x.org"))
    sent = await client.chat_postMessage(
        channel=ONCALL, text="page", blocks=[section(f"<{link}|CLR-42-001>"), buttons]
    )
    html = await seen(http, user=ONCALL, channel=sent["channel"])
    path = f"{urlsplit(link).path}?as={ONCALL}"
    assert f'<a href="{path}">CLR-42-001</a>' in html
    assert re.search(rf'href="{re.escape(path)}" +hx-post', html)
    assert 'href="https://x.org" target="_blank"' in html
    for each in (path, ws.permalink(sent["channel"], sent["ts"])):
        assert (await followed(http, each))[0]["as"] == ONCALL


# Routes and the feed


@pytest.mark.parametrize(("behind", "first"), [(0, f"home:{ADE}"), (1, "refresh")])
async def test_feed_names_what_changed_and_makes_up_for_what_was_missed(
    ws: Workspace, client: AsyncWebClient, http: aiohttp.ClientSession, behind: int, first: str
) -> None:
    await ws.post(ADE, AGENTS, "before")
    version = ws.context.changes.seen - behind
    async with http.get("/feed", params={"version": str(version)}) as answer:
        await client.views_publish(user_id=ADE, view=HOME)
        assert await answer.content.readline() == f"data: {first}\n".encode()
        await ws.post(ADE, AGENTS, "hello")
        lines = [await answer.content.readline() for _ in range(9 if behind else 7)]
    assert f"data: channel:{AGENTS}\n".encode() in lines


@pytest.mark.parametrize(
    ("path", "headers", "status"),
    [
        ("/", {"Host": "evil.example"}, 403),
        ("/", {"Origin": "https://evil.example"}, 403),
        ("/", {}, 200),
        ("/static/htmx.min.js", {}, 200),
        ("/static/nothing.js", {}, 404),
        ("/static/..%2fserver.py", {}, 404),
        ("/archives/C0NOWHERE/p1795321159070563", {}, 404),
    ],
)
async def test_routes(http: aiohttp.ClientSession, path: str, headers: dict[str, str], status: int) -> None:
    async with http.get(path, headers=headers) as answer:
        assert answer.status == status


async def test_what_is_pasted_from_a_spreadsheet_is_a_table_and_a_message_can_be_forwarded(
    ws: Workspace, app: App, http: aiohttp.ClientSession
) -> None:
    """As in Slack, neither is in the text."""
    root = await ws.post(FOLAKE, AGENTS, "root")
    other = await ws.post(FOLAKE, AGENTS, "*keep* this")
    await do(http, "say", text="these:\nregion\tcost\neu-west\t12", thread=root.ts)
    assert "Forward to the open thread" in await seen(http, thread=root.ts)
    await do(http, "forward", ts=other.ts, thread=root.ts)
    table, forwarded = (each.attachments[0] for each in ws.thread(AGENTS, root.ts)[1:])
    assert [cell["text"] for row in table["blocks"][0]["rows"] for cell in row] == [
        "region",
        "cost",
        "eu-west",
        "12",
    ]
    assert (forwarded["author_id"], forwarded["text"]) == (FOLAKE, "*keep* this")
    sent = [body["event"] for body in (await app.heard("message", 4))[-2:]]
    assert [(each["text"], len(each["attachments"])) for each in sent] == [("these:", 1), ("", 1)]
    page = await seen(http, thread=root.ts)
    assert "eu-west</td>" in page
    assert "Forwarded from Folake" in page
    assert "<strong>keep</strong> this" in page
