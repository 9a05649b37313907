"""What no table can know alone: names that must be unique, names that must exist, routes never reached.

Checked on the document as read, so that these problems are told together with those of single keys.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from bot.settings.model import Configuration
from bot.settings.problems import Problem, tables
from bot.settings.values import is_loopback
from core.clarification import agent_key


def cross_problems(document: Mapping[str, Any]) -> Iterator[Problem]:
    for array in ("producers", "on_call"):
        seen: set[object] = set()
        for index, table in tables(document, array):
            name = table.get("name")
            if isinstance(name, str) and name in seen:
                yield Problem((array, index, "name"), f'"{name}" is already used; names must be unique')
            seen.add(str(name))
    yield from _hooks_apart(document)
    yield from _roles_apart(document)
    yield from _on_call_references(document)
    yield from _unreachable_routes(document)
    yield from _missing_fallback(document)


def _hooks_apart(document: Mapping[str, Any]) -> Iterator[Problem]:
    """One address has one secret and one queue. It is not repeated: it may be a secret itself."""
    seen: dict[object, int] = {}
    for index, table in tables(document, "webhooks"):
        earlier = seen.setdefault(str(table.get("url")), index)
        if earlier != index and "url" in table:
            yield Problem(
                ("webhooks", index, "url"), f"the same as that of webhooks[{earlier}]; expected each once"
            )


def _roles_apart(document: Mapping[str, Any]) -> Iterator[Problem]:
    seen: dict[str, str] = {}
    responders = document.get("responders")
    for role in responders if isinstance(responders, dict) else ():
        earlier = seen.setdefault(agent_key(role), role)
        if earlier != role:
            yield Problem(("responders", role), f'the same role as "{earlier}"; expected each once')


def _on_call_references(document: Mapping[str, Any]) -> Iterator[Problem]:
    known = {str(table.get("name")) for _, table in tables(document, "on_call")}
    for index, route in tables(document, "routes"):
        name = route.get("on_call")
        if isinstance(name, str) and name not in known:
            choice = ", ".join(sorted(known)) or "none is defined"
            text = f'no [[on_call]] is named "{name}"; expected one of: {choice}'
            yield Problem(("routes", index, "on_call"), text)


def _unreachable_routes(document: Mapping[str, Any]) -> Iterator[Problem]:
    first: dict[str, int] = {}
    default: int | None = None
    for index, route in tables(document, "routes"):
        agent = route.get("agent")
        if "agent" not in route:
            if default is not None:
                yield Problem(
                    ("routes", index), f"a second route without agent; routes[{default}] is the default"
                )
            default = index if default is None else default
        elif isinstance(agent, str):
            earlier = first.get(agent, first.get("*"))
            if earlier is not None:
                yield Problem(("routes", index, "agent"), f"never reached: routes[{earlier}] takes all of it")
            first.setdefault(agent, index)


def _missing_fallback(document: Mapping[str, Any]) -> Iterator[Problem]:
    slack = document.get("slack")
    has_fallback = isinstance(slack, dict) and "fallback_channel" in slack
    if not has_fallback and all("agent" in route for _, route in tables(document, "routes")):
        text = "required, unless a route without agent is there: events of other agents need a place"
        yield Problem(("slack", "fallback_channel"), text)


def open_door_problems(configuration: Configuration) -> Iterator[Problem]:
    if is_loopback(configuration.http.host):
        return
    for index, producer in enumerate(configuration.producers):
        if producer.pushes and producer.token_env is None:
            text = f"required: it pushes to us, and http.listen ({configuration.http.listen}) is open to other hosts"
            yield Problem(("producers", index, "token_env"), text)
