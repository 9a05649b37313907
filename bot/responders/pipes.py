"""What goes into a process and comes out of it. Nothing here waits: not for its end, nor for whoever holds its pipes."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from contextlib import suppress
from typing import IO

_CHUNK = 65536


class Pipes:
    """Feeds `message` to a process as it takes it, and keeps at most `limit` bytes of what it says.

    Args:
        stdin, stdout: our ends, closed by `close`.
        message: all of its input; that it does not read it is no failure.
        limit: of its output.
        too_much: called once when it says more.
    """

    def __init__(
        self,
        stdin: IO[bytes],
        stdout: IO[bytes],
        message: bytes,
        limit: int,
        too_much: Callable[[], None],
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._stdin, self._stdout = stdin, stdout
        self._left = memoryview(message)
        self._said = bytearray()
        self._limit = limit
        self._too_much = too_much
        os.set_blocking(stdin.fileno(), False)
        os.set_blocking(stdout.fileno(), False)
        self._loop.add_writer(stdin.fileno(), self._feed)
        self._loop.add_reader(stdout.fileno(), self._hear)

    @property
    def is_over(self) -> bool:
        """Whether it said more than the limit."""
        return len(self._said) > self._limit

    def close(self) -> bytes:
        """All that it said until now: of a process that has ended, all that it ever said."""
        while not self._stdout.closed and self._hear():
            pass
        self._end_input()
        self._end_output()
        return bytes(self._said[: self._limit])

    def _feed(self) -> None:
        try:
            self._left = self._left[os.write(self._stdin.fileno(), self._left) :]
        except BlockingIOError:
            return
        except OSError:  # it reads no further: what it says and its exit code tell whether that matters
            self._left = self._left[:0]
        if not self._left:
            self._end_input()

    def _hear(self) -> bool:
        """Whether there may be more at once."""
        try:
            chunk = os.read(self._stdout.fileno(), _CHUNK)
        except BlockingIOError:
            return False
        except OSError:
            chunk = b""
        self._said += chunk
        if self.is_over:
            self._too_much()
        if not chunk or self.is_over:
            self._end_output()
            return False
        return True

    def _end_input(self) -> None:
        if not self._stdin.closed:
            self._loop.remove_writer(self._stdin.fileno())
            with suppress(OSError):
                self._stdin.close()

    def _end_output(self) -> None:
        if not self._stdout.closed:
            self._loop.remove_reader(self._stdout.fileno())
            self._stdout.close()
