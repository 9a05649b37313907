"""Notifies people of anything but questions: operators, the thread of a clarification, or the person on call."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from bot.oncall.incidents import Incidents
from bot.settings.model import Settings
from bot.show.delivery import Delivery
from bot.show.messages import Fresh
from bot.views.blockkit import Draft
from bot.views.notices import plain_notice
from bot.views.render import Renderer
from core.clarification import Clarification
from core.escalation import NewIncident


def content(renderer: Renderer, draft: Draft, **more: object) -> dict[str, Any]:
    """Returns the stored body of a message made from `draft`."""
    message = renderer.message(draft)
    return {"text": message.text, "blocks": message.blocks, "more": message.more, **more}


@dataclass(kw_only=True, eq=False, repr=False)  # holds what was asked
class Teller:
    """Sends each notice once, identified by its `name`. A notice is stored when a method returns; each method raises
    StorageUnavailable if it could not be stored.
    All texts are shown as they are: nothing in them can link, mention or format.
    """

    settings: Settings
    incidents: Incidents
    delivery: Delivery
    renderer: Renderer

    async def operators(self, name: str, heading: str, texts: Sequence[str]) -> None:
        """Posts to the fallback channel."""
        await self.delivery.notify(self.for_operators(name, plain_notice(heading, texts)))

    async def thread(self, record: Clarification, name: str, heading: str, texts: Sequence[str]) -> None:
        """Posts to the thread of a clarification, once a round."""
        asked = record.asked
        body = content(
            self.renderer, plain_notice(heading, texts), opens_thread=False, broadcast=False, needed=True
        )
        notice = Fresh(
            key=f"notice:{name}:{record.id}:{record.round}",
            kind="notice",
            target=self.settings.route_for(asked.agent_id or record.from_).channel,
            clarification=record.id,
            producer=asked.producer,
            session_id=asked.session_id,
            body=body,
            wanted="notice",
        )
        await self.delivery.notify(notice)

    async def page(self, incident: NewIncident) -> None:
        """Pages on-call, once for an incident's key."""
        await self.incidents.raise_(incident)

    def for_operators(self, name: str, draft: Draft, channel: str | None = None) -> Fresh:
        """Returns a notice for `channel`, or else for the fallback channel."""
        return Fresh(
            key=f"notice:{name}",
            kind="notice",
            target=channel or self.settings.slack.fallback_channel or self.settings.route_for("").channel,
            body=content(self.renderer, draft, needed=True),
            wanted="notice",
        )
