"""What the commands need of the other parts, as far as they need it, and what they answer with."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol

from bot.people import Person, Refusal
from bot.routing import Audience
from bot.settings.model import RouteSettings
from bot.slackapi import Place
from core.clarification import Answer, Clarification, Decider, Holder, Why
from core.index import Summary
from core.records import Raw


@dataclass(frozen=True, slots=True)
class Said:
    """The answer to a command: `text` is the fallback, escaped, and says all that is needed.

    With `recorded` false a change was asked for and nothing was changed, nor will be.
    """

    text: str
    blocks: list[dict[str, Any]] | None = None
    recorded: bool = True


class Answering(Protocol):
    async def answer(
        self,
        clarification_id: str,
        read: Callable[[Clarification], Answer],
        decider: Decider,
        at: datetime,
        round: int | None = None,  # noqa: A002 - the protocol's word
    ) -> Clarification: ...


class Records(Protocol):
    async def find(self, clarification_id: str, issue: int) -> Clarification: ...
    async def read(self, issue: int) -> list[Raw]: ...


class Open(Protocol):
    """What is open, in memory: `core.index.Index`."""

    def __iter__(self) -> Iterator[Summary]: ...
    def get(self, clarification_id: str, issue: int) -> Summary | None: ...


class Gatekeeper(Protocol):
    """Both raise SlackError where Slack does not tell who somebody is."""

    async def refusal(
        self, person: Person, channel: str, audience: Audience, clarification: str | None = None
    ) -> Refusal | None: ...
    async def decided_by(self, person: Person) -> str: ...


class Steers(Answering, Protocol):
    """`core.router.Router`. Raises as `Router.answer` does."""

    async def escalate(
        self,
        clarification_id: str,
        why: Why,
        words: str | None = None,
        by: Decider | None = None,
        only: Callable[[Clarification], bool] | None = None,
    ) -> Clarification: ...
    async def take(self, clarification_id: str, holder: Holder) -> Clarification: ...
    async def resolve(
        self,
        clarification_id: str,
        read: Callable[[Clarification], Answer],
        text: str,
        decider: Decider,
        at: datetime,
    ) -> Clarification: ...
    async def abandon(self, clarification_id: str, decider: Decider, words: str = "") -> Clarification: ...


class Ledgers(Records, Protocol):
    """`core.ledger.FileLedger`."""

    def issues(self) -> Iterator[int]: ...


class Doorkeeper(Gatekeeper, Protocol):
    """`bot.people.AccessControl`. Raises SlackError where Slack does not tell."""

    async def sees(self, person: Person, audience: Audience) -> bool:
        """Whether the person is in the channel where questions of this audience are shown."""
        ...

    async def refusal_on(self, person: Person, route: RouteSettings) -> Refusal | None:
        """Why `person` may not answer where a route goes; None if they may."""
        ...

    async def full_member(self, user: str) -> bool:
        """Whether this is an active, full member of the workspace."""
        ...


class Links(Protocol):
    """`bot.permalinks.Permalinks`. Never raises."""

    async def links(self, clarification_ids: Sequence[str]) -> dict[str, str]:
        """The web addresses of the cards of clarifications, as far as they are known in time."""
        ...


class Announces(Protocol):
    """`bot.delivery.delivery.Delivery`, as far as commands speak to others."""

    async def say(
        self, place: Place, key: str, text: str, blocks: list[dict[str, object]] | None = None
    ) -> None: ...
