"""Decides which of a producer's events were just emitted, and estimates the offset of its clock. Pure."""

from __future__ import annotations

from collections import deque
from datetime import UTC, datetime, timedelta

_SAMPLES = 8
_PLAUSIBLE = timedelta(hours=26)  # a clock in the wrong time zone; a larger offset is a broken timestamp
_JITTER = timedelta(seconds=5)  # how much the transit time of live events may vary
SETTLED = 1.0  # seconds
GAP = 0.2


class Burst:
    """Tells a connection's replayed events from its live ones, by their arrival in seconds of a steady clock.

    A producer replays at once and without pause. If the first event comes after a pause, there is no replay, unless we
    asked to resume (`resumed`). Otherwise events are live after the first pause and the connection's first second.
    """

    def __init__(self, opened: float, *, resumed: bool = False) -> None:
        self._opened = opened
        self._resumed = resumed
        self._last: float | None = None
        self._quiet = self._over = False

    def live(self, at: float) -> bool:
        """Whether events that arrive at `at` were just emitted."""
        paused = at - (self._opened if self._last is None else self._last) >= GAP
        if self._last is None:
            self._quiet = paused and not self._resumed
        self._over = self._over or paused
        self._last = at
        return self._quiet or (self._over and at - self._opened >= SETTLED)


class ClockOffset:
    """Estimates our clock minus the producer's from the arrival of its events.

    Every event arrives after it was sent, so each received − sent is an upper bound of the offset, and the lowest one is
    nearest. A bound that is too high would show people a deadline that is too late. Only the last few samples count, since
    clocks get set.
    """

    def __init__(self) -> None:
        self._samples: deque[timedelta] = deque(maxlen=_SAMPLES)

    def observe(self, sent: datetime, received: datetime, *, live: bool) -> None:
        """Adds the sample of one event. `live`: it was just emitted; a replayed event only limits the offset."""
        sample = received - sent
        if abs(sample) <= _PLAUSIBLE and (live or sample < self.offset):
            self._samples.append(sample)

    @property
    def offset(self) -> timedelta:
        """The lowest of the last samples; zero if there is none."""
        return min(self._samples, default=timedelta(0))

    def sent_at(self, sent: datetime, received: datetime, *, live: bool) -> datetime:
        """Returns when an event was sent, on our clock.

        A live event was sent at most a few seconds before it arrived, even if its clock was set. An event without a
        timestamp (`sent` is `received`) was sent when it arrived.
        """
        if sent is received:
            return received
        try:
            at = sent + self.offset
        except OverflowError:  # a timestamp in the year 9999
            at = datetime.max.replace(tzinfo=UTC)
        return received if live and not received - _JITTER <= at <= received else at
