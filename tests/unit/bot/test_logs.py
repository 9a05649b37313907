from __future__ import annotations

import json
import logging
import os
import sys
from collections.abc import Iterator
from contextlib import suppress

import pytest
import structlog
from pydantic import ValidationError

from bot.logs import QueuedHandler, configure_logging, keeps_payloads_out, redact, without_secrets
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
        "error": ValueError("xapp-1-2"),
        "other": {"ok": True, "none": None},
    }
    assert redact(None, "info", event) == {
        "event": "posted [redacted]",
        "reply_token": "[redacted]",
        "headers": {"Authorization": "[redacted]", "x": ["Bearer [redacted]", 3]},
        "error": "[redacted]",
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


def record(words: str) -> logging.LogRecord:
    return logging.LogRecord("clarify", logging.INFO, __file__, 0, words, (), None)


def test_lines_that_nobody_reads_in_time_are_counted_and_told() -> None:
    reading, writing = os.pipe()
    handler = QueuedHandler(writing, room=3, patience=0.05)
    os.set_blocking(writing, False)  # as somebody who shares it may do
    with suppress(BlockingIOError):
        while True:
            os.write(writing, b"?" * 4096)
    with suppress(BlockingIOError):
        while True:
            os.write(writing, b"?")
    for number in range(10):
        handler.emit(record(f"line {number}"))
    handler.flush()  # returns though nobody reads
    assert handler.dropped == handler.missing
    assert handler.dropped in {6, 7}  # 3 wait, and one may be in the writer's hand
    with os.fdopen(reading, "rb") as reader:
        said = b""
        while b"dropped" not in said:
            handler.emit(record("one more"))
            said += os.read(reader.fileno(), 65536)
            said = said.lstrip(b"?")
        handler.flush()
    lines = said.decode().splitlines()
    assert "line 0" in lines
    assert any("log lines were dropped" in line for line in lines)
    assert handler.missing == 0
    assert handler.dropped >= 6
    os.close(writing)


def test_reader_that_went_away_counts_as_lines_dropped() -> None:
    reading, writing = os.pipe()
    handler = QueuedHandler(writing)
    os.close(reading)
    handler.emit(record("nobody hears it"))
    handler.flush()
    assert handler.dropped == 1
    os.close(writing)
