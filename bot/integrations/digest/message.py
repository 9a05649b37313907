"""The digest as a message: its figures in words and in two tables. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date

from bot.api import (
    Block,
    Context,
    Draft,
    Header,
    Section,
    Words,
    as_name,
    code,
    escaped_line,
    fixed,
    in_words,
    named,
    plain,
    plain_words,
    split_live,
)
from bot.integrations.digest.figures import Count, Digest, Share, in_one_unit
from core.summary import several

_NAME, _ROUTE, _MOST_ROUTES = 60, 40, 20
_OUTCOMES = ("answered", "open", "closed")
_COLUMNS = ("Answered", "Open", "Closed")


@dataclass(frozen=True, slots=True)
class Figures:
    """A table with its title. `lines`: what it says where only text fits, plain text."""

    title: str
    table: str
    lines: tuple[str, ...]
    note: str = ""

    @property
    def parts(self) -> tuple[Block, ...]:
        title = Section(Words(f"*{self.title}*", live=True))
        return (title, code(self.table, plain("\n".join(self.lines))), Context(plain_words(self.note)))


def message(
    figures: Digest,
    heading: str,
    zone: str,
    *,
    counted: Sequence[tuple[str, Sequence[Count]]],
    shown: Callable[[str], str],
    notes: Sequence[str] = (),
    locale: str = "",
) -> Draft:
    """Returns the message.

    Args:
        figures: what was counted.
        heading: of what time.
        zone: the time zone of the days.
        counted: topics and agents by name, each list with its title.
        shown: formats a person's name, as the bot's own mrkdwn.
        notes: at the end, as the bot's own mrkdwn.
        locale: of the one person who reads it; empty: several do.
    """
    above = [(name, in_words(value, locale)) for name, value in figures.words()]
    tables = [each for each in (by_day(figures, zone, locale), by_route(figures, locale)) if each is not None]
    below = [
        (
            title,
            ", ".join(f"{_named(count)} ({in_words(str(count.times), locale)})" for count in counts),
        )
        for title, counts in counted
        if counts
    ]
    people = [f"• {shown(each.name)}: {in_words(each.words, locale)}" for each in figures.people]
    people = ["*By person*", *people] if people else []
    last = [*(f"*{title}*: {words}" for title, words in below), *people, *(f"_{note}_" for note in notes)]
    parts: tuple[Block, ...] = (
        Header(heading),
        *_sections([f"*{name}*: {value}" for name, value in above]),
        *(part for each in tables for part in each.parts),
        *_sections(last),
    )
    return fixed("digest", parts)


def by_day(figures: Digest, zone: str, locale: str = "") -> Figures | None:
    """Returns the questions of each day or stretch by outcome, or None if nothing was asked."""
    found = figures.stretches
    if not found:
        return None
    days = found[0].days
    title = "Questions a day by outcome" if days == 1 else f"Questions every {days} days by outcome"
    labels = [_day(each.first, weekday=days == 1) for each in found]
    begins = "Day" if days == 1 else "From"
    rows = [
        [label, *(in_words(str(getattr(each, name)), locale) for name in _OUTCOMES)]
        for label, each in zip(labels, found, strict=True)
    ]
    lines = [f"{label}: {in_words(each.words, locale)}" for label, each in zip(labels, found, strict=True)]
    return Figures(
        title,
        _table([begins, *_COLUMNS], rows),
        tuple(lines),
        f"Days in the time zone {zone}.",
    )


def by_route(figures: Digest, locale: str = "") -> Figures | None:
    """Returns the time to answer by route, or None with fewer than two routes. Of many, those with the most questions."""
    if len(figures.routes) < 2:
        return None
    shares, rest = figures.routes[:_MOST_ROUTES], figures.routes[_MOST_ROUTES:]
    timed = [each for each in shares if each.median is not None]
    unit, medians = (
        in_one_unit([each.median for each in timed if each.median is not None]) if timed else ("minutes", [])
    )
    known = dict(zip((each.name for each in timed), medians, strict=True))
    title = "Median time to answer by route"
    rows = [
        [
            *(in_words(number, locale) for number in _row(each, known.get(each.name))),
            _with_approvals(each, locale),
        ]
        for each in shares
    ]
    lines = [
        f"{_with_approvals(each, locale)}: {in_words(_aloud(each, known.get(each.name), unit), locale)}"
        for each in shares
    ]
    asked = in_words(f"{sum(each.asked for each in rest)} asked.", locale)
    more = f"And {several([_route(each) for each in rest], 3)}: {asked}" if rest else ""
    return Figures(
        title,
        _table([unit.capitalize(), "Answers", "Asked", "Route"], rows, last_is_words=True),
        tuple(lines),
        more,
    )


def _sections(lines: Sequence[str]) -> tuple[Section, ...]:
    return tuple(Section(Words(each, live=True)) for each in split_live("\n".join(lines), 2900) if each)


def _named(count: Count) -> str:
    return escaped_line(as_name(count.name, _NAME), _NAME)


def _day(day: date, *, weekday: bool) -> str:
    return f"{day:%a} {day.day} {day:%b}" if weekday else f"{day.day} {day:%b}"


def _route(share: Share) -> str:
    return "all others" if share.name == "*" else named(share.name, _ROUTE)


def _with_approvals(share: Share, locale: str) -> str:
    words = in_words(share.approvals.words, locale)
    return f"{_route(share)} ({words})" if words else _route(share)


def _row(share: Share, value: float | None) -> tuple[str, str, str]:
    return _number(value), str(share.answers), str(share.asked)


def _aloud(share: Share, value: float | None, unit: str) -> str:
    told = f"{share.asked} asked, {share.answers} answer{'s' * (share.answers != 1)}"
    return told if value is None else f"{_number(value)} {unit}, {told}"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]], *, last_is_words: bool = False) -> str:
    """Returns aligned columns: numbers to the right; the first column to the left unless the last one holds the words,
    which then need no clipping.
    """
    table = [head, *rows]
    widths = [max(len(row[column]) for row in table) for column in range(len(head))]
    lines = []
    for row in table:
        cells = [cell.rjust(width) for cell, width in zip(row, widths, strict=True)]
        if last_is_words:
            cells[-1] = row[-1]
        else:
            cells[0] = row[0].ljust(widths[0])
        lines.append("  ".join(cells))
    return "\n".join(lines)
