"""Who is it, may they: the decisions of `access` and `identity`, on facts from Slack."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from bot.audience import Audience
from bot.desk import Person, Refusal
from bot.errors import SlackRefusedError
from bot.settings import RouteSettings, Settings
from bot.slack.access import (
    MEMBERS,
    Allowed,
    Denied,
    Profile,
    Reason,
    check_answerers,
    is_full_member,
    may_answer,
)
from bot.slack.haste import within
from bot.slack.identity import decided_by, needs_email
from bot.slack.people import People

_WHY: Mapping[Reason, str] = {
    "deactivated": "your account is deactivated",
    "bot": "bots do not answer",
    "external": "you are not a member of this workspace",
    "guest": "you are a guest in this workspace",
    "not in the channel": "you are not in the channel",
    "not listed": "you are not among those who answer this agent",
}


class Gate:
    """Checks people against the routes. Raises SlackError where Slack does not tell, or not in time (`haste`): then
    nobody is let in and nobody is refused.

    `paged`: the users that the open page of an escalated clarification was sent to: they may answer it.
    """

    def __init__(
        self,
        people: People,
        settings: Settings,
        home_team: str,
        paged: Callable[[str], frozenset[str]] = lambda _: frozenset(),
    ) -> None:
        self._people = people
        self._settings = settings
        self._home_team = home_team
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
        return is_full_member(profile, self._home_team)

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
        """For the start: every route, and every role of people, has somebody who could answer.

        Raises:
            ConfigurationError: one has not.
            SlackUnreachableError: it cannot be known now.
        """
        for index, route in enumerate(self._settings.routes):
            await check_answerers(
                route.answerers, route.channel, self._people, self._home_team, f"routes[{index}]"
            )
        for role, responder in self._settings.responders.items():
            if responder.kind == "people":
                # Without a channel of its own users and groups are named, who need none.
                await check_answerers(
                    responder.answerers,
                    responder.channel or "the channel of the agent that asks",
                    self._people,
                    self._home_team,
                    f"responders.{role}",
                )

    async def _refusal(self, person: Person, route: RouteSettings, where: str) -> Refusal | None:
        decision = await self._decide(person, route, where, fresh=False)
        if isinstance(decision, Denied):
            decision = await self._decide(person, route, where, fresh=True)
        return None if isinstance(decision, Allowed) else Refusal(_WHY[decision.reason], route.answerers)

    async def _decide(
        self, person: Person, route: RouteSettings, channel: str, *, fresh: bool
    ) -> Allowed | Denied:
        if person.user in route.answerer_users:
            return Allowed(person.user)
        at_home = not person.team or person.team == self._home_team
        groups = {group: await self._people.group(group, fresh=fresh) for group in route.answerer_groups}
        # Slack need not tell us of people who are at home elsewhere, and only full members need the channel's list.
        profile = Profile(person.user, person.team)
        members: frozenset[str] = frozenset()
        if at_home:
            profile = await self._people.profile(person.user, fresh=fresh)
            if MEMBERS in route.answerers:
                members = await self._people.members(channel, fresh=fresh)
        return may_answer(
            profile, route.answerers, channel_members=members, groups=groups, home_team=self._home_team
        )
