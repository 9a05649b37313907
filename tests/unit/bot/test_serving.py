"""Where the bot's HTTP server listens: an address that somebody wants must be had, the default one is a convenience."""

from __future__ import annotations

import random
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from bot.errors import AddressInUseError
from bot.main import Bot
from bot.serving import listening
from bot.settings import HttpSettings, parse_settings, prepare_folders
from core.clock import SystemClock

TOKENS = {"SLACK_BOT_TOKEN": "xoxb-1-1-a", "SLACK_APP_TOKEN": "xapp-1-A-1-a", "SLACK_SIGNING_SECRET": "s"}
PLAIN = '[[routes]]\nchannel = "C1"\n'
PUSHES = PLAIN + '[[producers]]\nname = "planner"\n'


@asynccontextmanager
async def built(folder: Path, text: str, default: int | None = None) -> AsyncIterator[Bot]:
    """`default`: the port that stands in for the one which is taken where none is configured."""
    settings = parse_settings(text, file=folder / "clarify.toml", environ=TOKENS)
    if default is not None:
        http = HttpSettings.model_construct(set(), listen=f"127.0.0.1:{default}")
        settings = settings.model_copy(update={"http": http})
    prepare_folders(settings)
    bot = await Bot.build(settings, SystemClock(), random.Random(7))  # noqa: S311 - jitter
    try:
        yield bot
    finally:
        await bot.stop()


@pytest.fixture
def taken() -> Iterator[int]:
    """A port at which somebody else listens."""
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        yield other.getsockname()[1]


async def test_taken_default_address_where_nobody_needs_it_is_no_trouble(tmp_path: Path, taken: int) -> None:
    async with built(tmp_path, PLAIN, taken) as bot:
        assert await listening(bot) is None


@pytest.mark.parametrize("text", [PUSHES, PLAIN + '[slack]\nmode = "http"\n'])
async def test_taken_default_address_that_somebody_counts_on_stops_the_start(
    tmp_path: Path, taken: int, text: str
) -> None:
    async with built(tmp_path, text, taken) as bot:
        with pytest.raises(AddressInUseError, match=r"clarify.toml: http.listen.*in use"):
            await bot.start()


async def test_taken_address_that_somebody_counts_on_stops_the_start(tmp_path: Path, taken: int) -> None:
    async with built(tmp_path, f'{PLAIN}[http]\nlisten = "127.0.0.1:{taken}"\n') as bot:
        with pytest.raises(AddressInUseError, match=r"clarify.toml: http.listen.*in use"):
            await bot.start()
