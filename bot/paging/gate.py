"""When alike incidents go out: the first at once, what follows soon after together. Pure: times come in.

What has to be decided, escalated clarifications, has its controls on a page of its own, so the first few of them go out
alone.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

_FIRST, _LONGEST = timedelta(seconds=5), timedelta(seconds=20)
REMEMBERED = 2 * _LONGEST  # after that, no window is open
_SHARE = 4  # of the time that is left, at most a quarter is waited
Group = tuple[str, str | None]


def alone(group: Group) -> int:
    """How many of a group have pages of their own before they go out together."""
    return 3 if group[0] == "escalated" else 1


@dataclass(slots=True)
class _Window:
    last: datetime
    paged: set[int]
    length: timedelta = _FIRST


class Gate:
    """One window per group: shut for 5 s after the first pages, twice as long each time while the storm lasts."""

    def __init__(self) -> None:
        self._windows: dict[Group, _Window] = {}

    def passed(self, group: Group, incidents: Iterable[int], at: datetime) -> None:
        """A page about `incidents` of `group` goes out."""
        window = self._windows.get(group)
        if window is None or not timedelta(0) <= at - window.last <= 2 * window.length:
            self._windows[group] = _Window(at, set(incidents))
            return
        news = set(incidents) - window.paged
        if news and len(window.paged) >= alone(group):
            window.length = min(_LONGEST, 2 * window.length)
        window.paged |= news
        window.last = at if news else window.last

    def opens(self, group: Group, incidents: Iterable[int], ends: datetime | None, now: datetime) -> datetime:
        """From when a page about `incidents` may go out; `ends`: the first moment from which it helps nobody.

        What was paged in the window goes out again when the policy says so: repeats are no storm.
        """
        window = self._windows.get(group)
        if window is None or now < window.last:  # the clock was set back: nobody waits for what was not yet
            return now
        if len(window.paged) < alone(group) or window.paged.issuperset(incidents):
            return now
        wait = window.length
        if ends is not None:
            wait = min(wait, max(timedelta(0), (ends - window.last) / _SHARE))
        return max(now, window.last + wait)
