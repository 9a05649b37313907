"""`clarify agents`, `ready`: shows who waits for whom and who can continue, from the open questions and the sessions that
a bot recorded.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from bot.ask.inbox import seen_sessions
from bot.cli.lists import each_record
from bot.cli.records import when
from bot.cli.running import Shell
from bot.errors import StorageUnavailable
from bot.views import inert
from bot.views.tables import Cell, Column, Table
from core.clarification import HUMAN, Clarification, agent_key
from core.clock import iso
from core.index import AgentNode, ReadyItem, Session, SessionFact, going_on, ready_queue, session_of, tree
from core.records import closed_at
from core.summary import several

_NAME, _LISTED, _DEEPEST = 60, 3, 12
_STYLES = {
    "blocked": "bold red",
    "clarifying": "yellow",
    "working": "green",
    "idle": "dim",
}
_HEARD_WITHIN, _MOST = timedelta(days=1), 5_000  # sessions, as a running bot keeps them


@dataclass(frozen=True, slots=True)
class _Fleet:
    """`problems`: messages about records that could not be read."""

    records: Sequence[Clarification]
    sessions: Sequence[SessionFact]
    problems: list[str]


async def agents(shell: Shell) -> None:
    """Show who is blocked, on whom, since when, and who is asked."""
    fleet = await _fleet_of(shell)
    rows = tree(fleet.records, fleet.sessions)
    shell.out.show(_agents_json(rows), _agents_table(rows, shell.clock.now()))
    shell.tell_problems(fleet.problems)


async def ready(shell: Shell) -> None:
    """Show who can continue, and what blocks the rest."""
    fleet = await _fleet_of(shell)
    items = ready_queue(fleet.records, [_with_issue(fact, fleet.records) for fact in fleet.sessions])
    on = {each.id: each.to for each in fleet.records}
    shell.out.show(_ready_json(items, on), _ready_table(items, on, shell.clock.now()))
    shell.tell_problems(fleet.problems)


def _agents_table(rows: Sequence[AgentNode], now: datetime) -> Table:
    """Returns the rows as a table, each agent below the one that it waits for."""
    columns = (
        Column("Agent"),
        Column("Status", whole=True),
        Column("Waits for"),
        Column("Since", whole=True),
        Column("Clarifications"),
        Column("To answer"),
        Column("Issues"),
    )
    return Table(columns, [_agent_cells(row, now) for row in rows], empty="No agent is active.")


async def _fleet_of(shell: Shell) -> _Fleet:
    """Reads the questions and the sessions; prints a note if the sessions cannot be read."""
    records: list[Clarification] = []
    waiting: set[Session] = set()
    over: dict[Session, datetime] = {}

    def take(record: Clarification) -> None:
        if record.is_open:
            records.append(record)
        key, ended = session_of(record), closed_at(record)
        if ended is None:
            waiting.add(key)
        else:
            over[key] = max(ended, over.get(key, ended))

    since = shell.clock.now() - _HEARD_WITHIN
    problems = await each_record(shell.ledger.every(since=since), take)
    known = await _sessions(shell)
    return _Fleet(records, going_on(known, waiting.__contains__, over, shell.clock.now()), problems)


async def _sessions(shell: Shell) -> list[SessionFact]:
    since = shell.clock.now() - _HEARD_WITHIN
    try:
        return await seen_sessions(shell.store, since, _MOST)
    except StorageUnavailable as error:
        shell.out.note(f"clarify: cannot read the sessions, showing only the questions: {error}")
        return []


def _agents_json(rows: Sequence[AgentNode]) -> list[dict[str, object]]:
    """Returns the rows as JSON, in the same order."""
    return [
        {
            "agent": row.agent,
            "name": row.name,
            "status": row.status,
            "under": row.under,
            "waitsFor": [
                {
                    "agent": w.on,
                    "clarification": w.clarification,
                    "since": iso(w.since),
                    "escalated": w.escalated,
                }
                for w in row.waits
            ],
            "toAnswer": list(row.asked),
            "issues": list(row.issues),
            "lastActivity": iso(row.last_event_at) if row.last_event_at else None,
        }
        for row in rows
    ]


def _agent_cells(row: AgentNode, now: datetime) -> list[str | Cell]:
    marked = [f"{wait.clarification}{' (escalated)' if wait.escalated else ''}" for wait in row.waits]
    branch = f"{'   ' * (min(row.depth, _DEEPEST) - 1)}└─ " if row.depth else ""
    return [
        Cell(f"{branch}{_short(row.name or row.agent)}", row.agent, "bold"),
        Cell(row.status, style=_STYLES[row.status]),
        _several(list(map(_whom, row.on))),
        _since(row.since, now),
        _several(marked),
        _several(row.asked),
        _several([str(issue) for issue in row.issues]),
    ]


def _with_issue(fact: SessionFact, records: Sequence[Clarification]) -> SessionFact:
    """Sets a session's issue from its questions; 0 if it has none."""
    if fact.issue:
        return fact
    key = (fact.producer, fact.session_id)
    asked = (each.issue_number for each in records if (each.producer, each.session_id) == key)
    return replace(fact, issue=next(asked, 0))


def _ready_json(items: Sequence[ReadyItem], on: Mapping[str, str]) -> list[dict[str, object]]:
    """Returns the queue as JSON. `on`: the target of each clarification."""
    return [
        {
            "agent": item.agent,
            "name": item.name,
            "ready": not item.blocked_by,
            "issue": item.issue or None,
            "producer": item.producer,
            "session": item.session_id,
            "blockedBy": [{"clarification": each, "agent": on.get(each)} for each in item.blocked_by],
            "since": iso(item.since) if item.since else None,
            "lastActivity": iso(item.last_event_at) if item.last_event_at else None,
        }
        for item in items
    ]


def _ready_table(items: Sequence[ReadyItem], on: Mapping[str, str], now: datetime) -> Table:
    """Returns the queue as a table."""
    columns = (
        Column("Agent"),
        Column("Issue", whole=True),
        Column("State", whole=True),
        Column("Blocked by"),
        Column("Since", whole=True),
    )
    rows: list[list[str | Cell]] = [
        [
            Cell(_short(item.name or item.agent), item.agent, "bold"),
            str(item.issue or ""),
            Cell("blocked", style="bold red") if item.blocked_by else Cell("ready", style="green"),
            _several([f"{each} ({_whom(on[each])})" if each in on else each for each in item.blocked_by]),
            _since(item.since, now),
        ]
        for item in items
    ]
    return Table(columns, rows, empty="No active sessions.")


def _since(moment: datetime | None, now: datetime) -> Cell:
    return when(moment, now) if moment else Cell("")


def _whom(role: str) -> str:
    return "a person" if agent_key(role) == HUMAN else role


def _several(names: Sequence[str]) -> Cell:
    """Lists all names in a pipe, a few on a terminal."""
    return Cell(several(list(map(_short, names)), _LISTED), ", ".join(names))


def _short(name: str) -> str:
    return inert.named(name, _NAME)
