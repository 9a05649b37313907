"""Keeps summaries of the clarifications that still need something in memory, by session, and says what each agent does: the
tree of agents and the queue of sessions that are ready.

Memory grows neither with every question ever asked nor with the length of what is asked. Agents' statuses are those of the
Clarification Protocol's §6.2 that are visible from outside.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Literal

from core.clarification import HUMAN, Clarification, agent_key
from core.errors import ClarifyError
from core.ledger import Ledger
from core.summary import Seen, Summary, summary_of

OWN_THREAD = ""  # in place of a producer: a question between agents is a session of its own
Session = tuple[str, str]  # producer, session id


def session_of(record: Seen) -> Session:
    """Returns the session that asked, or, for a question between agents, a session of its own."""
    if record.producer is None or record.session_id is None:
        return OWN_THREAD, record.id
    return record.producer, record.session_id


class Index:
    """All clarifications that need something, kept up to date from ledger contents."""

    def __init__(self) -> None:
        self._by_id: dict[str, Summary] = {}
        # Most have one: a tuple takes a fifth of a dict.
        self._of_session: dict[Session, tuple[str, ...]] = {}
        self._waiting = Counter[str | None]()

    def put(self, seen: Seen) -> Summary:
        """Stores the current state of a clarification. Returns it as it is kept."""
        record = summary_of(seen)
        known = self._by_id.get(record.id)
        if known is not None:
            self._waiting[known.producer] -= _waits(known)
        self._waiting[record.producer] += _waits(record)
        if known is not None and not (record.needs_something and session_of(known) == session_of(record)):
            self._take_out(session_of(known), known.id)
            known = None
        if not record.needs_something:
            self._by_id.pop(record.id, None)
            return record
        if known is None:
            session = session_of(record)
            self._of_session[session] = (*self._of_session.get(session, ()), record.id)
        self._by_id[record.id] = record
        return record

    def _take_out(self, session: Session, clarification: str) -> None:
        if left := tuple(name for name in self._of_session.pop(session) if name != clarification):
            self._of_session[session] = left

    def __len__(self) -> int:
        return len(self._by_id)

    def __iter__(self) -> Iterator[Summary]:
        return iter(list(self._by_id.values()))

    def get(self, clarification_id: str) -> Summary | None:
        """Returns what is known of a clarification that still needs something."""
        return self._by_id.get(clarification_id)

    async def find(self, clarification_id: str, ledger: Ledger) -> Clarification:
        """Returns a record: one that is known here as `Ledger.whole` does, any other as last written.

        Raises:
            NotFound, BadInput: there is no record with that id.
            LedgerUnreadable, LockTimeout: its ledger cannot be read now.
        """
        known = self._by_id.get(clarification_id)
        return await (ledger.find(clarification_id) if known is None else ledger.whole(known))

    async def readable(self, some: Iterable[Seen], ledger: Ledger) -> list[Clarification]:
        """Returns those of some records that can be read now, for a list.

        Raises:
            ClarifyError: none can; of the last one, as `find`.
        """
        found: list[Clarification] = []
        why: ClarifyError | None = None
        for each in some:
            try:
                found.append(await self.find(each.id, ledger))
            except ClarifyError as error:
                why = error
        if why is not None and not found:
            raise why
        return found

    def waiting_of(self, producer: str) -> int:
        """Returns how many questions that a caller asked directly are open."""
        return self._waiting[producer]

    def of_session(self, producer: str, session_id: str) -> list[Summary]:
        """Returns those of a session (see `session_of`) that still need something, oldest first."""
        found = [self._by_id[name] for name in self._of_session.get((producer, session_id), ())]
        return sorted(found, key=lambda record: (record.created, record.id))


def _waits(record: Summary) -> bool:
    return record.is_open and record.is_direct


AgentStatus = Literal["idle", "working", "clarifying", "blocked"]
_URGENCY: dict[AgentStatus, int] = {"blocked": 0, "clarifying": 1, "working": 2, "idle": 3}
_NEVER = datetime.min.replace(tzinfo=UTC)
_LINGERS = timedelta(minutes=10)


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
