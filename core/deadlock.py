"""Finds agents that block each other: loops of waits, and two agents that ask each other the same thing. Pure.

Examines only new waits: the cost grows with what a new wait can reach, not with the number of waits.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice

from core.clarification import agent_key
from core.similarity import Sayings

_OTHERS = 8


@dataclass(frozen=True, slots=True)
class Wait:
    """One open clarification between agents: `asker` waits for `asked`."""

    clarification: str
    asker: str
    asked: str

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


class Waits:
    """The blocking waits between agents. `order`: the agents, the most upstream first; others follow by name."""

    def __init__(self, order: Sequence[str]) -> None:
        self._rank = {agent_key(agent): rank for rank, agent in reversed(list(enumerate(order)))}
        self._known: dict[str, Wait] = {}
        self._edges: dict[str, dict[str, dict[str, Wait]]] = {}
        self._fresh: set[str] = set()

    def put(self, wait: Wait) -> None:
        if self._known.get(wait.clarification) == wait:
            return
        self.drop(wait.clarification)
        self._known[wait.clarification] = wait
        asker, asked = wait.edge
        self._edges.setdefault(asker, {}).setdefault(asked, {})[wait.clarification] = wait
        self._fresh.add(asker)

    def drop(self, clarification: str) -> None:
        if (wait := self._known.pop(clarification, None)) is None:
            return
        asker, asked = wait.edge
        self._edges[asker][asked].pop(clarification)
        if not self._edges[asker][asked]:
            del self._edges[asker][asked]
        if not self._edges[asker]:
            del self._edges[asker]

    def look(self) -> list[Deadlock]:
        """The deadlocks that new waits can reach. The most upstream agent keeps waiting, all other waits must end. Loops that
        share agents are one deadlock. An agent's wait for itself must always end.
        """
        roots = sorted(self._fresh & self._edges.keys())
        self._fresh.clear()
        knots = (self._waits_within(knot) for knot in _ComponentSearch(self._edges, roots).knots)
        return [_deadlock(waits) for waits in knots if any(waits.values())]

    def _waits_within(self, knot: list[str]) -> dict[str, list[_Known]]:
        """The waits within a knot by asker, the most upstream first."""
        members = set(knot)
        return {
            asker: [
                (asked, wait)
                for asked, between in self._edges.get(asker, {}).items()
                if asked in members
                for wait in between.values()
            ]
            for asker in sorted(members, key=self._upstream_first)
        }

    def _upstream_first(self, agent: str) -> tuple[int, str]:
        return self._rank.get(agent, len(self._rank)), agent


class Flips:
    """Pairs of open clarifications in which two agents ask each other the same topic.

    Answered clarifications don't count: an agent may ask back on a topic that it has answered.
    """

    def __init__(self) -> None:
        self._known: dict[str, tuple[Wait, str]] = {}
        self._topics: defaultdict[tuple[str, str], Sayings] = defaultdict(Sayings)
        self._fresh: dict[str, None] = {}

    def put(self, wait: Wait, topic: str) -> None:
        if self._known.get(wait.clarification) == (wait, topic) or wait.edge[0] == wait.edge[1]:
            return
        self.drop(wait.clarification)
        self._known[wait.clarification] = (wait, topic)
        self._topics[wait.edge].put(wait.clarification, topic)
        self._fresh[wait.clarification] = None

    def drop(self, clarification: str) -> None:
        self._fresh.pop(clarification, None)
        if (known := self._known.pop(clarification, None)) is None:
            return
        edge = known[0].edge
        self._topics[edge].drop(clarification)
        if not self._topics[edge]:
            del self._topics[edge]

    @property
    def has_fresh(self) -> bool:
        """Whether there are waits to examine."""
        return bool(self._fresh)

    def look(self, most: int = sys.maxsize) -> list[tuple[Wait, tuple[str, ...]]]:
        """Every wait in the pairs that new ones form, with a few of the others in its pairs.

        Reads or looks up at most `most` texts; the rest is left for the next call.
        """
        pairs: defaultdict[str, dict[str, None]] = defaultdict(dict)
        for fresh in list(self._fresh):
            wait, topic = self._known[fresh]
            asker, asked = wait.edge
            if (asked, asker) in self._topics and topic.strip():
                most -= 1 + self._topics[asked, asker].prepare(most)
                if most < 0:
                    break
                alike = chain.from_iterable(self._topics[asked, asker].alike(topic))
                for other in islice(alike, _OTHERS):
                    pairs[fresh][other] = None
                    pairs[other][fresh] = None
            del self._fresh[fresh]
        return [(self._known[one][0], tuple(islice(others, _OTHERS))) for one, others in pairs.items()]


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
