"""Pages, as the rest of the delivery sees them: why somebody is paged, and what is told back of a page's messages."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol

import structlog

from bot.delivery.messages import Fresh, Messages
from bot.render import Message, Renderer
from bot.settings.model import RouteSettings
from core.clarification import Clarification

_log = structlog.get_logger("clarify.pages")
OnCall = Callable[[str], Awaitable[list[str]]]


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
    """What a page's message should be now. `needed`: somebody still has to see it; `final`: it will not change."""

    message: Message
    needed: bool
    final: bool


class Paging(Protocol):
    """Both raise StorageUnavailable when it could not be kept."""

    async def page(self, page: Page, route: RouteSettings | None, link: str | None = None) -> None:
        """Have somebody paged; durable when this returns."""
        ...

    async def ended(self, key: str, state: str, note: str | None = None) -> None:
        """What became of a page's message: sent, failed (refused for good), dropped (not needed any more)."""
        ...

    async def show_again(self, clarification: str) -> None:
        """Somebody saw controls that should be gone: bring the pages about a clarification up to date."""
        ...


class Pager:
    """`on_call(name)` gives the users whose turn it is; `send` puts stored messages on their way."""

    def __init__(
        self,
        messages: Messages,
        renderer: Renderer,
        on_call: OnCall,
        fallback_channel: str | None,
        send: Callable[[str, str], None],
    ) -> None:
        self._messages = messages
        self._renderer = renderer
        self._on_call = on_call
        self._fallback = fallback_channel
        self._send = send

    async def page(self, page: Page, route: RouteSettings | None, link: str | None = None) -> None:
        """Have `page` delivered to everybody whom it concerns; durable when this returns.

        Raises:
            StorageUnavailable: it could not be stored.
        """
        targets = await self._targets(route)
        _log.warning("paging", page=page.key, targets=targets)
        if not targets:
            _log.error("nobody can be paged: no on_call, no fallback_channel, no route", page=page.key)
            return
        message = self._renderer.page(page.reason, page.title, page.body, link, page.record)
        body = {"text": message.text, "blocks": message.blocks, "needed": True}
        fresh = [
            Fresh(key=f"page:{page.key}:{target}", kind="page", target=target, body=body, wanted="page")
            for target in targets
        ]
        await self._messages.want(fresh)
        for item in fresh:
            self._send(item.target, item.key)

    async def _targets(self, route: RouteSettings | None) -> list[str]:
        people = await self._on_call(route.on_call) if route is not None and route.on_call else []
        place = self._fallback or (route.channel if route is not None else None)
        return [*dict.fromkeys([*people, *([place] if place else [])])]

    async def ended(self, key: str, state: str, note: str | None = None) -> None:
        if state == "failed":
            _log.error("a page cannot be shown", key=key, reason=note)

    async def show_again(self, clarification: str) -> None:
        """Its pages carry no controls."""
