"""Audiences of a configuration with one route for every agent, and the roles that people or agents answer for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bot.routing import Audiences
from bot.settings.model import ResponderSettings, RouteSettings, Settings


def audiences(
    route: RouteSettings | None = None,
    people: Mapping[str, tuple[str, ...]] | None = None,
    responders: Mapping[str, ResponderSettings] | None = None,
) -> Audiences:
    """`people`: the roles that people answer for, with their channel, users and groups; `responders`: all others."""
    routes = (route or RouteSettings(channel="C0GOOD"),)
    of_people = {role: ResponderSettings(people=named) for role, named in (people or {}).items()}
    tables: dict[str, Any] = {"routes": routes, "responders": of_people | dict(responders or {})}
    return Audiences(Settings.model_construct(**tables))
