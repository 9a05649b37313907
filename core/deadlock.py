"""Finds agents that block each other: loops of waits, and two agents that ask each other the same thing. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice

from core.clarification import agent_key
from core.similarity import are_alike, read

_OTHERS = 8
_COMPARED = 300


@dataclass(frozen=True, slots=True)
class Wait:
    """One open clarification between agents: `asker` waits for `asked`. `blocking`: and does nothing else meanwhile."""

    clarification: str
    asker: str
    asked: str
    topic: str = ""
    blocking: bool = True

    @property
    def edge(self) -> tuple[str, str]:
        return agent_key(self.asker), agent_key(self.asked)


@dataclass(frozen=True, slots=True)
class Deadlock:
    """A loop of waits, or several that share agents.

    `agents`: first the one that keeps waiting, then the others in their order. `waits`: those that people must end, each with
    the ids of a few others, beginning with those of the agent it waits for.
    """

    agents: tuple[str, ...]
    waits: tuple[tuple[Wait, tuple[str, ...]], ...]


_Known = tuple[str, Wait]  # the key of the agent that is asked, and the wait


def deadlocks(waits: Iterable[Wait], order: Sequence[str]) -> list[Deadlock]:
    """The deadlocks of blocking waits. The most upstream agent keeps waiting, all other waits must end. Loops that share agents
    are one deadlock. An agent's wait for itself must always end.

    `order`: the agents, the most upstream first; others follow by name.
    """
    rank = {agent_key(agent): rank for rank, agent in reversed(list(enumerate(order)))}
    edges: dict[str, dict[str, list[Wait]]] = {}
    for wait in waits:
        if wait.blocking:
            asker, asked = wait.edge
            edges.setdefault(asker, {}).setdefault(asked, []).append(wait)
    found = []
    for knot in _ComponentSearch(edges, sorted(edges)).knots:
        members = set(knot)
        within: dict[str, list[_Known]] = {
            asker: [
                (asked, wait)
                for asked, between in edges.get(asker, {}).items()
                if asked in members
                for wait in between
            ]
            for asker in sorted(members, key=lambda agent: (rank.get(agent, len(rank)), agent))
        }
        if any(within.values()):
            found.append(_deadlock(within))
    return found


def flips(waits: Iterable[Wait]) -> list[tuple[Wait, tuple[str, ...]]]:
    """Every wait of a pair in which two agents ask each other about the same topic, with a few of the others in its pairs.
    Of two agents at most the latest `_COMPARED` waits each.
    """
    of_edge: defaultdict[tuple[str, str], list[Wait]] = defaultdict(list)
    for wait in waits:
        if wait.topic.strip():
            of_edge[wait.edge].append(wait)
    pairs: dict[str, tuple[Wait, dict[str, None]]] = {}
    for (asker, asked), some in of_edge.items():
        back = of_edge.get((asked, asker), []) if asker < asked else []
        others = [(each, read(each.topic)) for each in back[-_COMPARED:]]
        for one in some[-_COMPARED:] if others else ():
            said = read(one.topic)
            for other in (each for each, saying in others if are_alike(said, saying)):
                pairs.setdefault(one.clarification, (one, {}))[1][other.clarification] = None
                pairs.setdefault(other.clarification, (other, {}))[1][one.clarification] = None
    return [(wait, tuple(islice(alike, _OTHERS))) for wait, alike in pairs.values()]


def _deadlock(waits: dict[str, list[_Known]]) -> Deadlock:
    upstream = next(iter(waits))
    some = [wait.clarification for _, wait in islice(chain.from_iterable(waits.values()), _OTHERS + 1)]
    first = {
        agent: [wait.clarification for _, wait in known[: _OTHERS + 1]] for agent, known in waits.items()
    }
    ended = tuple(
        (wait, _others(wait, first[asked], some))
        for asker, known in waits.items()
        for asked, wait in known
        if asker != upstream or asked == upstream
    )
    return Deadlock(tuple(known[0][1].asker for known in waits.values()), ended)


def _others(wait: Wait, nearest: list[str], some: list[str]) -> tuple[str, ...]:
    ids = dict.fromkeys((*nearest, *some))
    ids.pop(wait.clarification, None)
    return tuple(islice(ids, _OTHERS))


class _ComponentSearch:
    """The strongly connected components of a graph that can be reached from some roots, by Tarjan's algorithm; without
    recursion, as chains may be long.
    """

    def __init__(self, edges: Mapping[str, Mapping[str, object]], roots: Iterable[str]) -> None:
        self.knots: list[list[str]] = []
        self._edges = edges
        self._number: dict[str, int] = {}
        self._low: dict[str, int] = {}
        self._open: dict[str, None] = {}  # in the order they were entered
        for root in roots:
            if root not in self._number:
                self._walk(root)

    def _walk(self, root: str) -> None:
        path = [self._enter(root)]
        while path:
            agent, targets = path[-1]
            target = next(targets, None)
            if target is None:
                path.pop()
                self._leave(agent, path[-1][0] if path else None)
            elif target not in self._number:
                path.append(self._enter(target))
            elif target in self._open:
                self._low[agent] = min(self._low[agent], self._number[target])

    def _enter(self, agent: str) -> tuple[str, Iterator[str]]:
        self._number[agent] = self._low[agent] = len(self._number)
        self._open[agent] = None
        return agent, iter(self._edges.get(agent, {}))

    def _leave(self, agent: str, before: str | None) -> None:
        if before is not None:
            self._low[before] = min(self._low[before], self._low[agent])
        if self._low[agent] == self._number[agent]:
            knot: list[str] = []
            while agent in self._open:
                knot.append(self._open.popitem()[0])
            self.knots.append(knot)
