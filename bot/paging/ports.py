"""What the pages need of others."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any, Protocol

from bot.audience import Audience
from bot.delivery.messages import Row
from bot.paging.codec import PagePress
from bot.paging.model import Incident
from bot.people import Person, Refusal
from bot.ports import Place, Thread
from core.clarification import Clarification, Holder
from core.index import Summary


class Address(Protocol):
    """A place for a page: `kind` is slack or apprise, see `bot.paging.model.Destination`."""

    @property
    def kind(self) -> str: ...
    @property
    def target(self) -> str: ...
    @property
    def thread(self) -> tuple[str, str] | None: ...
    @property
    def mentions(self) -> tuple[str, ...]: ...


class Targets(Protocol):
    async def addresses(
        self, notify: str, policy: str | None, incident: Incident, holder: str | None
    ) -> Sequence[Address]:
        """Where a step's `notify` leads now; empty: nobody is there."""
        ...


class Outside(Protocol):
    async def send(self, variable: str, title: str, body: str) -> None:
        """Raises an exception when it was not taken."""
        ...


class Outlet(Protocol):
    """`bot.delivery.delivery.Delivery`."""

    def send(self, target: str, key: str, *, post: bool = True) -> None:
        """Have a stored message delivered, or brought up to date."""
        ...

    async def say(
        self, place: Place, key: str, text: str, blocks: list[dict[str, object]] | None = None
    ) -> None:
        """Say something in a thread, once per key."""
        ...


class Holding(Protocol):
    """The part of the router that says who has an escalated clarification in hand."""

    async def take(self, clarification_id: str, holder: Holder) -> Clarification: ...
    async def hand(self, clarification_id: str, holder: Holder) -> Clarification: ...


Change = Callable[[str, Holder], Awaitable[Clarification]]


class Records(Protocol):
    async def find(self, clarification_id: str, issue: int) -> Clarification: ...


class Known(Protocol):
    """What needs something, in memory: `core.index.Index`."""

    def __iter__(self) -> Iterator[Summary]: ...
    def get(self, clarification_id: str, issue: int) -> Summary | None: ...


class Crew(Protocol):
    """Whose turn it is, and who is in a user group. Never raises."""

    async def on_call(self, policy_name: str) -> Sequence[str]: ...
    async def members(self, group: str) -> Sequence[str]: ...


class Gate(Protocol):
    """Both raise SlackError when Slack does not tell."""

    async def refusal(
        self, person: Person, channel: str, audience: Audience, clarification: str | None = None
    ) -> Refusal | None:
        """Why a person may not answer what is put to an audience; None if they may."""
        ...

    async def full_member(self, user: str) -> bool: ...


class Threads(Protocol):
    """`bot.delivery.messages.Messages`."""

    async def thread_of(self, producer: str, session_id: str) -> Thread | None: ...
    async def get(self, key: str) -> Row | None: ...


class HandModal(Protocol):
    def hand_modal(self, press: PagePress, what: str) -> dict[str, Any]: ...


class Permalinks(Protocol):
    async def permalink(self, channel: str, ts: str) -> str | None:
        """The web address of a message; None where Slack does not say."""
        ...
