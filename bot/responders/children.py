"""A process in a session of its own: when it ends or is killed, all that it started is killed with it.

Whatever it leaves behind in its process group goes by one signal. What left the group, as daemons do, is found by a
variable of its environment where the system shows that (Linux: /proc).
"""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import subprocess
import threading
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, cast

_MARK = "CLARIFY_RESPONDER_RUN"
_NAMED = f"{_MARK}=".encode()
_PROCESSES = Path("/proc")
_LOOKS = 5  # at all processes: one that is just forking is seen at the next look


class Children:
    """Started on creation; needs a running event loop.

    Its two pipes, `stdin` and `stdout`, belong to the caller, who closes them.

    Raises:
        OSError: it could not be started.
    """

    def __init__(self, argv: Sequence[str], cwd: Path, env: Mapping[str, str]) -> None:
        self._mark = uuid.uuid4().hex
        self._guard = threading.Lock()
        self._reaped = False
        self._loop = asyncio.get_running_loop()
        self._ended: asyncio.Future[int] = self._loop.create_future()
        self.process = subprocess.Popen(  # noqa: S603 - what is run is configured, never what an agent says
            list(argv),
            cwd=cwd,
            # Beside the marks of those that it runs in: a command may ask others that are run by commands.
            env={**env, _MARK: f"{env.get(_MARK, '')} {self._mark}".strip()},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,  # it may repeat the question, which has no place in logs
            start_new_session=True,
            bufsize=0,
        )
        self.stdin = cast("IO[bytes]", self.process.stdin)
        self.stdout = cast("IO[bytes]", self.process.stdout)
        try:
            threading.Thread(target=self._wait, name=f"responder {self.process.pid}", daemon=True).start()
        except RuntimeError as error:
            self._kill_group()
            self.process.communicate()
            raise OSError(errno.EAGAIN, "no thread can be started") from error

    def kill(self) -> None:
        """All of them, at once. Nothing happens where they are gone already."""
        with self._guard:
            if not self._reaped:  # until then its number is nobody else's
                self._kill_group()

    async def ended(self) -> int:
        """Its exit code, negative for a signal, once it and all that it started were killed."""
        return await asyncio.shield(self._ended)

    async def gone(self, seconds: float) -> bool:
        """Whether it is gone, within `seconds`: what hangs in the kernel outlives any signal for a while."""
        done, _ = await asyncio.wait({self._ended}, timeout=seconds)
        return bool(done)

    def _wait(self) -> None:
        """In a thread of its own, so that nothing is left behind whatever becomes of the event loop's tasks."""
        if hasattr(os, "waitid"):
            os.waitid(os.P_PID, self.process.pid, os.WEXITED | os.WNOWAIT)
        else:  # macOS before Python 3.13: its number may be given away a moment too early
            self.process.wait()
        with self._guard:
            self._kill_group()
            code = self.process.wait()
            self._reaped = True
        _kill_marked(self._mark.encode())
        with suppress(RuntimeError):  # the event loop is closed: nobody asks any more
            self._loop.call_soon_threadsafe(self._tell, code)

    def _kill_group(self) -> None:
        # Some systems refuse where nothing but the dead process is left in the group.
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)

    def _tell(self, code: int) -> None:
        if not self._ended.done():
            self._ended.set_result(code)


def _kill_marked(mark: bytes) -> None:
    for _ in range(_LOOKS):
        if not sum(_kill_if_marked(int(pid), mark) for pid in _numbers()):
            return


def _numbers() -> list[str]:
    try:
        return [name for name in os.listdir(_PROCESSES) if name.isdecimal()]  # noqa: PTH208 - names only, by far quicker
    except OSError:
        return []  # no such view of processes on this system


def _kill_if_marked(pid: int, mark: bytes) -> bool:
    try:
        variables = (_PROCESSES / str(pid) / "environ").read_bytes().split(b"\0")
        if not any(each.startswith(_NAMED) and mark in each for each in variables):
            return False
        os.kill(pid, signal.SIGKILL)
    except OSError:
        return False  # gone, or somebody else's
    return True
