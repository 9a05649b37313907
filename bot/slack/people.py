"""Who people are, who is in a channel, who is in a user group: asked of Slack, kept for a few minutes.

Kept facts are refreshed once before somebody is refused on them (`fresh`), not more often than every
`again` seconds per fact, since `usergroups.users.list` is tier 2 (about 20 calls a minute). That there is no such
person or group is a fact, too. A fact that is out of date serves, but for a refusal, while Slack tells nothing newer.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from slack_sdk.web.async_client import AsyncWebClient

from bot.errors import SlackError, SlackRefusedError
from bot.slack.access import NO_GROUP, UNTOLD, Profile
from bot.slackapi import ask

_T = TypeVar("_T")
_KEEP = 300.0
_AGAIN = 10.0
_MOST_KEPT = 20_000
_PAGE = 1000
# Seconds that Slack has where a fact is there that only is out of date: a click has less than one for all look-ups.
_PATIENCE = 0.3
_NO_CHANNEL = frozenset({"channel_not_found", "not_in_channel", "is_archived"})
_FACTS = UNTOLD | NO_GROUP | _NO_CHANNEL
_log = logging.getLogger("clarify.slack")


@dataclass(slots=True)
class _Kept:
    """`value` is a SlackRefusedError where Slack says that there is no such thing."""

    value: Any
    at: float


class People:
    """Cached lookups. Every method raises SlackRefusedError or SlackUnreachableError when Slack does not tell.

    `seconds` is a monotonic clock.
    """

    def __init__(
        self,
        web: AsyncWebClient,
        *,
        keep: float = _KEEP,
        again: float = _AGAIN,
        seconds: Callable[[], float] = time.monotonic,
    ) -> None:
        self._web = web
        self._keep = keep
        self._again = again
        self._seconds = seconds
        self._kept: dict[tuple[str, str], _Kept] = {}
        self._asking: dict[tuple[str, str], asyncio.Task[Any]] = {}
        self._refused: dict[tuple[str, str], str] = {}  # by what word, when it was asked last

    async def profile(self, user: str, *, fresh: bool = False) -> Profile:
        return await self._look_up(("user", user), lambda: self._profile(user), fresh=fresh)

    async def members(self, channel: str, *, fresh: bool = False) -> frozenset[str]:
        return await self._look_up(("channel", channel), lambda: self._members(channel), fresh=fresh)

    async def group(self, group: str, *, fresh: bool = False) -> frozenset[str]:
        return await self._look_up(("group", group), lambda: self._group(group), fresh=fresh)

    async def present(self, user: str) -> bool:
        """Whether somebody is at their screen, as of the last seconds."""
        return await self._look_up(("presence", user), lambda: self._present(user), fresh=True)

    def known_name(self, user: str) -> str | None:
        """A person's name if it is known already; nobody is asked."""
        kept = self._kept.get(("user", user))
        return kept.value.name or None if kept and isinstance(kept.value, Profile) else None

    def trouble_with(self, entry: str) -> str | None:
        """What is wrong with a user (U…) or user group (S…) that the configuration names, as Slack said when it was
        asked last; None if nothing is, or it was not asked yet.
        """
        key = ("group" if entry.startswith("S") else "user", entry)
        if (code := self._refused.get(key)) is not None:
            return f"Slack says {code}"
        kept = self._kept.get(key)
        if kept is None:
            return None
        if isinstance(kept.value, Profile):
            return "deactivated" if kept.value.is_deleted else None
        return None if kept.value else "no members"

    def forget_user(self, user: str) -> None:
        self._kept.pop(("user", user), None)

    def forget_channel(self, channel: str) -> None:
        self._kept.pop(("channel", channel), None)

    def forget_group(self, group: str) -> None:
        self._kept.pop(("group", group), None)

    def ask_again(self, group: str) -> None:
        """A user group that was asked about may have been disabled or enabled: look, and tell if it has."""
        key = ("group", group)
        if self._kept.pop(key, None) is not None or key in self._refused:
            self._asked(key, lambda: self._group(group))

    async def _look_up(self, key: tuple[str, str], fetch: Callable[[], Awaitable[_T]], *, fresh: bool) -> _T:
        kept = self._kept.get(key)
        if kept is not None and self._seconds() - kept.at < (self._again if fresh else self._keep):
            if isinstance(kept.value, SlackRefusedError):
                raise SlackRefusedError(str(kept.value), code=kept.value.code)
            value: _T = kept.value
            return value
        stands_in = not fresh and kept is not None and not isinstance(kept.value, SlackRefusedError)
        try:
            async with asyncio.timeout(_PATIENCE if stands_in else None):
                # Shielded: one that gives up waiting must not end it for the others.
                found: _T = await asyncio.shield(self._asked(key, fetch))
        except (SlackError, TimeoutError) as error:
            if kept is None or not stands_in or getattr(error, "code", None) in _FACTS:
                raise
            _log.debug("as last known, since Slack does not tell: %s", key)
            found = kept.value
        return found

    def _asked(self, key: tuple[str, str], fetch: Callable[[], Awaitable[_T]]) -> asyncio.Task[_T]:
        """The question that is under way, or a new one."""
        asking = self._asking.get(key)
        if asking is None:
            asking = asyncio.create_task(self._fetch(key, fetch), name=f"look up {key[0]} {key[1]}")
            self._asking[key] = asking

            def done(task: asyncio.Task[Any]) -> None:
                del self._asking[key]
                if not task.cancelled():
                    task.exception()  # perhaps nobody waits for it any more

            asking.add_done_callback(done)
        return asking

    async def _fetch(self, key: tuple[str, str], fetch: Callable[[], Awaitable[_T]]) -> _T:
        try:
            value = await fetch()
        except SlackRefusedError as error:
            if self._refused.get(key) != error.code:
                _log.warning("Slack does not tell of the %s %s: %s", *key, error.code)
            self._refused[key] = error.code or "no"
            if error.code in UNTOLD | NO_GROUP:
                self._keep_fact(key, error)
            raise
        if self._refused.pop(key, None) is not None:
            _log.info("Slack tells of the %s %s again", *key)
        self._keep_fact(key, value)
        return value

    def _keep_fact(self, key: tuple[str, str], value: object) -> None:
        if len(self._kept) >= _MOST_KEPT:
            self._kept.clear()
        self._kept[key] = _Kept(value, self._seconds())

    async def _profile(self, user: str) -> Profile:
        response = await ask("users.info", lambda: self._web.users_info(user=user))
        return profile_of(response["user"])

    async def _present(self, user: str) -> bool:
        response = await ask("users.getPresence", lambda: self._web.users_getPresence(user=user))
        return bool(response["presence"] == "active")

    async def _members(self, channel: str) -> frozenset[str]:
        found: set[str] = set()
        cursor: str | None = None
        while True:
            page: dict[str, Any] = {"limit": _PAGE} | ({"cursor": cursor} if cursor else {})
            call = partial(self._web.conversations_members, channel=channel, **page)
            response = await ask("conversations.members", call)
            found.update(response["members"])
            cursor = (response.get("response_metadata") or {}).get("next_cursor")
            if not cursor:
                return frozenset(found)

    async def _group(self, group: str) -> frozenset[str]:
        method = "usergroups.users.list"
        try:
            response = await ask(method, lambda: self._web.usergroups_users_list(usergroup=group))
            return frozenset(response["users"])
        except SlackRefusedError as error:
            if error.code != "missing_argument":
                raise
        # The app is installed for an organization: Slack wants to know of which workspace.
        for team in await self._look_up(("teams", ""), self._teams, fresh=False):
            call = partial(self._web.usergroups_users_list, usergroup=group, team_id=team)
            try:
                return frozenset((await ask(method, call))["users"])
            except SlackRefusedError as error:
                if error.code not in NO_GROUP:
                    raise
        raise SlackRefusedError(f"{method}: no_such_subteam", code="no_such_subteam")

    async def _teams(self) -> tuple[str, ...]:
        """The workspaces of the organization that the app may work in."""
        response = await ask("auth.teams.list", lambda: self._web.auth_teams_list(limit=_PAGE))
        return tuple(str(team["id"]) for team in response["teams"])


def profile_of(user: dict[str, Any]) -> Profile:
    """A person from users.info's `user` (pure)."""
    shown = user.get("profile") or {}
    return Profile(
        id=str(user["id"]),
        team=str(user.get("team_id") or shown.get("team") or ""),
        enterprise=str((user.get("enterprise_user") or {}).get("enterprise_id") or ""),
        name=str(shown.get("display_name") or shown.get("real_name") or user.get("name") or ""),
        email=shown.get("email") or None,
        is_bot=bool(user.get("is_bot")) or user["id"] == "USLACKBOT",
        is_deleted=bool(user.get("deleted")),
        is_guest=bool(user.get("is_restricted") or user.get("is_ultra_restricted")),
        is_stranger=bool(user.get("is_stranger")),
    )
