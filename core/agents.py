"""What each agent does: the tree and the queue that people see, and the agent-status file that programs read.

Statuses are those of the Clarification Protocol's §6.2 that can be seen from outside. `tree` and `ready_queue` are
pure. The status file is shared: other implementations write it too, behind the same lock marker as the ledgers',
perhaps in place. Their agents and fields are kept; a file that is torn is read again under the lock, and one that is
no JSON object is quarantined.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from typing import Any, Literal

from core.clarification import HUMAN, agent_key, parse_id
from core.clock import Clock, backoff, iso
from core.errors import ClarifyError, LedgerUnwritable, LockTimeout, StatusUnavailable
from core.files import make_folder, quarantine, reason, replacing
from core.index import Summary
from core.ledger import FileLedger
from core.locks import Held, Locks

_log = logging.getLogger("clarify.status")

AgentStatus = Literal["idle", "working", "clarifying", "blocked"]
_URGENCY: dict[AgentStatus, int] = {"blocked": 0, "clarifying": 1, "working": 2, "idle": 3}
_NEVER = datetime.min.replace(tzinfo=UTC)

BLOCKED: Literal["blocked-clarification"] = "blocked-clarification"
CLARIFYING: Literal["clarifying"] = "clarifying"
Entries = dict[str, Any]
_UNANSWERED = ("pending", "stale")
# Seconds between two writes: others who wait for the lock back off by 200 ms and more.
_BETWEEN = 0.25
_FIRST_RETRY, _LONGEST_RETRY = 1.0, 60.0
# A clarification's id, and the round that a responder works on; 0: the clarification itself.
_Source = tuple[str, int]


@dataclass(frozen=True, slots=True)
class SessionFact:
    """A session as of its last event."""

    producer: str
    session_id: str
    agent_id: str
    agent_name: str | None
    issue: int
    ended: bool
    last_event_at: datetime | None


@dataclass(frozen=True, slots=True)
class Waiting:
    """One open blocking clarification: on whom, since when, and whether the person on call has it."""

    clarification: str
    on: str
    since: datetime
    escalated: bool


@dataclass(frozen=True, slots=True)
class AgentNode:
    """An agent, and below it the agents that wait for it (each once, below the one it has waited for longest).

    `waits`: the longest first. `asked`: ids of the open clarifications that it, and not yet the person on call, has to
    answer. `issues`: of its sessions that have not ended, and of what it waits for.
    """

    agent: str
    name: str | None
    status: AgentStatus
    waits: tuple[Waiting, ...]
    asked: tuple[str, ...]
    issues: tuple[int, ...]
    last_event_at: datetime | None
    waiters: tuple[AgentNode, ...] = ()

    @property
    def since(self) -> datetime | None:
        """Since when it is blocked."""
        return self.waits[0].since if self.waits else None


@dataclass(frozen=True, slots=True)
class ReadyItem:
    """A session that can go on (`blocked_by` empty), or the ids of what it waits for, the longest first.

    `session_id` and `producer` are None for what was asked through the ledger by an agent without a session.
    """

    agent: str
    name: str | None
    producer: str | None
    session_id: str | None
    issue: int
    blocked_by: tuple[str, ...]
    since: datetime | None
    last_event_at: datetime | None


def walk(roots: Sequence[AgentNode]) -> Iterator[tuple[int, AgentNode]]:
    """The agents of a tree, each followed by those that wait for it, with its depth (from 0)."""
    left = [(0, node) for node in reversed(roots)]
    while left:
        depth, node = left.pop()
        yield depth, node
        left += [(depth + 1, waiter) for waiter in reversed(node.waiters)]


def tree(summaries: Iterable[Summary], sessions: Sequence[SessionFact]) -> tuple[AgentNode, ...]:
    """Every agent that is known of; at the top those that wait for no other agent.

    Of a circle, the first by name stands at the top. Order: blocked (the longest first), clarifying, working, idle.
    """
    nodes = _nodes([summary for summary in summaries if summary.is_open], sessions)
    above = _parents(nodes)
    below: defaultdict[str | None, list[str]] = defaultdict(list)
    for key in nodes:
        below[above.get(key)].append(key)
    built: dict[str, AgentNode] = {}
    for key in reversed(_from_the_top(below)):
        waiters = sorted((built[waiter] for waiter in below[key]), key=_order)
        built[key] = replace(nodes[key], waiters=tuple(waiters))
    return tuple(sorted((built[key] for key in below[None]), key=_order))


def ready_queue(summaries: Iterable[Summary], sessions: Sequence[SessionFact]) -> tuple[ReadyItem, ...]:
    """The sessions that have not ended: those that can go on first (the latest heard of first), then the blocked ones
    (the longest first). Agents that asked through the ledger, without a session, stand there once per issue.
    """
    blocking = sorted((s for s in summaries if s.is_open and s.blocking), key=_age)
    of_session: defaultdict[tuple[str | None, str | None], list[Summary]] = defaultdict(list)
    for summary in blocking:
        of_session[summary.producer, summary.session_id].append(summary)
    items = []
    for fact in sessions:
        waits = of_session.pop((fact.producer, fact.session_id), [])
        if waits or not fact.ended:
            items.append(_item(waits, fact))
    left: defaultdict[tuple[str | None, str | None, str, int], list[Summary]] = defaultdict(list)
    for (producer, session), waits in of_session.items():
        for wait in waits:
            left[producer, session, agent_key(wait.from_), wait.issue].append(wait)
    items += [_item(waits, None) for waits in left.values()]
    return tuple(sorted(items, key=_queue_order))


def _item(waits: list[Summary], fact: SessionFact | None) -> ReadyItem:
    asker = fact or waits[0]
    return ReadyItem(
        agent=fact.agent_id if fact else waits[0].from_,
        name=fact.agent_name if fact else None,
        producer=asker.producer,
        session_id=asker.session_id,
        issue=asker.issue,
        blocked_by=tuple(wait.id for wait in waits),
        since=waits[0].asked_last if waits else None,
        last_event_at=fact.last_event_at if fact else None,
    )


def _queue_order(item: ReadyItem) -> tuple[bool, float, str, str]:
    when = item.since.timestamp() if item.since else -_timestamp(item.last_event_at)
    return bool(item.blocked_by), when, item.agent, item.session_id or ""


def _nodes(open_ones: list[Summary], sessions: Sequence[SessionFact]) -> dict[str, AgentNode]:
    """All agents by key, without those that wait for them."""
    spelled: dict[str, str] = {}
    of_agent: defaultdict[str, list[SessionFact]] = defaultdict(list)
    asking: defaultdict[str, list[Summary]] = defaultdict(list)
    asked: defaultdict[str, list[Summary]] = defaultdict(list)
    for fact in sessions:
        of_agent[_key(fact.agent_id, spelled)].append(fact)
    for summary in sorted(open_ones, key=_age):
        key = _key(summary.from_, spelled)
        if summary.blocking:
            asking[key].append(summary)
        if agent_key(summary.to) != HUMAN:
            target = _key(summary.to, spelled)
            if summary.status != "escalated":  # then people have it
                asked[target].append(summary)
    return {key: _node(agent, of_agent[key], asking[key], asked[key]) for key, agent in spelled.items()}


def _node(agent: str, facts: list[SessionFact], asking: list[Summary], asked: list[Summary]) -> AgentNode:
    alive = [fact for fact in facts if not fact.ended]
    latest = max(facts, key=lambda fact: fact.last_event_at or _NEVER, default=None)
    status: AgentStatus = "working" if alive else "idle"
    if asked:
        status = "clarifying"
    if asking:
        status = "blocked"
    return AgentNode(
        agent=agent,
        name=latest.agent_name if latest else None,
        status=status,
        waits=tuple(Waiting(s.id, s.to, s.asked_last, s.status == "escalated") for s in asking),
        asked=tuple(summary.id for summary in asked),
        issues=tuple(sorted({fact.issue for fact in alive} | {summary.issue for summary in asking})),
        last_event_at=latest.last_event_at if latest else None,
    )


def _parents(nodes: dict[str, AgentNode]) -> dict[str, str]:
    """Each agent's parent: the agent it has waited for longest. Circles are cut above the first agent by name."""
    above: dict[str, str] = {}
    for key, node in nodes.items():
        others = (on for wait in node.waits if (on := agent_key(wait.on)) not in {HUMAN, key})
        if (longest := next(others, None)) is not None:
            above[key] = longest
    settled: set[str] = set()
    for start in sorted(above):
        path: dict[str, None] = {}
        key = start
        while key in above and key not in settled and key not in path:
            path[key] = None
            key = above[key]
        if key in path:
            walked = list(path)
            del above[min(walked[walked.index(key) :])]
        settled.update(path)
    return above


def _from_the_top(below: defaultdict[str | None, list[str]]) -> list[str]:
    """All agents, each after its parent."""
    ordered = list(below[None])
    for key in ordered:  # grows while it is walked
        ordered += below[key]
    return ordered


def _order(node: AgentNode) -> tuple[int, float, str]:
    when = node.since.timestamp() if node.since else 0.0
    return _URGENCY[node.status], when, node.agent


def _key(agent: str, spelled: dict[str, str]) -> str:
    key = agent_key(agent)
    spelled.setdefault(key, agent)
    return key


def _age(summary: Summary) -> tuple[float, str]:
    """Numbers sort many times faster than moments, and nothing else runs while thousands are sorted."""
    return summary.asked_last.timestamp(), summary.id


def _timestamp(at: datetime | None) -> float:
    return at.timestamp() if at is not None else 0.0


@dataclass(frozen=True, slots=True)
class AgentState:
    """What an agent is doing. `waiting_on`, `responding_to`: agents.

    `ended`: clarifications that are over for it. What the file says of any other one is not taken back by "working",
    nor a wait by "clarifying".
    """

    status: Literal["working", "clarifying", "blocked-clarification"]
    issue: int | None = None
    clarification_id: str | None = None
    waiting_on: str | None = None
    responding_to: str | None = None
    ended: frozenset[str] = frozenset()


class StatusFile:
    """The agent-status file at `path`, whose folder exists. `patience`: seconds for its lock; `mode`: of a new one."""

    def __init__(self, path: Path, clock: Clock, patience: float = 2.0, mode: int = 0o600) -> None:
        self.path = path
        self._mode = mode
        self._clock = clock
        self._patience = patience
        self._locks = Locks(path.parent, mode)

    async def update(self, changes: Mapping[str, AgentState]) -> None:
        """Write what these agents do. If the file says so already, or has nothing to take back, it is not touched.

        Raises:
            StatusUnavailable: its lock was not had, or the disk refused; the file is as it was.
        """
        await asyncio.to_thread(self._update, changes)

    def read(self) -> Entries:
        """The file's entries by agent; empty if there is no file. Values are as others wrote them. Blocking.

        Raises:
            StatusUnavailable: it cannot be read, or is torn and its lock was not had.
        """
        entries = self._glance()
        if entries is None:
            with self._held() as held:
                entries = self._open(held)
        return entries

    def close(self) -> None:
        """Nothing may be under way any more."""
        self._locks.close()

    def _update(self, changes: Mapping[str, AgentState]) -> None:
        at = iso(self._clock.now())
        entries = self._glance()
        if entries is not None and not _news(entries, changes, at):
            return
        with self._held() as held:
            entries = self._open(held)
            if news := _news(entries, changes, at):
                with replacing(
                    self.path, _encode(self.path, entries | news), self._locks.private, self._mode
                ):
                    self._check(held)  # as late as can be

    @contextmanager
    def _held(self) -> Iterator[Held]:
        try:
            make_folder(self._locks.private)
            with self._locks.hold_file(self.path.stem, 0, self._patience) as held:
                yield held
        except LockTimeout:
            why = f"its lock was not had within {self._patience:.1f} s"
            raise StatusUnavailable(self.path.name, why) from None
        except (LedgerUnwritable, OSError) as error:
            refused = error if isinstance(error, OSError) else error.__cause__
            why = reason(refused) if isinstance(refused, OSError) else "its lock file"
            raise StatusUnavailable(self.path.name, why) from error

    def _glance(self) -> Entries | None:
        """The entries, read without the lock; None: torn, or not a status file."""
        try:
            return _decode(self.path.read_bytes())
        except FileNotFoundError:
            return {}
        except ValueError:
            return None
        except OSError as error:
            raise StatusUnavailable(self.path.name, reason(error)) from error

    def _check(self, held: Held) -> None:
        """This process may have slept for longer than a marker counts, and others went on."""
        if not held.is_there():
            raise StatusUnavailable(self.path.name, "its lock was lost while this process slept")

    def _open(self, held: Held) -> Entries:
        """The entries, read under the lock; a file that has none is quarantined."""
        entries = self._glance()
        if entries is not None:
            return entries
        self._check(held)  # else it may be half of what its holder is writing
        quarantined = quarantine(self.path)
        if quarantined is None:
            raise StatusUnavailable(self.path.name, "it is no JSON object, and cannot be set aside")
        _log.error("%s is no JSON object; it was set aside as %s", self.path.name, quarantined.name)
        return {}


def _decode(content: bytes) -> Entries:
    try:
        entries = json.loads(content)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    if not isinstance(entries, dict):
        raise ValueError("no object")  # noqa: TRY004 - one error for "no status file"
    return entries


def _encode(path: Path, entries: Entries) -> bytes:
    for indent in (2, None):  # without one, it can be nested more deeply
        try:
            return json.dumps(entries, indent=indent).encode()
        except RecursionError:
            continue
    raise StatusUnavailable(path.name, "others' fields are nested too deeply")


def _news(entries: Entries, changes: Mapping[str, AgentState], at: str) -> Entries:
    """The agents' entries that have to be different, by their names in the file."""
    spelled = {agent_key(name): name for name in reversed(entries)}
    news: Entries = {}
    for agent, state in changes.items():
        name = agent if agent in entries else spelled.get(agent_key(agent), agent)
        entry = entries.get(name, {})
        if not isinstance(entry, dict):
            _log.debug("an agent's status has a form of its own, and stays")
        elif fields := _fields(entry, state):
            news[name] = {**entry, **fields, "lastActivity": at}
    return news


def _fields(entry: Entries, state: AgentState) -> Entries:
    """What has to be written into an agent's entry; nothing if it is there already, or must not be overwritten."""
    says, named = entry.get("status"), entry.get("clarificationId")
    is_over = isinstance(named, str) and named in state.ended
    if state.status == "working" and not (says in (BLOCKED, CLARIFYING) and is_over):
        return {}
    if state.status == CLARIFYING and says == BLOCKED and not is_over:
        return {}
    fields: Entries = {
        "status": state.status,
        "issue": entry.get("issue") if state.status == "working" else state.issue,
        "clarificationId": state.clarification_id,
        "waitingOn": state.waiting_on,
        "respondingTo": state.responding_to,
    }
    return {} if all(entry.get(key) == value for key, value in fields.items()) else fields


@dataclass(frozen=True, slots=True)
class _Part:
    """What one clarification makes an agent do: wait for `other`, or answer it."""

    agent: str
    status: Literal["clarifying", "blocked-clarification"]
    clarification: str
    issue: int
    other: str
    since: datetime

    @property
    def key(self) -> str:
        return agent_key(self.agent)


class StatusKeeper:
    """Keeps the agent-status file up to date from the clarifications that it is given. Writes only what changed.

    A requester is blocked while it has an open blocking clarification with an agent; its target is clarifying while
    a responder works on it, or while people have it who answer for that role (`roles_of_people`). `ledger`: where
    to look up, on start, clarifications that are in the file but were not given; without it, their entries stay.
    """

    def __init__(
        self,
        file: StatusFile,
        roles_of_people: Collection[str],
        clock: Clock,
        ledger: FileLedger | None = None,
    ) -> None:
        self._file = file
        self._people = frozenset(map(agent_key, roles_of_people)) - {HUMAN}
        self._clock = clock
        self._ledger = ledger
        self._parts: dict[_Source, tuple[_Part, ...]] = {}
        self._of: defaultdict[str, dict[_Source, list[_Part]]] = defaultdict(dict)
        self._owed: dict[str, tuple[str, set[str]]] = {}  # by agent: its name, what is over for it
        self._wake = asyncio.Event()
        self._turn = asyncio.Lock()

    def record_changed(self, summary: Summary) -> None:
        """Take in a clarification as it is now."""
        parts = []
        if summary.is_open and summary.blocking and _is_agent(summary.to):
            parts.append(_part(summary.from_, BLOCKED, summary, summary.to))
        if summary.status in _UNANSWERED and agent_key(summary.to) in self._people:
            parts.append(_part(summary.to, CLARIFYING, summary, summary.from_))
        self._put((summary.id, 0), tuple(parts))
        if not summary.is_open and _is_agent(summary.to):
            # Another process of ours, or one before us, may have written that they wait, or answer.
            for agent in (summary.from_, summary.to):
                self._owe(agent, summary.id)

    def working(self, summary: Summary, begun: bool) -> None:  # noqa: FBT001 - a callback's signature
        """A responder has begun to work on a clarification's round, or has ended."""
        parts = (_part(summary.to, CLARIFYING, summary, summary.from_),) if begun else ()
        self._put((summary.id, summary.round), parts)

    async def run(self) -> None:
        """Write what changes, until cancelled. What cannot be written is tried again, at first after a second."""
        checked, failures = False, 0
        while True:
            if checked:
                await self._wake.wait()
            self._wake.clear()
            try:
                if not checked and self._ledger is not None:
                    await self._check(self._ledger)
                checked = True
                await self._write()
            except StatusUnavailable as error:
                if not failures:
                    _log.warning("what agents do is written later: %s", error)
                pause = backoff(failures, first=_FIRST_RETRY, longest=_LONGEST_RETRY)
                failures += 1
            else:
                pause, failures = _BETWEEN, 0
            await self._clock.sleep(pause)

    async def settle(self) -> None:
        """Write what is owed, once. For processes that do not `run`, or that end; trouble is logged, no more."""
        try:
            await self._write()
        except StatusUnavailable as error:
            _log.warning("what agents do is not written: %s", error)

    async def _write(self) -> None:
        async with self._turn:
            owed, self._owed = self._owed, {}
            try:
                if owed:
                    await self._file.update(
                        {name: self._state(key, frozenset(over)) for key, (name, over) in owed.items()}
                    )
            except BaseException:
                for name, over in owed.values():
                    self._owe(name, *over)
                raise

    def _state(self, key: str, over: frozenset[str]) -> AgentState:
        """What an agent is doing, by the given clarifications: the longest counts, and waiting counts before answering."""
        parts = sorted(
            chain.from_iterable(self._of.get(key, {}).values()),
            key=lambda part: (part.since, part.clarification),
        )
        waits = next((part for part in parts if part.status == BLOCKED), None)
        answers = next((part for part in parts if part.status == CLARIFYING), None)
        to = answers.other if answers else None
        if waits is not None:
            return AgentState(BLOCKED, waits.issue, waits.clarification, waits.other, to, over)
        if answers is not None:
            return AgentState(CLARIFYING, answers.issue, answers.clarification, None, to, over)
        return AgentState("working", ended=over)

    def _put(self, source: _Source, parts: tuple[_Part, ...]) -> None:
        old = self._parts.get(source, ())
        if old == parts:
            return
        for part in old:
            self._of.get(part.key, {}).pop(source, None)
            if not self._of[part.key]:
                del self._of[part.key]
            self._owe(part.agent, part.clarification)
        for part in parts:
            self._of[part.key].setdefault(source, []).append(part)
            self._owe(part.agent)
        self._parts[source] = parts
        if not parts:
            del self._parts[source]

    def _owe(self, agent: str, *over: str) -> None:
        key = agent_key(agent)
        if _is_agent(agent):
            self._owed.setdefault(key, (agent, set()))[1].update(over)
            self._wake.set()

    async def _check(self, ledger: FileLedger) -> None:
        """Remove from the file what concerns clarifications that are over and were never given."""
        for agent, entry in (await asyncio.to_thread(self._file.read)).items():
            if isinstance(entry, dict) and entry.get("status") in (BLOCKED, CLARIFYING):
                named = entry.get("clarificationId")
                if isinstance(named, str) and await _is_over(ledger, named, entry["status"]):
                    self._owe(agent, named)


async def _is_over(ledger: FileLedger, named: str, status: str) -> bool:
    try:
        record = await ledger.find(named, parse_id(named)[0])
    except ClarifyError:
        return False  # it cannot be known, so it stays; an unreadable ledger pages elsewhere
    return record.status not in _UNANSWERED and (status == CLARIFYING or not record.is_open)


def _part(
    agent: str, status: Literal["clarifying", "blocked-clarification"], summary: Summary, other: str
) -> _Part:
    return _Part(agent, status, summary.id, summary.issue, other, summary.asked_last)


def _is_agent(name: str) -> bool:
    return agent_key(name) not in {"", HUMAN}
