"""Whose turn it is. Pure: rotations, overrides and the time in, people out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo


@dataclass(frozen=True, slots=True)
class Override:
    """`user` stands in from `since` to before `until`, whoever's turn it is; `by` is who said so."""

    user: str
    since: datetime
    until: datetime
    by: str


def turn(users: Sequence[str], start: datetime, shift: timedelta, timezone: str, now: datetime) -> str:
    """The one of `users` whose shift `now` falls into.

    Shifts are counted on the wall clock of `timezone` (a handover at 9:00 stays at 9:00 through daylight saving).
    `start` without a zone is local to it. Before the start, the first user has it.
    """
    return users[max(0, _shift_number(start, shift, ZoneInfo(timezone), now)) % len(users)]


def turn_until(start: datetime, shift: timedelta, timezone: str, now: datetime) -> datetime:
    """When the shift that `now` falls into ends, in UTC; before the start, the first shift's end."""
    zone = ZoneInfo(timezone)
    return _handover(start, shift, zone, max(0, _shift_number(start, shift, zone, now)) + 1)


def in_force(overrides: Sequence[Override], now: datetime) -> Override | None:
    """The override that holds at `now`; of several the one made last (`overrides` are in the order of making)."""
    return next((o for o in reversed(overrides) if o.since <= now < o.until), None)


def _shift_number(start: datetime, shift: timedelta, zone: ZoneInfo, now: datetime) -> int:
    """Wall clocks show an hour twice in autumn and skip one in spring: handovers are compared as moments."""
    number = (now.astimezone(zone).replace(tzinfo=None) - _local(start, zone)) // shift
    while _handover(start, shift, zone, number + 1) <= now:
        number += 1
    while number > 0 and _handover(start, shift, zone, number) > now:
        number -= 1
    return number


def _handover(start: datetime, shift: timedelta, zone: ZoneInfo, number: int) -> datetime:
    """When shift `number` begins. An hour that comes twice counts the first time."""
    return (_local(start, zone) + number * shift).replace(tzinfo=zone).astimezone(UTC)


def _local(start: datetime, zone: ZoneInfo) -> datetime:
    return start.astimezone(zone).replace(tzinfo=None) if start.tzinfo else start
