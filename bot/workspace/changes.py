"""Tells whoever waits that something changed: tests (`wait`), and pages (`listen`). Nobody polls."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

T = TypeVar("T")


class Changes:
    """A condition that anybody can wait on, and a feed of the topics that changed.

    Topics: `channel:{id}`, `user:{id}` (ephemerals, errors), `modal:{user}`, `home:{user}`,
    `sidebar`, `record`.
    """

    def __init__(self) -> None:
        self._waiting: set[asyncio.Future[None]] = set()
        self._listening: set[asyncio.Queue[str]] = set()
        self.version = 0
        self.seen = 0  # as `version`, without what no page shows

    def notify(self, *topics: str) -> None:
        """Wake all that wait, and put the topics on every feed."""
        self.version += 1
        self.seen += any(topic != "record" for topic in topics)
        waiting, self._waiting = self._waiting, set()
        for future in waiting:
            if not future.done():
                future.set_result(None)
        for queue in self._listening:
            for topic in topics:
                queue.put_nowait(topic)

    async def wait(self, predicate: Callable[[], T], timeout: float) -> T:
        """The predicate's first truthy value; it is asked again at every change.

        Raises:
            TimeoutError: it was not truthy within `timeout` seconds.
        """
        async with asyncio.timeout(timeout):
            while not (value := predicate()):
                future = asyncio.get_running_loop().create_future()
                self._waiting.add(future)
                await future
            return value

    @contextmanager
    def listen(self) -> Iterator[asyncio.Queue[str]]:
        """A feed of topics, for as long as the block lasts."""
        queue: asyncio.Queue[str] = asyncio.Queue()
        self._listening.add(queue)
        try:
            yield queue
        finally:
            self._listening.discard(queue)
