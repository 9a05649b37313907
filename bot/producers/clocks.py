"""Decides which of a producer's events were just emitted, and estimates the offset of its clock. Pure."""

from __future__ import annotations

from collections import deque
from datetime import UTC, datetime, timedelta

_SAMPLES = 32
_PLAUSIBLE = timedelta(hours=26)  # a clock in the wrong time zone; a larger offset is a broken timestamp
_JITTER = timedelta(seconds=5)  # how much the transit time of live events may vary
# So many events, late by the same over so long a time, mean that the clock was set back.
_AGREEING, _APART = 3, timedelta(seconds=10)
_START = datetime(1970, 1, 1, tzinfo=UTC)
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
    nearest. A bound that is too high would show people a deadline that is too late.

    Clocks get set. Samples are relative to our steady clock, so setting ours moves none of them. If a producer sets its
    clock forward, the bound falls at once. If it sets it back, its events look late: we accept that once several of
    them, some time apart, are late by the same.
    """

    def __init__(self) -> None:
        self._samples: deque[timedelta] = deque(maxlen=_SAMPLES)
        self._late: list[tuple[timedelta, timedelta]] = []  # samples, and our steady time of each
        self._set = timedelta(0)  # our time of day minus our steady time, when last seen

    def observe(
        self, sent: datetime, received: datetime, steady: float, *, live: bool, late: bool = False
    ) -> None:
        """Adds the sample of one event.

        Args:
            sent: its `timestamp`.
            received: when it arrived, on our clock.
            steady: the same, in seconds of a steady clock.
            live: it was just emitted. A replayed event only limits the offset.
            late: it may be live or delayed; only further events can tell.
        """
        elapsed = self._follow_clock(received, steady)
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
        """Returns how long ago an event was sent, unless the producer's clock was set."""
        self._follow_clock(received, steady)
        return received - self.sent_at(sent, received, live=False)

    def _follow_clock(self, received: datetime, steady: float) -> timedelta:
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
        """Whether there is a sample."""
        return bool(self._samples)

    @property
    def offset(self) -> timedelta:
        """The lowest of the last 32 samples; zero if there is none."""
        return min(self._samples) + self._set if self._samples else timedelta(0)

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
