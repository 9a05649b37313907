"""When the next request to GitHub may go: one after the other, writes apart, nothing while GitHub said to wait."""

from __future__ import annotations

import random
from collections.abc import Callable

from bot.delivery.pacing import Pace
from bot.github.outcomes import Limited, NotNow
from core.clock import Clock, backoff

_LIMITED, _LIMITED_LONGEST = 60.0, 3600.0
_TROUBLE, _TROUBLE_LONGEST = 2.0, 300.0
_SHORTEST = 0.001


class Turns:
    """`seconds` is a monotonic clock; `clock` waits in its time. One request at a time asks for its turn."""

    def __init__(
        self, writes_per_second: float, clock: Clock, seconds: Callable[[], float], rng: random.Random
    ) -> None:
        self._pace = Pace(writes_per_second)
        self._clock = clock
        self._seconds = seconds
        self._rng = rng
        self._limits = 0

    async def turn(self, *, write: bool) -> None:
        """Returns when a request may go. A write that begins now holds up the next one."""
        while (wait := self._pace.wait(self._seconds(), post=write)) > 0:
            await self._clock.sleep(max(wait, _SHORTEST))
        if write:
            self._pace.posted(self._seconds())

    def went_well(self) -> None:
        self._pace.went_well()
        self._limits = 0

    def spent(self, seconds: float) -> None:
        """Nothing is left to ask for so long."""
        self._pause(seconds)

    def failed(self, trouble: NotNow) -> None:
        """Where it stands in everybody's way, all wait: as told, else longer each time."""
        if isinstance(trouble, Limited):
            self._limits += 1
            waits = backoff(self._limits - 1, first=_LIMITED, longest=_LIMITED_LONGEST)
            jitter = self._rng.uniform(0, _LIMITED / 10)
            self._pause(waits + jitter if trouble.seconds is None else trouble.seconds)
        elif trouble.everybody:
            self._pause(self.patience(self._pace.failures) if trouble.seconds is None else trouble.seconds)

    def patience(self, failures: int) -> float:
        """Seconds before the try that follows so many failures: exponential, half of it by chance."""
        return backoff(
            failures, first=_TROUBLE, longest=_TROUBLE_LONGEST, spread=0.5, chance=self._rng.random()
        )

    def _pause(self, seconds: float) -> None:
        self._pace.refused(self._seconds(), seconds)
