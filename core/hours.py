"""Hours of the week on the wall clock of a time zone: "Mon-Fri 09:00-18:00, Sat 10:00-12:00". Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final
from zoneinfo import ZoneInfo

_DAYS: Final = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_WEEK: Final = len(_DAYS)
_DAY: Final = 24 * 60  # minutes
_SPAN = re.compile(r"(\d{1,2}):(\d{2})-(\d{1,2}):(\d{2})")
_EXPECTED = 'expected hours such as "Mon-Fri 09:00-18:00, Sat 10:00-12:00", or "22:00-06:00" for every night'


@dataclass(frozen=True, slots=True)
class Window:
    """From `begins` on `weekday` (0: Monday) to before `ends`, in minutes since midnight; `ends` may be on the next day."""

    weekday: int
    begins: int
    ends: int


@dataclass(frozen=True, slots=True)
class Hours:
    """Windows of the week in the zone named `timezone`.

    An hour that comes twice in autumn is inside both times. A window that begins or ends in the hour that spring skips is
    extended: better a page too early than none.
    """

    windows: tuple[Window, ...]
    timezone: str

    @classmethod
    def read(cls, text: str, timezone: str = "UTC") -> Hours:
        """Windows are separated by commas. One without days has those of the one before, the first every day; one whose
        end is not after its beginning ends on the next day.

        Raises:
            ValueError: the text cannot be read.
        """
        windows: list[Window] = []
        days, more = tuple(range(_WEEK)), tuple[int, ...]()
        for part in re.sub("[‐‑‒–—−]", "-", text).split(","):
            words = re.sub(r"(?:(?<!\s)\s+)?-\s*", "-", part.strip()).split()
            span = _SPAN.fullmatch(words[-1]) if words else None
            named = [day for word in (words[:-1] if span else words) for day in _days(word)]
            if named or not span:
                more += tuple(named)
            if span:
                days, more = more or days, ()
                begins, ends = _minutes(span[1], span[2]), _minutes(span[3], span[4])
                if begins in {ends, _DAY}:
                    raise ValueError(f'{_EXPECTED}; the whole day is "00:00-24:00"')
                windows += [Window(day, begins, ends if ends > begins else ends + _DAY) for day in days]
            elif not named:
                raise ValueError(_EXPECTED)
        if more or not windows:
            raise ValueError(_EXPECTED)
        return cls(tuple(dict.fromkeys(windows)), timezone)

    def include(self, moment: datetime) -> bool:
        """Whether `moment` is inside."""
        return self.next(moment) == moment

    def next(self, moment: datetime) -> datetime:
        """The first moment inside, from `moment` on."""
        zone = ZoneInfo(self.timezone)
        today = moment.astimezone(zone).replace(hour=0, minute=0, second=0, microsecond=0, tzinfo=None)
        for ahead in range(-1, _WEEK + 1):  # from windows that began yesterday to the same day next week
            windows = self._on(today + timedelta(days=ahead), zone)
            if found := [max(moment, begins) for begins, ends in windows if moment < ends]:
                return min(found)
        raise AssertionError("hours that never occur")

    def _on(self, day: datetime, zone: ZoneInfo) -> list[tuple[datetime, datetime]]:
        """The beginning and end of each window that begins on a day."""
        return [
            (
                min(_moments(day + timedelta(minutes=each.begins), zone)),
                max(_moments(day + timedelta(minutes=each.ends), zone)),
            )
            for each in self.windows
            if each.weekday == day.weekday()
        ]


def _moments(local: datetime, zone: ZoneInfo) -> tuple[datetime, datetime]:
    """The moments at which a wall clock shows `local`; they differ only where clocks change."""
    aware = local.replace(tzinfo=zone)
    return aware.replace(fold=0).astimezone(UTC), aware.replace(fold=1).astimezone(UTC)


def _days(word: str) -> list[int]:
    """The days that "Mon", "Mon-Fri" or "Sat-Mon" names."""
    first, dash, last = word.casefold().partition("-")
    begins, ends = _day(first), _day(last) if dash else _day(first)
    return [day % _WEEK for day in range(begins, begins + (ends - begins) % _WEEK + 1)]


def _day(name: str) -> int:
    for number, day in enumerate(_DAYS):
        if len(name) >= 3 and day.startswith(name):
            return number
    raise ValueError(_EXPECTED)


def _minutes(hours: str, minutes: str) -> int:
    found = int(hours) * 60 + int(minutes)
    if int(minutes) >= 60 or found > _DAY:
        raise ValueError(_EXPECTED)
    return found
