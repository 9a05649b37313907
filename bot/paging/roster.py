"""Who is on call now. Slack is asked, with a limit; what it does not tell is taken as last known.

The first of these sources that has somebody holds: the override in force; the policy's users, rotation or user
group; the other users that the policy names. Deactivated people are left out wherever they stand.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Protocol

import structlog

from bot.errors import SlackError, SlackRefusedError, StorageError
from bot.people import NO_GROUP, UNTOLD, Profile
from bot.settings.model import OnCallSettings, RotationSettings, Settings
from core.clock import Clock
from core.escalation import Override, in_force, turn, turn_until

_log = structlog.get_logger("clarify.oncall")
_PATIENCE = 3.0  # seconds: a page must not wait for a directory
_SILENCE = timedelta(seconds=15)


class Directory(Protocol):
    """What is asked of Slack. Every method raises SlackError if it cannot be known."""

    async def profile(self, user: str) -> Profile: ...
    async def group(self, group: str) -> AbstractSet[str]: ...
    async def present(self, user: str) -> bool: ...


class Overrides(Protocol):
    async def list(self, policy: str) -> Sequence[Override]:
        """In the order of making.

        Raises:
            StorageError: it cannot be known.
        """
        ...


@dataclass(frozen=True, slots=True)
class OnDuty:
    """Who is on call, by what (`source`, in words), until when if that is known, and who said so if somebody did."""

    users: tuple[str, ...]
    source: str
    until: datetime | None = None
    by: str | None = None


class Roster:
    """No method raises. `patience`: how many seconds Slack has for an answer."""

    def __init__(
        self,
        settings: Settings,
        people: Directory,
        duty: Overrides,
        clock: Clock,
        *,
        patience: float = _PATIENCE,
    ) -> None:
        self._policies = {policy.name: policy for policy in settings.on_call}
        self._people = people
        self._duty = duty
        self._clock = clock
        self._patience = patience
        self._active: dict[str, bool] = {}  # as last known
        self._groups: dict[str, tuple[str, ...]] = {}
        self._silent_since: datetime | None = None

    async def on_call(self, policy_name: str) -> tuple[str, ...]:
        """The user ids of those who are on call; empty if there is nobody."""
        return (await self.who(policy_name)).users

    async def who(self, policy_name: str) -> OnDuty:
        policy = self._policies.get(policy_name)
        if policy is None:
            return OnDuty((), "no such policy")
        override = in_force(await self._overrides(policy_name), self._clock.now())
        if override is not None and await self.active((override.user,)):
            words = "took over" if override.by == override.user else "handed over"
            return OnDuty((override.user,), words, override.until, override.by)
        planned = await self._planned(policy)
        if planned.users:
            return planned
        return OnDuty(await self._others(policy), "stands in")

    async def everybody(self, policy_name: str) -> frozenset[str]:
        """All whom a policy concerns: who is on call, who is named, the members of its group."""
        policy = self._policies.get(policy_name)
        if policy is None:
            return frozenset()
        members = await self.members(policy.group) if policy.group is not None else ()
        named = await self.active(policy.named_users)
        return frozenset({*await self.on_call(policy_name), *named, *members})

    async def members(self, group: str) -> tuple[str, ...]:
        """The active members of a user group, sorted; as last known while Slack does not tell."""
        try:
            async with self._limit():
                found = tuple(sorted(await self._people.group(group)))
            self._groups[group] = found
        except (SlackError, TimeoutError) as error:
            gone = isinstance(error, SlackRefusedError) and error.code in NO_GROUP
            _log.warning("a user group's members are not known", group=group, reason=self._why(error))
            found = () if gone else self._groups.get(group, ())
        return await self.active(found)

    async def active(self, users: Iterable[str]) -> tuple[str, ...]:
        """Those of `users` who are not known to be deactivated, in their order."""
        asked = tuple(dict.fromkeys(users))
        known = await asyncio.gather(*map(self._is_active, asked))
        return tuple(user for user, is_active in zip(asked, known, strict=True) if is_active)

    async def _is_active(self, user: str) -> bool:
        try:
            async with self._limit():
                self._active[user] = not (await self._people.profile(user)).is_deleted
        except (SlackError, TimeoutError) as error:
            if isinstance(error, SlackRefusedError) and error.code in UNTOLD:
                self._active[user] = False
            else:
                _log.warning("a person's profile is not known", user=user, reason=self._why(error))
        return self._active.get(user, True)

    def _limit(self) -> asyncio.Timeout:
        """How long Slack has; no time at all right after it was silent: a page about hundreds asks for each of them."""
        return asyncio.timeout(0 if self._is_silent() else self._patience)

    def _is_silent(self) -> bool:
        since = self._silent_since
        return since is not None and timedelta(0) <= self._clock.now() - since < _SILENCE

    def _why(self, error: Exception) -> str:
        """What to log; a silence is remembered."""
        if isinstance(error, TimeoutError) and not self._is_silent():
            self._silent_since = self._clock.now()
        return str(error) or type(error).__name__

    async def _overrides(self, policy_name: str) -> Sequence[Override]:
        try:
            return await self._duty.list(policy_name)
        except StorageError as error:
            _log.error("overrides of on call cannot be read", policy=policy_name, reason=str(error))
            return ()

    async def _planned(self, policy: OnCallSettings) -> OnDuty:
        if policy.group is not None:
            members = await self.members(policy.group)
            if policy.pick == "first_present":
                members = await self._first_present(members)
            return OnDuty(members, "user group")
        if policy.rotation is not None:
            return await self._on_shift(policy.rotation)
        return OnDuty(await self.active(policy.users or ()), "fixed list")

    async def _on_shift(self, plan: RotationSettings) -> OnDuty:
        now = self._clock.now()
        users = await self.active((turn(plan.users, plan.start, plan.shift, plan.timezone, now),))
        return OnDuty(users, "rotation", turn_until(plan.start, plan.shift, plan.timezone, now))

    async def _others(self, policy: OnCallSettings) -> tuple[str, ...]:
        """In a rotation the next one only, as it is one person's turn."""
        plan = policy.rotation
        if plan is None:
            return await self.active(policy.named_users)
        at = plan.users.index(turn(plan.users, plan.start, plan.shift, plan.timezone, self._clock.now()))
        return (await self.active((*plan.users[at + 1 :], *plan.users[:at])))[:1]

    async def _first_present(self, members: tuple[str, ...]) -> tuple[str, ...]:
        """All of them where nobody is present, or Slack does not tell in time."""
        try:
            async with self._limit():
                for user in members:
                    if await self._people.present(user):
                        return (user,)
        except (SlackError, TimeoutError) as error:
            _log.warning("who is present is not known", reason=self._why(error))
        return members
