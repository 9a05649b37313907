"""The clock that all bots on one PostgreSQL share: the server's, whatever their own machines say or are set to."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from datetime import UTC, datetime

from core.clock import Clock

_REMEMBERED = 8  # samples
_DRIFT = 0.0005  # of the time between two samples: as fast as NTP lets a clock run


@dataclass(frozen=True, slots=True)
class Sample:
    """The server's time of day (`at`, seconds since 1970) between a question and its answer, on our steady clock."""

    sent: float
    received: float
    at: float

    @property
    def offset(self) -> float:
        """What is added to our steady clock, if question and answer took the same time."""
        return self.at - (self.sent + self.received) / 2

    def error(self, now: float) -> float:
        """By how much that is wrong at most."""
        return (self.received - self.sent) / 2 + _DRIFT * (now - self.received)


class ServerClock:
    """Its time of day is the server's, by the best of the last samples; between them a steady clock counts on.

    Two bots differ by as much as their answers took longer than their questions, or shorter: milliseconds.
    """

    def __init__(self, own: Clock) -> None:
        self._own = own
        self._samples: deque[Sample] = deque(maxlen=_REMEMBERED)
        self._offset = own.now().timestamp() - own.steady()

    def heard(self, sample: Sample) -> None:
        """Samples that cannot be true together with a newer one are of before the server's clock was set."""
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
