"""Simulated time for whole bots: an event loop whose time moves when nobody has anything to do, and no threads.

What would wait for a file, a thread or a moment does not: executors' and the storage's work is done at once, in the
loop's own thread, and where the loop would sleep its time jumps. So a week passes in seconds, each time alike.
"""

from __future__ import annotations

import asyncio
import selectors
import sqlite3
from collections.abc import Callable, Generator, Mapping
from typing import Any, TypeVar

from bot.storage import sqlite

_T = TypeVar("_T")
_TICK = 1e-6  # seconds that each turn of the loop takes: who waits for less than can be told apart is not for ever
_MOST_TURNS = 100_000  # without any time passing: then somebody goes round in circles


class _Nowhere(selectors.BaseSelector):
    """Nothing ever comes from outside: waiting is moving the time on."""

    def __init__(self) -> None:
        self.now = 0.0
        self._turns = 0
        self._keys: dict[Any, selectors.SelectorKey] = {}

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        fd = fileobj if isinstance(fileobj, int) else fileobj.fileno()
        self._keys[fileobj] = selectors.SelectorKey(fileobj, fd, events, data)
        return self._keys[fileobj]

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        return self._keys.pop(fileobj)

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise RuntimeError("everybody waits, and nothing is left that could happen")
        self._turns = 0 if timeout > _TICK else self._turns + 1
        if self._turns > _MOST_TURNS:
            raise RuntimeError(f"at {self.now} somebody goes round in circles: {_running()}")
        self.now += max(timeout, _TICK)
        return []

    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        return self._keys


def _running() -> list[str]:
    """Whose turn it is."""
    ready = getattr(asyncio.get_event_loop(), "_ready", ())
    return [repr(handle) for handle in list(ready)[:8]]


class SimulatedLoop(asyncio.SelectorEventLoop):
    """`time()` begins at 0 and moves as far as the next thing that is waited for. What is submitted to an executor runs at
    once.
    """

    def __init__(self) -> None:
        self._nowhere = _Nowhere()
        super().__init__(self._nowhere)

    def time(self) -> float:
        return self._nowhere.now

    def run_in_executor(  # type: ignore[override]  # the base class leaves its arguments unpacked types
        self, executor: Any, func: Callable[..., _T], *args: Any
    ) -> asyncio.Future[_T]:
        done: asyncio.Future[_T] = self.create_future()
        try:
            done.set_result(func(*args))
        except asyncio.CancelledError:
            done.cancel()
        except Exception as error:  # noqa: BLE001 - handed to whoever waits for it
            done.set_exception(error)
        return done


class InlineConnection(sqlite._SqliteConnection):
    """A storage's connection without its thread. `kill` drops it as the end of a process would."""

    def __await__(self) -> Generator[Any, None, InlineConnection]:
        return self._open().__await__()

    async def _open(self) -> InlineConnection:
        self._connection = self._connector()
        return self

    async def _execute(self, fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        await asyncio.sleep(0)  # others have their turn, as while a thread works
        if self._connection is None:
            raise asyncio.CancelledError
        return fn(*args, **kwargs)

    async def close(self) -> None:
        self.kill()

    def stop(self) -> None:
        """There is no thread."""

    def kill(self) -> None:
        """What was not committed is gone."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    @property
    def raw(self) -> sqlite3.Connection:
        return self._conn


def run_simulated(work: Callable[[], Any]) -> Any:
    """Run `work()` to its end on a loop of its own."""
    with asyncio.Runner(loop_factory=SimulatedLoop) as runner:
        return runner.run(work())
