"""From what was typed to clarifications: an id however spelled, an issue by its number, all ledgers at once."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

from bot.commands.grammar import id_of
from bot.shell.desk import Shell
from bot.shell.shelf import ledgers
from core.clarification import OPEN, TRANSITIONS, Clarification, parse_id
from core.errors import BadInput, ClarifyError, NotFound
from core.ledger import FileLedger
from core.records import Raw, parse

_ISSUE = re.compile(r"#?([0-9]{1,9})")
WHICH = "Which one? Give its id, or the number of its issue: CLR-42-001, or 42. (A shell takes an unquoted #42 for a comment.)"


def issue_of(name: str) -> int | None:
    """`42`, `#42` → 42; None: no issue's number."""
    match = _ISSUE.fullmatch(name.strip())
    return int(match[1]) if match else None


async def by_id(shell: Shell, name: str) -> Clarification:
    """One clarification, wherever it is kept.

    Raises:
        BadInput: not the form of an id.
        NotFound: no such record.
    """
    found = id_of(name) or name.strip()
    issue, _ = parse_id(found)
    try:
        return await shell.ledger.find(found, issue)
    except NotFound:
        async for kept in ledgers(shell.ledger, issue=issue):
            for record in kept.records:
                if record.id == found:
                    return record
        raise


async def of_issue(shell: Shell, issue: int) -> list[Clarification]:
    """All of an issue, in the order of the ledger.

    Raises:
        NotFound: there is none.
    """
    items = await shell.ledger.read(issue)
    records = [record for item in items if (record := parse(item)) is not None]
    if len(records) < len(items):
        shell.out.note(f"{len(items) - len(records)} more cannot be read in issue-{issue}.json.")
    if not records:
        raise NotFound(f"of issue {issue}")
    return records


async def one(shell: Shell, name: str | None, *, is_open: bool = True) -> Clarification:
    """The clarification that is meant: by its id, or the only one of an issue that is open (or answered).

    Raises:
        BadInput: neither of the two, or there are several.
        NotFound: there is none.
    """
    if not name:
        raise BadInput(WHICH)
    if (issue := issue_of(name)) is None:
        return await by_id(shell, name)
    kind = "open" if is_open else "open or answered"
    statuses = OPEN if is_open else OPEN | {"answered"}
    meant = [record for record in await of_issue(shell, issue) if record.status in statuses]
    if not meant:
        raise NotFound(f"of issue {issue} that is {kind}")
    if len(meant) > 1:
        ids = ", ".join(record.id for record in meant)
        raise BadInput(f"{len(meant)} of issue {issue} are {kind}: give the id of one: {ids}.")
    return meant[0]


async def everywhere(
    shell: Shell, wanted: Callable[[Raw], bool], issue: int | None = None
) -> tuple[list[Clarification], Sequence[str]]:
    """The records of all ledgers, or of one issue, that `wanted` takes as they stand in the file.

    What cannot be read does not hide the rest: it is told in words.
    """
    issues = None if issue is None else [issue]
    return await asyncio.to_thread(_read, shell.ledger, issues, wanted)


def has_status(item: Raw, statuses: Collection[str]) -> bool:
    """Whether a record, as it stands in the file, has one of them; also true of one whose status nobody knows, so that
    it is told as what cannot be read.
    """
    status = item.get("status")
    return status in statuses if isinstance(status, str) and status in TRANSITIONS else True


def is_open(item: Raw) -> bool:
    return has_status(item, OPEN)


def _read(
    ledger: FileLedger, issues: Iterable[int] | None, wanted: Callable[[Raw], bool]
) -> tuple[list[Clarification], Sequence[str]]:
    found: list[Clarification] = []
    troubles: list[str] = []
    for issue in sorted(ledger.issues() if issues is None else issues):
        try:
            items: list[Any] = ledger.read_now(issue)  # others write them: not all are objects
        except ClarifyError as error:
            troubles.append(str(error))
            continue
        records = [parse(item) for item in items if not isinstance(item, dict) or wanted(item)]
        found += [record for record in records if record is not None]
        if odd := sum(record is None for record in records):
            troubles.append(f"{odd} cannot be read in issue-{issue}.json.")
    return found, troubles
