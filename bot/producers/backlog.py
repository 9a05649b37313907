"""What was read and is not stored yet: producers evict what is not read fast, critical events too."""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass
from datetime import datetime
from itertools import islice

from bot.producers.stream import Frame, Oversize

MAX_ITEMS = 10_000
MAX_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class Arrival:
    """One frame with when it came and how.

    `steady`: when it came, on the clock's steady time; `live`: it was just emitted; `late`: it was kept back, unless
    the producer's clock was set; `filtered`: the producer leaves events out; `resumable`: it sends again
    what we did not store.
    """

    frame: Frame | Oversize
    received_at: datetime
    steady: float
    live: bool
    filtered: bool = False
    resumable: bool = False
    late: bool = False

    @property
    def size(self) -> int:
        return self.frame.size if isinstance(self.frame, Frame) else len(self.frame.head)


class Backlog:
    """A queue bounded by number and by bytes. Adding never waits: who adds waits for room afterwards."""

    def __init__(self, max_items: int = MAX_ITEMS, max_bytes: int = MAX_BYTES) -> None:
        self._max_items = max_items
        self._max_bytes = max_bytes
        self._items: deque[Arrival] = deque()
        self._bytes = 0
        self._some = asyncio.Event()
        self._room = asyncio.Event()
        self._none = asyncio.Event()
        self._tell()

    def __len__(self) -> int:
        return len(self._items)

    def add(self, arrival: Arrival) -> None:
        """Append one: what came out of one read, so that a cancelled reader loses none of it."""
        self._items.append(arrival)
        self._bytes += arrival.size
        self._tell()

    async def room(self) -> None:
        """Returns once the backlog is below its bounds; until then TCP holds the producer back."""
        await self._room.wait()

    async def first(self, most: int = 1) -> list[Arrival]:
        """The oldest, at least one; they stay until `done`, so that each is always in the backlog or in the inbox."""
        await self._some.wait()
        return list(islice(self._items, most))

    def done(self, count: int = 1) -> None:
        """The oldest are dealt with."""
        for _ in range(count):
            self._bytes -= self._items.popleft().size
        self._tell()

    async def drained(self) -> None:
        """Returns once all is dealt with."""
        await self._none.wait()

    def _tell(self) -> None:
        full = len(self._items) >= self._max_items or self._bytes >= self._max_bytes
        for event, holds in (
            (self._some, bool(self._items)),
            (self._none, not self._items),
            (self._room, not full),
        ):
            if holds:
                event.set()
            else:
                event.clear()
