"""Decides who may answer, and under which name an answer goes to an agent.

`may_answer` decides from facts about a person (pure); `AccessControl` looks these facts up for the configured routes.
Slack waits three seconds for an acknowledgement, so a `Person` who acts carries the `deadline` of all look-ups of that
interaction: with the time that a ledger's lock needs it stays below those three seconds. If Slack answers too late,
nothing is recorded, and the person is told so.

`answerers` of a route: "members" are the full members of this workspace who are in the channel; U… is that
person, also a guest; S… are the members of that user group. Guests, external people, bots and deactivated
users are refused unless their id, or a group that they are in, is listed.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from typing import Literal, TypeVar

from bot.errors import SlackError, SlackRefusedError, SlackUnreachableError
from bot.people.directory import UNKNOWN_USER, Installation, OutsiderReason, People, Profile, outsider
from bot.routing import Audience
from bot.settings.model import PersonalRoute, RouteSettings, Settings
from core.clarification import Decider

_T = TypeVar("_T")
Reason = OutsiderReason | Literal["not in the channel", "not listed", "asked of another"]
MEMBERS = "members"
LOOK_UPS = 0.8  # seconds: with two for a ledger's lock they leave 0.2 for writing and acknowledging
_LOOK_UP_TO_ASK = 2.0  # seconds that an agent's question waits for
_MOST_SEEING = 100  # Slack is asked of each, and takes about as many such calls a minute
_LONGEST_NAME = 256  # of `decided_by` (AAEP, clarification.reply)
_WHY: Mapping[Reason, str] = {
    "deactivated": "your account is deactivated",
    "bot": "bots cannot answer",
    "external": "you are not a member of this workspace",
    "guest": "you are a guest in this workspace",
    "not in the channel": "you are not in the channel",
    "not listed": "you are not an answerer for this agent",
    "asked of another": "this question is for someone else",
}


@dataclass(frozen=True, slots=True)
class Person:
    """A person in Slack, by what does not change: their home team and their user id.

    `deadline`: until when look-ups may take that this person waits for, by `time.monotonic`; None: as long as they take.
    """

    team: str
    user: str
    deadline: float | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why somebody may not answer, and who may (as configured)."""

    why: str
    answerers: Sequence[str]


def lookup_deadline() -> float:
    """The deadline of all look-ups of an interaction that begins now."""
    return time.monotonic() + LOOK_UPS


async def in_time(deadline: float | None, look_up: Awaitable[_T]) -> _T:
    """A look-up's result, if it comes before the deadline. What is known already comes after it, too.

    Raises:
        SlackUnreachableError: it did not. The look-up itself goes on where it is shared (`People`).
    """
    try:
        async with asyncio.timeout(None if deadline is None else deadline - time.monotonic()):
            return await look_up
    except TimeoutError:
        raise SlackUnreachableError("Slack did not say in time who someone is") from None


def may_answer(
    person: Profile,
    answerers: Sequence[str],
    *,
    channel_members: AbstractSet[str],
    groups: Mapping[str, AbstractSet[str]],
    home: Installation,
) -> Reason | None:
    """Why `person` may not answer; None if they may.

    Args:
        person: as Slack describes them now.
        answerers: the route's list.
        channel_members: the user ids in the question's channel; needed for "members" only.
        groups: the user ids in each listed user group.
        home: where we are installed.
    """
    if person.id in answerers or any(person.id in groups.get(entry, frozenset()) for entry in answerers):
        return None
    if (reason := outsider(person, home)) is not None:
        return reason
    if MEMBERS not in answerers:
        return "not listed"
    return None if person.id in channel_members else "not in the channel"


@dataclass(slots=True)
class _Facts:
    """What is known so far of somebody who wants to answer."""

    profile: Profile
    members: frozenset[str] = frozenset()
    groups: dict[str, frozenset[str]] = field(default_factory=dict)


@dataclass(kw_only=True, eq=False)
class AccessControl:
    """Checks people against the routes. Raises SlackError if Slack does not say who someone is, or not before the
    deadline: then no one is let in and no one is refused.

    `paged`: the users that the open page of an escalated clarification was sent to: they may answer it, as long as
    they are people who may be paged.
    """

    people: People
    settings: Settings
    paged: Callable[[str], frozenset[str]]

    async def refusal(
        self, person: Person, channel: str, audience: Audience, clarification: str | None = None
    ) -> Refusal | None:
        """Why `person` may not answer a question of this audience in `channel`; None if they may.

        A refusal on kept facts is checked once more on fresh ones.
        """
        route = self.settings.route_for(*audience)
        if clarification is not None and await self.may_as_paged(person, clarification, route):
            return None
        where = channel if channel in {route.channel, self.settings.slack.fallback_channel} else route.channel
        return await in_time(person.deadline, self._refusal(person, route, where))

    async def may_as_paged(self, person: Person, clarification: str, route: RouteSettings) -> bool:
        """Whether `person` was paged about a clarification of this route, and still is somebody who may be.

        Whom the policy lists by hand may be; anybody else as a full member of our workspace only, whatever named them.
        """
        if person.user not in self.paged(clarification):
            return False
        if route.on_call is not None and person.user in self.settings.on_call_named(route.on_call).listed:
            return True
        return await in_time(person.deadline, self._is_full_member(person))

    async def _is_full_member(self, person: Person) -> bool:
        """A refusal on kept facts is checked once more on fresh ones."""
        home = await self.people.installation()
        theirs = Profile(person.user, person.team)
        return (
            outsider(await self._described(theirs, fresh=False), home) is None
            or outsider(await self._described(theirs, fresh=True), home) is None
        )

    async def refusal_on(self, person: Person, route: RouteSettings) -> Refusal | None:
        """Why `person` may not answer where `route` goes; None if they may."""
        return await in_time(person.deadline, self._refusal(person, route, route.channel))

    async def sees(self, person: Person, audience: Audience) -> bool:
        """Whether `person` is in the channel where questions of this audience are shown."""
        try:
            channel = self.settings.route_for(*audience).channel
            members = await in_time(person.deadline, self.people.members(channel))
        except SlackRefusedError:
            return False  # the channel is gone, or the bot is not in it
        return person.user in members

    async def full_member(self, user: str, deadline: float | None) -> bool:
        """Whether this is an active, full member of our workspace."""
        try:
            profile, home = await in_time(
                deadline, asyncio.gather(self.people.profile(user, fresh=True), self.people.installation())
            )
        except SlackRefusedError:
            return False
        return outsider(profile, home) is None

    async def seen_from(self, channel: str, others: Iterable[str]) -> frozenset[str]:
        """Those of `others`, channels, that everybody in `channel` may read: itself, and public ones where only full members
        of our workspace are in it, `_MOST_SEEING` of them at most.
        """
        open_ = [
            each for each in others if each != channel and each[0] in "CG" and await self._is_public(each)
        ]
        if open_ and await self._has_outsiders(channel):
            open_ = []
        return frozenset({channel, *open_})

    async def _is_public(self, channel: str) -> bool:
        try:
            return await self.people.is_public(channel)
        except SlackRefusedError:
            return False  # it is gone, or private and without us

    async def _has_outsiders(self, channel: str) -> bool:
        """Whether somebody may be in a channel who is no full member of our workspace; yes, where Slack tells not of all."""
        try:
            members, home = await self.people.members(channel, fresh=True), await self.people.installation()
            if len(members) > _MOST_SEEING:
                return True
            for user in sorted(members):
                if outsider(await self.people.profile(user), home) in {"guest", "external"}:
                    return True
        except SlackRefusedError:
            return True
        return False

    async def decider(self, person: Person, *, several: bool = False) -> Decider:
        """Who decides, in Slack. `several`: they are one of several people, who are told apart by what Slack says now.

        Raises:
            SlackError: several have to decide, and Slack does not say who this is.
        """
        profile = await self._profile(person) if several else None
        return Decider(
            await self.decided_by(person),
            "slack",
            person.team,
            person.user,
            is_known=several,
            global_id=(profile and profile.global_id) or None,
        )

    async def decided_by(self, person: Person) -> str:
        """The name that an agent is told: stable, and not one that its owner can change at will.

        The configured table first; then, by mode, `user:{e-mail}`, or `user:slack/{team}/{user}`. An e-mail address
        that is missing or too long is replaced by the latter, which always fits.
        """
        if named := self.settings.identities.get(person.user):
            return named
        if self.settings.slack.identity == "email":
            email = await self._email(person)
            if email and len(by_email := f"user:{email}") <= _LONGEST_NAME:
                return by_email
        return f"user:slack/{person.team}/{person.user}"

    async def _email(self, person: Person) -> str | None:
        try:
            return (await self._profile(person)).email
        except SlackRefusedError:
            return None  # Slack tells us nothing of, for example, some external people

    async def _profile(self, person: Person) -> Profile:
        return await in_time(person.deadline, self.people.profile(person.user))

    async def trouble_with(self, named: str) -> str | None:
        """Why a person whom a question names cannot answer it; None if they can, or if Slack does not tell that now."""
        if "@" in named:
            return None  # who has an address is known once they answer
        try:
            person = await in_time(time.monotonic() + _LOOK_UP_TO_ASK, self.people.profile(named))
        except SlackRefusedError as error:
            unknown = "`to` must be a person in this workspace; Slack has no user with this ID."
            # Of people of other organizations it says that they are not visible; they may answer where they are listed.
            return unknown if error.code == "user_not_found" else None
        except SlackUnreachableError:
            return None
        return (
            "`to` must be a person who can answer; this account is deactivated."
            if person.is_deleted
            else None
        )

    async def _is(self, person: Person, named: str) -> bool:
        """Whether somebody goes by this Slack user id or e-mail address."""
        if "@" not in named:
            return person.user == named
        email = await self._email(person)
        return email is not None and email.casefold() == named.casefold()

    async def _refusal(self, person: Person, route: RouteSettings, where: str) -> Refusal | None:
        if isinstance(route, PersonalRoute) and not await self._is(person, route.only):
            return Refusal(_WHY["asked of another"], route.mentioned)
        if person.user in route.answerer_users:
            return None
        reason = await self._decide(person, route, where, fresh=False)
        if reason is not None:
            reason = await self._decide(person, route, where, fresh=True)
        return None if reason is None else Refusal(_WHY[reason], route.answerers)

    async def _decide(
        self, person: Person, route: RouteSettings, channel: str, *, fresh: bool
    ) -> Reason | None:
        """By the first entry that is known to admit. One that Slack does not tell of keeps nobody out whom another
        admits.

        Raises:
            SlackError: none does, and one of them is not known.
        """
        home = await self.people.installation()
        facts = _Facts(Profile(person.user, person.team))
        tasks = [
            asyncio.ensure_future(self._learn_group(facts, group, fresh=fresh))
            for group in route.answerer_groups
        ]
        tasks.append(asyncio.ensure_future(self._learn_membership(facts, home, route, channel, fresh=fresh)))
        unknown: SlackError | None = None
        reason: Reason | None = "not listed"
        try:
            for each in asyncio.as_completed(tasks):
                try:
                    await each
                except SlackError as error:
                    unknown = error
                reason = may_answer(
                    facts.profile,
                    route.answerers,
                    channel_members=facts.members,
                    groups=facts.groups,
                    home=home,
                )
                if reason is None:
                    return None
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        if unknown is not None:
            raise unknown
        return reason

    async def _learn_group(self, facts: _Facts, group: str, *, fresh: bool) -> None:
        try:
            facts.groups[group] = await self.people.group(group, fresh=fresh)
        except SlackRefusedError:
            facts.groups[group] = frozenset()  # it admits nobody: `answerers.troubles`

    async def _learn_membership(
        self, facts: _Facts, home: Installation, route: RouteSettings, channel: str, *, fresh: bool
    ) -> None:
        # Slack need not tell us of people who are at home elsewhere, and only full members need the channel's list.
        if facts.profile.team not in {home.team, ""} and not home.enterprise:
            return
        if MEMBERS in route.answerers:
            facts.profile, facts.members = await asyncio.gather(
                self._described(facts.profile, fresh=fresh), self.people.members(channel, fresh=fresh)
            )
        else:
            facts.profile = await self._described(facts.profile, fresh=fresh)

    async def _described(self, person: Profile, *, fresh: bool) -> Profile:
        """As Slack describes them; somebody whom it does not tell about is a stranger."""
        try:
            return await self.people.profile(person.id, fresh=fresh)
        except SlackRefusedError as error:
            if error.code not in UNKNOWN_USER:
                raise
            return replace(person, is_stranger=True)
