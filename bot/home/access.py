"""Whose questions somebody may answer, for a list: kept for minutes, since the click checks again."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Collection, Hashable
from dataclasses import dataclass
from typing import Protocol

import structlog

from bot.audience import Audience
from bot.errors import SlackError
from bot.home.facts import Admitted
from bot.people import Person, Refusal
from bot.settings.model import RouteSettings

_log = structlog.get_logger("clarify.home")
_KEEP, _AGAIN = 120.0, 15.0
_MOST_KEPT = 20_000


class Gatekeeper(Protocol):
    """Raises SlackError where Slack does not tell who somebody is: `bot.people.Gate`."""

    async def refusal(self, person: Person, channel: str, audience: Audience) -> Refusal | None: ...


@dataclass(frozen=True, slots=True)
class _Verdict:
    """`may` None: not known."""

    may: bool | None
    until: float


class KeptAccess:
    """One decision per person and route. `seconds` is a monotonic clock. To be made where a loop runs."""

    def __init__(self, route_of: Callable[[Audience], RouteSettings], seconds: Callable[[], float]) -> None:
        self._route_of = route_of
        self._seconds = seconds
        self._gate: asyncio.Future[Gatekeeper] = asyncio.get_running_loop().create_future()
        self._routes: dict[Audience, Hashable] = {}
        self._kept: dict[tuple[str, str, Hashable], _Verdict] = {}

    def use(self, gate: Gatekeeper) -> None:
        """Ask `gate` from now on. Until then `admitted` waits: a tab that says "not known" would replace a good one."""
        if not self._gate.done():
            self._gate.set_result(gate)

    async def admitted(self, person: Person, audiences: Collection[Audience]) -> Admitted:
        """See `bot.home.ports.Access`."""
        by_route: dict[Hashable, list[Audience]] = defaultdict(list)
        for audience in audiences:
            by_route[self._route(audience)].append(audience)
        allowed: list[Audience] = []
        unsure = False
        for route, of_route in by_route.items():
            may = await self._may(person, route, of_route[0])
            unsure |= may is None
            allowed += of_route if may else ()
        return Admitted(frozenset(allowed), unsure)

    def _route(self, audience: Audience) -> Hashable:
        """What the decision depends on: audiences of one route share it."""
        if audience not in self._routes:
            if len(self._routes) >= _MOST_KEPT:
                self._routes.clear()
            route = self._route_of(audience)
            self._routes[audience] = (route.channel, route.answerers)
        return self._routes[audience]

    async def _may(self, person: Person, route: Hashable, audience: Audience) -> bool | None:
        key = (person.team, person.user, route)
        kept = self._kept.get(key)
        if kept is None or kept.until <= self._seconds():
            if len(self._kept) >= _MOST_KEPT:
                self._kept.clear()
            kept = self._kept[key] = await self._verdict(person, audience, kept)
        return kept.may

    async def _verdict(self, person: Person, audience: Audience, before: _Verdict | None) -> _Verdict:
        gate = await asyncio.shield(self._gate)
        try:
            refusal = await gate.refusal(person, self._route_of(audience).channel, audience)
        except SlackError as error:
            _log.warning("Slack does not tell what somebody may answer", user=person.user, reason=str(error))
            return _Verdict(before.may if before else None, self._seconds() + _AGAIN)
        return _Verdict(refusal is None, self._seconds() + _KEEP)
