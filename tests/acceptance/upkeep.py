"""What a running bot does about what was forgotten, and where some words are left."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

from bot.app import Bot
from bot.workspace import Workspace


@asynccontextmanager
async def erasing(bot: Bot) -> AsyncIterator[None]:
    """What a running bot does about what was forgotten."""
    task = asyncio.create_task(bot.erasing.run())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def leaks(folder: Path, workspace: Workspace, word: str) -> Iterator[str]:
    """Where in any file, or message of the bot, `word` still stands."""
    # Not read here: to close a file of a storage that this process has open takes its locks away.
    found = subprocess.run(["grep", "-rlaF", word, str(folder)], capture_output=True, text=True, check=False)
    yield from (Path(line).name for line in found.stdout.splitlines())
    for channel in list(workspace.state.channels.values()):
        for message in channel.messages.values():
            if message.bot_id and word in f"{message.text} {message.blocks}":
                yield f"{channel.id}: {message.text[:80]}"
