"""Draws the digest as a picture: questions by agent, outcomes, time to answer.

matplotlib draws it without a display (Agg). It is large, so it is an extra, `charts`, and takes a second to import, so the
first picture imports it. Agent text is drawn literally: `$` starts no formula.
"""

from __future__ import annotations

import warnings
from bisect import bisect_left
from collections.abc import Sequence
from datetime import datetime, timedelta
from importlib.util import find_spec
from io import BytesIO
from typing import TYPE_CHECKING, Any

from bot.errors import ClarifyBotError
from bot.views import inert
from core.clock import spoken
from core.digest import Count, Digest

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.text import Text

HOW_TO_GET_IT = "pip install 'clarify-bot[charts]'"
_INK, _SOFT, _FAINT, _PAPER = "#1d2733", "#5b6875", "#e6eaee", "#ffffff"
_BAR = "#3b6ea5"
_BECAME = (("resolved", "#2f7d5b"), ("answered", "#7fb79b"), ("open", "#d98324"), ("abandoned", "#9aa5b1"))
_LONGEST = 80  # characters of a name
# The first has most letters; the others, if installed, add Chinese, Japanese, Korean and symbols.
_FONTS = (
    "DejaVu Sans",
    "Noto Sans CJK SC",
    "Noto Sans CJK JP",
    "WenQuanYi Zen Hei",
    "Arial Unicode MS",
    "Noto Emoji",
)


def can_draw() -> bool:
    """Whether matplotlib is installed."""
    return find_spec("matplotlib") is not None


def draw(digest: Digest, span: timedelta, until: datetime) -> bytes:
    """Returns a PNG of 1650 × 1050 pixels with the figures of the `span` up to `until`. Blocking.

    Raises:
        ClarifyBotError: matplotlib is not installed.
    """
    if not can_draw():
        raise ClarifyBotError(
            f"Drawing a picture needs matplotlib, which is not installed. Run: {HOW_TO_GET_IT}"
        )
    import matplotlib as mpl  # noqa: PLC0415 - takes a second

    with mpl.rc_context(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=r".*Glyph .* missing from")  # drawn as an empty box
        mpl.rcdefaults()  # ignore a matplotlibrc in this folder
        mpl.rc("font", family="sans-serif", size=10, **{"sans-serif": _fonts()})
        mpl.rc("text", color=_INK, parse_math=False)
        return _png(_figure(digest, _dates(digest.since, span, until)))


def _figure(digest: Digest, dates: str) -> Figure:
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # noqa: PLC0415 - as above
    from matplotlib.figure import Figure  # noqa: PLC0415

    figure = Figure(figsize=(11, 7), facecolor=_PAPER)
    FigureCanvasAgg(figure)
    figure.text(0.04, 0.93, "Clarifications", size=20, weight="bold")
    figure.text(0.04, 0.885, dates, size=11, color=_SOFT)
    _tiles(figure, digest)
    _statuses(figure.add_axes((0.04, 0.575, 0.92, 0.055)), digest)
    for (left, width), (title, counts) in zip(
        ((0.04, 0.37), (0.46, 0.23), (0.74, 0.22)), digest.names(), strict=True
    ):
        _names(figure.add_axes((left, 0.03, width, 0.39)), title, counts)
    return figure


def _tiles(figure: Figure, digest: Digest) -> None:
    """Draws the main figures in a row."""
    tiles = (
        ("asked", f"{digest.total:,}"),
        ("open now", f"{digest.open:,}"),
        ("ever escalated", f"{digest.escalated:,}"),
        ("median time to answer", _short(digest.median)),
        ("95 % answered within", _short(digest.p95)),
        ("rounds on average", "–" if digest.rounds_mean is None else f"{digest.rounds_mean:.1f}"),
    )
    for place, (name, value) in enumerate(tiles):
        left = 0.04 + place * 0.157
        figure.text(left, 0.765, value, size=22, weight="bold")
        figure.text(left, 0.732, name, size=9, color=_SOFT)


def _statuses(axes: Axes, digest: Digest) -> None:
    """Draws one bar of all questions by outcome, with a legend below."""
    _bare(axes, "Outcomes")
    axes.set_xlim(0, max(1, digest.total))
    axes.set_ylim(-0.5, 0.5)
    left = 0
    for number, (name, colour) in enumerate(_BECAME):
        times: int = getattr(digest, name)
        axes.barh(0, times, left=left, height=1, color=colour, edgecolor=_PAPER, linewidth=1.5)
        left += times
        place: dict[str, Any] = {"transform": axes.transAxes, "va": "center"}
        axes.text(number * 0.157, -0.45, "■", color=colour, size=13, **place)
        axes.text(number * 0.157 + 0.019, -0.45, f"{name}  {times:,}", size=10.5, **place)
    if not digest.total:
        axes.barh(0, 1, height=1, color=_FAINT)
        axes.text(0.5, 0, "no questions", ha="center", va="center", color=_SOFT)


def _names(axes: Axes, title: str, counts: Sequence[Count]) -> None:
    """Draws a bar for each name, the largest first, with the name above it."""
    _bare(axes, title)
    most = max((count.times for count in counts), default=1)
    axes.set_xlim(0, most * 1.15)
    axes.set_ylim(4.75, -0.75)  # always room for five
    if not counts:
        axes.text(0, 0, "none", color=_SOFT)
    for place, count in enumerate(counts):
        axes.barh(place + 0.12, most, height=0.26, color=_FAINT)
        axes.barh(place + 0.12, count.times, height=0.26, color=_BAR)
        axes.text(most * 1.03, place + 0.12, f"{count.times:,}", va="center", size=9.5, weight="bold")
        _fit(axes.text(0, place - 0.14, "", size=9.5), axes, inert.named(count.name))


def _fit(text: Text, axes: Axes, name: str) -> None:
    """Shows as much of `name` as fits the chart's width, measured: Chinese characters are twice as wide."""
    room = axes.get_window_extent().width

    def fits(limit: int) -> bool:
        text.set_text(inert.clip(name, limit))
        return bool(text.get_window_extent().width <= room)

    longest = min(_LONGEST, inert.size(name))
    if not fits(longest):
        fits(bisect_left(range(longest), 1, key=lambda limit: int(not fits(limit))) - 1)


def _bare(axes: Axes, title: str) -> None:
    axes.set_title(title, loc="left", weight="bold", size=12, pad=8)
    axes.set_frame_on(False)
    axes.set_xticks([])
    axes.set_yticks([])


def _dates(since: datetime | None, span: timedelta, until: datetime) -> str:
    day = f"{until:%-d %B %Y}"
    if since is None:
        return f"until {day}, {until:%H:%M} UTC"
    return f"{since:%-d %B %Y, %H:%M} to {day}, {until:%H:%M} UTC ({spoken(span)})"


def _short(span: timedelta | None) -> str:
    """Returns a span in a few characters: `45 s`, `12 min`, `3.5 h`, `2.1 d`."""
    if span is None:
        return "–"
    seconds = span.total_seconds()
    for unit, size in (("d", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds:.3g} s"


def _fonts() -> list[str]:
    from matplotlib.font_manager import fontManager  # noqa: PLC0415 - as above

    there = {font.name for font in fontManager.ttflist}
    return [name for name in _FONTS if name in there]


def _png(figure: Figure) -> bytes:
    content = BytesIO()
    about: dict[str, Any] = {"Software": "clarify-bot", "Title": "Clarifications"}
    figure.savefig(content, format="png", dpi=150, facecolor=_PAPER, metadata=about)
    return content.getvalue()
