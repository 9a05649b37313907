"""`clarify list`, `stale`, `mine`, `show`, `agents`, `ready`, `search`: shows clarifications, who waits for whom, and decisions,
without a lock, even while the bot runs. Also finds clarifications by id, in any spelling, or by issue number, and
completes ids and names in the shell.

Who waits for whom and who can continue comes from the open questions and the sessions that a bot recorded. Decisions are also
found that no channel shows.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Callable, Collection, Mapping, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from bot.ask.inbox import seen_sessions
from bot.cli.output import Output
from bot.cli.records import exact, table, when, whole
from bot.cli.running import Shell, answered, checked_role, open_shell, require_storage, seconds_of
from bot.commands.grammar import id_of
from bot.decisions.query import Search, Token, parsed, tokens_of
from bot.errors import StorageUnavailable
from bot.settings.load import load_shell_settings, read_environment
from bot.views import inert
from bot.views.lists import past_row, row_of
from bot.views.tables import Cell, Column, Table
from bot.views.wording import round_of
from core.clarification import HUMAN, OPEN, Clarification, agent_key
from core.clock import iso, moment_of
from core.errors import BadInput, NotFound, RecordUnreadable
from core.index import AgentNode, ReadyItem, Session, SessionFact, going_on, ready_queue, session_of, tree
from core.ledger import Contents
from core.records import Raw, closed_at, record_json
from core.summary import PastDecision, is_late, order, several

_ISSUE = re.compile(r"#?([0-9]{1,9})")
WHICH = "Which question? Give its id or issue number: CLR-42-001, or 42. (The shell reads an unquoted #42 as a comment.)"
_NAME, _LISTED, _DEEPEST = 60, 3, 12
_STYLES = {
    "blocked": "bold red",
    "clarifying": "yellow",
    "working": "green",
    "idle": "dim",
}
_HEARD_WITHIN, _MOST = timedelta(days=1), 5_000  # sessions, as a running bot keeps them
_EVERYTHING = 10**9
_QUESTION = 60  # characters that the shell shows beside an id
# Shells evaluate what they are offered, and agents write it.
_OFFERED_NAME = re.compile(r"[A-Za-z0-9_.@/-]+")
_UNSAFE = re.compile(r"[^\w ,.?!-]+")


async def some(
    shell: Shell,
    name: str | None,
    issue: int | None,
    statuses: Collection[str],
    *,
    from_: str | None,
    to: str | None,
    every_status: bool,
) -> None:
    """List clarifications by issue, status, asker and target; without a status, the open ones."""
    only = issue if name is None else issue_of(name)
    if name is not None and (only is None or issue not in {None, only}):
        raise BadInput(f"“{name[:40]}” is not an issue number, such as 42 or '#42'.")
    shown = frozenset(statuses) or (None if every_status else OPEN)

    def wanted(record: Clarification) -> bool:
        return (
            (shown is None or record.status in shown)
            and (from_ is None or agent_key(record.from_) == agent_key(from_))
            and (to is None or agent_key(record.to) == agent_key(to))
        )

    waiting = shown is not None and shown <= OPEN
    await _list(shell, wanted, "No matching questions.", only, waiting=waiting)


async def stale(shell: Shell) -> None:
    """List overdue questions: late, reminded or escalated."""
    now = shell.clock.now()

    def late(record: Clarification) -> bool:
        return record.is_open and is_late(record, now)

    await _list(shell, late, "Nothing is overdue or escalated.")


async def mine(shell: Shell, role: str | None) -> None:
    """List the questions that wait for people, or for the agent of `role`."""
    wanted = None if role is None else checked_role(role)
    agents = {agent_key(name) for name, each in shell.settings.responders.items() if each.kind != "people"}

    def waits(record: Clarification) -> bool:
        to = agent_key(record.to)
        is_theirs = to == agent_key(wanted) if wanted else record.status == "escalated" or to not in agents
        return record.is_open and is_theirs

    await _list(shell, waits, f"Nothing is waiting for {wanted or 'you'}.")


async def show(shell: Shell, name: str | None, timeout: str | None, *, wait: bool) -> None:
    """Show one question with its whole thread, or all of an issue; with `wait`, once it has an answer."""
    if not name:
        raise BadInput(WHICH)
    now = shell.clock.now
    if not wait and (issue := issue_of(name)) is not None:
        records = await of_issue(shell, issue)
        tampered = await shell.ledger.tampered_among(records)
        data = {"issueNumber": issue, "clarifications": _as_json(records, tampered)}
        shell.out.show(
            data,
            *(part for each in records for part in whole(each, now(), is_tampered=each.id in tampered)),
        )
        return
    if wait:
        seconds = seconds_of(timeout)
        record = await answered(shell, await one(shell, name), seconds)
    else:
        record = await by_id(shell, name)
    tampered = await shell.ledger.tampered_among([record])
    (data,) = _as_json([record], tampered)
    shell.out.show(data, *whole(record, now(), is_tampered=bool(tampered)))


def _as_json(records: Sequence[Clarification], tampered: Collection[str]) -> list[Raw]:
    return [record_json(each) | ({"tampered": True} if each.id in tampered else {}) for each in records]


async def _list(
    shell: Shell,
    wanted: Callable[[Clarification], bool],
    empty: str,
    issue: int | None = None,
    *,
    waiting: bool = True,
) -> None:
    """Shows the records, all or of one issue, that `wanted` accepts: escalated ones first, closed ones last. `waiting`: only
    those that need something.
    """
    records: list[Clarification] = []

    def take(record: Clarification) -> None:
        if wanted(record):
            records.append(record)

    problems = await each_record(shell.ledger.every(issue=issue, waiting=waiting), take)
    records.sort(key=lambda each: (each.status != "escalated", order(each)))
    tampered = await shell.ledger.tampered_among(records)
    rows = [row_of(round_of(each), is_tampered=each.id in tampered) for each in records]
    shell.out.show(_as_json(records, tampered), table(rows, shell.clock.now(), empty))
    shell.tell_problems(problems)


def issue_of(name: str) -> int | None:
    """Returns 42 for `42` and `#42`; None if it is not an issue number."""
    match = _ISSUE.fullmatch(name.strip())
    return int(match[1]) if match else None


async def by_id(shell: Shell, name: str) -> Clarification:
    """Returns one clarification.

    Raises:
        BadInput: not an id.
        NotFound: no such record.
    """
    return await shell.ledger.find(id_of(name) or name.strip())


async def of_issue(shell: Shell, issue: int) -> list[Clarification]:
    """Returns all clarifications of an issue, in the order of their numbers.

    Raises:
        NotFound: it has none.
        LedgerUnreadable: it has some, and none can be read.
    """
    records, odd = await shell.ledger.read(issue)
    if not records:
        raise RecordUnreadable(odd[0], issue) if odd else NotFound(f"of issue {issue}")
    for each in odd:
        shell.out.note(unreadable(each))
    return records


async def one(shell: Shell, name: str | None, *, is_open: bool = True) -> Clarification:
    """Returns a clarification by its id, or the only open (or answered) one of an issue.

    Raises:
        BadInput: not an id or issue number, or the issue has several.
        NotFound: there is none.
    """
    if not name:
        raise BadInput(WHICH)
    if (issue := issue_of(name)) is None:
        return await by_id(shell, name)
    kind = "open" if is_open else "open or answered"
    statuses = OPEN if is_open else OPEN | {"answered"}
    meant = [record for record in await of_issue(shell, issue) if record.status in statuses]
    if not meant:
        raise NotFound(f"of issue {issue} that is {kind}")
    if len(meant) > 1:
        ids = ", ".join(record.id for record in meant)
        raise BadInput(f"{len(meant)} questions of issue {issue} are {kind}; give one id: {ids}.")
    return meant[0]


async def each_record(every: AsyncGenerator[Contents], take: Callable[[Clarification], object]) -> list[str]:
    """Pass every record to `take`; returns messages about what cannot be read."""
    problems: list[str] = []
    async with aclosing(every):
        async for some in every:
            problems += [unreadable(each) for each in some.unreadable]
            for record in some.records:
                take(record)
    return problems


def unreadable(clarification: str) -> str:
    return f"{clarification} cannot be read: its row in the database is not valid."


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


def decisions(
    out: Output,
    config: Path | None,
    words: Sequence[str],
    *,
    by: str | None,
    agent: str | None,
    since: str | None,
    until: str | None,
    limit: int,
) -> None:
    """Print the decisions that match, newest first. `by`, `agent`, `since`: as the words after these names. `limit`: how many
    to print at most; 0: all.

    Raises:
        BadInput: says what was expected.
        StorageUnavailable: the storage cannot be read.
    """
    now = datetime.now(UTC)
    search = _search(words, {"by": by, "agent": agent}, since, until, now)
    settings = load_shell_settings(config, read_environment())
    require_storage(settings)
    most = limit or _EVERYTHING
    from bot.decisions.search import find  # noqa: PLC0415 - loads the Slack SDK

    found = find(settings.storage.path, settings.database_url, search, now, most=most + 1)
    shown = found[:most]
    span = f" since {exact(now - search.span)}" if search.span else ""
    span += f" until {exact(search.until)}" if search.until else ""
    nothing = f"Nothing found in the questions, answers, comments, IDs and agents' names of decisions{span}."
    data = {"decisions": [_decision_json(each) for each in shown], "more": len(found) > most}
    out.show(data, table(map(past_row, shown), now, nothing))
    if len(found) > most:
        out.note(f"clarify: these are the newest {most}; --limit 0 shows all")


def _search(
    words: Sequence[str],
    given: Mapping[str, str | None],
    since: str | None,
    until: str | None,
    now: datetime,
) -> Search:
    tokens = [
        token
        for word in words
        for token in ([Token(word, is_quoted=True)] if " " in word else tokens_of(word))
    ]
    for name, value in given.items():
        if value is not None:
            tokens += [Token(name), Token(value, is_quoted=True)]
    search = parsed(tokens)
    if since is not None:
        if search.span is not None:
            raise BadInput("“since” is given twice.")
        search = search._replace(span=now - moment_of(since, now, "--since"))
    if until is not None:
        search = search._replace(until=moment_of(until, now, "--until"))
    if not any(search):
        raise BadInput(
            "What are you looking for? For example: clarify search rotate keys --by ann@example.com"
        )
    return search._replace(by=tuple(each.removeprefix("@") for each in search.by))


def _decision_json(each: PastDecision) -> dict[str, Any]:
    return {
        "id": each.clarification,
        "decidedAt": iso(each.at),
        "agent": each.agent,
        "outcome": each.outcome,
        "decision": each.decision,
        "decidedBy": [{"name": who.name, "user": who.user} for who in each.by],
        "question": each.question,
        "answer": each.answer or None,
        "channel": each.channel,
        "ts": each.ts,
    }


def ids(ctx: Any, incomplete: str) -> list[tuple[str, str]]:
    """Returns the open questions whose IDs begin so, the most urgent first, with what they ask."""
    found = sorted((each for each in _open_ones(ctx) if each.id.startswith(incomplete.upper())), key=order)
    return [(each.id, inert.clip(_harmless(round_of(each).question), _QUESTION)) for each in found]


def names(ctx: Any, incomplete: str) -> list[str]:
    """Returns the agents and roles that begin so: of open questions and of the configuration."""
    found = {name for each in _open_ones(ctx) for name in (each.from_, each.to)}
    with suppress(Exception):
        found |= {*load_shell_settings(ctx.params.get("config"), read_environment()).responders}
    return sorted(each for each in found if each.startswith(incomplete) and _OFFERED_NAME.fullmatch(each))


def _harmless(text: str) -> str:
    """Returns a text as one line of words, without what means something to a shell or to rich."""
    return " ".join(_UNSAFE.sub(" ", inert.line(text)).split())


def _open_ones(ctx: Any) -> list[Clarification]:
    """Reads the open questions. None if that fails, since there is no place for an error."""
    found: list[Clarification] = []

    async def read() -> None:
        async with open_shell(ctx.params.get("config"), Output(json=False), creates=False) as shell:
            await each_record(shell.ledger.every(waiting=True), found.append)

    with suppress(Exception):
        asyncio.run(read())
    return [each for each in found if each.is_open]
