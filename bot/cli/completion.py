# ruff: noqa: PLC0415 - named by the commands, so loaded for `--help` too: what it needs is imported when it runs
"""What the Tab key offers: ids and roles, from the ledgers that were written last.

Fast rather than whole: a few hundred files, a few megabytes, a third of a second. Never an error: the person is typing.
"""

from __future__ import annotations

import heapq
import os
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from bot.settings.model import ShellSettings

Offer = tuple[str, str]
_FILES, _BYTES, _SECONDS, _OFFERS = 200, 8_000_000, 0.35, 200
_TOPIC = 60
# Shells evaluate what they are offered (zsh: even the words beside it), so only what no shell gives a meaning to.
_ROLE = re.compile(r"\w[\w.@/+-]{0,79}")
_MEANT = re.compile(r"[^\w ,./+-]+")


def complete_open_id(ctx: typer.Context, incomplete: str) -> list[Offer]:
    """Ids of clarifications that are not closed, with their topics."""
    return _ids(ctx, incomplete, only_open=True)


def complete_id(ctx: typer.Context, incomplete: str) -> list[Offer]:
    """All ids, with their topics."""
    return _ids(ctx, incomplete, only_open=False)


def complete_role(ctx: typer.Context, incomplete: str) -> list[Offer]:
    """Names of agents and roles: of the ledgers, the workflows, the responders."""
    try:
        start = incomplete.casefold()
        found: dict[str, Offer] = {}
        for role in _roles(_settings(ctx)):
            if _ROLE.fullmatch(role) and role.casefold().startswith(start):
                found.setdefault(role.casefold(), (role, ""))
    except Exception:  # noqa: BLE001 - a line that is being typed is no place for errors
        return []
    return sorted(found.values())[:_OFFERS]


def _ids(ctx: typer.Context, incomplete: str, *, only_open: bool) -> list[Offer]:
    from core.clarification import ID
    from core.records import identity

    try:
        offers: list[Offer] = []
        for item in _records(_settings(ctx).ledger.directory):
            name = identity(item)
            if not ID.fullmatch(name) or not name.startswith(incomplete):
                continue
            if not only_open or str(item.get("status")) not in {"resolved", "abandoned"}:
                offers.append((name, _harmless(f"{item.get('status')}, {item.get('topic')}")))
        return offers[:_OFFERS]
    except Exception:  # noqa: BLE001 - a line that is being typed is no place for errors
        return []


def _harmless(text: str) -> str:
    return " ".join(_MEANT.sub(" ", text).split())[:_TOPIC]


def _roles(settings: ShellSettings) -> Iterator[str]:
    yield from settings.responders
    for step in _steps(settings.ledger.workflows):
        yield from _words(step.get("agent"), *_listed(step.get("can_clarify")))
    for item in _records(settings.ledger.directory):
        yield from _words(item.get("from"), item.get("to"))


def _steps(folder: Path) -> Iterator[dict[str, Any]]:
    import tomllib

    for path in sorted(folder.glob("*.toml"))[:_FILES]:
        try:
            steps = tomllib.loads(path.read_text(encoding="utf-8")).get("steps")
        except (OSError, ValueError):
            continue  # `request` says what is wrong with it
        yield from (step for step in _listed(steps) if isinstance(step, dict))


def _records(folder: Path) -> Iterator[dict[str, Any]]:
    """The records of the ledgers that were written last, the latest file first, until it takes too long."""
    from core.files import read_regular
    from core.records import decode

    deadline, left = time.monotonic() + _SECONDS, _BYTES
    for size, path in _newest(folder):
        left -= size
        if left < 0 or time.monotonic() > deadline:
            return
        try:
            items = decode(read_regular(path))["clarifications"]
        except (OSError, ValueError):
            continue  # gone, or being written
        yield from (item for item in reversed(items) if isinstance(item, dict))


def _newest(folder: Path) -> list[tuple[int, Path]]:
    found = []
    with os.scandir(folder) as entries:
        for entry in entries:
            is_named = entry.name.startswith("issue-") and entry.name.endswith(".json")
            if is_named and entry.is_file(follow_symlinks=False):
                state = entry.stat()
                found.append((state.st_mtime_ns, state.st_size, folder / entry.name))
    return [(size, path) for _, size, path in heapq.nlargest(_FILES, found)]


def _settings(ctx: typer.Context) -> ShellSettings:
    from bot.settings.load import load_shell_settings

    config = ctx.params.get("config")
    return load_shell_settings(Path(config) if config else None, {})


def _listed(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _words(*values: object) -> Iterator[str]:
    return (value for value in values if isinstance(value, str))
