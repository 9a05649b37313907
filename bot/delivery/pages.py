"""What delivery and on-call tell each other: what somebody has to take, how a page looks, what became of its message."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from bot.delivery.messages import Row
from bot.views.render import Message
from core.clarification import Clarification


@dataclass(frozen=True, slots=True)
class NewIncident:
    """Something that somebody has to take. `key` makes it once only; the renderer makes all words inert.

    `agent_id`: whose on-call people are paged. `clarification`: what it is about, if it is about one; `expires_at`:
    until when an answer helps.
    """

    key: str
    reason: str
    title: str
    body: str = ""
    agent_id: str | None = None
    clarification: str | None = None
    expires_at: datetime | None = None

    @classmethod
    def about(cls, record: Clarification, key: str, reason: str, title: str) -> NewIncident:
        """An incident about a clarification."""
        return cls(
            key,
            reason,
            title,
            agent_id=record.asked.agent_id or record.from_,
            clarification=record.id,
            expires_at=record.asked.expires_at if record.is_open else None,
        )


Raise = Callable[[NewIncident], Awaitable[object]]
"""Have somebody take this; durable when it returns. Raises StorageUnavailable: it was not kept."""


@dataclass(frozen=True, slots=True)
class Drawn:
    """What a page's message should be now. `needed`: somebody still has to see it; `final`: it will not change.

    `about` names what its `more` tells, the same for every page that tells the same: the key of a question's card
    where it is all of that question; None: it is the page's own.
    """

    message: Message
    needed: bool
    final: bool
    about: str | None = None


MessageOutcome = Literal["sent", "failed", "dropped", "tried"]
"""What became of a message: it is there; refused for good; not posted since nobody needs it any more; tried, and will
be tried again.
"""
OnOutcome = Callable[[Row, MessageOutcome, str | None], Awaitable[None]]
"""Told of every message, with a note on why. Raises StorageUnavailable: it could not be kept, so tell it again."""
