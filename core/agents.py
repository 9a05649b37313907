"""What each agent does: the tree and the queue for people, and the agent-status file for programs.

Statuses are those of the Clarification Protocol's §6.2 that are visible from outside. `tree` and `ready_queue` are pure. Other
implementations write the status file too, perhaps in place, under a lock marker as for ledgers. Their agents and fields are
kept; a file that is no JSON object under the lock is quarantined.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Literal

from core.clarification import HUMAN, ID, agent_key
from core.clock import Clock, backoff, iso
from core.errors import LedgerUnwritable, LockTimeout, StatusUnavailable
from core.files import make_folder, quarantine, reason, replacing
from core.index import Session
from core.locks import HeldLock, Locks
from core.summary import Seen

_log = logging.getLogger("clarify.status")

AgentStatus = Literal["idle", "working", "clarifying", "blocked"]
_URGENCY: dict[AgentStatus, int] = {"blocked": 0, "clarifying": 1, "working": 2, "idle": 3}
_NEVER = datetime.min.replace(tzinfo=UTC)
_LINGERS = timedelta(minutes=10)

BLOCKED, CLARIFYING = "blocked-clarification", "clarifying"
StatusEntry = dict[str, Any]
Entries = dict[str, Any]  # by agent; others may have written something else than a `StatusEntry`
_FREE: StatusEntry = {"status": "working", "clarificationId": None, "waitingOn": None, "respondingTo": None}
_BETWEEN = 0.25  # seconds between two writes: others that wait for the lock back off by 200 ms or more
_FIRST_RETRY, _LONGEST_RETRY = 1.0, 60.0


@dataclass(frozen=True, slots=True)
class SessionFact:
    """A session as of its last event. `is_direct`: it only asked directly, and never reports its end."""

    producer: str
    session_id: str
    agent_id: str
    agent_name: str | None
    issue: int
    ended: bool
    last_event_at: datetime | None
    is_direct: bool = False


@dataclass(frozen=True, slots=True)
class BlockedOn:
    """An open blocking clarification: whom the agent waits for, since when, and whether it is escalated."""

    clarification: str
    on: str
    since: datetime
    escalated: bool


@dataclass(frozen=True, slots=True)
class AgentNode:
    """An agent in the tree: `depth` levels (from 0) below an agent that waits for no other, directly below `under`, which it
    has waited for longest.

    `waits`: the longest first. `asked`: the ids of the open clarifications that it has to answer, unless escalated. `issues`:
    those of its sessions that have not ended, and of its waits.
    """

    agent: str
    name: str | None
    status: AgentStatus
    waits: tuple[BlockedOn, ...]
    asked: tuple[str, ...]
    issues: tuple[int, ...]
    last_event_at: datetime | None
    depth: int = 0
    under: str | None = None

    @property
    def since(self) -> datetime | None:
        """When it became blocked."""
        return self.waits[0].since if self.waits else None

    @property
    def on(self) -> tuple[str, ...]:
        """The roles that it waits for, each once; `human` stands for people."""
        return tuple(dict.fromkeys(wait.on for wait in self.waits))

    @property
    def blocked_by(self) -> tuple[str, ...]:
        return tuple(wait.clarification for wait in self.waits)


@dataclass(frozen=True, slots=True)
class ReadyItem:
    """A session and the ids of the clarifications that block it, the longest first; ready if there are none.

    `session_id` and `producer` are None for an agent that asked through the ledger, without a session.
    """

    agent: str
    name: str | None
    producer: str | None
    session_id: str | None
    issue: int
    blocked_by: tuple[str, ...]
    since: datetime | None
    last_event_at: datetime | None


def going_on(
    sessions: Iterable[SessionFact],
    waits: Callable[[Session], bool],
    over: Mapping[Session, datetime],
    now: datetime,
) -> list[SessionFact]:
    """Leaves out the sessions that asked directly and have had nothing to wait for during the last ten minutes.

    `waits` tells whether a session has an open question, or an answer that was not taken; `over` when its last answer was
    taken or its last question closed, if known.
    """

    def is_finished(fact: SessionFact) -> bool:
        key = fact.producer, fact.session_id
        moments = [moment for moment in (fact.last_event_at, over.get(key)) if moment is not None]
        return fact.is_direct and not waits(key) and max(moments, default=_NEVER) <= now - _LINGERS

    return [fact for fact in sessions if not is_finished(fact)]


def tree(records: Iterable[Seen], sessions: Sequence[SessionFact]) -> tuple[AgentNode, ...]:
    """Every known agent, each followed by those that wait for it, beginning with those that wait for no other.

    A loop begins with its first agent by name. Order: blocked (the longest first), clarifying, working, idle.
    """
    nodes = _nodes([record for record in records if record.is_open], sessions)
    above = _parents(nodes)
    below: defaultdict[str | None, list[AgentNode]] = defaultdict(list)
    for key, node in nodes.items():
        below[above.get(key)].append(node)
    found: list[AgentNode] = []
    left = sorted(below[None], key=_order, reverse=True)
    while left:
        node = left.pop()
        found.append(node)
        waiters = sorted(below[agent_key(node.agent)], key=_order, reverse=True)
        left += [replace(each, depth=node.depth + 1, under=node.agent) for each in waiters]
    return tuple(found)


def ready_queue(records: Iterable[Seen], sessions: Sequence[SessionFact]) -> tuple[ReadyItem, ...]:
    """The sessions that have not ended: first the ready ones (latest event first), then the blocked ones (the longest
    first). Agents that asked through the ledger, without a session, appear once per issue.
    """
    blocking = sorted((s for s in records if s.is_open and s.blocking), key=_age)
    of_session: defaultdict[tuple[str | None, str | None], list[Seen]] = defaultdict(list)
    for record in blocking:
        of_session[record.producer, record.session_id].append(record)
    items = []
    for fact in sessions:
        waits = of_session.pop((fact.producer, fact.session_id), [])
        if waits or not fact.ended:
            items.append(_item(waits, fact))
    left: defaultdict[tuple[str | None, str | None, str, int], list[Seen]] = defaultdict(list)
    for (producer, session), waits in of_session.items():
        for wait in waits:
            left[producer, session, agent_key(wait.from_), wait.issue_number].append(wait)
    items += [_item(waits, None) for waits in left.values()]
    return tuple(sorted(items, key=_queue_order))


def _item(waits: list[Seen], fact: SessionFact | None) -> ReadyItem:
    asker = fact or waits[0]
    return ReadyItem(
        agent=fact.agent_id if fact else waits[0].from_,
        name=fact.agent_name if fact else None,
        producer=asker.producer,
        session_id=asker.session_id,
        issue=fact.issue if fact else waits[0].issue_number,
        blocked_by=tuple(wait.id for wait in waits),
        since=waits[0].asked_last if waits else None,
        last_event_at=fact.last_event_at if fact else None,
    )


def _queue_order(item: ReadyItem) -> tuple[bool, float, str, str]:
    when = item.since.timestamp() if item.since else -_timestamp(item.last_event_at)
    return bool(item.blocked_by), when, item.agent, item.session_id or ""


def _nodes(open_ones: list[Seen], sessions: Sequence[SessionFact]) -> dict[str, AgentNode]:
    """All agents by key, not yet placed in the tree."""
    spelled: dict[str, str] = {}
    of_agent: defaultdict[str, list[SessionFact]] = defaultdict(list)
    asking: defaultdict[str, list[Seen]] = defaultdict(list)
    asked: defaultdict[str, list[Seen]] = defaultdict(list)
    for fact in sessions:
        of_agent[_key(fact.agent_id, spelled)].append(fact)
    for record in sorted(open_ones, key=_age):
        key = _key(record.from_, spelled)
        if record.blocking:
            asking[key].append(record)
        if agent_key(record.to) != HUMAN:
            target = _key(record.to, spelled)
            if record.status != "escalated":
                asked[target].append(record)
    return {key: _node(agent, of_agent[key], asking[key], asked[key]) for key, agent in spelled.items()}


def _node(agent: str, facts: list[SessionFact], asking: list[Seen], asked: list[Seen]) -> AgentNode:
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
        waits=tuple(BlockedOn(s.id, s.to, s.asked_last, s.status == "escalated") for s in asking),
        asked=tuple(record.id for record in asked),
        issues=tuple(sorted({fact.issue for fact in alive} | {record.issue_number for record in asking})),
        last_event_at=latest.last_event_at if latest else None,
    )


def _parents(nodes: dict[str, AgentNode]) -> dict[str, str]:
    """Each agent's parent: the agent it has waited for longest. Loops are cut above the first agent by name."""
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


def _order(node: AgentNode) -> tuple[int, float, str]:
    when = node.since.timestamp() if node.since else 0.0
    return _URGENCY[node.status], when, node.agent


def _key(agent: str, spelled: dict[str, str]) -> str:
    key = agent_key(agent)
    spelled.setdefault(key, agent)
    return key


def _age(record: Seen) -> tuple[float, str]:
    """A sort key, as a number: that sorts many times faster than datetimes, and thousands are sorted at once."""
    return record.asked_last.timestamp(), record.id


def _timestamp(at: datetime | None) -> float:
    return at.timestamp() if at is not None else 0.0


class StatusFile:
    """The agent-status file at `path`, whose folder exists: which agents wait, and which answer.

    A requester is blocked while it has an open blocking clarification with an agent. Its target is clarifying while a
    responder works on it, or while people answer for that role (`roles_of_people`).
    """

    def __init__(
        self,
        path: Path,
        known: Callable[[], Iterable[Seen]],
        roles_of_people: Collection[str],
        clock: Clock,
        *,
        mode: int = 0o600,
        patience: float = 2.0,
    ) -> None:
        """`known` returns all open clarifications; called in a thread. `mode`: of a new file; `patience`: seconds to wait
        for its lock.
        """
        self.path = path
        self._known = known
        self._people = frozenset(map(agent_key, roles_of_people)) - {HUMAN}
        self._clock = clock
        self._mode = mode
        self._patience = patience
        self._locks = Locks(path.parent, mode)
        self._responding: set[tuple[str, int]] = set()  # clarifications and rounds that responders work on
        self._shown: dict[str, StatusEntry] | None = None
        self._wake = asyncio.Event()
        self._turn = asyncio.Lock()

    @property
    def is_owed(self) -> bool:
        """Whether the file is outdated."""
        return self._wake.is_set()

    def record_changed(self, record: Seen) -> None:
        """Schedule a write if the clarification is between agents."""
        if _is_agent(record.to):
            self._wake.set()

    def working(self, record: Seen, begun: bool) -> None:  # noqa: FBT001 - a callback's signature
        """Note that a responder began work on a clarification's round, or ended it."""
        change = self._responding.add if begun else self._responding.discard
        change((record.id, record.round))
        self._wake.set()

    async def run(self) -> None:
        """Write at once and after every change, until cancelled. Retries failed writes, first after a second."""
        failures = 0
        while True:
            try:
                await self._write()
            except StatusUnavailable as error:
                if not failures:
                    _log.warning("agent status delayed: %s", error)
                await self._clock.sleep(backoff(failures, first=_FIRST_RETRY, longest=_LONGEST_RETRY))
                failures += 1
            else:
                failures = 0
                await self._clock.sleep(_BETWEEN)
                await self._wake.wait()

    async def settle(self) -> None:
        """Write once, for processes that do not `run` or are about to end. Only logs errors."""
        try:
            await self._write()
        except StatusUnavailable as error:
            _log.warning("agent status not written: %s", error)

    def close(self) -> None:
        self._locks.close()

    async def _write(self) -> None:
        async with self._turn:
            self._wake.clear()
            try:
                await asyncio.to_thread(self._update)
            except BaseException:
                self._wake.set()
                raise

    def _update(self) -> None:
        """Update the file, unless nothing changed since we wrote it."""
        if self._shown == self._doing(self._open()):
            return
        with self._held() as held:
            open_ones = self._open()
            doing = self._doing(open_ones)
            entries = self._read(held)
            if news := self._news(entries, doing, open_ones):
                with replacing(self.path, self._encode(entries | news), self._locks.private, self._mode):
                    self._check(held)  # as late as possible
            self._shown = doing

    def _open(self) -> list[Seen]:
        return sorted((each for each in self._known() if each.is_open), key=_age)

    def _doing(self, open_ones: list[Seen]) -> dict[str, StatusEntry]:
        """The entries of agents that wait or answer, by name. The oldest clarification counts, and waiting before answering."""
        responding = frozenset(self._responding)
        spelled: dict[str, str] = {}
        waits: dict[str, Seen] = {}
        answers: dict[str, Seen] = {}
        for each in open_ones:
            if not _is_agent(each.to):
                continue
            if each.blocking and _is_agent(each.from_):
                waits.setdefault(_key(each.from_, spelled), each)
            for_people = each.is_with_target and agent_key(each.to) in self._people
            if for_people or (each.id, each.round) in responding:
                answers.setdefault(_key(each.to, spelled), each)
        doing = {key: _entry(BLOCKED, each) | {"waitingOn": each.to} for key, each in waits.items()}
        for key, each in answers.items():
            doing.setdefault(key, _entry(CLARIFYING, each))["respondingTo"] = each.from_
        return {spelled[key]: entry for key, entry in doing.items()}

    def _news(self, entries: Entries, doing: Mapping[str, StatusEntry], open_ones: list[Seen]) -> Entries:
        """The entries to change, by their names in the file. A status is reset only if its clarification is over, or if this
        process wrote it.
        """
        spelled = {agent_key(name): name for name in reversed(entries)}
        wanted = {spelled.get(agent_key(agent), agent): entry for agent, entry in doing.items()}
        ours = {(agent_key(agent), entry["clarificationId"]) for agent, entry in (self._shown or {}).items()}
        still = {(BLOCKED, each.id) for each in open_ones}
        still |= {(CLARIFYING, each.id) for each in open_ones if each.is_with_target}
        for name, entry in entries.items():
            if name in wanted or not isinstance(entry, dict):
                continue
            status, named = entry.get("status"), entry.get("clarificationId")
            if status not in (BLOCKED, CLARIFYING) or not isinstance(named, str) or not ID.fullmatch(named):
                continue
            if (status, named) not in still or (agent_key(name), named) in ours:
                wanted[name] = _FREE | {"issue": entry.get("issue")}
        at = iso(self._clock.now())
        news: Entries = {}
        for name, fields in wanted.items():
            entry = entries.get(name, {})
            if isinstance(entry, dict) and not fields.items() <= entry.items():
                news[name] = {**entry, **fields, "lastActivity": at}
        return news

    @contextmanager
    def _held(self) -> Iterator[HeldLock]:
        try:
            make_folder(self._locks.private)
            with self._locks.hold_file(self.path.stem, 0, self._patience) as held:
                yield held
        except LockTimeout:
            why = f"it could not be locked within {self._patience:.1f} s"
            raise StatusUnavailable(self.path.name, why) from None
        except (LedgerUnwritable, OSError) as error:
            refused = error if isinstance(error, OSError) else error.__cause__
            why = reason(refused) if isinstance(refused, OSError) else "its lock file"
            raise StatusUnavailable(self.path.name, why) from error

    def _check(self, held: HeldLock) -> None:
        """Raises StatusUnavailable if the lock was lost, as after a long suspend."""
        if not held.is_there():
            raise StatusUnavailable(self.path.name, "its lock was lost while this process slept")

    def _read(self, held: HeldLock) -> Entries:
        """The file's entries by agent. Quarantines a file that is no JSON object."""
        try:
            entries = json.loads(self.path.read_bytes())
        except FileNotFoundError:
            return {}
        except (ValueError, RecursionError):
            entries = None
        if isinstance(entries, dict):
            return entries
        self._check(held)  # without the lock, another process may be half way through writing it
        quarantined = quarantine(self.path)
        if quarantined is None:
            raise StatusUnavailable(self.path.name, "it is not a JSON object and cannot be quarantined")
        _log.error("%s is not a JSON object; quarantined as %s", self.path.name, quarantined.name)
        return {}

    def _encode(self, entries: Entries) -> bytes:
        try:
            return json.dumps(entries).encode()
        except RecursionError:
            raise StatusUnavailable(self.path.name, "others' fields are nested too deeply") from None


def _entry(status: str, of: Seen) -> StatusEntry:
    return _FREE | {"status": status, "issue": of.issue_number, "clarificationId": of.id}


def _is_agent(name: str) -> bool:
    return agent_key(name) not in {"", HUMAN}
