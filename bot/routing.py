"""Decides from the settings who answers a question, where it is shown, and whether it has a card. Pure.

An agent may ask a role. If people answer for that role, the question goes to them. If a command or an endpoint does,
people only see what it leaves unsettled, and every question that arrived as a producer's event.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from bot.settings.model import Configuration, RouteSettings
from core.approvals import bounded
from core.clarification import HUMAN, Ask, agent_key
from core.index import OWN_THREAD, Session, session_of
from core.summary import Seen
from core.workflow import main_agent

_MOST_KEPT = 20_000


class Audience(NamedTuple):
    """Decides who answers: the agent that asks, the role that it asks, and the only person who may answer (an e-mail
    address or a Slack user id; empty: anyone on the route).
    """

    agent: str
    to: str = HUMAN
    person: str = ""


class Group(NamedTuple):
    """An agent's questions in one channel. They share a limited number of cards; the rest go into a roll-up card."""

    agent: str
    channel: str


@dataclass(frozen=True, slots=True)
class Thread:
    """A Slack thread and the session that it belongs to."""

    producer: str
    session_id: str
    issue: int
    agent_id: str
    channel: str
    ts: str


def audience_of(record: Seen) -> Audience:
    """Returns the audience of a question. If its target may not be asked, it goes to the asking agent's own people."""
    return Audience(record.agent, HUMAN if record.is_held_back else record.to, record.person or "")


class Audiences:
    """Makes these decisions by this bot's settings."""

    def __init__(self, settings: Configuration) -> None:
        self._settings = settings
        self._kinds = {agent_key(role): each.kind for role, each in settings.responders.items()}
        self._cached: dict[Audience, RouteSettings] = {}

    @property
    def names(self) -> list[str]:
        """The possible names of this bot's routes."""
        return list(dict.fromkeys([*(each.name for each in self._settings.routes), "*"]))

    @property
    def channels(self) -> list[str]:
        """Every channel in which questions may be shown."""
        routes = (each.channel for each in self._settings.routes)
        roles = (each.channel for each in self._settings.responders.values())
        found = (*routes, *roles, self._settings.slack.fallback_channel)
        return list(dict.fromkeys(each for each in found if each is not None))

    def route_of(self, audience: Audience) -> RouteSettings:
        """Returns the route of an audience. Cached: thousands of questions share a few audiences."""
        route = self._cached.get(audience)
        if route is None:
            if len(self._cached) >= _MOST_KEPT:
                self._cached.clear()
            route = self._cached[audience] = self._settings.route_for(*audience)
        return route

    def by_route(self, audiences: Iterable[Audience]) -> dict[RouteSettings, list[Audience]]:
        """Groups audiences by the route that decides who answers, so that Slack is asked once per route."""
        found: dict[RouteSettings, list[Audience]] = {}
        for audience in audiences:
            found.setdefault(self.route_of(audience), []).append(audience)
        return found

    def route(self, record: Seen) -> RouteSettings:
        """Returns where a question goes, and who answers it there."""
        return self.route_of(audience_of(record))

    def group(self, record: Seen) -> Group:
        """Returns the group with which a question shares cards."""
        return Group(audience_of(record).agent, self.route(record).channel)

    def thread(self, record: Seen) -> Session:
        """Returns the session in whose thread a question is shown: its own thread if its session is shown in another
        channel.
        """
        own = self.route_of(Audience(main_agent(record.agent)))
        return session_of(record) if self.route(record).channel == own.channel else (OWN_THREAD, record.id)

    def is_asked_in(self, thread: Thread, record: Seen) -> bool:
        if thread.producer == OWN_THREAD:
            return record.id == thread.session_id
        return self.thread(record) == (thread.producer, thread.session_id)

    def shows(self, record: Seen) -> bool:
        """Returns whether people need to see the question's card.

        Always for a producer's event. For what agents ask each other, while it is open: if people are asked, if
        nothing else is asked, and once it is escalated. A role that is not configured is left to another
        implementation, unless we were told to ask it.
        """
        if record.producer is not None:
            return True
        if not record.is_open:
            return False
        if record.status == "escalated" or record.is_held_back:
            return True
        if (kind := self._kinds.get(agent_key(record.to))) is not None:
            return kind == "people"
        is_late = record.status == "stale" or record.nudges > 0
        return agent_key(record.to) == HUMAN or record.via is not None or is_late

    def bounded(self, ask: Ask) -> Ask:
        """Returns a question with whom its agent works for; a confirmation also under the rules of its route."""
        pinned = self._settings.requester_of(ask.asked.producer)
        if pinned is not None:
            ask = ask.under(requested_by=pinned)
        if not ask.asked.is_confirmation:
            return ask
        route = self.route_of(Audience(ask.agent_id))
        four_eyes = route.four_eyes.rule if route.four_eyes is not None else None
        return bounded(ask, route.risk_at_least, route.approvals.by_risk, route.reason, four_eyes)

    def asks_an_agent(self, record: Seen) -> bool:
        """Returns whether a command or an endpoint is being asked for an answer, besides the people who see the card."""
        waits = record.is_with_target and not record.is_held_back
        return waits and self._kinds.get(agent_key(record.to)) in {"command", "http"}
