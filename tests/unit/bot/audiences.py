"""Audiences without a configuration: one route for every agent, and how roles answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from bot.routing import Audiences
from bot.settings.model import ResponderSettings, RouteSettings
from core.clarification import HUMAN


@dataclass
class Routes:
    """Every agent's questions go by `route`, but what is put to a role in `people`."""

    route: RouteSettings = field(default_factory=lambda: RouteSettings(channel="C0GOOD"))
    people: Mapping[str, RouteSettings] = field(default_factory=dict)
    responders: Mapping[str, ResponderSettings] = field(default_factory=dict)

    def route_for(self, agent_id: str, to: str = HUMAN) -> RouteSettings:
        return self.people.get(to, self.route)


def audiences(**more: object) -> Audiences:
    """Of `Routes`; `more` are its fields."""
    return Audiences(Routes(**more))  # type: ignore[arg-type]
