"""When events may have been lost on their way to the request URL. Pure but for what it remembers.

Slack tries an event at once, after one minute and after five, then gives it up (docs.slack.dev, "The Events API").
Nothing tells afterwards that it did, and there is no connection whose end could be seen. But whatever was given up
had either been tried while others came as retries, or nothing came for minutes: both show on what comes next. A quiet
hour looks the same as an outage; then a look into the history costs a few calls and finds nothing.
"""

from __future__ import annotations

from datetime import datetime, timedelta

LULL = timedelta(minutes=4)  # shorter than the time after which Slack gives an event up
APART = timedelta(minutes=1)  # looks follow each other no closer


class Gaps:
    """`opened` once when requests are taken, then `heard` for each of them."""

    def __init__(self) -> None:
        self._last: datetime | None = None
        self._looked: datetime | None = None
        self._owed: datetime | None = None  # not before then

    def opened(self, now: datetime) -> None:
        """From now on silence counts; what was missed before is looked for by who opens."""
        self._last = now

    def heard(self, now: datetime, *, retried: bool = False, dropped: bool = False) -> bool:
        """Whether to look into the history now.

        retried: Slack could not deliver this before. dropped: Slack says that it leaves out events for a minute.
        """
        lull = self._last is not None and now - self._last >= LULL
        self._last = now
        if dropped:
            self._owe(now + APART)
        elif retried or lull:
            self._owe(now)
        if self._owed is None or now < max(self._owed, (self._looked or now - APART) + APART):
            return False
        self._owed, self._looked = None, now
        return True

    def failed(self, now: datetime) -> None:
        """The look found no end: another one is due."""
        self._owe(now)

    def _owe(self, since: datetime) -> None:
        # The later of two: what was dropped until then is found as well.
        self._owed = since if self._owed is None else max(self._owed, since)
