"""Moments and spans as a person at a terminal reads them. Pure, but for what is given as now."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from bot.shell.sheet import Cell
from core.clock import iso
from core.errors import BadInput

_UNITS = ((86_400, "d"), (3600, "h"), (60, "min"))
_A_WHILE = timedelta(days=14)


def relative(moment: datetime, now: datetime) -> str:
    """`just now`, `5 min ago`, `in 3 h`; the date for what is more than two weeks away."""
    span = now - moment
    if abs(span) > _A_WHILE:
        return f"{moment.astimezone(UTC):%Y-%m-%d}"
    seconds = abs(span.total_seconds())
    for size, unit in _UNITS:
        if seconds >= size:
            amount = f"{int(seconds // size)} {unit}"
            return f"{amount} ago" if span > timedelta() else f"in {amount}"
    return "just now" if span >= timedelta() else "in less than a minute"


def exact(moment: datetime) -> str:
    """`2026-05-24 14:22 UTC`."""
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M} UTC"


def when(moment: datetime, now: datetime) -> Cell:
    """Relative on a terminal, RFC 3339 in a pipe."""
    return Cell(relative(moment, now), iso(moment))


def seconds_of(text: str | None) -> float | None:
    """A `--timeout` in seconds; None: none was given.

    Raises:
        BadInput: it is no duration.
    """
    from bot.settings.values import duration  # noqa: PLC0415 - heavy: not for --help

    if text is None:
        return None
    try:
        return duration(text).total_seconds()
    except ValueError:
        raise BadInput(f"--timeout {text[:40]!r}: expected a duration such as 90s, 30m or 1h30m.") from None
