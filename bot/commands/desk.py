"""Where commands come in, whichever way: `/clarify`, a mention, a direct message. Knows nothing of Slack's formats.

A change is in the ledger (or the storage) when the call returns; where nothing was changed, what is said says so.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Protocol

from bot.commands import grammar, words
from bot.commands.changes import Changes
from bot.commands.grammar import Board, Change, Command, Digest, Help, Hint, List, OnCall, One
from bot.commands.lists import Lists
from bot.commands.oncall import OnCallDesk
from bot.commands.ports import Said
from bot.errors import SlackError, StorageUnavailable
from bot.people import Person, explained
from bot.slackapi import Place
from bot.views.listing import Listing, said
from bot.views.render import Message
from core.clarification import NotOpen
from core.errors import ClarifyError, IllegalTransition

_log = logging.getLogger("clarify.commands")


class Boards(Protocol):
    """Agents and what they wait for."""

    async def show(self, command: Board, person: Person, page: int) -> Listing: ...


class Digests(Protocol):
    """Figures over the ledgers."""

    async def show(self, command: Digest, person: Person, place: Place) -> Listing: ...


class Renders(Protocol):
    def command_answer(self, answer: Listing) -> Message: ...


class CommandDesk:
    """`refresh`: somebody saw a clarification open that is not; its cards are to be shown again."""

    def __init__(
        self,
        *,
        lists: Lists,
        changes: Changes,
        on_call: OnCallDesk,
        boards: Boards,
        digests: Digests,
        renderer: Renders,
        refresh: Callable[[str], None],
    ) -> None:
        self._lists = lists
        self._changes = changes
        self._on_call = on_call
        self._boards = boards
        self._digests = digests
        self._renderer = renderer
        self._refresh = refresh

    def understands(self, text: str) -> bool:
        """Whether a text is a command, or clearly meant as one: then it is no answer to anything."""
        return not isinstance(grammar.parse(text), Hint) or grammar.is_addressed(text)

    def is_change(self, text: str) -> bool:
        """Whether a text asks for a change: then it must be done before it is acknowledged."""
        return grammar.is_change(grammar.parse(text))

    async def run(self, text: str, person: Person, place: Place, page: int = 1) -> Said:
        """Do what a text asks for, if the person may. Never raises for what can be expected."""
        command = grammar.parse(text)
        named = command.id if isinstance(command, One | Change) and command.id else "of that id"
        try:
            return self._said(await self._done(command, person, place, page))
        except (ClarifyError, SlackError, StorageUnavailable) as error:
            return self._explained(error, named)

    async def take(self, clarification_id: str, person: Person) -> Said:
        """Take was pressed in a list."""
        try:
            return self._said(await self._changes.take(clarification_id, person))
        except (ClarifyError, SlackError, StorageUnavailable) as error:
            return self._explained(error, clarification_id)

    async def _done(self, command: Command | Hint, person: Person, place: Place, page: int) -> Listing:
        match command:
            case List():
                answer = await self._lists.show(command, person, place, page)
            case One():
                answer = await self._lists.one(command, person)
            case Change():
                answer = await self._changes.apply(command, person)
            case OnCall():
                answer = await self._on_call.run(command, person, place)
            case Board():
                answer = await self._boards.show(command, person, page)
            case Digest():
                answer = await self._digests.show(command, person, place)
            case Help():
                answer = said(words.help_text(command.topic), heading="Help", live=False)
            case Hint():
                answer = said(command.text, live=False)
        return answer

    def _said(self, answer: Listing) -> Said:
        message = self._renderer.command_answer(answer)
        return Said(message.text, message.blocks)

    def _explained(self, error: Exception, clarification_id: str) -> Said:
        if isinstance(error, NotOpen):
            self._refresh(error.record.id)
        if isinstance(error, IllegalTransition):
            _log.warning("a step that the protocol does not know: %s", error)
            return self._said(said(words.not_possible(clarification_id)))
        reaction = explained(error, clarification_id)
        spoken = self._said(said(reaction.text or ""))
        return Said(spoken.text, spoken.blocks, recorded=reaction.recorded)
