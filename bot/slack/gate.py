"""Who is it, may they: the decisions of `access` and `identity`, on facts from Slack."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from bot.audience import Audience
from bot.desk import Person, Refusal
from bot.errors import ConfigurationError, SlackError, SlackRefusedError
from bot.settings import RouteSettings, Settings
from bot.slack.access import (
    MEMBERS,
    UNTOLD,
    Allowed,
    Denied,
    Home,
    NobodyCouldAnswer,
    Profile,
    Reason,
    check_answerers,
    is_full_member,
    may_answer,
)
from bot.slack.haste import within
from bot.slack.identity import decided_by, needs_email
from bot.slack.people import People

_LONGEST_CHECK = 5.0  # seconds: people wait for the start to end
_log = logging.getLogger("clarify.slack")
_WHY: Mapping[Reason, str] = {
    "deactivated": "your account is deactivated",
    "bot": "bots do not answer",
    "external": "you are not a member of this workspace",
    "guest": "you are a guest in this workspace",
    "not in the channel": "you are not in the channel",
    "not listed": "you are not among those who answer this agent",
}


@dataclass(slots=True)
class _Facts:
    """What is known so far of somebody who wants to answer."""

    profile: Profile
    members: frozenset[str] = frozenset()
    groups: dict[str, frozenset[str]] = field(default_factory=dict)


class Gate:
    """Checks people against the routes. Raises SlackError where Slack does not tell, or not in time (`haste`): then
    nobody is let in and nobody is refused.

    `paged`: the users that the open page of an escalated clarification was sent to: they may answer it.
    """

    def __init__(
        self,
        people: People,
        settings: Settings,
        home: Home,
        paged: Callable[[str], frozenset[str]] = lambda _: frozenset(),
    ) -> None:
        self._people = people
        self._settings = settings
        self._home = home
        self._paged = paged

    async def refusal(
        self, person: Person, channel: str, audience: Audience, clarification: str | None = None
    ) -> Refusal | None:
        """Why `person` may not answer a question of this audience in `channel`; None if they may.

        A refusal on kept facts is checked once more on fresh ones.
        """
        if clarification is not None and person.user in self._paged(clarification):
            return None
        route = self._settings.route_for(*audience)
        where = (
            channel if channel in {route.channel, self._settings.slack.fallback_channel} else route.channel
        )
        return await within(self._refusal(person, route, where))

    async def refusal_on(self, person: Person, route: RouteSettings) -> Refusal | None:
        """Why `person` may not answer where `route` goes; None if they may."""
        return await within(self._refusal(person, route, route.channel))

    async def sees(self, person: Person, audience: Audience) -> bool:
        """Whether `person` is in the channel where questions of this audience are shown."""
        try:
            members = await within(self._people.members(self._settings.route_for(*audience).channel))
        except SlackRefusedError:
            return False  # the channel is gone, or the bot is not in it
        return person.user in members

    async def full_member(self, user: str) -> bool:
        """Whether this is an active, full member of our workspace."""
        try:
            profile = await within(self._people.profile(user, fresh=True))
        except SlackRefusedError:
            return False
        return is_full_member(profile, self._home)

    async def decided_by(self, person: Person) -> str:
        """The name that an agent is told."""
        mode, table = self._settings.slack.identity, self._settings.identities
        email = await self._email(person.user) if needs_email(person.user, mode, table) else None
        return decided_by(team=person.team, user=person.user, mode=mode, email=email, table=table)

    async def _email(self, user: str) -> str | None:
        try:
            return (await within(self._people.profile(user))).email
        except SlackRefusedError:
            # Somebody of whom Slack tells us nothing, such as an external person: no address.
            return None

    async def check(self) -> None:
        """For the start: every route, and every role of people, has somebody who could answer, as far as Slack tells
        at once.

        Raises:
            ConfigurationError: one has not.
        """
        problems: list[str] = []
        try:
            async with asyncio.timeout(_LONGEST_CHECK):
                for where, answerers, channel in self._lists():
                    try:
                        for broken in await check_answerers(answerers, channel, self._people, self._home):
                            _log.warning("%s: %s", where, broken)
                    except NobodyCouldAnswer as error:
                        problems += [f"{where}: {each}" for each in error.problems]
        except TimeoutError:
            _log.warning("Slack did not tell in time whether somebody could answer everywhere")
        if problems:
            raise ConfigurationError(problems)

    def troubles(self) -> tuple[str, ...]:
        """What is wrong with users and user groups that the lists of answerers name, as Slack said last."""
        found = [
            f"{where}: {entry} ({trouble})"
            for where, answerers, _ in self._lists()
            for entry in answerers
            if entry != MEMBERS and (trouble := self._people.trouble_with(entry)) is not None
        ]
        return tuple(found)

    def _lists(self) -> list[tuple[str, tuple[str, ...], str]]:
        """Every list of answerers: its key, what it names, the channel."""
        lists = [
            (f"routes[{index}].answerers", route.answerers, route.channel)
            for index, route in enumerate(self._settings.routes)
        ]
        # Without a channel of its own a role names users and groups, who need none.
        lists += [
            (
                f"responders.{role}.people",
                responder.answerers,
                responder.channel or "the channel of the agent that asks",
            )
            for role, responder in self._settings.responders.items()
            if responder.kind == "people"
        ]
        return lists

    async def _refusal(self, person: Person, route: RouteSettings, where: str) -> Refusal | None:
        decision = await self._decide(person, route, where, fresh=False)
        if isinstance(decision, Denied):
            decision = await self._decide(person, route, where, fresh=True)
        return None if isinstance(decision, Allowed) else Refusal(_WHY[decision.reason], route.answerers)

    async def _decide(
        self, person: Person, route: RouteSettings, channel: str, *, fresh: bool
    ) -> Allowed | Denied:
        """By the first entry that is known to admit. One that Slack does not tell of keeps nobody out whom another
        admits.

        Raises:
            SlackError: none does, and one of them is not known.
        """
        if person.user in route.answerer_users:
            return Allowed(person.user)
        facts = _Facts(Profile(person.user, person.team))
        tasks = [
            asyncio.ensure_future(self._learn_group(facts, group, fresh=fresh))
            for group in route.answerer_groups
        ]
        tasks.append(asyncio.ensure_future(self._learn_membership(facts, route, channel, fresh=fresh)))
        unknown: SlackError | None = None
        try:
            for each in asyncio.as_completed(tasks):
                try:
                    await each
                except SlackError as error:
                    unknown = error
                decision = may_answer(
                    facts.profile,
                    route.answerers,
                    channel_members=facts.members,
                    groups=facts.groups,
                    home=self._home,
                )
                if isinstance(decision, Allowed):
                    return decision
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        if unknown is not None:
            raise unknown
        return decision

    async def _learn_group(self, facts: _Facts, group: str, *, fresh: bool) -> None:
        try:
            facts.groups[group] = await self._people.group(group, fresh=fresh)
        except SlackRefusedError:
            facts.groups[group] = frozenset()  # it admits nobody: `troubles`

    async def _learn_membership(
        self, facts: _Facts, route: RouteSettings, channel: str, *, fresh: bool
    ) -> None:
        team = facts.profile.team
        # Slack need not tell us of people who are at home elsewhere, and only full members need the channel's list.
        if team not in {self._home.team, ""} and not self._home.enterprise:
            return
        if MEMBERS in route.answerers:
            facts.profile, facts.members = await asyncio.gather(
                self._described(facts.profile, fresh=fresh), self._people.members(channel, fresh=fresh)
            )
        else:
            facts.profile = await self._described(facts.profile, fresh=fresh)

    async def _described(self, person: Profile, *, fresh: bool) -> Profile:
        """As Slack describes them; somebody whom it does not tell about is a stranger."""
        try:
            return await self._people.profile(person.id, fresh=fresh)
        except SlackRefusedError as error:
            if error.code not in UNTOLD:
                raise
            return replace(person, is_stranger=True)
