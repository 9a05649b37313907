"""Parts that an installation can run without: a folder each, which can be deleted.

Each has an `integration` (`bot.api.Integration`). Its folder is imported only if `clarify.toml` has its table. Other packages
add theirs through the entry-point group `clarify.integrations`, with the name of the table: `teams = "clarify_teams:integration"`.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bot.api import Integration

GROUP = "clarify.integrations"
OURS = {
    "github": "bot.integrations.github",
    "webhooks": "bot.integrations.webhooks",
}
"""The modules of our own, by name."""


@cache
def _theirs() -> dict[str, EntryPoint]:
    return {each.name: each for each in entry_points(group=GROUP) if each.name not in OURS}


def is_known(name: str) -> bool:
    """Whether an integration of that name is installed."""
    return name in OURS or name in _theirs()


def names() -> set[str]:
    """Returns the names of all that are installed."""
    return OURS.keys() | _theirs()


def load(name: str) -> Integration:
    """Imports an integration.

    Raises:
        Exception: whatever its module raises; TypeError if what it names is no integration of that name.
    """
    from bot.api import Integration  # noqa: PLC0415 - the settings are read with this module, which needs none of the API

    found = import_module(OURS[name]).integration if name in OURS else _theirs()[name].load()
    if not isinstance(found, Integration) or found.name != name:
        raise TypeError(f'it names no Integration with name="{name}"')
    return found
