"""A guarded MCP server, its client, and the bot that holds its calls."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from mcp import Client, StdioServerParameters
from mcp_types import CallToolResult, Implementation

from bot.app import Bot
from bot.integrations.guard.calls import Calls
from tests.kit.databases import found_in
from tests.kit.processes import ROOT
from tests.kit.stdio import FILE, Json, Stdio
from tests.kit.world import World, config, url_of
from workspace.seed import AGENTS
from workspace.state import Message

RULES = """
[[guard]]
name = "prod"
producers = ["local"]
deny = ["drop_*"]
ask = ["delete_*", {tool = "transfer", where = {amount = "> 1000"}, risk = "high"}]
allow = ["get_*", "transfer"]
"""
HERE = Path(__file__).parent


@dataclass
class Guarded:
    """One bot with a guard, and where the server notes the calls that reach it."""

    stage: World
    bot: Bot
    journal: Path
    server: list[str]

    @classmethod
    @asynccontextmanager
    async def running(
        cls, stage: World, *behaviour: str, rules: str = RULES, server: str = "plain.py"
    ) -> AsyncIterator[Guarded]:
        text = config(stage.producer.url, more=rules)
        async with stage.bot(text) as bot:
            journal = stage.folder / "journal"
            journal.touch()
            yield cls(stage, bot, journal, [sys.executable, str(HERE / server), str(journal), *behaviour])

    @property
    def url(self) -> str:
        return url_of(self.bot)

    @property
    def command(self) -> list[str]:
        """`clarify.py guard` in front of the server, where nothing else is installed."""
        return [*FILE[:-1], *self._words]

    @property
    def _words(self) -> list[str]:
        return ["guard", "prod", "--url", self.url, "--", *self.server]

    def changed(self, statements: str) -> list[str]:
        """The same, with other constants, or with functions that do more."""
        before = f"import sys; sys.path[:0] = [{str(ROOT)!r}]; import clarify"
        program = f"{before}\n{statements}\nclarify.main(sys.argv[1:])"
        return [sys.executable, "-I", "-S", "-c", program, *self._words]

    @asynccontextmanager
    async def wire(self, command: Sequence[str] | None = None) -> AsyncIterator[Stdio]:
        """Its client, which sends what it likes."""
        async with Stdio.started("", command or self.command) as made:
            yield made

    @asynccontextmanager
    async def client(self, mode: str = "legacy") -> AsyncIterator[Client]:
        first, *rest = self.command
        about = Implementation(name="coder", version="1")
        async with Client(
            StdioServerParameters(command=first, args=rest), mode=mode, client_info=about
        ) as made:
            yield made

    def heard(self) -> list[Any]:
        """What reached the server."""
        return [json.loads(line) for line in self.journal.read_text().splitlines()]

    def made(self) -> list[Any]:
        """The calls that reached the plain server: their tools and arguments."""
        calls = [each["params"] for each in self.heard() if each.get("method") == "tools/call"]
        return [[each["name"], each.get("arguments")] for each in calls]

    async def a_minute_passes(self) -> None:
        """Has the bot look for clients that are gone, as if none was heard of for a minute."""
        guard = next(each for each in self.bot.feed.consumers if isinstance(each, Calls))
        await guard.end_lost(self.stage.clock.now() + timedelta(seconds=61))

    async def card(self, action: str) -> Message:
        return await self.stage.card(action)

    async def press(self, user: str, card: Message, label: str) -> None:
        assert (await self.stage.workspace.click(user, AGENTS, card.ts, label=label)).ok

    def states(self) -> list[str]:
        """Those of the calls that were held, in their order."""
        return found_in(self.stage.rows, "select state from guard_calls order by asked_at")


@contextmanager
def calling(client: Client, tool: str, **arguments: Any) -> Iterator[asyncio.Task[CallToolResult]]:
    """A call under way."""
    call = asyncio.create_task(client.call_tool(tool, arguments))
    try:
        yield call
    finally:
        call.cancel()


def words(result: CallToolResult) -> str:
    return " ".join(getattr(each, "text", "") for each in result.content)


def call(key: Any, tool: str, **arguments: Any) -> Json:
    """A call on the wire."""
    return {"id": key, "method": "tools/call", "params": {"name": tool, "arguments": arguments}}


def told(response: Json) -> str:
    """What a call's result says."""
    return str(response["result"]["content"][0]["text"])
