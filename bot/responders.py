"""Roles that answer through a command or over HTTP: the bot sends the question as JSON and gets the answer as text."""

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
from bot.settings.load import read_environment
from bot.settings.model import ResponderSettings, Settings
from core.errors import AgentError
from core.hub import Inquiry, Responder

_log = structlog.get_logger("clarify.responders")
MOST = 64 * 1024  # bytes of an answer
_SLACK_SECRETS = frozenset({"SLACK_BOT_TOKEN", "SLACK_APP_TOKEN", "SLACK_SIGNING_SECRET"})
_KILL_WAIT = 5.0  # seconds; a process that hangs in the kernel outlives SIGKILL
_OUTPUT_WAIT = 1.0  # seconds to read the output of a process that ended, in case a daemon holds it open
_TYPES = "application/json or text/plain"
# "1.234" is ambiguous (thousands or decimals), and the bot would ask back. In JSON it always means decimals.
_THREE_DECIMALS = re.compile(r"-?\d+\.\d{3}")


def responders_of(
    settings: Mapping[str, ResponderSettings],
    secrets: Mapping[str, SecretStr],
    folder: Path,
) -> dict[str, Responder]:
    """Returns the responder of each role that people do not answer for.

    Args:
        settings: the `[responders.<role>]` tables.
        secrets: by environment variable; commands get the process's environment without them.
        folder: the working directory of commands.

    Raises:
        ConfigurationError: the token of an endpoint is not among the secrets.
    """
    ours = _SLACK_SECRETS | secrets.keys()
    env = {name: value for name, value in read_environment().items() if name not in ours}
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
    """Runs `argv` without a shell for each question; drops its standard error.

    Exit code 0 and UTF-8 output of at most 64 KiB are an answer. When the command ends, exceeds `timeout` or is
    cancelled, its process group is killed; only processes that left the group, like daemons, stay. `env` is its whole
    environment.
    """

    argv: Sequence[str]
    timeout: timedelta
    cwd: Path
    env: Mapping[str, str]

    async def answer(self, inquiry: Inquiry) -> str:
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
        return _output_as_answer(who, code, bytes(run.output))

    async def _start(self, who: str, inquiry: Inquiry) -> _CommandRun:
        try:
            _, run = await asyncio.get_running_loop().subprocess_exec(
                lambda: _CommandRun(inquiry),
                *self.argv,  # from the configuration, never from an agent
                cwd=self.cwd,
                env=self.env,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,  # it may repeat the question, which must not be logged
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


class _CommandRun(asyncio.SubprocessProtocol):
    """One run of a command as leader of a process group: writes the question, collects the output.

    `ended` gets the exit code, negative for a signal, even if children still hold the pipes.
    """

    def __init__(self, inquiry: Inquiry) -> None:
        loop = asyncio.get_running_loop()
        self.ended: asyncio.Future[int] = loop.create_future()
        self.output = bytearray()
        self._output_ended: asyncio.Future[None] = loop.create_future()
        # With a line end, for commands that read lines.
        self._message = json.dumps(inquiry.as_json()).encode() + b"\n"

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._process = cast("asyncio.SubprocessTransport", transport)
        stdin = cast("asyncio.WriteTransport", self._process.get_pipe_transport(0))
        stdin.write(self._message)  # the command may ignore it
        stdin.close()

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        self.output += data
        if len(self.output) > MOST:
            self._kill()
            self._close_pipe(fd)

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's signature
        if fd == 1 and not self._output_ended.done():
            self._output_ended.set_result(None)

    def process_exited(self) -> None:
        self._kill()  # its children
        if not self.ended.done():
            self.ended.set_result(cast("int", self._process.get_returncode()))

    async def close(self) -> bool:
        """Kills the group and reads the remaining output; returns whether the command is gone."""
        try:
            if not self.ended.done():
                self._kill()
                await asyncio.wait({self.ended}, timeout=_KILL_WAIT)
            if self.ended.done():
                await asyncio.wait({self._output_ended}, timeout=_OUTPUT_WAIT)
            return self.ended.done()
        finally:
            self._process.close()

    def _kill(self) -> None:
        # Some systems refuse if only the dead process is left in the group.
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.get_pid(), signal.SIGKILL)

    def _close_pipe(self, fd: int) -> None:
        pipe = self._process.get_pipe_transport(fd)
        if pipe is not None:
            pipe.close()


def _output_as_answer(who: str, code: int, output: bytes) -> str:
    if len(output) > MOST:
        raise AgentError(f"{who} gave more than {MOST // 1024} KiB")
    if code < 0:
        raise AgentError(f"{who} was ended by {_signal(-code)}")
    if code > 0:
        raise AgentError(f"{who} ended with exit code {code}")
    answer = _decoded(who, output)
    if not answer:
        raise AgentError(f"{who} gave no answer: it wrote nothing on standard output")
    return answer


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _decoded(who: str, output: bytes) -> str:
    try:
        return output.decode("utf-8-sig").strip()
    except UnicodeDecodeError:
        raise AgentError(f"{who} gave an answer that is not UTF-8") from None


# Endpoints


@dataclass(frozen=True)
class HttpResponder:
    """Posts each question to `url` with the bearer token `token`; `timeout` limits the whole exchange.

    A 2xx response is the answer: JSON `{"answer": …}` with a string, number or boolean, or plain text, at most 64 KiB.
    """

    url: str
    token: SecretStr | None
    timeout: timedelta

    async def answer(self, inquiry: Inquiry) -> str:
        who, began = f"{inquiry.role} (http)", time.monotonic()
        token = None if self.token is None else self.token.get_secret_value()
        if token is not None and not token.isprintable():
            # Checked here, before a library can quote it in its logs.
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
        """Returns the media type and the body of a 2xx response."""
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
        message = json.loads(text, parse_constant=lambda _: None)
    except (ValueError, RecursionError):
        return None
    return _as_typed(message.get("answer"), inquiry) if isinstance(message, dict) else None


def _as_typed(value: Any, inquiry: Inquiry) -> str | None:
    """Returns a value as a person would type it; None unless it is a string, number or boolean."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, (int, float)) and math.isfinite(value):
        typed = str(value)
        is_ambiguous = "numeric" in inquiry.record.asked.kinds and _THREE_DECIMALS.fullmatch(typed)
        return f"{typed}0" if is_ambiguous else typed
    return value if isinstance(value, str) else None


def check_commands(settings: Settings) -> Iterator[CheckResult]:
    for role, responder in settings.responders.items():
        if responder.command is None:
            continue
        subject, name = f"responders.{role}.command", responder.command[0]
        # As it will be run: a path is relative to the configuration's folder, a bare name is looked up in PATH.
        found = shutil.which(str(settings.file.parent / name) if "/" in name else name)
        if found is None:
            yield wrong(subject, f"{name} is not an executable program", "install it, or give its full path")
        else:
            yield right(subject, f"runs {found}")
