"""Where the bars of a `data_visualization` block stand: percent across, so that a chart fits every width; pixels down. Pure.

Other kinds of charts than bars are shown as their table alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count

from .state import Json

HEIGHT, TOP = 150, 8  # pixels: of the tallest bar, and above it
LEFT, RIGHT = 9.0, 1.0  # percent
_ROOM = 0.74  # of a category's width that its bars take
TONES = 4


@dataclass(frozen=True)
class Bar:
    """One bar; `said` is its tooltip."""

    x: float
    y: float
    width: float
    height: float
    tone: int
    said: str


@dataclass(frozen=True)
class Tick:
    """A line across, or a category's label below."""

    at: float
    label: str


@dataclass(frozen=True)
class Chart:
    """A chart as drawn; `rows` are those of its table: a category and a value of each series."""

    names: tuple[str, ...]
    rows: Sequence[tuple[str, tuple[str, ...]]]
    bars: tuple[Bar, ...] = ()
    lines: tuple[Tick, ...] = ()
    categories: tuple[Tick, ...] = ()

    @property
    def height(self) -> int:
        """Pixels of the whole: labels below are slanted."""
        return TOP + HEIGHT + 30 + 3 * max((len(each.label) for each in self.categories), default=0)


def chart_of(block: Json) -> Chart:
    """Returns the drawing of a block that the rules accept."""
    chart: Json = block["chart"]
    if chart["type"] == "pie":
        segments = [(each["label"], (number(each["value"]),)) for each in chart["segments"]]
        return Chart(("Value",), tuple(segments))
    categories: list[str] = chart["axis_config"]["categories"]
    names = tuple(series["name"] for series in chart["series"])
    values = [{point["label"]: point["value"] for point in series["data"]} for series in chart["series"]]
    rows = tuple((each, tuple(number(row[each]) for row in values)) for each in categories)
    if chart["type"] != "bar":
        return Chart(names, rows)
    highest, step = _scale(max(max(row.values()) for row in values))
    room = (100 - LEFT - RIGHT) / len(categories)
    width = room * _ROOM / len(names)
    bars = []
    for place, category in enumerate(categories):
        left = LEFT + room * (place + (1 - _ROOM) / 2)
        for tone, (name, row) in enumerate(zip(names, values, strict=True)):
            tall = max(0.0, HEIGHT * row[category] / highest)
            said = f"{category}, {name}: {number(row[category])}"
            bars.append(Bar(left + tone * width, TOP + HEIGHT - tall, width, tall, tone % TONES + 1, said))
    marks = [n * step for n in range(round(highest / step) + 1)]
    return Chart(
        names,
        rows,
        tuple(bars),
        tuple(Tick(TOP + HEIGHT * (1 - mark / highest), number(mark)) for mark in marks),
        tuple(Tick(LEFT + room * (place + 0.5), each) for place, each in enumerate(categories)),
    )


def number(value: float) -> str:
    """Returns a value as Slack shows it."""
    return f"{value:,.10g}"


def _scale(most: float) -> tuple[float, float]:
    """Returns the top of the axis and the distance of its lines: up to five, at round numbers."""
    if most <= 0:
        return 1.0, 1.0
    for power in count(-3):
        for step in (10.0**power, 2 * 10.0**power, 5 * 10.0**power):
            if step * 5 >= most:
                lines = -(-most // step)
                return lines * step, step
    raise AssertionError
