"""What the pages need of others."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from typing import Protocol

from bot.paging.model import Incident
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
    def send(self, target: str, key: str, *, post: bool = True) -> None:
        """Have a stored message delivered, or brought up to date."""
        ...


class Holding(Protocol):
    """The part of the router that says who has an escalated clarification in hand."""

    async def take(self, clarification_id: str, holder: Holder) -> Clarification: ...
    async def hand(self, clarification_id: str, holder: Holder) -> Clarification: ...


class Records(Protocol):
    async def find(self, clarification_id: str, issue: int) -> Clarification: ...


class Known(Protocol):
    """What needs something, in memory: `core.index.Index`."""

    def __iter__(self) -> Iterator[Summary]: ...
    def get(self, clarification_id: str, issue: int) -> Summary | None: ...


class Profile(Protocol):
    @property
    def is_bot(self) -> bool: ...
    @property
    def is_deleted(self) -> bool: ...
    @property
    def is_guest(self) -> bool: ...
    @property
    def is_stranger(self) -> bool: ...


class Directory(Protocol):
    """Both raise SlackError when Slack does not tell."""

    async def profile(self, user: str, *, fresh: bool = False) -> Profile: ...
    async def group(self, group: str, *, fresh: bool = False) -> AbstractSet[str]: ...


class Crew(Protocol):
    async def on_call(self, policy_name: str) -> Sequence[str]:
        """Whose turn it is. Never raises."""
        ...


class Permalinks(Protocol):
    async def permalink(self, channel: str, ts: str) -> str | None:
        """The web address of a message; None where Slack does not say."""
        ...
