"""`clarify digest`: the same figures in the shell, as tables with bars, or as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import NamedTuple

from bot.api import Cell, Column, Report, ShellHost, Table
from bot.integrations.digest.figures import NO_APPROVALS, Count, Digest, DigestBuilder, Share, add_all
from core.clock import iso, moment_of, recent
from core.errors import BadInput

_BARS = {"answered": "█", "open": "▒", "closed": "░"}
_LONGEST_BAR = 30  # characters
_WEEK = "7d"
_Part = Table | Cell | str


class Period(NamedTuple):
    """What is counted: from `since` on, and before `until`."""

    since: datetime
    until: datetime


async def report(host: ShellHost, span: str | None, since: str | None) -> Report:
    """Returns the figures of a span: the last week, if neither `span` nor `since` is given."""
    if span is not None and since is not None:
        raise BadInput("Give either WHEN or --since, not both.")
    now = host.clock.now()
    period = Period(moment_of(span or since or _WEEK, now), now)
    builder = DigestBuilder(period.since)
    unread = await add_all(builder, host.ledger.every(since=period.since), host.route)
    counted = builder.result(now)
    return Report(_json(counted, period), parts_of(counted, period), unread)


def _json(digest: Digest, period: Period) -> dict[str, object]:
    """Returns the figures as JSON, with times in seconds."""
    return {
        "since": iso(period.since),
        "until": iso(period.until),
        "total": digest.total,
        "open": digest.open,
        "answered": digest.answered,
        "resolved": digest.resolved,
        "abandoned": digest.abandoned,
        "escalated": digest.escalated,
        "answers": digest.answers,
        "medianSeconds": digest.median.total_seconds() if digest.median is not None else None,
        "p95Seconds": digest.p95.total_seconds() if digest.p95 is not None else None,
        "roundsMean": digest.rounds_mean,
        "roundsMax": digest.rounds_max,
        "topics": _counts(digest.topics),
        "askers": _counts(digest.askers),
        "answerers": _counts(digest.answerers),
        "approvals": asdict(digest.approvals),
        "decided": [
            {"risk": each.risk, "times": each.times, "medianSeconds": each.median.total_seconds()}
            for each in digest.decided
        ],
        "days": [
            {"first": each.first.isoformat(), "days": each.days}
            | {name: getattr(each, name) for name in _BARS}
            for each in digest.stretches
        ],
        "routes": [{"name": each.name, "asked": each.asked, **_speed(each)} for each in digest.routes],
        "people": [{"name": each.name, **_speed(each)} for each in digest.people],
    }


def _speed(share: Share) -> dict[str, object]:
    median = share.median.total_seconds() if share.median is not None else None
    approvals = {} if share.approvals == NO_APPROVALS else {"approvals": asdict(share.approvals)}
    return {"answers": share.answers, "medianSeconds": median, **approvals}


def parts_of(digest: Digest, period: Period) -> list[_Part]:
    """Returns the figures as tables: one of figures, and one for each list of names that is not empty."""
    return [
        _title(period),
        Table(
            (Column("Figure", whole=True), Column("Value")), [[name, words] for name, words in digest.words()]
        ),
        *_days(digest),
        *(_names(title, counts) for title, counts in digest.names() if counts),
        *(_shares(digest, title, rows) for title, rows in digest.shares()),
    ]


def _days(digest: Digest) -> list[_Part]:
    """Returns the questions a day with bars, if there are any."""
    if not digest.stretches:
        return []
    most = max(each.answered + each.open + each.closed for each in digest.stretches)
    rows: list[list[str | Cell]] = []
    for each in digest.stretches:
        bar = "".join(
            _bar(getattr(each, name), max(most, _LONGEST_BAR), mark) for name, mark in _BARS.items()
        )
        day = each.first.isoformat()
        rows.append([Cell(day, f"Questions of {day}"), Cell(f"{bar} {each.words}".strip(), each.words)])
    length = digest.stretches[0].days
    title = "Day (UTC)" if length == 1 else f"{length} days from (UTC)"
    legend = ", ".join(f"{mark} {name}" for name, mark in _BARS.items())
    return [Table((Column(title, whole=True), Column(f"Questions: {legend}")), rows)]


def _shares(digest: Digest, title: str, rows: Sequence[tuple[str, str]]) -> Table:
    """Returns the figures of routes, with bars for their times to answer, or of people."""
    bars = [""] * len(rows)
    if title == "By route":
        medians = [each.median.total_seconds() if each.median is not None else 0.0 for each in digest.routes]
        bars = [_bar(seconds, max(medians), "█") for seconds in medians]
    shown: list[list[str | Cell]] = [
        [Cell(name, f"{title}: {name}"), Cell(f"{bar} {words}".strip(), words)]
        for (name, words), bar in zip(rows, bars, strict=True)
    ]
    return Table((Column(title), Column("Median time to answer" if any(bars) else "Figures")), shown)


def _bar(value: float, most: float, mark: str) -> str:
    """Returns a bar, in proportion to `most`; a value above 0 has at least one mark."""
    return mark * (max(1, round(value / most * _LONGEST_BAR)) if value > 0 else 0)


def _title(period: Period) -> Cell:
    return Cell(
        f"{recent(period.until - period.since)}: {_exact(period.since)} to {_exact(period.until)}",
        f"Period\t{iso(period.since)}\t{iso(period.until)}",
        "bold",
    )


def _names(title: str, counts: Sequence[Count]) -> Table:
    rows: list[list[str | Cell]] = [
        [Cell(count.name, f"{title}: {count.name}"), str(count.times)] for count in counts
    ]
    return Table((Column(title), Column("Times", whole=True)), rows)


def _counts(counts: Sequence[Count]) -> list[dict[str, object]]:
    return [{"name": count.name, "times": count.times} for count in counts]


def _exact(moment: datetime) -> str:
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M} UTC"
