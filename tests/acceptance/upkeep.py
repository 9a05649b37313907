"""The commands for who runs the bot, at a prompt of their own, and what of some words is left anywhere."""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from bot.app import Bot
from bot.workspace import Workspace
from tests.kit.processes import clarify


@dataclass(frozen=True, slots=True)
class Said:
    code: int
    out: str
    err: str


async def command(config: Path, *words: str) -> Said:
    """`clarify WORDS` in a process of its own."""
    process = await clarify(*words, "--config", str(config), env=os.environ)
    out, err = await process.communicate()
    return Said(process.returncode or 0, out.decode(), err.decode())


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
