"""Limits an agent's cards per channel: its further open questions share one roll-up card.

In memory: derived from the index and from which cards are posted. A question to people in another channel counts
there.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from bot.routing import Audiences, Group
from bot.show.messages import MessageRow, Messages
from core.index import Index
from core.summary import Seen, Summary, summary_of

LIMIT = 20


@dataclass(eq=False)
class Rollups:
    """Decides which open questions get a card of their own: the first twenty per agent and channel."""

    index: Index
    audiences: Audiences
    _group: dict[str, Group] = field(default_factory=dict)  # of open questions
    _open: dict[Group, dict[str, Summary]] = field(default_factory=dict)
    _cards: dict[Group, set[str]] = field(default_factory=dict)
    _keys: dict[Group, str] = field(default_factory=dict)

    def group(self, seen: Seen) -> Group:
        return self.audiences.group(seen)

    def update(self, seen: Seen) -> None:
        """Takes in a clarification's current state."""
        record = summary_of(seen)
        group = self.group(record)
        shown = record.is_open and self.audiences.shows(record)
        before = self._group.pop(record.id, group)
        if not shown or before != group:  # another round may have other answerers
            self._leave(before, record)
        if shown:
            self._group[record.id] = group
            self._open.setdefault(group, {})[record.id] = record

    def _leave(self, group: Group, record: Summary) -> None:
        self._cards.get(group, set()).discard(record.id)
        known = self._open.get(group, {})
        known.pop(record.id, None)
        if not known:
            self._open.pop(group, None)
            self._cards.pop(group, None)

    def note_card(self, record: Seen) -> None:
        """Counts a card that is posted, or may be."""
        if record.is_open:
            self._cards.setdefault(self.group(record), set()).add(record.id)

    def claim_card(self, clarification: str) -> bool:
        """Reserves one of the 20 card slots. Returns False if none is left. A closed or unknown question needs none."""
        record = self.index.get(clarification)
        if record is None or not record.is_open:
            return True
        cards = self._cards.setdefault(self.group(record), set())
        if clarification not in cards and len(cards) >= LIMIT:
            return False
        cards.add(clarification)
        return True

    def has_place(self, clarification: str) -> bool:
        """Returns whether it has a card slot, posted or not."""
        group = self._group.get(clarification)
        return group is not None and clarification in self._cards.get(group, ())

    def may_hold(self, record: Seen) -> bool:
        """Returns whether an open question may have no card of its own. A bot that does not deliver knows no card
        slots, so there any of more than 20 questions may be held.
        """
        return len(self._open.get(self.group(record), ())) > LIMIT and not self.has_place(record.id)

    def open_in(self, group: Group) -> list[Summary]:
        """Returns the open questions, oldest first."""
        return sorted(self._open.get(group, {}).values(), key=lambda s: (s.created, s.id))

    def held(self, group: Group) -> list[Summary]:
        """Returns the open questions without a card of their own, oldest first."""
        cards = self._cards.get(group, set())
        return [s for s in self.open_in(group) if s.id not in cards] if len(cards) >= LIMIT else []

    def next_cards(self, group: Group) -> list[Summary]:
        """Returns the questions that get the free card slots, the oldest first."""
        cards = self._cards.get(group, set())
        return [s for s in self.open_in(group) if s.id not in cards][: max(0, LIMIT - len(cards))]

    def key_of(self, group: Group) -> str | None:
        """Returns the message key of the group's roll-up card, if it has one."""
        return self._keys.get(group)

    def begin(self, group: Group, key: str) -> None:
        self._keys[group] = key

    def end(self, group: Group) -> None:
        self._keys.pop(group, None)


def rolled_up(row: MessageRow) -> Group:
    """Returns the group whose questions a roll-up card holds."""
    body = row.body or {}
    return Group(body.get("agent", ""), body.get("channel") or row.target)


@dataclass(frozen=True, slots=True)
class RollupPlace:
    """A roll-up card's place in Slack, and the clarifications that it holds."""

    channel: str
    ts: str
    holds: tuple[str, ...]


@dataclass(eq=False)
class RollupThreads:
    """Finds the questions that a roll-up card holds by its place in Slack: a reply in its thread is about them.

    Uses only stored cards, because a bot that does not deliver knows no claims.

    Raises StorageUnavailable if they cannot be looked up now.
    """

    messages: Messages
    rollups: Rollups

    async def held_at(self, channel: str, ts: str) -> tuple[str, ...] | None:
        """Returns the clarifications that the roll-up card at a place holds now, or None if there is no roll-up card."""
        row = await self.messages.landed_at(channel, ts)
        return await self.held_by(row) if row is not None and row.kind == "rollup" else None

    async def open_rollups(self) -> list[RollupPlace]:
        """Returns the roll-up cards that may still change."""
        return [
            RollupPlace(row.channel, row.ts, await self.held_by(row))
            for row in await self.messages.rollups()
            if row.channel is not None and row.ts is not None
        ]

    async def held_by(self, row: MessageRow) -> tuple[str, ...]:
        """Returns the clarifications that a roll-up card holds now."""
        rounds = {each.id: each.round for each in self.rollups.open_in(rolled_up(row))}
        cards = await self.messages.cards_of(rounds)
        begun = {(card.clarification, card.round) for card in cards if card.ts or card.intent_at}
        others = [each for each, number in rounds.items() if (each, number) not in begun]
        # The oldest of them are about to get the free slots.
        return tuple(others[max(0, LIMIT - len(rounds) + len(others)) :])
