"""What was read and is not stored yet: producers evict what is not read fast, critical events too."""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass
from datetime import datetime

from bot.producers.stream import Frame, Oversize

MAX_ITEMS = 10_000
MAX_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class Arrival:
    """One frame with when it came and how.

    `live`: it was just emitted; `filtered`: the producer leaves events out; `resumable`: it sends again
    what we did not store.
    """

    frame: Frame | Oversize
    received_at: datetime
    live: bool
    filtered: bool = False
    resumable: bool = False

    @property
    def size(self) -> int:
        return self.frame.size if isinstance(self.frame, Frame) else len(self.frame.head)


class Backlog:
    """A queue bounded by number and by bytes: `put` waits when it is full, which TCP hands on."""

    def __init__(self, max_items: int = MAX_ITEMS, max_bytes: int = MAX_BYTES) -> None:
        self._max_items = max_items
        self._max_bytes = max_bytes
        self._items: deque[Arrival] = deque()
        self._bytes = 0
        self._changed = asyncio.Condition()

    def __len__(self) -> int:
        return len(self._items)

    @property
    def full(self) -> bool:
        return len(self._items) >= self._max_items or self._bytes >= self._max_bytes

    async def put(self, arrival: Arrival) -> None:
        async with self._changed:
            await self._changed.wait_for(lambda: not self.full)
            self._items.append(arrival)
            self._bytes += arrival.size
            self._changed.notify_all()

    async def first(self) -> Arrival:
        """The oldest; it stays until `done`, so that nothing is out of both the backlog and the inbox."""
        async with self._changed:
            await self._changed.wait_for(lambda: self._items)
            return self._items[0]

    async def done(self) -> None:
        """The oldest is dealt with."""
        async with self._changed:
            self._bytes -= self._items.popleft().size
            self._changed.notify_all()

    async def drained(self) -> None:
        """Returns once all is dealt with."""
        async with self._changed:
            await self._changed.wait_for(lambda: not self._items)
