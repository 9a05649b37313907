"""What clicks are compared with, a process of its own: Bolt apps whose one listener acknowledges.

`python -m tests.bench.bare_bolt FOLDER KIND=API_URL …`: an app for each, of these kinds

* default: AsyncApp and AsyncSocketModeHandler as the library's own examples have them;
* own-socket: the bot's socket client, and the listener runs before the acknowledgement, as the bot's do;
* durable: as own-socket, and the listener replaces one file with fsync before it acknowledges.
"""

from __future__ import annotations

import asyncio
import re
import signal
import sys
from pathlib import Path

from slack_bolt.adapter.socket_mode.async_handler import AsyncSocketModeHandler
from slack_bolt.async_app import AsyncAck, AsyncApp
from slack_bolt.request.async_request import AsyncBoltRequest
from slack_sdk.web.async_client import AsyncWebClient

from bot.slack.socket import Envelope, Json, SlackSocket
from bot.slackapi import Availability
from bot.workspace.seed import APP_TOKEN, BOT_TOKEN
from core.clock import SystemClock
from tests.bench.files import replace

_RECORD = b"x" * 1500


async def main(folder: Path, urls: list[str]) -> None:
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    async with asyncio.TaskGroup() as group:
        for each in urls:
            kind, _, url = each.partition("=")
            group.create_task(_listen(kind, url, folder, stop), name=kind)


async def _listen(kind: str, api_url: str, folder: Path, stop: asyncio.Event) -> None:
    web = AsyncWebClient(BOT_TOKEN, base_url=api_url)
    app = AsyncApp(client=web, process_before_response=kind != "default")
    numbers = iter(range(10**9))

    async def listener(ack: AsyncAck) -> None:
        if kind == "durable":
            await asyncio.to_thread(replace, folder / f"{next(numbers)}.json", _RECORD)
        await ack()

    app.action(re.compile(r"clarify\..+"))(listener)
    if kind == "default":
        handler = AsyncSocketModeHandler(app, APP_TOKEN)
        await handler.connect_async()  # type: ignore[no-untyped-call]  # slack_bolt leaves it bare
        await stop.wait()
        await handler.close_async()  # type: ignore[no-untyped-call]  # as above
        return

    async def dispatch(envelope: Envelope) -> Json | None:
        await app.async_dispatch(AsyncBoltRequest(mode="socket_mode", body=envelope.payload))
        return None

    async def counted(others: int) -> None:
        """Nobody wants to know."""

    clock = SystemClock()
    socket = SlackSocket(
        web=web,
        app_token=APP_TOKEN,
        clock=clock,
        jitter=lambda: 0.5,
        availability=Availability(clock),
        counted=counted,
    )
    await socket.start(dispatch)
    await stop.wait()
    await socket.stop()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2:]))
