"""Whose turn it is. Pure: a rotation and the time in, people out."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo


def turn(users: Sequence[str], start: datetime, shift: timedelta, timezone: str, now: datetime) -> str:
    """The one of `users` whose shift `now` falls into.

    Shifts are counted on the wall clock of `timezone` (a handover at 9:00 stays at 9:00 through daylight saving).
    `start` without a zone is local to it. Before the start, the first user has it.
    """
    zone = ZoneInfo(timezone)
    local = now.astimezone(zone).replace(tzinfo=None)
    begin = start.astimezone(zone).replace(tzinfo=None) if start.tzinfo else start
    return users[max(0, (local - begin) // shift) % len(users)]
