"""Looks up who people in Slack are, who is in a channel and who is in a user group; caches it for a few minutes."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from math import inf
from typing import Any, Literal, TypeVar

from slack_sdk.web.async_client import AsyncWebClient
from slack_sdk.web.async_slack_response import AsyncSlackResponse

from bot.errors import SlackError, SlackRefusedError
from bot.slackapi import SlackBusyError, ask

_T = TypeVar("_T")
Fact = Literal["user", "channel", "group", "group itself", "channels of"]
"""A person's profile, a channel's members, a user group's members, whether that group is enabled, a person's channels."""
OutsiderReason = Literal["deactivated", "bot", "external", "guest"]
# users.info errors for people that Slack hides from us, such as some of other companies (Slack Connect).
UNKNOWN_USER = frozenset({"user_not_found", "users_not_found", "user_not_visible"})
NO_GROUP = frozenset({"no_such_subteam", "subteam_not_found", "subteam_disabled"})
CHANNEL_GONE = frozenset({"channel_not_found", "not_in_channel", "is_archived", "fetch_members_failed"})
_FACTS = UNKNOWN_USER | NO_GROUP | CHANNEL_GONE
_KEEP = 300.0
_KEEP_EVERYBODY = 3600.0
_LONGEST_WAIT = 120.0
_AGAIN = 10.0
_MOST_KEPT = 20_000
_PAGE = 1000
_PATIENCE = 0.3  # seconds to wait for Slack before an older fact serves: a click has 0.8 for all look-ups
_log = logging.getLogger("clarify.slack")


@dataclass(frozen=True, slots=True)
class Profile:
    """A person as users.info describes them. `team` is their home workspace, `enterprise` its organization (Enterprise
    Grid), and `global_id` their id across the organization; each is empty if Slack does not say. Slack shows `name`; `names`
    are the display name and the real names. `zone`: the name of their time zone; `locale`: their language in Slack, such as
    `de-DE`; both empty if Slack does not say.
    """

    id: str
    team: str
    enterprise: str = ""
    global_id: str = ""
    name: str = ""
    names: tuple[str, ...] = ()
    email: str | None = None
    is_bot: bool = False
    is_deleted: bool = False
    is_guest: bool = False
    is_stranger: bool = False
    zone: str = ""
    locale: str = ""


def is_same_person(one: Profile, other: Profile, names: Mapping[str, str]) -> bool:
    """Returns whether two profiles are of one person: by user id, by id across an organization, by e-mail address, or by
    their name in `[identities]` (`names`).
    """
    return not _marks(one, names).isdisjoint(_marks(other, names))


def _marks(person: Profile, names: Mapping[str, str]) -> frozenset[str]:
    """Returns what only this person has. An e-mail address stands as agents are told it, and as `[identities]` may have it."""
    by_email = f"user:{person.email}" if person.email else ""
    given = (person.id, person.global_id, by_email, names.get(person.id, ""))
    return frozenset(each.casefold() for each in given if each)


@dataclass(frozen=True, slots=True)
class Installation:
    """Where the app is installed: a workspace (T…), in an Enterprise Grid organization (E…) if it names one; or, with
    the organization's id in both, all of its workspaces.
    """

    team: str
    enterprise: str = ""

    @classmethod
    def of(cls, me: Mapping[str, Any]) -> Installation:
        """Reads auth.test, whose team_id is the organization's if the app is installed for all of it."""
        team, enterprise = str(me.get("team_id") or ""), str(me.get("enterprise_id") or "")
        return cls(team, enterprise or (team if team.startswith("E") else ""))

    @property
    def is_organization(self) -> bool:
        return bool(self.enterprise) and self.team == self.enterprise


def outsider(person: Profile, home: Installation) -> OutsiderReason | None:
    """Returns why a person may neither answer nor be paged unless they are listed; None for an active, full member."""
    if person.is_deleted:
        return "deactivated"
    if person.is_bot:
        return "bot"
    colleague = bool(home.enterprise) and person.enterprise == home.enterprise
    if not colleague and (person.team not in {home.team, ""} or person.is_stranger):
        return "external"
    return "guest" if person.is_guest else None


@dataclass(slots=True)
class _CachedFact:
    """`value` is a SlackRefusedError if Slack says that the person or group does not exist."""

    value: Any
    at: float


class People:
    """Asks Slack about people, channels and user groups, and caches the answers for five minutes.

    Every method raises SlackRefusedError or SlackUnreachableError if Slack does not answer. `fresh` asks again before a
    person is refused on a cached fact, at most once per fact in `again` seconds: `usergroups.users.list` is tier 2 (about 20
    calls a minute). That a person or group does not exist is cached too. If Slack does not answer, an outdated fact still
    serves, but not with `fresh`. `seconds` is a monotonic clock.
    """

    def __init__(
        self,
        web: AsyncWebClient,
        *,
        again: float = _AGAIN,
        seconds: Callable[[], float] = time.monotonic,
    ) -> None:
        self._web = web
        self._again = again
        self._seconds = seconds
        self._kept: dict[tuple[str, str], _CachedFact] = {}
        self._asking: dict[tuple[str, str], asyncio.Task[Any]] = {}
        self._refused: dict[tuple[str, str], str] = {}  # Slack's last error, by fact
        self._known: dict[str, Profile] = {}  # as last described
        self.outdated = asyncio.Event()  # set when cached facts were dropped
        self._groups: set[str] = set()  # that were asked about: those of the configuration
        self._me: Mapping[str, Any] = {}  # what auth.test says about us

    @property
    def bot_user(self) -> str:
        """Our own user id; empty until Slack said who we are."""
        return str(self._me.get("user_id") or "")

    @property
    def team(self) -> str:
        """Our home workspace; empty until Slack said who we are."""
        return str(self._me.get("team_id") or "")

    async def installation(self) -> Installation:
        """Returns where we are installed; asks Slack who we are until it answers once."""
        if not self._me:
            said = (await ask("auth.test", self._web.auth_test)).data
            self._me = said if isinstance(said, dict) else {}
        return Installation.of(self._me)

    async def profile(self, user: str, *, fresh: bool = False) -> Profile:
        return await self._look_up(("user", user), lambda: self._profile(user), fresh=fresh)

    async def profile_now(self, user: str) -> Profile:
        """Returns a person as Slack describes them now, whatever is cached."""
        return await self._look_up(("user", user), lambda: self._profile(user), fresh=True, again=0)

    async def members(self, channel: str, *, fresh: bool = False) -> frozenset[str]:
        return await self._look_up(("channel", channel), lambda: self._members(channel), fresh=fresh)

    async def channels_of(self, user: str) -> frozenset[str]:
        """Returns the channels that a person is in, at most five minutes old: of private ones, those that the bot is in, too."""
        key = ("channels of", user)
        return await self._look_up(key, lambda: self._channels_of(user), fresh=False, outdated=False)

    async def group(self, group: str, *, fresh: bool = False) -> frozenset[str]:
        self._groups.add(group)
        return await self._look_up(("group", group), lambda: self._group(group), fresh=fresh)

    async def by_email(self, email: str) -> Profile:
        """Returns the active person with this e-mail address; needs the scope users:read.email."""
        return await self._look_up(("email", email), lambda: self._by_email(email), fresh=False)

    async def named(self, named: str) -> Profile:
        """Returns the person with this user id or e-mail address. Without a user who has this address, the profile has
        nothing but the address.
        """
        if "@" not in named:
            return await self.profile(named)
        try:
            found = await self.by_email(named)
        except SlackRefusedError as error:
            if error.code not in UNKNOWN_USER:
                raise
            return Profile("", "", email=named)
        return replace(found, email=named)

    async def everybody(self) -> tuple[Profile, ...]:
        """Returns all people, bots and deactivated accounts of the workspace, at most an hour old."""
        return await self._look_up(("everybody", ""), self._everybody, fresh=False, keep=_KEEP_EVERYBODY)

    async def is_public(self, channel: str) -> bool:
        """Returns whether every full member of our workspace, and no other workspace, may read this channel."""
        return await self._look_up(("openness", channel), lambda: self._public(channel), fresh=True)

    async def present(self, user: str) -> bool:
        """Returns whether a person is active in Slack now."""
        return await self._look_up(("presence", user), lambda: self._present(user), fresh=True)

    def known_name(self, user: str) -> str | None:
        """Returns the last name that Slack returned for a person, without asking."""
        return known.name or None if (known := self._known.get(user)) is not None else None

    def known_deactivated(self, user: str) -> bool:
        """Returns whether a person was deactivated when Slack last described them, without asking."""
        return (known := self._known.get(user)) is not None and known.is_deleted

    def known_locale(self, user: str) -> str:
        """Returns the last locale that Slack returned for a person, without asking; empty if there is none."""
        return known.locale if (known := self._known.get(user)) is not None else ""

    def trouble_with(self, entry: str) -> str | None:
        """Returns what is wrong with a user (U…) or user group (S…) by Slack's last answer; None if nothing or unknown."""
        key = ("group" if entry.startswith("S") else "user", entry)
        if (code := self._refused.get(key)) is not None:
            return f"Slack says {code}"
        kept = self._kept.get(key)
        if kept is None:
            return None
        if isinstance(kept.value, Profile):
            return "deactivated" if kept.value.is_deleted else None
        return None if kept.value else "no members"

    def drop(self, fact: Fact, name: str) -> None:
        """Drops a cached fact. A user group itself, which may be disabled now, is asked for again at once."""
        key = ("group" if fact == "group itself" else fact, name)
        self.outdated.set()
        self._kept.pop(key, None)
        self._asking.pop(key, None)  # what Slack is answering now may be from before
        if fact != "group itself":
            return
        if name in self._groups:
            self._asked(key, lambda: self._group(name))

    def doubt(self) -> None:
        """Has Slack asked again for all cached facts, since we may have missed events. They still serve if it does not answer."""
        for (kind, _), each in self._kept.items():
            each.at = each.at if kind == "everybody" else -inf
        self._asking.clear()
        self.outdated.set()
        for kind, name in tuple(self._refused):
            if kind == "group":
                self.drop("group itself", name)

    async def _look_up(
        self,
        key: tuple[str, str],
        fetch: Callable[[], Awaitable[_T]],
        *,
        fresh: bool,
        keep: float = _KEEP,
        again: float | None = None,
        outdated: bool = True,
    ) -> _T:
        """`again`: seconds that a fact counts as fresh; None: as usual. `outdated`: an older fact serves if Slack does not
        answer.
        """
        kept, again = self._kept.get(key), self._again if again is None else again
        if kept is not None and self._seconds() - kept.at < (again if fresh else keep):
            if isinstance(kept.value, SlackRefusedError):
                raise SlackRefusedError(str(kept.value), code=kept.value.code)
            value: _T = kept.value
            return value
        stands_in = (
            outdated and not fresh and kept is not None and not isinstance(kept.value, SlackRefusedError)
        )
        try:
            async with asyncio.timeout(_PATIENCE if stands_in else None):
                # Shielded: a caller that gives up must not cancel it for the others.
                found: _T = await asyncio.shield(self._asked(key, fetch))
        except (SlackError, TimeoutError) as error:
            if kept is None or not stands_in or getattr(error, "code", None) in _FACTS:
                raise
            _log.debug("using the last known value, Slack did not return it: %s", key)
            found = kept.value
        return found

    def _asked(self, key: tuple[str, str], fetch: Callable[[], Awaitable[_T]]) -> asyncio.Task[_T]:
        """Returns the running look-up, or starts one."""
        asking = self._asking.get(key)
        if asking is None:
            asking = asyncio.create_task(self._fetch(key, fetch), name=f"look up {key[0]} {key[1]}")
            self._asking[key] = asking

            def done(task: asyncio.Task[Any]) -> None:
                if self._asking.get(key) is task:
                    del self._asking[key]
                if not task.cancelled():
                    task.exception()  # all callers may have given up

            asking.add_done_callback(done)
        return asking

    async def _fetch(self, key: tuple[str, str], fetch: Callable[[], Awaitable[_T]]) -> _T:
        try:
            value = await fetch()
        except SlackRefusedError as error:
            if self._refused.get(key) != error.code:
                _log.warning("Slack does not return the %s %s: %s", *key, error.code)
            self._refused[key] = error.code or "no"
            if error.code in UNKNOWN_USER | NO_GROUP:
                self._keep_fact(key, error)
            raise
        if self._refused.pop(key, None) is not None:
            _log.info("Slack returns the %s %s again", *key)
        self._keep_fact(key, value)
        return value

    def _keep_fact(self, key: tuple[str, str], value: object) -> None:
        """Keeps what a look-up found, unless the fact was forgotten meanwhile."""
        if self._asking.get(key) is not asyncio.current_task():
            return
        if len(self._kept) >= _MOST_KEPT:
            self._kept.clear()
            self._known.clear()
        if isinstance(value, Profile):
            # users.lookupByEmail says no locale.
            locale = value.locale or self.known_locale(value.id)
            self._known[value.id] = replace(value, locale=locale)
        self._kept[key] = _CachedFact(value, self._seconds())

    async def _profile(self, user: str) -> Profile:
        response = await ask("users.info", lambda: self._web.users_info(user=user, include_locale=True))
        return profile_of(response["user"])

    async def _by_email(self, email: str) -> Profile:
        response = await ask("users.lookupByEmail", lambda: self._web.users_lookupByEmail(email=email))
        return profile_of(response["user"])

    async def _by_team(self, of: Callable[..., Awaitable[_T]]) -> AsyncIterator[_T]:
        """Yields what Slack tells; of each workspace, if the app is installed for an organization."""
        try:
            found = await of()
        except SlackRefusedError as error:
            if error.code != "missing_argument":
                raise
        else:
            yield found
            return
        for team in await self._look_up(("teams", ""), self._teams, fresh=False):
            yield await of(team_id=team)

    async def _everybody(self) -> tuple[Profile, ...]:
        found = {each.id: each async for some in self._by_team(self._everybody_in) for each in some}
        return tuple(found.values())

    async def _everybody_in(self, **team: str) -> list[Profile]:
        """Takes minutes in a large workspace: Slack allows twenty pages a minute."""
        pages = _pages("users.list", self._web.users_list, longest_wait=_LONGEST_WAIT, **team)
        return [profile_of(user) async for page in pages for user in page["members"]]

    async def _present(self, user: str) -> bool:
        response = await ask("users.getPresence", lambda: self._web.users_getPresence(user=user))
        return bool(response["presence"] == "active")

    async def _public(self, channel: str) -> bool:
        call = partial(self._web.conversations_info, channel=channel)
        found = (await ask("conversations.info", call))["channel"]
        closed = ("is_private", "is_im", "is_mpim", "is_shared", "is_ext_shared", "is_org_shared")
        return not any(found.get(each) for each in (*closed, "is_pending_ext_shared"))

    async def _members(self, channel: str) -> frozenset[str]:
        pages = _pages("conversations.members", self._web.conversations_members, channel=channel)
        return frozenset([user async for page in pages for user in page["members"]])

    async def _channels_of(self, user: str) -> frozenset[str]:
        every = self._by_team(partial(self._channels_in, user))
        return frozenset([channel async for some in every for channel in some])

    async def _channels_in(self, user: str, team_id: str | None = None) -> list[str]:
        kinds = "public_channel,private_channel"
        call = partial(self._web.users_conversations, user=user, types=kinds, team_id=team_id)
        pages = _pages("users.conversations", call, limit="999")  # it takes no more
        return [channel["id"] async for page in pages for channel in page["channels"]]

    async def _group(self, group: str) -> frozenset[str]:
        async for members in self._by_team(partial(self._group_in, group)):
            if members is not None:
                return members
        raise SlackRefusedError("usergroups.users.list: no_such_subteam", code="no_such_subteam")

    async def _group_in(self, group: str, team_id: str | None = None) -> frozenset[str] | None:
        """None: the group is not one of this workspace of an organization."""
        try:
            call = partial(self._web.usergroups_users_list, usergroup=group, team_id=team_id)
            return frozenset((await ask("usergroups.users.list", call))["users"])
        except SlackRefusedError as error:
            if team_id is None or error.code not in NO_GROUP:
                raise
            return None

    async def _teams(self) -> tuple[str, ...]:
        """Returns the organization's workspaces in which the app is approved."""
        response = await ask("auth.teams.list", lambda: self._web.auth_teams_list(limit=_PAGE))
        return tuple(str(team["id"]) for team in response["teams"])


async def _pages(
    method: str, call: Callable[..., Awaitable[AsyncSlackResponse]], longest_wait: float = 0, **arguments: str
) -> AsyncIterator[AsyncSlackResponse]:
    """Yields the pages of a list. If Slack is busy, waits as long as it asks, up to `longest_wait` seconds."""
    page: dict[str, Any] = {"limit": _PAGE, **arguments}
    while True:
        try:
            response = await ask(method, partial(call, **page))
        except SlackBusyError as error:
            if error.after > longest_wait:
                raise
            await asyncio.sleep(error.after)
            continue
        yield response
        page["cursor"] = (response.get("response_metadata") or {}).get("next_cursor")
        if not page["cursor"]:
            return


def profile_of(user: dict[str, Any]) -> Profile:
    """Returns a person from users.info's `user` (pure)."""
    shown, grid = user.get("profile") or {}, user.get("enterprise_user") or {}
    names = (shown.get("display_name"), shown.get("real_name"), user.get("real_name"))
    return Profile(
        id=str(user["id"]),
        team=str(user.get("team_id") or shown.get("team") or ""),
        enterprise=str(grid.get("enterprise_id") or ""),
        global_id=str(grid.get("id") or ""),
        name=str(shown.get("display_name") or shown.get("real_name") or user.get("name") or ""),
        names=tuple(dict.fromkeys(str(name) for name in names if name)),
        email=shown.get("email") or None,
        is_bot=bool(user.get("is_bot")) or user["id"] == "USLACKBOT",
        is_deleted=bool(user.get("deleted")),
        is_guest=bool(user.get("is_restricted") or user.get("is_ultra_restricted")),
        is_stranger=bool(user.get("is_stranger")),
        zone=str(user.get("tz") or ""),
        locale=str(user.get("locale") or ""),
    )
