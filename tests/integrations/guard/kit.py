"""A guarded MCP server, its client, and the bot that holds its calls."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mcp import Client, StdioServerParameters
from mcp_types import CallToolResult, Implementation

from tests.kit.databases import found_in
from tests.kit.processes import ROOT
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
UPSTREAM = Path(__file__).parent / "upstream.py"


@dataclass
class Guarded:
    """One bot with a guard, and where the server notes the calls that reach it."""

    stage: World
    url: str
    journal: Path
    server: list[str] = field(default_factory=list)

    @classmethod
    @asynccontextmanager
    async def running(cls, stage: World, rules: str = RULES) -> AsyncIterator[Guarded]:
        text = config(stage.producer.url, more=rules)
        async with stage.bot(text) as bot:
            journal = stage.folder / "journal"
            journal.touch()
            yield cls(stage, url_of(bot), journal, [sys.executable, str(UPSTREAM), str(journal)])

    @property
    def command(self) -> list[str]:
        """`clarify.py guard` in front of the server, where nothing else is installed."""
        own = [sys.executable, "-I", "-S", str(ROOT / "clarify.py"), "guard", "prod", "--url", self.url]
        return [*own, "--", *self.server]

    @asynccontextmanager
    async def client(self, mode: str = "legacy") -> AsyncIterator[Client]:
        first, *rest = self.command
        about = Implementation(name="coder", version="1")
        async with Client(
            StdioServerParameters(command=first, args=rest), mode=mode, client_info=about
        ) as made:
            yield made

    def made(self) -> list[Any]:
        """The calls that reached the server."""
        return [json.loads(line) for line in self.journal.read_text().splitlines()]

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
