"""All clarifications there are: the live ledgers and those in `archive/`, one ledger in memory at a time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from core.clarification import Clarification
from core.errors import ClarifyError
from core.files import read_regular
from core.ledger import FileLedger
from core.records import Raw, decode, oddity, parse

ARCHIVE = "archive"


@dataclass(frozen=True, slots=True)
class Ledger:
    """What is known of one issue: its records, the live ones first, and in words what of it cannot be read."""

    issue: int
    records: Sequence[Clarification]
    problems: Sequence[str]


async def ledgers(
    ledger: FileLedger, *, issue: int | None = None, archived: bool = True
) -> AsyncIterator[Ledger]:
    """Each issue once, in the order of their numbers; a file that moves to the archive meanwhile is not missed."""
    live, problems = await asyncio.to_thread(_live, ledger)
    kept: dict[int, list[Path]] = {}
    if archived:
        kept, more = await asyncio.to_thread(_archived, ledger)
        problems += more
    if problems:
        yield Ledger(0, (), problems)
    for number in sorted(live | kept.keys()):
        if issue is None or number == issue:
            yield await _read(ledger, number, kept.get(number, []), archived=archived)


async def _read(ledger: FileLedger, issue: int, kept: list[Path], *, archived: bool) -> Ledger:
    items: list[tuple[str, list[Raw]]] = []
    problems: list[str] = []
    name = ledger.path(issue).name
    try:
        items.append((name, await ledger.read(issue)))
    except ClarifyError as error:
        problems.append(str(error))
    usual = ledger.directory / ARCHIVE / name  # it may have moved there since the folder was listed
    for path in sorted({*kept, usual}) if archived else ():
        try:
            items.append((f"{ARCHIVE}/{path.name}", await asyncio.to_thread(_kept, path, issue)))
        except (OSError, ValueError) as error:
            reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
            problems.append(f"The archived ledger {ARCHIVE}/{path.name} cannot be read ({reason}).")
    return _put_together(issue, items, problems)


def _put_together(issue: int, files: list[tuple[str, list[Raw]]], problems: list[str]) -> Ledger:
    """The same record in two files counts once. Others number anew in a new file: the same id may be another's."""
    records: dict[tuple[str, object], Clarification] = {}
    for name, items in files:
        for position, item in enumerate(items, 1):
            if (record := parse(item)) is not None:
                records.setdefault((record.id, record.created), record)
            elif (odd := oddity(issue, position, item)) is not None:
                fields = ", ".join(odd.fields)
                problems.append(f"{odd.name} in {name} is no clarification that can be read (see {fields}).")
    return Ledger(issue, list(records.values()), problems)


def _live(ledger: FileLedger) -> tuple[set[int], list[str]]:
    try:
        return set(ledger.issues()), []
    except OSError as error:
        return set(), [f"The folder {ledger.directory} cannot be read ({error.strerror})."]


def _archived(ledger: FileLedger) -> tuple[dict[int, list[Path]], list[str]]:
    found: dict[int, list[Path]] = {}
    try:
        for issue, path in ledger.archive.shelf.ledgers():
            found.setdefault(issue, []).append(path)
    except FileNotFoundError:
        return {}, []
    except OSError as error:
        return found, [f"The folder {ledger.archive.folder} cannot be read ({error.strerror})."]
    return found, []


def _kept(path: Path, issue: int) -> list[Raw]:
    try:
        content = read_regular(path)
    except FileNotFoundError:
        return []
    items: list[Raw] = decode(content, issue)["clarifications"]
    return items
