"""Tells a replayed backlog from events that were just emitted (pure)."""

from __future__ import annotations

SETTLED = 1.0
GAP = 0.2


class Burst:
    """One connection's arrivals, in seconds of a steady clock.

    A producer that replays does so at once and without pause: what comes after the first pause, and not
    in the connection's first second, is live.
    """

    def __init__(self, opened: float) -> None:
        self._opened = opened
        self._last = opened
        self._over = False

    def live(self, at: float) -> bool:
        """Whether what arrives at `at` was just emitted."""
        self._over = self._over or at - self._last >= GAP
        self._last = at
        return self._over and at - self._opened >= SETTLED
