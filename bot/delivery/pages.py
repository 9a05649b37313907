"""Pages, as the rest of the delivery sees them: why somebody is paged, and what is told back of a page's messages."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from bot.render import Message
from bot.settings.model import RouteSettings
from core.clarification import Clarification


@dataclass(frozen=True, slots=True)
class Page:
    """Why somebody is paged. `key` makes it once only; the renderer makes all words inert."""

    key: str
    reason: str
    title: str
    body: str = ""
    record: Clarification | None = None
    agent_id: str | None = None


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


class Paging(Protocol):
    """Both raise StorageUnavailable when it could not be kept."""

    async def page(self, page: Page, route: RouteSettings | None, link: str | None = None) -> None:
        """Have somebody paged; durable when this returns."""
        ...

    async def ended(self, key: str, state: str, note: str | None = None) -> None:
        """What became of a page's message: sent, failed (refused for good), dropped (not needed any more)."""
        ...

    def landed(self, key: str) -> None:
        """A notice is there: pages about the same event lead to it."""
        ...

    def stumbled(self, key: str) -> None:
        """A page's message was tried and is not there: it will be tried again, others need not wait for it."""
        ...

    async def show_again(self, clarification: str) -> None:
        """Somebody saw controls that should be gone: bring the pages about a clarification up to date."""
        ...
