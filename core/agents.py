"""Who is at work and who waits for whom: views for people, made of what is open and of the sessions. Pure.

Statuses are the Clarification Protocol's §6.2, as far as they can be seen from outside.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Literal

from core.deadlock import HUMAN, agent_key
from core.index import Summary

AgentStatus = Literal["idle", "working", "clarifying", "blocked"]
_URGENCY: dict[AgentStatus, int] = {"blocked": 0, "clarifying": 1, "working": 2, "idle": 3}
_NEVER = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class SessionFact:
    """A session as it was last heard of."""

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
    """An agent, and under it those that wait for it (each agent once, under the one it waits for longest).

    `waits`: the longest first. `asked`: ids of the open clarifications that it, and not yet the person on call, has to answer. `issues`: of its
    sessions that have not ended, and of what it waits for.
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
    since = waits[0].asked_last if waits else None
    ids = tuple(wait.id for wait in waits)
    if fact is None:
        first = waits[0]
        return ReadyItem(
            first.from_, None, first.producer, first.session_id, first.issue, ids, since, last_event_at=None
        )
    return ReadyItem(
        fact.agent_id,
        fact.agent_name,
        fact.producer,
        fact.session_id,
        fact.issue,
        ids,
        since,
        fact.last_event_at,
    )


def _queue_order(item: ReadyItem) -> tuple[bool, float, str, str]:
    when = item.since.timestamp() if item.since else -_heard(item.last_event_at)
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
    """Whom each agent stands under: the agent it waits for longest. Circles are opened above their first by name."""
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
    """All agents, each after the one it stands under."""
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


def _heard(at: datetime | None) -> float:
    return at.timestamp() if at is not None else 0.0
