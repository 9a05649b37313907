"""So many at once, shared fairly: a kind of work that takes long does not keep another kind waiting behind it."""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class Slots:
    """At most `most` at once. A free place goes to the kind that holds the fewest, then to whoever came first."""

    def __init__(self, most: int) -> None:
        self._free = most
        self._held: Counter[str] = Counter()
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}  # while any wait, none is free

    @asynccontextmanager
    async def one(self, kind: str) -> AsyncIterator[None]:
        """Hold a place for work of `kind`."""
        await self._take(kind)
        try:
            yield
        finally:
            self._give(kind)

    async def _take(self, kind: str) -> None:
        if self._free:
            self._grant(kind)
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(kind, deque()).append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():  # cancelled just when it was given a place
                self._give(kind)
            raise

    def _grant(self, kind: str) -> None:
        self._free -= 1
        self._held[kind] += 1

    def _give(self, kind: str) -> None:
        self._free += 1
        self._held[kind] -= 1
        if not self._held[kind]:
            del self._held[kind]
        while self._free and self._waiting:
            self._pass_on(min(self._waiting, key=lambda waiting: self._held[waiting]))

    def _pass_on(self, kind: str) -> None:
        """To the first of `kind` that still waits; the kind then stands behind those that hold as many."""
        queue = self._waiting.pop(kind)
        turn = queue.popleft()
        if queue:
            self._waiting[kind] = queue
        if not turn.done():
            self._grant(kind)
            turn.set_result(None)
