"""Parts that an installation can run without: a folder each, which can be deleted.

Each has an `integration` (`bot.api.Integration`). Its folder is imported only if `clarify.toml` has its table, or if it is on by
default. To cut one out, delete its folder. Other packages add theirs through the entry-point group `clarify.integrations`, with
the name of the table: `teams = "clarify_teams:integration"`.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec
from pathlib import Path
from typing import Any

_log = logging.getLogger("clarify.integrations")
GROUP = "clarify.integrations"
_FOLDER = Path(__file__).parent


def _there(*names: str) -> tuple[str, ...]:
    return tuple(name for name in names if (_FOLDER / name / "__init__.py").exists())


OURS = _there(
    "agentstatus", "apprise", "digest", "github", "guard", "ical", "ledgerfiles", "pagerduty", "webhooks"
)
"""The folders of our own."""
TABLES = _there("digest", "github", "guard", "webhooks")
"""Those that have a table of their own."""
DEFAULT_ON = _there("agentstatus", "digest", "ledgerfiles")
"""Those that do something without a table."""
SHELL = {name: f"{__name__}.{name}.cli" for name in _there("digest")}
"""The modules with commands of the shell, by word. `clarify --help` reads them: they import nothing that takes time."""
ON_CALL = {key: name for key, name in {"ical_env": "ical", "pagerduty": "pagerduty"}.items() if name in OURS}
"""Those that say who is on call, by their key in `[[on_call]]`. That of others is their name."""
PAGERS = _there("apprise")
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


@cache
def schemas() -> Mapping[str, Sequence[str]]:
    """Returns the SQL files of integrations that have tables, in order, by name. Imports none of them."""
    folders = {name: _FOLDER / name for name in OURS}
    for name, each in _theirs().items():
        spec = find_spec(each.module.partition(".")[0])
        if spec is not None and spec.submodule_search_locations:
            folders[name] = Path(spec.submodule_search_locations[0], *each.module.split(".")[1:])
    files = {name: sorted(folder.glob("*.sql")) for name, folder in sorted(folders.items())}
    return {
        name: [each.read_text(encoding="utf-8") for each in found] for name, found in files.items() if found
    }


def installed() -> Iterator[Any]:
    """Yields all integrations, also those that are not configured, without those that cannot be loaded."""
    for name in sorted({*OURS, *_theirs()}):
        try:
            yield load(name)
        except Exception:  # noqa: BLE001 - others wrote it
            _log.exception("an integration cannot be loaded: %s", name)


def load(name: str) -> Any:
    """Imports an integration, a `bot.api.Integration`: this module is below it, as settings are read with it.

    Raises:
        Exception: whatever its module raises; TypeError if what it names is no integration of that name.
    """
    if (
        name in OURS
    ):  # those with commands of the shell have it in a module, since `clarify --help` imports their folder
        found = import_module(
            f"{__name__}.{name}.integration" if name in SHELL else f"{__name__}.{name}"
        ).integration
    else:
        found = _theirs()[name].load()
    if getattr(found, "name", None) != name:
        raise TypeError(f'it names no Integration with name="{name}"')
    return found
