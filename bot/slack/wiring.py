"""What the Slack side needs of the rest of the bot: one value that the wiring fills.

Parts that a bot can be without have stand-ins that say so: no links are known.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from slack_sdk.web.async_client import AsyncWebClient

from bot.binding import Binding
from bot.commands.ports import Links
from bot.delivery.memory import SqliteSlackMemory
from bot.home import HomeTabs
from bot.oncall.actions import PageActions
from bot.oncall.pages import Pages
from bot.oncall.roster import Roster
from bot.people import AccessControl, People
from bot.ports import RollupPlace, RollupThreads, Teller
from bot.render import Renderer
from bot.settings.model import Settings
from bot.slack.unread import Unread
from bot.slackapi import Pulse
from core.agents import SessionFact
from core.clock import Clock
from core.index import Index
from core.ledger import FileLedger
from core.router import Router


class NoRollupThreads:
    """No message is a roll-up card."""

    async def held_at(self, channel: str, ts: str) -> tuple[str, ...] | None:  # noqa: ARG002 - as the port's
        return None

    async def open_rollups(self) -> Sequence[RollupPlace]:
        return ()


class NoLinks:
    """No address is known."""

    async def links(self, clarification_ids: Sequence[str]) -> dict[str, str]:  # noqa: ARG002 - as the port's
        return {}


async def _no_sessions() -> Sequence[SessionFact]:
    return ()


@dataclass(frozen=True, kw_only=True)
class Ports:
    """All that `SlackDoor` takes.

    `unread`: which questions wait for their threads to be read. `pulse`: whether Slack answers. `refresh`: a clarification's cards are to be shown again.
    `paged`: the users that the open pages of a clarification were sent to.
    """

    settings: Settings
    web: AsyncWebClient
    people: People
    access: AccessControl
    router: Router
    ledger: FileLedger
    memory: SqliteSlackMemory
    binding: Binding
    renderer: Renderer
    index: Index
    unread: Unread
    pulse: Pulse
    teller: Teller
    refresh: Callable[[str], None]
    clock: Clock
    rng: random.Random
    roster: Roster
    pages: Pages
    page_actions: PageActions
    paged: Callable[[str], frozenset[str]]
    rollup_threads: RollupThreads = field(default_factory=NoRollupThreads)
    permalinks: Links = field(default_factory=NoLinks)
    sessions: Callable[[], Awaitable[Sequence[SessionFact]]] = _no_sessions
    home: HomeTabs | None = None
    counted: Callable[[int], Awaitable[object]] | None = None
    passed: Callable[[], None] = lambda: None
