"""How the storage is, for those who look from outside: whether it can be read, and what waits in the inbox."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta

from bot.errors import StorageUnavailable
from bot.storage.store import Store
from core.clock import Clock

_CACHED = 1.0
_PATIENCE = 2.0


@dataclass(frozen=True, slots=True)
class Waiting:
    """Events that were taken in and not worked off: how many, and since when the oldest waits."""

    count: int
    oldest: timedelta


class Vitals:
    """`seconds` is a monotonic clock."""

    def __init__(self, store: Store, clock: Clock, *, seconds: Callable[[], float]) -> None:
        self._store = store
        self._clock = clock
        self._seconds = seconds
        self._turn = asyncio.Lock()
        self._looked: tuple[float, str | None] | None = None

    async def trouble(self) -> str | None:
        """Why the storage cannot be read, None if it can; really looked at once a second at most."""
        async with self._turn:
            if self._looked is None or self._seconds() - self._looked[0] >= _CACHED:
                self._looked = self._seconds(), await self._look()
            return self._looked[1]

    async def waiting(self) -> Waiting:
        """What waits in the inbox.

        Raises:
            StorageUnavailable: it cannot be read.
        """
        row = await self._store.read_one(
            """select count(*) as count,
                 (select received_at from inbox where state = 'new' order by id limit 1) as oldest
               from inbox where state = 'new'"""
        )
        if row is None or row["oldest"] is None:
            return Waiting(0, timedelta(0))
        since = datetime.fromtimestamp(row["oldest"], self._clock.now().tzinfo)
        return Waiting(row["count"], max(timedelta(0), self._clock.now() - since))

    async def _look(self) -> str | None:
        try:
            async with asyncio.timeout(_PATIENCE):
                await self._store.read("select value from counters limit 1")
        except TimeoutError:
            return f"it does not answer within {_PATIENCE:g} s"
        except StorageUnavailable as error:
            return str(error)
        return None
