"""Tells a replayed backlog from events that were just emitted (pure)."""

from __future__ import annotations

SETTLED = 1.0
GAP = 0.2


class Burst:
    """One connection's arrivals, in seconds of a steady clock.

    A producer that replays does so at once and without pause. So where the first event waits for a pause, nothing
    is replayed, unless it was asked to (`resumed`); otherwise what comes after the first pause, and not in the
    connection's first second, is live.
    """

    def __init__(self, opened: float, *, resumed: bool = False) -> None:
        self._opened = opened
        self._resumed = resumed
        self._last: float | None = None
        self._quiet = self._over = False

    def live(self, at: float) -> bool:
        """Whether the events that arrive at `at` were just emitted."""
        paused = at - (self._opened if self._last is None else self._last) >= GAP
        if self._last is None:
            self._quiet = paused and not self._resumed
        self._over = self._over or paused
        self._last = at
        return self._quiet or (self._over and at - self._opened >= SETTLED)
