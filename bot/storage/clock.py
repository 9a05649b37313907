"""The clock that all bots on one PostgreSQL share: the server's, not their machines'."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from datetime import UTC, datetime

from core.clock import Clock

_REMEMBERED = 8  # samples
_DRIFT = 0.0005  # per second between two samples: NTP corrects a clock no faster


@dataclass(frozen=True, slots=True)
class Sample:
    """The server's time of day (`at`, seconds since 1970), read between `sent` and `received` on our steady clock."""

    sent: float
    received: float
    at: float

    @property
    def offset(self) -> float:
        """The difference between the server's clock and our steady clock, if request and response took the same time."""
        return self.at - (self.sent + self.received) / 2

    def error(self, now: float) -> float:
        """Returns the largest possible error of the offset, in seconds."""
        return (self.received - self.sent) / 2 + _DRIFT * (now - self.received)


class ServerClock:
    """Tells the server's time: the best of the last samples, carried forward by our steady clock.

    Two bots differ by at most the difference between their requests' and responses' travel times: milliseconds.
    """

    def __init__(self, own: Clock) -> None:
        self._own = own
        self._samples: deque[Sample] = deque(maxlen=_REMEMBERED)
        self._offset = own.now().timestamp() - own.steady()

    def add(self, sample: Sample) -> None:
        """Adds a sample. Drops older ones that contradict it: they date from before the server's clock was set."""
        agreeing = [each for each in self._samples if _agree(each, sample)]
        self._samples = deque([*agreeing, sample], _REMEMBERED)
        self._offset = min(self._samples, key=lambda each: each.error(sample.received)).offset

    def now(self) -> datetime:
        return datetime.fromtimestamp(self._own.steady() + self._offset, UTC)

    def steady(self) -> float:
        return self._own.steady()

    async def sleep(self, seconds: float) -> None:
        await self._own.sleep(seconds)


def _agree(older: Sample, newer: Sample) -> bool:
    most = older.error(newer.received) + newer.error(newer.received)
    return abs(older.offset - newer.offset) <= most
