"""Roles that answer by a command or over HTTP: the question goes out as JSON, the answer comes back in words."""

from __future__ import annotations

import asyncio
import json
import math
import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

import structlog
from pydantic import SecretStr

from bot.checks import CheckResult, right, wrong
from bot.errors import ConfigurationError
from bot.http import NETWORK, NOT_SENT, HttpClient, json_body, words
from bot.settings.environment import read_environment
from bot.settings.model import ResponderSettings, Settings
from core.dispatch import Inquiry, Responder
from core.errors import AgentError

_log = structlog.get_logger("clarify.responders")
MOST = 64 * 1024  # bytes of an answer
_SLACKS = frozenset({"SLACK_BOT_TOKEN", "SLACK_APP_TOKEN", "SLACK_SIGNING_SECRET"})
_LAST_WAIT = (
    5.0  # seconds, for what was killed to be gone: what hangs in the kernel outlives any signal for a while
)
_LAST_WORDS = 1.0  # seconds, for the output of what has ended to be read, should a daemon hold it open
_TYPES = "application/json or text/plain"
# What an answer's reader asks back: thousands, or decimals? A number of JSON is never the former.
_THREE_DECIMALS = re.compile(r"-?\d+\.\d{3}")


def responders_of(
    settings: Mapping[str, ResponderSettings],
    secrets: Mapping[str, SecretStr],
    folder: Path,
    environ: Mapping[str, str] | None = None,
) -> dict[str, Responder]:
    """What answers for each role, by role; those that people answer for are left out.

    Args:
        settings: the `[responders.<role>]` tables.
        secrets: our own, by the environment variables that the configuration names: no command gets to see them.
        folder: where commands run.
        environ: what commands get of the environment, but for our secrets; None: all of it.

    Raises:
        ConfigurationError: the token of an endpoint is not among the secrets.
    """
    ours = _SLACKS | secrets.keys()
    given = read_environment() if environ is None else environ
    env = {name: value for name, value in given.items() if name not in ours}
    built: dict[str, Responder] = {}
    for role, table in settings.items():
        if table.command is not None:
            built[role] = CommandResponder(table.command, table.timeout, folder, env)
        elif table.http is not None:
            token = None if table.token_env is None else secrets.get(table.token_env)
            if table.token_env is not None and token is None:
                raise ConfigurationError(
                    [f"responders.{role}.token_env: asks for {table.token_env}, which is not set"]
                )
            built[role] = HttpResponder(table.http, token, table.timeout)
    return built


# Commands


@dataclass(frozen=True)
class CommandResponder:
    """Runs `argv`, without a shell, for each question; what it says on standard error goes nowhere.

    Exit code 0 and words in UTF-8, at most 64 KiB, are an answer. When it ends, takes longer than `timeout` or is not
    needed any more, its process group is killed; only what left the group, as daemons do, stays. `env` is all of its
    environment.
    """

    argv: Sequence[str]
    timeout: timedelta
    cwd: Path
    env: Mapping[str, str]

    async def answer(self, inquiry: Inquiry) -> str:
        """As `Responder` says."""
        who = f"{inquiry.role} (command)"
        began, code = time.monotonic(), None
        run = await self._start(who, inquiry)
        try:
            async with asyncio.timeout(self.timeout.total_seconds()):
                code = await asyncio.shield(run.ended)
        except TimeoutError:
            raise AgentError(f"{who} did not end within {self.timeout.total_seconds():g} s") from None
        finally:
            gone = await run.close()
            seconds = round(time.monotonic() - began, 3)
            log = _log.bind(id=inquiry.record.id, role=inquiry.role, seconds=seconds, code=code)
            log.info("responder command ended") if gone else log.error(
                "killed responder command still running"
            )
        return _output_as_answer(who, code, bytes(run.said))

    async def _start(self, who: str, inquiry: Inquiry) -> _Run:
        try:
            _, run = await asyncio.get_running_loop().subprocess_exec(
                lambda: _Run(inquiry),
                *self.argv,  # what is run is configured, never what an agent says
                cwd=self.cwd,
                env=self.env,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,  # it may repeat the question, which has no place in logs
                start_new_session=True,
            )
        except OSError as error:
            what = self.argv[0] if self.cwd.is_dir() else self.cwd
            raise AgentError(f"{who} cannot be started: {what}: {error.strerror}") from error
        except ValueError as error:
            raise AgentError(
                f"{who} cannot be started: it has a character that no command may have"
            ) from error
        return run


class _Run(asyncio.SubprocessProtocol):
    """One run of a command, the leader of a process group: gets the question, keeps what is said.

    `ended` gets its exit code, negative for a signal, as soon as it ends, even if its children hold its pipes.
    """

    def __init__(self, inquiry: Inquiry) -> None:
        loop = asyncio.get_running_loop()
        self.ended: asyncio.Future[int] = loop.create_future()
        self.said = bytearray()
        self._said_all: asyncio.Future[None] = loop.create_future()
        # In ASCII, so that no character can break it, with a line end for those that read lines.
        self._message = json.dumps(inquiry.as_json()).encode() + b"\n"

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._process = cast("asyncio.SubprocessTransport", transport)
        stdin = cast("asyncio.WriteTransport", self._process.get_pipe_transport(0))
        stdin.write(self._message)  # that it does not read it is no failure
        stdin.close()

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        self.said += data
        if len(self.said) > MOST:
            self._kill()
            self._close_pipe(fd)

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's signature
        if fd == 1 and not self._said_all.done():
            self._said_all.set_result(None)

    def process_exited(self) -> None:
        self._kill()  # those that it leaves behind
        if not self.ended.done():
            self.ended.set_result(cast("int", self._process.get_returncode()))

    async def close(self) -> bool:
        """Kill what is left of it, read what was said until then; whether it is gone."""
        try:
            if not self.ended.done():
                self._kill()
                await asyncio.wait({self.ended}, timeout=_LAST_WAIT)
            if self.ended.done():
                await asyncio.wait({self._said_all}, timeout=_LAST_WORDS)
            return self.ended.done()
        finally:
            self._process.close()

    def _kill(self) -> None:
        # Some systems refuse where nothing but the dead process is left in the group.
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.get_pid(), signal.SIGKILL)

    def _close_pipe(self, fd: int) -> None:
        pipe = self._process.get_pipe_transport(fd)
        if pipe is not None:
            pipe.close()


def _output_as_answer(who: str, code: int, said: bytes) -> str:
    if len(said) > MOST:
        raise AgentError(f"{who} gave more than {MOST // 1024} KiB")
    if code < 0:
        raise AgentError(f"{who} was ended by {_signal(-code)}")
    if code > 0:
        raise AgentError(f"{who} ended with exit code {code}")
    answer = _decoded(who, said)
    if not answer:
        raise AgentError(f"{who} gave no answer: it wrote nothing on standard output")
    return answer


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _decoded(who: str, said: bytes) -> str:
    try:
        return said.decode("utf-8-sig").strip()
    except UnicodeDecodeError:
        raise AgentError(f"{who} gave an answer that is not UTF-8") from None


# Endpoints


@dataclass(frozen=True)
class HttpResponder:
    """Posts each question to `url`, with `token` as bearer token; `timeout` is for all of one exchange.

    A response 2xx is the answer: JSON `{"answer": …}` with a string, number or boolean, or plain text, at most 64 KiB.
    Redirects are not followed, for the token must not travel.
    """

    url: str
    token: SecretStr | None
    timeout: timedelta

    async def answer(self, inquiry: Inquiry) -> str:
        """As `Responder` says."""
        who, began = f"{inquiry.role} (http)", time.monotonic()
        token = None if self.token is None else self.token.get_secret_value()
        if token is not None and not token.isprintable():
            # Found here, where no library can quote it in its logs.
            raise AgentError(f"{who} cannot be asked: its token has a line end or a control character in it")
        try:
            async with asyncio.timeout(self.timeout.total_seconds()), HttpClient(token) as client:
                media_type, body = await self._exchange(client, who, inquiry)
        except NETWORK as error:
            if isinstance(error, TimeoutError) and not isinstance(error, NOT_SENT):
                raise AgentError(f"{who} did not answer within {self.timeout.total_seconds():g} s") from None
            raise AgentError(f"{who} cannot be asked: {words(error)}") from None
        finally:
            seconds = round(time.monotonic() - began, 3)
            _log.info("responder endpoint asked", id=inquiry.record.id, role=inquiry.role, seconds=seconds)
        return _body_as_answer(who, media_type, body, inquiry)

    async def _exchange(self, client: HttpClient, who: str, inquiry: Inquiry) -> tuple[str, bytes]:
        """The media type and the body of a response that may be an answer."""
        async with client.stream(
            "POST",
            self.url,
            json_body(inquiry.as_json()),
            headers={"Accept": "application/json, text/plain"},
            silence=None,
        ) as response:
            status = response.status
            if 300 <= status < 400:
                raise AgentError(f"{who} redirects (HTTP {status}); expected the address itself")
            if status in (401, 403):
                raise AgentError(f"{who} refuses our token (HTTP {status})")
            if not 200 <= status < 300:
                raise AgentError(f"{who} answered HTTP {status}")
            declared: str = response.headers.get("content-type", "")
            body = await response.body(MOST + 1)
            if len(body) > MOST:
                raise AgentError(f"{who} gave more than {MOST // 1024} KiB")
            return declared.partition(";")[0].strip().lower(), body


def _body_as_answer(who: str, media_type: str, body: bytes, inquiry: Inquiry) -> str:
    if not body.strip():
        raise AgentError(f"{who} gave no answer: the response is empty")
    if media_type not in {"application/json", "text/plain"}:
        raise AgentError(f"{who} gave an answer that is not {_TYPES}")
    text = _decoded(who, body)
    answer = text if media_type == "text/plain" else _from_json(text, inquiry)
    if answer is None:
        raise AgentError(f'{who} gave JSON without "answer": a string, number or boolean')
    if not answer.strip():
        raise AgentError(f"{who} gave no answer: it is empty")
    return answer


def _from_json(text: str, inquiry: Inquiry) -> str | None:
    try:
        said = json.loads(text, parse_constant=lambda _: None)
    except (ValueError, RecursionError):
        return None
    return _in_words(said.get("answer"), inquiry) if isinstance(said, dict) else None


def _in_words(value: Any, inquiry: Inquiry) -> str | None:
    """As a person would type it."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, (int, float)) and math.isfinite(value):
        typed = str(value)
        return (
            f"{typed}0"
            if "numeric" in inquiry.record.asked.kinds and _THREE_DECIMALS.fullmatch(typed)
            else typed
        )
    return value if isinstance(value, str) else None


def check_commands(settings: Settings) -> Iterator[CheckResult]:
    for role, responder in settings.responders.items():
        if responder.command is None:
            continue
        subject, name = f"responders.{role}.command", responder.command[0]
        # As it will be run: a path counts from the configuration's folder, a bare name is looked up.
        found = shutil.which(str(settings.file.parent / name) if "/" in name else name)
        if found is None:
            yield wrong(subject, f"{name} is not an executable program", "install it, or give its full path")
        else:
            yield right(subject, f"runs {found}")
