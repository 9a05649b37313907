"""`digest`: figures of the questions that the person may see; and the weekly digest of a channel.

A channel's digest counts only questions that everyone in the channel may see (`AccessControl.seen_from`). It has no
topics, since `clarify forget` could not remove those agents' words from it, and no mentions, which would notify people.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from dataclasses import KW_ONLY, dataclass
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from bot.commands.grammar import Statistics
from bot.commands.lists import Access
from bot.delivery.delivery import Delivery
from bot.delivery.messages import Fresh, Messages
from bot.errors import SlackError, SlackRefusedError, StorageUnavailable
from bot.intake.telling import content
from bot.people.access import Person, in_time
from bot.people.directory import People
from bot.routing import Audience, audience_of
from bot.settings.model import DigestSettings
from bot.views import inert
from bot.views.blockkit import Draft
from bot.views.figures import digest
from bot.views.render import Renderer
from core.clock import Clock, recent
from core.digest import Digest, DigestBuilder
from core.errors import ClarifyError
from core.ledger import Ledger

_log = logging.getLogger("clarify.commands")
_WEEK, _LATE = timedelta(days=7), timedelta(days=1)
_LONGEST_SLEEP, _RETRY = 600.0, 60.0  # seconds; short, since the wall clock may be set meanwhile
_AT_ONCE = 4  # more threads make it no faster, and block the event loop several times longer
_NAME = 80


@dataclass(kw_only=True, eq=False)
class Digests:
    """Counts what a person, or a channel, may see."""

    ledger: Ledger
    access: Access
    clock: Clock
    people: People

    async def show(self, command: Statistics, person: Person) -> Draft:
        """Returns the figures of the questions asked within the span.

        Raises:
            SlackError: Slack could not tell what the person may see.
        """
        until = self.clock.now()

        async def sees(audience: Audience) -> bool:
            return audience in (await self.access.rights(person, [audience])).sees

        zone = await self._zone(person)
        figures, unread = await self._count(until - command.span, until, zone, sees)
        return digest(
            figures,
            recent(command.span),
            zone.key,
            counted=figures.names()[:2],
            shown=_shown,
            notes=_not_counted(unread),
            locale=self.people.known_locale(person.user),
        )

    async def for_channel(self, channel: str, since: datetime, until: datetime, zone: ZoneInfo) -> Draft:
        """Returns the figures of the questions asked from `since` to before `until` that everyone in `channel` may see.
        `zone`: whose days it counts.

        Raises:
            SlackError: Slack could not tell what they may see.
            ClarifyError: no record can be read.
        """
        audiences, control = self.access.audiences, self.access.control
        seen = await control.seen_from(channel, audiences.channels)

        async def sees(audience: Audience) -> bool:
            return audiences.route_of(audience).channel in seen

        figures, unread = await self._count(since, until, zone, sees)
        names = {each.name: await self._called(each.name) for each in figures.people}

        def named(name: str) -> str:
            return names.get(name) or inert.escaped_line(name, _NAME)

        where = "in this channel" + (" and in public ones" if len(seen) > 1 else "")
        return digest(
            figures,
            f"The week to {until:%A, %d %B %Y}",
            zone.key,
            counted=figures.names()[1:2],
            shown=named,
            notes=[
                *_not_counted(unread),
                f"Questions asked {where}. `/clarify digest` counts the ones you may see.",
            ],
        )

    async def _zone(self, person: Person) -> ZoneInfo:
        """Returns the time zone of the person, or UTC if Slack names none that is known here."""
        try:
            return ZoneInfo((await in_time(person.deadline, self.people.profile(person.user))).zone or "UTC")
        except (SlackError, ValueError, ZoneInfoNotFoundError):
            return ZoneInfo("UTC")

    async def _called(self, name: str) -> str:
        """Returns a person's name without a mention, or their id if Slack has no name."""
        user = _user(name)
        if inert.is_user(user):
            try:
                name = (await self.people.profile(user)).name or user
            except SlackRefusedError:
                name = user
        return inert.escaped_line(name, _NAME)

    async def _count(
        self, since: datetime, until: datetime, zone: ZoneInfo, sees: Callable[[Audience], Awaitable[bool]]
    ) -> tuple[Digest, int]:
        """Returns the figures of the audiences for which `sees` is true, and how many questions could not be read."""
        builder = DigestBuilder(since, until, zone)
        known: dict[Audience, bool] = {}
        unread = 0
        async with aclosing(self.ledger.every(since=since)) as every:
            async for some in every:
                unread += len(some.unreadable)
                for record in some.records:
                    audience = audience_of(record)
                    if audience not in known:
                        known[audience] = await sees(audience)
                    if known[audience]:
                        builder.add(record, self.access.audiences.route_of(audience).name)
        return builder.result(until), unread


@dataclass(eq=False)
class WeeklyDigest:
    """Posts a digest to a channel once a week; only the leader runs it.

    The message's key names the week, so that a restart or a new leader does not repeat it. A digest that was due while no
    bot ran is posted up to a day late, then skipped.
    """

    settings: DigestSettings
    _: KW_ONLY
    digests: Digests
    messages: Messages
    delivery: Delivery
    renderer: Renderer
    clock: Clock

    async def run(self) -> None:
        while True:
            try:
                await self._post_if_due()
                due = self.settings.last_due(self.clock.now()) + _WEEK
                wait = min((due - self.clock.now()).total_seconds(), _LONGEST_SLEEP)
            except (StorageUnavailable, SlackError, ClarifyError) as error:
                _log.warning("weekly digest delayed: %s", error)
                wait = _RETRY
            await self.clock.sleep(wait)

    async def _post_if_due(self) -> None:
        """Post the latest digest, unless it is posted already or too old."""
        now = self.clock.now()
        due = self.settings.last_due(now)
        year, week, _ = due.isocalendar()
        key = f"digest:{year}-W{week:02}"
        if now - due > _LATE or await self.messages.get(key) is not None:
            return
        draft = await self.digests.for_channel(
            self.settings.channel, due - _WEEK, due, ZoneInfo(self.settings.timezone)
        )
        await self.delivery.notify(
            Fresh(
                key=key,
                kind="digest",
                target=self.settings.channel,
                body=content(self.renderer, draft),
                wanted="digest",
            )
        )
        _log.info("weekly digest posted: %s", key)


def _not_counted(unread: int) -> list[str]:
    if unread == 0:
        return []
    if unread == 1:
        return ["1 question could not be read and is not counted."]
    return [f"{unread} questions could not be read and are not counted."]


def _shown(name: str) -> str:
    """Returns a person as a mention, for a reply that only the asker sees."""
    user = _user(name)
    return inert.mention(user) if inert.is_user(user) else inert.escaped_line(name, _NAME)


def _user(name: str) -> str:
    """Returns the Slack user id in a record's name, or an empty string."""
    return name.rsplit("/", 1)[-1] if name.startswith("user:slack/") else ""
