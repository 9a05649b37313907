"""Who people are, who is in a channel, who is in a user group: asked of Slack, kept for a few minutes.

Kept facts are refreshed once before somebody is refused on them (`fresh`), not more often than every
`again` seconds per fact, since `usergroups.users.list` is tier 2 (about 20 calls a minute).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from slack_sdk.web.async_client import AsyncWebClient

from bot.slack.access import Profile
from bot.slack.calls import ask

_T = TypeVar("_T")
_KEEP = 300.0
_AGAIN = 10.0
_MOST_KEPT = 20_000
_PAGE = 1000


@dataclass(slots=True)
class _Kept:
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
        return kept.value.name or None if kept else None

    def forget_user(self, user: str) -> None:
        self._kept.pop(("user", user), None)

    def forget_channel(self, channel: str) -> None:
        self._kept.pop(("channel", channel), None)

    def forget_group(self, group: str) -> None:
        self._kept.pop(("group", group), None)

    async def _look_up(self, key: tuple[str, str], fetch: Callable[[], Awaitable[_T]], *, fresh: bool) -> _T:
        kept = self._kept.get(key)
        if kept is not None and self._seconds() - kept.at < (self._again if fresh else self._keep):
            value: _T = kept.value
            return value
        asking = self._asking.get(key)
        if asking is None:
            asking = asyncio.create_task(self._fetch(key, fetch), name=f"look up {key[0]} {key[1]}")
            self._asking[key] = asking
            asking.add_done_callback(lambda _: self._asking.pop(key, None))
        # Shielded: one that gives up waiting must not end it for the others.
        found: _T = await asyncio.shield(asking)
        return found

    async def _fetch(self, key: tuple[str, str], fetch: Callable[[], Awaitable[_T]]) -> _T:
        value = await fetch()
        if len(self._kept) >= _MOST_KEPT:
            self._kept.clear()
        self._kept[key] = _Kept(value, self._seconds())
        return value

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
        response = await ask(
            "usergroups.users.list", lambda: self._web.usergroups_users_list(usergroup=group)
        )
        return frozenset(response["users"])


def profile_of(user: dict[str, Any]) -> Profile:
    """A person from users.info's `user` (pure)."""
    shown = user.get("profile") or {}
    return Profile(
        id=str(user["id"]),
        team=str(user.get("team_id") or shown.get("team") or ""),
        name=str(shown.get("display_name") or shown.get("real_name") or user.get("name") or ""),
        email=shown.get("email") or None,
        is_bot=bool(user.get("is_bot")) or user["id"] == "USLACKBOT",
        is_deleted=bool(user.get("deleted")),
        is_guest=bool(user.get("is_restricted") or user.get("is_ultra_restricted")),
        is_stranger=bool(user.get("is_stranger")),
    )
