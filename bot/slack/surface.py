"""What the listeners share, and how a reaction reaches the person: words, or a modal."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from slack_sdk.web.async_client import AsyncWebClient

from bot.codec import LIST_CALLBACK, VIEW_CALLBACK
from bot.desk import Desk, Person, Reaction
from bot.errors import SlackError
from bot.home.publisher import HomePublisher
from bot.ports import Place, Teller
from bot.slack.calls import ask
from bot.slack.intake import Intake
from bot.slack.later import Later
from bot.slack.payloads import Click, opened_from
from bot.slack.people import People

_log = logging.getLogger("clarify.slack")
_TELLING = 0.7  # seconds: what waiting for a ledger's lock leaves of Slack's three
MODAL_FAILED = "Slack did not show the window in time. Please press the button again."


class Surface:
    """`web` opens modals: without retry handlers, since a trigger is good for one."""

    def __init__(
        self,
        *,
        desk: Desk,
        teller: Teller,
        web: AsyncWebClient,
        intake: Intake,
        people: People,
        later: Later,
        home: HomePublisher | None = None,
    ) -> None:
        self.desk = desk
        self.intake = intake
        self.people = people
        self.home = home
        self._teller = teller
        self._web = web
        self._later = later

    def tell(self, person: Person, place: Place, text: str) -> None:
        """Say something to the person alone, after the acknowledgement."""
        self._later.run(self._teller.tell(person.user, place, text), "tell a person")

    async def told(self, click: Click, text: str) -> bool:
        """Say something before the acknowledgement; whether Slack took it while there is time for one."""
        try:
            async with asyncio.timeout(_TELLING):
                return await self._teller.tell(click.person.user, click.place, text)
        except TimeoutError:
            return False

    def react(self, click: Click, reaction: Reaction) -> None:
        """Bring a reaction to a click to the person, after the acknowledgement."""
        view = reaction.view
        if reaction.text is not None:
            if click.view_id is None:
                self.tell(click.person, click.place, reaction.text)
            else:
                # An ephemeral would stay unseen behind the modal.
                view = self.desk.notice(reaction.text)
        if view is not None:
            self._later.run(self._show(click, opened_from(view, click.place)), "open a modal")

    async def _show(self, click: Click, view: dict[str, Any]) -> None:
        """From a message: open. In a modal: turning pages replaces it, anything else goes on top of it."""
        turns = {VIEW_CALLBACK: "view", LIST_CALLBACK: "page"}.get(click.callback or "") == click.press.verb
        try:
            if click.view_id is None:
                await ask("views.open", lambda: self._web.views_open(trigger_id=click.trigger, view=view))
            elif turns:
                await ask("views.update", lambda: self._web.views_update(view_id=click.view_id, view=view))
            else:
                await ask("views.push", lambda: self._web.views_push(trigger_id=click.trigger, view=view))
        except SlackError as error:
            _log.warning("a modal could not be shown for %s: %s", click.press.clarification, error)
            await self._teller.tell(click.person.user, click.place, MODAL_FAILED)
