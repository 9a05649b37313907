"""`clarify agents`, `ready`: who waits for whom, who can go on. From what is open in the ledgers, the sessions that a bot
heard of, and the agent-status file.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from bot.cli.finding import each_record
from bot.cli.output import Cell, Column, Table
from bot.cli.records import when
from bot.cli.running import Shell
from bot.errors import StorageUnavailable
from bot.producers.inbox import seen_sessions_in
from bot.views import inert
from core.agents import AgentNode, ReadyItem, SessionFact, ready_queue, tree
from core.clarification import HUMAN, Clarification, agent_key
from core.clock import iso
from core.index import Summary, summarize

_NAME, _LISTED, _DEEPEST = 60, 3, 12
_STYLES = {
    "blocked": "bold red",
    "clarifying": "yellow",
    "stuck": "bold red",
    "working": "green",
    "idle": "dim",
}
# What the ledgers know better than a file that somebody may have left behind.
_FROM_LEDGERS = frozenset({"blocked", "clarifying"})
_SPELLED = {"blocked-clarification": "blocked", "blocked_clarification": "blocked"}
_AT_WORK = frozenset({"working", *_FROM_LEDGERS})
_LONGEST = 1_000_000  # bytes of a status file
_HEARD_WITHIN, _MOST = timedelta(days=1), 5_000  # sessions, as a running bot keeps them


@dataclass(frozen=True, slots=True)
class Reported:
    """What the agent-status file says of an agent, whoever wrote it."""

    agent: str
    status: str
    issue: int | None
    last_activity: str | None

    @property
    def heard_at(self) -> datetime | None:
        """`last_activity`, if it is a time."""
        try:
            moment = datetime.fromisoformat(self.last_activity or "")
            return moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)
        except (ValueError, OverflowError):  # the latter: before or after all time there is
            return None


@dataclass(frozen=True, slots=True)
class AgentRow:
    """One agent: `under` is the one it waits for longest, `depth` how many stand above it."""

    agent: str
    name: str | None
    status: str
    node: AgentNode | None
    under: str | None
    depth: int
    issues: tuple[int, ...]
    last_activity: str | None


@dataclass(frozen=True, slots=True)
class _Fleet:
    """`problems`: in words, the ledgers that could not be read."""

    summaries: Sequence[Summary]
    sessions: Sequence[SessionFact]
    reported: Mapping[str, Reported]
    problems: list[str]


async def agents(shell: Shell) -> None:
    """Show who is blocked, on whom, since when, and who is asked."""
    fleet = await _fleet_of(shell)
    rows = agent_rows(fleet.summaries, fleet.sessions, fleet.reported)
    shell.out.show(_agents_json(rows), _agents_table(rows, shell.clock.now()))
    shell.tell_problems(fleet.problems)


async def ready(shell: Shell) -> None:
    """Show who can go on, and who is blocked by what."""
    fleet = await _fleet_of(shell)
    items = _ready_items(fleet.summaries, fleet.sessions, fleet.reported)
    on = {each.id: each.to for each in fleet.summaries}
    shell.out.show(_ready_json(items, on), _ready_table(items, on, shell.clock.now()))
    shell.tell_problems(fleet.problems)


def agent_rows(
    summaries: Sequence[Summary], sessions: Sequence[SessionFact], reported: Mapping[str, Reported]
) -> list[AgentRow]:
    """Every agent once, each above those that wait for it; those only the file knows at the end."""
    rows = [row for node in tree(summaries, sessions) for row in _walk(node, None, 0, reported)]
    shown = {agent_key(row.agent) for row in rows}
    others = sorted((each for key, each in reported.items() if key not in shown), key=lambda each: each.agent)
    return rows + [
        AgentRow(
            each.agent,
            None,
            "working" if each.status in _FROM_LEDGERS else each.status,
            None,
            None,
            0,
            () if each.issue is None else (each.issue,),
            each.last_activity,
        )
        for each in others
    ]


def _agents_table(rows: Sequence[AgentRow], now: datetime) -> Table:
    """The rows as people read them: who waits stands below the one it waits for."""
    columns = (
        Column("Agent"),
        Column("Status", whole=True),
        Column("Waits for"),
        Column("Since", whole=True),
        Column("Clarifications"),
        Column("To answer"),
        Column("Issues"),
    )
    return Table(columns, [_agent_cells(row, now) for row in rows], empty="No agent is at work.")


async def _fleet_of(shell: Shell) -> _Fleet:
    """Read it all. What is only there with a running bot may be missing, which is told on stderr."""
    summaries: list[Summary] = []

    def take(record: Clarification) -> None:
        if record.is_open:
            summaries.append(summarize(record))

    problems = await each_record(shell.ledger, take, archived=False)
    return _Fleet(summaries, await _sessions(shell), await _statuses(shell), problems)


async def _sessions(shell: Shell) -> list[SessionFact]:
    since = shell.clock.now() - _HEARD_WITHIN
    try:
        return await asyncio.to_thread(seen_sessions_in, shell.settings.storage.path, since, _MOST)
    except StorageUnavailable as error:
        shell.out.note(f"clarify: the sessions are not known, only what the ledgers say: {error}")
        return []


async def _statuses(shell: Shell) -> dict[str, Reported]:
    try:
        return await asyncio.to_thread(_read_statuses, shell.settings.status_file)
    except ValueError as error:
        shell.out.note(f"clarify: the agents' own statuses are not known: {error}")
        return {}


def _read_statuses(path: Path) -> dict[str, Reported]:
    """The file's agents by key; none if there is no such file. What is no entry in it is left out. Blocking.

    Raises:
        ValueError: it is there and cannot be read; the message names it, without its content.
    """
    try:
        with path.open("rb") as file:
            content = json.loads(file.read(_LONGEST))
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise ValueError(f"{path} cannot be read ({error.strerror}).") from error
    except (ValueError, RecursionError):
        raise ValueError(f"{path} is no JSON.") from None
    if not isinstance(content, dict):
        raise ValueError(f"{path} is no JSON object.")  # noqa: TRY004 - one error for a file that is none
    found = (_reported(agent, entry) for agent, entry in content.items() if isinstance(entry, dict))
    return {agent_key(reported.agent): reported for reported in found if reported is not None}


def _reported(agent: str, entry: Mapping[str, Any]) -> Reported | None:
    status, issue, active = entry.get("status"), entry.get("issue"), entry.get("lastActivity")
    if not isinstance(status, str) or not agent.strip():
        return None
    return Reported(
        agent,
        _SPELLED.get(status, status),
        issue if isinstance(issue, int) and not isinstance(issue, bool) else None,
        active if isinstance(active, str) else None,
    )


def _walk(
    node: AgentNode, under: str | None, depth: int, reported: Mapping[str, Reported]
) -> Iterator[AgentRow]:
    said = reported.get(agent_key(node.agent))
    status: str = node.status
    if said is not None and status not in _FROM_LEDGERS and said.status not in _FROM_LEDGERS:
        status = said.status
    elif said is not None and said.status == "clarifying" and node.asked and status != "blocked":
        status = "clarifying"
    heard = iso(node.last_event_at) if node.last_event_at else None
    issues = set(node.issues) | (
        {said.issue} if said and said.issue is not None and not node.issues else set()
    )
    yield AgentRow(
        node.agent,
        node.name,
        status,
        node,
        under,
        depth,
        tuple(sorted(issues)),
        max(filter(None, (heard, said.last_activity if said else None)), default=None),
    )
    for waiter in node.waiters:
        yield from _walk(waiter, node.agent, depth + 1, reported)


def _agents_json(rows: Sequence[AgentRow]) -> list[dict[str, object]]:
    """The rows as programs read them, in the same order."""
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
                for w in (row.node.waits if row.node else ())
            ],
            "toAnswer": list(row.node.asked if row.node else ()),
            "issues": list(row.issues),
            "lastActivity": row.last_activity,
        }
        for row in rows
    ]


def _agent_cells(row: AgentRow, now: datetime) -> list[str | Cell]:
    waits = row.node.waits if row.node else ()
    on = list(dict.fromkeys(_whom(wait.on) for wait in waits))
    marked = [f"{wait.clarification}{' (escalated)' if wait.escalated else ''}" for wait in waits]
    branch = f"{'   ' * (min(row.depth, _DEEPEST) - 1)}└─ " if row.depth else ""
    return [
        Cell(f"{branch}{_short(row.name or row.agent)}", row.agent, "bold"),
        Cell(_short(row.status), row.status, _STYLES.get(row.status, "")),
        _several(on),
        _since(row.node.since if row.node else None, now),
        _several(marked),
        _several(row.node.asked if row.node else ()),
        _several([str(issue) for issue in row.issues]),
    ]


def _ready_items(
    summaries: Sequence[Summary], sessions: Sequence[SessionFact], reported: Mapping[str, Reported]
) -> list[ReadyItem]:
    """Those that can go on first: sessions, and agents without one that the file says are at work; then who waits.

    Issue 0: not known, since the session has not asked yet.
    """
    queue = ready_queue(summaries, [_with_issue(fact, summaries) for fact in sessions])
    known = {agent_key(item.agent) for item in queue}
    others = [
        ReadyItem(each.agent, None, None, None, each.issue or 0, (), None, each.heard_at)
        for key, each in sorted(reported.items())
        if key not in known and each.status in _AT_WORK
    ]
    free = [item for item in queue if not item.blocked_by]
    return [*free, *others, *(item for item in queue if item.blocked_by)]


def _with_issue(fact: SessionFact, summaries: Sequence[Summary]) -> SessionFact:
    """The issue of a session shows in what it asks."""
    if fact.issue:
        return fact
    key = (fact.producer, fact.session_id)
    asked = (each.issue for each in summaries if (each.producer, each.session_id) == key)
    return replace(fact, issue=next(asked, 0))


def _ready_json(items: Sequence[ReadyItem], on: Mapping[str, str]) -> list[dict[str, object]]:
    """The queue as programs read it. `on`: whom each clarification is addressed to."""
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
    """The queue as people read it."""
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
    return Table(columns, rows, empty="The queue is empty: nobody is known to be at work.")


def _since(moment: datetime | None, now: datetime) -> Cell:
    return when(moment, now) if moment else Cell("")


def _whom(role: str) -> str:
    return "a person" if agent_key(role) == HUMAN else role


def _several(names: Sequence[str]) -> Cell:
    """All of them in a pipe, a few on a terminal."""
    more = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
    return Cell(", ".join(map(_short, names[:_LISTED])) + more, ", ".join(names))


def _short(name: str) -> str:
    return inert.named(name, _NAME)
