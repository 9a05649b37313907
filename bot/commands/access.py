"""Who may see and change what through commands: those who may answer, and whoever is on call for the agent."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from bot.commands.ports import Doorkeeper
from bot.oncall.roster import Roster
from bot.people import Person, Refusal, within_budget
from bot.routing import Audience, Audiences, audience_of
from bot.settings.model import RouteSettings, Settings
from core.clarification import Clarification
from core.index import Summary


@dataclass(frozen=True, slots=True)
class Circle:
    """What a person may do, by audiences: answer the questions that are put to them, or only see them."""

    user: str
    answers: frozenset[Audience]
    sees: frozenset[Audience]

    def may_answer(self, audience: Audience) -> bool:
        return audience in self.answers

    def may_see(self, audience: Audience) -> bool:
        return audience in self.answers or audience in self.sees


class Access:
    """Every method raises SlackError where Slack does not tell who somebody is.

    `paged(clarification)` gives the users that its open pages were sent to.
    """

    def __init__(
        self,
        gate: Doorkeeper,
        roster: Roster,
        paged: Callable[[str], frozenset[str]],
        settings: Settings,
    ) -> None:
        self._gate = gate
        self._roster = roster
        self._paged = paged
        self._settings = settings
        self._audiences = Audiences(settings)

    async def circle(self, person: Person, audiences: Iterable[Audience]) -> Circle:
        """What `person` may do with questions of `audiences`. Asks Slack once per route, not once per audience."""
        by_route: dict[RouteSettings, list[Audience]] = {}
        for audience in audiences:
            by_route.setdefault(self._audiences.route_of(audience), []).append(audience)
        answers: set[Audience] = set()
        sees: set[Audience] = set()
        for route, named in by_route.items():
            if await self._refusal(person, route, named[0]) is None:
                answers.update(named)
            elif await self._gate.sees(person, named[0]):
                sees.update(named)
        return Circle(person.user, frozenset(answers), frozenset(sees))

    async def refusal(self, person: Person, record: Clarification) -> Refusal | None:
        """Why `person` may not change this clarification; None if they may."""
        if record.status == "escalated" and person.user in self._paged(record.id):
            return None
        audience = audience_of(record)
        return await self._refusal(person, self._audiences.route_of(audience), audience)

    async def duty_refusal(self, person: Person, policy: str) -> Refusal | None:
        """Why `person` may not change who is on call by a policy; None if they may.

        Those may who are named by it, whose turn it is, and who answer where it is used.
        """
        settings = self._settings.on_call_named(policy)
        named = settings.named_users
        if person.user in named or person.user in await within_budget(self._roster.on_call(policy)):
            return None
        refused: Refusal | None = None
        for route in self._settings.routes:
            if route.on_call == policy:
                refused = await self._gate.refusal_on(person, route)
                if refused is None:
                    return None
        return refused or Refusal("you are not among those who are on call here", named)

    def is_held_by(self, user: str, summary: Summary) -> bool:
        """Whether somebody took it, was handed it, or was paged for it while it is escalated."""
        if user in {summary.taken_by, summary.handed_to}:
            return True
        return summary.status == "escalated" and user in self._paged(summary.id)

    async def _refusal(self, person: Person, route: RouteSettings, audience: Audience) -> Refusal | None:
        refused = await self._gate.refusal(person, route.channel, audience)
        if refused is None or route.on_call is None:
            return refused
        return None if person.user in await within_budget(self._roster.on_call(route.on_call)) else refused
