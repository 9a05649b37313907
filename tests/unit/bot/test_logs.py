from __future__ import annotations

import errno
import json
import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress

import pytest
import structlog
from pydantic import ValidationError
from structlog.typing import EventDict

from bot.logs import Layout, QueuedHandler, configure_logging, keeps_payloads_out, redact, without_secrets
from core.clarification import Clarification


@pytest.fixture(autouse=True)
def _restore_logging() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers, root.level
    yield
    root.handlers = handlers
    root.setLevel(level)
    logging.captureWarnings(False)
    structlog.reset_defaults()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("token xoxb-12-ab-Cd refused", "token [redacted] refused"),
        ("xapp-1-A0-99-abcdef", "[redacted]"),
        ("(xoxp-1-2)", "([redacted])"),
        ("xoxe.xoxp-1-Mi0y", "[redacted]"),
        ("Authorization: Bearer abc.def-ghi", "Authorization: Bearer [redacted]"),
        (
            "wss://wss-primary.slack.com/link/?ticket=1-2-3&app_id=4",
            "wss://wss-primary.slack.com/link/?ticket=[redacted]&app_id=4",
        ),
        ("http://u:p4ss@host/x", "http://[redacted]@host/x"),
        ("https://hooks.slack.com/actions/T0/1/abc", "https://hooks.slack.com/[redacted]"),
        ("https://a.example/?access_token=abc", "https://a.example/?access_token=[redacted]"),
        ("fox-trot, boxoffice-1, ticket 12, tokens=3", "fox-trot, boxoffice-1, ticket 12, tokens=3"),
    ],
)
def test_without_secrets_table(text: str, expected: str) -> None:
    assert without_secrets(text) == expected


def test_redact_goes_into_nested_fields_and_names_of_secrets() -> None:
    event = {
        "event": "posted xoxb-1",
        "reply_token": "opaque",
        "headers": {"Authorization": "abc", "x": ["Bearer abc", 3]},
        "other": {"ok": True, "none": None},
    }
    assert redact(event) == {
        "event": "posted [redacted]",
        "reply_token": "[redacted]",
        "headers": {"Authorization": "[redacted]", "x": ["Bearer [redacted]", 3]},
        "other": {"ok": True, "none": None},
    }


@pytest.mark.parametrize(
    ("name", "level", "kept"),
    [
        ("slack_bolt.AsyncApp", logging.DEBUG, False),
        ("slack_sdk", logging.WARNING, True),
        ("aiohttp.access", logging.INFO, False),
        ("bot.app", logging.DEBUG, True),
    ],
)
def test_payloads_of_libraries_stay_out(name: str, level: int, *, kept: bool) -> None:
    record = logging.LogRecord(name, level, "file", 1, "message", None, None)
    assert keeps_payloads_out(record) is kept


def test_json_lines_for_our_and_foreign_events(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging("info", json=True)
    structlog.get_logger("bot.test").info("card posted", channel="C1", token="xoxb-1")
    structlog.get_logger("bot.test").debug("not shown")
    foreign = logging.getLogger("slack_bolt.AsyncApp")
    foreign.setLevel(logging.DEBUG)  # as Bolt does
    foreign.debug("payload")
    foreign.warning("refused xoxb-1-2")
    ours, theirs = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert (ours["event"], ours["channel"], ours["token"], ours["level"]) == (
        "card posted",
        "C1",
        "[redacted]",
        "info",
    )
    assert list(ours)[:4] == ["timestamp", "level", "logger", "event"]
    assert ours["logger"] == "bot.test"
    assert ours["timestamp"].endswith("Z")
    assert (theirs["event"], theirs["level"], theirs["logger"]) == (
        "refused [redacted]",
        "warning",
        "slack_bolt.AsyncApp",
    )


@pytest.mark.parametrize("as_json", [True, False])
def test_tracebacks_show_no_tokens_and_no_local_variables(
    capsys: pytest.CaptureFixture[str], *, as_json: bool
) -> None:
    configure_logging("info", json=as_json)
    question = "launch the rocket"[::-1]
    token = "xoxb-1-2"
    try:
        int(f"{len(question)} {token}")
    except ValueError:
        structlog.get_logger("bot.test").exception("task died")
    written = capsys.readouterr().err
    assert "ValueError" in written
    assert token not in written
    assert question not in written


def test_default_is_json_when_stderr_is_no_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    configure_logging()
    structlog.get_logger("bot.test").info("one")
    assert json.loads(capsys.readouterr().err)["event"] == "one"
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    configure_logging()
    structlog.get_logger("bot.test").info("two")
    assert "two" in capsys.readouterr().err


def test_traceback_of_a_library_keeps_its_input_out(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging("info", json=True)
    try:
        Clarification.model_validate({"id": "what the agent asked"})
    except ValidationError:
        structlog.get_logger("bot.test").exception("task died")
    told = capsys.readouterr().err
    assert "what the agent asked" not in told
    assert "ValidationError" in told
    assert "test_logs.py" in told


def test_traceback_of_a_group_says_what_broke_in_it(capsys: pytest.CaptureFixture[str]) -> None:
    """Parts of the bot run as groups of tasks: of one that died the group alone says nothing."""
    configure_logging(json=True)

    def breaks() -> None:
        raise KeyError("what was asked")

    try:
        try:
            breaks()
        except KeyError as error:
            raise ExceptionGroup("of tasks", [error]) from None
    except ExceptionGroup:
        structlog.get_logger("t").exception("died")
    told = json.loads(capsys.readouterr().err)["exception"]
    assert "in breaks" in told
    assert told.endswith("KeyError")
    assert "what was asked" not in told


class Pipe:
    """What a handler writes into."""

    def __init__(self) -> None:
        self.reading, self.writing = os.pipe()

    def read(self) -> list[str]:
        """What is there now; waits for the first of it."""
        return os.read(self.reading, 65536).decode().splitlines()


@pytest.fixture
def pipe() -> Iterator[Pipe]:
    made = Pipe()
    yield made
    for descriptor in (made.reading, made.writing):
        with suppress(OSError):
            os.close(descriptor)


class Mutable:
    """Something whose words change."""

    def __init__(self, words: str) -> None:
        self.words = words

    def __repr__(self) -> str:
        return f"<{self.words}>"


def handler_of(
    pipe: Pipe, as_line: Layout = str, *, room: int = 10_000, patience: float = 10
) -> QueuedHandler:
    return QueuedHandler(pipe.writing, as_line, room=room, patience=patience)


def words_of(event: EventDict) -> str:
    return str(event["event"])


def record(words: str, level: int = logging.INFO, **fields: object) -> logging.LogRecord:
    made = logging.LogRecord("clarify", level, __file__, 0, words, (), None)
    made.clarify_fields = fields
    return made


def test_values_are_logged_as_they_were_at_the_call(pipe: Pipe) -> None:
    handler = handler_of(pipe, lambda event: json.dumps(event, default=repr))
    names, nested, foreign = ["ann"], {"who": {"bob"}}, Mutable("before")
    error = ValueError("before")
    made = record("said", names=names, nested=nested, foreign=foreign, error=error, timestamp="no time")
    handler.handle(made)
    names.append("late")
    nested["who"].add("late")
    foreign.words = "late"
    error.args = ("late",)
    handler.flush()
    (line,) = pipe.read()
    said = json.loads(line)
    assert (said["names"], said["nested"], said["foreign"], said["error"]) == (
        ["ann"],
        {"who": ["bob"]},
        "<before>",
        "before",
    )
    assert said["timestamp"] == made.created


def test_traceback_is_that_of_the_call(pipe: Pipe) -> None:
    handler = handler_of(pipe, lambda event: event["exception"].replace("\n", "|"))
    made = record("died")

    def again(error: Exception) -> None:
        raise error

    try:
        int("x")
    except ValueError as error:
        made.exc_info = (type(error), error, error.__traceback__)
        handler.handle(made)
        with suppress(ValueError):
            again(error)
    handler.flush()
    (line,) = pipe.read()
    assert line.endswith("|ValueError")
    assert "in again" not in line


def test_line_that_cannot_be_made_is_counted_and_keeps_no_other_back(pipe: Pipe) -> None:
    class Unspeakable:
        def __repr__(self) -> str:
            raise KeyError

    def as_line(event: EventDict) -> str:
        if event["event"] == "odd":
            raise KeyError
        return words_of(event)

    handler = handler_of(pipe, as_line)
    handler.handle(record("no repr", foreign=Unspeakable()))
    handler.handle(record("odd"))
    handler.handle(record("fine"))
    handler.flush()
    assert pipe.read() == ["fine", "2 log lines were dropped: the reader of standard error is too slow"]
    assert (handler.dropped, handler.missing) == (2, 0)


def test_lines_that_nobody_reads_in_time_are_counted_and_told(pipe: Pipe) -> None:
    handler = handler_of(pipe, words_of, room=3, patience=0.05)
    os.set_blocking(pipe.writing, False)  # as somebody who shares it may do
    for length in (4096, 1):
        with suppress(BlockingIOError):
            while True:
                os.write(pipe.writing, b"?" * length)
    lines = 100
    for number in range(lines):
        handler.handle(record(f"line {number}"))
    handler.flush()  # returns though nobody reads
    dropped = handler.missing
    assert 0 < dropped == handler.dropped < lines
    said = b""
    while b"dropped" not in said:
        said += os.read(pipe.reading, 65536).lstrip(b"?")
        handler.flush()
    *kept, told = said.decode().splitlines()
    assert kept == [f"line {number}" for number in range(lines - dropped)]
    assert told == f"{dropped} log lines were dropped: the reader of standard error is too slow"
    handler.handle(record("room again"))
    assert pipe.read() == ["room again"]
    assert (handler.dropped, handler.missing) == (dropped, 0)


def test_lines_of_a_batch_that_were_written_are_not_counted_as_dropped(
    pipe: Pipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where a disk is full in the middle of it."""
    room = [len("first\nsec")]
    write = os.write

    def until_full(descriptor: int, content: bytes) -> int:
        if descriptor == pipe.writing and not room:
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(descriptor, content[: room.pop()] if descriptor == pipe.writing else content)

    handler = handler_of(pipe, words_of)
    monkeypatch.setattr(os, "write", until_full)
    for words in ("first", "second", "third"):
        handler.handle(record(words))
    handler.flush()
    assert pipe.read() == ["first", "sec"]
    assert handler.dropped == 2


@pytest.mark.parametrize("end", ["", "1 / 0"])
def test_lines_before_the_end_of_a_process_are_written(end: str) -> None:
    program = f"""
import structlog
from bot.logs import configure_logging

configure_logging(json=True, background=True)
structlog.get_logger("bot.test").info("last words", token="xoxb-1")
{end}
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert ended.returncode == bool(end)
    (line,) = [json.loads(each) for each in ended.stderr.splitlines() if each.startswith("{")]
    assert (line["event"], line["token"]) == ("last words", "[redacted]")
