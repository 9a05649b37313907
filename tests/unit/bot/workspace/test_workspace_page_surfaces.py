"""The page: the Home tab, the menu of a message, ephemerals, links that lead to their message."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import parse_qs, urlsplit

import aiohttp
import pytest
from slack_sdk.web.async_client import AsyncWebClient

from bot.workspace import Workspace
from bot.workspace.seed import ADE, AGENTS, FOLAKE, GIO, ONCALL, USE_AS_ANSWER
from tests.unit.bot.workspace.kit import (
    Bot,
    Json,
    StartBot,
    actions,
    button,
    modal,
    plain,
    text_input,
)

PEOPLE: Json = {"type": "users_select", "action_id": "who", "placeholder": plain("A person")}
HOME: Json = {"type": "home", "blocks": [actions(button("Answer…", "yes"), block_id="b")]}


@pytest.fixture
async def browser(ws: Workspace) -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(ws.url) as session:
        yield session


async def seen(browser: aiohttp.ClientSession, path: str = "/", user: str = ADE, **query: str) -> str:
    async with browser.get(path, params={"as": user} | query) as answer:
        assert answer.status == 200
        return await answer.text()


async def do(browser: aiohttp.ClientSession, what: str, user: str = ADE, **fields: Any) -> int:
    form = {"as": user, "channel": AGENTS} | {k.replace("__", ":"): v for k, v in fields.items()}
    async with browser.post(f"/do/{what}", data=form) as answer:
        return answer.status


def noting(ws: Workspace) -> Bot:
    bot = Bot(ws)

    async def note(ack: Any, body: Json) -> None:
        await bot.note(body)
        await ack()

    for action_id in ("yes", "who"):
        bot.app.action(action_id)(note)
    bot.app.shortcut(USE_AS_ANSWER)(note)
    bot.app.event("app_home_opened")(note)
    bot.app.event("message")(note)
    return bot


async def test_page_opens_the_home_tab_as_slack_does(
    ws: Workspace, browser: aiohttp.ClientSession, start: StartBot
) -> None:
    bot = await start(noting(ws))
    assert "has not published anything" in await seen(browser, home="1")
    await ws.wait_for(lambda: bot.of_type("app_home_opened"))
    await bot.client.views_publish(user_id=ADE, view=HOME)
    part = await seen(browser, "/part/home")
    assert "Answer…" in part
    assert "Answer…" not in await seen(browser, "/part/home", user=FOLAKE)
    direct = ws.state.direct_message(ADE)
    assert direct is not None
    await seen(browser, channel=direct.id)
    await ws.wait_for(lambda: len(bot.of_type("app_home_opened")) == 2)
    assert [b["event"]["tab"] for b in bot.of_type("app_home_opened")] == ["home", "messages"]


async def test_page_presses_on_the_home_tab_below_a_modal(
    ws: Workspace, browser: aiohttp.ClientSession, start: StartBot
) -> None:
    bot = await start(noting(ws))
    await bot.client.views_publish(user_id=ADE, view=HOME)
    shown = ws.home(ADE)
    assert shown is not None
    ws.board.open_view(ADE, modal(text_input()))
    await do(browser, "press-in-view", view=shown.id, pressed="e:b:yes")
    assert bot.of_type("block_actions")[0]["view"]["id"] == shown.id
    await do(browser, "press-in-view", user=GIO, view=shown.id, pressed="e:b:yes")
    assert "does not have this view" in ws.errors(GIO)[0].text


async def test_page_feed_tells_home_from_modal(
    ws: Workspace, client: AsyncWebClient, browser: aiohttp.ClientSession
) -> None:
    async with browser.get("/feed") as answer:
        await client.views_publish(user_id=ADE, view=HOME)
        assert await answer.content.readline() == f"data: home:{ADE}\n".encode()


@pytest.mark.parametrize(("behind", "first"), [(0, "channel:C0AGENTS"), (1, "refresh")])
async def test_page_feed_makes_up_for_what_changed_before_it(
    ws: Workspace, browser: aiohttp.ClientSession, behind: int, first: str
) -> None:
    await ws.post(ADE, AGENTS, "before")
    version = ws.context.changes.seen - behind
    async with browser.get("/feed", params={"version": str(version)}) as answer:
        await ws.post(ADE, AGENTS, "after")
        assert await answer.content.readline() == f"data: {first}\n".encode()


async def test_page_uses_a_shortcut(ws: Workspace, browser: aiohttp.ClientSession, start: StartBot) -> None:
    bot = await start(noting(ws))
    message = await ws.post(ADE, AGENTS, "port 8080")
    await bot.client.chat_postEphemeral(channel=AGENTS, user=ADE, text="psst")
    assert (await seen(browser)).count("Use as answer") == 1
    assert await do(browser, "shortcut", ts=message.ts, callback_id=USE_AS_ANSWER) == 204
    assert bot.of_type("message_action")[0]["message"]["text"] == "port 8080"


async def test_page_presses_and_dismisses_an_ephemeral(
    ws: Workspace, browser: aiohttp.ClientSession, start: StartBot
) -> None:
    bot = await start(noting(ws))
    blocks = [actions(button("Next"), block_id="b")]
    await bot.client.chat_postEphemeral(channel=AGENTS, user=ADE, text="list", blocks=blocks)
    ts = ws.ephemerals(ADE)[0].ts
    assert "Dismiss message" in await seen(browser)
    await do(browser, "press", ts=ts, pressed="e:b:yes")
    assert bot.of_type("block_actions")[0]["container"]["is_ephemeral"] is True
    await do(browser, "hide", user=FOLAKE, ts=ts)
    assert len(ws.ephemerals(ADE)) == 1
    await do(browser, "hide", ts=ts)
    assert ws.ephemerals(ADE) == []


async def test_page_lists_people_to_choose(ws: Workspace, browser: aiohttp.ClientSession) -> None:
    block = {"type": "input", "block_id": "b", "label": plain("Hand to"), "element": PEOPLE}
    view = ws.board.open_view(ONCALL, modal(block))
    await ws.choose_user(ONCALL, view, ADE)
    html = await seen(browser, "/part/modal", user=ONCALL)
    assert f'<option value="{ADE}" selected>Ade</option>' in html
    assert "Gio (guest)" in html
    assert "clarify (app)" in html
    assert "Gone" not in html


async def test_page_sets_presence(ws: Workspace, browser: aiohttp.ClientSession) -> None:
    await do(browser, "presence", presence="away")
    assert ws.state.users[ADE].presence == "away"
    assert 'value="away"' in await seen(browser)
    await do(browser, "presence")
    assert ws.state.users[ADE].presence == "active"


# Links to messages


async def followed(browser: aiohttp.ClientSession, link: str) -> tuple[dict[str, list[str]], str]:
    """Where a link leads (its query), and what is shown there."""
    async with browser.get(link) as answer:
        assert answer.status == 200
        return parse_qs(urlsplit(str(answer.url)).query), await answer.text()


async def test_permalink_opens_the_page_at_the_message(
    ws: Workspace, client: AsyncWebClient, browser: aiohttp.ClientSession
) -> None:
    root = await ws.post(ADE, AGENTS, "the root")
    reply = await ws.post(FOLAKE, AGENTS, "the reply", root.ts)
    for number in range(151):
        await ws.post(ADE, AGENTS, f"talk {number}")
    link = (await client.chat_getPermalink(channel=AGENTS, message_ts=root.ts))["permalink"]
    assert link == ws.permalink(AGENTS, root.ts)
    assert link.startswith((await client.auth_test())["url"])
    query, html = await followed(browser, link)
    assert (query["channel"], query["at"]) == ([AGENTS], [root.ts])
    assert html.count(" found") == 1
    assert "the root" in html
    deep = (await client.chat_getPermalink(channel=AGENTS, message_ts=reply.ts))["permalink"]
    assert deep.endswith(f"?thread_ts={root.ts}&cid={AGENTS}")
    query, html = await followed(browser, deep)
    assert query["thread"] == [root.ts]
    assert "the reply" in html


async def test_permalink_in_a_message_stays_with_the_acting_person(
    ws: Workspace, client: AsyncWebClient, browser: aiohttp.ClientSession
) -> None:
    root = await ws.post(ADE, AGENTS, "the root")
    link = ws.permalink(AGENTS, root.ts)
    section = {"type": "section", "text": {"type": "mrkdwn", "text": f"<{link}|CLR-42-001>"}}
    blocks = [
        section,
        actions(button("Thread", "yes", url=link), button("Docs", "docs", url="https://x.org")),
    ]
    await client.chat_postMessage(channel=ONCALL, text="page", blocks=blocks)
    direct = ws.state.direct_message(ONCALL)
    assert direct is not None
    html = await seen(browser, user=ONCALL, channel=direct.id)
    path = urlsplit(link).path
    assert f'<a href="{path}?as={ONCALL}">CLR-42-001</a>' in html
    assert f'href="{path}?as={ONCALL}"  hx-post' in html or f'href="{path}?as={ONCALL}" hx-post' in html
    assert 'href="https://x.org" target="_blank"' in html
    query, _ = await followed(browser, f"{path}?as={ONCALL}")
    assert query["as"] == [ONCALL]


async def test_permalink_of_a_direct_message_opens_for_its_reader(
    ws: Workspace, client: AsyncWebClient, browser: aiohttp.ClientSession
) -> None:
    sent = await client.chat_postMessage(channel=GIO, text="page")
    link = ws.permalink(sent["channel"], sent["ts"])
    query, html = await followed(browser, link)
    assert (query["as"], "page" in html) == ([GIO], True)
    async with browser.get("/archives/C0NOWHERE/p1795321159070563") as answer:
        assert answer.status == 404
