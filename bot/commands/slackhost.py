"""What integrations may do in Slack: find out who may see which questions, name people, and post in channels."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from bot.commands.lists import Access
from bot.errors import SlackError, SlackRefusedError
from bot.intake.telling import content
from bot.people.access import Person, in_time
from bot.people.directory import People
from bot.routing import Audience, audience_of
from bot.show.delivery import Delivery
from bot.show.messages import Fresh, Messages
from bot.views.blockkit import Draft
from bot.views.render import Renderer
from core.clock import Clock
from core.ledger import Ledger
from core.summary import Seen


class Sight:
    """The questions that someone may see. `others`: whether that includes questions of other channels."""

    def __init__(self, sees: Callable[[Audience], Awaitable[bool]], *, others: bool = True) -> None:
        self.others = others
        self._sees = sees
        self._known: dict[Audience, bool] = {}  # thousands of questions share a few audiences

    async def may_see(self, record: Seen) -> bool:
        """Raises SlackError if Slack cannot tell."""
        audience = audience_of(record)
        if audience not in self._known:
            self._known[audience] = await self._sees(audience)
        return self._known[audience]


@dataclass(frozen=True, kw_only=True, eq=False)
class SlackHost:
    """The running bot in Slack, for integrations: its clarifications and people. Posts once for each key."""

    ledger: Ledger
    clock: Clock
    access: Access
    people: People
    messages: Messages
    delivery: Delivery
    renderer: Renderer

    def route(self, record: Seen) -> str:
        """Returns the name of the route by which a question is asked."""
        return self.access.audiences.route(record).name

    def sight_of(self, person: Person) -> Sight:
        """Returns which questions a person may see."""

        async def sees(audience: Audience) -> bool:
            return audience in (await self.access.rights(person, [audience])).sees

        return Sight(sees)

    async def sight_in(self, channel: str) -> Sight:
        """Returns which questions everyone in a channel may see.

        Raises:
            SlackError: Slack cannot tell.
        """
        audiences = self.access.audiences
        channels = await self.access.control.seen_from(channel, audiences.channels)

        async def sees(audience: Audience) -> bool:
            return audiences.route_of(audience).channel in channels

        return Sight(sees, others=len(channels) > 1)

    async def zone_of(self, person: Person) -> ZoneInfo:
        """Returns a person's time zone, or UTC if Slack names none that is known here."""
        try:
            return ZoneInfo((await in_time(person.deadline, self.people.profile(person.user))).zone or "UTC")
        except (SlackError, ValueError, ZoneInfoNotFoundError):
            return ZoneInfo("UTC")

    def locale_of(self, user: str) -> str:
        """Returns a user's locale, empty if it is not known."""
        return self.people.known_locale(user)

    async def name_of(self, user: str) -> str:
        """Returns a user's name, or their id if Slack has no name.

        Raises:
            SlackError: Slack cannot tell.
        """
        try:
            return (await self.people.profile(user)).name or user
        except SlackRefusedError:
            return user

    async def is_posted(self, key: str) -> bool:
        """Whether `post` had that key before, within the last week at least."""
        return await self.messages.get(key) is not None

    async def post(self, key: str, channel: str, draft: Draft) -> None:
        """Posts in a channel; if the channel is gone, posts nowhere. Durable on return. `key` begins with the integration's name.

        Raises:
            StorageUnavailable: it could not be stored.
        """
        body = content(self.renderer, draft)
        await self.delivery.notify(Fresh(key=key, kind="post", target=channel, body=body, wanted="post"))
