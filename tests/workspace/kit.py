"""An app beside the workspace: Bolt, unchanged, over Socket Mode or behind a request URL; blocks and views to send."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

from aiohttp import web
from slack_bolt.adapter.aiohttp import to_aiohttp_response, to_bolt_request
from slack_bolt.adapter.socket_mode.async_handler import AsyncSocketModeHandler
from slack_bolt.async_app import AsyncApp
from slack_sdk.errors import SlackApiError
from slack_sdk.web.async_client import AsyncWebClient

from tests.kit.served import served
from workspace import Options, Workspace
from workspace.seed import ADE, AGENTS, APP_TOKEN, BOT_TOKEN, SIGNING_SECRET

Json = dict[str, Any]
FAST = Options(ack_timeout=20.0, retry_delays=(0.0, 0.0, 0.0), trigger_lifetime=600.0)


def impatient(ws: Workspace) -> None:
    """From now on nobody waits for an acknowledgement that will not come."""
    ws.context.options = replace(ws.context.options, ack_timeout=0.05)


def web_client(ws: Workspace, **more: Any) -> AsyncWebClient:
    return AsyncWebClient(BOT_TOKEN, base_url=ws.api_url, **({"retry_handlers": []} | more))


async def ask(client: AsyncWebClient, method: str, **arguments: Any) -> Json:
    """The answer to a call, a refusal too."""
    try:
        answer = await client.api_call(method, json=arguments)
    except SlackApiError as refused:
        answer = refused.response
    assert isinstance(answer.data, dict)
    return answer.data


class App:
    """A Bolt app that notes the bodies it gets and acknowledges everything.

    `answers` says with what, by the body's kind; of a kind in `deaf` so many are not acknowledged.
    """

    def __init__(self, ws: Workspace) -> None:
        self.ws = ws
        self.client = web_client(ws)
        self.bolt = AsyncApp(client=self.client, signing_secret=SIGNING_SECRET, process_before_response=True)
        self.bodies: list[Json] = []
        self.answers: dict[str, Json] = {}
        self.deaf: Counter[str] = Counter()
        # Where it is behind a request URL:
        self.url = ""
        self.headers: list[dict[str, str]] = []
        self.instead: Callable[[], Awaitable[web.Response]] | None = None
        everything = re.compile(".*")
        for register in ("event", "action", "view", "view_closed", "command", "shortcut"):
            getattr(self.bolt, register)(everything)(self._hear)

    async def _hear(self, ack: Any, body: Json) -> None:
        self.bodies.append(body)
        kind = kind_of(body)
        if self.deaf[kind]:
            self.deaf[kind] -= 1
            await asyncio.Event().wait()
        await ack(**self.answers.get(kind, {}))

    def of(self, kind: str) -> list[Json]:
        return [body for body in self.bodies if kind_of(body) == kind]

    async def heard(self, kind: str, count: int = 1) -> list[Json]:
        await self.ws.wait_for(lambda: len(self.of(kind)) >= count)
        return self.of(kind)

    async def card(self, *blocks: Json, **more: Any) -> str:
        answer = await self.client.chat_postMessage(channel=AGENTS, text="card", blocks=list(blocks), **more)
        return str(answer["ts"])

    async def clicked(self, user: str = ADE, **more: Any) -> Json:
        """The body of a click on a new card."""
        assert (await self.ws.click(user, AGENTS, await self.card(actions(button(**more))), "yes")).ok
        return self.of("block_actions")[-1]

    async def _handle(self, request: web.Request) -> web.Response:
        self.headers.append({name.lower(): value for name, value in request.headers.items()})
        if self.instead is not None:
            return await self.instead()
        return await to_aiohttp_response(await self.bolt.async_dispatch(await to_bolt_request(request)))


def kind_of(body: Json) -> str:
    return str(body.get("command") or body.get("event", body)["type"])


@asynccontextmanager
async def over_socket(app: App) -> AsyncIterator[App]:
    handler = AsyncSocketModeHandler(app.bolt, APP_TOKEN, ping_interval=0.5)
    await handler.connect_async()  # type: ignore[no-untyped-call]  # slack_bolt leaves it bare
    try:
        await app.ws.wait_for(lambda: app.ws.link.connections)
        yield app
    finally:
        await handler.close_async()  # type: ignore[no-untyped-call]  # slack_bolt leaves it bare


@asynccontextmanager
async def over_http(app: App) -> AsyncIterator[App]:
    async with served(app._handle) as address:
        app.url = f"{address}/slack/events"
        await app.ws.link.requests.set_url(app.url)
        app.headers.clear()
        yield app


# What is sent


def plain(text: str) -> Json:
    return {"type": "plain_text", "text": text}


def mrkdwn(text: str) -> Json:
    return {"type": "mrkdwn", "text": text}


def section(text: str = "hello", **more: Any) -> Json:
    return {"type": "section", "text": mrkdwn(text), **more}


def button(text: str = "Yes", action_id: str = "yes", **more: Any) -> Json:
    return {"type": "button", "action_id": action_id, "text": plain(text), **more}


def actions(*elements: Json, **more: Any) -> Json:
    return {"type": "actions", "elements": list(elements), **more}


def option(text: str, value: str) -> Json:
    return {"text": plain(text), "value": value}


def select(*options: Json, **more: Any) -> Json:
    shown = {"placeholder": plain("Choose"), "options": list(options)}
    return {"type": "static_select", "action_id": "choice"} | shown | more


def text_input(block_id: str = "answer", label: str = "Answer", **more: Any) -> Json:
    element = {"type": "plain_text_input", "action_id": "value"} | more
    return {"type": "input", "block_id": block_id, "label": plain(label), "element": element}


def modal(*blocks: Json, **more: Any) -> Json:
    shown = {"title": plain("Answer"), "submit": plain("Send"), "blocks": list(blocks)}
    return {"type": "modal", "callback_id": "answer"} | shown | more


def home(*blocks: Json, **more: Any) -> Json:
    return {"type": "home", "blocks": list(blocks)} | more


PEOPLE: Json = {"type": "users_select", "action_id": "who", "placeholder": plain("A person")}
HAND: Json = {"type": "input", "block_id": "to", "label": plain("Hand to"), "element": PEOPLE}
