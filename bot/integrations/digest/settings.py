"""The table `[digest]`."""

from __future__ import annotations

import re
from datetime import UTC, datetime, time, timedelta
from typing import Annotated
from zoneinfo import ZoneInfo

from pydantic import AfterValidator

from bot.api import ChannelId, SettingsTable, time_zone

_WEEKDAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_WEEKLY = re.compile(rf"({'|'.join(_WEEKDAYS)}) ([01]\d|2[0-3]):([0-5]\d)")


def _weekly(value: str) -> str:
    value = value.capitalize()
    if not _WEEKLY.fullmatch(value):
        raise ValueError('expected a day and a time, such as "Mon 09:00"')
    return value


class DigestSettings(SettingsTable):
    """Posts weekly figures to a channel."""

    channel: ChannelId
    """Where the digest is posted. It counts what everyone there may see: its own questions, and those of public
    channels.
    """
    every: Annotated[str, AfterValidator(_weekly)] = "Mon 09:00"
    """The day and time to post it."""
    timezone: Annotated[str, AfterValidator(time_zone)] = "UTC"
    """For `every`, and for the week that is counted."""

    def last_due(self, now: datetime) -> datetime:
        """Returns the latest due time up to `now`, in `timezone`, which also defines its week.

        A time skipped in spring is an hour later; of a time repeated in autumn, the first one counts.
        """
        day, _, at = self.every.partition(" ")
        here = now.astimezone(ZoneInfo(self.timezone))
        date_ = here.date() - timedelta(days=(here.weekday() - _WEEKDAYS.index(day)) % 7)
        due = datetime.combine(date_, time.fromisoformat(at), here.tzinfo)
        return due if due.astimezone(UTC) <= now else due - timedelta(days=7)  # by the wall clock
