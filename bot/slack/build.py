"""The Slack surface put together from its ports, once it is known who we are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from bot.audience import Audiences
from bot.commands.access import Access
from bot.commands.boards import AgentBoards
from bot.commands.changes import Changes
from bot.commands.desk import CommandDesk
from bot.commands.digests import LedgerDigests
from bot.commands.lists import Lists
from bot.commands.oncall import OnCallDesk
from bot.commands.pictures import DigestPictures
from bot.commands.shortcut import UseAsAnswer
from bot.delivery.pictures import Pictures
from bot.desk import Desk
from bot.replies import ThreadReplies
from bot.slack import mrkdwn
from bot.slack.asides import Asides
from bot.slack.intake import Intake
from bot.slack.later import Later
from bot.slack.responses import Responses
from bot.slack.surface import Surface
from bot.slack.wiring import Ports
from core.clarification import Clarification
from core.clock import Clock


class Parts:
    """What answers people. `bot_user` and `team` are ours, as Slack names them. `owed` is called when something has to
    be looked for later.
    """

    def __init__(
        self,
        ports: Ports,
        later: Later,
        bot_user: str,
        team: str,
        *,
        owed: Callable[[], None] = lambda: None,
    ) -> None:
        self._ports = ports
        self._audiences = Audiences(ports.settings)
        self.gate = ports.access
        self.access = Access(ports.access, ports.roster, ports.paged, ports.settings)
        self.desk = self._desk()
        self.commands = self._commands(later, bot_user)
        self.shortcut = UseAsAnswer(
            desk=self.desk,
            records=ports.ledger,
            memory=ports.memory,
            which=self._which,
            layout=ports.renderer.command_answer,
            audiences=self._audiences,
            clock=ports.clock,
        )
        self.intake = self._intake(later, bot_user, team, owed)
        self.surface = Surface(
            desk=self.desk,
            commands=self.commands,
            shortcut=self.shortcut,
            page_actions=ports.page_actions,
            binding=ports.binding,
            teller=ports.teller,
            web=ports.web,
            responses=Responses(ports.web.proxy),
            intake=self.intake,
            people=ports.people,
            later=later,
            home=ports.home,
        )

    def _desk(self) -> Desk:
        ports = self._ports
        return Desk(
            router=ports.router,
            records=ports.ledger,
            memory=ports.memory,
            gate=self.gate,
            modals=ports.renderer,
            index=ports.index,
            audiences=self._audiences,
            clock=ports.clock,
            to_plain=lambda text: mrkdwn.plain(text, ports.people.known_name),
            refresh=ports.refresh,
        )

    def _commands(self, later: Later, bot_user: str) -> CommandDesk:
        ports, access, clock = self._ports, self.access, self._ports.clock
        lists = Lists(
            index=ports.index,
            records=ports.ledger,
            access=access,
            links=ports.permalinks,
            settings=ports.settings,
            clock=clock,
        )
        return CommandDesk(
            lists=lists,
            changes=self._changes(lists, clock, bot_user),
            on_call=OnCallDesk(
                roster=ports.roster,
                access=access,
                gate=self.gate,
                announce=ports.teller,
                settings=ports.settings,
                clock=clock,
            ),
            boards=AgentBoards(ports.index, access, ports.sessions),
            digests=LedgerDigests(ports.ledger, access, clock, self._digest_pictures(later)),
            renderer=ports.renderer,
            refresh=ports.refresh,
        )

    def _digest_pictures(self, later: Later) -> DigestPictures:
        ports = self._ports
        return DigestPictures(
            pictures=Pictures(ports.web),
            teller=ports.teller,
            later=later,
            name_of=ports.people.known_name,
        )

    def _changes(self, lists: Lists, clock: Clock, bot_user: str) -> Changes:
        ports = self._ports
        return Changes(
            router=ports.router,
            records=ports.ledger,
            lists=lists,
            access=self.access,
            gate=self.gate,
            clock=clock,
            to_plain=lambda text: mrkdwn.plain(text, ports.people.known_name, drop=bot_user),
        )

    def _intake(self, later: Later, bot_user: str, team: str, owed: Callable[[], None]) -> Intake:
        ports = self._ports
        replies = ThreadReplies(
            desk=self.desk,
            records=ports.ledger,
            memory=ports.memory,
            pages=ports.pages,
            rollup_threads=ports.rollup_threads,
            which=self._which,
            audiences=self._audiences,
            clock=ports.clock,
        )
        asides = Asides(
            commands=self.commands,
            shortcut=self.shortcut,
            records=ports.ledger,
            memory=ports.memory,
            index=ports.index,
            paged=ports.paged,
            pages=ports.pages,
            bot_user=bot_user,
            name_of=ports.people.known_name,
        )
        return Intake(
            replies=replies,
            asides=asides,
            memory=ports.memory,
            teller=ports.teller,
            clock=ports.clock,
            later=later,
            bot_user=bot_user,
            home_team=team,
            name_of=ports.people.known_name,
            owed=owed,
        )

    def _which(self, records: list[Clarification], text_id: str) -> tuple[str, list[dict[str, Any]]]:
        message = self._ports.renderer.which_question(records, text_id)
        return message.text, message.blocks
