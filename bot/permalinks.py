"""Where in Slack something is: the web addresses of messages and of clarifications' cards. Kept; never raises.

A card that is posted again gets another place, so addresses are kept by place, not by clarification.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Protocol

from bot.errors import SlackError, StorageError

_log = logging.getLogger("clarify.slack")
_PATIENCE = 1.0  # seconds: a list is shown without links rather than late
_MOST_KEPT = 20_000


class Card(Protocol):
    """A row of the messages that are shown; `ts` None: it is not posted yet."""

    @property
    def clarification(self) -> str | None: ...
    @property
    def channel(self) -> str | None: ...
    @property
    def ts(self) -> str | None: ...


class Cards(Protocol):
    """`bot.delivery.messages.Messages`. May raise StorageUnavailable."""

    async def cards_of(self, clarifications: Iterable[str]) -> Sequence[Card]:
        """The earlier rounds first."""
        ...


class Permalinks:
    """`fetch` asks Slack for the address of the message at a channel and ts; may raise SlackError."""

    def __init__(
        self, cards: Cards, fetch: Callable[[str, str], Awaitable[str]], *, patience: float = _PATIENCE
    ) -> None:
        self._cards = cards
        self._fetch = fetch
        self._patience = patience
        self._kept: dict[tuple[str, str], str] = {}

    async def link(self, clarification_id: str) -> str | None:
        """The address of a clarification's newest card."""
        return (await self.links([clarification_id])).get(clarification_id)

    async def links(self, clarification_ids: Sequence[str]) -> dict[str, str]:
        """The addresses of the newest cards of clarifications, as far as they are known in time."""
        try:
            cards = await self._cards.cards_of(clarification_ids)
        except StorageError as error:
            _log.warning("lists go without links: %s", error)
            return {}
        places = {
            card.clarification: (card.channel, card.ts)
            for card in cards
            if card.clarification and card.channel and card.ts
        }
        found = await asyncio.gather(*(self.permalink(*place) for place in places.values()))
        return {name: link for name, link in zip(places, found, strict=True) if link}

    async def permalink(self, channel: str, ts: str) -> str | None:
        """The address of a message; None where Slack does not tell in time."""
        if (known := self._kept.get((channel, ts))) is not None:
            return known
        try:
            async with asyncio.timeout(self._patience):
                link = await self._fetch(channel, ts)
        except (SlackError, TimeoutError) as error:
            _log.info("a message goes without its link: %s", str(error) or type(error).__name__)
            return None
        if len(self._kept) >= _MOST_KEPT:
            self._kept.clear()
        self._kept[channel, ts] = link
        return link
