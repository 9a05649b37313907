"""`oncall`: who is on call, taking it over for a while, handing it to somebody."""

from __future__ import annotations

import difflib
import logging
from collections.abc import Sequence
from datetime import datetime, timedelta

from bot.commands.access import Access
from bot.commands.grammar import OnCall
from bot.commands.ports import Announces, Doorkeeper
from bot.errors import StorageUnavailable
from bot.oncall.roster import OnDuty, Roster
from bot.people import Person, within_budget
from bot.settings.model import Settings
from bot.slackapi import Place
from bot.views import inert, phrases
from bot.views.listing import Listing, said
from core.clock import Clock

_log = logging.getLogger("clarify.commands")
DEFAULT_SPAN = timedelta(hours=8)
_NOBODY = "nobody: pages go to the fallback channel"


class OnCallDesk:
    """All methods raise SlackError where Slack does not tell who somebody is, StorageUnavailable where it was not kept."""

    def __init__(
        self,
        *,
        roster: Roster,
        access: Access,
        gate: Doorkeeper,
        announce: Announces,
        settings: Settings,
        clock: Clock,
    ) -> None:
        self._roster = roster
        self._access = access
        self._gate = gate
        self._announce = announce
        self._settings = settings
        self._clock = clock

    async def run(self, command: OnCall, person: Person, place: Place) -> Listing:
        """What the person is told."""
        names = [policy.name for policy in self._settings.on_call]
        if not names:
            return said("No on-call policy is configured.", live=False)
        if command.policy is not None and _known(command.policy, names) is None:
            return said(_unknown(command.policy, names), live=False)
        if command.verb == "who":
            return await self._who([_known(command.policy, names) or ""] if command.policy else names)
        policy = _known(command.policy, names) if command.policy else await self._meant(names, person, place)
        if policy is None:
            return said(f"Which policy? Name one at the end: {', '.join(names)}. For example: "
                        f"“/clarify oncall {command.verb} {'@ade ' if command.user else ''}2h {names[0]}”.", live=False)  # fmt: skip
        refusal = await self._access.duty_refusal(person, policy)
        if refusal is not None:
            return said(phrases.not_allowed(refusal.why, refusal.answerers).replace("answer", "change", 1))
        return await self._change(command, policy, person)

    async def _who(self, policies: Sequence[str]) -> Listing:
        lines = [_line(policy, await within_budget(self._roster.who(policy))) for policy in policies]
        return said("\n".join(lines), heading="On call")

    async def _change(self, command: OnCall, policy: str, person: Person) -> Listing:
        user = command.user or person.user
        if not await self._gate.full_member(user):
            who = f"{inert.mention(user)} cannot be on call" if command.user else "You cannot be on call"
            return said(f"{who}: only active, full members of this workspace can. Nothing was changed.")
        until = await self._until(command, policy)
        await self._roster.hand(policy, user, until, person.user)
        told = f"{_shown(policy)} until {inert.date(until)}"
        if user == person.user:
            return said(f"You are on call for {told}.")
        key = f"oncall:{policy}:{user}:{self._clock.now().isoformat()}"
        words = f"{inert.mention(person.user)} handed you on-call: you are on call for {told}."
        try:
            await self._announce.say(Place(user), key, words)
        except StorageUnavailable as error:
            _log.warning("nobody tells %s that they are on call: %s", user, error)
            return said(
                f"{inert.mention(user)} is on call for {told}, but could not be told: please tell them."
            )
        return said(f"{inert.mention(user)} is on call for {told}, and is told so.")

    async def _until(self, command: OnCall, policy: str) -> datetime:
        """As asked for; else the end of the present turn, or eight hours from now."""
        now = self._clock.now()
        if command.span is not None:
            return now + command.span
        ends = (await within_budget(self._roster.who(policy))).until
        return ends if ends is not None and ends > now else now + DEFAULT_SPAN

    async def _meant(self, names: Sequence[str], person: Person, place: Place) -> str | None:
        """The only policy; else this channel's; else the one that the person is on call by."""
        if len(names) == 1:
            return names[0]
        here = {route.on_call for route in self._settings.routes if route.channel == place.channel} - {None}
        if len(here) == 1:
            return here.pop()
        theirs = [name for name in names if person.user in await within_budget(self._roster.on_call(name))]
        return theirs[0] if len(theirs) == 1 else None


def _known(policy: str | None, names: Sequence[str]) -> str | None:
    return next((name for name in names if policy and name.casefold() == policy.casefold()), None)


def _unknown(policy: str, names: Sequence[str]) -> str:
    near = difflib.get_close_matches(policy.casefold(), [name.casefold() for name in names], 1)
    meant = f"Did you mean “{_known(near[0], names)}”?" if near else f"There are: {', '.join(names)}."
    return f"There is no on-call policy “{inert.clip(policy, 40)}”. {meant}"


def _line(policy: str, turn: OnDuty) -> str:
    who = ", ".join(inert.mention(user) for user in turn.users) or _NOBODY
    source = f" ({inert.escape(inert.line(turn.source))})" if turn.source else ""
    until = f", until {inert.date(turn.until)}" if turn.until else ""
    return f"{_shown(policy)}: {who}{source}{until}"


def _shown(policy: str) -> str:
    return inert.escape(inert.clip(inert.line(policy), 60))
