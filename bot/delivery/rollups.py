"""Floods: an agent with more open questions in a channel than people can look at gets one roll-up card.

In memory: derived from the index and from which cards are posted. An agent has one route, so one channel.
"""

from __future__ import annotations

from core.index import Index, Summary

LIMIT = 20


class Rollups:
    """Which open questions have a card of their own, per agent: at most `limit`, the first come."""

    def __init__(self, index: Index, limit: int = LIMIT) -> None:
        self._index = index
        self._limit = limit
        self._open: dict[str, dict[str, Summary]] = {}
        self._cards: dict[str, set[str]] = {}
        self._keys: dict[str, str] = {}

    def update(self, summary: Summary) -> None:
        """Take in a clarification as it is now."""
        agent = summary.agent_id or ""
        if summary.is_open:
            self._open.setdefault(agent, {})[summary.id] = summary
            return
        self._cards.get(agent, set()).discard(summary.id)
        known = self._open.get(agent, {})
        known.pop(summary.id, None)
        if not known:
            self._open.pop(agent, None)
            self._cards.pop(agent, None)

    def has_card(self, summary: Summary) -> None:
        """Its card is posted, or may be."""
        if summary.is_open:
            self._cards.setdefault(summary.agent_id or "", set()).add(summary.id)

    def may_have_card(self, clarification: str) -> bool:
        """Whether it gets a card of its own; if so, a place among the cards is taken."""
        summary = self._index.get(clarification, int(clarification.split("-")[1]))
        if summary is None or not summary.is_open:
            return True
        cards = self._cards.setdefault(summary.agent_id or "", set())
        if clarification not in cards and len(cards) >= self._limit:
            return False
        cards.add(clarification)
        return True

    def held(self, agent: str) -> list[Summary]:
        """The open questions without a card of their own, the oldest first."""
        cards = self._cards.get(agent, set())
        held = [s for s in self._open.get(agent, {}).values() if s.id not in cards]
        return sorted(held, key=lambda s: (s.created, s.id)) if len(cards) >= self._limit else []

    def next_card(self, agent: str) -> Summary | None:
        """The question that gets the free place of a card that is not open any more."""
        cards = self._cards.get(agent, set())
        if len(cards) >= self._limit:
            return None
        held = [s for s in self._open.get(agent, {}).values() if s.id not in cards]
        return min(held, key=lambda s: (s.created, s.id), default=None)

    def key_of(self, agent: str) -> str | None:
        """The message key of the agent's roll-up card, while it has one."""
        return self._keys.get(agent)

    def begin(self, agent: str, key: str) -> None:
        self._keys[agent] = key

    def end(self, agent: str) -> None:
        self._keys.pop(agent, None)
