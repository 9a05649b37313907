"""How far a producer's clock is from ours (pure)."""

from __future__ import annotations

from collections import deque
from datetime import UTC, datetime, timedelta

_SAMPLES = 32
_PLAUSIBLE = timedelta(hours=26)  # a clock in the wrong time zone; beyond that, the timestamp is broken


class ClockOffset:
    """Ours minus the producer's, estimated from when its events arrive.

    Every event arrives after it was sent, so each received − sent is an upper bound of the offset, and
    the least one is nearest. A bound that is too high would tell people a deadline that is too late.
    """

    def __init__(self) -> None:
        self._samples: deque[timedelta] = deque(maxlen=_SAMPLES)

    def observe(self, sent: datetime, received: datetime, live: bool) -> None:  # noqa: FBT001  as Incoming has it
        """Note one event: its `timestamp`, our time of receipt, and whether it was just emitted.

        A replayed one says nothing, unless it comes from our future: then our clock is behind.
        """
        difference = received - sent
        if abs(difference) <= _PLAUSIBLE and (live or difference < timedelta(0)):
            self._samples.append(difference)

    @property
    def offset(self) -> timedelta:
        """The least of the last 32 samples; zero while there is none."""
        return min(self._samples, default=timedelta(0))

    def deadline(self, sent: datetime, timeout_seconds: float) -> datetime:
        """When, by our clock, the producer stops waiting for a reply to an event of `sent`."""
        try:
            return sent + timedelta(seconds=timeout_seconds) + self.offset
        except OverflowError:  # a timestamp at the end of time
            return datetime.max.replace(tzinfo=UTC)
