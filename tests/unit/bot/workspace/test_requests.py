"""The workspace as a sender of signed HTTP requests; Bolt's own HTTP adapter and verification judge them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from slack_bolt.adapter.aiohttp import to_aiohttp_response, to_bolt_request
from slack_bolt.async_app import AsyncApp

from bot.workspace import ControlError, Options, Workspace
from bot.workspace.delivery import Retry
from bot.workspace.seed import ADE, AGENTS, SIGNING_SECRET, USE_AS_ANSWER
from tests.unit.bot.workspace.kit import Json, actions, button, modal, text_input, web_client

FAST = Options(ack_timeout=10.0, retry_delays=(0.0, 0.05, 0.1))


class Bot:
    """A Bolt app behind a request URL. `before` may answer in its place."""

    def __init__(self, ws: Workspace) -> None:
        self.ws = ws
        self.client = web_client(ws)
        self.app = AsyncApp(client=self.client, signing_secret=SIGNING_SECRET, process_before_response=True)
        self.bodies: list[Json] = []
        self.headers: list[dict[str, str]] = []
        self.before: Callable[[], Awaitable[web.Response | None]] | None = None
        self.url = ""

    async def handle(self, request: web.Request) -> web.Response:
        self.headers.append({k.lower(): v for k, v in request.headers.items()})
        answer = await self.before() if self.before is not None else None
        if answer is not None:
            return answer
        response = await self.app.async_dispatch(await to_bolt_request(request))
        return await to_aiohttp_response(response)

    async def note(self, body: Json) -> None:
        self.bodies.append(body)


@pytest.fixture
async def ws() -> AsyncIterator[Workspace]:
    async with Workspace(options=FAST) as workspace:
        yield workspace


@pytest.fixture
async def bot(ws: Workspace) -> AsyncIterator[Bot]:
    made = Bot(ws)
    site = web.Application()
    site.router.add_post("/slack/events", made.handle)
    runner = web.AppRunner(site, shutdown_timeout=0.1)
    await runner.setup()
    listening = web.TCPSite(runner, "127.0.0.1", 0)
    await listening.start()
    made.url = f"http://127.0.0.1:{listening.port}/slack/events"
    await ws.use_request_url(made.url)
    made.headers.clear()
    yield made
    await runner.cleanup()


def says(
    text: str, status: int = 200, content_type: str = "text/plain"
) -> Callable[[], Awaitable[web.Response]]:
    async def answer() -> web.Response:
        return web.Response(text=text, status=status, content_type=content_type)

    return answer


async def card(bot: Bot, *blocks: Json) -> str:
    posted = await bot.client.chat_postMessage(channel=AGENTS, text="card", blocks=list(blocks))
    return str(posted["ts"])


async def test_event_is_json_that_bolt_takes_as_slacks(ws: Workspace, bot: Bot) -> None:
    bot.app.event("message")(bot.note)
    await ws.post(ADE, AGENTS, "héllo & so on")
    await ws.wait_for(lambda: ws.acks)
    assert (ws.acks[0].ok, ws.acks[0].status, ws.acks[0].payload_type) == (True, 200, "message")
    assert bot.bodies[0]["event"]["text"] == "héllo &amp; so on"
    assert "x-slack-retry-num" not in bot.headers[0]


async def test_click_is_a_form_that_bolt_takes_as_slacks(ws: Workspace, bot: Bot) -> None:
    async def pressed(ack: Any, body: Json) -> None:
        await bot.note(body)
        await ack()

    bot.app.action("yes")(pressed)
    ts = await card(bot, actions(button()))
    outcome = await ws.click(ADE, AGENTS, ts, "yes")
    assert outcome.ok
    assert outcome.seconds is not None
    assert bot.bodies[0]["user"]["id"] == ADE
    assert bot.headers[-1]["content-type"] == "application/x-www-form-urlencoded"


async def test_command_and_its_response(ws: Workspace, bot: Bot) -> None:
    async def obeyed(ack: Any, body: Json) -> None:
        await ack(text=f"you said {body['text']}", response_type="ephemeral")

    bot.app.command("/clarify")(obeyed)
    assert (await ws.command(ADE, AGENTS, "/clarify", "a=b&c é")).ok
    assert [e.text for e in ws.ephemerals(ADE)] == ["you said a=b&c é"]


async def test_command_may_be_answered_in_plain_text(ws: Workspace, bot: Bot) -> None:
    async def obeyed(ack: Any) -> None:
        await ack("well")

    bot.app.command("/clarify")(obeyed)
    await ws.command(ADE, AGENTS, "/clarify", "")
    assert [e.text for e in ws.ephemerals(ADE)] == ["well"]


async def test_shortcut_reaches_the_app(ws: Workspace, bot: Bot) -> None:
    async def used(ack: Any, body: Json) -> None:
        await bot.note(body)
        await ack()

    bot.app.shortcut(USE_AS_ANSWER)(used)
    ts = await card(bot)
    assert (await ws.shortcut(ADE, USE_AS_ANSWER, ts, AGENTS)).ok
    assert bot.bodies[0]["message"]["ts"] == ts


@pytest.mark.parametrize(
    ("answer", "ok", "left"),
    [
        ({}, True, 0),
        ({"response_action": "clear"}, True, 0),
        ({"response_action": "errors", "errors": {"field": "no"}}, False, 1),
        ({"response_action": "update", "view": modal(text_input("more", "More"))}, True, 1),
    ],
)
async def test_modal_is_submitted_and_the_response_carried_out(
    ws: Workspace, bot: Bot, answer: Json, ok: bool, left: int
) -> None:
    async def submitted(ack: Any) -> None:
        await ack(**answer)

    bot.app.view("answer")(submitted)

    async def pressed(ack: Any, body: Json) -> None:
        await ack()
        await bot.client.views_open(trigger_id=body["trigger_id"], view=modal(text_input("field", "Field")))

    bot.app.action("yes")(pressed)
    await ws.click(ADE, AGENTS, await card(bot, actions(button())), "yes")
    assert (await ws.submit_view(ADE, {"Field": "x"})).ok is ok
    assert len(ws.views(ADE)) == left


async def test_event_is_tried_again_and_says_why(ws: Workspace, bot: Bot) -> None:
    bot.app.event("message")(bot.note)
    bot.before = says("", 503)
    await ws.post(ADE, AGENTS, "hello")
    await ws.wait_for(lambda: len(ws.acks) == 4)
    assert [(a.attempt, a.failure, a.status) for a in ws.acks] == [(n, "http_error", 503) for n in range(4)]
    assert [h.get("x-slack-retry-num") for h in bot.headers] == [None, "1", "2", "3"]
    assert bot.headers[1]["x-slack-retry-reason"] == "http_error"


async def test_click_is_sent_once_and_its_failure_shown(ws: Workspace, bot: Bot) -> None:
    ts = await card(bot, actions(button()))
    bot.before = says("", 500)
    before = len(bot.headers)
    assert (await ws.click(ADE, AGENTS, ts, "yes")).error == "http_error"
    assert [e.reason for e in ws.errors(ADE)] == ["http_error"]
    assert len([a for a in ws.acks if a.kind == "interactive"]) == 1
    assert len(bot.headers) > before


async def test_answer_that_comes_too_late_is_none(bot: Bot) -> None:
    async with Workspace(options=Options(ack_timeout=0.05, request_url=bot.url)) as ws:
        free = asyncio.Event()

        async def slow() -> None:
            await free.wait()

        bot.before = slow
        assert (await ws.command(ADE, AGENTS, "/clarify", "")).error == "http_timeout"
        free.set()


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
    ws: Workspace, bot: Bot, kind: str, status: int | None, failure: str
) -> None:
    async def obeyed(ack: Any, body: Json) -> None:
        await bot.note(body)
        await ack()

    bot.app.command("/clarify")(obeyed)
    ws.link.requests.spoil(kind)
    assert (await ws.command(ADE, AGENTS, "/clarify", "1")).error == failure
    assert ws.acks[-1].status == status
    assert len(bot.bodies) == (kind == "lost")
    assert (await ws.command(ADE, AGENTS, "/clarify", "2")).ok


@pytest.mark.parametrize(
    ("answer", "why"),
    [(says("something else"), "another body"), (says("", 404), "http_error"), (says("", 302), "http_error")],
)
async def test_request_url_has_to_repeat_the_challenge(
    ws: Workspace, bot: Bot, answer: Callable[[], Awaitable[web.Response]], why: str
) -> None:
    bot.before = answer
    with pytest.raises(ControlError, match=why):
        await ws.use_request_url(f"{bot.url}?other")
    assert ws.link.requests.url == bot.url


async def test_nobody_listens_at_the_request_url() -> None:
    async with Workspace(options=Options(request_url="http://127.0.0.1:1/")) as ws:
        assert (await ws.command(ADE, AGENTS, "/clarify", "")).error == "connection_failed"


async def test_modal_that_is_answered_with_words_is_refused(ws: Workspace, bot: Bot) -> None:
    bot.before = says("fine")
    answer = await ws.link.requests.post("interactive", {"type": "view_submission"}, Retry("env-1"))
    assert answer.failure == "http_error"
    bot.before = says("{", content_type="application/json")
    assert (
        await ws.link.requests.post("interactive", {"type": "block_actions"}, Retry("env-1"))
    ).failure == "http_error"


async def test_request_url_and_its_faults_from_another_process(ws: Workspace, bot: Bot) -> None:
    async with aiohttp.ClientSession(ws.url) as http:

        async def control(path: str, **body: Any) -> int:
            async with http.post(f"/control/{path}", json=body) as response:
                return response.status

        assert await control("request_url", url=f"{bot.url}?again") == 200
        assert ws.link.requests.url == f"{bot.url}?again"
        assert await control("request_url", url="http://127.0.0.1:1/") == 400
        assert await control("request_url") == 400
        assert await control("requests", kind="bad_signature", times=2) == 200
        assert await control("requests", kind="worse") == 400
        assert not (await ws.command(ADE, AGENTS, "/clarify", "")).ok
