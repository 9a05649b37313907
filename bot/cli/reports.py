"""`clarify digest`, `export`: statistics of a time span, and the audit trail; both include the archive."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import aclosing
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from bot.cli.copies import kept_in
from bot.cli.lists import each_record, unreadable
from bot.cli.output import Cell, Column, Part, Table, replacing, to_json
from bot.cli.records import exact
from bot.cli.running import Shell
from bot.cli.trail import Beside, Line, csv_row, trail
from bot.delivery.messages import reminders
from bot.errors import StorageError
from bot.oncall.pages import logged
from bot.retention.backup import Kept
from bot.routing import Audiences
from core.clock import iso, recent, span_of, spoken
from core.digest import NO_APPROVALS, Count, Digest, DigestBuilder, Share
from core.errors import BadInput
from core.ledger import Ledger

_BARS = {"answered": "█", "open": "▒", "closed": "░"}
_LONGEST_BAR = 30  # characters
_FIRST = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Period:
    """The `span` before `until`; `since` is None if that would be before any possible time."""

    span: timedelta
    since: datetime | None
    until: datetime


async def digest(shell: Shell, span: str | None, since: str | None) -> None:
    """Show figures of a span (the last week, if neither `span` nor `since` is given)."""
    if span is not None and since is not None:
        raise BadInput("Give either SPAN or --since, not both.")
    period = period_of(next(each for each in (span, since, "7d") if each is not None), shell.clock.now())
    builder = DigestBuilder(period.since)
    audiences = Audiences(shell.settings)
    routed = bool(shell.settings.routes)
    problems = await each_record(
        shell.ledger.every(since=period.since),
        lambda record: builder.add(record, audiences.route(record).name if routed else ""),
    )
    counted = builder.result(period.until)
    shell.out.show(_digest_json(counted, period), *digest_parts(counted, period))
    shell.tell_problems(problems)


async def export(
    shell: Shell, since: str | None, issue: int | None, output: Path | None, *, as_csv: bool
) -> None:
    """Write a line for each thing that happened to each clarification, to stdout or to `output`, completely or not at all:
    as JSON, or as CSV.
    """
    start = period_of(since, shell.clock.now()).since if since is not None else None
    beside, problems = await asyncio.to_thread(_beside, kept_in(shell.settings))
    if output is None or output == Path("-"):
        write = shell.out.raw if as_csv else shell.out.json_line
        problems += await _export(write, shell.ledger, start, issue, beside, as_csv=as_csv)
    else:
        with replacing(output) as file:

            def to_file(data: Any) -> None:
                file.write((data if as_csv else f"{to_json(data)}\n").encode())

            problems += await _export(to_file, shell.ledger, start, issue, beside, as_csv=as_csv)
    shell.tell_problems(problems)


async def _export(
    write: Callable[[Any], object],
    ledger: Ledger,
    since: datetime | None,
    issue: int | None,
    beside: Beside,
    *,
    as_csv: bool,
) -> list[str]:
    if not as_csv:
        return await export_to(write, ledger, since, issue, beside)
    write(csv_row())
    return await export_to(lambda line: write(csv_row(line)), ledger, since, issue, beside)


def _beside(kept: Kept) -> tuple[Beside, list[str]]:
    """Returns what only the storage knows, and messages about what cannot be read."""
    try:
        with kept.read_only() as tx:
            return Beside(reminders(tx), logged(tx)), []
    except StorageError as error:
        return Beside(), [f"Reminders and pages are left out, except for the last reminder: {error}"]


def period_of(span: str, now: datetime) -> Period:
    """Returns the time from `span` (`7d`, `1h30m`) before `now`.

    Raises:
        BadInput: not a time span.
    """
    try:
        if (length := span_of(span)) is not None:
            return Period(length, now - length if length < now - _FIRST else None, now)
    except OverflowError:
        pass  # too long for a datetime
    raise BadInput(f"{span[:40]!r} is not a time span, such as 90m, 24h, 7d or 2w.")


async def export_to(
    write: Callable[[Line], object],
    ledger: Ledger,
    since: datetime | None,
    issue: int | None,
    beside: Beside | None = None,
) -> list[str]:
    """Write every line; returns messages about what cannot be read."""
    problems: list[str] = []
    async with aclosing(ledger.every(issue=issue)) as every:
        async for some in every:
            problems += [unreadable(each) for each in some.unreadable]
            tampered = await ledger.tampered_among(some.records)
            for record in some.records:
                mark = {"tampered": True} if record.id in tampered else {}
                for line in trail(record, since, beside):
                    write(line | mark)
    return problems


def _digest_json(digest: Digest, period: Period) -> dict[str, object]:
    """Returns the figures as JSON, with times in seconds."""
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


def digest_parts(digest: Digest, period: Period) -> list[Part]:
    """Returns the figures as tables: one of figures, and one for each list of names that is not empty."""
    return [
        _title(period),
        Table((Column("Figure", whole=True), Column("Value")), _rows(digest)),
        *_days(digest),
        *(_names(title, counts) for title, counts in digest.names() if counts),
        *(_shares(digest, title, rows) for title, rows in digest.shares()),
    ]


def _days(digest: Digest) -> list[Part]:
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
    since = f"{exact(period.since)} to " if period.since else "until "
    return Cell(
        f"{recent(period.span)}: {since}{exact(period.until)}",
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
        ["Ever escalated", str(digest.escalated)],
        ["Answers", str(digest.answers)],
    ]
    if digest.median is not None and digest.p95 is not None:
        rows.append(["Time to answer, median", _span(digest.median)])
        rows.append(["Time to answer, 95th percentile", _span(digest.p95)])
    if digest.rounds_mean is not None:
        rows.append(["Rounds", f"{digest.rounds_mean:.1f} on average, {digest.rounds_max} at most"])
    if digest.approvals != NO_APPROVALS:
        rows += [[f"Approvals {name}", str(times)] for name, times in asdict(digest.approvals).items()]
    for each in digest.decided:
        rows.append([f"Time to decide, {each.risk} risk, median", _span(each.median)])
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
