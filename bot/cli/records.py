"""Formats clarifications for the shell: rows of a list, whole threads, times, reasons why one takes no answer. Pure."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime, timedelta

from bot.views import inert
from bot.views.arguments import CHANGED, argument_words, changed_in_all
from bot.views.fields import form_words
from bot.views.lists import QuestionRow
from bot.views.tables import Cell, Column, Part, Table
from bot.views.verify import receipt_command
from bot.views.wording import (
    TAMPERED,
    ShownRound,
    decided_plainly,
    extras_of,
    risk_words,
    round_of,
    silence_words,
    warning_words,
)
from core import answers
from core.clarification import Clarification, Confirmation, Entry, Round
from core.clock import iso
from core.transitions import ArgumentsChanged, NotOpen, Superseded

_COLUMNS = (
    Column("Id", whole=True),
    Column("State"),
    Column("Agent"),
    Column("When", whole=True),
    Column("Question"),
)
_DID = {"question": "asks", "answer": "answers", "resolution": "closes", "escalation": "escalates"}
_THROUGH = {
    "slack": "Slack",
    "shell": "the shell",
    "http": "HTTP",
    "responder": "a responder",
}
_QUESTION, _ANSWER = 200, 60
_UNITS = ((86_400, "d"), (3600, "h"), (60, "min"))
_A_WHILE = timedelta(days=14)


def table(rows: Iterable[QuestionRow], now: datetime, empty: str) -> Table:
    """Returns the rows as a table, in the given order."""
    return Table(_COLUMNS, [_cells(row, now) for row in rows], empty=empty)


def whole(record: Clarification, now: datetime, *, is_tampered: bool = False) -> Iterator[Part]:
    """Yields one clarification's state, how to answer it, and its thread. `is_tampered`: it does not agree with
    its receipt.
    """
    decided = round_of(record).decided
    how = f"{decided_plainly(decided)} · " if decided is not None else ""
    yield Cell(
        f"{record.id} · {how}{record.status} · round {record.round} of {record.max_rounds}", style="bold"
    )
    if is_tampered:
        yield Cell(TAMPERED, style="bold red")
        if record.current.receipt is not None:
            yield f"What was signed: {receipt_command(record.id)}"
    if record.is_open:
        asks, waits = "asks", "is waiting for the answer" if record.blocking else "continues meanwhile"
    else:
        asks, waits = "asked", "waited for the answer" if record.blocking else "continued meanwhile"
    yield f"{inert.named(record.from_)} {asks} {inert.named(record.to)}, and {waits} · issue {record.issue_number}"
    if record.topic:
        yield f"Topic: {inert.line(record.topic)}"
    yield from _times(record, now)
    if record.asked.held_back:
        yield Cell(f"Held back: {inert.line(record.asked.held_back)}", style="yellow")
    yield ""
    for entry in record.thread:
        yield from _entry(record, entry, now)
    if record.is_open:
        yield from _ways(record)
    elif round_of(record).decided is not None:
        yield from _decided_on(record.current)


def through(record: Clarification, entry: Entry) -> str:
    """Returns which way an entry came: "Slack", "the shell", "producer planner"; empty if the ledger does not say."""
    shown = round_of(record, entry.round)
    asked, by = shown.asked, shown.given.answered_by
    if entry.type == "answer" and by is not None:
        return _THROUGH.get(by.surface, inert.line(by.surface))
    if entry.type == "question":
        if asked.via is not None:
            return _THROUGH.get(asked.via, inert.line(asked.via))
        return f"producer {inert.line(asked.producer)}" if asked.producer else ""
    return ""


def relative(moment: datetime, now: datetime) -> str:
    """Returns `just now`, `5 min ago`, `in 3 h`; the date if that is more than two weeks away."""
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
    """Returns a time such as `2026-05-24 14:22 UTC`."""
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M} UTC"


def when(moment: datetime, now: datetime) -> Cell:
    """Returns a time: relative on a terminal, RFC 3339 in a pipe."""
    return Cell(relative(moment, now), iso(moment))


def refusal(error: Exception, now: datetime) -> str:
    """Returns why an answer came too late: who answered first and what, or why the question is closed."""
    if isinstance(error, ArgumentsChanged):
        return f"{error.record.id}: the arguments have changed. See them with: clarify show {error.record.id}"
    if isinstance(error, Superseded):
        record = error.record
        return f"{record.id} was asked again and is now in round {record.round}. See it with: clarify show {record.id}"
    if isinstance(error, NotOpen):
        return _over(round_of(error.record), now)
    return str(error)


def _cells(row: QuestionRow, now: datetime) -> list[str | Cell]:
    question = inert.named(row.question)
    return [
        row.id,
        Cell(row.stands_plainly(_ANSWER), row.stands_plainly(inert.NO_LIMIT)),
        f"{row.agent} → {row.to}" if row.to else row.agent,
        when(row.at, now),
        Cell(inert.clip(question, _QUESTION), question),
    ]


def _times(record: Clarification, now: datetime) -> Iterator[Part]:
    asked = record.asked
    parts = [f"Asked {relative(record.asked_last, now)}"]
    if record.status == "escalated" and record.attention.escalated_for:
        parts.append(f"escalated: {record.attention.escalated_for}")
    elif record.is_open and record.stale_after:
        overdue = "overdue since" if record.stale_after <= now else "overdue from"
        parts.append(f"{overdue} {exact(record.stale_after)}")
    if record.is_open and asked.expires_at:
        parts.append(f"expires {exact(asked.expires_at)}")
    if record.current.closed:
        parts.append(f"closed: {inert.line(record.current.closed)}")
    yield " · ".join(parts)


def _entry(record: Clarification, entry: Entry, now: datetime) -> Iterator[Part]:
    shown = round_of(record, entry.round)
    # The thread has agents by their bare role.
    by = shown.given.decided_by
    who = inert.named(by if entry.type == "answer" and by else entry.from_)
    way = f" · through {how}" if (how := through(record, entry)) else ""
    moment = f"{relative(entry.timestamp, now)} ({exact(entry.timestamp)})"
    head = f"Round {entry.round} · {who} {_DID[entry.type]} · "
    yield Cell(f"{head}{moment}{way}", f"{head}{iso(entry.timestamp)}{way}", style="bold cyan")
    is_action = entry.type == "question" and shown.asked.is_confirmation
    yield _indented(entry.body, inert.visible if is_action else inert.plain)
    yield ""


def _indented(text: str, made_inert: Callable[[str], str] = inert.plain) -> str:
    """Indents another's text, so that none of its lines looks like ours."""
    return "\n".join(f"  {line}" for line in made_inert(text).splitlines() or [inert.BLANK])


def _ways(record: Clarification) -> Iterator[Part]:
    """Yields how to answer it."""
    asked = record.asked
    if wanted := record.current.confirmation:
        yield from _ways_to_decide(record, wanted)
        return
    if asked.context:
        yield f"Context:\n{_indented(asked.context)}"
    for number, option in enumerate(asked.choices, 1):
        yield f"  {number}. {inert.named(option.label)}"
    if asked.default_response:
        yield f"If no one answers, the agent uses its default: {_indented(answers.default_label(asked)).strip()}"
    if form := asked.form:
        yield f"Fields:\n{_indented(form_words(form))}"
        names = ", ".join(f"{json.dumps(each.name, ensure_ascii=False)}: …" for each in form.fields)
        yield Cell(f"To answer: clarify answer {record.id} '{{{inert.line(names)}}}'", style="dim")
        return
    example = {"multiple_choice": "1", "yes_no": "yes", "numeric": "12.5"}.get(asked.kinds[0], '"…"')
    yield Cell(f"To answer: clarify answer {record.id} {example}", style="dim")


def _decided_on(current: Round) -> Iterator[Part]:
    """Yields what an approval decided on: the risk, the arguments, and who edited them or approved first."""
    if (wanted := current.confirmation) is None:
        return
    yield Cell(risk_words(wanted), style="yellow")
    if with_what := argument_words(current.arguments):
        yield _indented(with_what)
    for edit in current.consent.edits or ():
        yield f"Edited by {inert.named(edit.decided_by)} · {exact(edit.at)}"
    if changes := changed_in_all(current):
        yield _indented(f"{CHANGED}{changes}")
    for each in current.consent.lapsed or ():
        yield f"No longer counts: approved by {inert.named(each.decided_by)} · {exact(each.at)}"
    for each in current.consent.approvals or ():
        said = f": {inert.line(each.rationale)}" if each.rationale else ""
        yield f"Approved by {inert.named(each.decided_by)} · {exact(each.at)}{said}"


def _ways_to_decide(record: Clarification, wanted: Confirmation) -> Iterator[Part]:
    """Yields what there is to accept, and where."""
    shown, asked = round_of(record), record.asked
    yield Cell(risk_words(wanted), style="yellow")
    if warning := warning_words(wanted):
        yield Cell(warning, style="bold red")
    for more in (shown.too_few_words, shown.missing_words, shown.requester_words(inert.named)):
        if more:
            yield Cell(more, style="yellow")
    if with_what := argument_words(record.current.arguments):
        yield _indented(with_what)
    for extra in extras_of(wanted):
        yield _indented(extra.aloud)
    yield f"{silence_words(wanted)}."
    reason = ", and give a reason" if asked.reason_wanted else ""
    ways = {
        "accept": f"To accept: click Accept on its card in Slack{reason} (or here, with [shell] consent = true).",
        "reject": f"To reject: there, or clarify answer {record.id} reject",
    }
    for decision in wanted.allowed:
        yield Cell(ways[decision], style="dim")


def _over(shown: ShownRound, now: datetime) -> str:
    record = shown.record
    if shown.stage == "answered":
        since = f" ({relative(shown.answered_at, now)})" if shown.answered_at else ""
        how = decided_plainly(shown.decided, _QUESTION) if shown.decided is not None else "closed"
        return f"{record.id} was already {how}{since}."
    return inert.sentence(f"{record.id} is closed. {shown.why_closed(_QUESTION)}")
