"""What a bot does that keeps nothing: an event becomes a message, a press becomes a reply and another text.

`python -m tests.bench.naive PRODUCER_URL SLACK_API_URL`: Bolt as its own examples have it, and aiohttp for the producer.
What it was told is lost when it ends.
"""

from __future__ import annotations

import asyncio
import json
import re
import signal
import sys
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

import aiohttp
from slack_bolt.adapter.socket_mode.async_handler import AsyncSocketModeHandler
from slack_bolt.async_app import AsyncAck, AsyncApp
from slack_sdk.web.async_client import AsyncWebClient

from workspace.seed import AGENTS, APP_TOKEN, BOT_TOKEN

Json = dict[str, Any]
ASKS = {"supports_clarification_reply": True, "supports_confirmation_reply": True}


async def main(producer: str, slack: str) -> None:
    web = AsyncWebClient(BOT_TOKEN, base_url=slack)
    app = AsyncApp(client=web)
    tokens: dict[str, str] = {}  # by the ts of their messages
    tasks: set[asyncio.Task[None]] = set()

    async with aiohttp.ClientSession(f"{producer}/aaep/v1/") as http:
        request = {"type": "subscription.request", "aaep_version": "1.0.0", "subscriber_id": "naive"}
        async with http.post("subscriptions", json=request | {"capabilities": ASKS}) as response:
            subscription = (await response.json())["subscription_id"]

        async def ask(event: Json) -> None:
            buttons: list[Json] = [
                {"type": "button", "action_id": word, "text": {"type": "plain_text", "text": word}}
                for word in ("Yes", "No")
            ]
            said: Json = {"type": "section", "text": {"type": "plain_text", "text": event["question"]}}
            blocks = [said, {"type": "actions", "elements": buttons}]
            posted = await web.chat_postMessage(channel=AGENTS, text=event["question"], blocks=blocks)
            tokens[str(posted["ts"])] = event["reply_token"]

        async def answer(ack: AsyncAck, body: Json) -> None:
            await ack()
            ts, who = body["message"]["ts"], body["user"]["id"]
            reply = {
                "type": "clarification.reply",
                "subscription_id": subscription,
                "reply_token": tokens.pop(ts),
                "response": body["actions"][0]["action_id"] == "Yes",
                "decided_by": f"user:{who}",
                "timestamp": datetime.now(UTC).isoformat(),
            }
            async with http.post("replies", json=reply) as response:
                response.raise_for_status()
            await web.chat_update(channel=AGENTS, ts=ts, text=f"Answered by <@{who}>", blocks=[])

        app.action(re.compile("Yes|No"))(answer)
        handler = AsyncSocketModeHandler(app, APP_TOKEN)
        await handler.connect_async()  # type: ignore[no-untyped-call]  # slack_bolt leaves it bare
        events = f"events?subscription_id={subscription}"
        try:
            async with http.get(events, timeout=aiohttp.ClientTimeout()) as stream:
                async for line in stream.content:
                    if line.startswith(b"data: "):
                        tasks.add(task := asyncio.create_task(ask(json.loads(line[6:]))))
                        task.add_done_callback(tasks.discard)
        finally:
            await handler.close_async()  # type: ignore[no-untyped-call]  # as above


async def until_stopped() -> None:
    work = asyncio.create_task(main(*sys.argv[1:]))
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, work.cancel)
    with suppress(asyncio.CancelledError):
        await work


if __name__ == "__main__":
    asyncio.run(until_stopped())
