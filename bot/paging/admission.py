"""Who may change what a page is about: the people of its policy, whoever was paged, the answerers of the route."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from bot.audience import Audience, Audiences, audience_of
from bot.errors import SlackUnreachableError
from bot.paging.board import Board
from bot.paging.model import Incident
from bot.paging.ports import Crew, Gate, Known
from bot.people import Person, Refusal
from bot.settings.model import Settings
from core.clarification import parse_id

_PATIENCE = 0.8  # seconds: Slack waits three for the whole
_WHY = "you are not among those who are on call here, nor among those who answer"


class Admission:
    """`gate()` is the one that knows our workspace; None: Slack did not tell yet."""

    def __init__(
        self, settings: Settings, board: Board, crew: Crew, gate: Callable[[], Gate | None], index: Known
    ) -> None:
        self._settings = settings
        self._audiences = Audiences(settings)
        self._index = index
        self._board = board
        self._crew = crew
        self._gate = gate

    async def is_member(self, user: str) -> bool:
        """Whether this is an active, full member, who could take it.

        Raises:
            SlackError: Slack does not tell now.
        """
        return await self._known_gate().full_member(user)

    async def filter(
        self, incidents: Sequence[Incident], person: Person
    ) -> tuple[list[Incident], Refusal | None]:
        """Those that `person` may change; or why none.

        Raises:
            SlackError: Slack does not tell now.
        """
        try:
            async with asyncio.timeout(_PATIENCE):
                return await self._filter(incidents, person)
        except TimeoutError:
            raise SlackUnreachableError("Slack did not say in time who somebody is.") from None

    async def _filter(
        self, incidents: Sequence[Incident], person: Person
    ) -> tuple[list[Incident], Refusal | None]:
        may: list[Incident] = []
        refusal: Refusal | None = None
        known: dict[tuple[str | None, Audience], Refusal | None] = {}
        for each in incidents:
            held = self._board.get(each.id)
            if held is not None and person.user in held.paged:
                may.append(each)
                continue
            key = (each.policy, self._audience(each))
            if key not in known:
                known[key] = await self._refusal(each, person)
            if known[key] is None:
                may.append(each)
            else:
                refusal = known[key]
        return may, refusal

    async def _refusal(self, incident: Incident, person: Person) -> Refusal | None:
        policy = next((each for each in self._settings.on_call if each.name == incident.policy), None)
        named: tuple[str, ...] = ()
        if policy is not None:
            named = policy.named_users
            if person.user in named or person.user in await self._crew.on_call(policy.name):
                return None
            if policy.group is not None and person.user in await self._crew.members(policy.group):
                return None
        audience = self._audience(incident)
        channel = self._audiences.route_of(audience).channel
        refused = await self._known_gate().refusal(person, channel, audience)
        return None if refused is None else Refusal(_WHY, [*named, *refused.answerers])

    def _audience(self, incident: Incident) -> Audience:
        """Whom the question is put to, where it is about one that still waits; else the agent's own people."""
        about = incident.clarification
        known = None if about is None else self._index.get(about, parse_id(about)[0])
        return Audience(incident.agent_id or "") if known is None else audience_of(known)

    def _known_gate(self) -> Gate:
        gate = self._gate()
        if gate is None:
            raise SlackUnreachableError("Slack did not say yet who we are.")
        return gate
