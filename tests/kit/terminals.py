"""Programs on a terminal of their own, as a person has them."""

from __future__ import annotations

import asyncio
import fcntl
import os
import pty
import struct
import termios
from asyncio.subprocess import Process
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

_LINES, _COLUMNS = 50, 160


@asynccontextmanager
async def on_terminal(
    program: Path, *words: str, cwd: Path, environ: Mapping[str, str]
) -> AsyncIterator[Process]:
    """A running program; its terminal is closed at the end."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", _LINES, _COLUMNS, 0, 0))
    loop = asyncio.get_running_loop()

    def read() -> None:  # a program stops at a full terminal
        try:
            os.read(ours, 65_536)
        except OSError:  # it has ended
            loop.remove_reader(ours)

    process = await asyncio.create_subprocess_exec(
        program,
        *words,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        cwd=cwd,
        env={**environ, "TERM": "xterm-256color"},
        start_new_session=True,
    )
    os.close(theirs)
    loop.add_reader(ours, read)
    try:
        yield process
    finally:
        if process.returncode is None:
            process.terminate()
        await asyncio.wait_for(process.wait(), 30)
        loop.remove_reader(ours)
        os.close(ours)
