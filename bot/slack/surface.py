"""What the listeners share, and how a reaction reaches the person: words, or a modal."""

from __future__ import annotations

import asyncio
import logging
from typing import Any, Protocol

from slack_sdk.web.async_client import AsyncWebClient

from bot import phrases
from bot.binding import AnyPress, Binding
from bot.codec import LIST_CALLBACK, VIEW_CALLBACK
from bot.commands.codec import ListPress
from bot.commands.desk import CommandDesk
from bot.commands.ports import Said
from bot.commands.shortcut import UseAsAnswer
from bot.desk import Desk
from bot.errors import SlackError, StorageUnavailable
from bot.home import HomeTabs
from bot.oncall.actions import PageActions
from bot.people import People, Person, Reaction, explained, without_budget
from bot.ports import Place, Spot, Teller
from bot.slack.intake import Intake
from bot.slack.later import Later
from bot.slack.payloads import Click, HandedOver, Order, Submission, Touch, opened_from
from bot.slack.responses import Responses
from bot.slackapi import ask

_log = logging.getLogger("clarify.slack")
_TELLING = 0.7  # seconds: what waiting for a ledger's lock leaves of Slack's three
_SOON = 0.2  # seconds: what is read by then goes with the acknowledgement, the rest follows it
MODAL_FAILED = "Slack did not show the window in time. Please press the button again."
COMMAND_FAILED = "Something went wrong. Nothing was changed. Please try again, or see “/clarify help”."


class Shows(Protocol):
    """What is known of a click wherever it was made: `payloads.Click` and `payloads.Touch`."""

    @property
    def person(self) -> Person: ...
    @property
    def place(self) -> Place: ...
    @property
    def trigger(self) -> str: ...
    @property
    def view_id(self) -> str | None: ...
    @property
    def callback(self) -> str | None: ...
    @property
    def response_url(self) -> str: ...
    @property
    def whispered(self) -> bool: ...


class Surface:
    """`web` opens modals: without retry handlers, since a trigger is good for one."""

    def __init__(
        self,
        *,
        desk: Desk,
        commands: CommandDesk,
        shortcut: UseAsAnswer,
        page_actions: PageActions,
        binding: Binding,
        teller: Teller,
        web: AsyncWebClient,
        responses: Responses,
        intake: Intake,
        people: People,
        later: Later,
        home: HomeTabs,
    ) -> None:
        self.desk = desk
        self.commands = commands
        self.shortcut = shortcut
        self.page_actions = page_actions
        self.intake = intake
        self.people = people
        self.home = home
        self._binding = binding
        self._teller = teller
        self._web = web
        self._responses = responses
        self._later = later

    async def unbound(self, press: AnyPress, spot: Spot) -> Reaction | None:
        """Why a press counts for nothing, on the message that it stands on; None: it counts."""
        try:
            why = await self._binding.refusal(press, spot)
        except StorageUnavailable as error:
            return explained(error, "this message")
        return None if why is None else Reaction(why)

    def unbound_at_home(self, spot: Spot) -> Reaction | None:
        """As `unbound`, for a control on a Home tab."""
        why = self._binding.elsewhere(spot)
        return None if why is None else Reaction(why)

    def unbound_modal(self, sent: Submission | HandedOver) -> str | None:
        """Why a submitted modal counts for nothing; None: it counts."""
        why = self._binding.elsewhere(sent.spot)
        return phrases.NOT_YOUR_WINDOW if why is None and sent.opened_by != sent.person.user else why

    def tell(self, person: Person, place: Place, text: str) -> None:
        """Say something to the person alone, after the acknowledgement."""
        self._later.run(self._teller.tell(person.user, place, text), "tell a person")

    def answer(self, click: Shows, said: Said) -> None:
        """Say something where the click was, after the acknowledgement."""
        self._later.run(self._say(click, said), "answer a click")

    async def told(self, click: Shows, text: str) -> bool:
        """Say something where the click was, before the acknowledgement; whether Slack took it while there is time."""
        try:
            async with asyncio.timeout(_TELLING):
                return await self._say(click, Said(text))
        except TimeoutError:
            return False

    async def _say(self, click: Shows, said: Said) -> bool:
        """Through the click's response_url; where that fails, beside it in its conversation."""
        place = click.place
        if await self._responses.send(click.response_url, said.text, said.blocks, thread_ts=place.thread_ts):
            return True
        if not place.channel:
            return False
        return await self._teller.tell(click.person.user, place, said.text, said.blocks)

    async def answered(self, url: str, said: Said) -> bool:
        """Answer through a response_url before the acknowledgement; whether Slack took it while there is time."""
        try:
            async with asyncio.timeout(_TELLING):
                return await self._responses.send(url, said.text, said.blocks)
        except TimeoutError:
            return False

    def react(self, click: Shows, reaction: Reaction) -> None:
        """Bring a reaction to a click to the person, after the acknowledgement."""
        view = reaction.view
        if reaction.text is not None and click.view_id is not None:
            # An ephemeral would stay unseen behind the modal.
            view = self.desk.notice(reaction.text)
        elif reaction.text is not None:
            self.answer(click, Said(reaction.text))
        elif reaction.record is not None and click.whispered:
            self.respond(click.response_url, Said(phrases.accepted(reaction.record)), replace=True)
        if view is not None:
            self._open(click, view)

    def react_in_modal(self, click: Shows, reaction: Reaction) -> None:
        """As `react`, where nothing can be said beside what is shown: words come in a modal."""
        view = self.desk.notice(reaction.text) if reaction.text is not None else reaction.view
        if view is not None:
            self._open(click, view)

    def _open(self, click: Shows, view: dict[str, Any]) -> None:
        remembers = opened_from(view, click.place, click.person)
        self._later.run(self._show(click, remembers), "open a modal")

    def place_at_home(self, person: Person) -> Place:
        """The Home tab is no conversation: what is said goes to the direct messages with the person."""
        return self.home.place_of(person.user)

    def respond(self, url: str, said: Said, *, replace: bool = False) -> None:
        """Answer through a response_url, after the acknowledgement."""
        work = self._responses.send(url, said.text, said.blocks, replace=replace)
        self._later.run(work, "answer through a response_url")

    async def obey(self, order: Order) -> Said | None:
        """Do what a command asks for: what goes with the acknowledgement. None: the answer follows it.

        What changes something has been done when this returns.
        """
        work = self.commands.run(order.text, order.person, order.place)
        if self.commands.is_change(order.text):
            return await work
        task = asyncio.create_task(without_budget(work), name="read for a command")
        done, _ = await asyncio.wait({task}, timeout=_SOON)
        if done:
            return task.result()
        self._later.run(self._follow(order.response_url, task), "answer a command")
        return None

    def turn(self, touch: Touch, press: ListPress) -> None:
        """Another page of a list, in its place. What is no list changes nothing here: it was acknowledged already."""
        if self.commands.is_change(press.arg):
            self.answer(touch, Said(phrases.UNREADABLE_PRESS))
            return
        work = self.commands.run(press.arg, touch.person, touch.place, press.number)
        task = asyncio.create_task(without_budget(work), name="turn a page")
        self._later.run(self._follow(touch.response_url, task, replace=True), "show a page")

    async def _follow(self, url: str, task: asyncio.Task[Said], *, replace: bool = False) -> None:
        try:
            said = await task
        except Exception:
            await self._responses.send(url, COMMAND_FAILED)
            raise
        await self._responses.send(url, said.text, said.blocks, replace=replace)

    async def _show(self, click: Shows, view: dict[str, Any]) -> None:
        """From a message: open. In a modal: turning pages replaces it, anything else goes on top of it."""
        try:
            if click.view_id is None:
                await ask("views.open", lambda: self._web.views_open(trigger_id=click.trigger, view=view))
            elif _turns(click):
                await ask("views.update", lambda: self._web.views_update(view_id=click.view_id, view=view))
            else:
                await ask("views.push", lambda: self._web.views_push(trigger_id=click.trigger, view=view))
        except SlackError as error:
            _log.warning("a modal could not be shown: %s", error)
            await self._say(click, Said(MODAL_FAILED))


def _turns(click: Shows) -> bool:
    verb = {VIEW_CALLBACK: "view", LIST_CALLBACK: "page"}.get(click.callback or "")
    return isinstance(click, Click) and click.press.verb == verb
