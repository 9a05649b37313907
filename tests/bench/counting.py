"""`python -m tests.bench.counting COUNTS SITES WORDS…`: runs `clarify WORDS` and counts what it does.

The real functions are wrapped before the product is imported; the product knows nothing of it. The counts are in the file
COUNTS, which the parent maps too, so it can read them at any time without waking this process. Unless SITES is empty, each
operation is also written to that file, one JSON object a line, with the functions of ours that led to it; and each function of
ours, when it is called for the first time since the parent called `Seen.follow`.
"""

from __future__ import annotations

import asyncio
import functools
import importlib
import json
import mmap
import os
import queue
import re
import selectors
import sqlite3
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

EXACT = (
    "database commits",
    "fsyncs",
    "validations",
    "serialisations",
    "HTTP calls to Slack",
    "HTTP calls to producers",
)
TURNS, HOPS = "event-loop turns", "thread hops"
OPERATIONS = (*EXACT, HOPS, TURNS)
FUNCTIONS = "functions of ours"
_PENDING, _WAITS, _FOLLOWED = range(len(OPERATIONS), len(OPERATIONS) + 3)
ROOM = 8 * (len(OPERATIONS) + 3)  # bytes

# What holds a record, whole or in part, and the functions that turn a dumped one into bytes.
MODELS = (("core.clarification", "Clarification"), ("core.clarification", "Round"))
WRITERS = (("core.records", "packed", "serialisations"),)

_ROOT = str(Path(__file__).parents[2])
_OURS = tuple(f"{_ROOT}/{part}/" for part in ("bot", "core"))
_ALWAYS = f"{_ROOT}/bot/cli/"  # below all that runs
_DEPTH = 6
CHANGES = re.compile(r"\s*(insert|update|delete|replace)\s+(?:or \w+ )?(?:into |from )?(\w+)", re.IGNORECASE)


class Seen:
    """The counts of another process, as its parent sees them."""

    def __init__(self, path: Path) -> None:
        path.write_bytes(bytes(ROOM))
        self._cells = _cells(path)

    def now(self) -> dict[str, int]:
        """How often each operation was done since the process began."""
        return dict(zip(OPERATIONS, self._cells, strict=False))

    def follow(self) -> None:
        """Have each function of ours written down at its next call."""
        self._cells[_FOLLOWED] += 1

    @property
    def pending(self) -> int:
        """How much of what the event loop handed on has not come back."""
        return self._cells[_PENDING]

    def is_waiting(self, pending: int = 0) -> bool:
        """Whether the event loop waits, while `pending` of what it handed on is under way."""
        turn = self._cells[OPERATIONS.index(TURNS)]
        waits = self._cells[_WAITS] == 1 and self._cells[_PENDING] == pending
        return waits and self._cells[OPERATIONS.index(TURNS)] == turn


def _cells(path: Path) -> memoryview[int]:
    with path.open("r+b") as file:
        return memoryview(mmap.mmap(file.fileno(), ROOM)).cast("q")


class Counter:
    """Counts in shared memory; `pending` is what was handed to others and has not come back."""

    def __init__(self, path: Path, sites: Path | None) -> None:
        self._cells = _cells(path)
        self._guard = threading.Lock()
        self._sites = None if sites is None else sites.open("a", buffering=1)

    @property
    def tells_sites(self) -> bool:
        return self._sites is not None

    def count(self, operation: str, *about: str) -> None:
        with self._guard:
            self._cells[OPERATIONS.index(operation)] += 1
        if operation != TURNS:
            self.note(operation, *about)

    def note(self, operation: str, *about: str) -> None:
        """Writes down what was done, and which functions of ours led to it, if anybody wants to know."""
        if self._sites is not None:
            self.write({"operation": operation, "about": about, "site": stack()})

    def follow_calls(self) -> None:
        """Writes down each function of ours, on whichever thread, at its first call since the parent asked for it."""
        known, asked = set[CodeType](), 0

        def called(frame: FrameType, event: str, _: object) -> None:
            nonlocal asked
            code = frame.f_code
            if asked != self._cells[_FOLLOWED]:
                asked = self._cells[_FOLLOWED]
                known.clear()
            if code in known:
                return
            known.add(code)
            # What is written in brackets is part of a function, or a module.
            if code.co_filename.startswith(_OURS) and not code.co_name.startswith("<"):
                self.write({FUNCTIONS: name_of(code)})

        threading.settrace(called)
        sys.settrace(called)

    def write(self, said: object) -> None:
        if self._sites is not None:
            with self._guard:
                self._sites.write(json.dumps(said) + "\n")

    def pending(self, change: int) -> None:
        with self._guard:
            self._cells[_PENDING] += change

    def waits(self, yes: bool) -> None:
        self._cells[_WAITS] = int(yes)

    @contextmanager
    def under_way(self) -> Iterator[None]:
        self.pending(1)
        try:
            yield
        finally:
            self.pending(-1)


def stack() -> list[str]:
    """Returns the functions of ours on this thread's stack, innermost first."""
    found: list[str] = []
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and len(found) < _DEPTH:
        code = frame.f_code
        if code.co_filename.startswith(_OURS) and not code.co_filename.startswith(_ALWAYS):
            found.append(name_of(code))
        frame = frame.f_back
    return found


def name_of(code: CodeType) -> str:
    return f"{code.co_filename.removeprefix(_ROOT)[1:]}:{code.co_qualname}"


def wrap(counter: Counter) -> None:
    """Wraps the real functions. Nothing of the product has been imported yet."""
    if counter.tells_sites:
        counter.follow_calls()
    _wrap_threads(counter)
    _wrap_loop(counter)
    _wrap_files(counter)
    _wrap_databases(counter)
    _wrap_records(counter)
    _wrap_http(counter)


def _wrap_threads(counter: Counter) -> None:
    """Counts as a hop: work put in a queue between threads, a thread that is started, a result back to the event loop."""

    class Counted(queue.SimpleQueue[Any]):
        """Executors and SQLite's connections take their work from these: it is done when they ask for more."""

        def __init__(self) -> None:
            self._busy = threading.local()

        def put(self, item: Any, block: bool = True, timeout: float | None = None) -> None:
            if item is not None:  # what ends an executor's thread
                counter.count(HOPS, "to a thread")
                counter.pending(1)
            super().put(item)

        put_nowait = put

        def get(self, block: bool = True, timeout: float | None = None) -> Any:
            if getattr(self._busy, "has", False):
                self._busy.has = False
                counter.pending(-1)
            item = super().get(block, timeout)
            self._busy.has = item is not None
            return item

        def get_nowait(self) -> Any:
            return self.get(block=False)

    queue.SimpleQueue = Counted  # type: ignore[misc]

    def told(put: Callable[..., None], of: queue.Queue[Any], *args: Any, **kwargs: Any) -> None:
        counter.count(HOPS, "to a thread")
        put(of, *args, **kwargs)

    _replace(queue.Queue, "put", told)

    def begun(start: Callable[..., None], thread: threading.Thread) -> None:
        counter.count(HOPS, "a new thread")
        start(thread)

    _replace(threading.Thread, "start", begun)


def _wrap_loop(counter: Counter) -> None:
    def turn(run_once: Callable[..., None], loop: asyncio.BaseEventLoop) -> None:
        counter.count(TURNS)
        run_once(loop)

    def back(
        call: Callable[..., Any], loop: Any, callback: Callable[..., Any], *args: Any, **kwargs: Any
    ) -> Any:
        def come(*given: Any) -> None:
            counter.pending(-1)
            callback(*given)

        if threading.current_thread() is not threading.main_thread():
            counter.count(HOPS, "back to the event loop")
        counter.pending(1)
        return call(loop, come, *args, **kwargs)

    def select(wait: Callable[..., Any], selector: Any, timeout: float | None = None) -> Any:
        counter.waits(timeout is None or timeout > 0)
        try:
            return wait(selector, timeout)
        finally:
            counter.waits(False)

    _replace(asyncio.base_events.BaseEventLoop, "_run_once", turn)
    _replace(asyncio.base_events.BaseEventLoop, "call_soon_threadsafe", back)
    _replace(selectors.EpollSelector, "select", select)


def _wrap_files(counter: Counter) -> None:
    def fsync(sync: Callable[..., None], handle: int) -> None:
        counter.count("fsyncs", Path(f"/proc/self/fd/{handle}").readlink().name[:20])
        sync(handle)

    _replace(os, "fsync", fsync)


def _wrap_databases(counter: Counter) -> None:
    changes: list[str] = []  # since the transaction began: only one connection writes

    def see(statement: object, *, alone: bool = False) -> None:
        text = statement.decode() if isinstance(statement, bytes) else str(statement)
        match = CHANGES.match(text)
        if match is not None:
            changes.append(" ".join(match.groups()).lower())
        if text.strip().lower().startswith("commit") or (match is not None and alone):
            counter.count("database commits", *changes)
            changes.clear()

    def connect(make: Callable[..., sqlite3.Connection], *args: Any, **kwargs: Any) -> sqlite3.Connection:
        made = make(*args, **kwargs)
        made.set_trace_callback(lambda text: see(text, alone=not made.in_transaction))
        return made

    def execute(run: Callable[..., Any], on: Any, statement: Any, *args: Any, **kwargs: Any) -> Any:
        see(statement)
        return run(on, statement, *args, **kwargs)

    _replace(sqlite3, "connect", connect)
    if find_spec("psycopg"):
        psycopg = importlib.import_module("psycopg")
        _replace(psycopg.Cursor, "execute", execute)
        _replace(psycopg.Connection, "_exec_command", execute)  # how psycopg itself begins and commits
    if counter.tells_sites:
        _name_callers(counter, changes)


def _name_callers(counter: Counter, changes: list[str]) -> None:
    """Writes down who asked for what is in a transaction or read: the storage does the work of several callers at once."""

    def write(real: Callable[..., Any], store: Any, work: Callable[[Any], Any]) -> Any:
        by = f"[{' < '.join(stack()[:4])}]"

        def named(tx: Any) -> Any:
            changes.append(by)
            return work(tx)

        return real(store, named)

    def read(real: Callable[..., Any], store: Any, sql: str, **values: Any) -> Any:
        counter.note("(a database read)", " ".join(sql.split())[:60])
        return real(store, sql, **values)

    store = importlib.import_module("bot.storage.store").Store
    _replace(store, "write", write)
    _replace(store, "read", read)
    _replace(store, "find", read)


class _Core:
    """A model's validator or serialiser, counted."""

    def __init__(self, real: Any, counted: Callable[[], None]) -> None:
        self._real = real
        self._counted = counted

    def __getattr__(self, name: str) -> Any:
        if name.startswith(("validate_", "to_")):
            self._counted()
        return getattr(self._real, name)


def _wrap_records(counter: Counter) -> None:
    for module, name in MODELS:
        model = getattr(importlib.import_module(module), name)
        for part, operation in (("validator", "validations"), ("serializer", "serialisations")):
            counted = functools.partial(counter.count, operation, name)
            setattr(model, f"__pydantic_{part}__", _Core(getattr(model, f"__pydantic_{part}__"), counted))
    for module, name, operation in WRITERS:  # before others take them from there
        _replace(importlib.import_module(module), name, _counting(counter, operation, name))


def _wrap_http(counter: Counter) -> None:
    slack = os.environ["SLACK_API_URL"]

    def count(url: Any) -> None:
        where = "Slack" if str(url).startswith(slack) else "producers"
        counter.count(f"HTTP calls to {where}", str(url).rpartition("/")[2])

    async def request(send: Callable[..., Any], session: Any, method: str, url: Any, **kwargs: Any) -> Any:
        count(url)
        with counter.under_way():
            return await send(session, method, url, **kwargs)

    async def read(rest: Callable[..., Any], response: Any) -> Any:
        with counter.under_way():
            return await rest(response)

    aiohttp = importlib.import_module("aiohttp")
    _replace(aiohttp.ClientSession, "_request", request)
    _replace(aiohttp.ClientResponse, "read", read)


def _counting(counter: Counter, operation: str, *about: str) -> Callable[..., Any]:
    def counted(real: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        counter.count(operation, *about)
        return real(*args, **kwargs)

    return counted


def _replace(owner: Any, name: str, by: Callable[..., Any]) -> None:
    """Puts `by` in the place of `owner.name`; it gets the real one as its first argument."""
    real = getattr(owner, name)

    @functools.wraps(real)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        return by(real, *args, **kwargs)

    setattr(owner, name, wrapped)


def main(counts: str, sites: str, words: Iterable[str]) -> None:
    wrap(Counter(Path(counts), Path(sites) if sites else None))
    sys.argv = ["clarify", *words]
    importlib.import_module("bot.cli").main()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3:])
