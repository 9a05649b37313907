"""Reading others' JSON leniently: what a field says, or None. Pure."""

from __future__ import annotations

import re
from datetime import UTC, datetime

_LONE = re.compile("[\ud800-\udfff]")
_TIMEOUT_LIMIT = 366 * 86400
_FIRST_YEAR, _LAST_YEAR = 1971, 9000


def whole_characters(text: str) -> str:
    """`text` with lone surrogates, which no UTF-8 can carry, as U+FFFD."""
    return _LONE.sub("\ufffd", text)


def text_in(value: object) -> str | None:
    """A string that says something; lone surrogates, which no UTF-8 can carry, become U+FFFD."""
    if not isinstance(value, str) or not value.strip():
        return None
    return whole_characters(value)


def timeout_in(value: object, problems: list[str]) -> int | None:
    """`timeout_seconds` as whole seconds, at least 1; None, and a problem, where it says nothing that could be."""
    try:
        seconds = float(value) if isinstance(value, str) else value
    except ValueError:
        seconds = None
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)):
        seconds = None
    if seconds is None or not 0 < seconds < _TIMEOUT_LIMIT:
        problems.append("timeout_seconds missing or impossible")
        return None
    return max(1, int(seconds))


def moment_in(value: object) -> datetime | None:
    """A time as RFC 3339 has it, in UTC, also where it leaves out the zone."""
    if not isinstance(value, str):
        return None
    try:
        read = datetime.fromisoformat(value)
        moment = (read if read.tzinfo else read.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError):
        return None
    # At either end of time a deadline or an offset could not be added to it.
    return moment if _FIRST_YEAR <= moment.year <= _LAST_YEAR else None
