"""What the Slack side needs of the rest of the bot: one value that the wiring fills.

Parts that a bot can be without have stand-ins that say so: nobody is on call, nothing is paged, no links are known.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol

from slack_sdk.web.async_client import AsyncWebClient

from bot.binding import Binding
from bot.commands.ports import Duty, Links, Roster
from bot.delivery.memory import SqliteSlackMemory
from bot.errors import StorageUnavailable
from bot.home.publisher import HomePublisher
from bot.paging.codec import PagePress
from bot.people import AccessControl, People, Person, Reaction
from bot.ports import PagePlace, PageThreads, Place, RollupPlace, RollupThreads, Teller
from bot.render import Renderer
from bot.settings.model import Settings
from bot.slack.unread import Unread
from bot.slackapi import Pulse
from core.agents import SessionFact
from core.clock import Clock
from core.index import Index
from core.ledger import FileLedger
from core.router import Router


class Pages(Protocol):
    """`bot.paging.engine.Paging`. `press` and `submit_hand` never raise for what can be expected."""

    def paged(self, clarification_id: str) -> frozenset[str]:
        """The users that the open page of a clarification was sent to."""
        ...

    async def press(self, press: PagePress, person: Person, place: Place) -> Reaction: ...
    async def submit_hand(self, press: PagePress, user: str, person: Person, place: Place) -> Reaction:
        """Hand to… was sent with `user` chosen (empty: nobody)."""
        ...


@dataclass(frozen=True, slots=True)
class _Turn:
    users: tuple[str, ...] = ()
    source: str = ""
    until: datetime | None = None


class NobodyOnCall:
    """A roster that names nobody."""

    async def on_call(self, policy_name: str) -> tuple[str, ...]:  # noqa: ARG002 - as the roster's
        return ()

    async def who(self, policy_name: str) -> _Turn:  # noqa: ARG002 - as above
        return _Turn()


class NoDuty:
    """Overrides that cannot be kept."""

    async def hand(self, policy: str, user: str, until: datetime, by: str) -> object:  # noqa: ARG002 - as the port's
        raise StorageUnavailable


class NoPages:
    """No page is open."""

    def paged(self, clarification_id: str) -> frozenset[str]:  # noqa: ARG002 - as paging's
        return frozenset()

    async def press(self, press: PagePress, person: Person, place: Place) -> Reaction:  # noqa: ARG002 - as above
        return Reaction("This page is closed.")

    async def submit_hand(self, press: PagePress, user: str, person: Person, place: Place) -> Reaction:  # noqa: ARG002 - as above
        return Reaction("This page is closed.")


class NoPageThreads:
    """No message is a page."""

    async def clarifications_at(self, channel: str, ts: str) -> tuple[str, ...]:  # noqa: ARG002 - as the port's
        return ()

    async def open_pages(self) -> Sequence[PagePlace]:
        return ()


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
    roster: Roster = field(default_factory=NobodyOnCall)
    duty: Duty = field(default_factory=NoDuty)
    paging: Pages = field(default_factory=NoPages)
    page_threads: PageThreads = field(default_factory=NoPageThreads)
    rollup_threads: RollupThreads = field(default_factory=NoRollupThreads)
    permalinks: Links = field(default_factory=NoLinks)
    sessions: Callable[[], Awaitable[Sequence[SessionFact]]] = _no_sessions
    home: HomePublisher | None = None
    counted: Callable[[int], Awaitable[object]] | None = None
    passed: Callable[[], None] = lambda: None
