"""`clarify export`: the audit trail, a line for everything that happened to a clarification, as JSON or as a row of CSV; and the
reports of integrations.

Lines of a ledger: `question`, `answer`, `escalation`, `resolution`. Of an approval also `edit` (a person changed its
arguments), `approval` (an accept that others had to follow) and `refusal` (someone tried to approve and may not). Of the storage:
`reminder` and `page`.
"""

from __future__ import annotations

import asyncio
import csv
import io
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bot.cli.copies import kept_in
from bot.cli.lists import unreadable
from bot.cli.output import replacing, to_json
from bot.cli.running import Shell
from bot.errors import StorageError
from bot.oncall.incidents import moment
from bot.oncall.pages import Logged, logged
from bot.routing import Audiences
from bot.show.messages import Reminder, reminders
from bot.storage.opening import Kept
from bot.views import inert
from core.answers import from_text
from core.approvals import approved_by
from core.clarification import UNKNOWN, US, Approval, Clarification, Edit, Entry, Question, Round
from core.clock import iso, moment_of
from core.errors import AnswerRejected
from core.ledger import Ledger
from core.questions import risk_of
from core.receipts import deciders_of
from core.records import FORGOTTEN, is_forgotten

if TYPE_CHECKING:
    from bot.api import Report, ShellHost

Line = dict[str, Any]
COLUMNS = (
    *("clarification", "issue", "round", "timestamp", "type", "by", "body"),
    *("from", "to", "topic", "blocking", "status", "tampered"),
    *("surface", "producer", "session", "decidedBy", "team", "user"),
    *("response", "rationale", "reply", "approvedBy", "deciders"),
    *("action", "consequence", "irreversible", "riskClaimed", "riskCounted", "arguments", "extraContext"),
    *("approvalsNeeded", "requestedBy", "fourEyes", "reasonWanted", "edits", "changed", "before", "lapsed"),
    *("why", "first", "times"),
    *("number", "channel", "failed", "event", "policy", "step", "until", "sendings", "receipt"),
)
"""Of a CSV file. `risk` takes two of them; what has parts is JSON."""
# Spreadsheets take such a cell for a formula, also behind a tab or a line's end, and in full width.
_LIVE = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")


@dataclass(frozen=True, slots=True)
class Beside:
    """What only the storage knows, by clarification."""

    reminders: Mapping[str, Sequence[Reminder]] = field(default_factory=dict)
    pages: Mapping[str, Sequence[Logged]] = field(default_factory=dict)


def trail(
    record: Clarification,
    since: datetime | None = None,
    beside: Beside | None = None,
) -> list[Line]:
    """Returns all that happened to a record since `since`, earliest first.

    `surface` of a question: "aaep" (a producer's event), "shell", "http", or "ledger" (another implementation);
    of an answer: where it was given. `reply`: the delivery state of the answer. Never a reply token.
    """
    beside = beside or Beside()
    found = [*_entries(record)]
    for number, asked in _numbered(record):
        found += _approvals(record, number, asked)
        found += _refusals(record, number, asked)
        found += _reminders(record, number, asked, beside.reminders.get(record.id, ()))
    found += _pages(record, beside.pages.get(record.id, ()))
    found.sort(key=lambda each: each[0])  # stable: what happened at once stays in this order
    return [line for at, line in found if since is None or at >= since]


def csv_row(line: Mapping[str, Any] | None = None) -> str:
    """Returns a line as a row of CSV (RFC 4180); without one, the names of the columns. No cell is a formula."""
    row = io.StringIO()
    cells = COLUMNS if line is None else [_cell(each) for each in _flat(line)]
    csv.writer(row).writerow(cells)
    return row.getvalue()


def _flat(line: Mapping[str, Any]) -> Iterator[Any]:
    risk = line.get("risk") or {}
    risks = {"riskClaimed": risk.get("claimed"), "riskCounted": risk.get("counted")}
    return (risks[name] if name in risks else line.get(name) for name in COLUMNS)


def _cell(value: Any) -> str:
    if value is None:
        return ""
    text = inert.cleaned(value) if isinstance(value, str) else to_json(value)
    return f"'{text}" if text.startswith(_LIVE) else text


def _line(record: Clarification, number: int, kind: str, by: str, at: datetime) -> Line:
    return {
        "clarification": record.id,
        "issue": record.issue_number,
        "round": number,
        "from": record.from_,
        "to": record.to,
        "topic": record.topic,
        "blocking": record.blocking,
        "status": record.status,
        "type": kind,
        "by": by,
        "body": "",
        "timestamp": iso(at),
    }


def _entries(record: Clarification) -> Iterator[tuple[datetime, Line]]:
    """Yields the entries of a record's thread."""
    answers, facts = _answers(record), dict(enumerate(record.rounds or (record.current,)))
    for place, group in _groups(record).items():
        entry, asked = record.thread[place], facts.get(group, UNKNOWN)
        line = _line(record, entry.round, entry.type, entry.from_, entry.timestamp) | {"body": entry.body}
        if entry.type == "question":
            line |= _asked(asked.question)
        elif place not in answers and _is_accept(entry, asked.question):
            seen = {"response": "accept", "why": "not in Slack", "first": iso(entry.timestamp), "times": 1}
            line |= {"type": "refusal", "surface": "ledger", "team": None, "user": None} | seen
        elif entry.type == "answer" or place in answers:
            line |= _answered(answers.get(place, UNKNOWN), entry)
        yield entry.timestamp, line


def _asked(asked: Question) -> Line:
    surface = asked.via or ("aaep" if asked.producer else "ledger")
    line: Line = {"surface": surface, "producer": asked.producer, "session": asked.session_id}
    if (wanted := asked.confirmation) is None:
        return line
    return line | {
        "action": wanted.action,
        "consequence": wanted.consequence,
        "irreversible": wanted.irreversible,
        "risk": risk_of(wanted),
        "arguments": wanted.sent,
        "extraContext": wanted.extra_context,
        "approvalsNeeded": asked.needed,
        "requestedBy": asked.requested_by.model_dump(mode="json") if asked.requested_by else None,
        "fourEyes": asked.four_eyes,
        "reasonWanted": bool(asked.reason_wanted),
    }


def _answered(current: Round, entry: Entry) -> Line:
    by = current.given.answered_by
    line: Line = {
        "decidedBy": current.given.decided_by,
        "surface": by.surface if by else "ledger",
        "team": by.team if by else None,
        "user": by.user if by else None,
        "response": entry.body if current.given.response is None else current.given.response,
        "rationale": current.given.rationale,
        "reply": current.delivery.reply,
    }
    if (wanted := current.confirmation) is not None:
        line |= {
            "approvedBy": approved_by(current),
            "deciders": deciders_of(current, None) if current.given.decided_by else [],
            "risk": risk_of(wanted),
            "arguments": current.arguments if current.question.direct else None,
            "edits": [_edit(edit, before) | {"at": iso(edit.at)} for edit, before in _edits(current)],
        }
    return line | {"receipt": current.receipt}


def _is_accept(entry: Entry, asked: Question) -> bool:
    """Whether an answer that does not count, since another program wrote it, would approve the action."""
    if entry.type != "answer" or not asked.is_confirmation:
        return False
    try:
        return from_text(asked, entry.body).response == "accept"
    except AnswerRejected:
        return False


def _approvals(record: Clarification, number: int, current: Round) -> Iterator[tuple[datetime, Line]]:
    """Yields the edits of an action's arguments, and the accepts before the deciding one, also those that lapsed."""
    for edit, before in _edits(current):
        for each in edit.lapsed:
            yield each.at, _approval(record, number, each) | {"lapsed": iso(edit.at)}
        line = _line(record, number, "edit", edit.decided_by, edit.at)
        yield edit.at, line | {"surface": "slack"} | _edit(edit, before)
    for each in (*(current.consent.lapsed or ()), *(current.consent.approvals or ())):
        lapsed = {"lapsed": iso(each.lapsed_at)} if each.lapsed_at else {}
        yield each.at, _approval(record, number, each) | lapsed


def _approval(record: Clarification, number: int, approval: Approval) -> Line:
    return _line(record, number, "approval", approval.decided_by, approval.at) | {
        "surface": "slack",  # only there can several people accept
        "team": approval.team,
        "user": approval.user,
        "response": "accept",
        "rationale": approval.rationale,
    }


def _refusals(record: Clarification, number: int, current: Round) -> Iterator[tuple[datetime, Line]]:
    """Yields who tried to approve and may not, at their last attempt."""
    for each in current.consent.refusals or ():
        line = _line(record, number, "refusal", each.by, each.last)
        yield (
            each.last,
            line
            | {
                "surface": each.surface,
                "team": each.team,
                "user": each.user,
                "response": each.response,
                "why": each.why,
                "first": iso(each.first),
                "times": each.times,
            },
        )


def _edits(current: Round) -> Iterator[tuple[Edit, Line]]:
    """Yields the edits, each with the arguments before it."""
    arguments: Line = current.question.sent_arguments
    for edit in current.consent.edits or ():
        yield edit, dict(arguments)
        arguments |= edit.changed


def _edit(edit: Edit, before: Line) -> Line:
    return {
        "by": edit.decided_by,
        "team": edit.team,
        "user": edit.user,
        "changed": edit.changed,
        "before": {name: before.get(name) for name in edit.changed},
    }


def _reminders(
    record: Clarification, number: int, current: Round, posted: Sequence[Reminder]
) -> Iterator[tuple[datetime, Line]]:
    """Yields the reminders that were posted, and the latest one that the ledger counts."""
    mine = {each.number: each for each in posted if each.round == number}
    if (
        current.attention.nudges
        and current.attention.nudged_at is not None
        and current.attention.nudges not in mine
    ):
        mine[current.attention.nudges] = Reminder(number, current.attention.nudges, "", None, None)
    for each in mine.values():
        at = each.at or (current.attention.nudged_at if each.number == current.attention.nudges else None)
        if at is not None:
            told = {"number": each.number, "channel": each.channel or None, "failed": each.failed}
            yield at, _line(record, number, "reminder", US, at) | told


def _pages(record: Clarification, logged: Sequence[Logged]) -> Iterator[tuple[datetime, Line]]:
    """Yields what happened to the incidents about a record. Of a forgotten one, without people."""
    gone = is_forgotten(record)
    for incident, entry, sendings in logged:
        at, until, user = moment(entry["at"]), entry.get("until"), entry.get("user") or None
        who = {"by": entry.get("by") or user or US, "user": user}
        if gone and who["by"] != US:
            who = dict.fromkeys(who, FORGOTTEN)
        asked = [one.round for one in record.thread if one.type == "question" and one.timestamp <= at]
        yield (
            at,
            _line(record, max(asked, default=1), "page", US, at)
            | who
            | {
                "body": incident.reason,
                "event": entry["what"],
                "policy": incident.policy,
                "step": entry.get("step"),
                "until": None if until is None else iso(moment(until)),
                "sendings": [_without_people(one) if gone else one for one in sendings],
            },
        )


def _without_people(sending: Line) -> Line:
    to = FORGOTTEN if str(sending["to"]).startswith(("U", "W", "D")) else sending["to"]
    return sending | {"to": to, "mentions": []}


def _numbered(record: Clarification) -> list[tuple[int, Round]]:
    """Returns the facts of each round that was asked through the bot, oldest first, with its number."""
    numbers = {group: record.thread[place].round for place, group in _groups(record).items()}
    return [(numbers.get(group, record.round), asked) for group, asked in enumerate(record.rounds)]


def _groups(record: Clarification) -> dict[int, int]:
    """Returns which facts of its rounds each entry is about, by its place in the thread. A question that the bot opened
    again is the same one.
    """
    found, group = {}, -1
    for place, entry in enumerate(record.thread):
        group += entry.type == "question" and entry.from_ != US
        found[place] = max(0, group)
    return found


def _answers(record: Clarification) -> dict[int, Round]:
    """Returns the facts of each answer, by its place in the thread, found by its time. A resolution may be the answer."""
    found: dict[int, Round] = {}
    for asked in record.rounds:
        for kind in ("answer", "resolution"):
            places = [
                place
                for place, entry in enumerate(record.thread)
                if entry.type == kind and entry.timestamp == asked.given.answered_at and place not in found
            ]
            if places:
                found[places[0]] = asked
                break
    return found


async def of_integration(shell: Shell, asked: Callable[[ShellHost], Awaitable[Report]]) -> None:
    """Show what a command of an integration returns."""
    from bot.api import ShellHost  # noqa: PLC0415 - other commands need nothing of it

    audiences, is_routed = Audiences(shell.settings), bool(shell.settings.routes)
    route = lambda record: audiences.route(record).name if is_routed else ""  # noqa: E731
    report = await asked(ShellHost(ledger=shell.ledger, clock=shell.clock, route=route))
    shell.out.show(report.data, *report.parts)
    shell.tell_problems([unreadable(each) for each in report.unreadable])


async def export(
    shell: Shell, since: str | None, issue: int | None, output: Path | None, *, as_csv: bool
) -> None:
    """Write a line for each thing that happened to each clarification, to stdout or to `output`, completely or not at all:
    as JSON, or as CSV.
    """
    start = moment_of(since, shell.clock.now(), "--since") if since is not None else None
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
