"""Parts that an installation can run without: a folder each, which can be deleted.

Each has an `integration` (`bot.api.Integration`). Its folder is imported only if `clarify.toml` has its table, or if it is on by
default. Other packages add theirs through the entry-point group `clarify.integrations`, with the name of the table:
`teams = "clarify_teams:integration"`.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec
from typing import Any

GROUP = "clarify.integrations"
OURS = {
    "agentstatus": "bot.integrations.agentstatus",
    "apprise": "bot.integrations.apprise",
    "digest": "bot.integrations.digest.integration",
    "github": "bot.integrations.github",
    "ical": "bot.integrations.ical",
    "pagerduty": "bot.integrations.pagerduty",
    "webhooks": "bot.integrations.webhooks",
}
"""The modules of our own, by name."""
TABLES = ("digest", "github", "webhooks")
"""Those that have a table of their own."""
DEFAULT_ON = tuple(name for name in ("agentstatus", "digest") if find_spec(f"{__name__}.{name}") is not None)
"""Those that do something without a table, unless their folder was deleted."""
SHELL = {name: f"{__name__}.{name}.cli" for name in ("digest",) if name in DEFAULT_ON}
"""The modules with commands of the shell, by word. `clarify --help` reads them: they import nothing that takes time."""
ON_CALL = {"ical_env": "ical", "pagerduty": "pagerduty"}
"""Those that say who is on call, by their key in `[[on_call]]`. That of others is their name."""
PAGERS = ("apprise",)
"""Those that page people outside Slack: steps name them as `NAME:VARIABLE`."""


@cache
def _theirs() -> dict[str, EntryPoint]:
    return {each.name: each for each in entry_points(group=GROUP) if each.name not in OURS}


def has_table(name: str) -> bool:
    """Whether an integration of that name may have a table."""
    return name in TABLES or (name not in OURS and name in _theirs())


def on_call(key: str) -> str | None:
    """Returns the integration that may have a key in `[[on_call]]`, by its name."""
    return ON_CALL.get(key) or (key if key not in OURS and key in _theirs() else None)


def is_pager(kind: str) -> bool:
    """Whether an integration of that name may page people."""
    return kind in PAGERS or (kind not in OURS and kind in _theirs())


def tables() -> set[str]:
    """Returns the names of all that may have a table."""
    return {*TABLES, *_theirs()}


def load(name: str) -> Any:
    """Imports an integration, a `bot.api.Integration`: this module is below it, as settings are read with it.

    Raises:
        Exception: whatever its module raises; TypeError if what it names is no integration of that name.
    """
    found = import_module(OURS[name]).integration if name in OURS else _theirs()[name].load()
    if getattr(found, "name", None) != name:
        raise TypeError(f'it names no Integration with name="{name}"')
    return found
