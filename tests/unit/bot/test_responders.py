"""Roles that answer by a command (real processes, small programs written for each case) or over HTTP (a real server)."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import sys
import textwrap
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import psutil
import pytest
import structlog
from aiohttp import web
from pydantic import SecretStr

from bot.responders import MOST, CommandResponder, HttpResponder, responders_of
from bot.settings.model import ResponderSettings
from core.clarification import Kind
from core.errors import AgentError
from core.hub import Inquiry
from core.transitions import amended
from tests.kit.builders import record
from tests.kit.served import served
from tests.kit.until import until

QUESTION = "Which w1re format?"
LONG = timedelta(seconds=60)


@pytest.fixture
def inquiry() -> Inquiry:
    return Inquiry(record(to="architect", question=QUESTION, topic="formats"))


def with_facts(inquiry: Inquiry, **facts: object) -> Inquiry:
    record = inquiry.record
    return Inquiry(amended(record, **facts))


# from configuration to responders


SHOW = "import json, os; print(json.dumps(dict(os.environ)))"


async def test_command_sees_its_environment_alone_without_our_secrets(
    tmp_path: Path, inquiry: Inquiry, monkeypatch: pytest.MonkeyPatch
) -> None:
    environ = {"SLACK_BOT_TOKEN": "xoxb-1", "REVIEWER_TOKEN": "s3cret", "HOME": "/home/agent"}
    settings = {
        "architect": ResponderSettings.model_validate({"command": [sys.executable, "-S", "-c", SHOW]})
    }
    monkeypatch.setattr("bot.responders.read_environment", lambda: environ)
    built = responders_of(settings, {"REVIEWER_TOKEN": SecretStr("s3cret")}, tmp_path)
    seen = json.loads(await built["architect"].answer(inquiry))
    assert seen["HOME"] == "/home/agent"
    assert not seen.keys() & {"SLACK_BOT_TOKEN", "REVIEWER_TOKEN", "PATH"}


# commands


def program(folder: Path, text: str) -> list[str]:
    """A Python program as a command; without site, it starts quickly."""
    path = folder / "agent.py"
    path.write_text(textwrap.dedent(text))
    return [sys.executable, "-S", "-E", str(path)]


def responder(
    folder: Path, text: str, timeout: timedelta = LONG, env: Mapping[str, str] | None = None
) -> CommandResponder:
    return CommandResponder(program(folder, text), timeout, folder, os.environ if env is None else env)


_others: set[int] = set()


@pytest.fixture(autouse=True)
def _notes_the_children_of_others() -> None:
    """Servers from which tests fork theirs, and a browser, stay until all tests are over."""
    _others.clear()
    _others.update(each.pid for each in psutil.Process().children())


def ours() -> list[psutil.Process]:
    """The test's own children, zombies too."""
    return [each for each in psutil.Process().children() if each.pid not in _others]


def is_gone(pid: int) -> bool:
    """Dead, whoever has to reap it."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def pid_in(path: Path) -> int:
    with suppress(FileNotFoundError, ValueError):
        return int(path.read_text())
    return 0


async def test_command_gets_json_and_its_output_is_the_answer(tmp_path: Path, inquiry: Inquiry) -> None:
    echo = """
        import json, os, sys
        told = json.loads(sys.stdin.buffer.read().decode("utf-8"))
        print("  " + told["question"], told["clarificationId"], os.getcwd(), "süß  ")
    """
    # In UTF-8, whatever the surroundings say.
    argv = [sys.executable, "-X", "utf8", *program(tmp_path, echo)[1:]]
    answer = await CommandResponder(argv, LONG, tmp_path, {}).answer(inquiry)
    assert answer == f"{inquiry.record.question} CLR-42-001 {tmp_path} süß"
    assert not ours()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("import sys; print('JSON'); sys.exit(3)", "ended with exit code 3"),
        ("import os; os.kill(os.getpid(), 11)", "was ended by SIGSEGV"),
        ("import os; os.kill(os.getpid(), 40)", "was ended by signal 40"),
        ("print('  ')", "gave no answer: it wrote nothing on standard output"),
        ("import sys; sys.stdout.buffer.write(b'caf\\xe9')", "gave an answer that is not UTF-8"),
        (f"print('x' * {MOST})", "gave more than 64 KiB"),
        ("while True: print('x' * 4096)", "gave more than 64 KiB"),
    ],
)
async def test_command_failures_say_what_happened(
    tmp_path: Path, inquiry: Inquiry, text: str, message: str
) -> None:
    with pytest.raises(AgentError) as failed:
        await responder(tmp_path, text).answer(inquiry)
    assert str(failed.value) == f"architect (command) {message}"
    assert not ours()


LATE = "import json, sys; print('x' * 60000); print(len(json.load(sys.stdin)['context']))"


@pytest.mark.parametrize(
    ("text", "context", "answer"),
    [
        (f"import sys; sys.stdout.write('x' * {MOST})", "", "x" * MOST),
        ("print('JSON')", "x" * 500_000, "JSON"),  # its input is more than a pipe holds
        ("import os; os.close(0); print('JSON')", "x" * 500_000, "JSON"),
        (LATE, "ü" * 300_000, "x" * 60_000 + "\n300000"),
    ],
    ids=["64 KiB", "reads nothing", "closes its input", "reads late"],
)
async def test_command_answers_however_it_reads(
    tmp_path: Path, inquiry: Inquiry, text: str, context: str, answer: str
) -> None:
    assert await responder(tmp_path, text).answer(with_facts(inquiry, context=context)) == answer


@pytest.mark.parametrize(
    ("argv", "folder", "message"),
    [
        (["./no-such-agent"], ".", "./no-such-agent: No such file or directory"),
        (["/"], ".", "/: Permission denied"),
        (["a\0b"], ".", "it has a character that no command may have"),
        (["true"], "gone", "gone: No such file or directory"),
    ],
)
async def test_command_that_cannot_be_started(
    tmp_path: Path, inquiry: Inquiry, argv: list[str], folder: str, message: str
) -> None:
    with pytest.raises(AgentError) as failed:
        await CommandResponder(argv, LONG, tmp_path / folder, {}).answer(inquiry)
    assert (
        str(failed.value).replace(f"{tmp_path}/", "") == f"architect (command) cannot be started: {message}"
    )


STUBBORN = """
    import os, signal, subprocess, sys, time
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    child = subprocess.Popen([sys.executable, "-S", "-E", "-c",
        "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"])
    with open("child.new", "w") as file:
        file.write(str(child.pid))
    os.replace("child.new", "child.pid")
    {then}
"""


async def test_command_over_its_time_is_killed_with_its_children(tmp_path: Path, inquiry: Inquiry) -> None:
    """Though all of them ignore SIGTERM, and hold the pipes."""
    agent = responder(tmp_path, STUBBORN.format(then="time.sleep(600)"), timedelta(seconds=0.4))
    with pytest.raises(AgentError) as failed:
        await agent.answer(inquiry)
    assert str(failed.value) == "architect (command) did not end within 0.4 s"
    child = pid_in(tmp_path / "child.pid")
    if child:  # it got as far within its time
        await until(lambda: is_gone(child))
    assert not ours()


async def test_command_stopped_while_it_runs_is_killed_with_its_children(
    tmp_path: Path, inquiry: Inquiry
) -> None:
    work = asyncio.create_task(responder(tmp_path, STUBBORN.format(then="time.sleep(600)")).answer(inquiry))
    await until(lambda: pid_in(tmp_path / "child.pid"))
    for _ in range(2):
        work.cancel()
        await asyncio.sleep(0)
    with pytest.raises(asyncio.CancelledError):
        await work
    await until(lambda: is_gone(pid_in(tmp_path / "child.pid")) and not ours())


async def test_command_that_ends_leaves_no_children_and_waits_for_none(
    tmp_path: Path, inquiry: Inquiry
) -> None:
    """They hold its output open: the answer does not wait for that."""
    began = time.monotonic()
    assert await responder(tmp_path, STUBBORN.format(then="print('JSON')")).answer(inquiry) == "JSON"
    assert time.monotonic() - began < 60, "they would have slept for ten minutes"
    await until(lambda: is_gone(pid_in(tmp_path / "child.pid")))
    assert not ours()


DAEMON = """
    import os, sys, time
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            with open("child.new", "w") as file:
                file.write(str(os.getpid()))
            os.replace("child.new", "child.pid")
            time.sleep(600)
        os._exit(0)
    while not os.path.exists("child.pid"):
        time.sleep(0.01)
    print("JSON", flush=True)
"""


async def test_command_that_leaves_a_daemon_is_not_waited_for(
    tmp_path: Path, inquiry: Inquiry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It left the process group, and holds the output open."""
    monkeypatch.setattr("bot.responders._OUTPUT_WAIT", 0.1)
    assert await responder(tmp_path, DAEMON).answer(inquiry) == "JSON"
    os.kill(pid_in(tmp_path / "child.pid"), signal.SIGKILL)


async def test_command_logs_an_envelope_only(tmp_path: Path, inquiry: Inquiry) -> None:
    text = "import sys; said = sys.stdin.read(); print('s3cret'); print(said, file=sys.stderr); sys.exit(3)"
    with structlog.testing.capture_logs() as logs, pytest.raises(AgentError):
        await responder(tmp_path, text).answer(inquiry)
    (line,) = logs
    assert line.pop("seconds") >= 0
    assert line == {
        "event": "responder command ended", "log_level": "info", "id": "CLR-42-001", "role": "architect", "code": 3,
    }  # fmt: skip


# endpoints


TOKEN = "t0p-s3cret-token"
PLAIN, JSON = "text/plain; charset=utf-8", "application/json"


class Endpoint:
    """An agent's server; `then` makes the responses."""

    def __init__(self) -> None:
        self.requests: list[web.Request] = []
        self.bodies: list[Any] = []
        self.gone = 0
        self.status, self.body, self.type = 200, b'{"answer": "JSON"}', JSON
        self.headers: dict[str, str] = {}
        self.hangs, self.dribbles = False, False
        self.url = ""

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.requests.append(request)
        self.bodies.append(await request.json() if request.can_read_body else None)
        if self.hangs:
            await self._hang()
        headers = {"Content-Type": self.type, **self.headers}
        if not self.dribbles:
            return web.Response(status=self.status, body=self.body, headers=headers)
        response = web.StreamResponse(headers=headers)
        await response.prepare(request)
        await response.write(b'{"ans')
        await self._hang()
        return response

    async def _hang(self) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            self.gone += 1

    def responder(
        self, timeout: timedelta = LONG, token: str | None = TOKEN, path: str = "/ask"
    ) -> HttpResponder:
        return HttpResponder(self.url + path, None if token is None else SecretStr(token), timeout)


@pytest.fixture
async def endpoint() -> AsyncIterator[Endpoint]:
    found = Endpoint()
    async with served(found.handle) as found.url:
        yield found


async def test_http_posts_json_with_the_token(endpoint: Endpoint, inquiry: Inquiry) -> None:
    assert await endpoint.responder().answer(inquiry) == "JSON"
    (request,) = endpoint.requests
    assert (request.method, request.path) == ("POST", "/ask")
    assert request.headers["Authorization"] == f"Bearer {TOKEN}"
    assert request.headers["Content-Type"] == "application/json"
    assert endpoint.bodies == [inquiry.as_json()]


async def test_http_without_a_token(endpoint: Endpoint, inquiry: Inquiry, tmp_path: Path) -> None:
    settings = {"architect": ResponderSettings.model_validate({"http": f"{endpoint.url}/ask"})}
    assert await responders_of(settings, {}, tmp_path)["architect"].answer(inquiry) == "JSON"
    assert "Authorization" not in endpoint.requests[0].headers


@pytest.mark.parametrize(
    ("sent", "kinds", "answer"),
    [
        ((JSON, b'{"answer": " JSON "}'), ("freetext",), " JSON "),
        ((JSON, b'{"answer": true}'), ("yes_no",), "yes"),
        ((JSON, b'{"answer": false}'), ("yes_no",), "no"),
        ((JSON, b'{"answer": 1200}'), ("numeric",), "1200"),
        ((JSON, b'{"answer": 1.234}'), ("freetext",), "1.234"),
        ((PLAIN, "süß\n".encode()), ("freetext",), "süß"),
        ((PLAIN, b"x" * MOST), ("freetext",), "x" * MOST),
    ],
)
async def test_http_answers(
    endpoint: Endpoint, inquiry: Inquiry, sent: tuple[str, bytes], kinds: tuple[Kind, ...], answer: str
) -> None:
    endpoint.type, endpoint.body = sent
    assert await endpoint.responder().answer(with_facts(inquiry, kinds=kinds)) == answer


NO_ANSWER = 'gave JSON without "answer": a string, number or boolean'


@pytest.mark.parametrize(
    ("sent", "message"),
    [
        ((500, JSON, b'{"answer": "JSON"}'), "answered HTTP 500"),
        ((401, PLAIN, b""), "refuses our token (HTTP 401)"),
        ((204, JSON, b""), "gave no answer: the response is empty"),
        ((200, JSON, b'{"answer": " "}'), "gave no answer: it is empty"),
        ((200, "text/html", b"<p>JSON</p>"), "gave an answer that is not application/json or text/plain"),
        ((200, PLAIN, b"caf\xe9"), "gave an answer that is not UTF-8"),
        ((200, JSON, b"{"), NO_ANSWER),
        ((200, JSON, b'{"answer": 1e999}'), NO_ANSWER),
        ((200, JSON, b'{"answer": ["JSON"]}'), NO_ANSWER),
        ((200, PLAIN, b"x" * 20_000_000), "gave more than 64 KiB"),
    ],
)
async def test_http_failures_say_what_happened(
    endpoint: Endpoint, inquiry: Inquiry, sent: tuple[int, str, bytes], message: str
) -> None:
    endpoint.status, endpoint.type, endpoint.body = sent
    with pytest.raises(AgentError) as failed:
        await endpoint.responder().answer(inquiry)
    assert str(failed.value) == f"architect (http) {message}"


@pytest.mark.parametrize("status", [302, 308])
async def test_http_redirects_are_not_followed(endpoint: Endpoint, inquiry: Inquiry, status: int) -> None:
    endpoint.status, endpoint.headers = status, {"Location": f"{endpoint.url}/elsewhere"}
    with pytest.raises(AgentError, match=rf"redirects \(HTTP {status}\)"):
        await endpoint.responder().answer(inquiry)
    assert [request.path for request in endpoint.requests] == ["/ask"]


@pytest.mark.parametrize("fault", ["hangs", "dribbles"])
async def test_http_an_answer_that_takes_too_long(endpoint: Endpoint, inquiry: Inquiry, fault: str) -> None:
    setattr(endpoint, fault, True)
    with pytest.raises(AgentError) as failed:
        await endpoint.responder(timedelta(seconds=0.2)).answer(inquiry)
    assert str(failed.value) == "architect (http) did not answer within 0.2 s"


@pytest.mark.parametrize(
    ("token", "status"),
    [
        (TOKEN, 200),
        (TOKEN, 500),
        (f"{TOKEN}\r\nX: 1", 200),
    ],
)
async def test_http_token_and_words_are_in_no_log_and_no_message(
    endpoint: Endpoint, inquiry: Inquiry, token: str, status: int, caplog: pytest.LogCaptureFixture
) -> None:
    endpoint.status, endpoint.body = status, json.dumps({"answer": "s3cret answer"}).encode()
    said = ""
    with caplog.at_level(logging.DEBUG), structlog.testing.capture_logs() as logs:
        try:
            await endpoint.responder(token=token).answer(inquiry)
        except AgentError as error:
            said = f"{error!r} {error.__cause__!r}"
    everything = f"{said} {caplog.text} {logs} {vars(endpoint.responder(token=token))}"
    for secret in (TOKEN, "s3cret answer", inquiry.record.question):
        assert secret not in everything
    assert [line["id"] for line in logs] == (["CLR-42-001"] if token.isprintable() else [])
