"""Whoever reads the log can hang, go away, or never have been there: the bot goes on, and stops when it is told to."""

from __future__ import annotations

import fcntl
import os
import signal
import struct
import termios
from functools import partial
from pathlib import Path

import pytest

from tests.acceptance.world import World
from tests.kit.lives import Life
from tests.kit.until import until
from workspace.seed import AGENTS, FOLAKE

SMALL = 4096  # bytes: the least that a pipe holds


async def works(world: World, token: str) -> None:
    """A question is shown, a click on it is acknowledged, and its answer arrives."""
    card = await world.asked(token)
    assert (await world.workspace.click(FOLAKE, AGENTS, card.ts, label="Yes")).ok
    await world.until(lambda: world.agent.honoured(token))


async def stops(life: Life) -> None:
    assert await life.stop(timeout=30) == 0


def unread(reading: int) -> int:
    """The bytes in a pipe."""
    return int(struct.unpack("i", fcntl.ioctl(reading, termios.FIONREAD, bytes(4)))[0])


async def is_full(world: World, reading: int) -> bool:
    """Whether nothing more fits: a question is logged at once or within a moment, or not at all."""
    before = unread(reading)
    await works(world, f"rpl-{before}")
    try:
        await until(lambda: unread(reading) > before, 1.0)
    except TimeoutError:
        return True
    return False


def open_as(life: Life, descriptor: int) -> Path:
    return Path(f"/proc/{life.process.pid}/fd/{descriptor}").readlink()


async def test_reader_that_hangs_holds_nothing_up(world: World) -> None:
    reading, writing = os.pipe()
    try:
        fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, SMALL)
        async with Life.of(world, stderr=writing) as life:
            while not await is_full(world, reading):
                assert unread(reading) <= SMALL
            await works(world, "rpl-full")
            await stops(life)
    finally:
        os.close(reading)
        os.close(writing)


async def test_stderr_that_was_closed_is_nobody_elses(world: World) -> None:
    async with Life.of(world, first=partial(os.close, 2), fresh=True) as life:
        await works(world, "rpl-1")
        assert open_as(life, 2) == Path(os.devnull)
        await stops(life)


async def test_hangup_of_the_terminal_is_ignored_where_it_was(world: World) -> None:
    """As under nohup."""
    async with Life.of(
        world, first=partial(signal.signal, signal.SIGHUP, signal.SIG_IGN), fresh=True
    ) as life:
        life.process.send_signal(signal.SIGHUP)
        await works(world, "rpl-1")
        await stops(life)


async def test_start_that_fails_ends_though_nobody_reads_why(world: World) -> None:
    reading, writing = os.pipe()
    try:
        fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, SMALL)
        os.write(writing, b"?" * SMALL)
        life = await Life.begin(world, stderr=writing, env={"SLACK_BOT_TOKEN": ""})
        try:
            await world.until(lambda: life.ended, 30)
            assert life.process.returncode == 2
        finally:
            await life.end()
    finally:
        os.close(reading)
        os.close(writing)


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGTERM])
async def test_terminal_that_is_gone_is_an_orderly_stop(world: World, number: signal.Signals) -> None:
    """The reader goes with the terminal: what is said about the stop cannot be written."""
    reading, writing = os.pipe()
    async with Life.of(world, stderr=writing) as life:
        os.close(writing)
        await works(world, "rpl-1")
        os.close(reading)
        assert await life.stop(number, timeout=30) == 0
