"""When alike incidents go out: the first at once, what follows soon after together. Pure: times come in."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

_FIRST, _LONGEST = timedelta(seconds=5), timedelta(seconds=60)
_SHARE = 4  # of the time that is left, at most a quarter is waited
Group = tuple[str, str | None]


@dataclass(slots=True)
class _Window:
    last: datetime
    length: timedelta = _FIRST


class Gate:
    """One window per group: shut for 5 s after a page, twice as long each time while the storm lasts."""

    def __init__(self) -> None:
        self._windows: dict[Group, _Window] = {}

    def passed(self, group: Group, at: datetime) -> None:
        """A page about `group` goes out."""
        window = self._windows.get(group)
        if window is None:
            self._windows[group] = _Window(at)
            return
        storm = timedelta(0) <= at - window.last <= 2 * window.length
        window.length = min(_LONGEST, 2 * window.length) if storm else _FIRST
        window.last = at

    def opens(self, group: Group, ends: datetime | None, now: datetime) -> datetime:
        """From when a page about `group` may go out; `ends`: the first moment from which it helps nobody."""
        window = self._windows.get(group)
        if window is None or now < window.last:  # the clock was set back: nobody waits for what was not yet
            return now
        wait = window.length
        if ends is not None:
            wait = min(wait, max(timedelta(0), (ends - window.last) / _SHARE))
        return max(now, window.last + wait)
