"""The lines of the traffic panel as they are shown. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, tzinfo

from .traffic import Direction, Line

SHOWN = 100
# Where the arrow is, between which two parties, and which way it points.
_PLACES: dict[Direction, tuple[str, str]] = {
    "agent→bot": ("agent", "right"),
    "bot→agent": ("agent", "left"),
    "bot→slack": ("slack", "right"),
    "slack→bot": ("slack", "left"),
}


@dataclass(frozen=True)
class Wire:
    """One line. `lane`: agent or slack, the party beside the app; `took` in words; `spoken` for screen readers."""

    number: int
    lane: str
    heading: str
    spoken: str
    title: str
    detail: str
    at: datetime
    took: str
    failure: str
    times: int


def wires(lines: list[Line], zone: tzinfo | None, app: str) -> list[Wire]:
    """The newest lines, oldest first."""
    return [_wire(line, zone, app) for line in lines[-SHOWN:]]


def took(seconds: float | None) -> str:
    """A duration in words; "" where none is known."""
    if seconds is None:
        return ""
    if seconds < 0.001:
        return "<1 ms"
    return f"{seconds * 1000:.0f} ms" if seconds < 1 else f"{seconds:.1f} s"


def _wire(line: Line, zone: tzinfo | None, app: str) -> Wire:
    lane, heading = _PLACES[line.direction]
    other = "agent" if lane == "agent" else "Slack"
    from_bot = line.direction.startswith("bot")
    spoken = f"{app} to {other}" if from_bot else f"{other} to {app}"
    at = datetime.fromtimestamp(line.time, zone)
    return Wire(
        line.number,
        lane,
        heading,
        spoken,
        line.title,
        line.detail,
        at,
        took(line.seconds),
        line.failure,
        line.times,
    )
