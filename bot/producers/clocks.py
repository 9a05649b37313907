"""Judges by the times of a producer's events which were just emitted, and how far its clock is from ours. Pure."""

from __future__ import annotations

from collections import deque
from datetime import UTC, datetime, timedelta

_SAMPLES = 32
_PLAUSIBLE = timedelta(hours=26)  # a clock in the wrong time zone; beyond that, the timestamp is broken
_JITTER = timedelta(seconds=5)  # how much longer than another one an event that was just sent may take
# So many late events, over so long a time, are a clock that was set.
_AGREEING, _APART = 3, timedelta(seconds=10)
_START = datetime(1970, 1, 1, tzinfo=UTC)
SETTLED = 1.0  # seconds
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


class ClockOffset:
    """Ours minus the producer's, estimated from when its events arrive.

    Every event arrives after it was sent, so each received − sent is an upper bound of the offset, and
    the least one is nearest. A bound that is too high would tell people a deadline that is too late.

    Clocks are set. Samples are kept against our steady clock, so that a step of ours moves none of them. A
    producer that sets its clock forward lowers the bound at once. One that sets it back looks like one whose events
    are late: it is believed when several of them, some time apart, are late by the same.
    """

    def __init__(self) -> None:
        self._samples: deque[timedelta] = deque(maxlen=_SAMPLES)
        self._late: list[tuple[timedelta, timedelta]] = []  # samples, and our steady time of each
        self._set = timedelta(0)  # our time of day minus our steady time, when last seen

    def observe(
        self, sent: datetime, received: datetime, steady: float, *, live: bool, late: bool = False
    ) -> None:
        """Note one event.

        Args:
            sent: its `timestamp`.
            received: our time of receipt.
            steady: the same, in seconds of a clock that nobody sets.
            live: it was just emitted. A replayed one tells only that the offset is not more than it says.
            late: it may have been just emitted, or kept back; only others can tell.
        """
        elapsed = self._see(received, steady)
        if abs(received - sent) > _PLAUSIBLE:
            return
        sample = _START + elapsed - sent
        if sample + self._set < self.offset:
            self._samples.append(sample)
        elif late or (live and self._samples and sample > min(self._samples) + _JITTER):
            self._note_late(sample, elapsed)
        elif live:
            self._samples.append(sample)
            self._late.clear()

    def age(self, sent: datetime, received: datetime, steady: float) -> timedelta:
        """How long ago an event was sent, if its clock was not set."""
        self._see(received, steady)
        return received - self.sent_at(sent, received, live=False)

    def _see(self, received: datetime, steady: float) -> timedelta:
        elapsed = timedelta(seconds=steady)
        self._set = received - _START - elapsed
        return elapsed

    def _note_late(self, sample: timedelta, elapsed: timedelta) -> None:
        if self._late and abs(sample - self._late[0][0]) > _JITTER:
            self._late.clear()
        self._late.append((sample, elapsed))
        if len(self._late) >= _AGREEING and elapsed - self._late[0][1] >= _APART:
            self._samples.clear()
            self._samples.extend(late for late, _ in self._late)
            self._late.clear()

    @property
    def is_known(self) -> bool:
        """Whether any event has shown it yet."""
        return bool(self._samples)

    @property
    def offset(self) -> timedelta:
        """The least of the last 32 samples; zero while there is none."""
        return min(self._samples) + self._set if self._samples else timedelta(0)

    def sent_at(self, sent: datetime, received: datetime, *, live: bool) -> datetime:
        """When an event of `sent` was sent, by our clock.

        One that was just emitted was sent when it came, whatever a clock that was set says; the offset may only
        tell how many seconds it was on its way. The same for one whose timestamp is its receipt, having none.
        """
        if sent is received:
            return received
        try:
            at = sent + self.offset
        except OverflowError:  # a timestamp at the end of time
            at = datetime.max.replace(tzinfo=UTC)
        return received if live and not received - _JITTER <= at <= received else at
