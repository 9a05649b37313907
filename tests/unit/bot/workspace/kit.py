from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from slack_bolt.adapter.socket_mode.async_handler import AsyncSocketModeHandler
from slack_bolt.async_app import AsyncApp
from slack_sdk.web.async_client import AsyncWebClient

from bot.workspace import Options, Workspace
from bot.workspace.seed import AGENTS, APP_TOKEN, BOT_TOKEN

Json = dict[str, Any]
FAST = Options(ack_timeout=1.5, retry_delays=(0.0, 0.05, 0.1))


def web_client(workspace: Workspace) -> AsyncWebClient:
    return AsyncWebClient(BOT_TOKEN, base_url=workspace.api_url, retry_handlers=[])


class Bot:
    """A Bolt app that records the bodies it gets, connected to a workspace over Socket Mode."""

    def __init__(self, workspace: Workspace) -> None:
        self.ws = workspace
        self.client = web_client(workspace)
        self.app = AsyncApp(client=self.client, process_before_response=True)
        self.bodies: list[Json] = []

    def of_type(self, kind: str) -> list[Json]:
        return [
            b
            for b in self.bodies
            if kind in {b.get("type"), b.get("command"), b.get("event", {}).get("type")}
        ]

    async def note(self, body: Json) -> None:
        self.bodies.append(body)


StartBot = Callable[[Bot], Awaitable[Bot]]


@asynccontextmanager
async def connected(bot: Bot) -> AsyncIterator[Bot]:
    """The app's Socket Mode connection is up for as long as the block lasts."""
    handler = AsyncSocketModeHandler(bot.app, APP_TOKEN, ping_interval=0.5)
    await handler.connect_async()  # type: ignore[no-untyped-call]  # slack_bolt leaves it bare
    try:
        await bot.ws.wait_for(lambda: bot.ws.link.connections)
        yield bot
    finally:
        await handler.close_async()  # type: ignore[no-untyped-call]  # slack_bolt leaves it bare


def plain(text: str) -> Json:
    return {"type": "plain_text", "text": text}


def button(text: str = "Yes", action_id: str = "yes", **more: Any) -> Json:
    return {"type": "button", "action_id": action_id, "text": plain(text), **more}


def actions(*elements: Json, **more: Any) -> Json:
    return {"type": "actions", "elements": list(elements), **more}


def option(text: str, value: str) -> Json:
    return {"text": plain(text), "value": value}


def select(*options: Json, **more: Any) -> Json:
    return {
        "type": "static_select",
        "action_id": "choice",
        "placeholder": plain("Choose"),
        "options": list(options),
    } | more


def text_input(block_id: str = "answer", label: str = "Answer", **more: Any) -> Json:
    element = {"type": "plain_text_input", "action_id": "value"} | more
    return {"type": "input", "block_id": block_id, "label": plain(label), "element": element}


def modal(*blocks: Json, **more: Any) -> Json:
    return {
        "type": "modal",
        "callback_id": "answer",
        "title": plain("Answer"),
        "submit": plain("Send"),
        "blocks": list(blocks),
    } | more


async def card(bot: Bot, *blocks: Json, **more: Any) -> str:
    answer = await bot.client.chat_postMessage(channel=AGENTS, text="card", blocks=list(blocks), **more)
    return str(answer["ts"])


def listening(ws: Workspace) -> Bot:
    """A bot that acknowledges everything and notes it."""
    bot = Bot(ws)

    async def note(ack: Any, body: Json) -> None:
        await bot.note(body)
        await ack()

    for kind in (
        "message",
        "app_mention",
        "member_joined_channel",
        "member_left_channel",
        "channel_archive",
        "app_home_opened",
    ):
        bot.app.event(kind)(note)
    bot.app.action({"type": "block_actions", "action_id": "yes"})(note)
    bot.app.action("choice")(note)
    bot.app.command("/clarify")(note)
    bot.app.view("answer")(note)
    bot.app.view_closed("answer")(note)
    return bot
