"""What the Home tab needs of the others: facts in, views out."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from bot.audience import Audience
from bot.home.facts import Admitted, DutyLine, Fleet, Viewer
from bot.people import Person
from bot.slackapi import Later, Never, Sent, Unknown
from core.clarification import Clarification
from core.index import Summary

if TYPE_CHECKING:  # the layout is made of these values
    from bot.home.layout import Home

View = dict[str, Any]
Publish = Callable[[str, View], Awaitable[Sent | Later | Unknown | Never]]


class Open(Protocol):
    """What is open, in memory: `core.index.Index`."""

    def __iter__(self) -> Iterator[Summary]: ...


class Records(Protocol):
    async def find(self, clarification_id: str, issue: int) -> Clarification: ...


SeeFleet = Callable[[Sequence[Summary]], Awaitable[Fleet]]


# Never raises: where Slack is away, it says what was known last.
Duties = Callable[[], Awaitable[Sequence[DutyLine]]]

# Whom a clarification's pages were sent to: they may answer it while it is escalated. In memory.
Paged = Callable[[str], frozenset[str]]


class Access(Protocol):
    async def admitted(self, person: Person, audiences: Collection[Audience]) -> Admitted:
        """Of `audiences` those whose questions `person` may answer, on kept facts. Never raises."""
        ...


class Viewers(Protocol):
    """Who has looked at their Home tab: `bot.delivery.homes.Homes`. May raise StorageUnavailable."""

    async def all(self) -> list[Viewer]: ...
    async def seen(self, viewer: Viewer) -> None: ...
    async def shows(self, user: str, digest: str | None) -> None: ...
    async def turned(self, user: str, pages: Mapping[str, int]) -> None: ...
    async def forget(self, users: Collection[str]) -> None: ...


class Renders(Protocol):
    def home(self, home: Home) -> View: ...
