"""Whether Slack answers at all. Whatever proves that it is back ends the waiting of everybody who waits for that."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from core.clock import Clock

_LEAST = 1.0  # seconds between two tries of one party, whatever comes back


class Pulse:
    """`missed` when Slack could not be reached, `felt` when it answered; `rest` in between two tries.

    back: called when Slack answers that could not be reached before.
    """

    def __init__(self, clock: Clock, back: Callable[[], None] = lambda: None) -> None:
        self._clock = clock
        self._on_back = back
        self._away = False
        self._back = asyncio.Event()

    def missed(self) -> None:
        self._away = True

    def felt(self) -> None:
        if not self._away:
            return
        self._away = False
        self._back.set()
        self._back = asyncio.Event()
        self._on_back()

    async def rest(self, seconds: float) -> None:
        """Returns after `seconds`, or as soon as Slack is back."""
        back = self._back
        await self._clock.sleep(min(seconds, _LEAST))
        if seconds <= _LEAST or back.is_set():
            return
        waits = {
            asyncio.ensure_future(self._clock.sleep(seconds - _LEAST)),
            asyncio.ensure_future(back.wait()),
        }
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
