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
from collections.abc import Mapping, Sequence
from datetime import date
from pathlib import PurePath
from traceback import extract_tb

import structlog
from structlog.typing import EventDict, ExcInfo, Processor, WrappedLogger

REDACTED = "[redacted]"
_FIRST = ("timestamp", "level", "logger", "event")
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
_PAYLOADS_BELOW_WARNING = (
    *("slack_bolt", "slack_sdk", "aiohttp", "watchfiles", "asyncio"),
    *("apprise", "requests", "urllib3"),
)


def configure_logging(level: str = "info", *, json: bool | None = None, background: bool = False) -> None:
    """Send all logs of this process to stderr.

    Args:
        level: debug, info, warning or error; for our own events. Libraries whose debug logs hold
            payloads are never shown below warning.
        json: JSON lines or readable text; by default readable on a terminal only.
        background: write in a thread, so that a slow reader of stderr holds up nobody; see `QueuedHandler`.
    """
    number = logging.getLevelNamesMapping()[level.upper()]
    as_json = not _is_terminal() if json is None else json
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_logger_name,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        wrapper_class=structlog.make_filtering_bound_logger(number),
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=False,
    )
    handler: logging.Handler = QueuedHandler(_STDERR) if background else logging.StreamHandler(sys.stderr)
    handler.addFilter(keeps_payloads_out)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(foreign_pre_chain=shared, processors=_last_steps(as_json=as_json))
    )
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(number)
    logging.captureWarnings(capture=True)


def _is_terminal() -> bool:
    return sys.stderr is not None and sys.stderr.isatty()  # None where it was closed


class QueuedHandler(logging.Handler):
    """Writes lines to a file descriptor in a thread of its own, so that a slow reader holds up nobody.

    What there is no room for, or what nobody reads any more, is dropped and counted; once lines can be written again,
    one of them tells how many are missing. At the end `flush` waits for a moment only.
    """

    def __init__(self, descriptor: int, room: int = _ROOM, patience: float = _PATIENCE) -> None:
        """`room`: lines that may wait. `patience`: seconds that a flush waits."""
        super().__init__()
        self.dropped = 0  # lines, since the process started
        self._descriptor = descriptor
        self._patience = patience
        self._lines: queue.Queue[bytes] = queue.Queue(room)
        self._reported = 0
        self._counting = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="log", daemon=True)
        self._thread.start()

    def emit(self, record: logging.LogRecord) -> None:
        try:
            line = self._encoded(record)
        except Exception:  # noqa: BLE001 - as every handler of logging: the caller is not to suffer from it
            self._drop()
            return
        try:
            self._lines.put_nowait(line)
        except queue.Full:
            self._drop()

    def flush(self) -> None:
        """Wait until all lines are written; who does not read them in time does not hold up the end."""
        with self._lines.all_tasks_done:
            self._lines.all_tasks_done.wait_for(lambda: not self._lines.unfinished_tasks, self._patience)

    @property
    def missing(self) -> int:
        """Lines that were dropped since a line last told how many."""
        return self.dropped - self._reported

    def _drop(self) -> None:
        with self._counting:
            self.dropped += 1

    def _encoded(self, record: logging.LogRecord) -> bytes:
        return f"{self.format(record)}\n".encode(errors="backslashreplace")

    def _run(self) -> None:
        while True:
            line, missing = self._lines.get(), self.missing
            try:
                _write_all(self._descriptor, self._about(missing) + line)
            except OSError:
                self._drop()
            else:
                self._reported += missing
            finally:
                self._lines.task_done()

    def _about(self, missing: int) -> bytes:
        """The line that tells how many lines are missing, if any are."""
        if not missing:
            return b""
        words = "%d log lines were dropped: the reader of standard error is too slow"
        return self._encoded(
            logging.LogRecord("clarify.log", logging.WARNING, __file__, 0, words, (missing,), None)
        )


def _write_all(descriptor: int, content: bytes) -> None:
    """All of it, also where others have made the descriptor non-blocking."""
    left = memoryview(content)
    while left:
        try:
            left = left[os.write(descriptor, left) :]
        except BlockingIOError:
            select.select([], [descriptor], [])


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


def _last_steps(*, as_json: bool) -> list[Processor]:
    """Build what both ways share: the traceback becomes text first, so that it is redacted too."""
    renderer: Processor = (
        structlog.processors.JSONRenderer(ensure_ascii=False)
        if as_json
        else structlog.dev.ConsoleRenderer(
            colors=_is_terminal(),
            # rich's own traceback shows local variables: questions, tokens
            exception_formatter=structlog.dev.plain_traceback,
        )
    )
    return [
        structlog.stdlib.ProcessorFormatter.remove_processors_meta,
        structlog.processors.ExceptionRenderer(where_it_was_raised),
        redact,
        renderer,
    ]


def where_it_was_raised(exc_info: ExcInfo) -> str:
    """A traceback without what was being worked on: pydantic, json and others quote their input in messages.

    Only our own exceptions keep their text, which by their rule holds no content.
    """
    return "\n".join(_raised(exc_info[1])[:_MOST_LINES])


def _raised(error: BaseException | None) -> list[str]:
    lines: list[str] = []
    while error is not None and len(lines) < _MOST_LINES:
        lines += [
            f"  {frame.filename}:{frame.lineno} in {frame.name}" for frame in extract_tb(error.__traceback__)
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


def redact(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Replace whatever looks like a token, or stands under a key that names one. When, what and who come first."""
    order = [key for key in _FIRST if key in event] + [key for key in event if key not in _FIRST]
    return {key: _clean(event[key], str(key)) for key in order}


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
    if isinstance(value, Mapping):
        return {str(inner): _clean(content, str(inner)) for inner, content in value.items()}
    if isinstance(value, Sequence | set | frozenset) and not isinstance(value, str | bytes):
        return [_clean(item) for item in value]
    if isinstance(value, str | date | PurePath | BaseException):
        return without_secrets(str(value))
    return without_secrets(repr(value))
