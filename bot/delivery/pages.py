"""Pages: telling the people on call, so that what cannot be shown or delivered reaches somebody.

Basic for now: one direct message to each person on call of the route, and one post in the fallback channel, each
delivered like any other message: at least once, recorded, in the order of sending first.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import structlog

from bot.delivery.messages import Fresh, Messages
from bot.render import Renderer
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
