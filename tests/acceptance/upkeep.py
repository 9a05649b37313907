"""What a running bot does about what was forgotten, and where some words are left."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

from bot.app import Bot
from tests.kit.databases import tables_with
from tests.kit.world import World
from workspace import Workspace


@asynccontextmanager
async def erasing(bot: Bot) -> AsyncIterator[None]:
    """What a running bot does about what was forgotten."""
    task = asyncio.create_task(bot.show.erasing.run())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def leaks(stage: World, word: str) -> Iterator[str]:
    """Where in any file, table, or message of the bot, `word` still stands."""
    yield from kept(stage, word)
    yield from shown(stage.workspace, word)


def kept(stage: World, word: str) -> Iterator[str]:
    """The files and tables in which `word` stands."""
    # Not read here: to close a file of a storage that this process has open takes its locks away.
    grep = ["grep", "-rlaF", word, str(stage.folder)]
    found = subprocess.run(grep, capture_output=True, text=True, check=False)
    yield from (Path(line).name for line in found.stdout.splitlines())
    if stage.database is not None:
        yield from tables_with(stage.database, word)


def shown(workspace: Workspace, word: str) -> Iterator[str]:
    """The messages of the bot that say `word`."""
    for channel in list(workspace.state.channels.values()):
        for message in channel.messages.values():
            if message.bot_id and word in f"{message.text} {message.blocks}":
                yield f"{channel.id}: {message.text[:80]}"
