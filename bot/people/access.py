"""Decides who may answer, and under which name an answer goes to an agent; and checks whether anyone on the lists of answerers can.

`may_answer` decides from facts about a person (pure); `AccessControl` looks these facts up for the configured routes.
Slack waits three seconds for an acknowledgement, so a `Person` who acts carries a `deadline` for all look-ups of that
interaction, which leaves enough of the three seconds for a ledger's lock. If Slack answers too late, nothing is recorded,
and the person is told.

`answerers` of a route: "members" are the full members of this workspace in the channel; U… is that person, even a guest;
S… are the members of that user group. Guests, external people and bots are refused unless their id, or a group that they are
in, is listed; deactivated users always.

`check_answerers` serves the start and `clarify check`; `troubles` serves /readyz and does not ask Slack.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Collection,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Literal, TypeVar

from bot.errors import ConfigurationError, SlackError, SlackRefusedError, SlackUnreachableError
from bot.people.directory import (
    CHANNEL_GONE,
    UNKNOWN_USER,
    Installation,
    OutsiderReason,
    People,
    Profile,
    is_same_person,
    outsider,
)
from bot.routing import Audience, audience_of
from bot.settings.load import Place, dotted
from bot.settings.model import PersonalRoute, RouteSettings, Settings
from core.clarification import Approval, Clarification, Decider, Standing
from core.summary import Seen
from core.transitions import ApprovedMeanwhile

_T = TypeVar("_T")
Reason = OutsiderReason | Literal["not in the channel", "not listed", "asked of another"]
MEMBERS = "members"
LOOK_UPS = 0.8  # seconds: with two for a ledger's lock, 0.2 are left for writing and acknowledging
_LOOK_UP_TO_ASK = 2.0  # seconds: how long an agent's question waits for a look-up
_MOST_SEEING = 100  # one call to Slack each, which allows about as many a minute
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
_MOST_ASKED = 30
_LONGEST_CHECK = 5.0  # seconds: people wait for the start to end
_log = logging.getLogger("clarify.slack")


@dataclass(frozen=True, slots=True)
class Person:
    """A person in Slack, by what does not change: their home team and their user id.

    `deadline` (`time.monotonic`): when the look-ups that this person waits for must be done; None: no limit.
    """

    team: str
    user: str
    deadline: float | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class AccessRefusal:
    """Why a person may not answer, and who may (as configured). `reason`: the same as `why`, for the record."""

    why: str
    answerers: Sequence[str]
    reason: Reason = "not listed"


def lookup_deadline() -> float:
    """Returns the deadline for all look-ups of an interaction that begins now."""
    return time.monotonic() + LOOK_UPS


async def in_time(deadline: float | None, look_up: Awaitable[_T]) -> _T:
    """Returns the result of a look-up, if it comes before the deadline or is cached.

    Raises:
        SlackUnreachableError: it did not come in time. A look-up that others share (`People`) goes on.
    """
    try:
        async with asyncio.timeout(None if deadline is None else deadline - time.monotonic()):
            return await look_up
    except TimeoutError:
        raise SlackUnreachableError("Slack did not answer in time") from None


def may_answer(
    person: Profile,
    answerers: Sequence[str],
    *,
    channel_members: AbstractSet[str],
    groups: Mapping[str, AbstractSet[str]],
    home: Installation,
) -> Reason | None:
    """Returns the reason why a route's `answerers` exclude `person`; None if they may answer.

    `channel_members`: the user ids in the question's channel, needed only for "members"; `groups`: those in each listed user
    group; `home`: where the app is installed.
    """
    if person.is_deleted:
        return "deactivated"
    if person.id in answerers or any(person.id in groups.get(entry, frozenset()) for entry in answerers):
        return None
    if (reason := outsider(person, home)) is not None:
        return reason
    if MEMBERS not in answerers:
        return "not listed"
    return None if person.id in channel_members else "not in the channel"


@dataclass(slots=True)
class _Facts:
    """What is known so far about a person who wants to answer."""

    profile: Profile
    members: frozenset[str] = frozenset()
    groups: dict[str, frozenset[str]] = field(default_factory=dict)


@dataclass(kw_only=True, eq=False)
class AccessControl:
    """Checks people against the routes. Raises SlackError if Slack does not describe a person before the deadline: then the
    person is neither admitted nor refused.

    `paged` returns the users to whom the open page about a clarification was sent. They may answer it if they may be paged.
    `on_call` returns the users who are on call by a policy.
    """

    people: People
    settings: Settings
    paged: Callable[[str], frozenset[str]]
    on_call: Callable[[str], Awaitable[Collection[str]]]

    async def refusal(
        self, person: Person, channel: str, audience: Audience, clarification: str | None = None
    ) -> AccessRefusal | None:
        """Returns why `person` may not answer a question of this audience in `channel`; None if they may."""
        route = self.settings.route_for(*audience)
        if clarification is not None and await self.may_as_paged(person, clarification, route):
            return None
        where = channel if channel == self.settings.slack.fallback_channel else route.channel
        return await in_time(person.deadline, self._refusal(person, route, where))

    async def may_as_paged(self, person: Person, clarification: str, route: RouteSettings) -> bool:
        """Returns whether `person` was paged about a clarification of this route, and may still be paged: listed in the
        policy, or a full member of our workspace.
        """
        if person.user not in self.paged(clarification):
            return False
        if route.on_call is not None and person.user in self.settings.on_call_named(route.on_call).listed:
            return True
        return await in_time(person.deadline, self._is_full_member(person))

    async def _is_full_member(self, person: Person) -> bool:
        """Checks cached facts, then fresh ones before it refuses."""
        home, theirs = await self.people.installation(), Profile(person.user, person.team)
        return (
            outsider(await self._described(theirs, fresh=False), home) is None
            or outsider(await self._described(theirs, fresh=True), home) is None
        )

    async def refusal_on(self, person: Person, route: RouteSettings) -> AccessRefusal | None:
        """Returns why `person` may not answer on `route`; None if they may."""
        return await in_time(person.deadline, self._refusal(person, route, route.channel))

    async def sees(self, person: Person, audience: Audience) -> bool:
        """Returns whether `person` is in the channel where questions of this audience are shown."""
        try:
            channel = self.settings.route_for(*audience).channel
            members = await in_time(person.deadline, self.people.members(channel))
        except SlackRefusedError:
            return False  # the channel is gone, or the bot is not in it
        return person.user in members

    async def full_member(self, user: str, deadline: float | None) -> bool:
        """Returns whether this is an active, full member of our workspace."""
        try:
            profile, home = await in_time(
                deadline, asyncio.gather(self.people.profile(user, fresh=True), self.people.installation())
            )
        except SlackRefusedError:
            return False
        return outsider(profile, home) is None

    async def seen_from(self, channel: str, others: Iterable[str]) -> frozenset[str]:
        """Returns the channels that everyone in `channel` may read: itself, and the public ones of `others` if it has at
        most `_MOST_SEEING` members, all of them full members of our workspace.
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
            return False  # it is gone, or private and the bot is not in it

    async def _has_outsiders(self, channel: str) -> bool:
        """Returns whether a channel may have guests or external people; True if Slack does not describe all members."""
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

    async def deciding(
        self,
        person: Person,
        record: Clarification,
        decide: Callable[[Decider], Awaitable[_T]],
        channel: str = "",
    ) -> _T:
        """Returns what `decide` returns for this person. Calls it again if someone else approved meanwhile. `channel`: see
        `decider_of`.
        """
        while True:
            decider = await self.decider_of(person, record, channel)
            try:
                return await decide(decider)
            except ApprovedMeanwhile as error:
                record = error.record

    async def decider_of(self, person: Person, record: Clarification, channel: str = "") -> Decider:
        """Returns the decider of an answer that was given in `channel`, if in one. If several people must approve, Slack must
        identify this person, and it says what those who approved before are to them. Under four eyes, it says whether this
        is the person that the agent works for; None if Slack does not tell now.
        """
        asked = record.asked
        decider = Decider(await self.decided_by(person), "slack", person.team, person.user)
        if asked.needed > 1:
            mine = await self._profile(person)
            before = [each for each in record.consent.approvals or () if each.user != person.user]
            found = await asyncio.gather(
                *(self._standing(each, mine, record, channel, person.deadline) for each in before)
            )
            approvers = dict(zip((each.user for each in before), found, strict=True))
            # A reply may be read after its author was deactivated.
            told = None if mine.is_deleted else approvers
            decider = replace(decider, approvers=told, global_id=mine.global_id or None)
        if (barred := asked.barred) is not None:
            decider = replace(decider, is_requester=await self.goes_by(person, barred.by))
        return decider

    async def _standing(
        self,
        approval: Approval,
        mine: Profile,
        record: Clarification,
        channel: str,
        deadline: float | None,
    ) -> Standing:
        """Returns what someone who approved before is to the person with the profile `mine`, as Slack describes them now."""
        if approval.user is None:
            return "unknown"
        them = Person(approval.team or "", approval.user, deadline)
        try:
            theirs = await in_time(deadline, self.people.profile_now(them.user))
            if theirs.is_deleted or not await self.may_still(them, record, channel):
                return "lapsed"
        except SlackError as error:
            return "lapsed" if getattr(error, "code", None) in UNKNOWN_USER else "unknown"
        return "same" if is_same_person(mine, theirs, self.settings.identities) else "other"

    async def may_still(self, person: Person, record: Seen, channel: str = "") -> bool:
        """Returns whether someone may answer a question by its card, which may be in `channel`, or by a command."""
        audience = audience_of(record)
        if await self.refusal(person, channel, audience, record.id) is None:
            return True
        policy = self.settings.route_for(*audience).on_call
        return policy is not None and person.user in await in_time(person.deadline, self.on_call(policy))

    async def goes_by(self, person: Person, named: str) -> bool | None:
        """Returns whether this Slack user id or e-mail address is the person's, under any of their accounts that Slack or
        `[identities]` joins; None if Slack does not tell now.
        """
        try:
            return await self._goes_by(person, named)
        except SlackError:
            return None

    async def _goes_by(self, person: Person, named: str) -> bool | None:
        """As `goes_by`, but raises SlackError if Slack does not describe one of them."""
        if person.user == named:
            return True
        mine, theirs = await in_time(
            person.deadline, asyncio.gather(self.people.profile(person.user), self.people.named(named))
        )
        if is_same_person(mine, theirs, self.settings.identities):
            return True
        # An address without an account is compared with the person's own, if Slack shows it.
        return None if not theirs.id and mine.email is None else False

    def refused(self, person: Person) -> Decider:
        """Returns the decider of an attempt that was refused; asks Slack nothing."""
        named = self.settings.identities.get(person.user)
        return Decider(named or f"user:slack/{person.team}/{person.user}", "slack", person.team, person.user)

    async def decided_by(self, person: Person) -> str:
        """Returns the name that an agent gets: stable, and not one that its owner can change at will.

        The configured table comes first; then, by mode, `user:{e-mail}` or `user:slack/{team}/{user}`. The latter also
        replaces an e-mail address that is missing or too long.
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
        """Returns why the only person asked cannot answer; None if they can, or if Slack does not answer now."""
        is_email = "@" in named
        look = self.people.by_email(named) if is_email else self.people.profile(named)
        try:
            person = await in_time(time.monotonic() + _LOOK_UP_TO_ASK, look)
        except SlackRefusedError as error:
            what = "email address" if is_email else "ID"
            unknown = f"`to` must be a person in this workspace; Slack has no user with this {what}."
            # People of other organizations are not visible; they may answer where they are listed.
            return unknown if error.code in {"user_not_found", "users_not_found"} else None
        except SlackUnreachableError:
            return None
        deactivated = "`to` must be a person who can answer; this account is deactivated."
        return deactivated if person.is_deleted else None

    async def _is(self, person: Person, named: str) -> bool:
        """As `goes_by`. People whom Slack hides are known by their user id only."""
        try:
            return await self._goes_by(person, named) is True
        except SlackRefusedError as error:
            if error.code not in UNKNOWN_USER:
                raise
            return False

    async def _refusal(self, person: Person, route: RouteSettings, channel: str) -> AccessRefusal | None:
        """Checks cached facts, then fresh ones before it refuses."""
        if isinstance(route, PersonalRoute) and not await self._is(person, route.only):
            return AccessRefusal(_WHY["asked of another"], route.mentioned, "asked of another")
        if person.user in route.answerer_users and not self.people.known_deactivated(person.user):
            return None
        if await self._decide(person, route, channel, fresh=False) is None:
            return None
        reason = await self._decide(person, route, channel, fresh=True)
        return None if reason is None else AccessRefusal(_WHY[reason], route.answerers, reason)

    async def _decide(
        self, person: Person, route: RouteSettings, channel: str, *, fresh: bool
    ) -> Reason | None:
        """As `may_answer`. Returns as soon as one entry admits the person, even if Slack does not return the others.

        Raises:
            SlackError: no entry admits the person, and Slack did not return one of them.
        """
        home = await self.people.installation()
        facts = _Facts(Profile(person.user, person.team))
        look_ups = [self._learn_group(facts, group, fresh=fresh) for group in route.answerer_groups]
        look_ups.append(self._learn_membership(facts, home, route, channel, fresh=fresh))
        tasks = [asyncio.ensure_future(each) for each in look_ups]
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
            facts.groups[group] = frozenset()  # reported by `answerers.troubles`

    async def _learn_membership(
        self, facts: _Facts, home: Installation, route: RouteSettings, channel: str, *, fresh: bool
    ) -> None:
        # Slack need not describe people of other workspaces to us, and only full members need the channel's list.
        if facts.profile.team not in {home.team, ""} and not home.enterprise:
            return
        if MEMBERS in route.answerers:
            facts.profile, facts.members = await asyncio.gather(
                self._described(facts.profile, fresh=fresh), self.people.members(channel, fresh=fresh)
            )
        else:
            facts.profile = await self._described(facts.profile, fresh=fresh)

    async def _described(self, person: Profile, *, fresh: bool) -> Profile:
        """Returns the profile from Slack; a person whom it hides is a stranger."""
        try:
            return await self.people.profile(person.id, fresh=fresh)
        except SlackRefusedError as error:
            if error.code not in UNKNOWN_USER:
                raise
            return replace(person, is_stranger=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedAnswerers:
    """The result for one list of answerers.

    `can_answer`: whether anyone could answer; an entry that Slack does not return now counts, since a click asks again.
    `refused`: the entries that Slack refuses to return, with the problem in words.
    """

    place: Place
    answerers: tuple[str, ...]
    channel: str
    can_answer: bool
    refused: Mapping[str, str]

    @property
    def no_answerer(self) -> str:
        """The problem in words if no one could answer, although Slack refused no entry."""
        return (
            f"no one can answer in {self.channel}; expected a full member of the workspace in the channel, "
            "a user ID (U…), or a user group (S…) with members"
        )


async def check_answerers(
    settings: Settings, people: People, home: Installation
) -> AsyncIterator[CheckedAnswerers]:
    """Asks Slack about every list of answerers in the configuration. `home`: where the app is installed."""
    for place, answerers, channel in _lists(settings):
        refused: dict[str, str] = {}
        can_answer = False
        for entry in answerers:
            try:
                can_answer = await _has_answerer(entry, channel, people, home) or can_answer
            except SlackUnreachableError as error:
                _log.warning("%s: cannot check for answerers yet: %s", _what(entry, channel), error)
                can_answer = True
            except SlackRefusedError as error:
                if entry == MEMBERS and error.code in CHANNEL_GONE:
                    # One lost channel must not stop the bot: its cards go to the fallback channel.
                    can_answer = True
                refused[entry] = f"{_what(entry, channel)}: Slack says {error.code or 'no'}"
        yield CheckedAnswerers(
            place=place, answerers=answerers, channel=channel, can_answer=can_answer, refused=refused
        )


async def require_answerers(settings: Settings, people: People) -> None:
    """Checks on start that each list has someone who could answer, as far as Slack answers within five seconds.

    Raises:
        ConfigurationError: a list has no one.
    """
    problems: list[str] = []
    home = await people.installation()
    try:
        async with asyncio.timeout(_LONGEST_CHECK):
            async for found in check_answerers(settings, people, home):
                wrong = [f"{dotted(found.place)}: {each}" for each in found.refused.values()]
                if not found.can_answer:
                    problems += wrong or [f"{dotted(found.place)}: {found.no_answerer}"]
                    continue
                for each in wrong:
                    _log.warning("%s", each)
    except TimeoutError:
        _log.warning("could not check all answerers in time")
    if problems:
        raise ConfigurationError(problems)


def troubles(settings: Settings, people: People) -> str | None:
    """Returns what is wrong with the listed users and user groups, by Slack's last answers; None if nothing is."""
    found = (
        f"{dotted(place)}: {entry} ({trouble})"
        for place, answerers, _ in _lists(settings)
        for entry in answerers
        if entry != MEMBERS and (trouble := people.trouble_with(entry)) is not None
    )
    return "; ".join(found) or None


async def count_answerers(
    route: RouteSettings,
    settings: Settings,
    people: People,
    home: Installation,
    most: int,
    *,
    besides: str | None = None,
) -> int:
    """Returns how many different people may answer on `route`, counted up to `most`. All accounts of one person count once;
    an entry that Slack refuses to return does not count. `besides`: a person who does not, by user id or e-mail address.

    Raises:
        SlackUnreachableError: Slack does not answer.
        SlackRefusedError: Slack does not return the person who does not count.
    """
    left_out = () if besides is None else (await people.named(besides),)
    only = await _only(route, people)
    is_same = partial(is_same_person, names=settings.identities)
    found: list[Profile] = []
    async for person, listed in _named(route, people):
        may = listed or outsider(person, home) is None
        if not may or person.is_deleted or person.is_bot or not (only is None or is_same(person, only)):
            continue
        if not any(is_same(person, each) for each in (*left_out, *found)):
            found.append(person)
        if len(found) >= most:
            break
    return len(found)


async def _named(route: RouteSettings, people: People) -> AsyncIterator[tuple[Profile, bool]]:
    """Yields everyone whom a route's answerers name, and whether by hand, without those whom Slack refuses to return."""
    for entry in route.answerers:
        try:
            if entry == MEMBERS:
                users: Iterable[str] = sorted(await people.members(route.channel))
            else:
                users = await people.group(entry) if entry.startswith("S") else (entry,)
        except SlackRefusedError as error:
            _log.warning("%s: Slack says %s", _what(entry, route.channel), error.code)
            continue
        for user in users:
            try:
                yield await people.profile(user), entry != MEMBERS
            except SlackRefusedError:
                continue


def _lists(settings: Settings) -> Iterator[tuple[Place, tuple[str, ...], str]]:
    """Yields every list of answerers: its place, entries and channel. Without a channel, it has only users and groups."""
    for index, route in enumerate(settings.routes):
        yield ("routes", index, "answerers"), route.answerers, route.channel
    for role, responder in settings.responders.items():
        if responder.kind == "people":
            channel = responder.channel or "the channel of the agent that asks"
            yield ("responders", role, "people"), responder.answerers, channel


async def _only(route: RouteSettings, people: People) -> Profile | None:
    """Returns the only person whom a question on `route` is for; None if it is for all answerers."""
    if not isinstance(route, PersonalRoute):
        return None
    try:
        return await people.named(route.only)
    except SlackRefusedError:
        return Profile("", "", email=route.only) if "@" in route.only else Profile(route.only, "")


async def _has_answerer(entry: str, channel: str, people: People, home: Installation) -> bool:
    if entry.startswith("S"):
        return bool(await people.group(entry))
    if entry != MEMBERS:
        return not (await people.profile(entry)).is_deleted
    members = sorted(await people.members(channel))
    for user in members[:_MOST_ASKED]:
        try:
            if outsider(await people.profile(user), home) is None:
                return True
        except SlackRefusedError as error:
            if error.code not in UNKNOWN_USER:
                raise
    return len(members) > _MOST_ASKED  # assume that a large channel has one


def _what(entry: str, channel: str) -> str:
    if entry == MEMBERS:
        return f"the members of {channel}"
    return f"the user group {entry}" if entry.startswith("S") else f"the user {entry}"
