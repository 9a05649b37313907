"""Who may answer: a decision from facts (pure), and the check of the configured lists at the start.

`answerers` of a route: "members" are the full members of this workspace who are in the channel; U… is that
person, whoever they are; S… are the members of that user group. Guests, external people, bots and deactivated
users are refused unless their id, or a group that they are in, is listed.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from bot.errors import SlackRefusedError, SlackUnreachableError

Reason = Literal["deactivated", "bot", "external", "guest", "not in the channel", "not listed"]
MEMBERS = "members"
# What users.info says of those whom it does not tell about: hidden ones, some of other companies (Slack Connect).
UNTOLD = frozenset({"user_not_found", "users_not_found", "user_not_visible"})
NO_GROUP = frozenset({"no_such_subteam", "subteam_not_found", "subteam_disabled"})
_MOST_ASKED = 30
_CHANNEL_GONE = frozenset({"channel_not_found", "not_in_channel", "is_archived", "fetch_members_failed"})
_log = logging.getLogger("clarify.slack")


@dataclass(frozen=True, slots=True)
class Profile:
    """What Slack says of a person (users.info). `team` is where they are at home, `enterprise` the organization
    (Enterprise Grid) that this belongs to; empty if Slack does not say.
    """

    id: str
    team: str
    enterprise: str = ""
    name: str = ""
    email: str | None = None
    is_bot: bool = False
    is_deleted: bool = False
    is_guest: bool = False
    is_stranger: bool = False


@dataclass(frozen=True, slots=True)
class Home:
    """Where the app is installed: a workspace (T…), in an Enterprise Grid organization (E…) if it names one; or, with
    the organization's id in both, all of its workspaces.
    """

    team: str
    enterprise: str = ""

    @classmethod
    def of(cls, me: Mapping[str, Any]) -> Home:
        """By what auth.test says. Installed for a whole organization, Slack names that in place of a workspace."""
        team, enterprise = str(me.get("team_id") or ""), str(me.get("enterprise_id") or "")
        return cls(team, enterprise or (team if team.startswith("E") else ""))

    @property
    def is_organization(self) -> bool:
        return bool(self.enterprise) and self.team == self.enterprise


@dataclass(frozen=True, slots=True)
class Allowed:
    """`by` is the entry of the list that admits."""

    by: str


@dataclass(frozen=True, slots=True)
class Denied:
    reason: Reason


def may_answer(
    person: Profile,
    answerers: Sequence[str],
    *,
    channel_members: AbstractSet[str],
    groups: Mapping[str, AbstractSet[str]],
    home: Home,
) -> Allowed | Denied:
    """Whether `person` may answer, and by what or why not.

    Args:
        person: as Slack describes them now.
        answerers: the route's list.
        channel_members: the user ids in the question's channel; needed for "members" only.
        groups: the user ids in each listed user group.
        home: where we are installed.
    """
    if person.id in answerers:
        return Allowed(person.id)
    for entry in answerers:
        if person.id in groups.get(entry, frozenset()):
            return Allowed(entry)
    if (reason := _never_a_member(person, home)) is not None:
        return Denied(reason)
    if MEMBERS not in answerers:
        return Denied("not listed")
    return Allowed(MEMBERS) if person.id in channel_members else Denied("not in the channel")


def is_full_member(person: Profile, home: Home) -> bool:
    """Whether somebody is an active, full member of our workspace, or of another one of its organization."""
    return _never_a_member(person, home) is None


def _never_a_member(person: Profile, home: Home) -> Reason | None:
    if person.is_deleted:
        return "deactivated"
    if person.is_bot:
        return "bot"
    colleague = bool(home.enterprise) and person.enterprise == home.enterprise
    if not colleague and (person.team not in {home.team, ""} or person.is_stranger):
        return "external"
    return "guest" if person.is_guest else None


class NobodyCouldAnswer(Exception):
    """`problems`: one line each, why."""

    def __init__(self, problems: Sequence[str]) -> None:
        self.problems = tuple(problems)
        super().__init__("; ".join(self.problems))


class Directory(Protocol):
    """What is asked of Slack about people. Every method raises SlackError if it cannot be known."""

    async def profile(self, user: str) -> Profile: ...
    async def members(self, channel: str) -> AbstractSet[str]: ...
    async def group(self, group: str) -> AbstractSet[str]: ...


async def check_answerers(
    answerers: Sequence[str], channel: str, directory: Directory, home: Home
) -> tuple[str, ...]:
    """Whether somebody could answer; for the start. Returns what is wrong with entries that others make up for.

    What Slack does not tell now counts as somebody: at a click it is asked again.

    Args:
        answerers: a route's list.
        channel: the route's channel.
        directory: asks Slack.
        home: where we are installed.

    Raises:
        NobodyCouldAnswer: at all.
    """
    problems: list[str] = []
    somebody = False
    for entry in answerers:
        try:
            somebody = await _somebody_behind(entry, channel, directory, home) or somebody
        except SlackUnreachableError as error:
            _log.warning("%s: not known yet whether somebody is there: %s", _what(entry, channel), error)
            somebody = True
        except SlackRefusedError as error:
            if entry == MEMBERS and error.code in _CHANNEL_GONE:
                # One channel that went away must not keep all others waiting: its cards go to the fallback channel.
                somebody = True
            problems.append(f"{_what(entry, channel)}: Slack says {error.code or 'no'}")
    if not somebody:
        nobody = (
            f"nobody could answer in {channel}; expected a full member of the workspace in the channel, "
            "a user id (U…), or a user group (S…) with members"
        )
        raise NobodyCouldAnswer(problems or [nobody])
    return tuple(problems)


async def _somebody_behind(entry: str, channel: str, directory: Directory, home: Home) -> bool:
    if entry.startswith("S"):
        return bool(await directory.group(entry))
    if entry != MEMBERS:
        return not (await directory.profile(entry)).is_deleted
    return await _has_full_member(channel, directory, home)


async def _has_full_member(channel: str, directory: Directory, home: Home) -> bool:
    """Asks about one after the other, until one is found; a channel with very many others is believed to have one."""
    members = sorted(await directory.members(channel))
    for user in members[:_MOST_ASKED]:
        try:
            if is_full_member(await directory.profile(user), home):
                return True
        except SlackRefusedError as error:
            if error.code not in UNTOLD:
                raise
    return len(members) > _MOST_ASKED


def _what(entry: str, channel: str) -> str:
    if entry == MEMBERS:
        return f"the members of {channel}"
    return f"the user group {entry}" if entry.startswith("S") else f"the user {entry}"
