"""The bot as built by main, the local workspace, and producers, joined as in production, in one process."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bot.demo.producer import DemoProducer
from bot.main import Bot
from bot.settings import parse_settings, prepare_folders
from bot.workspace import Options, Workspace
from bot.workspace.seed import AGENTS, APP_TOKEN, BOT_TOKEN, FALLBACK
from bot.workspace.state import Message
from core.clock import Clock, SystemClock

CONFIG = """
[slack]
mode = "socket"
fallback_channel = "{fallback}"

[[producers]]
name = "planner"
url = "{url}"
dialect = "{dialect}"

[[routes]]
channel = "{channel}"
answerers = ["members"]
on_call = "platform"

[ledger]
directory = "ledgers"

[storage]
path = "clarify.db"

[pacing]
posts_per_second = {pace}

[[on_call]]
name = "platform"
users = ["U0ONCALL"]
"""


def environment(workspace: Workspace) -> dict[str, str]:
    return {"SLACK_BOT_TOKEN": BOT_TOKEN, "SLACK_APP_TOKEN": APP_TOKEN, "SLACK_API_URL": workspace.api_url}


def config(
    url: str,
    *,
    dialect: str = "auto",
    channel: str = AGENTS,
    fallback: str = FALLBACK,
    pace: float = 1000.0,
    more: str = "",
) -> str:
    return CONFIG.format(url=url, dialect=dialect, channel=channel, fallback=fallback, pace=pace) + more


def question(token: str, *, session: str = "sess_one", **fields: Any) -> dict[str, Any]:
    """A question event for `DemoProducer.emit`."""
    return {
        "type": "aaep:agent.awaiting.clarification",
        "session_id": session,
        "urgency": "critical",
        "question": "Shall I go on?",
        "reply_token": token,
        "timeout_seconds": 600,
    } | fields


class Scene:
    """One workspace, one producer, one folder; the bot can be started and stopped in it."""

    def __init__(self, folder: Path, workspace: Workspace, producer: DemoProducer) -> None:
        self.folder = folder
        self.workspace = workspace
        self.producer = producer

    @asynccontextmanager
    async def bot(self, text: str | None = None, clock: Clock | None = None) -> AsyncIterator[Bot]:
        """The bot, running and taking clicks; stopped in order at the end."""
        file = self.folder / "clarify.toml"
        settings = parse_settings(
            text or config(self.producer.url), file=file, environ=environment(self.workspace)
        )
        prepare_folders(settings)
        bot = await Bot.build(settings, clock or SystemClock(), random.Random(7))  # noqa: S311 - jitter
        await bot.start()
        stop = asyncio.Event()
        watch: asyncio.Task[Any] = asyncio.create_task(bot.until(stop))
        try:
            ready: asyncio.Task[Any] = asyncio.create_task(bot.door.ready.wait())
            done, _ = await asyncio.wait({watch, ready}, timeout=20, return_when=asyncio.FIRST_COMPLETED)
            assert done, "the bot was not ready within 20 s"
            for task in done:
                task.result()
            yield bot
        finally:
            stop.set()
            await bot.stop()
            await asyncio.wait_for(watch, 10)

    def cards(self, channel: str = AGENTS) -> list[Message]:
        """The bot's cards in a channel, threads included."""
        return [
            m
            for m in self.workspace.messages(channel)
            if (m.metadata or {}).get("event_type") == "clarify_card"
        ]

    async def card(self, text: str, channel: str = AGENTS, timeout: float = 10.0) -> Message:
        """The card that says `text`, once it is there."""
        return await self.until(
            lambda: next((m for m in self.cards(channel) if text in said(m)), None), timeout
        )

    async def until(self, predicate: Callable[[], Any], timeout: float = 10.0) -> Any:
        return await self.workspace.wait_for(predicate, timeout)

    def ledger(self, issue: int) -> dict[str, Any]:
        ledger: dict[str, Any] = json.loads((self.folder / "ledgers" / f"issue-{issue}.json").read_text())
        return ledger


def said(message: Message) -> str:
    """All that a message shows: its fallback text and its blocks."""
    return f"{message.text}\n{json.dumps(message.blocks, ensure_ascii=False)}"


@asynccontextmanager
async def scene(folder: Path, options: Options | None = None) -> AsyncIterator[Scene]:
    async with (
        Workspace(options=options) as workspace,
        DemoProducer("planner-agent", agent_name="Planner") as producer,
    ):
        yield Scene(folder, workspace, producer)


def now() -> datetime:
    return datetime.now(UTC)
