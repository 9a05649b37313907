"""Structured logs on stderr: JSON lines, or readable on a terminal. Envelopes only, no secrets.

Our own events and those of the libraries (through stdlib `logging`) take the same way, and the last
thing before they are written is `redact`. What people ask and answer is not recognisable by its
looks, so it must not be given to a logger: log types, ids, times and agents.
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
from itertools import accumulate
from json import JSONEncoder
from pathlib import PurePath
from traceback import walk_tb
from typing import Any

import structlog
from structlog.typing import EventDict, WrappedLogger

REDACTED = "[redacted]"
_FIELDS = "clarify_fields"  # of a log record: what one of our events says besides its words
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
_PAUSE = 0.05  # seconds: about what one question takes, so that its lines are written together
_PAYLOADS_BELOW_WARNING = (
    *("slack_bolt", "slack_sdk", "aiohttp", "watchfiles", "asyncio"),
    *("apprise", "requests", "urllib3"),
)
Layout = Callable[[EventDict], str]
"""Makes a line of an event."""


def configure_logging(level: str = "info", *, json: bool | None = None, background: bool = False) -> None:
    """Send all logs of this process to stderr.

    Args:
        level: debug, info, warning or error; for our own events. Libraries whose debug logs hold
            payloads are never shown below warning.
        json: JSON lines or readable text; by default readable on a terminal only.
        background: format and write in a thread, so that neither costs the event loop time; see `QueuedHandler`.
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
    return sys.stderr is not None and sys.stderr.isatty()  # None where it was closed


def _to_logging(_logger: WrappedLogger, _method: str, event: EventDict) -> tuple[tuple[str], dict[str, Any]]:
    """Hands an event of structlog to `logging`: the arguments of its call."""
    return (event.pop("event"),), {"exc_info": event.pop("exc_info", None), "extra": {_FIELDS: event}}


def captured(record: logging.LogRecord) -> EventDict:
    """Returns what a record says, in values that cannot change any more: it is formatted later, by another thread.

    So the text of exceptions and of everything else that is not plain data is made here, by the caller's thread.
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
    """Returns a copy of `value` that is made of dicts, lists, strings and numbers only."""
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
    """Formats lines and writes them to a file descriptor, in a thread of its own. A slow reader never blocks the bot.

    A call only captures its values. The thread wakes up for the first line, waits for those that follow it, and writes
    them all at once; a line from WARNING on is written without that wait, with all before it.

    Lines are dropped and counted while too many wait, or when nobody reads them any more; once lines can be written
    again, one of them tells how many are missing. At the end, `flush` waits for a moment only.

    The thread is called through a `SimpleQueue`: a line may be logged at any point, by a finalizer in the middle of
    another call, and then a lock of ours would be waited for by its own holder.
    """

    def __init__(
        self,
        descriptor: int,
        as_line: Layout,
        room: int = _ROOM,
        patience: float = _PATIENCE,
        pause: float = _PAUSE,
    ) -> None:
        """`room`: lines that may wait. `patience`: seconds that a flush waits. `pause`: seconds that lines wait for more."""
        super().__init__()
        self._descriptor = descriptor
        self._as_line = as_line
        self._room = room
        self._patience = patience
        self._pause = pause
        self._events: deque[EventDict | threading.Event] = deque()
        self._is_called = False  # the thread was called, and has not looked yet
        self._call: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._hurry: queue.SimpleQueue[None] = queue.SimpleQueue()
        # Each of these is changed by one side only: the callers, who hold the handler's lock, or the thread.
        self._accepted = self._refused = 0
        self._handled = self._lost = self._reported = 0
        self._thread = threading.Thread(target=self._run, name="log", daemon=True)
        self._thread.start()

    def emit(self, record: logging.LogRecord) -> None:
        try:
            event = captured(record)
        except Exception:  # noqa: BLE001 - as in every handler of logging: its trouble is not the caller's
            self._refused += 1
            return
        if self._accepted - self._handled >= self._room:
            self._refused += 1
            return
        self._accepted += 1
        self._put(event)
        if record.levelno >= logging.WARNING:
            self._hurry_up()

    def flush(self) -> None:
        """Waits until all lines are written, but not for long: a reader that hangs does not hold up the end."""
        written = threading.Event()
        self._put(written)
        self._hurry_up()
        written.wait(self._patience)

    @property
    def dropped(self) -> int:
        """How many lines were dropped since the process started."""
        return self._refused + self._lost

    @property
    def missing(self) -> int:
        """How many lines were dropped since a line last told how many."""
        return self.dropped - self._reported

    def _put(self, event: EventDict | threading.Event) -> None:
        self._events.append(event)
        if not self._is_called:
            self._is_called = True
            self._call.put(None)

    def _hurry_up(self) -> None:
        if self._hurry.empty():
            self._hurry.put(None)

    def _run(self) -> None:
        while True:
            self._call.get()
            with suppress(queue.Empty):
                self._hurry.get(timeout=self._pause)
            self._is_called = False
            batch = [self._events.popleft() for _ in range(len(self._events))]
            self._write([each for each in batch if not isinstance(each, threading.Event)])
            for each in batch:
                if isinstance(each, threading.Event):
                    each.set()

    def _write(self, events: list[EventDict]) -> None:
        """Writes all events with one call, and counts what is lost."""
        content = [line for each in events if (line := self._encoded(each))]
        lines, missing = len(content), self.missing
        if missing:
            content.append(self._encoded(_about(missing)))
        written = _write_all(self._descriptor, b"".join(content))
        self._handled += len(events)
        whole = sum(end <= written for end in accumulate(map(len, content)))
        self._lost += max(0, lines - whole)
        if whole > lines:
            self._reported += missing

    def _encoded(self, event: EventDict) -> bytes:
        """Returns a line, or nothing where that fails: the next event may be better."""
        try:
            return f"{self._as_line(event)}\n".encode(errors="backslashreplace")
        except Exception:  # noqa: BLE001 - the thread goes on, whatever was logged
            self._lost += 1
            return b""


def _about(missing: int) -> EventDict:
    return {
        "timestamp": time.time(),
        "level": "warning",
        "logger": "clarify.log",
        "event": f"{missing} log lines were dropped: the reader of standard error is too slow",
    }


def _write_all(descriptor: int, content: bytes) -> int:
    """Writes all of it, also where others have made the descriptor non-blocking.

    Returns how many bytes were written: fewer where that fails.
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
    """What is wrong with the log of this process; None: nothing, as far as is known."""
    missing = sum(each.missing for each in _queued())
    return f"{missing} lines could not be written: check the reader of standard error" if missing else None


def lines_dropped() -> int:
    """How many lines of the log could not be written since the process started."""
    return sum(each.dropped for each in _queued())


def _queued() -> list[QueuedHandler]:
    return [each for each in logging.getLogger().handlers if isinstance(each, QueuedHandler)]


def somebody_reads() -> bool:
    """Whether a few words on stderr, after all that was logged, would not keep this process waiting."""
    for handler in _queued():
        handler.flush()
    try:
        return bool(select.select([], [_STDERR], [], _PATIENCE)[1])
    except (OSError, ValueError):
        return False


def keep_standard_files() -> None:
    """Have descriptors 0 to 2 open: else a file or socket gets the number of stderr, and what is said goes into it."""
    for descriptor in (0, 1, 2):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # which gets the lowest number that is free


def _layout(*, as_json: bool) -> Layout:
    """Returns what makes a line of an event. Secrets are replaced last, so that tracebacks hold none either."""
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
    """Returns a traceback without what was being worked on: pydantic, json and others quote their input in messages.

    Only our own exceptions keep their text, which by their rule holds no content.
    """
    return "\n".join(_raised(error)[:_MOST_LINES])


def _raised(error: BaseException | None) -> list[str]:
    lines: list[str] = []
    while error is not None and len(lines) < _MOST_LINES:
        # Frames, not `extract_tb`: that reads the source files, which costs the event loop time.
        lines += [
            f"  {frame.f_code.co_filename}:{line} in {frame.f_code.co_name}"
            for frame, line in walk_tb(error.__traceback__)
        ]
        ours = type(error).__module__.partition(".")[0] in {"bot", "core"}
        lines.append(f"{type(error).__qualname__}{f': {error}' if ours else ''}")
        for each in error.exceptions if isinstance(error, BaseExceptionGroup) else ():
            lines += _raised(each)  # a group says nothing itself
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    return lines


def keeps_payloads_out(record: logging.LogRecord) -> bool:
    """Whether a record may be shown: libraries that log payloads only from WARNING on.

    Bolt gives each of its loggers a level of its own, so a level on the parents would not hold.
    """
    library = record.name.partition(".")[0]
    return library not in _PAYLOADS_BELOW_WARNING or record.levelno >= logging.WARNING


def redact(event: EventDict) -> EventDict:
    """Returns an event of plain data without what looks like a token, or stands under a key that names one."""
    return {key: _clean(value, key) for key, value in event.items()}


def without_secrets(text: str) -> str:
    """Return `text` with `[redacted]` where something looks like a token."""
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
