"""Figures over the ledgers, the archived ones too: counted, and said in words and in JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from bot.shell.sheet import Cell, Column, Part, Table
from bot.shell.shelf import ledgers
from bot.shell.times import exact
from core.clock import iso, recent, span_of, spoken
from core.digest import Count, Digest, DigestBuilder
from core.errors import BadInput
from core.ledger import FileLedger

_FIRST = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Period:
    """`span` back from `until`; `since` is None where that is before all time."""

    span: timedelta
    since: datetime | None
    until: datetime

    @property
    def heading(self) -> str:
        """A title that says of when it is."""
        return recent(self.span)


def period_of(span: str, now: datetime) -> Period:
    """The time from `span` (`7d`, `1h30m`) before `now`.

    Raises:
        BadInput: it is no span.
    """
    try:
        if (length := span_of(span)) is not None:
            return Period(length, now - length if length < now - _FIRST else None, now)
    except OverflowError:
        pass
    raise BadInput(f"{span[:40]!r} is no span of time; expected something like 90m, 24h, 7d or 2w.")


async def figures(ledger: FileLedger, since: datetime | None) -> tuple[Digest, list[str]]:
    """The figures, and in words what could not be read and is not counted."""
    builder = DigestBuilder(since)
    problems: list[str] = []
    async for each in ledgers(ledger):
        problems += each.problems
        for record in each.records:
            builder.add(record)
    return builder.result(), problems


def digest_json(digest: Digest, period: Period) -> dict[str, object]:
    """The figures as programs read them; times in seconds."""
    return {
        "since": iso(period.since) if period.since else None,
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
    }


def digest_parts(digest: Digest, period: Period) -> list[Part]:
    """The figures as people read them: a table of figures, and one for each list of names that is not empty."""
    named = (
        ("Top topics", digest.topics),
        ("Asks most", digest.askers),
        ("Answers most", digest.answerers),
    )
    return [
        _title(period),
        Table((Column("Figure", whole=True), Column("Value")), _rows(digest)),
        *(_names(title, counts) for title, counts in named if counts),
    ]


def _title(period: Period) -> Cell:
    since = f"{exact(period.since)} to " if period.since else "until "
    return Cell(
        f"{period.heading}: {since}{exact(period.until)}",
        f"Period\t{iso(period.since) if period.since else ''}\t{iso(period.until)}",
        "bold",
    )


def _rows(digest: Digest) -> list[list[str | Cell]]:
    rows: list[list[str | Cell]] = [
        ["Asked", Cell(str(digest.total), style="bold")],
        ["Open", Cell(str(digest.open), style="bold red" if digest.open else "")],
        ["Answered", str(digest.answered)],
        ["Resolved", str(digest.resolved)],
        ["Abandoned", str(digest.abandoned)],
        ["Escalated at some time", str(digest.escalated)],
        ["Answers", str(digest.answers)],
    ]
    if digest.median is not None and digest.p95 is not None:
        rows.append(["Time to answer, median", _span(digest.median)])
        rows.append(["Time to answer, 95 % within", _span(digest.p95)])
    if digest.rounds_mean is not None:
        rows.append(["Rounds", f"{digest.rounds_mean:.1f} on average, {digest.rounds_max} at most"])
    return rows


def _names(title: str, counts: Sequence[Count]) -> Table:
    rows: list[list[str | Cell]] = [
        [Cell(count.name, f"{title}: {count.name}"), str(count.times)] for count in counts
    ]
    return Table((Column(title), Column("Times", whole=True)), rows)


def _span(span: timedelta) -> Cell:
    return Cell(spoken(span), f"{span.total_seconds():.3f} s")


def _counts(counts: Sequence[Count]) -> list[dict[str, object]]:
    return [{"name": count.name, "times": count.times} for count in counts]
