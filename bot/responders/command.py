"""A role that answers by a command: the question as JSON on its standard input, the answer on its standard output."""

from __future__ import annotations

import json
import signal
import time
from asyncio import timeout as time_limit
from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path

import structlog

from bot.responders.children import Children
from bot.responders.pipes import Pipes
from bot.settings.environment import read_environment
from core.dispatch import Inquiry
from core.errors import AgentError

_log = structlog.get_logger("clarify.responders")
MOST = 64 * 1024  # bytes of an answer
_LAST_WAIT = 5.0  # seconds, for what was killed to be gone


class CommandResponder:
    """Runs `argv`, without a shell, for each question; what it says on standard error goes nowhere.

    Exit code 0 and words in UTF-8, at most 64 KiB, are an answer. When it ends, takes longer than `timeout` or is not
    needed any more, it and all that it started are killed. `env` is all of its environment; None: ours.
    """

    def __init__(
        self, argv: Sequence[str], timeout: timedelta, cwd: Path, env: Mapping[str, str] | None = None
    ) -> None:
        self._argv = tuple(argv)
        self._seconds = timeout.total_seconds()
        self._cwd = cwd
        self._env = env

    async def answer(self, inquiry: Inquiry) -> str:
        """As `Responder` says."""
        who = f"{inquiry.role} (command)"
        children = self._started(who)
        pipes = Pipes(children.stdin, children.stdout, _message(inquiry), MOST, children.kill)
        began, code = time.monotonic(), None
        try:
            async with time_limit(self._seconds):
                code = await children.ended()
        except TimeoutError:
            raise AgentError(f"{who} did not end within {self._seconds:g} s") from None
        finally:
            children.kill()
            said = pipes.close()
            gone = await children.gone(_LAST_WAIT)
            seconds = round(time.monotonic() - began, 3)
            log = _log.bind(id=inquiry.clarification, role=inquiry.role, seconds=seconds, code=code)
            log.info("a command ended") if gone else log.error("a command that was killed does not end")
        return _answer(who, code, said, too_long=pipes.is_over)

    def _started(self, who: str) -> Children:
        try:
            return Children(self._argv, self._cwd, read_environment() if self._env is None else self._env)
        except OSError as error:
            what = self._argv[0] if self._cwd.is_dir() else self._cwd
            raise AgentError(f"{who} cannot be started: {what}: {error.strerror}") from error
        except ValueError as error:
            raise AgentError(
                f"{who} cannot be started: it has a character that no command may have"
            ) from error


def _message(inquiry: Inquiry) -> bytes:
    """In ASCII, so that no character can break it, with a line end for those that read lines."""
    return json.dumps(inquiry.as_json()).encode() + b"\n"


def _answer(who: str, code: int, said: bytes, *, too_long: bool) -> str:
    if too_long:
        raise AgentError(f"{who} gave more than {MOST // 1024} KiB")
    if code < 0:
        raise AgentError(f"{who} was ended by {_signal(-code)}")
    if code > 0:
        raise AgentError(f"{who} ended with exit code {code}")
    try:
        answer = said.decode("utf-8-sig").strip()
    except UnicodeDecodeError:
        raise AgentError(f"{who} gave an answer that is not UTF-8") from None
    if not answer:
        raise AgentError(f"{who} gave no answer: it wrote nothing on standard output")
    return answer


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
