"""Where the bot's HTTP server listens: an address that somebody wants must be had, the default one is a convenience."""

from __future__ import annotations

import random
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from bot.errors import ConfigurationError
from bot.main import Bot
from bot.serving import listening
from bot.settings import parse_settings, prepare_folders
from core.clock import SystemClock

TOKENS = {"SLACK_BOT_TOKEN": "xoxb-1-1-a", "SLACK_APP_TOKEN": "xapp-1-A-1-a", "SLACK_SIGNING_SECRET": "s"}
PLAIN = '[[routes]]\nchannel = "C1"\n'
PUSHES = PLAIN + '[[producers]]\nname = "planner"\n'


@asynccontextmanager
async def built(folder: Path, text: str) -> AsyncIterator[Bot]:
    settings = parse_settings(text, file=folder / "clarify.toml", environ=TOKENS)
    prepare_folders(settings)
    bot = await Bot.build(settings, SystemClock(), random.Random(7))  # noqa: S311 - jitter
    try:
        yield bot
    finally:
        await bot.stop()


@pytest.fixture
def default_port_taken() -> Iterator[None]:
    with socket.socket() as taken:
        with suppress(OSError):  # by somebody else, which is as good
            taken.bind(("127.0.0.1", 8787))
            taken.listen()
        yield


@pytest.mark.usefixtures("default_port_taken")
async def test_taken_default_address_where_nobody_needs_it_is_no_trouble(tmp_path: Path) -> None:
    async with built(tmp_path, PLAIN) as bot:
        assert await listening(bot) is None


@pytest.mark.usefixtures("default_port_taken")
@pytest.mark.parametrize(
    "text",
    [
        PLAIN + '[http]\nlisten = "127.0.0.1:8787"\n',
        PUSHES,
        PLAIN + '[slack]\nmode = "http"\n',
    ],
)
async def test_taken_address_that_somebody_counts_on_stops_the_start(tmp_path: Path, text: str) -> None:
    async with built(tmp_path, text) as bot:
        with pytest.raises(ConfigurationError, match=r"clarify.toml: http.listen.*in use"):
            await bot.start()
