"""`clarify` in processes of its own, that start in hundredths of a second: forked from one that has imported it all.

What runs is `bot.cli.main`. Where a test is about the interpreter itself, `clarify(..., fresh=True)` starts a new one.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import multiprocessing
import multiprocessing.forkserver
import os
import signal
import sys
from asyncio.subprocess import DEVNULL, PIPE, STDOUT
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import reduction
from pathlib import Path
from typing import IO, Any

ROOT = Path(__file__).parents[2]
Where = int | IO[Any] | None


class Forked:
    """As much of `asyncio.subprocess.Process` as tests need, of a process that is no child of ours."""

    def __init__(
        self, process: Any, stdout: asyncio.StreamReader | None, stderr: asyncio.StreamReader | None
    ) -> None:
        self.pid: int = process.pid
        self.stdout = stdout
        self.stderr = stderr
        self.returncode: int | None = None
        self._process = process
        self._loop = asyncio.get_running_loop()
        self._over = asyncio.Event()
        self._loop.add_reader(process.sentinel, self._ended)

    def _ended(self) -> None:
        self._loop.remove_reader(self._process.sentinel)
        self._process.join()
        self.returncode = self._process.exitcode
        self._process.close()
        self._over.set()

    async def wait(self) -> int:
        await self._over.wait()
        assert self.returncode is not None
        return self.returncode

    async def communicate(self) -> tuple[bytes, bytes]:
        """All that it said, once it has ended."""
        out, err = await asyncio.gather(
            *(each.read() if each else _nothing() for each in (self.stdout, self.stderr))
        )
        await self.wait()
        return out, err

    def send_signal(self, number: int) -> None:
        if self.returncode is None:
            with suppress(ProcessLookupError):  # it has just ended, which is not known here yet
                os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


Process = asyncio.subprocess.Process | Forked


@dataclass(frozen=True, slots=True)
class Said:
    """What a process said, and how it ended."""

    code: int
    out: str
    err: str


async def ended(process: Process, timeout: float = 60.0) -> Said:
    """What a process said, once it has ended."""
    out, err = await asyncio.wait_for(process.communicate(), timeout)
    assert process.returncode is not None
    return Said(process.returncode, (out or b"").decode(), (err or b"").decode())


async def command(config: Path, *words: str, env: Mapping[str, str] = os.environ) -> Said:
    """`clarify WORDS` with a configuration, run to its end."""
    return await ended(await clarify(*words, "--config", str(config), env=env))


async def _nothing() -> bytes:
    return b""


async def clarify(
    *words: str,
    env: Mapping[str, str],
    cwd: Path = ROOT,
    stdout: Where = PIPE,
    stderr: Where = PIPE,
    first: Callable[[], object] | None = None,
    fresh: bool = False,
) -> Process:
    """Start `clarify WORDS`; nothing is typed to it.

    Args:
        words: its arguments.
        env: all of its environment.
        cwd: where it runs.
        stdout, stderr: PIPE, DEVNULL, a file, or for stderr STDOUT.
        first: called in the process, before the program begins.
        fresh: a new interpreter.
    """
    if fresh:
        command = (sys.executable, "-m", "bot.cli", *words)
        where: dict[str, Any] = {"stdin": DEVNULL, "stdout": stdout, "stderr": stderr}
        return await asyncio.create_subprocess_exec(*command, env=env, cwd=cwd, preexec_fn=first, **where)
    out, out_reader = await _end(stdout)
    err, err_reader = (out, None) if stderr == STDOUT else await _end(stderr)
    begin = functools.partial(run_main, words, dict(env), cwd, first, _umask())
    process = forks().Process(target=_live, args=(out, err, begin), daemon=True)
    process.start()
    for fd in {out.fd, err.fd}:
        os.close(fd)
    return Forked(process, out_reader, err_reader)


class _Passed:
    """A file descriptor that goes along to another process."""

    def __init__(self, fd: int) -> None:
        self.fd = fd

    def __reduce__(self) -> Any:
        return _received, (reduction.DupFd(self.fd),)


def _received(passed: Any) -> int:
    fd: int = passed.detach()
    return fd


def _umask() -> int:
    now = os.umask(0)
    os.umask(now)
    return now


async def _end(where: Where) -> tuple[_Passed, asyncio.StreamReader | None]:
    """The end that the process writes to, and what reads at the other."""
    if where == PIPE:
        reading, writing = os.pipe()
        reader = asyncio.StreamReader()
        await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(reading, "rb", 0)
        )
        return _Passed(writing), reader
    if where == DEVNULL:
        return _Passed(os.open(os.devnull, os.O_WRONLY)), None
    assert where is not None
    return _Passed(os.dup(where if isinstance(where, int) else where.fileno())), None


def _live(out: int, err: int, begin: Callable[[], object]) -> None:
    """In the forked process."""
    for fd, standard in ((out, 1), (err, 2)):
        os.dup2(fd, standard)
    for fd in {out, err}:
        os.close(fd)
    begin()


def run_main(
    words: tuple[str, ...],
    env: Mapping[str, str],
    cwd: Path = ROOT,
    first: Callable[[], object] | None = None,
    umask: int = 0o022,
) -> None:
    """In a forked process: be `clarify WORDS`."""
    assert "tests.kit.preloaded" in sys.modules, "the server could not import it, and says nothing"
    os.environ.clear()
    os.environ.update(env)
    os.chdir(cwd)
    os.umask(umask)
    sys.argv = ["clarify", *words]
    if first is not None:
        first()

    from bot.cli import main

    try:
        main()
    finally:
        logging.shutdown()  # a forked process ends without what an interpreter does at its end


@functools.cache
def forks() -> Any:
    """Where processes are forked from; one for each worker."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.kit.preloaded"])
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = str(ROOT)  # the server is a `python -c` wherever a test happens to be
    try:
        multiprocessing.forkserver.ensure_running()
    finally:
        del os.environ["PYTHONPATH"]
        if before is not None:
            os.environ["PYTHONPATH"] = before
    return context
