"""`clarify digest`, `export`: statistics of a time span, and the audit trail; both include the archive."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from bot.charts import draw
from bot.cli.lists import each_ledger, each_record
from bot.cli.output import Cell, Column, Part, Table, replacing, to_json
from bot.cli.records import exact
from bot.cli.running import Shell
from bot.routing import Audiences
from bot.views.wording import past_round
from core.approvals import approved_by
from core.clarification import US, Aaep, Clarification, Entry
from core.clock import iso, recent, span_of, spoken
from core.digest import Count, Digest, DigestBuilder, Share
from core.errors import BadInput
from core.ledger import Ledger

Line = dict[str, object]
_FIRST = datetime.min.replace(tzinfo=UTC)
_UNKNOWN = Aaep(kinds=())


@dataclass(frozen=True, slots=True)
class Period:
    """The `span` before `until`; `since` is None if that would be before any possible time."""

    span: timedelta
    since: datetime | None
    until: datetime


async def digest(shell: Shell, span: str | None, since: str | None, png: Path | None) -> None:
    """Show figures of a span (the last week, if neither `span` nor `since` is given); draw them into `png` too."""
    if span is not None and since is not None:
        raise BadInput("Give either SPAN or --since, not both.")
    period = period_of(next(each for each in (span, since, "7d") if each is not None), shell.clock.now())
    builder = DigestBuilder(period.since)
    audiences = Audiences(shell.settings)
    routed = bool(shell.settings.routes)
    problems = await each_record(
        shell.ledger, lambda record: builder.add(record, audiences.route(record).name if routed else "")
    )
    counted = builder.result()
    if png is not None:
        picture = draw(counted, period.span, period.until)
        with replacing(png) as file:
            file.write(picture)
        shell.out.note(f"Wrote {png}.")
    shell.out.show(_digest_json(counted, period), *_digest_parts(counted, period))
    shell.tell_problems(problems)


async def export(shell: Shell, since: str | None, issue: int | None, output: Path | None) -> None:
    """Write a line of JSON for each entry of each clarification, to stdout or to `output`, completely or not at all."""
    start = period_of(since, shell.clock.now()).since if since is not None else None
    if output is None or output == Path("-"):
        problems = await export_to(shell.out.json_line, shell.ledger, start, issue)
    else:
        with replacing(output) as file:
            problems = await export_to(
                lambda line: file.write(f"{to_json(line)}\n".encode()), shell.ledger, start, issue
            )
    shell.tell_problems(problems)


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
    write: Callable[[Line], object], ledger: Ledger, since: datetime | None, issue: int | None
) -> list[str]:
    """Write every line, ledger by ledger; returns messages about what cannot be read."""

    async def take(records: Sequence[Clarification]) -> None:
        tampered = await ledger.tampered_among(records)
        for record in records:
            mark = {"tampered": True} if record.id in tampered else {}
            for line in trail(record, since):
                write(line | mark)

    return await each_ledger(ledger, take, issue=issue)


def trail(record: Clarification, since: datetime | None = None) -> Iterator[Line]:
    """Returns the entries of a record since `since`, earliest first.

    `surface` of a question: "aaep" (a producer's event), "shell", "python", or "ledger" (another implementation); of an
    answer: where it was given. `reply`: the delivery state of the answer. Never a reply token.
    """
    answers = _answers(record)
    questions = _questions(record)
    ordered = sorted(enumerate(record.thread), key=lambda numbered: numbered[1].timestamp)
    for place, entry in ordered:
        if since is not None and entry.timestamp < since:
            continue
        line = _line(record, entry)
        if entry.type == "question":
            line |= _asked(questions.get(place, _UNKNOWN))
        elif entry.type == "answer" or place in answers:
            line |= _answered(answers.get(place, _UNKNOWN), entry)
        yield line


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
        "routes": [{"name": each.name, "asked": each.asked, **_speed(each)} for each in digest.routes],
        "people": [{"name": each.name, **_speed(each)} for each in digest.people],
    }


def _speed(share: Share) -> dict[str, object]:
    median = share.median.total_seconds() if share.median is not None else None
    return {"answers": share.answers, "medianSeconds": median}


def _digest_parts(digest: Digest, period: Period) -> list[Part]:
    """Returns the figures as tables: one of figures, and one for each list of names that is not empty."""
    return [
        _title(period),
        Table((Column("Figure", whole=True), Column("Value")), _rows(digest)),
        *(_names(title, counts) for title, counts in digest.names() if counts),
        *(
            Table(
                (Column(title), Column("Figures")),
                [[Cell(name, f"{title}: {name}"), words] for name, words in rows],
            )
            for title, rows in digest.shares()
        ),
    ]


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


def _line(record: Clarification, entry: Entry) -> Line:
    return {
        "clarification": record.id,
        "issue": record.issue_number,
        "round": entry.round,
        "from": record.from_,
        "to": record.to,
        "topic": record.topic,
        "blocking": record.blocking,
        "status": record.status,
        "type": entry.type,
        "by": entry.from_,
        "body": entry.body,
        "timestamp": iso(entry.timestamp),
    }


def _asked(asked: Aaep) -> Line:
    surface = asked.via or ("aaep" if asked.producer else "ledger")
    return {"surface": surface, "producer": asked.producer, "session": asked.session_id}


def _answered(asked: Aaep, entry: Entry) -> Line:
    by = asked.answered_by
    return {
        "decidedBy": asked.decided_by,
        "surface": by.surface if by else "ledger",
        "team": by.team if by else None,
        "user": by.user if by else None,
        "response": entry.body if asked.response is None else asked.response,
        "rationale": asked.rationale,
        "reply": asked.reply,
        **({"approvedBy": approved_by(asked)} if asked.is_confirmation else {}),
        "receipt": asked.receipt,
    }


def _rounds(record: Clarification) -> list[Aaep]:
    """Returns the facts of each round that was asked through the bot, oldest first."""
    return [*map(past_round, record.asked.earlier), record.asked]


def _questions(record: Clarification) -> dict[int, Aaep]:
    """Returns the facts of each question, by its place in the thread; empty if the numbers do not match."""
    places = [
        place for place, entry in enumerate(record.thread) if entry.type == "question" and entry.from_ != US
    ]
    return dict(zip(places, _rounds(record), strict=False))


def _answers(record: Clarification) -> dict[int, Aaep]:
    """Returns the facts of each answer, by its place in the thread, found by its time. A resolution may be the answer."""
    found: dict[int, Aaep] = {}
    for asked in _rounds(record):
        for kind in ("answer", "resolution"):
            places = [
                place
                for place, entry in enumerate(record.thread)
                if entry.type == kind and entry.timestamp == asked.answered_at and place not in found
            ]
            if places:
                found[places[0]] = asked
                break
    return found
