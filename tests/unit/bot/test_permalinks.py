from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from bot.errors import SlackUnreachableError, StorageUnavailable
from bot.permalinks import Permalinks


@dataclass
class Card:
    clarification: str | None
    channel: str | None
    ts: str | None


class Cards:
    def __init__(self, *cards: Card) -> None:
        self.cards = cards
        self.broken = False

    async def cards_of(self, clarifications: Iterable[str]) -> Sequence[Card]:
        if self.broken:
            raise StorageUnavailable
        return [card for card in self.cards if card.clarification in set(clarifications)]


class Slack:
    def __init__(self) -> None:
        self.asked: list[tuple[str, str]] = []
        self.down = False
        self.slow = False

    async def fetch(self, channel: str, ts: str) -> str:
        self.asked.append((channel, ts))
        if self.slow:
            await asyncio.sleep(30)
        if self.down:
            raise SlackUnreachableError
        return f"https://slack.example/{channel}/{ts}"


async def test_link_is_of_the_newest_card_and_asked_for_once() -> None:
    slack = Slack()
    cards = Cards(
        Card("CLR-1-001", "C1", "1.0"), Card("CLR-1-001", "C1", "2.0"), Card("CLR-1-002", None, None)
    )
    links = Permalinks(cards, slack.fetch)

    for _ in range(2):
        assert await links.links(["CLR-1-001", "CLR-1-002"]) == {"CLR-1-001": "https://slack.example/C1/2.0"}
    assert await links.link("CLR-1-002") is None
    assert slack.asked == [("C1", "2.0")]


async def test_trouble_is_no_link_and_not_kept() -> None:
    slack, cards = Slack(), Cards(Card("CLR-1-001", "C1", "1.0"))
    links = Permalinks(cards, slack.fetch, patience=0.05)

    slack.down = True
    assert await links.link("CLR-1-001") is None
    slack.down, slack.slow = False, True
    assert await links.link("CLR-1-001") is None
    slack.slow, cards.broken = False, True
    assert await links.link("CLR-1-001") is None
    cards.broken = False
    assert await links.link("CLR-1-001") == "https://slack.example/C1/1.0"
