"""Structured logs on stderr: JSON lines, or readable text on a terminal. No contents, no secrets.

Our events and those of libraries (stdlib `logging`) take the same path, with `redact` as the last step. It cannot
recognize questions and answers, so never pass them to a logger: log types, ids, times and agents.
"""

from __future__ import annotations

import logging
import os
import queue
import re
import select
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, date, datetime
from json import JSONEncoder
from pathlib import PurePath
from traceback import walk_tb
from typing import Any

import structlog
from structlog.typing import EventDict, WrappedLogger

REDACTED = "[redacted]"
_FIELDS = "clarify_fields"  # the attribute of a log record that holds an event's fields
_SECRET_KEY = re.compile(
    r"(?:^|_)(?:token|secret|password|authorization|ticket|response_url)$", re.IGNORECASE
)
_SECRETS = (
    re.compile(r"\bxox[a-z]?(?:\.xox[a-z])?-[\w-]+|\bxapp-[\w-]+", re.IGNORECASE),
    re.compile(r"(?<=\bBearer )[^\s\"',;]+", re.IGNORECASE),
    re.compile(r"(?<=://)[^/@\s:]+:[^/@\s]+(?=@)"),
    re.compile(r"(?<=//hooks\.slack\.com/)[^\s\"'<>]+"),
    re.compile(
        r"(?<=[?&])((?:[a-z_]*(?:ticket|token|secret|password|signature)))=[^&\s\"'<>]+", re.IGNORECASE
    ),
)
_MOST_LINES = 200
_STDERR = 2
_ROOM = 10_000  # lines
_PATIENCE = 2.0  # seconds
_PAUSE = 0.05  # seconds: about as long as one question takes, so its lines are written together
_PAYLOADS_BELOW_WARNING = (
    *("slack_bolt", "slack_sdk", "aiohttp", "watchfiles", "asyncio"),
    *("apprise", "requests", "urllib3"),
)
Layout = Callable[[EventDict], str]
"""Formats an event as a line."""


def configure_logging(level: str = "info", *, json: bool | None = None, background: bool = False) -> None:
    """Sends all logs of this process to stderr.

    Args:
        level: debug, info, warning or error. Libraries whose debug logs hold payloads are never shown below warning.
        json: JSON lines or readable text; by default readable text on a terminal only.
        background: format and write in a thread instead of on the event loop; see `QueuedHandler`.
    """
    number = logging.getLevelNamesMapping()[level.upper()]
    as_line = _layout(as_json=not _is_terminal() if json is None else json)
    structlog.configure(
        processors=[_to_logging],
        wrapper_class=structlog.make_filtering_bound_logger(number),
        logger_factory=logging.getLogger,
        cache_logger_on_first_use=background,
    )
    handler: logging.Handler
    if background:
        handler = QueuedHandler(_STDERR, as_line)
    else:
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(_Formatter(as_line))
    handler.addFilter(keeps_payloads_out)
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(number)
    logging.captureWarnings(capture=True)


def _is_terminal() -> bool:
    return sys.stderr is not None and sys.stderr.isatty()  # None if closed


def _to_logging(_logger: WrappedLogger, _method: str, event: EventDict) -> tuple[tuple[str], dict[str, Any]]:
    """Returns a structlog event as the arguments of a `logging` call."""
    return (event.pop("event"),), {"exc_info": event.pop("exc_info", None), "extra": {_FIELDS: event}}


def captured(record: logging.LogRecord) -> EventDict:
    """Returns a record's event as immutable values, as another thread formats it later.

    Exceptions and everything else that is not plain data become text here.
    """
    event: EventDict = {
        "timestamp": record.created,
        "level": record.levelname.lower(),
        "logger": record.name,
        "event": record.getMessage(),
    }
    for key, value in getattr(record, _FIELDS, {}).items():
        event.setdefault(key, _plain(value))
    if record.exc_info and record.exc_info[1] is not None:
        event["exception"] = where_it_was_raised(record.exc_info[1])
    if record.stack_info:
        event["stack_info"] = record.stack_info
    return event


def _plain(value: object) -> object:
    """Returns a copy of `value` made of dicts, lists, strings and numbers only."""
    if type(value) is str or value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, Mapping):
        return {str(key): _plain(content) for key, content in value.items()}
    if isinstance(value, Sequence | set | frozenset) and not isinstance(value, str | bytes):
        return [_plain(item) for item in value]
    if isinstance(value, str | date | PurePath | BaseException):
        return str(value)
    return repr(value)


class _Formatter(logging.Formatter):
    def __init__(self, as_line: Layout) -> None:
        super().__init__()
        self._as_line = as_line

    def format(self, record: logging.LogRecord) -> str:
        return self._as_line(captured(record))


class QueuedHandler(logging.Handler):
    """Formats lines and writes them to a file descriptor in its own thread. A slow log reader never blocks the bot.

    A call only captures values. The thread wakes up for the first line, waits for those that follow, and writes all at
    once: `logging.handlers.QueueListener` would wake up for each.

    Lines are dropped and counted if too many are queued, or no one reads them. Once lines can be written again, one of
    them says how many are missing. At exit, `flush` waits only briefly.
    """

    def __init__(
        self,
        descriptor: int,
        as_line: Layout,
        room: int = _ROOM,
        patience: float = _PATIENCE,
        pause: float = _PAUSE,
    ) -> None:
        """`room`: the most queued lines. `patience`: seconds that `flush` waits. `pause`: seconds to wait for more lines."""
        super().__init__()
        self._descriptor = descriptor
        self._as_line = as_line
        self._room = room
        self._patience = patience
        self._pause = pause
        self._events: deque[EventDict | threading.Event] = deque()
        self._is_called = False  # the thread was woken, and has not emptied the queue yet
        # No lock: a finalizer may log a line in the middle of another call, and would deadlock on its own lock.
        self._call: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._refused = 0  # changed by callers, who hold the handler's lock; the others by the thread
        self._lost = self._reported = 0
        threading.Thread(target=self._run, name="log", daemon=True).start()

    def emit(self, record: logging.LogRecord) -> None:
        try:
            event = captured(record)
        except Exception:  # noqa: BLE001 - as in every logging handler, its errors are not the caller's
            self._refused += 1
            return
        if len(self._events) >= self._room:
            self._refused += 1
        else:
            self._put(event)

    def flush(self) -> None:
        """Waits until all lines are written, at most `patience` seconds."""
        written = threading.Event()
        self._put(written)
        written.wait(self._patience)

    @property
    def dropped(self) -> int:
        """How many lines were dropped since the process started."""
        return self._refused + self._lost

    @property
    def missing(self) -> int:
        """How many lines were dropped since a line last reported them."""
        return self.dropped - self._reported

    def _put(self, event: EventDict | threading.Event) -> None:
        self._events.append(event)
        if not self._is_called:
            self._is_called = True
            self._call.put(None)

    def _run(self) -> None:
        while True:
            self._call.get()
            time.sleep(self._pause)
            self._is_called = False
            batch = [self._events.popleft() for _ in range(len(self._events))]
            self._write([each for each in batch if not isinstance(each, threading.Event)])
            for each in batch:
                if isinstance(each, threading.Event):
                    each.set()

    def _write(self, events: list[EventDict]) -> None:
        """Writes all events with one call, and counts lost lines."""
        content = b"".join(map(self._encoded, events))
        if missing := self.missing:
            content += self._encoded(_dropped_event(missing))
        written = _write_all(self._descriptor, content)
        if written == len(content):
            self._reported += missing
        else:
            self._lost += content.count(b"\n", written) - bool(missing)

    def _encoded(self, event: EventDict) -> bytes:
        """Returns an event's line, or nothing if formatting fails."""
        try:
            return f"{self._as_line(event)}\n".encode(errors="backslashreplace")
        except Exception:  # noqa: BLE001 - one bad event must not stop the thread
            self._lost += 1
            return b""


def _dropped_event(missing: int) -> EventDict:
    return {
        "timestamp": time.time(),
        "level": "warning",
        "logger": "clarify.log",
        "event": f"{missing} log lines were dropped: the reader of standard error is too slow",
    }


def _write_all(descriptor: int, content: bytes) -> int:
    """Writes `content`, even if another program made the descriptor non-blocking.

    Returns how many bytes were written: fewer on failure.
    """
    view, written = memoryview(content), 0
    with suppress(OSError):
        while written < len(content):
            try:
                written += os.write(descriptor, view[written:])
            except BlockingIOError:
                select.select([], [descriptor], [])
    return written


def log_trouble() -> str | None:
    """Returns what is wrong with this process's log, or None."""
    missing = sum(each.missing for each in _queued())
    return f"{missing} lines could not be written: check the reader of standard error" if missing else None


def lines_dropped() -> int:
    """Returns how many log lines were dropped since the process started."""
    return sum(each.dropped for each in _queued())


def _queued() -> list[QueuedHandler]:
    return [each for each in logging.getLogger().handlers if isinstance(each, QueuedHandler)]


def stderr_has_reader() -> bool:
    """Flushes the log; returns whether writing to stderr would not block."""
    for handler in _queued():
        handler.flush()
    try:
        return bool(select.select([], [_STDERR], [], _PATIENCE)[1])
    except (OSError, ValueError):
        return False


def keep_standard_files() -> None:
    """Opens descriptors 0 to 2 if they are closed: else a file or socket may get stderr's number, and its output."""
    for descriptor in (0, 1, 2):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest free number


def _layout(*, as_json: bool) -> Layout:
    """Returns a function that formats an event. It replaces secrets last, so tracebacks hold none, either."""
    console = structlog.dev.ConsoleRenderer(
        colors=_is_terminal(),
        # rich's own traceback shows local variables: questions, tokens
        exception_formatter=structlog.dev.plain_traceback,
    )
    in_json = JSONEncoder(ensure_ascii=False)

    def as_line(event: EventDict) -> str:
        clean = redact({**event, "timestamp": _iso(event["timestamp"])})
        return in_json.encode(clean) if as_json else console(None, "", clean)

    return as_line


def _iso(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat().replace("+00:00", "Z")


def where_it_was_raised(error: BaseException) -> str:
    """Returns a traceback without messages, as pydantic, json and others quote their input there.

    Only our own exceptions keep their text, which never holds contents.
    """
    return "\n".join(_raised(error)[:_MOST_LINES])


def _raised(error: BaseException | None) -> list[str]:
    lines: list[str] = []
    while error is not None and len(lines) < _MOST_LINES:
        # `extract_tb` would read the source files on the event loop.
        lines += [
            f"  {frame.f_code.co_filename}:{line} in {frame.f_code.co_name}"
            for frame, line in walk_tb(error.__traceback__)
        ]
        ours = type(error).__module__.partition(".")[0] in {"bot", "core"}
        lines.append(f"{type(error).__qualname__}{f': {error}' if ours else ''}")
        for each in error.exceptions if isinstance(error, BaseExceptionGroup) else ():
            lines += _raised(each)
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    return lines


def keeps_payloads_out(record: logging.LogRecord) -> bool:
    """Whether a record may be shown: records below WARNING of some libraries hold payloads.

    Bolt sets a level on each of its loggers, so setting one on their parents has no effect.
    """
    library = record.name.partition(".")[0]
    return library not in _PAYLOADS_BELOW_WARNING or record.levelno >= logging.WARNING


def redact(event: EventDict) -> EventDict:
    """Returns an event of plain data with tokens, and values under keys that name one, replaced."""
    return {key: _clean(value, key) for key, value in event.items()}


def without_secrets(text: str) -> str:
    """Returns `text` with everything that looks like a token replaced by `[redacted]`."""
    for pattern in _SECRETS:
        text = pattern.sub(
            lambda found: f"{found.group(1)}={REDACTED}" if found.lastindex else REDACTED, text
        )
    return text


def _clean(value: object, key: str = "") -> object:
    if value is None or isinstance(value, bool | int | float):
        return value
    if _SECRET_KEY.search(key):
        return REDACTED
    if isinstance(value, dict):
        return {inner: _clean(content, inner) for inner, content in value.items()}
    if isinstance(value, list):
        return [_clean(item) for item in value]
    return without_secrets(str(value))
