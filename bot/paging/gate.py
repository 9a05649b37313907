"""When alike incidents go out: the first at once, what follows soon after together. Pure: times come in.

What has to be decided, escalated clarifications, has its controls on a page of its own, so the first few of them go out
alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

_FIRST, _LONGEST = timedelta(seconds=5), timedelta(seconds=60)
_SHARE = 4  # of the time that is left, at most a quarter is waited
Group = tuple[str, str | None]


def alone(group: Group) -> int:
    """How many of a group have pages of their own before they go out together."""
    return 3 if group[0] == "escalated" else 1


@dataclass(slots=True)
class _Window:
    last: datetime
    pages: int
    length: timedelta = _FIRST


class Gate:
    """One window per group: shut for 5 s after the first pages, twice as long each time while the storm lasts."""

    def __init__(self) -> None:
        self._windows: dict[Group, _Window] = {}

    def passed(self, group: Group, at: datetime, pages: int = 1) -> None:
        """So many pages about `group` go out."""
        window = self._windows.get(group)
        if window is None or not timedelta(0) <= at - window.last <= 2 * window.length:
            self._windows[group] = _Window(at, pages)
            return
        if window.pages >= alone(group):
            window.length = min(_LONGEST, 2 * window.length)
        window.pages += pages
        window.last = at

    def opens(self, group: Group, ends: datetime | None, now: datetime) -> datetime:
        """From when a page about `group` may go out; `ends`: the first moment from which it helps nobody."""
        window = self._windows.get(group)
        if window is None or now < window.last:  # the clock was set back: nobody waits for what was not yet
            return now
        if window.pages < alone(group):
            return now
        wait = window.length
        if ends is not None:
            wait = min(wait, max(timedelta(0), (ends - window.last) / _SHARE))
        return max(now, window.last + wait)
