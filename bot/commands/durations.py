"""Spans of time as people type them: `90m`, `2h`, `1h30m`, `7d`, `2w`, `2hours`. Pure."""

from __future__ import annotations

import re
from datetime import timedelta

_UNITS = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_PART = r"(\d{1,6})(m(?:in(?:ute)?s?)?|h(?:(?:ou)?rs?)?|d(?:ays?)?|w(?:eeks?)?)"
_WHOLE = re.compile(rf"(?:{_PART})+", re.IGNORECASE)
_EACH = re.compile(_PART, re.IGNORECASE)
_LIKE_ONE = re.compile(
    r"[-−]\d+|[-−+]?(?:\d+(?:[.,]\d+)?(?:s(?:ec(?:ond)?s?)?|m(?:in(?:ute)?s?|onths?)?|h(?:(?:ou)?rs?)?|d(?:ays?)?"
    r"|w(?:eeks?)?|y(?:ears?)?))+",
    re.IGNORECASE,
)
_DAY = timedelta(days=1)
_NAMES = (("week", 7 * 86_400), ("day", 86_400), ("hour", 3600), ("minute", 60), ("second", 1))


def span_of(text: str) -> timedelta | None:
    """A span longer than nothing, or None if `text` is none."""
    if not _WHOLE.fullmatch(text):
        return None
    total = timedelta()
    for amount, unit in _EACH.findall(text):
        total += timedelta(**{_UNITS[unit[0].lower()]: int(amount)})
    return total or None


def is_like_span(text: str) -> bool:
    """Whether a text is meant as a span, though it may be none that can be used: `-2h`, `3s`, `1.5h`."""
    return _LIKE_ONE.fullmatch(text) is not None


def recent(span: timedelta) -> str:
    """The title of what happened within a span up to now: `Last 7 days`, `Last 24 hours`, `Last hour`."""
    days = span / _DAY
    if days.is_integer():
        return f"Last {days:.0f} days" if days > 1 else "Last 24 hours"
    said = spoken(span)
    return f"Last {said.removeprefix('1 ') if said in {'1 hour', '1 minute'} else said}"


def spoken(span: timedelta) -> str:
    """A span in words, in its two largest units: `2 hours 30 minutes`. Less than a second: `0 seconds`."""
    left, parts = max(0, round(span.total_seconds())), []
    for name, seconds in _NAMES:
        amount, left = divmod(left, seconds)
        if amount:
            parts.append(f"{amount} {name}{'s' if amount > 1 else ''}")
        elif parts:
            break
    return " ".join(parts[:2]) or "0 seconds"
