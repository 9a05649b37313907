"""Shares concurrency between parties, so that the load of one does not delay the others."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager


class FairLimit:
    """Limits concurrent work to `at_once` slots. A party holds one at most, and parties that wait take turns.

    If the work is done in short steps, each step waits for one step of every other party at most, however much they have
    to do.
    """

    def __init__(self, at_once: float) -> None:
        self._at_once = at_once
        self._holding: set[str] = set()
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}  # whose turn is next comes first

    def waiting(self, party: str) -> int:
        """Returns how many tasks of a party wait for a slot."""
        return sum(not each.done() for each in self._waiting.get(party, ()))

    @asynccontextmanager
    async def slot(self, party: str) -> AsyncIterator[None]:
        """Waits for a slot and holds it. A party's own tasks come in the order of their calls."""
        given: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(party, deque()).append(given)
        self._hand_out()
        try:
            await given
            yield
        finally:
            if not given.cancelled():
                self._holding.remove(party)
                if (waiting := self._waiting.pop(party, None)) is not None:
                    self._waiting[party] = waiting  # behind the others
                self._hand_out()

    def _hand_out(self) -> None:
        for party in [each for each in self._waiting if each not in self._holding]:
            if len(self._holding) >= self._at_once:
                return
            waiting = self._waiting[party]
            while waiting and waiting[0].done():  # its task was cancelled
                waiting.popleft()
            if waiting:
                waiting.popleft().set_result(None)
                self._holding.add(party)
            if not waiting:
                del self._waiting[party]


class SharedPlaces:
    """Up to `most` places, for as long as tasks wait for something. Once all are taken, a party takes one over from the party
    that has the most, unless it has as many itself.
    """

    def __init__(self, most: int) -> None:
        self._left = most
        self._taken: dict[str, dict[asyncio.Event, None]] = {}  # the first one first

    @contextmanager
    def place(self, party: str) -> Iterator[asyncio.Event | None]:
        """Yields an event that is set once the place is taken over, or None if there is no place."""
        if self._left <= 0 and not self._take_over(party):
            yield None
            return
        lost = asyncio.Event()
        self._left -= 1
        self._taken.setdefault(party, {})[lost] = None
        try:
            yield lost
        finally:
            if not lost.is_set():
                self._leave(party, lost)

    def _take_over(self, party: str) -> bool:
        most = max(self._taken, key=lambda each: len(self._taken[each]), default=None)
        if most is None or len(self._taken[most]) <= len(self._taken.get(party, ())) + 1:
            return False
        lost = next(iter(self._taken[most]))
        self._leave(most, lost)
        lost.set()
        return True

    def _leave(self, party: str, lost: asyncio.Event) -> None:
        self._left += 1
        del self._taken[party][lost]
        if not self._taken[party]:
            del self._taken[party]
